"""The estimator: fit, predict, transform, the whole trade-off, presets and files."""
