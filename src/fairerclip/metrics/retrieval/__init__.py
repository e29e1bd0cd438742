"""Who is shown at the top of a ranking, and what the ranking is worth."""
