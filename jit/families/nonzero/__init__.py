"""The indices where a mask holds."""
