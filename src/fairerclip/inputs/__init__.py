"""What a fit is given, checked and made complete: embeddings, prompts, labels, sensitive values, weights."""
