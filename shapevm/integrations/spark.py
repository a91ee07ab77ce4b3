"""Apache Spark. Needs the extra `shapevm[spark]`, and a Java runtime for Spark itself.

embed = row_udf("s3://models/model.svm", inputs=["ids"], return_type="embedding array<float>")
frame.withColumn("result", embed("ids"))
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from pyspark.ml.functions import predict_batch_udf
from pyspark.sql.functions import lit
from pyspark.sql.types import StructType

from .rows import RowModel, rows_of


def row_udf(
    model: str | os.PathLike[str],
    *,
    inputs: Sequence[str],
    return_type: StructType | str,
    batch_size: int = 64,
    **options: Any,
) -> Callable[..., Any]:
    """Return a function of columns, one for each of the program's `inputs` in this order, to a struct column.
    Rows may differ in size.

    `return_type`: the struct, whose fields are outputs by name: numbers, or arrays of numbers, which an
    output of several axes fills row by row; `batch_size`: rows per call; `options`: of `RowModel`. Each
    Python worker loads the program once. It is a `predict_batch_udf`, which would stack the rows of a single
    column; an extra column of zeros prevents that, so rows of different sizes arrive unchanged.
    """
    path = os.fspath(model)
    struct = StructType.fromDDL(return_type) if isinstance(return_type, str) else return_type
    fields = tuple(struct.fieldNames())

    def make() -> _Predict:
        return _Predict(RowModel(path, **options), tuple(inputs), fields)

    udf = predict_batch_udf(
        make,
        return_type=struct,
        batch_size=batch_size,
        input_tensor_shapes=[None] * (len(inputs) + 1),
    )
    return lambda *columns: udf(*columns, lit(0))


class _Predict:
    """A function from a column for each of the `inputs`, and one that it ignores, to rows of `outputs`."""

    def __init__(self, model: RowModel, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
        self.model, self.inputs, self.outputs = model, inputs, outputs
        kind = inspect.Parameter.POSITIONAL_ONLY  # predict_batch_udf counts the parameters
        named = [inspect.Parameter(f"column{i}", kind) for i in range(len(inputs) + 1)]
        self.__signature__ = inspect.Signature(named)

    def __call__(self, *columns: Iterable[Any]) -> list[dict[str, Any]]:
        found = self.model.run(rows_of(dict(zip(self.inputs, columns[:-1], strict=True))))
        return [{name: _value(row[name]) for name in self.outputs} for row in found]


def _value(array: np.ndarray) -> Any:
    return np.ravel(array) if np.ndim(array) else array.item()
