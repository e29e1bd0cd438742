"""Dependence of predictions or embeddings on an attribute: measures, intervals and tests."""
