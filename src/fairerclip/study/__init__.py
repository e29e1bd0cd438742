"""Comparisons of methods, and reproduction of the paper's tables and figures."""
