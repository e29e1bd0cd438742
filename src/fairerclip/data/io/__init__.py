"""Readers and writers, one per format; readers check everything, so that untrusted files are safe to open."""
