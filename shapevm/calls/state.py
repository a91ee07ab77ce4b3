"""The state that a program keeps between calls, and the caller's arrays that calls change.

A model's buffers that a call changes (statistics, caches) are inputs and outputs of the program after those
of the user; the artifact's function `initial_state` returns their initial values. New values of inputs that
the model changes in place are among the outputs and are copied into the caller's arrays.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..vm.arrays import is_array, is_torch, library_of, sharing_pairs
from ..vm.contract import tag_of
from ..vm.errors import ArgumentError, ArtifactError
from ..vm.fork_lock import ForkLock
from ..vm.heap import trim

if TYPE_CHECKING:
    from ..vm.machine import Machine
    from ..vm.program import EntryPoint, Input

INITIAL = "initial_state"  # as in `compiler.emit.emit`
_LARGE = 1 << 20  # bytes of an array whose zeros are left to the system
RANDOM = "random:philox"  # i64[2], seed and number of draws, as in `compiler.ops.random`


@dataclass(frozen=True)
class Changes:
    """The outputs of a function after those of the user: new values of the inputs at `positions`, then of the
    buffers `kept`. Values that it writes in place are not outputs."""

    inputs: Sequence[Input]
    positions: Sequence[int]
    kept: Sequence[str]

    @classmethod
    def of(cls, entry: EntryPoint, structure: Mapping[str, Any]) -> Changes:
        """Return the artifact's description of an entry point. Raises ArtifactError if it is invalid."""
        changed, names = structure.get("changed", []), [row.name for row in entry.inputs]
        if not set(changed) <= set(names):
            raise ArtifactError(f"the program changes {', '.join(changed)}, which are not all inputs")
        kept = structure.get("kept", structure.get("state", []))
        return cls(entry.inputs, [names.index(name) for name in changed], kept)


class State:
    """The state of one loaded program or of one of its sessions. Calls are serialised: each sees the state
    that the previous one left. `names`: the buffers, in the order of the program's inputs.
    """

    def __init__(self, machine: Machine, names: Sequence[str]) -> None:
        self._machine = machine
        self.names = list(names)
        self._lock = ForkLock()
        self._values: list[Any] = []
        self.reset()

    def reset(self) -> None:
        """Restore the artifact's state."""
        with self._lock:
            first = self._machine.call_function(INITIAL, []) if self.names else []
            self._values = [_untouched(_own(value)) for value in first]
            del first
            if sum(getattr(value, "nbytes", 0) for value in self._values) >= _LARGE:
                trim()

    def seed(self, seed: int) -> None:
        """Reseed the generator."""
        import numpy as np

        with self._lock:
            whole = np.array([seed % 2**64, 0], np.uint64).view(np.int64)
            self._values[self.names.index(RANDOM)] = whole

    def values(self) -> dict[str, Any]:
        """Return copies of the buffers (bf16 as uint16); strings and lists are not copied."""
        with self._lock:
            return {name: _copied(value) for name, value in zip(self.names, self._values, strict=True)}

    def take(self, values: Mapping[str, Any]) -> None:
        """Take over copies of the buffers' values, as `values` returned them. Raises ArgumentError for a
        buffer that is missing, unknown, or invalid for the program."""
        for name in (*values, *self.names):
            if name not in values or name not in self.names:
                known = ", ".join(self.names)
                raise ArgumentError(f"state {name!r}: the program's buffers are {known or 'none'}")
        rows = self._machine.inputs[len(self._machine.inputs) - len(self.names) :]
        for name, row, old in zip(self.names, rows, self._values, strict=True):
            _check_fits(f"state {name!r}", values[name], row, old)
        with self._lock:
            self._values = [_copied(values[name]) for name in self.names]

    def inputs(self, user: Sequence[Any]) -> list[Any]:
        """Return all inputs of a call."""
        return [*user, *self._values]

    def call(self, run: Any, user: Sequence[Any], changes: Changes) -> list[Any]:
        """Return run(all inputs)'s results for the user; keep the new state, change the caller's arrays."""
        for position in changes.positions:
            _check_writable(user[position], changes.inputs[position].name)
        if changes.positions:
            _check_apart(changes.inputs, user, changes.positions)
        with self._lock:
            results = run(self.inputs(user))
            n_user = len(results) - len(changes.positions) - len(changes.kept)
            for name, value in zip(changes.kept, results[n_user + len(changes.positions) :], strict=True):
                self._values[self.names.index(name)] = _own(value)
        for position, new in zip(changes.positions, results[n_user:], strict=False):
            _write(user[position], new)
        return results[:n_user]


def _own(value: Any) -> Any:
    """Return a result whose arrays are numpy arrays that own their memory."""
    if isinstance(value, list | tuple):
        return type(value)(map(_own, value))
    return library_of(value).numpy(value) if is_array(value) else value


def _untouched(value: Any) -> Any:
    """Return a large array of zeros as memory that the system provides as it is written, page after page."""
    if not is_array(value) or value.nbytes < _LARGE or value.reshape(-1).view("bool").any():
        return value
    import numpy as np

    return np.zeros(value.shape, value.dtype)


def _copied(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(_copied, value))
    return value.copy() if is_array(value) else value


def _check_fits(what: str, new: Any, row: Input, old: Any) -> None:
    """Raise ArgumentError if a value does not fit an input: another kind or dtype, another size of a fixed
    axis, or a list with another kind of elements than it has now."""
    if tag_of(new) != row.kind:
        raise ArgumentError(f"{what} is a {tag_of(new)}; the program takes a {row.kind}")
    if row.kind == "tensor":
        sizes = [None if axis.symbol is not None else axis.offset for axis in row.axes]
        fits = len(sizes) == new.ndim and all(n in (None, m) for n, m in zip(sizes, new.shape, strict=True))
        if not fits or new.dtype != old.dtype:
            shown = ", ".join("any" if n is None else str(n) for n in sizes)
            raise ArgumentError(f"{what} is {new.dtype}{list(new.shape)}, not {old.dtype}[{shown}]")
    if row.kind == "list" and len(forms := {_form(item) for item in (*new, *old)}) > 1:
        raise ArgumentError(f"{what} has elements of {' and '.join(sorted(forms))}; they must be alike")


def _form(value: Any) -> str:
    if is_array(value):
        return f"{value.dtype}{list(value.shape)}"
    return f"({', '.join(map(_form, value))})" if isinstance(value, tuple) else str(tag_of(value))


def _check_apart(rows: Sequence[Input], user: Sequence[Any], changed: Sequence[int]) -> None:
    """Raise ArgumentError if another argument, or element of a list, shares memory with one that the program
    changes: the program would not see the change in it."""
    arrays = [(position, array) for position, x in enumerate(user) for array in _arrays_of(x)]
    for pair in sharing_pairs([array for _, array in arrays]):
        first, second = (arrays[i][0] for i in pair)
        if first in changed:
            raise ArgumentError(_shared_message(rows[first].name, rows[second].name))
        if second in changed:
            raise ArgumentError(_shared_message(rows[second].name, rows[first].name))


def _shared_message(mine: str, other: str) -> str:
    if mine == other:
        return (
            f'two elements of input "{mine}" share memory, and the program changes them: pass a copy of one '
            "of them"
        )
    return (
        f'input "{other}" shares memory with input "{mine}", which the program changes: '
        "pass a copy of one of them"
    )


def _arrays_of(x: Any) -> Sequence[Any]:
    """Return the arrays of an input: itself, or the elements of a list."""
    return x if isinstance(x, list | tuple) else [x]


def _check_writable(array: Any, name: str) -> None:
    if isinstance(array, list | tuple):
        for i, each in enumerate(array):
            _check_writable(each, f"{name}[{i}]")
        return
    if is_torch(array) or not is_array(array):
        return
    flags = getattr(array, "flags", None)
    if flags is None or not flags.writeable:
        raise ArgumentError(
            f'input "{name}" is changed by the program, but the array given cannot be written'
        )


def _write(array: Any, new: Any) -> None:
    """Put new values into an array of the caller's, or into those of a list."""
    if isinstance(array, list | tuple):
        for each, part in zip(array, new, strict=True):
            _write(each, part)
        return
    if not is_torch(array):
        array[...] = new
        return
    torch = sys.modules["torch"]
    with torch.no_grad():
        array.copy_(new if is_torch(new) else torch.from_numpy(new))
