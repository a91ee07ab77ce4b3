"""Every kernel of a program at given sizes, with its share of what the machine can do (`make roofline`).

    python benchmarks/roofline.py [ARTIFACT] [--sizes batch=1,length=128]

Without an artifact: the sentence encoder. The limit of a kernel is the greater of its arithmetic at the FMA
peak and its bytes at the speed of memory, both measured beside it in turn on one core (Williams, Waterman,
Patterson: Roofline, CACM 52/4, 2009). Operands take turns so that they come from memory, not from cache.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click
from kernels import aligned, in_turn, medians, prepare
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.llvm.target import host_target
from shapevm.jit.measure import made_up
from shapevm.jit.roofline import fma_peak, machine_limits, operations, traffic
from shapevm.jit.spec import KernelSpec
from shapevm.jit.spec_reader import from_json
from shapevm.vm.reader import read
from shapevm.vm.sizes import launches

import shapevm
from shapevm.tables import table_text

WORKING_SET = 96 << 20  # bytes that a kernel's operands take turns over
MAX_COPIES = 48
Dims = Sequence[int]


def row(spec: KernelSpec, label: str, count: int, dims: Dims, per_second: float) -> list[str]:
    """Measure one kernel; return its line."""
    kernel = Kernel(compile_kernel(spec, tuple(dims) or None, host_target()))
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
    return [
        label,
        str(count),
        ", ".join(map(str, dims)),
        f"{seconds * 1e6:.1f}",
        f"{work / seconds / 1e9:.1f}",
        f"{n_bytes / seconds / 1e9:.1f}",
        "arithmetic" if limit > n_bytes / per_second else "memory",
        f"{limit / seconds:.0%}",
    ]


def encoder() -> Path:
    """Compile the sentence encoder; return its artifact, which lasts as long as the process."""
    from sentences import compile_bert, load_bert

    path = Path(_FOLDER.name) / "encoder.svm"
    compile_bert(load_bert(), "generic").save(path)
    return path


_FOLDER = tempfile.TemporaryDirectory()


@click.command(help=__doc__)
@click.argument("artifact", required=False, type=click.Path(exists=True, path_type=Path))
@click.option("--sizes", default="batch=1,length=128", show_default=True)
def main(artifact: Path | None, sizes: str) -> None:
    """Entry point."""
    shapevm.set_threads(1)
    program = read(artifact or encoder())
    wanted = {
        name: int(value) for name, _, value in (item.partition("=") for item in sizes.split(",") if item)
    }
    per_second = machine_limits(1).bytes
    titles = ["kernel", "launches", "dims", "us", "GFLOP/s", "GB/s", "limit", "share"]
    title, rows = f"{sizes}; memory {per_second / 1e9:.0f} GB/s copied, read and written", []
    for (index, dims), count in Counter(launches(program, wanted)).items():
        kernel = program.kernels[index]
        rows.append(row(from_json(kernel.spec), kernel.label, count, dims, per_second))
    click.echo(table_text(titles, rows, title=title), nl=False)


if __name__ == "__main__":
    main()
