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
from math import prod
from pathlib import Path

import click
import numpy as np
from kernels import aligned, fma_peak, in_turn, medians, prepare
from rich.console import Console
from rich.table import Table
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.families.attention.spec import Attention
from shapevm.jit.families.conv.spec import Conv
from shapevm.jit.families.matmul.spec import Matmul
from shapevm.jit.llvm.abi import resolve
from shapevm.jit.llvm.target import host_target
from shapevm.jit.math.table import OPS
from shapevm.jit.measure import made_up
from shapevm.jit.spec import Body, KernelSpec, Nest, Size
from shapevm.jit.spec_reader import from_json
from shapevm.vm.reader import read
from shapevm.vm.sizes import launches

import shapevm

WORKING_SET = 96 << 20  # bytes that a kernel's operands take turns over
STREAM_BYTES = 256 << 20
MAX_COPIES = 48
Dims = Sequence[int]


def number(size: Size, dims: Dims) -> int:
    """Return the value of a size."""
    value = resolve(size, list(dims))
    assert isinstance(value, int)
    return value


def arithmetic(body: Body) -> int:
    """Return the operations of a body: an instruction that computes is one."""
    return sum(i.op in OPS or i.op in ("select", "cast") or i.op.startswith("reduce.") for i in body)


def operations(spec: KernelSpec, dims: Dims) -> int:
    """Return the arithmetic of a kernel; a multiply-add is two. 0 for the families that only move data."""
    if isinstance(spec, Matmul | Conv):
        m, n, k = (number(size, dims) for size in (spec.m, spec.n, spec.k))
        rows = prod(number(size, dims) for size in spec.batch) * m
        return rows * n * (2 * k + arithmetic(spec.epilogue)) + rows * k * arithmetic(spec.prologue)
    if isinstance(spec, Attention):
        q, k, d, v = (number(s, dims) for s in (spec.q_len, spec.k_len, spec.head_dim, spec.v_dim))
        return prod(number(size, dims) for size in spec.batch) * q * k * 2 * (d + v)
    if isinstance(spec, Nest):
        return prod(number(size, dims) for size in spec.domain) * arithmetic(spec.body)
    return 0


def traffic(spec: KernelSpec, dims: Dims, arrays: Sequence[np.ndarray]) -> int:
    """Return the bytes that a kernel must move: of a table only the rows that it gathers."""
    found = [array.nbytes for array in arrays]
    for instr in spec.body if isinstance(spec, Nest) else ():
        if instr.buffer is not None and any(index.value is not None for index in instr.index):
            points = prod(number(size, dims) for size in spec.domain)
            found[instr.buffer] = min(found[instr.buffer], points * arrays[instr.buffer].itemsize)
    return sum(found)


def stream() -> float:
    """Return the bytes a second of a copy out of cache, read and written."""
    source, target = np.ones(STREAM_BYTES // 8), np.empty(STREAM_BYTES // 8)
    (seconds,) = medians([lambda: np.copyto(target, source)], 5)
    return 2 * STREAM_BYTES / seconds


def row(spec: KernelSpec, label: str, count: int, dims: Dims, per_second: float) -> list[str]:
    """Measure one kernel; return its line."""
    kernel = Kernel(compile_kernel(spec, tuple(dims) or None, host_target()))
    first = [aligned(array) for array in made_up(kernel, tuple(dims))]
    n_bytes, held = traffic(spec, dims, first), sum(array.nbytes for array in first)
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
    per_second = stream()
    titles = ["kernel", "launches", "dims", "us", "GFLOP/s", "GB/s", "limit", "share"]
    table = Table(title=f"{sizes}; memory {per_second / 1e9:.0f} GB/s copied, read and written")
    for title in titles:
        table.add_column(title, overflow="ellipsis" if title == "kernel" else "fold", no_wrap=True)
    for (index, dims), count in Counter(launches(program, wanted)).items():
        kernel = program.kernels[index]
        table.add_row(*row(from_json(kernel.spec), kernel.label, count, dims, per_second))
    Console().print(table)


if __name__ == "__main__":
    main()
