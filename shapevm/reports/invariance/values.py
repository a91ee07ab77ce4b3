"""Abstract values of registers: numbers, tensors with a layout, containers."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...jit.dependence import Layout, Mixed, Number, Shared

BATCH = 1_000_003  # the size under test; primes that are a factor of nothing else


@dataclass(frozen=True)
class Tensor:
    """A tensor in a register: the position of its elements, and its sizes."""

    storage: tuple[int, int]
    sizes: tuple[Number, ...]


@dataclass(frozen=True)
class Items:
    """A list or tuple whose items are known. `n`: the number of values, including nested ones."""

    items: tuple[Known, ...]
    n: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        n = 1 + sum(item.n if isinstance(item, Items) else 1 for item in self.items)
        object.__setattr__(self, "n", n)


@dataclass(frozen=True)
class Unknown:
    """A value of which only the dependences are known."""

    layout: Layout = field(default_factory=Shared)


Known = Number | Tensor | Items | Unknown


@dataclass
class State:
    """Registers, and the layout of each storage, at one point of a function."""

    registers: dict[int, Known]
    storages: dict[tuple[int, int], Layout]

    def copy(self) -> State:
        """Return an independent copy."""
        return State(dict(self.registers), dict(self.storages))


def layout_of(known: Known | None, state: State) -> Layout:
    """Return the layout of a register's value; that of a container merges its items'."""
    if isinstance(known, Tensor):
        return state.storages.get(known.storage, Shared())
    if isinstance(known, Items):
        causes = [layout_of(item, state) for item in known.items]
        mixed = [x for x in causes if isinstance(x, Mixed)]
        if mixed:
            return Mixed(frozenset().union(*(x.causes for x in mixed)))
        return Shared() if all(isinstance(x, Shared) for x in causes) else Mixed.by("a container of rows")
    return known.layout if isinstance(known, Unknown) else Shared()
