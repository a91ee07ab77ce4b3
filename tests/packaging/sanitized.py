"""Run pytest on the installation in a given folder instead of the editable one.

`python -P tests/packaging/sanitized.py FOLDER [pytest's arguments]`: `make asan` and `make tsan`
put a build of the C runtime with sanitizers in FOLDER. The editable install's import hook goes
before every path, so it is taken out here.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


def main(folder: str, *arguments: str) -> int:
    """Run pytest with shapevm from `folder`; the exit status is pytest's."""
    sys.meta_path = [finder for finder in sys.meta_path if "skbc" not in type(finder).__module__]
    sys.path.insert(0, str(Path(folder).resolve()))
    from shapevm.vm import _runtime

    origin = Path(_runtime.__file__).resolve()
    if not origin.is_relative_to(Path(folder).resolve()):
        print(f"shapevm comes from {origin}, not from {folder}", file=sys.stderr)
        return 2
    # Capture only Python's output: a sanitizer writes to the file descriptor, perhaps just before the end.
    return int(pytest.main(["--capture=sys", *arguments]))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
