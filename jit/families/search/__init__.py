"""Where values would go in sorted rows."""
