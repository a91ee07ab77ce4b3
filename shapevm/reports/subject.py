"""The interface of a program for reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..calls.opened import Opened

if TYPE_CHECKING:
    from ..calls.value_info import ValueInfo
    from ..specialise.background import BackgroundCompilation
    from ..vm.program import Program


class Subject(Opened, Protocol):
    """A program that can be called, with its contract and compiled kernels."""

    specialisation: BackgroundCompilation

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the program like its model."""

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run on flat inputs by name; return flat outputs by name."""

    def program(self) -> Program:
        """Return the program of the artifact."""

    @property
    def inputs(self) -> Sequence[ValueInfo]:
        """The flat inputs."""

    @property
    def outputs(self) -> Sequence[ValueInfo]:
        """The flat outputs."""
