"""FairerCLIP and every baseline on the same rows, tuned alike."""
