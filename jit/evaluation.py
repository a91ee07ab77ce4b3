"""Bodies, loads and stores of kernel specs with numpy, for the definitions of families.

Pointwise arithmetic is that of the kernels, function by function correctly rounded (`math.reference`).
Sums, products, matrix products and softmax are accumulated in f64 and rounded once: a kernel's fixed order is
compared within a tolerance, not bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .llvm.abi import resolve
from .llvm.constants import rounded
from .llvm.dtypes import DTYPES
from .math.reference import Array
from .math.table import OPS
from .spec import Body, Index, Instr, KernelSpec, Size

Values = dict[int, Array]


# Values: registers as arrays ----------------------------------------------------------------------------


def bf16_to_f32(bits: Array) -> Array:
    """Return bf16 bits (uint16) as float32."""
    return (np.asarray(bits, np.uint16).astype(np.uint32) << 16).view(np.float32)


def f32_to_bf16(x: Array) -> Array:
    """Return float32 rounded to bf16 (ties to even, a NaN is 0x7FC0), as its bits in uint16."""
    bits = np.ascontiguousarray(x, np.float32).reshape(np.shape(x)).view(np.uint32).astype(np.uint64)
    nearest = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(x), 0x7FC0, nearest).astype(np.uint16)


def from_memory(array: Array, dtype: str) -> Array:
    """Return elements of a buffer as values: f16 and bf16 become float32."""
    if dtype == "bf16":
        return bf16_to_f32(array)
    return array.astype(np.float32) if dtype == "f16" else array


def to_memory(values: Array, dtype: str) -> Array:
    """Return values as elements of a buffer."""
    if dtype == "bf16":
        return f32_to_bf16(values)
    with np.errstate(over="ignore"):
        return np.asarray(values).astype(DTYPES[dtype].numpy)


def convert(values: Array, source: str, target: str) -> Array:
    """Return `values` of dtype `source` cast to `target`, by the rules of `jit.llvm.conversion`."""
    with np.errstate(over="ignore", invalid="ignore"):
        if target == "bool":
            return values != 0
        if DTYPES[target].kind != "float":
            return (
                _to_int(values, source, target)
                if DTYPES[source].kind == "float"
                else values.astype(target_type(target))
            )
        narrow = values if target == "f64" else values.astype(np.float32)
        return narrow.astype(np.float64) if target == "f64" else round_values(narrow, target)


def target_type(dtype: str) -> str:
    """Return the numpy type that values of `dtype` have."""
    return "float32" if dtype in ("f16", "bf16") else DTYPES[dtype].numpy


def round_values(values: Array, dtype: str) -> Array:
    """Return float values rounded to what `dtype` represents."""
    return from_memory(to_memory(values, dtype), dtype) if dtype in ("f16", "bf16") else values


def _to_int(x: Array, source: str, target: str) -> Array:
    through = np.int64 if target == "i64" or (source, target) == ("f64", "u8") else np.int32
    limit = 2.0 ** (np.iinfo(through).bits - 1)
    whole = np.trunc(x.astype(np.float64))
    fits = (whole >= -limit) & (whole < limit)
    wide = np.where(fits, np.where(fits, whole, 0).astype(through), np.iinfo(through).min)
    return wide.astype(DTYPES[target].numpy)


# Reductions over the last axis --------------------------------------------------------------------------


def _in_f64(function: Callable[..., Array]) -> Callable[[Array, str], Array]:
    def reduce(x: Array, dtype: str) -> Array:
        if DTYPES[dtype].kind != "float":
            return function(x, axis=-1, keepdims=True, dtype=x.dtype)
        total = function(x.astype(np.float64), axis=-1, keepdims=True)
        return convert(total, "f64", dtype)

    return reduce


def _extremum(function: Callable[..., Array], sign: int) -> Callable[[Array, str], Array]:
    def reduce(x: Array, dtype: str) -> Array:
        if DTYPES[dtype].kind == "float":
            return function(x, axis=-1, keepdims=True, initial=x.dtype.type(-sign * np.inf))
        limits = np.iinfo(x.dtype)
        return function(x, axis=-1, keepdims=True, initial=limits.min if sign > 0 else limits.max)

    return reduce


def _any(x: Array, dtype: str) -> Array:
    return np.any(x, axis=-1, keepdims=True)


def _all(x: Array, dtype: str) -> Array:
    return np.all(x, axis=-1, keepdims=True)


REDUCTIONS: dict[str, Callable[[Array, str], Array]] = {
    "reduce.sum": _in_f64(np.sum),
    "reduce.prod": _in_f64(np.prod),
    "reduce.max": _extremum(np.max, 1),
    "reduce.min": _extremum(np.min, -1),
    "reduce.any": _any,
    "reduce.all": _all,
}
ON_BOOL = {"reduce.sum": _any, "reduce.max": _any, "reduce.prod": _all, "reduce.min": _all}


def divisor(values: Array) -> Array:
    """Return divisors of integers. Raises ZeroDivisionError if one is 0."""
    if not np.all(values):
        raise ZeroDivisionError("an integer tensor is divided by 0")
    return values


def _in_range(index: Array, size: int, given: Array | None = None) -> Array:
    """Return indices that are all from 0 to below `size`. Raises IndexError naming the first that is not, as
    given."""
    bad = (index if given is None else given)[(index < 0) | (index >= size)]
    if bad.size:
        raise IndexError(f"index {bad[0]} is out of range for a dimension of size {size}")
    return index


# One evaluation ------------------------------------------------------------------------------------------


class Evaluation:
    """One evaluation of a spec at sizes `dims` in `buffers`.

    A value is an array with one axis per loop, of size 1 where it does not vary.
    """

    def __init__(self, spec: KernelSpec, dims: Sequence[int], buffers: Sequence[Array]) -> None:
        self.spec = spec
        self.dims = dims
        self.arrays = [
            array.reshape([self.size(s) for s in buffer.shape])
            for buffer, array in zip(spec.buffers, buffers, strict=True)
        ]

    def size(self, size: Size) -> int:
        """Return a size as a number."""
        return int(resolve(size, self.dims))  # type: ignore[arg-type]

    def loops(self, sizes: Sequence[Size]) -> list[Array]:
        """Return the index of every loop, along its own axis."""
        n = len(sizes)
        return [
            np.arange(self.size(s)).reshape([-1 if a == i else 1 for a in range(n)])
            for i, s in enumerate(sizes)
        ]

    # accesses
    def _places(
        self, buffer: int, index: tuple[Index, ...], loops: list[Array], values: Values
    ) -> tuple[Array, ...]:
        result = []
        for place, size in zip(index, self.arrays[buffer].shape, strict=True):
            source = 0 if place.loop is None else loops[place.loop]
            if place.value is not None:
                source = values[place.value].astype(np.int64)
            at = np.asarray(place.scale * source + self.size(place.offset))
            if place.value is not None:
                at = _in_range(at, size)
            bad = at[(at < 0) | (at >= size)]
            if bad.size:
                raise ValueError(
                    f"{self.spec.family} kernel: buffer {buffer} is accessed at {bad[0]} of {size}"
                )
            result.append(at)
        return tuple(result)

    def load(self, buffer: int, index: tuple[Index, ...], loops: list[Array], values: Values) -> Array:
        """Return the elements that a load at `index` takes at every place of the loops."""
        array = self.arrays[buffer][self._places(buffer, index, loops, values)]
        shaped = array.reshape((1,) * (len(loops) - array.ndim) + array.shape)
        return from_memory(shaped, self.spec.buffers[buffer].dtype)

    def store(
        self, buffer: int, index: tuple[Index, ...], loops: list[Array], values: Values, value: Array
    ) -> None:
        """Store `value` at `index`."""
        places = self._places(buffer, index, loops, values)
        *spread, data = np.broadcast_arrays(*places, to_memory(value, self.spec.buffers[buffer].dtype))
        if spread:
            self.arrays[buffer][tuple(spread)] = data
        elif data.size:  # a 0-d buffer
            self.arrays[buffer][()] = data.flat[-1]

    # bodies
    def body(self, body: Body, loops: list[Array], acc: Array | None = None) -> Values:
        """Run `body`; return all values."""
        values: Values = {}
        for i, instr in enumerate(body):
            args = [values[a] for a in instr.args]
            if instr.op == "store":
                assert instr.buffer is not None
                self.store(instr.buffer, instr.index, loops, values, args[0])
                continue
            value = acc if instr.op == "acc" else self._instr(instr, body, loops, values, args)
            assert value is not None
            values[i] = np.asarray(value).reshape((1,) * (len(loops) - np.ndim(value)) + np.shape(value))
        return values

    def _instr(
        self, instr: Instr, body: Body, loops: list[Array], values: Values, args: list[Array]
    ) -> Array:
        if instr.op == "load":
            assert instr.buffer is not None
            return self.load(instr.buffer, instr.index, loops, values)
        if instr.op == "const":
            return np.asarray(rounded(instr.dtype, instr.value)).astype(target_type(instr.dtype))
        if instr.op == "iota":
            assert instr.loop is not None
            return loops[instr.loop]
        if instr.op == "dim":
            assert instr.size is not None
            return np.asarray(self.size(instr.size), np.int64)
        if instr.op == "checked":
            assert instr.size is not None
            return _in_range(args[0].astype(np.int64), self.size(instr.size), args[1])
        if instr.op == "divisor":
            is_none = instr.size is not None and self.size(instr.size) == 0
            return args[0] if is_none else divisor(args[0])
        source = body[instr.args[0]].dtype
        if instr.op == "cast":
            return convert(args[0], source, instr.dtype)
        if instr.op == "select":
            return np.where(*args)
        if instr.op in REDUCTIONS:
            row = self._reduced(instr, body, values)
            row = np.broadcast_to(row, (*row.shape[:-1], loops[-1].size))
            function = (
                ON_BOOL.get(instr.op, REDUCTIONS[instr.op]) if source == "bool" else REDUCTIONS[instr.op]
            )
            return function(row, instr.dtype)
        value = OPS[instr.op].reference(*args)
        return round_values(value, source) if OPS[instr.op].result == "same" else value

    @staticmethod
    def _reduced(instr: Instr, body: Body, values: Values) -> Array:
        """Return the elements that a reduction combines: products that are added are not rounded."""
        argument = body[instr.args[0]]
        if instr.op != "reduce.sum" or argument.op != "mul" or argument.dtype not in ("f32", "f64"):
            return values[instr.args[0]]
        a, b = (values[i].astype(np.float64) for i in argument.args)
        return a * b

    # whole buffers
    def inputs(self) -> list[Array]:
        """Return the values of all input buffers."""
        pairs = zip(self.arrays, self.spec.buffers, strict=True)
        return [from_memory(array, buffer.dtype) for array, buffer in pairs if not buffer.is_output]

    def set_outputs(self, *values: Array) -> None:
        """Set all output buffers."""
        pairs = zip(self.arrays, self.spec.buffers, strict=True)
        outputs = [(array, buffer.dtype) for array, buffer in pairs if buffer.is_output]
        for value, (array, dtype) in zip(values, outputs, strict=True):
            array[...] = to_memory(value, dtype)
