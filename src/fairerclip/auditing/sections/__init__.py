"""The sections of an audit, one module each."""
