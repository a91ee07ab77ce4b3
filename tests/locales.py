"""A locale with a comma as decimal point, made from its definition: needs glibc's localedef, but no list of
the system's locales."""

from __future__ import annotations

import subprocess
from pathlib import Path

_NUMBERS = 'LC_NUMERIC\ndecimal_point ","\nthousands_sep "."\ngrouping 3;3\nEND LC_NUMERIC\n'
_CHARACTERS = "\n".join(f"<U{c:04X}> /x{c:02x} C{c}" for c in range(128))
_CHARMAP = f"<code_set_name> UTF-8\n<mb_cur_min> 1\n<mb_cur_max> 6\nCHARMAP\n{_CHARACTERS}\nEND CHARMAP\n"


def comma_locale(folder: Path) -> dict[str, str]:
    """Make the locale in a folder; return the environment variables under which `setlocale(LC_ALL, "")` sets
    it."""
    (folder / "numbers").write_text(_NUMBERS)
    (folder / "charmap").write_text(_CHARMAP)
    command = ["localedef", "-c", "-i", "./numbers", "-f", "./charmap", str(folder / "xx_XX")]
    subprocess.run(command, cwd=folder, capture_output=True)  # it warns of all that is not defined
    assert (folder / "xx_XX" / "LC_NUMERIC").exists()
    return {"LOCPATH": str(folder), "LC_NUMERIC": "xx_XX", "LC_ALL": "", "LANG": "C"}
