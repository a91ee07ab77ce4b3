"""Whether a program treats the rows of a batch independently: see `verdicts`."""
