"""Helpers that every room uses: files, checks of parameters, numbers as text, optional libraries."""
