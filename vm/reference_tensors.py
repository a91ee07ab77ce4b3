"""Instructions that make tensors, read their sizes and elements, and check them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .arrays import NUMPY_NAMES
from .contract import tag_of
from .errors import DtypeError, IndexOutOfRange, IntegerOverflow, KindError, ShapeError
from .instruction import Instruction
from .isa import DTYPES, TAGS, article
from .program import DTYPE_NAMES, NUMPY_DTYPES, Program
from .reference_checks import MAX_BYTES, check_int64, elements, n_elements
from .reference_frame import Frame


def bf16_bits(value: float) -> int:
    """Return the bits of the nearest bf16 to a float32, ties to even."""
    bits = int(np.float32(value).view(np.uint32))
    if math.isnan(value):
        return bits >> 16 | 0x40
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


class Tensors:
    """A method for each of these instructions."""

    program: Program

    def _sizes(self, r: list[Any], i: Instruction) -> tuple[int, ...]:
        """Return the sizes in registers. Raises KindError or ShapeError for the first invalid one."""
        sizes: list[int] = []
        for size in elements(r, i, "sizes"):
            sizes.append(size)
            if size < 0:
                raise ShapeError(f"size {size} must be >= 0")
        n_elements(sizes)
        return tuple(sizes)

    def op_alloc(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Make a tensor of zeros."""
        sizes, dtype = self._sizes(r, i), DTYPE_NAMES[i["dtype"]]
        n_bytes = n_elements(sizes) * DTYPES[dtype][1]
        if n_bytes > MAX_BYTES:
            raise ShapeError(f"alloc: {dtype}{list(sizes)} is too many bytes")
        r[i["d"]] = np.zeros(sizes, NUMPY_DTYPES[dtype])

    def op_view(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """The same memory with other sizes."""
        a, sizes = r[i["a"]], self._sizes(r, i)
        if n_elements(sizes) != a.size:
            raise ShapeError(f"view: sizes {list(sizes)} have not the {a.size} elements of {list(a.shape)}")
        r[i["d"]] = a.reshape(sizes)

    def op_part(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Some elements, in the same memory."""
        a, begin, sizes = r[i["a"]], r[i["begin"]], self._sizes(r, i)
        n = n_elements(sizes)
        if not 0 <= begin <= a.size - n:
            raise IndexOutOfRange(f"part: {n} elements from {begin} on; the tensor has {a.size}")
        r[i["d"]] = a.reshape(-1)[begin : begin + n].reshape(sizes)
        r[i["d"]].flags.writeable = False

    def op_dim(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """A tensor's size along an axis."""
        a, axis = r[i["a"]], i["axis"]
        if axis >= a.ndim:
            raise IndexOutOfRange(f"dim: axis {axis} of a tensor of rank {a.ndim}")
        r[i["d"]] = a.shape[axis]

    def op_item(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """A tensor's element at some indices, or its only one."""
        found = self._element(r, i).reshape(1)
        if NUMPY_NAMES[found.dtype] == "bf16":
            found = (found.astype(np.uint32) << 16).view(np.float32)
        r[i["d"]] = found[0].item()

    def _element(self, r: list[Any], i: Instruction) -> Any:
        """Return the part of one element that `item` reads."""
        a = r[i["a"]]
        if not i["at"]:
            if a.size != 1:
                raise ShapeError(f"item: a tensor of {a.size} elements; it must have 1")
            return a
        if len(i["at"]) != a.ndim:
            raise IndexOutOfRange(f"item: {len(i['at'])} indices of a tensor of rank {a.ndim}")
        places: list[slice] = []
        for at, size in zip(elements(r, i, "at"), a.shape, strict=True):
            if not 0 <= at < size:
                raise IndexOutOfRange(
                    f"item: index {at} is out of range for axis {len(places)}, of size {size}"
                )
            places.append(slice(at, at + 1))
        return a[tuple(places)]

    def op_scalar(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """A 0-d tensor of a value: ints wrap, floats are truncated to ints (NaN and beyond int64: fails), as
        casts do.
        """
        a, dtype = r[i["a"]], DTYPE_NAMES[i["dtype"]]
        holder = NUMPY_DTYPES[dtype]
        with np.errstate(all="ignore"):
            if dtype == "bf16":
                made = np.array(bf16_bits(float(np.float32(a))), holder)
            elif dtype == "bool" or holder.kind == "f":
                made = np.array(a, np.float64 if isinstance(a, float) else None).astype(holder)
            else:
                if isinstance(a, float) and not math.isfinite(a):
                    raise IntegerOverflow(f"scalar: {a} is no integer")
                made = np.array(check_int64(int(a), f"scalar of {a}"), np.int64).astype(holder)
        r[i["d"]] = made

    def op_expect(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Stop unless a register holds a tensor of that dtype and these sizes."""
        sizes, dtype, what = self._sizes(r, i), DTYPE_NAMES[i["dtype"]], self.program.strings[i["what"]]
        wanted = f"the program was compiled for {dtype}{list(sizes)}"
        if tag_of(r[i["a"]]) != "tensor":
            raise KindError(f"{what} gave {article(tag_of(r[i['a']]))}; {wanted}")
        found = NUMPY_NAMES[r[i["a"]].dtype]
        if found != dtype:
            raise DtypeError(f"{what} gave {found}{list(r[i['a']].shape)}; {wanted}")
        if r[i["a"]].shape != sizes:
            raise ShapeError(f"{what} gave {found}{list(r[i['a']].shape)}; {wanted}")

    def op_expect_items(self, r: list[Any], i: Instruction, frame: Frame) -> None:
        """Stop unless the elements of a list are of one tag; tensors, of one dtype and rank."""
        tag = next((name for name, code in TAGS.items() if code == i["tag"]), "unknown")
        for index, x in enumerate(r[i["a"]]):
            place = f'input "{self.program.strings[i["what"]]}": element {index}'
            if tag_of(x) != tag:
                raise KindError(f"{place} is {article(tag_of(x))}; it must be {article(tag)}")
            if tag == "tensor":
                found, dtype = NUMPY_NAMES[x.dtype], DTYPE_NAMES[i["dtype"]]
                if found != dtype:
                    raise DtypeError(f"{place} is {found}; it must be {dtype}: convert it first")
                if x.ndim != i["rank"]:
                    raise ShapeError(f"{place} has rank {x.ndim}; it must have rank {i['rank']}")
