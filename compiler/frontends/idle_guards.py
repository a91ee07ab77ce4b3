"""Assumptions of a trace that change nothing: a trace at sizes that break them gives the same program.

torch compares sizes of intermediate results with 0 and 1 to choose strides, or between a view and a copy.
Such a guard, `h//2 != 1` for example, refuses sizes at which the model works as at any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import sympy
import torch
from sympy.core.relational import Relational
from torch.export import ExportedProgram

from .dynamic_shapes import user_inputs
from .early_refusal import EarlyRefusal
from .guards import excludes_0_and_1, parts_of
from .narrowing import at, conditions, is_broken
from .symbols import finite

Sizes = Mapping[sympy.Symbol, int]
_TRIED = (*range(2, 65), 1)  # sizes; torch.export specialises 1, unless it traces sizes 0 and 1 as others
_NUMBERS = (0, 1, 2)
_MOST_TRACES = 2
_MOST_GUARDS = 64  # each is evaluated at many sizes
_MOST_ELEMENTS = 1 << 24  # of an input of a trace


def drop_idle_guards(
    program: ExportedProgram, example: Sizes, trace_at: Callable[[Sizes], ExportedProgram]
) -> None:
    """Drop the assumptions about intermediate sizes that `trace_at`, a trace of the same model with such
    inputs, shows to change nothing. `example`: the sizes of the program's example."""
    if len(getattr(program, "_guards_code", ())) > _MOST_GUARDS:
        return
    found = list(conditions(program, example))
    doubtful = {text: condition for text, condition in found if all(map(_is_doubtful, parts_of(condition)))}
    certain = [condition for text, condition in found if text not in doubtful and not _is_of_small(condition)]
    points: dict[frozenset[str], Sizes] = {}
    for sizes, texts in _broken(program, example, doubtful, certain):
        points.setdefault(texts, sizes)
    idle: set[str] = set()
    for texts in sorted(points, key=len, reverse=True)[:_MOST_TRACES]:
        if not texts <= idle and _is_traced_alike(program, trace_at, points[texts]):
            idle |= texts
    program._guards_code = [text for text in program._guards_code if text not in idle]


def _is_traced_alike(
    program: ExportedProgram, trace_at: Callable[[Sizes], ExportedProgram], sizes: Sizes
) -> bool:
    try:
        return _text(trace_at(sizes), sizes) == _text(program, sizes)
    except (Exception, EarlyRefusal):  # whatever torch or the model raises: it needs what it assumes
        return False


def _is_of_small(condition: Any) -> bool:
    """Whether a condition excludes 0 or 1 only, at which programs are compared with their models."""
    return all(excludes_0_and_1(part) is not None for part in parts_of(condition))


def _is_doubtful(part: Any) -> bool:
    """Whether a condition compares strides, which are products of max(1, size), or compares a size that is
    none of an input with 0 or 1."""
    if not isinstance(part, Relational):
        return False
    number, size = sorted(part.args, key=lambda side: not side.is_Integer)
    is_of_strides = any(1 in found.args for found in part.atoms(sympy.Max))
    return is_of_strides or (number in _NUMBERS and not size.is_Symbol)


def _broken(
    program: ExportedProgram, example: Sizes, doubtful: Mapping[str, Any], certain: Sequence[Any]
) -> Iterator[tuple[Sizes, frozenset[str]]]:
    """Yield sizes that the program's inputs may have otherwise, and the doubtful conditions that they
    break."""
    theirs = {name for condition in doubtful.values() for name in condition.free_symbols} & set(example)
    seen: set[str] = set()
    for value in _TRIED:
        for names in (theirs, set(example)):
            sizes = {name: value if name in names else size for name, size in example.items()}
            broken = frozenset(text for text, each in doubtful.items() if is_broken(each, sizes))
            broken = broken - seen if value == 1 else broken
            is_allowed = _are_allowed(program, sizes) and not any(is_broken(each, sizes) for each in certain)
            if broken and is_allowed:
                seen |= broken
                yield sizes, broken


def _are_allowed(program: ExportedProgram, sizes: Sizes) -> bool:
    given = ((size, program.range_constraints.get(name)) for name, size in sizes.items())
    limits = [(size, finite(found.lower), finite(found.upper)) for size, found in given if found is not None]
    values = (node.meta["val"] for node in user_inputs(program))
    shapes = [value.shape for value in values if isinstance(value, torch.Tensor)]
    return all(_least(low) <= size <= (size if high is None else high) for size, low, high in limits) and all(
        prod(at(size, sizes) or 1 for size in shape) <= _MOST_ELEMENTS for shape in shapes
    )


def _least(low: int | None) -> int:
    """Return the lower bound of a size; tracing alone keeps 0 and 1 out."""
    return 0 if low is None or low == 2 else low


def _text(program: ExportedProgram, sizes: Sizes) -> list[str]:
    """Return the operators of a program, with the shapes of their results at some sizes of its inputs: a
    condition decides the rows of each part of `tensor_split`, for example."""
    return [f"{node.format_node()} {_shapes_at(node.meta.get('val'), sizes)}" for node in program.graph.nodes]


def _shapes_at(value: Any, sizes: Sizes) -> Any:
    if isinstance(value, torch.Tensor):
        return [str(size) if (found := at(size, sizes)) is None else found for size in value.shape]
    return [_shapes_at(each, sizes) for each in value] if isinstance(value, list | tuple) else None
