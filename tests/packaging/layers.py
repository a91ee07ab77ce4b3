"""Check the import contracts of pyproject.toml on build/typing, where `make` lays shapevm out as installed.

Inside an editable install the package's path includes the repository's root, so that the
import linter would read tests, examples and virtual environments as parts of shapevm.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from importlinter.cli import EXIT_STATUS_ERROR, lint_imports


def main() -> int:
    """Run the import linter on the laid-out tree; the exit status is its own."""
    tree = Path("build/typing")
    if not (tree / "shapevm" / "__init__.py").exists():
        print(f"{tree}/shapevm does not exist: run `make layers` from the repository's root", file=sys.stderr)
        return EXIT_STATUS_ERROR
    sys.meta_path = [finder for finder in sys.meta_path if "skbc" not in type(finder).__module__]
    contracts = Path("pyproject.toml").resolve()
    os.chdir(tree)  # the linter looks for packages in the current folder first
    return lint_imports(config_filename=str(contracts), no_cache=True, no_logo=True)


if __name__ == "__main__":
    sys.exit(main())
