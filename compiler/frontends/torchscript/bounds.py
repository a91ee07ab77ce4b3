"""Limits of a program's import: an untrusted file must not make it run forever, or fill the memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...ir.errors import ArchiveError, UnsupportedOp

MAX_STEPS = 2_000_000  # nodes that are imported, each as often as a loop or a restart imports it
MAX_INLINED = 1_000_000  # nodes of a file's program, each as often as it is called
MAX_CALL_DEPTH = 200  # of calls within calls
MAX_CONSTANT = 1 << 20  # characters of a string, or elements of a list, that is computed during import


class Steps:
    """Counts imported nodes."""

    def __init__(self) -> None:
        self.n = 0

    def count(self) -> None:
        """Count one. Raises UnsupportedOp beyond MAX_STEPS."""
        self.n += 1
        if self.n > MAX_STEPS:
            raise UnsupportedOp(
                f"importing the program takes more than {MAX_STEPS:,} steps; write its loops over ranges "
                "whose length is an argument: they are not unrolled"
            )


def within_64_bits(x: Any) -> Any:
    """Return a result. Raises OverflowError for an int that 64 bits do not hold, as instructions do."""
    if type(x) is int and not -(1 << 63) <= x < 1 << 63:
        raise OverflowError("an int over 64 bits")
    return x


def check_length(n: int) -> None:
    """Raise UnsupportedOp for a string or list of `n` elements that is too long to be a constant."""
    if n > MAX_CONSTANT:
        raise UnsupportedOp(
            f"a constant of {n:,} characters or elements is computed; at most {MAX_CONSTANT:,} are compiled"
        )


class CallCounter:
    """Counts the nodes that a program of a file has when its calls are inlined. `unit`: its functions."""

    def __init__(self, unit: Any) -> None:
        self.unit = unit
        self._known: dict[str, int] = {}

    def check(self, name: str) -> None:
        """Raise ArchiveError where the function of that qualified name is too large to be inlined."""
        n = self._count(name, 0)
        if n > MAX_INLINED:
            raise ArchiveError(
                f"{name[:200]} has {min(n, 10**15):,} operators when its calls are inlined; at most "
                f"{MAX_INLINED:,} are compiled"
            )

    def _count(self, name: str, depth: int) -> int:
        if name not in self._known:
            if depth > MAX_CALL_DEPTH:
                raise ArchiveError(
                    f"{name[:200]} is called in more than {MAX_CALL_DEPTH} calls within each other"
                )
            function = self.unit.find_function(name)
            self._known[name] = 1
            if function is not None:
                called = (self._called(node) for node in _nodes(function.graph))
                self._known[name] = sum(
                    1 if each is None else self._count(each, depth + 1) for each in called
                )
        return self._known[name]

    @staticmethod
    def _called(node: Any) -> str | None:
        """Return the function that a node calls. Methods of interfaces are known when they are imported."""
        if node.kind() == "prim::CallMethod":
            owner = node.inputsAt(0).type()
            return None if owner.is_interface_type() else f"{owner.qualified_name()}.{node.s('name')}"
        return repr(node.inputsAt(0).type()) if node.kind() == "prim::CallFunction" else None


def _nodes(graph: Any) -> Iterator[Any]:
    todo = [graph]
    while todo:
        for node in todo.pop().nodes():
            yield node
            todo.extend(node.blocks())
            if node.hasAttribute("Subgraph"):
                todo.append(node.g("Subgraph"))
