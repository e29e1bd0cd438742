"""What belongs to no room: files, checks of parameters, numbers as text, optional libraries."""
