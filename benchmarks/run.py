"""Measure everything and write docs/benchmarks.md: `python benchmarks/run.py [section ...]`.

Every section runs in a process of its own. Without arguments all run and the page is written.
"""

from __future__ import annotations

import datetime
import importlib
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from measure import Figure, machine
from rich.console import Console
from rich.table import Table

SECTIONS = {
    "sentences": "The sentence encoder (one core, against PyTorch eager in the same run)",
    "peers": "The sentence encoder beside other runtimes (one core, all in one run)",
    "decode": "Decoding, bound by memory (one core, all in one run)",
    "calls": "What a call costs (one core)",
    "compile_time": "What compiling a kernel costs",
    "specialisation": "Specialisation (one core)",
    "runner": "The standalone runner and start-up",
}
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"


def measure(section: str) -> list[Figure]:
    """Run one section in a fresh process and return its figures."""
    command = [sys.executable, __file__, "--section", section]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return [Figure(**item) for item in json.loads(done.stdout.splitlines()[-1])]


def page(results: dict[str, list[Figure]]) -> str:
    """Return the report as Markdown."""
    lines = ["# Benchmarks", "", f"Measured by `make bench` on {datetime.date.today()}: {machine()}.", ""]
    lines += ["Medians; contestants in turn in one run. These figures are of that machine and that day.", ""]
    for section, figures in results.items():
        lines += [f"## {SECTIONS[section]}", "", "| what | figure | goal |", "| --- | --- | --- |"]
        lines += [f"| {f.what} | {f.figure} | {f.goal} |" for f in figures] + [""]
    return "\n".join(lines)


def main() -> None:
    """Entry point."""
    if sys.argv[1:2] == ["--section"]:
        print(json.dumps([asdict(f) for f in importlib.import_module(sys.argv[2]).figures()]))
        return
    console = Console()
    wanted = sys.argv[1:] or list(SECTIONS)
    results = {}
    for section in wanted:
        with console.status(f"measuring {section}"):
            results[section] = measure(section)
        table = Table("what", "figure", "goal", title=SECTIONS[section])
        for figure in results[section]:
            table.add_row(figure.what, figure.figure, figure.goal)
        console.print(table)
    if wanted == list(SECTIONS):
        PAGE.write_text(page(results))
        console.print(f"written: {PAGE}")


if __name__ == "__main__":
    main()
