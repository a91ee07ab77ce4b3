"""Ray Data and Ray Serve. Needs the extra `shapevm[ray]`.

dataset.map_batches(RayModel, fn_constructor_args=["s3://models/model.svm"], concurrency=4)
handle = serve.run(deployment("s3://models/model.svm"))
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import numpy as np
from ray import serve

from ..vm.errors import Error
from .rows import Result, Row, RowModel, column, rows_of


class RayModel:
    """An actor class for `map_batches`: it adds a column for each output. Rows may differ in size.

    `model`: a path or URL; `options`: of `RowModel`. If an actor dies, the engine restarts it and repeats its
    batch.
    """

    def __init__(self, model: str | os.PathLike[str], **options: Any) -> None:
        self.model = RowModel(model, **options)

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return a batch's columns and those of the results."""
        found = self.model.run(rows_of(batch))
        outputs = [value.name for value in self.model.executable.outputs]
        return {**batch, **{name: column([row[name] for row in found]) for name in outputs}}


class _Replica:
    """A server process: each call takes one row, and calls are batched."""

    def __init__(self, model: str, max_batch_size: int, wait: float, options: dict[str, Any]) -> None:
        self.model = RowModel(model, **options)
        self._batch.set_max_batch_size(max_batch_size)
        self._batch.set_batch_wait_timeout_s(wait)

    async def __call__(self, row: Row) -> Result:
        """Return the result of a row. Raises what running it raises."""
        found = await self._batch(row)
        if isinstance(found, Error):
            raise found
        return found

    @serve.batch
    async def _batch(self, rows: list[Row]) -> list[Result | Error]:
        return await asyncio.to_thread(self.model.run_each, rows)


def deployment(
    model: str | os.PathLike[str],
    *,
    replicas: int = 1,
    max_batch_size: int = 32,
    batch_wait_timeout_s: float = 0.002,
    **options: Any,
) -> Any:
    """Return an application for `serve.run`, whose handle takes rows: `handle.remote({"x": array})`.

    `replicas`: processes; `max_batch_size`, `batch_wait_timeout_s`: of `serve.batch`; `options`: of
    `RowModel`. A row that cannot be run raises its own error and does not affect the others of its batch. A
    call whose replica dies raises `ray.exceptions.RayActorError`; call again.
    """
    served = serve.deployment(_Replica).options(
        name="shapevm",
        num_replicas=replicas,
        max_ongoing_requests=2 * max_batch_size,  # Ray's default of 5 would bound the batches
    )
    return served.bind(os.fspath(model), max_batch_size, batch_wait_timeout_s, options)
