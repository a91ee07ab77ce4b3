"""`Executable.map`: batches by tokens, results in the order of the items and with the bits of each alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import shapevm
from shapevm.errors import ArgumentError, IndexOutOfRange


class Pooled(torch.nn.Module):
    """Token ids under a mask: the masked mean of an embedding, and one number for each token."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(50, 8)
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = torch.tanh(self.linear(self.embedding(ids)))
        weight = mask.unsqueeze(-1).to(hidden.dtype)
        return {"mean": (hidden * weight).sum(1) / weight.sum(1), "tokens": hidden.sum(2)}


@pytest.fixture(scope="module")
def pooled() -> shapevm.Executable:
    batch, length = torch.export.Dim("batch", min=1, max=6), torch.export.Dim("length", min=1, max=40)
    ids = torch.ones(2, 5, dtype=torch.int64)
    axes = {name: {0: batch, 1: length} for name in ("ids", "mask")}
    return shapevm.compile(Pooled().eval(), kwargs={"ids": ids, "mask": ids}, dynamic_shapes=axes)


def _texts(count: int, least: int = 1) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.integers(0, 50, random.integers(least, 41)) for _ in range(count)]


def _alone(exe: shapevm.Executable, ids: np.ndarray) -> dict[str, np.ndarray]:
    found = exe(ids=ids[None], mask=np.ones_like(ids[None]))
    return {name: value[0] for name, value in found.items()}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("sizes", [{}, {"max_tokens": 1}, {"max_tokens": 90, "window": 7}, {"max_rows": 2}])
def test_results_are_those_of_each_item_alone(
    pooled: shapevm.Executable, threads: int, sizes: dict[str, int]
) -> None:
    texts = _texts(50)
    found = list(pooled.map((x for x in texts), threads=threads, **sizes))
    assert len(found) == len(texts)
    for ids, result in zip(texts, found, strict=True):
        expected = _alone(pooled, ids)
        assert result["tokens"].shape == ids.shape
        assert all(np.array_equal(result[name], expected[name]) for name in expected)


def test_batches_are_of_similar_items_and_within_the_budget(pooled: shapevm.Executable) -> None:
    texts, seen = _texts(64), []
    call = pooled.machine.call

    def counted(inputs: Any) -> Any:
        seen.append(inputs[0].shape)
        return call(inputs)

    from shapevm.program.item_shapes import ItemShapes
    from shapevm.program.mapping import Batches, ItemRuns

    shapes = ItemShapes(pooled.user_inputs, pooled.machine.outputs, pooled.machine.symbols, {})
    runs = ItemRuns(counted, shapes, Batches(100, None, 32, 1))
    assert len(list(runs.results(texts, lambda *_: None))) == 64
    assert all(rows * length <= 100 and rows <= 6 for rows, length in seen)
    assert sum(rows for rows, _ in seen) == 64
    tokens = sum(len(x) for x in texts)
    assert sum(rows * length for rows, length in seen) < 1.2 * tokens


def test_items_of_all_forms(pooled: shapevm.Executable) -> None:
    ids = np.arange(5)
    mask = np.ones(5, np.int64)
    forms = [ids, [0, 1, 2, 3, 4], (ids,), (ids, mask), {"ids": ids}, {"mask": mask, "ids": torch.arange(5)}]
    expected = _alone(pooled, ids)
    for found in pooled.map(forms):
        assert np.array_equal(found["mean"], expected["mean"])
    assert list(pooled.map([])) == []


def test_a_given_mask_is_used(pooled: shapevm.Executable) -> None:
    mask = np.array([1, 0, 1])
    ids = np.array([3, 4, 5])
    (found, _) = pooled.map([(ids, mask), np.arange(9)])
    assert np.array_equal(found["mean"], pooled(ids=ids[None], mask=mask[None])["mean"][0])


def test_a_generator_is_read_window_by_window(pooled: shapevm.Executable) -> None:
    n_read = 0

    def items() -> Iterator[np.ndarray]:
        nonlocal n_read
        for ids in _texts(100):
            n_read += 1
            yield ids

    results = pooled.map(items(), window=10, threads=1)
    assert n_read == 0
    next(results)
    assert n_read == 20
    results.close()
    assert n_read == 20
    assert not [t for t in threading.enumerate() if t.name.startswith("shapevm-map")]


@pytest.mark.parametrize(
    "item, message",
    [
        ([[1, 2]], "item 2: input 'ids' has rank 2, sizes [1, 2]; an item has rank 1, without the axis"),
        ((), "item 2: it has 0 arrays; the program takes ids, mask"),
        ({"mask": [1]}, "item 2: input 'ids' is missing; the program takes ids, mask"),
        ({"ids": [1], "idz": [1]}, "item 2: input 'idz' is unknown; the program takes ids, mask"),
        ({"ids": [1, 2], "mask": [1]}, "item 2: input 'mask': axis 0 of an item has size 1; it must be"),
        (np.ones(3, np.float32), "item 2: input 'ids' is float32; the program takes i64: convert it first"),
        (["a"], "item 2: input 'ids' is no array of i64: invalid literal"),
        (np.ones(41, np.int64), 'item 2: input "ids": axis 1 has size 41, so length is 41; it must be at'),
    ],
)  # fmt: skip
def test_errors_name_the_item(pooled: shapevm.Executable, item: Any, message: str) -> None:
    results = pooled.map([[1], [2, 3], item, [4]])
    with pytest.raises(shapevm.Error) as raised:
        list(results)
    assert str(raised.value).startswith(message)


def test_an_error_of_the_program_names_the_item(pooled: shapevm.Executable) -> None:
    with pytest.raises(IndexOutOfRange, match="^item 3: "):
        list(pooled.map([[1], [2], [3], [50], [4]]))


@pytest.mark.parametrize("name", ["max_tokens", "max_rows", "window", "threads"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_arguments_are_checked_at_once(pooled: shapevm.Executable, name: str, value: Any) -> None:
    with pytest.raises(ArgumentError, match=f"{name} is {value}; it must be a whole number of at least 1"):
        pooled.map([], **{name: value})
    with pytest.raises(ArgumentError, match="padding 'idz' is no input; the program takes ids, mask"):
        pooled.map([], padding={"idz": 1})


def test_progress(pooled: shapevm.Executable) -> None:
    said: list[tuple[str, int, int]] = []
    list(pooled.map([[1], [2, 3]], progress=lambda *now: said.append(now)))
    list(pooled.map(iter([[1]]), progress=lambda *now: said.append(now)))
    assert said == [("map", 1, 2), ("map", 2, 2), ("map", 1, 0)]
    assert len(list(pooled.map([[1]], progress=True))) == 1
    with pytest.raises(ArgumentError, match="progress"):
        list(pooled.map([], progress=3))  # type: ignore[arg-type]


def test_without_a_mask_only_equal_sizes_share_a_batch() -> None:
    class Sums(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([x.mean(1), x.amax(1)], 1)

    rows, length = torch.export.Dim("rows", min=1), torch.export.Dim("length", min=1)
    exe = shapevm.compile(Sums(), (torch.ones(2, 3, 4),), dynamic_shapes=({0: rows, 1: length},))
    random = np.random.default_rng(1)
    items = [random.standard_normal((n, 4), np.float32) - 5 for n in (3, 1, 7, 3, 1, 1, 7)]
    for item, found in zip(items, exe.map(items), strict=True):
        assert np.array_equal(found, exe(item[None])[0])


def test_padding_by_another_number_and_another_mask() -> None:
    class Ignoring(torch.nn.Module):
        def forward(self, x: torch.Tensor, x_padding_mask: torch.Tensor) -> torch.Tensor:
            return x.masked_fill(x_padding_mask, 0.0).sum(1) + x.amax(1)

    rows, length = torch.export.Dim("rows", min=1), torch.export.Dim("length", min=1)
    axes = {0: rows, 1: length}
    x = torch.ones(2, 3)
    exe = shapevm.compile(Ignoring(), (x, x > 2), dynamic_shapes=(axes, axes))
    items = [np.full(n, -n, np.float32) for n in (1, 5, 2)]
    padding = {"x": -np.inf, "x_padding_mask": True}
    assert list(exe.map(items, padding=padding)) == [-2, -30, -6]


def test_programs_without_rows_are_refused() -> None:
    exe = shapevm.compile(torch.nn.ReLU(), (torch.ones(3),))
    with pytest.raises(
        ArgumentError, match="has no first axis of any size; `map` takes programs whose inputs"
    ):
        exe.map([])

    class Total(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sum()

    rows = torch.export.Dim("rows", min=1)
    exe = shapevm.compile(Total(), (torch.ones(3),), dynamic_shapes=({0: rows},))
    with pytest.raises(ArgumentError, match="have no common first axis"):
        exe.map([])


def test_programs_with_state_are_refused() -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("n", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.n.add_(1)
            return x + self.n

    rows = torch.export.Dim("rows", min=1)
    exe = shapevm.compile(Counting(), (torch.ones(3),), dynamic_shapes=({0: rows},))
    with pytest.raises(ArgumentError, match="the program keeps state between calls"):
        exe.map([])
