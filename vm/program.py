"""A program as Python data: the compiler makes it, the artifact stores it, and the interpreters run it.

Indices are positions in the tuples: constants, kernels, functions and strings are named by the bytecode's
operands. Function 0 is main; its registers on entry, and those of other entry points: the inputs in order,
then one int per symbol in order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeAlias

import numpy as np

from .isa import DTYPES
from .layout import INT_MIN, SECTION_ALIGN

#: dtype -> numpy dtype that holds it; bf16 is represented as uint16.
NUMPY_DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "bool": np.dtype("?"), "u8": np.dtype("u1"), "i8": np.dtype("i1"), "i16": np.dtype("<i2"),
    "i32": np.dtype("<i4"), "i64": np.dtype("<i8"), "f16": np.dtype("<f2"), "bf16": np.dtype("<u2"),
    "f32": np.dtype("<f4"), "f64": np.dtype("<f8"),
}  # fmt: skip

DTYPE_NAMES: Final[tuple[str, ...]] = tuple(DTYPES)


# The contract ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Symbol:
    """A size, or an int input, that the caller chooses: min <= value <= max (None: unbounded), a multiple of
    `multiple_of`. Sizes are at least 0; `min` of an int without a lower bound is INT_MIN.

    `why`: the model's line that requires the bounds, "" if unknown.
    """

    name: str
    min: int = 0
    max: int | None = None
    multiple_of: int = 1
    why: str = ""

    @property
    def least_tried(self) -> int:
        """The least value to test: 0 if negative values are allowed, or the greatest value below 0."""
        low = max(self.min, 0 if self.max is None else min(self.max, 0))
        return -(-low // self.multiple_of) * self.multiple_of

    @property
    def shown_min(self) -> str:
        """The least value as text, "any" if there is none."""
        return "any" if self.min == INT_MIN else str(self.min)


@dataclass(frozen=True)
class Axis:
    """One axis of an input or output: size == scale * value(symbol) + offset; symbol None: size == offset.

    `expression`: the readable size of an output with none of these forms, else "".
    """

    symbol: int | None = None
    scale: int = 0
    offset: int = 0
    expression: str = ""

    @classmethod
    def const(cls, size: int) -> Axis:
        """Return the axis of a fixed size."""
        return cls(None, 0, size)

    @classmethod
    def of(cls, symbol: int, scale: int = 1, offset: int = 0) -> Axis:
        """Return the axis of size scale * symbol + offset."""
        return cls(symbol, scale, offset)

    def text(self, symbols: tuple[Symbol, ...]) -> str:
        """Return the axis as text for messages: `length`, `2*length+1`, `384`."""
        if self.expression:
            return self.expression
        if self.symbol is None:
            return str(self.offset)
        name = symbols[self.symbol].name
        scaled = name if self.scale == 1 else f"{self.scale}*{name}"
        return scaled if self.offset == 0 else f"{scaled}{self.offset:+d}"


@dataclass(frozen=True)
class Input:
    """A parameter of an entry point. `kind`: tensor (then dtype and axes), int (`symbol`: the one it binds),
    float, bool or str. `is_written`: calls write to it, in the caller's memory. `in_rows`:
    calls must give it row by row, since the program reads it as it lies in memory.
    """

    name: str
    kind: str = "tensor"
    dtype: str | None = None
    axes: tuple[Axis, ...] = ()
    symbol: int | None = None
    is_written: bool = False
    in_rows: bool = False

    @property
    def memory(self) -> int:
        """What an artifact says of its memory."""
        return self.is_written + 2 * self.in_rows


@dataclass(frozen=True)
class Output:
    """A result of an entry point, as the compiler declares it.

    `kind`: tensor (then dtype and axes), another tag, or None if undeclared.
    """

    name: str
    kind: str | None = None
    dtype: str | None = None
    axes: tuple[Axis, ...] = ()


@dataclass(frozen=True)
class EntryPoint:
    """The contract of a function that the host calls: the inputs and outputs of function `function`."""

    function: int
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]


# Kernels --------------------------------------------------------------------------------------------


@dataclass(frozen=True, order=True)
class Dim:
    """The run-time parameter `dims[index]` (an int64, >= 0) of a kernel: a size or a slice offset."""

    index: int

    def __str__(self) -> str:
        return f"n{self.index}"


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    #: The representation of a size that is not an int.
    Unknown = TypeVar("Unknown", covariant=True, default=Dim)
else:  # (a default needs Python 3.13)
    from typing import TypeVar

    Unknown = TypeVar("Unknown", covariant=True)
#: A size: an int, or a representation of one (a bare `Size`: a Dim).
Size: TypeAlias = int | Unknown
#: A factor times sizes. Sums of these are bytes of scratch, or a tile's cost.
Term = tuple[int, tuple[Size, ...]]
Terms = tuple[Term, ...]


@dataclass(frozen=True)
class Buffer(Generic[Unknown]):
    """`buffers[i]` of the kernel ABI: a contiguous row-major array of `dtype` and `shape`; () is 0-d.

    `dtype` is one of f64 f32 f16 bf16 i64 i32 i16 i8 u8 bool (bool: one byte, 0 or 1).
    `is_output`: the kernel writes all of it; otherwise it only reads. Outputs may share memory with an input
    only if the emitter has proved that every element is read before its location is written. A launch gets
    exactly product(shape) elements.
    """

    dtype: str
    shape: tuple[Size[Unknown], ...]
    is_output: bool = False


@dataclass(frozen=True)
class SizeRange:
    """The sizes min, ..., max (None: no bound) that are multiples of `multiple_of`."""

    min: int = 0
    max: int | None = None
    multiple_of: int = 1

    def __contains__(self, size: int) -> bool:
        return self.min <= size and (self.max is None or size <= self.max) and size % self.multiple_of == 0

    def __str__(self) -> str:
        step = f"/{self.multiple_of}" if self.multiple_of != 1 else ""
        return f"{self.min}..{'' if self.max is None else self.max}{step}"


#: The sizes of a kernel's code: each dim's value or range; None: any sizes (generic).
KernelKey = tuple[int | SizeRange, ...] | None


def format_key(key: KernelKey) -> str:
    """Return a key as text, also for hashes: "generic", "16,384", "33..128,384"."""
    return "generic" if key is None else ",".join(map(str, key))


class Lines(NamedTuple):
    """How tiles traverse a buffer of consecutive images of `height` lines.

    `tiles[tile]` of the `Work` counts lines of results, `divisor` of them per tile; earlier ones count
    images, later ones parts of the same lines. Line y of an image's results needs `reach` lines of the buffer
    from y * stride - low on, as far as they exist; in a written buffer, line y.
    """

    buffer: int
    tile: int
    height: Size
    stride: int = 1
    low: int = 0
    reach: int = 1


@dataclass(frozen=True)
class Work:
    """The work of a launch, and its memory.

    `n_tiles` = product over (size, divisor) in `tiles` of ceil(size / divisor). `scratch` bytes per thread =
    sum over (bytes, sizes) of bytes * product(sizes). `cost` = estimated flops or bytes per tile, in the same
    form, for dividing tiles among threads. `lines`: the buffers of which a tile needs only some lines; it may
    need all of the others.
    """

    tiles: tuple[tuple[Size, int], ...] = ()
    scratch: Terms = ()
    cost: Terms = ()
    lines: tuple[Lines, ...] = ()


@dataclass(frozen=True)
class MachineCode:
    """Position-independent machine code, .text and .rodata linked together, no relocations left. Its entry
    point is at `entry`; it runs at any multiple of `alignment` bytes."""

    data: bytes
    entry: int = 0
    alignment: int = SECTION_ALIGN


@dataclass(frozen=True)
class KernelObject:
    """Machine code of one kernel, with the data that the runtime needs to call it safely.

    `spec_hash` in hex. `buffers` are the spec's: at a launch every buffer must have that dtype and exactly
    product(shape) elements, else the launch is refused.
    `bounds`: (loop, scale, offset, axis) each demanding 0 <= scale * i + offset < axis at i = 0 and
    i = loop - 1 whenever loop > 0 (scale < 0 counts down), for every access that is not in range by the
    shapes alone; also checked at a launch. `exact_dims`: the only dims that it accepts; `ranges`: a bucket's,
    one for each dim; both None: generic, any sizes >= 0. `schedule`: its name, then the names of the code's
    variants ("14x32 gemv panels").
    """

    spec_hash: str
    target: str  # a name of `target.TARGETS`
    n_dims: int
    buffers: tuple[Buffer, ...]
    work: Work
    bounds: tuple[tuple[Size, int, Size, Size], ...]
    code: MachineCode
    exact_dims: tuple[int, ...] | None = None
    schedule: str = ""
    ranges: tuple[SizeRange, ...] | None = None

    @property
    def schedule_name(self) -> str:
        """The schedule alone, without the variants."""
        return self.schedule.partition(" ")[0]

    @property
    def variants(self) -> tuple[str, ...]:
        """The family's variants that the code uses."""
        return tuple(self.schedule.split(" ")[1:])

    @property
    def key(self) -> KernelKey:
        """The sizes that the code was compiled for; fixed sizes of a bucket are ints."""
        if self.ranges is None:
            return self.exact_dims
        return tuple(r.min if r.min == r.max else r for r in self.ranges)


@dataclass(frozen=True)
class Kernel:
    """An entry of the kernel table: `spec` is its canonical JSON; `label` and `source` are for messages."""

    spec: str
    n_dims: int
    buffers: tuple[Buffer, ...]
    label: str = ""
    source: str = ""
    objects: tuple[KernelObject, ...] = ()

    @property
    def spec_hash(self) -> str:
        """SHA-256 (hex) of the spec, which its code objects must contain."""
        return hashlib.sha256(self.spec.encode()).hexdigest()


# Code -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Function:
    """A function: `code` is its words (see isa), `lines` (pc, source): the source of the code from pc on."""

    name: str
    n_params: int
    n_results: int
    n_registers: int
    code: tuple[int, ...]
    lines: tuple[tuple[int, str], ...] = ()

    def source(self, pc: int) -> str:
        """Return the source of the instruction at `pc`, "" if unknown."""
        found = ""
        for start, source in self.lines:
            if start > pc:
                break
            found = source
        return found


@dataclass(frozen=True, eq=False)
class Constant:
    """A constant: None, bool, int, float, str, or a tensor as an array of NUMPY_DTYPES[dtype], which need
    not be contiguous: writing the artifact copies it.

    Equality is bitwise: NaN equals itself, 0.0 is not -0.0, 1 is not True.
    """

    value: Any
    dtype: str | None = None
    name: str = ""

    @property
    def tag(self) -> str:
        """The constant's tag."""
        if self.dtype is not None:
            return "tensor"
        return {type(None): "none", bool: "bool", int: "int", float: "float", str: "str"}[type(self.value)]

    def _key(self) -> tuple[Any, ...]:
        value = (self.value.shape, self.value.tobytes()) if self.dtype is not None else repr(self.value)
        return (self.name, self.tag, self.dtype, value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((self.name, self.tag, self.dtype))

    @classmethod
    def tensor(cls, array: np.ndarray[Any, Any], dtype: str, name: str = "") -> Constant:
        """Return a tensor constant. Raises ValueError if the array's dtype does not represent `dtype`."""
        if array.dtype != NUMPY_DTYPES[dtype]:
            raise ValueError(
                f"constant {name!r}: the array is {array.dtype}; {dtype} is kept as {NUMPY_DTYPES[dtype]}"
            )
        return cls(array, dtype, name)


@dataclass(frozen=True)
class Program:
    """A whole program. `inputs` and `outputs` are main's; `others` are the entry points besides main, in the
    order of their functions, with at least one input each. `strings[0]` is ""; `meta` is JSON data that only
    hosts read.
    """

    functions: tuple[Function, ...]
    constants: tuple[Constant, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    strings: tuple[str, ...] = ("",)
    symbols: tuple[Symbol, ...] = ()
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    others: tuple[EntryPoint, ...] = ()

    @property
    def entry_points(self) -> tuple[EntryPoint, ...]:
        """The functions that the host calls: main, then the others."""
        return (EntryPoint(0, self.inputs, self.outputs), *self.others)
