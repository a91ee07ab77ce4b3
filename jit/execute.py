"""Running a code object inside this process: the reference caller of the kernel ABI, for tests and for plain
Python.

The blob is mapped writable, filled, then made read+execute: never writable and executable at once.
"""

from __future__ import annotations

import ctypes
import mmap
import time
from collections.abc import Callable, Sequence

import numpy as np

from ..vm.program import KernelObject
from ..vm.protection import protect
from ..vm.work import product_terms
from .llvm.abi import ERROR_DIVISION, ERROR_INDEX, ERROR_ROWS, NOTHING_PREPARED, resolve
from .llvm.dtypes import DTYPES
from .llvm.target import runs_here

SCRATCH_ALIGN = 64
_PROT_READ_EXEC = mmap.PROT_READ | mmap.PROT_EXEC
_SIGNATURE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
)


class _Rt(ctypes.Structure):
    """`svm_rt` of the ABI."""

    _fields_ = (
        ("scratch", ctypes.c_void_p),
        ("error", ctypes.c_int64),
        ("error_value", ctypes.c_int64),
        ("error_bound", ctypes.c_int64),
        ("prepared", ctypes.c_int64),
    )


def _map(code: bytes) -> tuple[mmap.mmap, int]:
    """Return a read+execute mapping of `code` and its address. Raises OSError if the system forbids it."""
    memory = mmap.mmap(-1, max(len(code), 1))
    memory.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    try:
        protect(address, len(code), _PROT_READ_EXEC)
    except OSError as error:
        message = "this system does not let a process make memory executable"
        raise OSError(error.errno, message) from None
    return memory, address


class Kernel:
    """A mapped code object. Calls may come from several threads at once."""

    def __init__(self, code: KernelObject) -> None:
        if not runs_here(code.target):
            raise ValueError(f"kernel: it was compiled for {code.target}, which this machine does not run")
        self.code = code
        self._memory, address = _map(code.code.data)
        self._call = _SIGNATURE(address + code.code.entry)

    def n_tiles(self, dims: Sequence[int]) -> int:
        """Return the number of tiles at the sizes `dims`."""
        count = 1
        for size, divisor in self.code.work.tiles:
            value = resolve(size, dims)
            assert isinstance(value, int)
            count *= -(-value // divisor)
        return count

    def run(
        self,
        buffers: Sequence[np.ndarray],
        dims: Sequence[int] = (),
        tile_ranges: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        """Run the kernel on `buffers` (contiguous arrays, in the spec's order) at the sizes `dims`.

        `tile_ranges`: the ranges (begin, end) of tiles to run, in this order; None: all at once. bf16 is
        passed as uint16. Raises ValueError for buffers or sizes that do not match the kernel, IndexError if a
        gather's index is out of range, ZeroDivisionError if an integer's divisor is 0.
        """
        run, rt = self._prepared(buffers, dims)
        for begin, end in tile_ranges if tile_ranges is not None else [(0, self.n_tiles(dims))]:
            run(begin, end)
        if rt.error == ERROR_INDEX:
            bound = rt.error_bound
            raise IndexError(f"index {rt.error_value} is out of range for a dimension of size {bound}")
        if rt.error == ERROR_ROWS:
            counts = f"{rt.error_value} rows given for {rt.error_bound} outputs"
            raise ValueError(f"kernel: {counts} of its images")
        if rt.error == ERROR_DIVISION:
            raise ZeroDivisionError("an integer tensor is divided by 0")
        if rt.error:
            raise RuntimeError(f"the kernel reports error {rt.error}")

    def launch(self, buffers: Sequence[np.ndarray], dims: Sequence[int]) -> Callable[[], None]:
        """Return a call of all tiles on these buffers. Raises the errors of `run` for buffers or sizes."""
        run, rt = self._prepared(buffers, dims)
        n_tiles = self.n_tiles(dims)

        def launch() -> None:
            rt.prepared = NOTHING_PREPARED
            run(0, n_tiles)

        return launch

    def least_ns(self, buffers: Sequence[np.ndarray], dims: Sequence[int], seconds: float) -> int:
        """Return the nanoseconds of the fastest of the runs within `seconds`, at least two."""
        run, end = self.launch(buffers, dims), time.perf_counter() + seconds
        times: list[int] = []
        while len(times) < 2 or time.perf_counter() < end:
            start = time.perf_counter_ns()
            run()
            times.append(time.perf_counter_ns() - start)
        return min(times)

    def _prepared(
        self, buffers: Sequence[np.ndarray], dims: Sequence[int]
    ) -> tuple[Callable[[int, int], None], _Rt]:
        """Return a function that runs a range of tiles, and the state with its errors."""
        self._check(buffers, dims)
        rt = _Rt(0, 0, 0, 0, NOTHING_PREPARED)
        scratch = self._scratch(product_terms(self.code.work.scratch, dims))
        rt.scratch = scratch.ctypes.data
        pointers = (ctypes.c_void_p * max(len(buffers), 1))(*[array.ctypes.data for array in buffers])
        sizes = (ctypes.c_int64 * max(len(dims), 1))(*dims)
        places = ctypes.addressof(pointers), ctypes.addressof(sizes), ctypes.addressof(rt)
        keep = (pointers, sizes, rt, scratch, buffers)

        def run(begin: int, end: int, keep: object = keep) -> None:
            self._call(*places, begin, end)

        return run, rt

    def _scratch(self, n_bytes: int) -> np.ndarray:
        """Return `size` bytes at a multiple of SCRATCH_ALIGN."""
        room = np.empty(n_bytes + SCRATCH_ALIGN, np.uint8)
        return room[-room.ctypes.data % SCRATCH_ALIGN :]

    def _check(self, buffers: Sequence[np.ndarray], dims: Sequence[int]) -> None:
        code = self.code
        is_for = len(dims) == code.n_dims and (code.exact_dims is None or tuple(dims) == code.exact_dims)
        if is_for and code.ranges is not None:
            is_for = all(size in r for size, r in zip(dims, code.ranges, strict=True))
        if not is_for:
            wanted = code.exact_dims if code.exact_dims is not None else f"{code.n_dims} of them"
            if code.ranges is not None:
                wanted = ", ".join(map(str, code.ranges))
            raise ValueError(f"kernel: sizes {tuple(dims)} given, it is for {wanted}")
        if len(buffers) != len(code.buffers):
            raise ValueError(f"kernel: {len(buffers)} buffers given, it takes {len(code.buffers)}")
        for i, (array, buffer) in enumerate(zip(buffers, code.buffers, strict=True)):
            n_bytes = product_terms([(DTYPES[buffer.dtype].bytes, buffer.shape)], dims)
            if (
                not array.flags.c_contiguous
                or array.nbytes != n_bytes
                or array.itemsize != DTYPES[buffer.dtype].bytes
            ):
                raise ValueError(
                    f"kernel: buffer {i} is {array.dtype}{list(array.shape)}, {array.nbytes} bytes; "
                    f"it must be a contiguous {buffer.dtype} array of {n_bytes} bytes"
                )
        for loop, scale, offset, axis in code.bounds:
            n, o, a = (int(resolve(s, dims)) for s in (loop, offset, axis))  # type: ignore[arg-type]
            if n > 0 and not (0 <= o < a and 0 <= scale * (n - 1) + o < a):
                raise ValueError(f"kernel: indices {o} to {scale * (n - 1) + o} leave an axis of size {a}")
