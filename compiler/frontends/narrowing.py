"""The sizes that the user left free and a trace narrows, and whether a trace holds for the example itself."""

from __future__ import annotations

import logging
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves, tree_map_only, tree_unflatten

from ..ir.errors import UnsupportedOp
from ..ir.graph import SymbolInfo
from .dynamic_shapes import axis_dim, dims_of_inputs, is_dynamic, user_inputs, with_size
from .evaluation import in_evaluation
from .fx_nodes import is_operator, schema_arguments
from .guards import excludes_0_and_1, parse_guard, parts_of
from .nodes import node_argument
from .symbols import finite
from .tree import by_guarded_path, flat_positions

_LOG = logging.getLogger("shapevm")
_LEAST = 2  # torch.export's own least size of a dynamic axis
_MOST = 2**62  # no tensor has this many elements


@dataclass(frozen=True)
class Narrowed:
    """An axis of an input that the user marked as dynamic, and its remaining sizes. `is_avoidable`: another
    trace may leave more."""

    axis: str
    left: str
    is_avoidable: bool

    def __str__(self) -> str:
        return f"{self.axis} {self.left} in this model"


def sizes_in(
    program: ExportedProgram, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[sympy.Symbol, int] | None:
    """Return the value of each of a program's symbols in these arguments; None if they do not fit, for
    instance if two axes differ that the program assumes equal."""
    leaves = _leaves(program, args, kwargs)
    found: dict[sympy.Symbol, int] = {}
    pairs = [
        (size, actual)
        for node, leaf in zip(user_inputs(program), leaves, strict=True)
        if isinstance(leaf, torch.Tensor)
        for size, actual in zip(node.meta["val"].shape, leaf.shape, strict=True)
    ]
    for size, actual in pairs:
        if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
            found.setdefault(size.node.expr, actual)
    return found if all(at(size, found) in (actual, None) for size, actual in pairs) else None


def _leaves(program: ExportedProgram, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the leaves of arguments in the order of a program's inputs."""
    spec = program.call_spec.in_spec
    assert spec is not None
    _, named = tree_unflatten(range(spec.num_leaves), spec)
    return tree_leaves((tuple(args), {name: kwargs[name] for name in named}))


def arguments_at(
    program: ExportedProgram,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    sizes: Mapping[sympy.Symbol, int],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with their rows cut or repeated to these sizes of a program's symbols."""
    leaves = _leaves(program, args, kwargs)
    for i, node in enumerate(user_inputs(program)):
        if isinstance(leaves[i], torch.Tensor):
            for axis, size in enumerate(node.meta["val"].shape):
                leaves[i] = with_size(leaves[i], axis, at(size, sizes))
    spec = program.call_spec.in_spec
    assert spec is not None
    made: tuple[tuple[Any, ...], dict[str, Any]] = tree_unflatten(leaves, spec)
    return made


def at(size: int | torch.SymInt, sizes: Mapping[sympy.Symbol, int]) -> int | None:
    """Return a size for these values of the symbols; None if it has other symbols."""
    if isinstance(size, int):
        return size
    found = _value(size.node.expr, sizes)
    return int(found) if found is not None and found.is_Integer else None


def is_broken(condition: Any, sizes: Mapping[sympy.Symbol, int]) -> bool:
    """Whether a condition is false, or divides by zero, for these values of its symbols."""
    found = _value(condition, sizes)
    return found is None or found == sympy.false or found != sympy.true and not found.free_symbols


def _value(expr: Any, sizes: Mapping[sympy.Symbol, int]) -> Any:
    """Return an expression with these values of its symbols; None where sympy finds a division by zero among
    the arguments of a `Max`."""
    try:
        return expr.xreplace({name: sympy.Integer(value) for name, value in sizes.items()})
    except (ValueError, ZeroDivisionError):
        return None


def narrowed_axes(program: ExportedProgram, dynamic_shapes: Any) -> list[Narrowed]:
    """Return the axes that `dynamic_shapes` marks as dynamic and for which the program accepts fewer sizes
    than the user, or torch.export's default, allows."""
    nodes = user_inputs(program)
    found: dict[str, Narrowed] = {}
    for node, dims in zip(nodes, dims_of_inputs(program, dynamic_shapes, len(nodes)), strict=True):
        value = node.meta.get("val")
        for axis, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if is_dynamic(dim := axis_dim(dims, axis)):
                key = f"axis {axis} of {node.name}" if at(size, {}) is not None else str(size)
                for lost in _lost(program, f"axis {axis} of {node.name}", size, dim):
                    found.setdefault(key, lost)
    return list(found.values())


def _lost(program: ExportedProgram, axis: str, size: int | torch.SymInt, dim: Any) -> Iterator[Narrowed]:
    if (fixed := at(size, {})) is not None:
        yield Narrowed(axis, f"is always {fixed}", fixed < _LEAST)
    elif (
        isinstance(size, torch.SymInt)
        and (limits := program.range_constraints.get(size.node.expr)) is not None
    ):
        low, high = finite(limits.lower), finite(limits.upper)
        most, least = getattr(dim, "max", None), max(getattr(dim, "min", None) or 0, _LEAST)
        if high is not None and high < min(_MOST, _MOST if most is None else most):
            yield Narrowed(axis, f"is at most {high}", True)
        elif low is not None and low > least:
            yield Narrowed(axis, f"is at least {low}", False)


def holds(program: ExportedProgram, sizes: Mapping[sympy.Symbol, int]) -> bool:
    """Whether the assumptions of a trace about sizes hold for these values of its symbols. Those that only
    exclude 0 or 1 do not count: programs are compared with the model there."""
    parts = (part for _, condition in conditions(program, sizes) for part in parts_of(condition))
    return all(not is_broken(part, sizes) or excludes_0_and_1(part) is not None for part in parts)


def conditions(program: ExportedProgram, names: Iterable[sympy.Symbol]) -> Iterator[tuple[str, Any]]:
    """Yield the text and the condition of each assumption of a trace about sizes of these names."""
    nodes = user_inputs(program)
    values = (nodes[position].meta.get("val") for position in flat_positions(program))
    shapes = by_guarded_path(program, map(_size_of, values))
    symbols = {str(name): SymbolInfo(str(name), 0, None) for name in names}
    for text in getattr(program, "_guards_code", None) or ():
        try:
            yield text, parse_guard(text, shapes, symbols)
        except UnsupportedOp:  # the import says so
            continue


def _size_of(value: Any) -> Any:
    """Return the size of an int or the sizes of a tensor as guards compare them."""
    if isinstance(value, torch.Tensor):
        return tuple(map(_size_of, value.shape))
    return value.node.expr if isinstance(value, torch.SymInt) else value


def squeezes_ones(program: ExportedProgram, sizes: Mapping[Any, int]) -> bool:
    """Whether a program keeps an axis that its example's size of 1 should have squeezed away."""
    return any(
        is_operator(node)
        and str(node.target).startswith("aten.squeeze")  # its copy as well
        and any(not isinstance(size, int) and at(size, sizes) == 1 for size in _squeezed(node))
        for node in program.graph.nodes
    )


def may_have_stretched(program: ExportedProgram, sizes: Mapping[Any, int]) -> bool:
    """Whether a program needs a size that data decide to equal one that is 1 in its example: there the model
    may have broadcast an axis of size 1."""
    return any(
        node.target is operator.eq and _equates_one(map(_traced_size, node.args), sizes)
        for node in program.graph.nodes
    )


def _equates_one(sides: Iterable[Any], sizes: Mapping[Any, int]) -> bool:
    pairs = [(side, _value(side, sizes)) for side in sides]
    are_known = [there is not None and not there.free_symbols for _, there in pairs]
    return are_known.count(True) == 1 and any(side.free_symbols and there == 1 for side, there in pairs)


def _traced_size(argument: Any) -> Any:
    """Return an operand of a comparison before equal sizes were merged."""
    value = argument.meta.get("val") if isinstance(argument, torch.fx.Node) else argument
    return value.node._expr if isinstance(value, torch.SymInt) else sympy.sympify(value)


def runs(program: ExportedProgram, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether PyTorch runs a program with copies of these arguments."""
    return _results(program.module(check_guards=False), args, kwargs) is not None


def gives_as(
    program: ExportedProgram, model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> bool:
    """Whether PyTorch gives the same for copies of these arguments by a program and by its model."""
    found = _results(program.module(check_guards=False), args, kwargs)
    with in_evaluation(model):
        wanted = _results(model, args, kwargs)
    return found is not None and wanted is not None and _are_alike(found, wanted)


def _are_alike(found: Sequence[Any], wanted: Sequence[Any]) -> bool:
    pairs = [(a, b) for a, b in zip(found, wanted, strict=False) if isinstance(b, torch.Tensor)]
    return len(found) == len(wanted) and all(
        a.shape == b.shape
        and a.dtype == b.dtype
        and torch.allclose(_comparable(a), _comparable(b), 1e-2, 1e-3, equal_nan=True)
        for a, b in pairs
    )


def _comparable(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor in a dtype that PyTorch compares: floats of 8 bits have no arithmetic."""
    return x.float() if x.is_floating_point() and x.itemsize == 1 else x


def _results(module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any] | None:
    """Return the results for copies of arguments; None if the module does not take them."""
    given, named = tree_map_only(torch.Tensor, torch.clone, (tuple(args), dict(kwargs)))
    before = {buffer: buffer.clone() for buffer in module.buffers()}  # the model's own, which calls change
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            return tree_leaves(module.forward(*given, **named))  # without the checks of ranges
    except Exception as error:  # whatever an operator raises
        _LOG.debug("a trace does not run with the example: %s", error)
        return None
    finally:
        with torch.no_grad():
            for buffer, value in before.items():
                buffer.copy_(value)


def _squeezed(node: torch.fx.Node) -> list[int | torch.SymInt]:
    """Return the sizes of the axes of a squeeze."""
    shape, dims = node_argument(node).meta["val"].shape, schema_arguments(node)[1:]
    axes = dims[0] if dims and isinstance(dims[0], Sequence) else dims or range(len(shape))
    return [shape[axis] for axis in axes] if shape else []  # of a number axes 0 and -1 may be named
