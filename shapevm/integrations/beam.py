"""Apache Beam. Needs the extra `shapevm[beam]`.

rows | RunInference(BeamModel("gs://models/model.svm"))
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from apache_beam.ml.inference.base import ModelHandler, PredictionResult

from .rows import Row, RowModel


class BeamModel(ModelHandler[Row, PredictionResult, RowModel]):
    """A program for `RunInference`: elements are rows, which may differ in size; `inference` of a result
    holds the outputs by name.

    `model`: a path or URL, which each worker loads once; `options`: of `RowModel`. Processes of a machine
    need no model server between them: they map the same file.
    """

    def __init__(self, model: str | os.PathLike[str], *, max_batch_size: int = 64, **options: Any) -> None:
        super().__init__(max_batch_size=max_batch_size)
        self._model, self._options = os.fspath(model), options

    def load_model(self) -> RowModel:
        """Load the program; Beam calls this in each worker."""
        return RowModel(self._model, **self._options)

    def run_inference(
        self, batch: Sequence[Row], model: RowModel, inference_args: dict[str, Any] | None = None
    ) -> Iterable[PredictionResult]:
        """Return a result for each row; `inference_args` must be empty (see `validate_inference_args`)."""
        return [PredictionResult(row, found) for row, found in zip(batch, model.run(batch), strict=True)]

    def update_model_path(self, model_path: str | None = None) -> None:
        """Load another program from now on: Beam's automatic model refresh."""
        self._model = model_path or self._model

    def validate_inference_args(self, inference_args: dict[str, Any] | None) -> None:
        """Raise ValueError for any arguments: a program takes none."""
        if inference_args:
            raise ValueError(f"inference_args are {', '.join(inference_args)}; a program takes none")
