"""A session: the calls of a program that share one state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ..vm.errors import ArgumentError
from ..vm.machine import Machine
from .checks import check_by_name
from .form import CallForm
from .state import State


class Session:
    """Calls of one program with their own state; `Executable.session` makes them. Sessions share the
    program's weights, kernels and plans, and threads that use different ones do not wait for each other."""

    def __init__(self, machine: Machine, forms: Mapping[str, CallForm], names: Sequence[str] | None) -> None:
        """`names`: the buffers that the program keeps, None if it keeps and changes nothing."""
        self._machine, self._forms = machine, forms
        self.held = None if names is None else State(machine, names)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run main."""
        return self._run(next(iter(self._forms.values())), args, kwargs)

    def call(self, function: str, *args: Any, **kwargs: Any) -> Any:
        """Run one of the program's functions. Raises ArgumentError for an unknown name."""
        if function not in self._forms:
            known = ", ".join(self._forms)
            raise ArgumentError(f"the program has no function {function!r} to call; it has {known}")
        return self._run(self._forms[function], args, kwargs)

    def _run(self, form: CallForm, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        call: Callable[[Sequence[Any]], list[Any]] = partial(self._machine.call, function=form.entry.function)
        return form.nested(form.run(self.held, call, form.flat(args, kwargs)))

    def state(self) -> dict[str, Any]:
        """Return copies of the buffers as the last call left them, by name."""
        return self.held.values() if self.held is not None else {}

    def set_state(self, values: Mapping[str, Any]) -> None:
        """Set the buffers to values that `state` of any session of the program returned.

        Raises ArgumentError for a buffer that is missing or unknown, or has another dtype or shape.
        """
        check_by_name("the state", values, "arrays")
        if self.held is not None:
            self.held.take(values)
        elif values:
            raise ArgumentError(f"state {', '.join(values)}: the program has none")

    def reset_state(self) -> None:
        """Reset the buffers to the artifact's values."""
        if self.held is not None:
            self.held.reset()
