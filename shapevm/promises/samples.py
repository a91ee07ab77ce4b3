"""Made-up inputs for sizes, to warm up or test a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..vm.program import NUMPY_DTYPES, Axis, Input, Symbol


def sample_inputs(
    inputs: Sequence[Input], symbols: Sequence[Symbol], sizes: Mapping[str, int], seed: int | None = 0
) -> list[Any]:
    """Return inputs of a program at `sizes` (values of all its symbols).

    Floats are normally distributed; ints and bools are 0 and 1, which are also valid indices. `seed` None:
    all are 0.
    """
    rng = np.random.default_rng(seed)

    def size(axis: Axis) -> int:
        return axis.offset + (0 if axis.symbol is None else axis.scale * sizes[symbols[axis.symbol].name])

    def made(row: Input) -> Any:
        if row.kind != "tensor":
            number = 1 if row.symbol is None else sizes[symbols[row.symbol].name]
            return {"int": number, "float": 0.5, "bool": True, "str": ""}[row.kind]
        assert row.dtype is not None
        shape, dtype = tuple(map(size, row.axes)), NUMPY_DTYPES[row.dtype]
        if seed is None:
            return np.zeros(shape, dtype)
        if row.dtype == "bf16":
            return (rng.standard_normal(shape, np.float32).view(np.uint32) >> 16).astype(np.uint16)
        if dtype.kind == "f":
            return rng.standard_normal(shape, np.float32).astype(dtype)
        return rng.integers(0, 2, shape).astype(dtype)

    return [made(row) for row in inputs]
