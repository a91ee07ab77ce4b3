"""Kernel families: one row has everything that the rest of the JIT needs of a family."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ...vm.program import KernelKey
from ..dependence import Launch
from ..evaluation import Evaluation
from ..llvm.abi import Generator
from ..spec import BufferAccess, KernelSpec

S = TypeVar("S", bound=KernelSpec)
P = TypeVar("P")
E = TypeVar("E")


@dataclass(frozen=True)
class Example:
    """A spec in its text form (`jit.text`) and sizes for it: tests compile and compare it on every target."""

    text: str
    dims: tuple[int, ...]


@dataclass(frozen=True)
class Variant(Generic[P, E]):
    """One of a family's ways to compute: `fits(problem)`: whether it applies to a problem; `emit`: its
    code."""

    name: str
    fits: Callable[[P], bool]
    emit: E


def first_fitting(variants: Sequence[Variant[P, E]], problem: P) -> Variant[P, E]:
    """Return the first of `variants` that fits; the last one of a table fits all."""
    return next(variant for variant in variants if variant.fits(problem))


def one_schedule(spec: KernelSpec, dims: KernelKey, target: str) -> tuple[str, ...]:
    """Return nothing: there is one schedule, and nothing to tune."""
    return ()


def no_preference(spec: KernelSpec, dims: KernelKey, target: str, tiles: Mapping[str, str]) -> str | None:
    """Return None: the generator's own choice is the best on every machine."""
    return None


def no_extensions(spec: KernelSpec) -> tuple[str, ...]:
    """Return nothing: no kernel of the family has separate code for a target's extension."""
    return ()


@dataclass(frozen=True)
class Family(Generic[S]):
    """A kernel family.

    `spec`: the dataclass that describes a kernel; its `family` is the name. `emit`: the generator of LLVM IR.
    `accesses(spec)`: all reads and writes of buffers by its code; `emit` takes its positions from them.
    `evaluate(run, spec)`: the definition, in numpy. `check(spec)`: raises SpecError for a spec that no
    generator can accept. `follow(launch, spec)`: the rows of a batch on which the results depend. `examples`:
    small specs, one of each kind. `schedules(spec, dims, target)`: those to tune among. `preferred(spec,
    dims, target, tiles)`: the schedule for a machine on which these register tiles of products were measured
    fastest (`matmul.tile_choice`), None for the generator's own choice. `extensions(spec)`: those of the
    targets for which its code is better than for their base.
    """

    spec: type[S]
    emit: Generator
    accesses: Callable[[S], Iterable[BufferAccess]]
    evaluate: Callable[[Evaluation, S], None]
    check: Callable[[S], None]
    follow: Callable[[Launch, S], None]
    examples: tuple[Example, ...]
    schedules: Callable[[S, KernelKey, str], tuple[str, ...]] = one_schedule
    preferred: Callable[[S, KernelKey, str, Mapping[str, str]], str | None] = no_preference
    extensions: Callable[[S], tuple[str, ...]] = no_extensions
