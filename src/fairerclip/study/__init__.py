"""Methods side by side, and the paper's tables and figures run again."""
