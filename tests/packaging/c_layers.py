"""Check the rooms of runtime_c: a file includes headers of its own room and of those before it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

#: In the order data flows: from the public header and plain helpers to the programs.
ROOMS = ("include", "base", "values", "program", "run", "runner", "tools")
_INCLUDE = re.compile(r'^#include "(?:(\w+)/)?[\w.]+"', re.MULTILINE)


def broken(root: Path) -> list[str]:
    """Return a sentence for each include that goes up, and for each folder and file outside the rooms."""
    found = [f"{path}: no room; the rooms are {', '.join(ROOMS)}" for path in sorted(root.glob("*.[ch]"))]
    for path in sorted(root.glob("*/*.[ch]")):
        room = path.parent.name
        if room not in ROOMS:
            found.append(f"{path}: {room} is no room; the rooms are {', '.join(ROOMS)}")
            continue
        for included in _INCLUDE.findall(path.read_text()):
            target = included or "include"
            if target not in ROOMS or ROOMS.index(target) > ROOMS.index(room):
                found.append(f"{path} includes a header of {target}/, which comes after {room}/")
    return found


def main() -> int:
    """Print what is broken; return 1 if anything is."""
    lines = broken(Path("runtime_c"))
    print("\n".join(lines) if lines else "the rooms of runtime_c include each other one way")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
