"""Accuracy by class and sensitive value, and differences between groups."""
