"""Mitigation in the space of the embeddings: embeddings in, embeddings of the same space out, for any query."""
