"""Run times of code objects on made-up data, in memory that is used again and given back."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Mapping

import numpy as np

from ...vm.program import NUMPY_DTYPES, KernelObject
from ...vm.work import product_terms
from ..execute import Kernel
from ..llvm.dtypes import DTYPES

ALIGN = 64
MEASURE_SECONDS = 0.003  # of each measurement
N_TURNS = 3  # of measuring each object
_N_NUMBERS = 1 << 16  # normal numbers that floats repeat

Sizes = tuple[int, ...]


class Scratch:
    """Memory for the buffers of one measurement at a time: one mapping, as large as the largest needed."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None

    def take(self, n_bytes: int) -> np.ndarray:
        """Return that many bytes of zeros; what was taken before is gone."""
        if self._memory is None or len(self._memory) < n_bytes:
            self._memory = _pages(max(n_bytes, mmap.PAGESIZE))
        else:
            self.give_back()
        return np.frombuffer(self._memory, np.uint8)[:n_bytes]

    def give_back(self) -> None:
        """Give the pages back to the system; the addresses stay."""
        if self._memory is None:
            return
        if sys.platform == "linux":
            self._memory.madvise(mmap.MADV_DONTNEED)  # private pages are zeros again
        else:
            self._memory = _pages(len(self._memory))


def _pages(n_bytes: int) -> mmap.mmap:
    return mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def buffer_bytes(kernel: Kernel, dims: Sizes) -> int:
    """Return the bytes of a launch's buffers and scratch memory."""
    sizes = [product_terms([(DTYPES[b.dtype].bytes, b.shape)], dims) for b in kernel.code.buffers]
    return sum(-(-size // ALIGN) * ALIGN for size in sizes) + product_terms(kernel.code.work.scratch, dims)


def made_up(kernel: Kernel, dims: Sizes, scratch: Scratch | None = None) -> list[np.ndarray]:
    """Return buffers for a kernel: normal floats, zeros for ints and bools. They are in `scratch`, if given,
    until it is reused."""
    memory = (scratch or Scratch()).take(buffer_bytes(kernel, dims))
    numbers, at, buffers = np.random.default_rng(0).standard_normal(_N_NUMBERS, np.float32), 0, []
    for b in kernel.code.buffers:
        shape = [product_terms([(1, (size,))], dims) for size in b.shape]
        dtype = np.dtype(NUMPY_DTYPES[b.dtype])
        n = int(np.prod(shape, dtype=np.int64))
        flat = memory[at : at + n * dtype.itemsize].view(dtype)
        at += -(-n * dtype.itemsize // ALIGN) * ALIGN
        for start in range(0, n if dtype.kind == "f" else 0, _N_NUMBERS):
            part = flat[start : start + _N_NUMBERS]
            part[...] = numbers[: len(part)]
        buffers.append(flat.reshape(shape))
    return buffers


def measured_ns(o: KernelObject, dims: Sizes, scratch: Scratch | None = None) -> int:
    """Return the nanoseconds of a launch on made-up data."""
    return compared_ns({"": o}, dims, 1, None, scratch)[""]


def compared_ns(
    objects: Mapping[str, KernelObject], dims: Sizes, n_turns: int = N_TURNS,
    max_bytes: int | None = None, scratch: Scratch | None = None,
) -> dict[str, int]:  # fmt: skip
    """Return the nanoseconds of a launch of each of these code objects of one kernel, measured alternately on
    the same made-up data; {} if that takes more than `max_bytes`. Raises OSError if there is no memory."""
    kernels = {name: Kernel(o) for name, o in objects.items()}
    if max_bytes is not None and max(buffer_bytes(k, dims) for k in kernels.values()) > max_bytes:
        return {}
    scratch = scratch or Scratch()
    buffers = made_up(next(iter(kernels.values())), dims, scratch)
    turns = [
        {name: kernel.least_ns(buffers, dims, MEASURE_SECONDS) for name, kernel in kernels.items()}
        for _ in range(n_turns)
    ]
    scratch.give_back()
    return {name: min(turn[name] for turn in turns) for name in kernels}
