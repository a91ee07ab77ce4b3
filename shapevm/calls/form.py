"""How a model is called: its nested arguments and results, and the flat ones of the program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..vm.errors import ArtifactError
from ..vm.machine import Machine
from . import pytree
from .state import Changes, State


class CallForm:
    """How the nested arguments and results of one of the model's functions map to the flat ones of the
    program's entry point of that name."""

    def __init__(self, machine: Machine, function: str) -> None:
        """Raise ArtifactError if the artifact's description of inputs or outputs does not match the
        program."""
        self.entry = entry = machine.entry_points[function]
        structure = structure_of(machine.meta, None if entry.function == 0 else function)
        self.changes = Changes.of(entry, structure)
        n_state = len(structure.get("state", []))
        names = [row.name for row in entry.inputs][: len(entry.inputs) - n_state]
        n_results = len(entry.outputs) - len(self.changes.kept) - len(self.changes.positions)
        self._signature = pytree.Signature.flat(names)
        self._results: pytree.Node = pytree.Items(False, [pytree.Leaf()] * n_results)
        if "inputs" in structure:
            self._signature = pytree.read_signature(structure["inputs"], ArtifactError)
        if "outputs" in structure:
            self._results = pytree.read_structure(structure["outputs"], ArtifactError)
        n_inputs, n_outputs = len(self._signature.paths()), self._results.n_leaves
        if (n_inputs, n_outputs) != (len(names), n_results):
            raise ArtifactError(
                f"the structure has {n_inputs} inputs and {n_outputs} outputs; the program has {len(names)} "
                f"and {n_results}"
            )
        self.names, self.n_results = names, n_results
        self._is_flat = self._signature.is_flat and list(self._signature.parameters) == names
        self._flatten, self._build = self._signature.flattener(), self._results.builder()
        self._by_position = self._is_flat and self._signature.positional == names
        self.is_one = isinstance(self._results, pytree.Leaf)
        #: The number of positional arguments, if these are exactly the program's inputs, else -1.
        self.n_plain = len(names) if self._by_position and not n_state and not self.changes.positions else -1

    def flat(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        """Return the inputs in order. Raises ArgumentError for arguments that the program does not take."""
        if not kwargs and self._by_position and len(args) == len(self.names):
            return args
        if not kwargs and self._flatten is not None:
            leaves = self._flatten(args)
            if leaves is not None:
                return leaves
        if (
            not args
            and self._is_flat
            and len(kwargs) == len(self.names)
            and all(n in kwargs for n in self.names)
        ):
            return [kwargs[name] for name in self.names]
        return self._signature.flatten(args, kwargs)

    def run(
        self, state: State | None, run: Callable[[Sequence[Any]], list[Any]], inputs: Sequence[Any]
    ) -> list[Any]:
        """Return run(all inputs)'s results for the user; `state` keeps the call's new state."""
        return run(inputs) if state is None else state.call(run, inputs, self.changes)

    def nested(self, results: Sequence[Any]) -> Any:
        """Return the results as the model would."""
        if self.is_one:
            return results[0]
        if self._build is not None and len(results) == self.n_results:
            return self._build(results)
        return self._results.unflatten(results)


def structure_of(meta: Mapping[str, Any], function: str | None) -> Mapping[str, Any]:
    """Return the entry of an artifact's META for main (None) or another function."""
    found: Mapping[str, Any] = (
        meta.get("structure", {}) if function is None else meta.get("functions", {}).get(function, {})
    )
    return found


def forms_of(machine: Machine) -> tuple[dict[str, CallForm], list[str] | None]:
    """Return the call form of each entry point, main first, and the names of the buffers that the program
    keeps; None if no call keeps or changes anything. Raises ArtifactError as `CallForm` does."""
    forms = {name: CallForm(machine, name) for name in machine.entry_points}
    names = list(structure_of(machine.meta, None).get("state", []))
    machine.n_state = len(names)
    machine.n_kept = {form.entry.function: len(form.changes.kept) for form in forms.values()}
    for name, form in forms.items():
        own = [row.name for row in form.entry.inputs[len(form.names) :]]
        if own != [f"state.{each}" for each in names]:
            raise ArtifactError(f"the state {', '.join(names)} is not what the last inputs of {name} are")
        if not set(form.changes.kept) <= set(names):
            raise ArtifactError(f"{name} keeps {', '.join(form.changes.kept)}, which are not all state")
    has_state = names or any(form.changes.positions for form in forms.values())
    return forms, names if has_state else None
