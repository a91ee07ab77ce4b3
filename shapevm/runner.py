"""The standalone runner's place in an installation, and the console command that becomes it."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def runner_path() -> Path:
    """Return the path of `shapevm-run`, the C program. Raises FileNotFoundError where the installation lacks
    it."""
    import shapevm

    for folder in shapevm.__path__:
        path = Path(folder, "bin", "shapevm-run")
        if path.exists():
            return path
    raise FileNotFoundError(
        "shapevm-run is not in this installation; install shapevm again from its wheel or checkout"
    )


def main() -> None:
    """Become the runner."""
    path = runner_path()
    os.execv(path, [str(path), *sys.argv[1:]])
