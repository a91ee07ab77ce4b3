"""The first elements of every row, in order."""
