"""Which axes of a program vary with an item of a batch: items are checked, padded to a batch, and results are
cut to the items' sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..vm.errors import ArgumentError
from ..vm.program import NUMPY_DTYPES, Axis, Input, Output, Symbol

Array = np.ndarray[Any, Any]
#: Inputs of whole numbers or bools that say where a padded item has content, if they are not given.
MASKS = ("attention_mask", "mask")


@dataclass(frozen=True)
class Item:
    """An item of a batch: its number, an array for each input (None: a mask to be made) and the value of each
    symbol that varies among items."""

    index: int
    arrays: Sequence[Array | None]
    sizes: Mapping[int, int]


class ItemShapes:
    """The axes of a program's tensors without the batch axis.

    `padding`: the value by which an input is padded, by its name; 0 where none is given. A name among them
    that contains "mask" is a mask, as those of `MASKS` are.

    Raises ArgumentError for a program whose inputs and outputs have no common first axis, for inputs that are
    no tensors, and for an unknown name.
    """

    def __init__(
        self,
        inputs: Sequence[Input],
        outputs: Sequence[Output],
        symbols: Sequence[Symbol],
        padding: Mapping[str, Any],
    ) -> None:
        self.inputs, self.outputs, self.symbols, self.padding = inputs, outputs, symbols, padding
        self._names = [row.name for row in inputs]
        for name in padding:
            if name not in self._names:
                raise ArgumentError(f"padding {name!r} is no input; the program takes {self._shown_names()}")
        self.batch = self._batch()
        self.masks = [row for row in inputs if self._is_mask(row)]
        own = {axis.symbol for row in self.masks for axis in row.axes[1:]}
        #: Symbols whose sizes may differ within a batch: a mask covers each. Without one, or if a result's
        #: size depends on one in another way, items of equal sizes share a batch.
        self.padded = frozenset() if self._has_expressions() else own - {None}

    def _shown_names(self) -> str:
        return ", ".join(self._names) or "no inputs"

    def _batch(self) -> int:
        """Return the symbol of the common first axis."""
        first = [row.axes[0] if row.kind == "tensor" and row.axes else None for row in self.inputs]
        for row, axis in zip(self.inputs, first, strict=True):
            if axis is None or axis.symbol is None or (axis.scale, axis.offset) != (1, 0):
                raise ArgumentError(
                    f"input {row.name!r} has no first axis of any size; `map` takes programs whose inputs "
                    "and outputs are tensors of rows: compile the model with a dynamic first axis"
                )
        symbols = {axis.symbol for axis in first if axis is not None}
        for result in self.outputs:
            symbols.add(result.axes[0].symbol if result.kind == "tensor" and result.axes else None)
        if len(symbols) != 1 or None in symbols:
            raise ArgumentError(
                "the inputs and outputs have no common first axis; `map` takes programs with one row for "
                "each item in every input and output"
            )
        (batch,) = symbols
        assert batch is not None
        return batch

    def _is_mask(self, row: Input) -> bool:
        dtype = NUMPY_DTYPES[row.dtype] if row.dtype else None
        is_named = row.name in MASKS or ("mask" in row.name and row.name in self.padding)
        is_plain = all(axis.symbol is not None and (axis.scale, axis.offset) == (1, 0) for axis in row.axes)
        return is_named and is_plain and len(row.axes) > 1 and np.dtype(dtype).kind in "biu"

    def _has_expressions(self) -> bool:
        return any(axis.expression for row in self.outputs for axis in row.axes)

    @property
    def max_rows(self) -> int | None:
        """The most rows of a call, None without a limit."""
        return self.symbols[self.batch].max

    # Items ------------------------------------------------------------------------------------------

    def item(self, index: int, given: Any) -> Item:
        """Return an item: an array, a tuple of arrays in the order of the inputs, or a mapping by their
        names; masks may be left out. Raises ArgumentError for another."""
        arrays = [
            None if value is None else _array(row, value)
            for row, value in zip(self.inputs, self._values(given), strict=True)
        ]
        sizes: dict[int, int] = {}
        for row, array in zip(self.inputs, arrays, strict=True):
            if array is not None:
                self._bind(row, array.shape, sizes)
        return Item(index, arrays, sizes)

    def _values(self, given: Any) -> list[Any]:
        """Return an item's values in the order of the inputs, None for a mask that it leaves out."""
        masks = {row.name for row in self.masks}
        if not isinstance(given, Mapping):
            values = given if isinstance(given, tuple) else (given,)
            names = self._names
            if len(values) < len(names):
                names = [name for name in names if name not in masks]
            if len(values) != len(names):
                raise ArgumentError(f"it has {len(values)} arrays; the program takes {self._shown_names()}")
            given = dict(zip(names, values, strict=True))
        for name in given:
            if name not in self._names:
                raise ArgumentError(f"input {name!r} is unknown; the program takes {self._shown_names()}")
        for name in self._names:
            if given.get(name) is None and name not in masks:
                raise ArgumentError(f"input {name!r} is missing; the program takes {self._shown_names()}")
        return [given.get(name) for name in self._names]

    def _bind(self, row: Input, shape: tuple[int, ...], sizes: dict[int, int]) -> None:
        """Add the values of symbols in an input's shape to `sizes`."""
        if len(shape) != len(row.axes) - 1:
            raise ArgumentError(
                f"input {row.name!r} has rank {len(shape)}, sizes {list(shape)}; an item has rank "
                f"{len(row.axes) - 1}, without the axis of the batch"
            )
        for number, (axis, size) in enumerate(zip(row.axes[1:], shape, strict=True)):
            known = sizes.get(axis.symbol) if axis.symbol is not None else 0
            if known is None:
                assert axis.symbol is not None
                known = sizes[axis.symbol] = (size - axis.offset) // max(axis.scale, 1)
            if size != axis.scale * known + axis.offset:
                wanted = axis.text(tuple(self.symbols))
                raise ArgumentError(
                    f"input {row.name!r}: axis {number} of an item has size {size}; it must be {wanted}"
                    + ("" if axis.symbol is None else f", here {axis.scale * known + axis.offset}")
                )

    def key(self, item: Item) -> tuple[int, ...]:
        """Return the sizes that all items of a batch share."""
        return tuple(size for symbol, size in sorted(item.sizes.items()) if symbol not in self.padded)

    def grown(self, sizes: Mapping[int, int], item: Item) -> dict[int, int]:
        """Return the sizes of a batch of these sizes with one more item, as the contract allows them."""
        return {s: self._allowed(s, max(size, sizes.get(s, size))) for s, size in item.sizes.items()}

    def _allowed(self, symbol: int, size: int) -> int:
        if symbol not in self.padded:
            return size
        row = self.symbols[symbol]
        return -(-max(size, row.min) // row.multiple_of) * row.multiple_of

    def tokens(self, sizes: Mapping[int, int]) -> int:
        """Return the number of places of one item of these sizes: the most that an input has along axes that
        vary, at least 1."""
        counts = [1]
        for row in self.inputs:
            n = 1
            for axis in row.axes[1:]:
                n *= _size(axis, sizes) if axis.symbol is not None else 1
            counts.append(n)
        return max(counts)

    # Batches ----------------------------------------------------------------------------------------

    def stacked(self, items: Sequence[Item]) -> list[Array]:
        """Return the inputs of one call with these items as rows."""
        sizes: Mapping[int, int] = {}
        for item in items:
            sizes = self.grown(sizes, item)
        return [self._stacked(row, number, items, sizes) for number, row in enumerate(self.inputs)]

    def _stacked(self, row: Input, number: int, items: Sequence[Item], sizes: Mapping[int, int]) -> Array:
        arrays = [self._content(row, item, number) for item in items]
        shape = tuple(_size(axis, sizes) for axis in row.axes[1:])
        if all(array.shape == shape for array in arrays):
            return np.stack(arrays)
        found = np.full((len(items), *shape), self.padding.get(row.name, 0), arrays[0].dtype)
        for place, array in zip(found, arrays, strict=True):
            place[tuple(map(slice, array.shape))] = array
        return found

    def _content(self, row: Input, item: Item, number: int) -> Array:
        """Return an item's array; a mask that it leaves out says that all of its places have content."""
        array = item.arrays[number]
        if array is not None:
            return array
        assert row.dtype is not None
        shape = tuple(_size(axis, item.sizes) for axis in row.axes[1:])
        return np.full(shape, not self.padding.get(row.name, 0), NUMPY_DTYPES[row.dtype])

    def parts(self, results: Sequence[Any], items: Sequence[Item]) -> list[list[Array]]:
        """Return the results of each item, cut to its sizes."""
        rows = [np.asarray(result) for result in results]
        return [
            [array[k][self._cut(row, item)] for row, array in zip(self.outputs, rows, strict=True)]
            for k, item in enumerate(items)
        ]

    def _cut(self, row: Output, item: Item) -> tuple[slice, ...]:
        return tuple(
            slice(_size(axis, item.sizes)) if axis.symbol in self.padded else slice(None)
            for axis in row.axes[1:]
        )


def _size(axis: Axis, sizes: Mapping[int, int]) -> int:
    return axis.offset if axis.symbol is None else axis.scale * sizes[axis.symbol] + axis.offset


def _array(row: Input, value: Any) -> Array:
    """Return an input's array. Raises ArgumentError for numbers of another kind."""
    if isinstance(value, np.ndarray):
        found = value
    else:
        assert row.dtype is not None
        is_list = isinstance(value, list | tuple)
        try:
            found = np.asarray(value, NUMPY_DTYPES[row.dtype] if is_list else None)
        except (TypeError, ValueError, OverflowError, RuntimeError) as error:
            raise ArgumentError(f"input {row.name!r} is no array of {row.dtype}: {error}") from None
    if row.dtype and found.dtype != NUMPY_DTYPES[row.dtype]:
        raise ArgumentError(
            f"input {row.name!r} is {found.dtype}; the program takes {row.dtype}: convert it first"
        )
    return found
