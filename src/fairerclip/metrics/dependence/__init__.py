"""How much predictions or embeddings hold of an attribute."""
