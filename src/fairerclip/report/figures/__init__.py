"""Figures for a paper, drawn by matplotlib."""
