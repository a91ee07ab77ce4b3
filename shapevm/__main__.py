"""`python -m shapevm` and the console script: see `cli`."""

from .cli import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
