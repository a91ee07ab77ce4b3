"""Measure and write docs/benchmarks.md: `python benchmarks/run.py [--short] [section ...]`.

Every section runs in a process of its own; without arguments all run. `results.json` keeps each section's
latest figures on every kind of processor with their day, and the page is written from it after every
section. `--short` tries sections out, those that know a shorter form in that form, and writes nothing.
"""

from __future__ import annotations

import datetime
import importlib
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from measure import SHORT, Figure, machine, processor
from rich.console import Console

from shapevm.reports.tables import table_text

SECTIONS = {
    "sentences": "The sentence encoder (one core, against PyTorch eager in the same run)",
    "peers": "The sentence encoder beside other runtimes (one core, all in one run)",
    "cold": "Sizes that come once, beside other runtimes (one core)",
    "vision": "ResNet-50 and its layers (one core, all in one run)",
    "classifiers": "Image classifiers (one core, all in one run)",
    "architectures": "Transformers of real widths, two layers of each (one core, all in one run)",
    "vit": "An encoder layer and vit_b_16 (one core, all in one run)",
    "decode": "Decoding, bound by memory (one core, all in one run)",
    "quantised": "int8 against f32 and other runtimes (one core, all in one run)",
    "bf16": "Products of bf16 (one core, all in one run)",
    "doors": "TorchScript, recurrent layers and nested inputs (one core, all in one run)",
    "quantised_models": "Models whose activations are bytes (one core, all in one run)",
    "limits": "Kernels beside the limits of the machine (one core)",
    "layouts": "Layout changes of images beside a copy (one core)",
    "matmuls": "Products with a constant weight (one core, all in one run)",
    "accuracy": "Errors against f64, as shares of the greatest result, n up to 1,000,000 (5 seeds)",
    "small": "Small work (one core, all in one run)",
    "cores": "Two cores against one (how many times as fast)",
    "calls": "What a call costs (one core)",
    "memory": "Resident memory (each in a process of its own)",
    "compile_time": "What compiling a kernel costs",
    "compiling": "Compiling a model beside torch.export alone (fresh processes, in turn)",
    "specialisation": "Specialisation (one core)",
    "streams": "Streams of shapes (auto against the better of generic and jit)",
    "shapes": "A million shapes (one core; an hour)",
    "runner": "The standalone runner and start-up",
}
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

`make bench` measures and writes this page. Figures are medians; all systems of a row are measured alternately
in one run. "2x the best" compares with the fastest of the others. Figures without a goal are for information.
Figures of x86-64-v4-amx in f32 use AMX tiles for products (`precision="bf16x6"`, formerly the default).
[limits.md](limits.md) says why a goal is missed; `benchmarks/log/` has the experiments. One section only:
`python benchmarks/run.py sentences`.
"""
RESULTS = Path(__file__).with_name("results.json")


def measure(section: str) -> list[Figure]:
    """Run one section in a fresh process and return its figures."""
    command = [sys.executable, __file__, "--section", section, *(["--short"] if SHORT else [])]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return [Figure(**item) for item in json.loads(done.stdout.splitlines()[-1])]


def keep(section: str, figures: list[Figure]) -> None:
    """Put a section's figures on this kind of processor into the results, and write the page."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    run = {"day": str(datetime.date.today()), "machine": machine(), "figures": [asdict(f) for f in figures]}
    results.setdefault(section, {})[processor()] = run
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(page(results))


def page(results: dict[str, Any]) -> str:
    """Return the report as Markdown."""
    lines = [HEAD]
    for section in (name for name in SECTIONS if name in results):
        lines += [f"## {SECTIONS[section]}", ""]
        for name, run in sorted(results[section].items(), key=lambda item: item[1]["day"], reverse=True):
            lines += [f"{name}, on {run['day']}: {run['machine']}.", ""]
            lines += ["| what | figure | goal |", "| --- | --- | --- |"]
            lines += [f"| {f['what']} | {f['figure']} | {f['goal']} |" for f in run["figures"]] + [""]
    return "\n".join(lines)


def main() -> None:
    """Entry point."""
    if sys.argv[1:2] == ["--section"]:
        print(json.dumps([asdict(f) for f in importlib.import_module(sys.argv[2]).figures()]))
        return
    console = Console()
    wanted = [name for name in sys.argv[1:] if name != "--short"]
    unknown = [name for name in wanted if name not in SECTIONS]
    if unknown:
        sys.exit(f"no section is named {unknown[0]!r}; there are {', '.join(SECTIONS)}")
    for section in wanted or list(SECTIONS):
        with console.status(f"measuring {section}"):
            figures = measure(section)
        if not SHORT:
            keep(section, figures)
        rows = [(figure.what, figure.figure, figure.goal) for figure in figures]
        print(table_text(("what", "figure", "goal"), rows, 3, SECTIONS[section]))
    if not SHORT:
        console.print(f"written: {PAGE}")


if __name__ == "__main__":
    main()
