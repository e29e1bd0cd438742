"""The sections of an audit, a file each."""
