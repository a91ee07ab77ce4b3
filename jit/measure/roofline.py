"""A kernel's work and this machine's limits: arithmetic, bytes and the resulting bound.

The limit of a launch is the greater of two times: its arithmetic at the FMA peak, and its bytes at the speed
of memory (Williams, Waterman, Patterson: Roofline, CACM 52/4, 2009). Operands in a cache may take less than
that, and so may products of int8 or bf16: the peak is that of f32.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from math import prod

import llvmlite.binding as llvm
import numpy as np

from ..execute import _map
from ..families.attention.spec import Attention
from ..families.matmul.spec import ProductSpec
from ..llvm.abi import resolve
from ..llvm.dtypes import DTYPES
from ..llvm.function import Function
from ..llvm.target import find_target, host_target, target_machine
from ..math.table import OPS
from ..object.link import Object
from ..spec import Body, KernelSpec, Nest, Size

STREAM_BYTES = 64 << 20  # of the array that a thread copies
FMA_TRIPS = 400_000  # 1.5 ms: its start, 60 us longer after another kernel, does not count
ROUNDS = 15
Dims = Sequence[int]
Run = Callable[[], object]


def _number(size: Size, dims: Dims) -> int:
    value = resolve(size, list(dims))
    assert isinstance(value, int)
    return value


def _product(sizes: Sequence[Size], dims: Dims) -> int:
    return prod(_number(size, dims) for size in sizes)


def _arithmetic(body: Body) -> int:
    """Return the operations of a body: an instruction that computes is one."""
    return sum(i.op in OPS or i.op in ("select", "cast") or i.op.startswith("reduce.") for i in body)


def operations(spec: KernelSpec, dims: Dims) -> int:
    """Return the arithmetic of a launch at its sizes; a multiply-add is two. 0 for the families that only
    move data. A convolution counts as the sums that define it, whatever algorithm computes them."""
    if isinstance(spec, ProductSpec):
        given = spec.product
        m, n, k = (_number(size, dims) for size in (given.m, given.n, given.k))
        rows = _product(given.batch, dims) * m
        return rows * n * (2 * k + _arithmetic(given.epilogue)) + rows * k * _arithmetic(given.prologue)
    if isinstance(spec, Attention):
        extents = spec.extents
        queries = (*extents.batch, extents.q_len)
        if spec.is_segmented:  # all segments as long as the longest, at most
            queries = (*extents.batch[1:], spec.segments.tokens)
        scores = _product((*queries, extents.k_len), dims)
        return scores * (2 * _number(extents.head_dim, dims) + 2 * _number(extents.v_dim, dims))
    if isinstance(spec, Nest):
        return _product(spec.domain, dims) * _arithmetic(spec.body)
    return 0


def traffic(spec: KernelSpec, dims: Dims) -> int:
    """Return the bytes that a launch must move: each buffer once; of a table only the rows it gathers."""
    found = [_product(b.shape, dims) * DTYPES[b.dtype].bytes for b in spec.buffers]
    for instr in spec.body if isinstance(spec, Nest) else ():
        if instr.buffer is not None and any(index.value is not None for index in instr.index):
            points = _product(spec.domain, dims) if isinstance(spec, Nest) else 0
            item = DTYPES[spec.buffers[instr.buffer].dtype].bytes
            found[instr.buffer] = min(found[instr.buffer], points * item)
    return sum(found)


# The machine ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MachineLimits:
    """The limits per second of a number of threads: f32 operations, a multiply-add being two, and
    bytes read and written out of cache."""

    threads: int
    flops: float
    bytes: float

    def seconds(self, n_operations: int, n_bytes: int) -> float:
        """Return the least time of a launch."""
        return max(n_operations / self.flops, n_bytes / self.bytes)

    def bound(self, n_operations: int, n_bytes: int) -> str:
        """Return which limit is the greater: "arithmetic" or "memory"."""
        return "arithmetic" if n_operations / self.flops > n_bytes / self.bytes else "memory"


def compiled(f: Function, data: np.ndarray) -> Run:
    """Return a call of `f`, which takes an address, for this machine on a copy of `data`."""
    target = find_target(host_target())
    text = f'target triple = "{target.triple}"\n{f.text()}attributes #0 = {{ {target.attributes} }}\n'
    blob = Object(target_machine(target.name).emit_object(llvm.parse_assembly(text))).link(f.name)
    memory, address = _map(blob.code)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address + blob.entry)
    own = np.empty(data.nbytes + 64, np.uint8)
    start = -own.ctypes.data % 64
    own[start : start + data.nbytes].view(data.dtype)[...] = data

    def run(_keep: object = (memory, own)) -> None:
        call(own.ctypes.data + start)

    return run


def fma_peak() -> tuple[Run, float]:
    """Return a loop of independent fused multiply-adds in registers, and its operations."""
    target = find_target(host_target())
    n = 20 if target.n_vector_registers == 32 else 12
    lanes = target.vector_bytes // 4
    type = f"<{lanes} x float>"
    f = Function("kernel", [("ptr", "x")])
    one = f.load(type, f.params[0], align=4)
    with f.loop(0, FMA_TRIPS, carried=[one] * n) as loop:
        loop.next(*[f.call(type, f"llvm.fma.v{lanes}f32", one, one, x) for x in loop.carried])
    for i, x in enumerate(loop.results):
        f.store(x, f.at(f.params[0], type, i), align=4)
    return compiled(f, np.zeros(n * lanes, np.float32)), 2.0 * n * lanes * FMA_TRIPS


def stream_copy() -> tuple[Run, float]:
    """Return a copy of an array that no cache holds, and its bytes, read and written."""
    source, target = np.ones(STREAM_BYTES // 8), np.zeros(STREAM_BYTES // 8)
    return lambda: np.copyto(target, source), 2.0 * STREAM_BYTES


def _per_second(make: Callable[[], tuple[Run, float]], threads: int) -> float:
    """Return the work per second of `n_threads` threads at once: the best of some rounds."""
    made = [make() for _ in range(threads)]
    least = float("inf")
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(ROUNDS):
            start = time.perf_counter()
            list(pool.map(lambda each: each[0](), made))
            least = min(least, time.perf_counter() - start)
    return sum(work for _, work in made) / least


@cache
def machine_limits(threads: int) -> MachineLimits:
    """Measure this machine's limits for a number of threads: 0.5 s, once in a process."""
    return MachineLimits(threads, _per_second(fma_peak, threads), _per_second(stream_copy, threads))
