"""How a model is called: its nested arguments and results, and the flat ones of the program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import pytree
from .state import state_of
from .vm.errors import ArtifactError
from .vm.machine import Machine


class CallForm:
    """How the model's nested arguments and results map to the flat ones of the program."""

    def __init__(self, machine: Machine) -> None:
        """Raise ArtifactError where the artifact describes other inputs or outputs than the program has."""
        structure = machine.meta.get("structure", {})
        n_state, n_changed = len(structure.get("state", [])), len(structure.get("changed", []))
        names = [row.name for row in machine.inputs][: len(machine.inputs) - n_state]
        n_results = len(machine.outputs) - n_state - n_changed
        self._signature: Mapping[str, Any] = {
            "positional": names,
            "parameters": dict.fromkeys(names, pytree.LEAF),
        }
        self._results: pytree.Structure = {"tuple": [pytree.LEAF] * n_results}
        try:
            self._signature = (
                pytree.from_json(structure["inputs"]) if "inputs" in structure else self._signature
            )
            self._results = (
                pytree.from_json(structure["outputs"]) if "outputs" in structure else self._results
            )
            n_inputs, n_outputs = len(pytree.call_paths(self._signature)), pytree.n_leaves(self._results)
        except (ValueError, TypeError, RecursionError) as error:
            raise ArtifactError(f"the structure of inputs and outputs cannot be read: {error}") from None
        if (n_inputs, n_outputs) != (len(names), n_results):
            raise ArtifactError(
                f"the structure has {n_inputs} inputs and {n_outputs} outputs; the program has {len(names)} "
                f"and {n_results}"
            )
        self.state = state_of(machine, structure)
        machine.n_state = n_state
        self.names, self.n_results = names, n_results
        parameters = self._signature["parameters"]
        self._is_flat = list(parameters) == names and all(
            inner == pytree.LEAF for inner in parameters.values()
        )
        self._by_position = self._is_flat and self._signature["positional"] == names
        self.is_one = self._results == pytree.LEAF
        #: Positional arguments that are the program's inputs as they are, -1 where that is not all of them.
        self.n_plain = len(names) if self._by_position and self.state is None else -1

    def flat(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        """Return the inputs in order. Raises ArgumentError for arguments that the program does not take."""
        if not kwargs and self._by_position and len(args) == len(self.names):
            return args
        if (
            not args
            and self._is_flat
            and len(kwargs) == len(self.names)
            and all(n in kwargs for n in self.names)
        ):
            return [kwargs[name] for name in self.names]
        return pytree.flatten_call(args, kwargs, self._signature)

    def nested(self, results: Sequence[Any]) -> Any:
        """Return the results as the model would."""
        return results[0] if self.is_one else pytree.unflatten(results, self._results)
