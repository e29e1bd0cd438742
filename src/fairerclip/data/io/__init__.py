"""Readers and writers of files that nobody vouches for, one per format."""
