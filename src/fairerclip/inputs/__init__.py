"""Checks and completion of the inputs of a fit: embeddings, prompts, labels, sensitive values, weights."""
