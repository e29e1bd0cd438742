"""Models as files: data only, checked before use."""
