"""Modules whose calls change attributes, each with calls that follow each other."""

from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import Tensor, nn

from .programs import x

MODULES: dict[str, tuple[Callable[[], nn.Module], list[tuple[Any, ...]]]] = {}


def calls(*arguments: Any) -> Callable[[type[nn.Module]], type[nn.Module]]:
    """Add a module, with the arguments of calls of which the first are the example."""

    def add(module: type[nn.Module]) -> type[nn.Module]:
        MODULES[module.__name__] = module, [a if isinstance(a, tuple) else (a,) for a in arguments]
        return module

    return add


@calls(x(2), x(2) * 3, x(2) - 9, x(2))
class History(nn.Module):
    """A list of tensors and one of floats that grow; old elements go."""

    rows: list[Tensor]
    sums: list[float]

    def __init__(self) -> None:
        super().__init__()
        self.rows = []
        self.sums = []

    def forward(self, a: Tensor) -> tuple[Tensor, int, list[float]]:
        self.rows.append(a * 2)
        self.sums.append(float(a.sum()))
        if len(self.rows) > 2:
            self.rows.pop(0)
        return torch.stack(self.rows).sum(0), len(self.sums), self.sums


@calls((x(3), "a"), (x(3), "b"), (x(1), "a"), (x(1), "zebra"), (x(2), "a"))
class Counts(nn.Module):
    """A dict whose keys calls give."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, int] = {"a": 10}

    def forward(self, a: Tensor, word: str) -> tuple[Tensor, int, int]:
        self.counts[word] = self.counts.get(word, 0) + 1
        return a * self.counts[word], self.counts["a"], len(self.counts)


@calls((x(2), 1), (x(2), -1), (x(3), 0), (x(2), 5))
class Named(nn.Module):
    """A string that says what the last call was."""

    def __init__(self) -> None:
        super().__init__()
        self.last: str = "nothing"

    def forward(self, a: Tensor, n: int) -> tuple[Tensor, str]:
        before = self.last
        if n > 0:
            self.last = "up by " + str(n)
        elif n < 0:
            self.last = f"down by {-n}"
        return a + n, before


@calls((x(1, 4),), (x(1, 4) * 2,), (x(1, 4) - 1,), (x(3, 4),), (x(3, 4) * 2,))
class LayerCaches(nn.Module):
    """A list of one cache a layer, which grow along an axis; another batch begins them anew."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
        self.caches = [torch.zeros(0, 1, 4), torch.zeros(0, 1, 4)]

    def forward(self, a: Tensor) -> tuple[Tensor, int]:
        for i, layer in enumerate(self.layers):
            if self.caches[i].size(1) != a.size(0):
                self.caches[i] = torch.zeros(0, a.size(0), 4)
            self.caches[i] = torch.cat([self.caches[i], layer(a).unsqueeze(0)])
            a = torch.tanh(self.caches[i].mean(0))
        return a, self.caches[0].size(0)


@calls((x(3), True), (x(3), True), (x(3), False), (x(4), True), (x(4), True))
class Previous(nn.Module):
    """Optionals that are None at first, and again when a call says so."""

    before: Optional[Tensor]  # noqa: UP045 (as TorchScript reads it)
    n: Optional[int]  # noqa: UP045

    def __init__(self) -> None:
        super().__init__()
        self.before, self.n = None, None

    def forward(self, a: Tensor, keeps: bool) -> tuple[Tensor, int]:
        before, n = self.before, self.n
        if before is None or before.size(0) != a.size(0):
            result = a
        else:
            result = a + before
        count = 1 if n is None else n + 1
        if keeps:
            self.before, self.n = a * 0.5, count
        else:
            self.before, self.n = None, None
        return result, count


@calls((x(2), 0), (x(2), 1), (x(2), 0), (x(2), 2), (x(2), 7))
class Tables(nn.Module):
    """Containers in containers, of which calls change elements; a tuple; a list that keeps its length."""

    def __init__(self) -> None:
        super().__init__()
        self.table = {"a": [1, 2], "b": [3]}
        self.pair = (0, 1.5)
        self.flags = [False, False, True]
        self.parts = [torch.ones(2), torch.zeros(2)]

    def forward(self, a: Tensor, n: int) -> tuple[Tensor, int, list[bool], float]:
        self.table["b"].append(n)
        self.table["a"][0] += n
        count, scale = self.pair
        self.pair = (count + 1, scale * 0.5)
        self.flags[0] = n > 1
        self.parts[0] += a
        self.parts[1] = self.parts[0] * n
        total = len(self.table["b"]) + self.table["a"][0] + self.table["b"][-1]
        return self.parts[0] + self.parts[1], total + count, self.flags, scale


@calls((x(3), 2), (x(3), 1), (x(2), 0), (x(2), 3))
class Queue(nn.Module):
    """A list of tuples from which a call takes some."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[tuple[int, str]] = [(1, "first")]

    def forward(self, a: Tensor, n: int) -> tuple[list[int], list[str], Tensor]:
        self.waiting.append((n, "n" + str(n)))
        numbers: list[int] = []
        names: list[str] = []
        while len(self.waiting) > 0 and len(numbers) < n:
            number, name = self.waiting.pop(0)
            numbers.append(number)
            names.append(name)
        return numbers, names, a * len(self.waiting)


@calls((3,), (1,), (4,), (1,), (5,), (9,), (2,), (6,))
class Median(nn.Module):
    """A list that stays sorted."""

    seen: list[int]

    def __init__(self) -> None:
        super().__init__()
        self.seen = []

    def forward(self, n: int) -> tuple[int, list[int]]:
        at = 0
        while at < len(self.seen) and self.seen[at] < n:
            at += 1
        self.seen.insert(at, n)
        return self.seen[len(self.seen) // 2], self.seen


class Log(nn.Module):
    """A submodule with state of its own."""

    lines: list[str]

    def __init__(self) -> None:
        super().__init__()
        self.lines = []
        self.n_calls: int = 0

    def note(self, line: str) -> int:
        """Add a line."""
        self.lines.append(line)
        self.n_calls += 1
        return len(self.lines)

    def forward(self) -> list[str]:
        return self.lines


@calls((x(2),), (x(3),), (x(4),), (x(2),))
class Logged(nn.Module):
    """Modules in modules that keep strings."""

    def __init__(self) -> None:
        super().__init__()
        self.log, self.other = Log(), Log()

    def forward(self, a: Tensor) -> tuple[Tensor, list[str], int]:
        n = self.log.note(f"{a.size(0)} elements")
        if n % 2 == 0:
            self.other.note("even")
        return a * n, self.log(), self.other.n_calls


@calls((x(4), 2), (x(4), 3), (x(4), 4), (x(4), 2))
class Memoised(nn.Module):
    """A dict of tensors by number."""

    known: dict[int, Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.known = {}

    def forward(self, a: Tensor, n: int) -> tuple[Tensor, int]:
        if n not in self.known:
            self.known[n] = a.pow(2) * n
        return self.known[n], len(self.known)


@calls(*[(i,) for i in (0, 5, 19, 5, 3)])
class LongTable(nn.Module):
    """A list of many numbers, one of which a call changes."""

    def __init__(self) -> None:
        super().__init__()
        self.table = [i * i for i in range(20)]

    def forward(self, i: int) -> tuple[int, int]:
        self.table[i] = -self.table[i]
        return self.table[i], sum(self.table)
