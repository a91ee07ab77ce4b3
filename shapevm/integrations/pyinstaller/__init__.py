"""The PyInstaller hook for programs with shapevm: PyInstaller finds `hook-shapevm.py` by the entry point
`pyinstaller40`."""

from __future__ import annotations

import os


def hook_folders() -> list[str]:
    """Return the folders of shapevm's hooks."""
    return [os.path.dirname(__file__)]
