"""What a program keeps between calls, and what its calls change of the caller's.

A model's buffers that a call changes (statistics, caches) are inputs and outputs of the program behind those
of the user; the artifact's function `initial_state` gives their first values. Inputs that the model changes
in place have their new values among the outputs, from where they are written into the caller's arrays.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .vm.arrays import is_array, is_torch, library_of, shares_memory
from .vm.errors import ArgumentError, ArtifactError
from .vm.fork_lock import ForkLock

if TYPE_CHECKING:
    import numpy as np

    from .vm.machine import Machine
    from .vm.program import EntryPoint, Input

INITIAL = "initial_state"  # as in `compiler.emit.emit`
RANDOM = "random:philox"  # i64[2], seed and how many were drawn: as in `compiler.ops.random`


@dataclass(frozen=True)
class Changes:
    """What a function's outputs behind those of the user are: `positions` of the inputs that calls change,
    then the buffers that it gives new values, `kept`. What it writes to in place is no output."""

    inputs: Sequence[Input]
    positions: Sequence[int]
    kept: Sequence[str]

    @classmethod
    def of(cls, entry: EntryPoint, structure: Mapping[str, Any]) -> Changes:
        """Return what the artifact says of an entry point. Raises ArtifactError where that cannot be."""
        changed, names = structure.get("changed", []), [row.name for row in entry.inputs]
        if not set(changed) <= set(names):
            raise ArtifactError(f"the program changes {', '.join(changed)}, which are not all inputs")
        kept = structure.get("kept", structure.get("state", []))
        return cls(entry.inputs, [names.index(name) for name in changed], kept)


class State:
    """What the calls of one loaded program keep, or of one of its sessions. Calls are serialised: each sees
    what the one before left. `names`: the buffers, as the program's inputs have them.
    """

    def __init__(self, machine: Machine, names: Sequence[str]) -> None:
        self._machine = machine
        self.names = list(names)
        self._lock = ForkLock()
        self._values: list[np.ndarray[Any, Any]] = []
        self.reset()

    def reset(self) -> None:
        """Go back to the artifact's state."""
        with self._lock:
            first = self._machine.call_function(INITIAL, []) if self.names else []
            self._values = [library_of(value).numpy(value) for value in first]  # memory of their own

    def seed(self, seed: int) -> None:
        """Begin the random numbers anew."""
        import numpy as np

        with self._lock:
            whole = np.array([seed % 2**64, 0], np.uint64).view(np.int64)
            self._values[self.names.index(RANDOM)] = whole

    def values(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return copies of the buffers (bf16 as uint16)."""
        with self._lock:
            return {name: value.copy() for name, value in zip(self.names, self._values, strict=True)}

    def take(self, values: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Take over copies of the buffers' values, as `values` returned them. Raises ArgumentError for a
        buffer that is missing or unknown, or has another dtype or shape."""
        known = self.values()
        for name in (*values, *known):
            if name not in values or name not in known:
                raise ArgumentError(f"state {name!r}: the program's buffers are {', '.join(known) or 'none'}")
            new, old = values[name], known[name]
            if (new.dtype, new.shape) != (old.dtype, old.shape):
                raise ArgumentError(
                    f"state {name!r} is {new.dtype}{list(new.shape)}, not {old.dtype}{list(old.shape)}"
                )
        with self._lock:
            self._values = [values[name].copy() for name in self.names]

    def inputs(self, user: Sequence[Any]) -> list[Any]:
        """Return all inputs of a call."""
        return [*user, *self._values]

    def call(self, run: Any, user: Sequence[Any], changes: Changes) -> list[Any]:
        """Return run(all inputs)'s results for the user; keep the new state, change the caller's arrays."""
        for position in changes.positions:
            _check_writable(user[position], changes.inputs[position].name)
            _check_apart(changes.inputs, user, position)
        with self._lock:
            results = run(self.inputs(user))
            n_user = len(results) - len(changes.positions) - len(changes.kept)
            for name, value in zip(changes.kept, results[n_user + len(changes.positions) :], strict=True):
                self._values[self.names.index(name)] = library_of(value).numpy(value)
        for position, new in zip(changes.positions, results[n_user:], strict=False):
            _write(user[position], new)
        return results[:n_user]


def _check_apart(rows: Sequence[Input], user: Sequence[Any], changed: int) -> None:
    """Raise ArgumentError where another argument lies in the memory of one that the program changes: the
    program would not see the change in it."""
    for position, array in enumerate(user):
        if position != changed and shares_memory(user[changed], array):
            mine, other = (rows[i].name for i in (changed, position))
            raise ArgumentError(
                f'input "{other}" shares memory with input "{mine}", which the program changes: '
                "pass a copy of one of them"
            )


def _check_writable(array: Any, name: str) -> None:
    if is_torch(array) or not is_array(array):
        return
    flags = getattr(array, "flags", None)
    if flags is None or not flags.writeable:
        raise ArgumentError(
            f'input "{name}" is changed by the program, but the array given cannot be written'
        )


def _write(array: Any, new: Any) -> None:
    """Put new values into an array of the caller's."""
    if not is_torch(array):
        array[...] = new
        return
    torch = sys.modules["torch"]
    with torch.no_grad():
        array.copy_(new if is_torch(new) else torch.from_numpy(new))
