"""RapidOCR on generated pages of other sizes: `python benchmarks/onnx_pages.py --pages 300 --cpus 1 2`.

Three processes, pinned to the same CPUs, hold an engine each: with ONNX Runtime, with shapevm in its place,
and with OpenVINO if that is installed. They take turns: each page is read by all, then once more by all.
Printed are pages a second, the time of a page's first reading against its second, and the resident memory
after 50 pages and at the end, with the largest page so far, which decides what an arena holds. Memory is the
median after ten pages, as the C library keeps up to 64 MiB of the arrays that a reading has freed, or none;
`--picture FILE.svg` draws it over time. With `--seconds` no page is begun after them. Needs
`pip install rapidocr-onnxruntime onnxruntime "shapevm[onnx]"`, and for OpenVINO `pip install openvino` and
`pip install --no-deps rapidocr-openvino`, which demands an old version of it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np

WORDS = [
    "the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "seven", "wizards", "mix",
    "strange", "potions",
]  # fmt: skip
RUNTIMES = ("onnxruntime", "shapevm", *(["openvino"] if find_spec("rapidocr_openvino") else []))


def page(seed: int) -> np.ndarray:
    """Return the picture of a page with lines of words; no two seeds below 10,000 have the same size."""
    from PIL import Image, ImageDraw, ImageFont

    r = np.random.default_rng(seed)
    width, height = 260 + seed * 37 % 641, 90 + seed * 53 % 409
    image = Image.new("RGB", (width, height), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(size=int(r.integers(18, 30)))
    for y in range(10, height - 40, 45):
        draw.text((10, y), " ".join(r.choice(WORDS, size=max(1, width // 160))), fill="black", font=font)
    return np.asarray(image)


def largest(n_pages: int) -> str:
    """Return the largest picture that the detector gets of the first pages: their short side is 736 there."""
    sizes = [page(seed).shape[:2] for seed in range(n_pages)]
    long = max(min(max(size) / min(size), 8) for size in sizes)  # longer pages are padded
    return f"736 x {736 * long:.0f}"


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def opened(runtime: str, n_cpus: int) -> Any:
    """Return an engine with `threads` threads."""
    if runtime == "openvino":
        import openvino

        sys.modules.setdefault("openvino.runtime", openvino)  # the package's name for it until 2025
        from rapidocr_openvino import RapidOCR

        return RapidOCR(inference_num_threads=n_cpus)
    if runtime == "shapevm":
        import shapevm.onnx

        shapevm.onnx.install()
    from rapidocr_onnxruntime import RapidOCR

    return RapidOCR(intra_op_num_threads=n_cpus, inter_op_num_threads=1)


def work(runtime: str, n_cpus: int) -> None:
    """Read the pages that standard input names; print the seconds, the memory and the texts of each."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-n_cpus:])
    start = time.perf_counter()
    engine = opened(runtime, n_cpus)
    print(json.dumps([time.perf_counter() - start, resident(), []]), flush=True)
    for line in sys.stdin:
        picture = page(int(line))
        start = time.perf_counter()
        found, _ = engine(picture)
        seconds = time.perf_counter() - start
        print(json.dumps([seconds, resident(), [each[1] for each in found or []]]), flush=True)


def typical(memory: list[int], n_pages: int) -> int:
    """Return the median of the resident memory after each of the last ten pages of the first `n_pages`."""
    return int(median(memory[max(n_pages - 10, 0) : n_pages]))


@dataclass
class Run:
    """What one engine took: seconds to open it and of the first and second readings of each page, and the
    bytes of memory after each page."""

    opened: float
    seconds: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    memory: list[int] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """First readings by second ones; empty if each page was read once."""
        first, again = self.seconds
        return [one / two for one, two in zip(first, again, strict=bool(again))]

    def row(self, early: int, own: Run) -> str:
        """Return the cells of a table; `own`: shapevm's run."""
        first, ratios = self.seconds[0], self.ratios
        shown = f"{median(ratios):.2f}, {quantiles(ratios, n=100)[98]:.2f}" if ratios else ""
        then, last = (typical(self.memory, n) for n in (early, len(self.memory)))
        speed = median(a / b for a, b in zip(first, own.seconds[0], strict=True))
        return (
            f"{len(first) / sum(first):.2f} | {shown} | {self.opened:.2f} s "
            f"| {then >> 20} after {early}, {last >> 20}: {last / then:.2f} | {speed:.2f}x"
        )

    def extremes(self, early: int) -> str:
        """Return the pages whose first readings were slowest, and after which memory grew most."""
        ratios, memory = self.ratios, self.memory
        slow = sorted(range(len(ratios)), key=lambda at: -ratios[at])[:3]
        grown = {at: memory[at] - memory[at - 1] for at in range(early, len(memory))}
        steps = sorted(grown, key=lambda at: -grown[at])[:3]
        return (
            f"slowest first readings: {', '.join(f'page {at}, {ratios[at]:.2f}x' for at in slow)}; "
            f"largest growth: {', '.join(f'page {at}, {grown[at] >> 20} MiB' for at in steps)}"
        )


def ask(process: Any, seed: int | None = None) -> Any:
    """Return a worker's next line."""
    if seed is not None:
        process.stdin.write(f"{seed}\n")
        process.stdin.flush()
    return json.loads(next(line for line in process.stdout if line.startswith("[")))


WIDTH, HEIGHT, LEFT, ROOM = 720, 260, 60, 30  # of the picture, in pixels
COLOURS = {"onnxruntime": "#b45309", "shapevm": "#1d4ed8", "openvino": "#4d7c0f"}


def picture(memory: dict[str, list[int]]) -> str:
    """Return a picture of the resident memory after each page."""
    most = max(map(max, memory.values())) >> 20
    inner = WIDTH - LEFT - ROOM, HEIGHT - 2 * ROOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12"><rect width="100%" height="100%" fill="white"/>'
    ]
    for share in (0.0, 0.5, 1.0):
        y = HEIGHT - ROOM - inner[1] * share
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - ROOM}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{most * share:.0f} MiB</text>')
    for i, (name, values) in enumerate(memory.items()):
        step = inner[0] / max(len(values) - 1, 1)
        points = (
            f"{LEFT + step * at:.1f},{HEIGHT - ROOM - inner[1] * (value >> 20) / most:.1f}"
            for at, value in enumerate(values)
        )
        line = f'points="{" ".join(points)}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"'
        parts.append(f"<polyline {line}/>")
        parts.append(f'<text x="{LEFT + 120 * i}" y="18" fill="{COLOURS[name]}">{name}</text>')
    n_pages = len(next(iter(memory.values())))
    parts.append(f'<text x="{WIDTH // 2}" y="{HEIGHT - 8}">{n_pages} pages of {n_pages} sizes</text></svg>')
    return "\n".join(parts) + "\n"


def started(runtime: str, n_cpus: int) -> Any:
    """Return the process of an engine."""
    command = [sys.executable, __file__, "--work", runtime, str(n_cpus)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, stderr=subprocess.DEVNULL, **pipes)


def read(runs: dict[str, Run], processes: dict[str, Any], given: argparse.Namespace) -> tuple[int, int]:
    """Let the processes read the pages in turn; return how many were read, and how many with equal texts."""
    end, n_equal, names = time.monotonic() + given.seconds, 0, [*runs]
    for seed in range(given.pages):
        if time.monotonic() > end:
            return seed, n_equal
        print(f"page {seed + 1} of {given.pages}", end="\r", file=sys.stderr, flush=True)
        texts, turn = {}, seed % len(names)
        for reading in range(given.readings):
            for name in names[turn:] + names[:turn]:
                seconds, bytes_, texts[name] = ask(processes[name], seed)
                runs[name].seconds[reading].append(seconds)
                runs[name].memory[seed:] = [bytes_]
        n_equal += all(each == texts[names[0]] for each in texts.values())
    return given.pages, n_equal


def main(given: argparse.Namespace, n_cpus: int) -> None:
    """Run and print everything."""
    processes = {name: started(name, n_cpus) for name in given.runtimes}
    runs = {name: Run(ask(processes[name])[0]) for name in given.runtimes}
    n_pages, n_equal = read(runs, processes, given)
    for process in processes.values():
        process.stdin.close()
    print(f"\n{n_pages} pages, each of another size, on {n_cpus} CPUs; {n_equal} with equal texts")
    early = min(50, n_pages)
    print(f"largest input of the detector by page {early}: {largest(early)}; of all: {largest(n_pages)}")
    print("| runtime | pages/s | first : second reading, median, p99 | opened | MiB, ratio | shapevm |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, run in runs.items():
        print(f"| {name} | {run.row(early, runs.get('shapevm', run))} |")
    for name, run in runs.items():
        print(f"{name}: {run.extremes(early)}")
    if given.picture:
        Path(given.picture).write_text(picture({name: run.memory for name, run in runs.items()}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], int(sys.argv[3]))
    else:
        parser = argparse.ArgumentParser(description=__doc__)
        parser.add_argument("--pages", type=int, default=200)
        parser.add_argument("--cpus", type=int, nargs="+", default=[1])
        parser.add_argument("--runtimes", nargs="+", choices=RUNTIMES, default=RUNTIMES)
        parser.add_argument("--readings", type=int, choices=(1, 2), default=2, help="of each page")
        parser.add_argument("--seconds", type=float, default=math.inf)
        parser.add_argument("--picture", default="")
        given = parser.parse_args()
        for cpus in given.cpus:
            main(given, cpus)
