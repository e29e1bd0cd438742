"""Choose a model on validation rows: the search, what it goes by, and the offsets that it learns."""
