"""Comparison of models on labelled rows: a posterior over group accuracies, objectives, offsets and the choice."""
