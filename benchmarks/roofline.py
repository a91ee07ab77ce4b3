"""Every kernel of a program at given sizes, with its share of what the machine can do (`make roofline`).

    python benchmarks/roofline.py [MODEL] [--sizes batch=1,length=128]

MODEL is an artifact, or whatever `shapevm compile` takes; without one, the sentence encoder is measured. A
second table has the kernels that lose most time. The limit of a kernel is the greater of its arithmetic at
the FMA peak and its bytes at the speed of memory, both measured beside it in turn on one core (Williams,
Waterman, Patterson: Roofline, CACM 52/4, 2009). Operands take turns so that they come from memory, not from
cache.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from kernels import aligned, in_turn, medians, prepare
from rich.console import Console
from rich.progress import track
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.llvm.target import host_target
from shapevm.jit.measure.objects import made_up
from shapevm.jit.measure.roofline import fma_peak, machine_limits, operations, traffic
from shapevm.jit.spec import KernelSpec
from shapevm.jit.spec_reader import from_json
from shapevm.vm.reader import read
from shapevm.vm.sizes import launches

import shapevm
from shapevm.reports.tables import table_text

WORKING_SET = 96 << 20  # bytes that a kernel's operands take turns over
MAX_COPIES = 48
WORST = 10  # kernels of the second table
PROGRESS = Console(stderr=True)
Dims = Sequence[int]


@dataclass(frozen=True)
class Measured:
    """A kernel at its sizes: the `seconds` of a launch, those of its `limit`, and what sets that limit."""

    label: str
    variant: str
    count: int
    dims: Dims
    seconds: float
    limit: float
    bound: str
    work: int
    n_bytes: int

    @property
    def lost(self) -> float:
        """The seconds that all launches take beyond their limit."""
        return self.count * (self.seconds - self.limit)

    def row(self) -> list[str]:
        """Return the table's row."""
        return [
            self.label,
            self.variant,
            str(self.count),
            ", ".join(map(str, self.dims)),
            f"{self.seconds * 1e6:.1f}",
            f"{self.work / self.seconds / 1e9:.1f}",
            f"{self.n_bytes / self.seconds / 1e9:.1f}",
            self.bound,
            f"{self.limit / self.seconds:.0%}",
            f"{self.lost * 1e6:.0f}",
        ]


def measured(spec: KernelSpec, label: str, count: int, dims: Dims, per_second: float) -> Measured:
    """Measure one kernel."""
    code = compile_kernel(spec, tuple(dims) or None, host_target())
    kernel = Kernel(code)
    first = [aligned(array) for array in made_up(kernel, tuple(dims))]
    n_bytes, held = traffic(spec, dims), sum(array.nbytes for array in first)
    n_copies = min(max(1, -(-WORKING_SET // max(held, 1))), MAX_COPIES)
    sets = [first, *([aligned(array) for array in first] for _ in range(n_copies - 1))]
    peak, peak_work = fma_peak()
    given = tuple(dims)
    top, seconds = medians([peak, in_turn([prepare(kernel, each, given) for each in sets])], 7)
    seconds /= n_copies
    work = operations(spec, dims)
    limit = max(work * top / peak_work, n_bytes / per_second)
    bound = "arithmetic" if limit > n_bytes / per_second else "memory"
    return Measured(label, code.schedule, count, dims, seconds, limit, bound, work, n_bytes)


def artifact_of(model: str | None, folder: Path) -> Path:
    """Return the artifact of a model's file, of the sentence encoder if there is none; a `.svm` is one."""
    if model is None:
        return encoder(folder)
    if model.endswith(".svm"):
        return Path(model)
    path = folder / "model.svm"
    command = [
        sys.executable,
        "-m",
        "shapevm",
        "compile",
        model,
        "-o",
        str(path),
        "--strategy",
        "generic",
    ]
    subprocess.run(command, check=True)
    return path


def encoder(folder: Path) -> Path:
    """Compile the sentence encoder; return its artifact."""
    from sentences import compile_bert, load_bert

    path = folder / "encoder.svm"
    compile_bert(load_bert(), "generic").save(path)
    return path


def sizes_of(text: str, symbols: Sequence[str]) -> dict[str, int]:
    """Return the sizes of "batch=1,length=128". Raises UsageError unless there is one for each symbol."""
    found = {name: value for name, _, value in (item.partition("=") for item in text.split(",") if item)}
    if set(found) != set(symbols) or not all(value.isdigit() for value in found.values()):
        wanted = ",".join(f"{name}=1" for name in symbols)
        raise click.UsageError(f"--sizes {text!r}: a size for each dimension is needed, such as {wanted!r}")
    return {name: int(value) for name, value in found.items()}


@click.command(help=__doc__)
@click.argument("model", required=False)
@click.option("--sizes", help="batch=1,length=128, the encoder's default")
def main(model: str | None, sizes: str | None) -> None:
    """Entry point."""
    shapevm.set_threads(1)
    if sizes is None:
        sizes = "" if model else "batch=1,length=128"
    with tempfile.TemporaryDirectory() as folder:
        program = read(artifact_of(model, Path(folder)))
    wanted = sizes_of(sizes, [symbol.name for symbol in program.symbols])
    per_second = machine_limits(1).bytes
    found = []
    for (index, dims), count in track(Counter(launches(program, wanted)).items(), console=PROGRESS):
        kernel = program.kernels[index]
        found.append(measured(from_json(kernel.spec), kernel.label, count, dims, per_second))
    titles = ("kernel", "variant", "count", "dims", "us", "GFLOP/s", "GB/s", "limit", "share", "lost us")
    title = f"{sizes}; memory {per_second / 1e9:.0f} GB/s copied, read and written"
    click.echo(table_text(titles, [each.row() for each in found], title=title))
    worst = sorted(found, key=lambda each: -each.lost)[:WORST]
    total, lost = sum(each.count * each.seconds for each in found), sum(each.lost for each in found)
    title = f"What loses most of {total * 1e6:.0f} us, of which {lost * 1e6:.0f} us are beyond the limits"
    click.echo(table_text(titles, [each.row() for each in worst], title=title), nl=False)


if __name__ == "__main__":
    main()
