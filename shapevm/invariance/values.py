"""What is known of registers while a program is followed: numbers, tensors with a layout, containers."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..jit.dependence import Layout, Mixed, Number, Shared

BATCH = 1_000_003  # the symbol under test; primes that nothing else has as a factor


@dataclass(frozen=True)
class Tensor:
    """A tensor in a register: where its elements are, and its sizes."""

    storage: tuple[int, int]
    sizes: tuple[Number, ...]


@dataclass(frozen=True)
class Items:
    """A list, tuple or dict whose items are known; `keys` of a dict."""

    items: tuple[Known, ...]


@dataclass(frozen=True)
class Unknown:
    """A value of which nothing is known but what it depends on."""

    layout: Layout = field(default_factory=Shared)


Known = Number | Tensor | Items | Unknown


@dataclass
class State:
    """Registers, and the layout of each storage, at one place of a function."""

    registers: dict[int, Known]
    storages: dict[tuple[int, int], Layout]

    def copy(self) -> State:
        """Return a state that changes apart."""
        return State(dict(self.registers), dict(self.storages))


def layout_of(known: Known | None, state: State) -> Layout:
    """Return the layout of what a register holds; that of a container is its items' together."""
    if isinstance(known, Tensor):
        return state.storages.get(known.storage, Shared())
    if isinstance(known, Items):
        causes = [layout_of(item, state) for item in known.items]
        mixed = [x for x in causes if isinstance(x, Mixed)]
        if mixed:
            return Mixed(frozenset().union(*(x.causes for x in mixed)))
        return Shared() if all(isinstance(x, Shared) for x in causes) else Mixed.by("a container of rows")
    return known.layout if isinstance(known, Unknown) else Shared()
