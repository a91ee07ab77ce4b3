"""The blocks of code in the pages of docs/."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(\w+) (\S+)\n(.*?)^```$", re.M | re.S)


def blocks(page: str) -> list[tuple[str, str]]:
    """Return the blocks of a page that are parts of a file: the file's path, and the text."""
    return [(path, text) for _, path, text in _BLOCK.findall((ROOT / "docs" / page).read_text())]
