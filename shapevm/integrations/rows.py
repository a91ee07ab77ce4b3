"""A program over rows: rows of equal sizes are stacked into one call, the others are called separately.

No row is padded. A row's result has the same bits in every batch, so the grouping of rows does not matter.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .. import Executable, ValueInfo, load
from ..vm.errors import ArgumentError, Error
from ..vm.program import NUMPY_DTYPES, Symbol

Row = Mapping[str, Any]
Result = dict[str, np.ndarray]


class RowModel:
    """A program whose inputs and outputs are all tensors with rows as their first axis.

    `model`: a path, a URL or an executable; `options`: of `shapevm.load`, for a path or URL; `max_rows`: of
    one call. A pickle holds the path or URL with its digest; the processes of a machine map the same file.

    Raises ArgumentError for a program whose values have no common first axis that may be 1, and what `load`
    raises.
    """

    def __init__(
        self, model: str | os.PathLike[str] | Executable, *, max_rows: int = 256, **options: Any
    ) -> None:
        self.executable = model if isinstance(model, Executable) else load(model, **options)
        rows = _axis_of_rows(self.executable)
        self.max_rows = min(max_rows, max_rows if rows.max is None else rows.max)
        if max_rows < 1:
            raise ArgumentError(f"max_rows is {max_rows}; it must be at least 1")

    def run(self, rows: Sequence[Row]) -> list[Result]:
        """Return a result for each row, in order. A row is a mapping from input names to arrays without the
        first axis; other names are ignored.

        Raises ArgumentError if a row lacks an input or has one of another kind of number, and the errors of
        calls.
        """
        given = [
            {value.name: _array(index, row, value) for value in self.executable.inputs}
            for index, row in enumerate(rows)
        ]
        results: list[Result] = [{} for _ in rows]
        for indices in self._batches(given):
            stacked = {name: np.stack([given[i][name] for i in indices]) for name in given[indices[0]]}
            found = self.executable.run(stacked)
            for position, index in enumerate(indices):
                results[index] = {name: np.asarray(value)[position] for name, value in found.items()}
        return results

    def run_each(self, rows: Sequence[Row]) -> list[Result | Error]:
        """Like `run`, but with an error as the result of a row that cannot be run."""
        try:
            return list(self.run(rows))
        except Error as error:
            if len(rows) == 1:
                return [error]
            return [self.run_each([row])[0] for row in rows]

    def _batches(self, given: Sequence[Mapping[str, np.ndarray]]) -> Iterator[list[int]]:
        """Yield the indices of rows that run together."""
        groups: dict[tuple[tuple[int, ...], ...], list[int]] = {}
        for index, arrays in enumerate(given):
            groups.setdefault(tuple(array.shape for array in arrays.values()), []).append(index)
        for indices in groups.values():
            for start in range(0, len(indices), self.max_rows):
                yield indices[start : start + self.max_rows]


def _axis_of_rows(executable: Executable) -> Symbol:
    """Return the common first size of all inputs and outputs. Raises ArgumentError if there is none."""
    values = (*executable.inputs, *executable.outputs)
    first = {value.shape[0] if value.shape else None for value in values}
    found = [symbol for symbol in executable.machine.symbols if {symbol.name} == first]
    if not found:
        raise ArgumentError(
            "the program has no axis of rows: all inputs and outputs must begin with one size that varies, "
            f"but are {', '.join(map(str, values))}"
        )
    if found[0].min > 1 or found[0].multiple_of > 1:
        raise ArgumentError(
            f"the axis of rows {found[0].name!r} cannot be 1: its least size is {found[0].min}, a multiple "
            f"of {found[0].multiple_of}; compile the model with torch.export.Dim({found[0].name!r}, min=1)"
        )
    return found[0]


def _array(index: int, row: Row, value: ValueInfo) -> np.ndarray:
    """Return a row's input in the program's dtype."""
    if value.name not in row:
        raise ArgumentError(f"row {index} lacks input {value.name!r}; it has {', '.join(row) or 'nothing'}")
    array, wanted = _as_array(index, row, value), NUMPY_DTYPES.get(value.dtype or "")
    if array.size == 0 and wanted is not None:  # an empty list has no dtype
        return array.astype(wanted)
    if wanted is not None and not np.can_cast(array.dtype, wanted, "same_kind"):
        raise ArgumentError(
            f"row {index}: input {value.name!r} has dtype {array.dtype}; it must be {value.dtype}"
        )
    return array.astype(wanted or array.dtype, copy=False)


def _as_array(index: int, row: Row, value: ValueInfo) -> np.ndarray:
    """Return a row's input as an array; data frames have arrays of arrays for several axes."""
    given = row[value.name]
    try:
        array = np.asarray(given)
        return np.stack([np.asarray(item) for item in given]) if array.dtype == object else array
    except (TypeError, ValueError):
        raise ArgumentError(
            f"row {index}: input {value.name!r} is {str(given)[:60]}; it must be an array of {value.dtype}"
        ) from None


def rows_of(columns: Mapping[str, Iterable[Any]]) -> list[dict[str, Any]]:
    """Return the rows of equally long columns."""
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def column(values: Sequence[np.ndarray]) -> np.ndarray:
    """Return arrays as one array if their sizes are equal, else as an array of arrays."""
    if values and len({value.shape for value in values}) == 1:
        return np.stack(values)
    made = np.empty(len(values), object)
    for index, value in enumerate(values):
        made[index] = value
    return made
