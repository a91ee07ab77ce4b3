"""The kernel ABI and the code object: the interface between `jit` and the C runtime, which maps and calls
kernels.

    void kernel(void *const *buffers, const int64_t *dims, svm_rt *rt, int64_t tile_begin, int64_t tile_end)

The kernel does tiles tile_begin <= t < tile_end of `n_tiles`; any partition of the tiles, by any number of
threads, gives the same bits. Full-vector reads must not read beyond a buffer by a single byte.
`svm_rt` (one per thread): offset 0 `void *scratch` (64-byte aligned, at least `scratch` bytes), offset 8
`int64_t error` (0 or one of ERROR_, set by the kernel), offset 16 `int64_t error_value`, offset 24
`int64_t error_bound`, offset 32 `int64_t prepared`. After an ERROR_INDEX the kernel continues with a clamped
index, after an ERROR_ROWS it does no tile, so memory stays safe; after an ERROR_DIVISION it continues with a
quotient of 0.

`prepared` is NOTHING_PREPARED when a thread begins a launch, and is preserved, like scratch, between its runs
of tiles. Kernels that prepare a block of rows for many tiles store the block's number in it, so a thread
prepares a block once, however its tiles are divided into runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...vm.program import KernelObject, Work
from ..spec import Dim, Size
from .function import Function, Int

ERROR_INDEX = 1  # a gather's index was < -bound or >= bound (value, bound are in svm_rt)
ERROR_ROWS = 2  # a convolution has `value` rows for `bound` outputs of its images
ERROR_DIVISION = 3  # a divisor of integers is 0

RT_SCRATCH, RT_ERROR, RT_ERROR_VALUE, RT_ERROR_BOUND, RT_PREPARED = 0, 8, 16, 24, 32
NOTHING_PREPARED = -1
PARAMS = (("ptr", "buffers"), ("ptr", "dims"), ("ptr", "rt"), ("i64", "tile_begin"), ("i64", "tile_end"))


@dataclass(frozen=True)
class Timings:
    """Seconds that the steps of one compilation took: writing the text, LLVM's two steps, linking."""

    text: float
    parse: float
    emit: float
    link: float

    @property
    def total(self) -> float:
        """All steps together, in seconds."""
        return self.text + self.parse + self.emit + self.link


@dataclass(frozen=True)
class CodeObject(KernelObject):
    """A code object just compiled, with what only the compiler knows of it."""

    llvm_ir: str = field(default="", compare=False, repr=False)  # kept only on request (show)
    timings: Timings | None = field(default=None, compare=False, repr=False)


# The interface of a family's generator -------------------------------------------------------------------


@dataclass(frozen=True)
class Generated:
    """A generator's answer: the work of a launch, and the name of the schedule that was used."""

    work: Work
    schedule: str = ""  # the name of the schedule that was used


def check_schedule(family: str, schedule: str | None, known: Sequence[str]) -> None:
    """Raise ValueError for a schedule that a family's generator does not have; None is its own choice."""
    if schedule is not None and schedule not in known:
        verb = "is" if len(known) == 1 else "are"
        raise ValueError(
            f"{family} kernel: schedule {schedule!r} is unknown; known {verb} {', '.join(known)}"
        )


class Generator(Protocol):
    """`emit` of a family's module (`jit.families.nest.nest`, `jit.families.matmul.matmul`,
    `jit.families.attention.attention`).

    `f` is a fresh Function with the parameters PARAMS, its entry block open; `emit` appends the whole body
    (the final `ret void` is added by `Function.text`). `sizes[i]` is the value of `Dim(i)`: an int in an
    exact kernel, in a generic one an i64 Value loaded from `dims` already, in a bucket's an int or a
    `Bounded` Value; `resolve` reads a Size with it. In an exact kernel `Generated`'s sizes may be ints or
    the spec's Dims. Constant data: `f.declarations["name"] = "@name = private unnamed_addr constant ..."`, in
    a separate section unless it is a vector. `schedule`: the generator's name of a variant, None for its
    choice. Raises ValueError for a schedule that it does not know.
    """

    def __call__(self, f: Function, spec: Any, sizes: Sequence[Int], schedule: str | None) -> Generated:
        """Emit the kernel of `spec` into `f`."""
        ...


def resolve(size: Size, sizes: Sequence[Int]) -> Int:
    """Return the value of a spec's Size: an int itself, a Dim's from `sizes`."""
    return sizes[size.index] if isinstance(size, Dim) else size
