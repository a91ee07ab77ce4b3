"""The interface of a program for reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..calls.opened import Opened

if TYPE_CHECKING:
    from ..calls.value_info import ValueInfo
    from ..jit.store import KernelStore
    from ..vm.program import Program


class Specialisation(Protocol):
    """What was compiled for a program so far, as `specialise.background` describes it."""

    @property
    def opened_store(self) -> KernelStore | None:
        """The store of this program, None if nothing was looked up or compiled yet."""

    @property
    def seconds(self) -> Mapping[tuple[int, tuple[int, ...]], float]:
        """Latency of recent exact compilations, in seconds, by (kernel, dims)."""

    @property
    def gains(self) -> Mapping[int, float]:
        """The ratio of generic to exact time of the kernels that were measured."""

    @property
    def pays_after(self) -> Mapping[tuple[int, tuple[int, ...]], int]:
        """The number of runs after which exact code pays for its compilation, by (kernel, dims)."""


class Subject(Opened, Protocol):
    """A program that can be called, with its contract and compiled kernels."""

    @property
    def specialisation(self) -> Specialisation:
        """The source of its exact kernels."""

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
