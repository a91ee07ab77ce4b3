"""A program over many items of different sizes: `Executable.map`.

Items are taken in windows, sorted by size within each, and batched by tokens; results have the order of the
items. An item's result has the same bits in every batch, so the batches do not matter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ..calls.checks import check_callable
from ..vm.errors import ArgumentError, Cancelled, DeadlineExceeded, Error
from .bar import bar
from .item_shapes import Item, ItemShapes

Progress = Callable[[str, int, int], None]
Run = Callable[[Sequence[Any]], Sequence[Any]]
STAGE = "map"  # the stage's name, for a callback of progress


@dataclass(frozen=True)
class Batches:
    """How items become batches: at most `max_tokens` places and `max_rows` items in one; `window` items are
    sorted at a time; batches run on `threads` threads."""

    max_tokens: int
    max_rows: int | None
    window: int
    threads: int

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is None and name == "max_rows":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ArgumentError(f"{name} is {value!r}; it must be a whole number of at least 1")

    def of(self, items: Iterable[Item], shapes: ItemShapes) -> Iterator[list[Item]]:
        """Yield batches of a window, the longest items first."""
        most = min(x for x in (self.max_rows, shapes.max_rows, self.window) if x is not None)
        batch: list[Item] = []
        sizes: Mapping[int, int] = {}
        for item in sorted(items, key=lambda i: (shapes.key(i), shapes.tokens(i.sizes)), reverse=True):
            grown = shapes.grown(sizes, item)
            is_alike = batch and shapes.key(item) == shapes.key(batch[0])
            tokens = (len(batch) + 1) * shapes.tokens(grown)
            if batch and (not is_alike or len(batch) == most or tokens > self.max_tokens):
                yield batch
                batch, grown = [], shapes.grown({}, item)
            batch, sizes = [*batch, item], grown
        if batch:
            yield batch


class ItemRuns:
    """A program, and how it runs over items. `run` gets the inputs of a batch."""

    def __init__(self, run: Run, shapes: ItemShapes, batches: Batches) -> None:
        self._run, self._shapes, self._batches = run, shapes, batches

    def results(self, given: Iterable[Any], progress: Progress) -> Iterator[list[Any]]:
        """Yield the flat results of each item, in order. Two windows are held at once: the results of one,
        and the next, whose batches run meanwhile. Raises the errors of items, which name the item."""
        n_items = len(given) if isinstance(given, Sized) else 0
        items, done = enumerate(given), 0
        windows: deque[list[Future[list[tuple[int, list[Any]]]]]] = deque()
        pool = ThreadPoolExecutor(self._batches.threads, "shapevm-map")
        try:
            while True:
                window = [self._item(*pair) for pair in islice(items, self._batches.window)]
                if window:
                    batches = self._batches.of(window, self._shapes)
                    windows.append([pool.submit(self._batch, batch) for batch in batches])
                if not windows:
                    return
                if window and len(windows) == 1:
                    continue
                found = [pair for future in windows.popleft() for pair in future.result()]
                for _, result in sorted(found, key=lambda pair: pair[0]):
                    done += 1
                    progress(STAGE, done, n_items)
                    yield result
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _item(self, index: int, given: Any) -> Item:
        try:
            return self._shapes.item(index, given)
        except Error as error:
            raise _named(error, index) from None

    def _batch(self, items: Sequence[Item]) -> list[tuple[int, list[Any]]]:
        """Return the results of a batch, each with its item's number."""
        try:
            return self._called(items)
        except (Cancelled, DeadlineExceeded):
            raise
        except Error as error:
            if len(items) == 1:
                raise _named(error, items[0].index) from None
        return [pair for item in items for pair in self._batch([item])]

    def _called(self, items: Sequence[Item]) -> list[tuple[int, list[Any]]]:
        parts = self._shapes.parts(self._run(self._shapes.stacked(items)), items)
        return [(item.index, part) for item, part in zip(items, parts, strict=True)]


def _named(error: Error, index: int) -> Error:
    """Return an error whose message names the item."""
    error.args = (f"item {index}: {error.args[0]}",)
    return error


def shown(
    items: Iterable[Any], runs: ItemRuns, nested: Callable[[Sequence[Any]], Any], progress: Progress | bool
) -> Iterator[Any]:
    """Yield the nested results of items and show the progress."""
    if not isinstance(progress, bool):
        check_callable("progress", progress, "the stage, the items done and all items")
        yield from map(nested, runs.results(items, progress))
        return
    with bar(is_shown=progress) as update:
        yield from map(nested, runs.results(items, update))
