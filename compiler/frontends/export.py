"""torch.export: an nn.Module becomes an ExportedProgram, by the trace that leaves the most sizes free.

torch.export can trace a model in several ways, and no way is the best for all models:

- *alike*: sizes 0 and 1 are ordinary (torch's `backed_size_oblivious`), so that ranges may include them;
- **ordinary*: torch.export's default, which assumes that no dynamic size is 0 or 1;
- either of them with the example's rows repeated along dynamic axes of size 1, since torch.export specialises
  a size of 1 wherever an operator checks it.

The first trace that keeps all sizes free that the user marked as dynamic is used. If there is none, the one
that loses the least is used, and a log record names each narrowed axis.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch._library.fake_impl import FakeImplCtx
from torch.export import ExportedProgram
from torch.fx.experimental import _config as fx_config
from torch.utils._pytree import tree_map

from ..ir.errors import Error, ShapeError
from .caches import register_caches
from .conv_formats import formats_leave_no_guards
from .ctc import losses_are_traced
from .distances import distances_are_direct
from .dynamic_shapes import dims_by_source, without_ones
from .early_refusal import EarlyRefusal, until_refused
from .evaluation import in_evaluation
from .export_errors import (
    REFUSALS,
    UNTRACEABLE,
    cannot_run,
    quiet,
    refusal,
    unknown_container,
    unknown_operand,
    untraceable,
    untraced,
)
from .flex import forget_traces
from .idle_guards import drop_idle_guards
from .layout_reads import LayoutReads
from .narrowing import (
    Narrowed,
    arguments_at,
    gives_as,
    holds,
    may_have_stretched,
    narrowed_axes,
    runs,
    sizes_in,
    squeezes_ones,
)
from .packed import packing_is_traced
from .packed_weights import without_packed_weights
from .recurrent import layers_are_scans
from .symbols import finite

_LOG = logging.getLogger("shapevm")


def export_model(
    model: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> ExportedProgram:
    """Return torch.export's program of `model` in evaluation mode: see the top of this file for the ways in
    which it is traced.

    Raises ArgumentError if the model cannot be called with the example inputs, and ShapeError or
    UnsupportedOp with the model's line if torch.export refuses every way.
    """
    args, kwargs = with_memory_of_their_own((tuple(args), dict(kwargs or {})))
    with without_packed_weights(model) as traced:
        return _Export(traced, args, kwargs, dynamic_shapes).run()


def ordinary_trace(
    model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None, dynamic_shapes: Any
) -> ExportedProgram:
    """Return torch.export's default trace. Raises its errors."""
    args, kwargs = with_memory_of_their_own((tuple(args), dict(kwargs or {})))
    with without_packed_weights(model) as traced:
        return _Trace(traced, args, kwargs, dynamic_shapes, alike=False).run()


def is_alike(program: ExportedProgram) -> bool:
    """Return True for a program of a trace in which sizes 0 and 1 are ordinary."""
    lowest = [finite(limits.lower) for limits in program.range_constraints.values()]
    return any(low is not None and low < 2 for low in lowest)


@dataclass(frozen=True)
class _Trace:
    """One way to trace a model. `alike`: sizes 0 and 1 are ordinary."""

    model: torch.nn.Module
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    dynamic_shapes: Any
    alike: bool = True

    def run(self) -> ExportedProgram:
        """Return the program. Raises the errors of torch.export and of the traced model."""
        register_caches(self.model)
        sizes = sizes_are_alike() if self.alike else nullcontext()
        with in_evaluation(self.model), torch.no_grad(), sizes, quiet():
            return _export(self.model, self.args, self.kwargs, self.dynamic_shapes)

    def run_until_refused(self) -> ExportedProgram:
        """Return the program like `run`; raise EarlyRefusal as soon as a refusal is certain."""
        with until_refused() if self.alike else nullcontext():
            return self.run()


@dataclass(frozen=True)
class _Found:
    """A program of one trace. `is_for_example`: it is right for the example's own sizes; see `holds` and
    `squeezes_ones`."""

    trace: _Trace
    program: ExportedProgram
    narrowed: list[Narrowed]
    is_for_example: bool

    @property
    def is_avoidable(self) -> bool:
        """Whether another trace may leave more sizes free."""
        return any(axis.is_avoidable for axis in self.narrowed)

    def drop_idle_guards(self) -> None:
        """Drop the assumptions of the program that change nothing."""
        trace, program = self.trace, self.program

        def trace_at(sizes: Mapping[Any, int]) -> ExportedProgram:
            args, kwargs = arguments_at(program, trace.args, trace.kwargs, sizes)
            return replace(trace, args=args, kwargs=kwargs).run_until_refused()

        sizes = sizes_in(program, trace.args, trace.kwargs)
        if sizes:
            drop_idle_guards(program, sizes, trace_at)


class _Export:
    """The traces of one model, tried in order."""

    def __init__(
        self, model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any
    ) -> None:
        self.model, self.args, self.kwargs, self.dynamic_shapes = model, args, kwargs, dynamic_shapes
        self.failed: list[tuple[_Trace, Exception | EarlyRefusal]] = []
        self.found: list[_Found] = []

    def run(self) -> ExportedProgram:
        """Return the program that leaves the most sizes free. Raises the most informative error if there is
        none."""
        for trace in self._traces():
            try:
                program = trace.run_until_refused()
            except (Exception, EarlyRefusal) as error:  # whatever torch or the model raises
                _LOG.debug("a trace failed: %s", error)
                self.failed.append((trace, error))
                continue
            sizes = sizes_in(program, self.args, self.kwargs)
            if sizes is not None:
                narrowed = narrowed_axes(program, self.dynamic_shapes)
                is_for_example = self._is_for_example(trace, program, sizes)
                self.found.append(_Found(trace, program, narrowed, is_for_example))
        if not self.found:
            raise self._refusal() from None
        best = min(self.found, key=lambda found: (not found.is_for_example, len(found.narrowed)))
        for axis in best.narrowed:
            _LOG.log(logging.WARNING if axis.is_avoidable else logging.INFO, "dynamic_shapes: %s", axis)
        best.drop_idle_guards()
        return best.program

    def _is_for_example(self, trace: _Trace, program: ExportedProgram, sizes: Mapping[Any, int]) -> bool:
        if trace.args is not self.args and not gives_as(program, self.model, self.args, self.kwargs):
            return False
        is_meant = holds(program, sizes) and not squeezes_ones(program, sizes)
        return is_meant and (not may_have_stretched(program, sizes) or runs(program, self.args, self.kwargs))

    def _traces(self) -> Iterator[_Trace]:
        """Yield the ways to trace until one has left all possible sizes free."""
        trace = _Trace(self.model, self.args, self.kwargs, self.dynamic_shapes)
        yield trace
        if self._is_done():
            return
        larger = self._without_ones() if all(found.is_for_example for found in self.found) else None
        ways = [replace(trace, alike=False)]
        if larger is not None:
            grown = replace(trace, args=larger[0], kwargs=larger[1])
            ways += [grown, replace(grown, alike=False)]
        if self.found:  # an example's size of 1 is the likely reason
            ways.sort(key=lambda way: way.args is trace.args)
        for way in ways:
            yield way
            if self._is_done():
                return

    def _is_done(self) -> bool:
        return any(found.is_for_example and not found.is_avoidable for found in self.found)

    def _without_ones(self) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if not self.dynamic_shapes:
            return None
        return without_ones(self.model.forward, self.args, self.kwargs, self.dynamic_shapes)

    def _refusal(self) -> Exception:
        """Return the error to raise if no trace succeeds."""
        errors = [(trace, self._error(trace, error)) for trace, error in self.failed]
        for trace, error in errors:
            if isinstance(error, REFUSALS):
                sources = dims_by_source(self.model.forward, self.args, self.kwargs, self.dynamic_shapes)
                return refusal(error, trace.run, sources)
        self._call_once()
        _, error = errors[-1]
        if isinstance(error, Error):
            return error
        if isinstance(error, UNTRACEABLE):
            return untraceable(error)
        return unknown_container(error) or unknown_operand(error) or untraced(error)

    @staticmethod
    def _error(trace: _Trace, error: Exception | EarlyRefusal) -> Exception:
        """Return why a trace fails, which an early refusal does not tell."""
        if isinstance(error, Exception):
            return error
        try:
            trace.run()
        except Exception as said:
            return said
        return ShapeError("torch.export refuses the program")

    def _call_once(self) -> None:
        """Raise ArgumentError if the model itself cannot be called with the example inputs."""
        try:
            with in_evaluation(self.model), torch.no_grad():
                self.model(*self.args, **self.kwargs)
        except Exception as error:  # whatever a model raises
            raise cannot_run(error) from error


def with_memory_of_their_own(values: Any) -> Any:
    """Return nested arguments in which no two tensors share memory, because torch.export merges those."""
    seen: set[int] = set()

    def own(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.layout != torch.strided or not leaf.numel():
            return leaf
        memory = leaf.untyped_storage()._cdata
        if memory in seen:
            return leaf.detach().clone()
        seen.add(memory)
        return leaf

    return tree_map(own, values)


def sizes_are_alike() -> AbstractContextManager[None]:
    """Return a context in which torch traces sizes of 0 and 1 as any other."""
    return cast(Any, fx_config).patch(backed_size_oblivious=True)


@contextmanager
def _found_sizes_may_be_small() -> Iterator[None]:
    """Trace data-dependent sizes as 0 or more. torch's older function for making one in a fake kernel, which
    torchvision's nms uses, has 2 or more by default, and calls would fail below that."""
    made = FakeImplCtx.create_unbacked_symint

    def make(context: FakeImplCtx, *, min: int = 0, max: int | None = None) -> torch.SymInt:
        return context.new_dynamic_size(min=min, max=max)

    FakeImplCtx.create_unbacked_symint = make  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        FakeImplCtx.create_unbacked_symint = made  # type: ignore[method-assign]


def _export(
    model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None, dynamic_shapes: Any
) -> ExportedProgram:
    forget_traces()
    with (
        layers_are_scans(),
        distances_are_direct(),
        formats_leave_no_guards(),
        packing_is_traced(),
        _found_sizes_may_be_small(),
        LayoutReads(),
        losses_are_traced(),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings(
            "ignore", "The tensor attributes .*_flat_weights", UserWarning
        )  # recurrent layers'
        return torch.export.export(
            model, tuple(args), dict(kwargs or {}), dynamic_shapes=dynamic_shapes, strict=False
        )
