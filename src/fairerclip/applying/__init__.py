"""Any saved model applied to new rows, and the files of its answers."""
