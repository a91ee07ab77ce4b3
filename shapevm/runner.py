"""The standalone C runner `shapevm-run`: where it is installed, and a console entry that becomes it."""

from __future__ import annotations

import os
import sys
from importlib.metadata import distribution
from pathlib import Path


def runner_path() -> Path:
    """The runner's path inside the installed distribution.

    Raises:
        FileNotFoundError: the installation has no runner.
    """
    path = Path(str(distribution("shapevm").locate_file("shapevm/bin/shapevm-run")))
    if not path.is_file():
        raise FileNotFoundError(f"shapevm-run: {path} does not exist; reinstall shapevm to build it")
    return path


def main() -> None:
    """Replace this process by the runner, handing over the arguments."""
    path = str(runner_path())
    os.execv(path, [path, *sys.argv[1:]])
