"""Shares of groups at the top of a ranking, and the quality of the ranking."""
