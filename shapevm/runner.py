"""The parts of an installation for use without Python: the standalone runner (and the console command that
executes it), and the C SDK."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple


class Sdk(NamedTuple):
    """The folders of the C SDK: `include` holds svm.h, `lib` libsvm.so.1 and libsvm.a; `pkgconfig` is for
    PKG_CONFIG_PATH, `cmake` for svm_DIR.
    """

    include: Path
    lib: Path
    pkgconfig: Path
    cmake: Path


def sdk() -> Sdk:
    """Return the folders of the C SDK. Raises FileNotFoundError if the installation lacks it."""
    root = _installed(Path("sdk"))
    lib = root / "lib"
    return Sdk(root / "include" / "shapevm", lib, lib / "pkgconfig", lib / "cmake" / "svm")


def runner_path() -> Path:
    """Return the path of `shapevm-run`, the C program. Raises FileNotFoundError if the installation lacks
    it."""
    return _installed(Path("bin", "shapevm-run"))


def _installed(part: Path) -> Path:
    import shapevm

    for folder in shapevm.__path__:
        path = Path(folder, part)
        if path.exists():
            return path
    raise FileNotFoundError(
        f"{part.name} is not in this installation; install shapevm again from its wheel or checkout"
    )


def main() -> None:
    """Replace this process by the runner."""
    path = runner_path()
    os.execv(path, [str(path), *sys.argv[1:]])
