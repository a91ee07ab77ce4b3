"""Whether a program treats the rows of a batch one by one: see `verdicts`."""
