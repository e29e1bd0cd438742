"""How a CLIP model treats groups: one task looked at from every side, or many models side by side."""
