"""Loads and stores of LANES elements of one buffer: contiguous, broadcast, strided or gathered, with a mask.

`Access` collects the address axis by axis; `Accessor` then takes the cheapest instruction for it. Addresses
that a gather makes are checked at run time; an index out of range is reported in svm_rt, and memory stays
safe.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from . import masked
from .abi import ERROR_DIVISION, ERROR_INDEX, RT_ERROR, RT_ERROR_BOUND, RT_ERROR_VALUE
from .constants import LANES, splat_int, tail_mask
from .conversion import from_memory, to_memory
from .dtypes import DTYPES, vector
from .function import Function, Int, Value
from .vector import Vec, select

Typed = tuple[Value, str]  # a vector and its dtype


@dataclass
class Access:
    """Lane l is element `offset` + l * `stride` + `lane_offsets`[l], if all of `..allowed` hold."""

    offset: Int = 0
    stride: Int = 0
    lane_offsets: Vec | None = None
    allowed: list[Value] = field(default_factory=list)  # i1
    lanes_allowed: list[Vec] = field(default_factory=list)


def memory_element(dtype: str) -> str:
    """Return the LLVM type that elements of `dtype` are moved as."""
    memory = DTYPES[dtype].memory
    return "i16" if memory == "half" else memory  # masked half vectors would be taken apart


class Accessor:
    """Emits the accesses of one buffer (first element at `base`) for the lanes in `mask` (None: all)."""

    def __init__(self, f: Function, base: Value, dtype: str, mask: Value | None) -> None:
        self.f = f
        self.base = base
        self.dtype = dtype
        self.mask = mask
        self.element = memory_element(dtype)
        self.align = DTYPES[dtype].bytes

    # addresses
    def add_axis(self, access: Access, loop: Int, along: bool, scale: int, offset: Int, stride: Int) -> None:
        """Add (scale * loop + offset) * stride; `along`: the loop is the vector loop."""
        f = self.f
        place = f.add(f.mul(loop, scale), offset)
        access.offset = f.add(access.offset, f.mul(place, stride))
        if along:
            access.stride = f.add(access.stride, f.mul(scale, stride))

    def add_gather(
        self,
        access: Access,
        index: Typed,
        uniform: bool,
        scale: int,
        offset: Int,
        size: Int,
        stride: Int,
    ) -> None:
        """Add (scale * index + offset) * stride, checked against the size; `index`: (vector, its dtype)."""
        wide = _as_i64(Vec(self.f, index[0]), index[1])
        if uniform:
            self._add_scalar_gather(access, wide, scale, offset, size, stride)
        else:
            self._add_lane_gather(access, wide, scale, offset, size, stride)

    def _add_scalar_gather(
        self, access: Access, index: Vec, scale: int, offset: Int, size: Int, stride: Int
    ) -> None:
        f = self.f
        first = f.op("i64", f"extractelement {index.value.type} {index.value.name}, i64 0")
        safe, good = _in_range(f, f.i64(f.add(f.mul(first, scale), offset)), size)
        access.offset = f.add(access.offset, f.mul(safe, stride))
        if not _surely_positive(size):
            access.allowed.append(good)

    def _add_lane_gather(
        self, access: Access, index: Vec, scale: int, offset: Int, size: Int, stride: Int
    ) -> None:
        f = self.f
        place = index if scale == 1 else index * scale
        place = place if offset == 0 else place + Vec(f, splat_int(f, offset))
        offsets, good = _lanes_in_range(f, place, size, self.mask)
        if stride != 1:
            offsets = offsets * Vec(f, splat_int(f, stride))
        access.lane_offsets = offsets if access.lane_offsets is None else access.lane_offsets + offsets
        if not _surely_positive(size):
            access.lanes_allowed.append(good)

    # accesses
    def _lanes(self, access: Access) -> Value:
        """Return the mask of the lanes that a gather or scatter touches where all of `allowed` hold."""
        masks = list(access.lanes_allowed)
        if self.mask is not None:
            masks.append(Vec(self.f, self.mask))
        if not masks:
            return Value(vector("i1", LANES), "splat (i1 true)")
        result = masks[0]
        for mask in masks[1:]:
            result = result & mask
        return result.value

    def _pointers(self, access: Access) -> Value:
        f = self.f
        start = f.at(self.base, self.element, access.offset)
        offsets = access.lane_offsets
        if access.stride != 0:
            lanes = Vec(f, splat_int(f, 0, step=1))
            ramp = lanes * Vec(f, splat_int(f, access.stride))
            offsets = ramp if offsets is None else offsets + ramp
        assert offsets is not None
        text = f"getelementptr inbounds {self.element}, ptr {start.name}, "
        return f.op(vector("ptr", LANES), f"{text}{offsets.value.type} {offsets.value.name}")

    def load(self, access: Access) -> Vec:
        """Emit the load; return registers. Lanes not allowed or masked are 0."""
        f = self.f
        if access.lane_offsets is not None or access.stride not in (0, 1, -1):
            raw = self._gather(access)
        elif access.stride == 0:
            start = f.at(self.base, self.element, access.offset)
            start = masked.readable(f, start, access.allowed)
            raw = f.splat(f.load(self.element, start, self.align), LANES)
        else:
            start, mask = self._row(access)
            raw = masked.load(f, self.element, start, self.align, mask, *access.allowed)
            raw = self._along(access, raw)
        return self.registers(raw)

    def _gather(self, access: Access) -> Value:
        f, lanes = self.f, Vec(self.f, self._lanes(access))
        for good in access.allowed:
            lanes = lanes & Vec(f, f.splat(good, LANES))
        kind = vector(self.element, LANES)
        name = f"llvm.masked.gather.{masked.mangled(self.element)}.v{LANES}p0"
        align, zero = Value("i32", str(self.align)), Value(kind, "zeroinitializer")
        return f.call(kind, name, self._pointers(access), align, lanes.value, zero)

    def registers(self, raw: Value) -> Vec:
        """Return registers for elements as they are in memory."""
        loaded = Vec(self.f, raw)
        if DTYPES[self.dtype].memory == "half":
            loaded = loaded.convert("bitcast", "half")
        return from_memory(loaded, self.dtype)

    def _row(self, access: Access) -> tuple[Value, Value | None]:
        """Return the address of the first of LANES elements side by side, and their mask; a stride of -1 ends
        at lane 0."""
        mask = self.mask
        first = access.offset if access.stride == 1 else self.f.sub(access.offset, LANES - 1)
        return self.f.at(self.base, self.element, first), mask and self._along(access, mask)

    def _along(self, access: Access, vector: Value) -> Value:
        """Return a vector in the order of memory for one in that of the lanes, or the other way round."""
        if access.stride == 1:
            return vector
        order = ", ".join(f"i32 {LANES - 1 - lane}" for lane in range(LANES))
        text = f"shufflevector {vector.type} {vector.name}, {vector.type} poison, <{LANES} x i32> <{order}>"
        return self.f.op(vector.type, text)

    def store(self, access: Access, value: Vec, bypasses: bool = False) -> None:
        """Emit the store of registers. Without a stride: lane 0 only. `bypasses`: see `Position`."""
        f = self.f
        raw = to_memory(value, self.dtype)
        if raw.element == "half":
            raw = raw.convert("bitcast", "i16")
        with masked.where(f, access.allowed):
            self._store(access, raw.value, bypasses)

    def _store(self, access: Access, raw: Value, bypasses: bool) -> None:
        f, align = self.f, Value("i32", str(self.align))
        if access.lane_offsets is not None or access.stride not in (0, 1, -1):
            name = f"llvm.masked.scatter.{masked.mangled(self.element)}.v{LANES}p0"
            f.call("void", name, raw, self._pointers(access), align, self._lanes(access))
        elif access.stride == 0 or self.mask == tail_mask(f, 1):
            # LLVM 22 stores a truncated vector's one constant lane at the width before truncation.
            first = f.op(self.element, f"extractelement {raw.type} {raw.name}, i64 0")
            f.store(first, f.at(self.base, self.element, access.offset), self.align)
        else:
            start, mask = self._row(access)
            value = self._along(access, raw)
            if mask is None and bypasses:
                f.stream(value, start)
            else:
                masked.store(f, value, start, self.align, mask)


def checked(f: Function, index: Typed, given: Typed, uniform: bool, size: Int, mask: Value | None) -> Value:
    """Return a vector of indices as i64, those that are not below `size` reported as they were given, and 0;
    `uniform`: all lanes are equal."""
    wide, said = (_as_i64(Vec(f, value), dtype) for value, dtype in (index, given))
    if not uniform:
        return _lanes_in_range(f, wide, size, mask, said)[0].value
    first, named = (f.op("i64", f"extractelement {v.value.type} {v.value.name}, i64 0") for v in (wide, said))
    return splat_int(f, _in_range(f, first, size, named)[0])


def _in_range(f: Function, place: Value, size: Int, given: Value | None = None) -> tuple[Value, Value]:
    """Report a place that is not below `size`, as it was given; return it, 0 instead, and whether it is
    below."""
    good = f.op("i1", f"icmp ult i64 {place.name}, {f.i64(size).name}")
    bad = f.op("i1", f"xor i1 {good.name}, true")
    with f.when(bad):
        report_index(f, given or place, size)
    return f.select(good, place, 0), good


def _lanes_in_range(
    f: Function, place: Vec, size: Int, mask: Value | None, given: Vec | None = None
) -> tuple[Vec, Vec]:
    """The same for the lanes of `mask`."""
    good = place.compare("ult", Vec(f, splat_int(f, size)))
    bits, any_bad = _set_lanes(f, ~good, mask)
    with f.when(any_bad):
        lane = f.call(f"i{LANES}", f"llvm.cttz.i{LANES}", bits, Value("i1", "true"))
        said = (given or place).value
        text = f"extractelement {said.type} {said.name}, i{LANES} {lane.name}"
        report_index(f, f.op("i64", text), size)
    return select(good, place, 0), good


def _set_lanes(f: Function, found: Vec, mask: Value | None) -> tuple[Value, Value]:
    """Return the lanes of `mask` where `found` holds, as bits, and whether there is one."""
    found = found if mask is None else found & Vec(f, mask)
    bits = f.op(f"i{LANES}", f"bitcast {found.value.type} {found.value.name} to i{LANES}")
    return bits, f.op("i1", f"icmp ne i{LANES} {bits.name}, 0")


def check_divisor(f: Function, divisor: Value, mask: Value | None, size: Int | None) -> None:
    """Report a division by zero where a lane of `mask` is 0, unless `size` is."""
    _, found = _set_lanes(f, Vec(f, divisor).eq(0), mask)
    if size is not None:
        is_any = f.op("i1", f"icmp ne i64 {f.i64(size).name}, 0")
        found = f.op("i1", f"and i1 {found.name}, {is_any.name}")
    with f.when(found):
        report(f, ERROR_DIVISION, f.i64(0), 0)


def report_index(f: Function, value: Value, bound: Int) -> None:
    """Write the error of an index that is out of range into svm_rt."""
    report(f, ERROR_INDEX, value, bound)


def report(f: Function, error: int, value: Value, bound: Int) -> None:
    """Write `error` and its two numbers into svm_rt."""
    rt = f.params[2]
    for place, what in ((RT_ERROR, error), (RT_ERROR_VALUE, value), (RT_ERROR_BOUND, bound)):
        f.store(f.i64(what), f.at(rt, "i8", place), align=8)


def _as_i64(x: Vec, dtype: str) -> Vec:
    if DTYPES[dtype].kind == "float":
        raise ValueError(f"body: a gather's index is {dtype}; it must be an integer")
    if x.element == "i64":
        return x
    return x.convert("sext" if DTYPES[dtype].kind == "int" else "zext", "i64")


def _surely_positive(size: Int) -> bool:
    return isinstance(size, int) and size > 0
