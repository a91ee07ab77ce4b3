"""A caller's specification of a program's inputs: nothing, names, names and shapes, or names, shapes and
dtypes.

    ["ids", "mask"]
    {"ids": ("batch", "length"), "mask": ("batch", 1, "length")}
    {"ids": (("batch", "length"), "i64"), "mask": None}

A size is an int, a name or a `torch.export.Dim`; equal names are equal sizes. A dtype is one of ours
("f32"), of torch's or numpy's. The artifact and `shapevm-run` use the names. If no example inputs are given,
they are made from the shapes; so is `dynamic_shapes`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..calls.pytree import LEAF, signature_data, to_json
from ..vm.arrays import TORCH_DTYPES
from ..vm.errors import ArgumentError

if TYPE_CHECKING:
    from ..compiler.ir.graph import Graph

_OURS = {full: name for name, full in TORCH_DTYPES.items()}
_FIRST_SIZE = 4  # of example inputs: each further symbol takes the next


@dataclass(frozen=True)
class InputSpec:
    """One input. `shape`: None if unspecified; `dtype`: our name of it, "" if unspecified."""

    name: str
    shape: tuple[Any, ...] | None = None
    dtype: str = ""


def read_inputs(given: Any) -> list[InputSpec]:
    """Return the specs of the inputs in order. Raises ArgumentError for an invalid specification."""
    if isinstance(given, str) or not isinstance(given, Mapping | Sequence):
        raise ArgumentError(f"inputs is {given!r}; give a list of names, or a dict from names to shapes")
    pairs = list(given.items()) if isinstance(given, Mapping) else [(name, None) for name in given]
    for name, _ in pairs:
        if not isinstance(name, str) or not name or "=" in name:
            raise ArgumentError(f"input name {name!r} must be a string that is not empty and has no =")
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise ArgumentError(f"inputs are named {', '.join(names)}; each must have a name of its own")
    return [_spec(name, said) for name, said in pairs]


def _spec(name: str, said: Any) -> InputSpec:
    if said is None:
        return InputSpec(name)
    if not isinstance(said, list | tuple):
        raise ArgumentError(f'input "{name}" is described by {said!r}; give a shape, or (shape, dtype)')
    has_dtype = len(said) == 2 and isinstance(said[0], list | tuple)
    shape, dtype = (tuple(said[0]), _dtype(name, said[1])) if has_dtype else (tuple(said), "")
    for size in shape:
        is_size = isinstance(size, int) and size >= 0
        if not is_size and not isinstance(size, str) and not hasattr(size, "__name__"):
            raise ArgumentError(f'input "{name}" has the size {size!r}; give an int, a name or a Dim')
    return InputSpec(name, shape, dtype)


def _dtype(name: str, dtype: Any) -> str:
    text = str(getattr(dtype, "name", dtype)).removeprefix("torch.")
    if text not in _OURS and text not in TORCH_DTYPES:
        raise ArgumentError(f'input "{name}" has dtype {dtype}; use one of {", ".join(TORCH_DTYPES)}')
    return _OURS.get(text, text)


# Example inputs -------------------------------------------------------------------------------------


def example_inputs(specs: Sequence[InputSpec]) -> tuple[Any, ...]:
    """Return tensors of the shapes and dtypes (by default f32), integers all 0.

    Raises ArgumentError where a shape is missing.
    """
    import torch

    generator, hints = torch.Generator().manual_seed(0), size_hints(specs)
    made = []
    for spec in specs:
        if spec.shape is None:
            raise ArgumentError(f'input "{spec.name}" has no shape; give one, or example inputs')
        shape = [size if isinstance(size, int) else hints[_name(size)] for size in spec.shape]
        dtype = getattr(torch, TORCH_DTYPES[spec.dtype or "f32"])
        is_float = dtype.is_floating_point
        made.append(
            torch.randn(shape, generator=generator).to(dtype) if is_float else torch.zeros(shape, dtype=dtype)
        )
    return tuple(made)


def size_hints(specs: Sequence[InputSpec]) -> dict[str, int]:
    """Return an example value for every named size; they differ as far as their ranges allow."""
    hints: dict[str, int] = {}
    for spec in specs:
        for size in spec.shape or ():
            if not isinstance(size, int) and _name(size) not in hints:
                low, high = getattr(size, "min", None) or 0, getattr(size, "max", None)
                wanted = max(_FIRST_SIZE + len(hints), low)
                hints[_name(size)] = wanted if high is None else min(wanted, int(high))
    return hints


def sizes_of(specs: Sequence[InputSpec]) -> tuple[Any, ...] | None:
    """Return the `dynamic_shapes` for the named sizes of `specs`, None if there are none."""
    from torch.export import Dim

    dims: dict[str, Any] = {}
    made = []
    for spec in specs:
        named = {axis: size for axis, size in enumerate(spec.shape or ()) if not isinstance(size, int)}
        for size in named.values():
            dims.setdefault(_name(size), Dim(size) if isinstance(size, str) else size)
        made.append({axis: dims[_name(size)] for axis, size in named.items()} or None)
    return tuple(made) if dims else None


def _name(size: Any) -> str:
    return size if isinstance(size, str) else str(size.__name__)


# Programs -------------------------------------------------------------------------------------------


def apply_inputs(graph: Graph, specs: Sequence[InputSpec]) -> None:
    """Name the inputs of `graph` according to `specs`.

    Raises ArgumentError if the number of inputs, a shape or a dtype differs.
    """
    own = graph.inputs[: len(graph.inputs) - len(graph.state)]
    if len(specs) != len(own):
        raise ArgumentError(
            f"inputs gives {len(specs)} names; the program has {len(own)} inputs: {', '.join(own) or 'none'}"
        )
    names = dict(zip(own, (spec.name for spec in specs), strict=True))
    for name in graph.inputs[len(own) :]:
        if name in names.values():
            raise ArgumentError(f"input name {name!r} is the program's own state; give another name")
    for spec, value in zip(specs, graph.body.params, strict=False):
        _check(spec, value.type)
    graph.inputs[: len(own)] = names.values()
    if "in_rows" in graph.structure:
        graph.structure["in_rows"] = [names.get(name, name) for name in graph.structure["in_rows"]]
    if "changed" in graph.structure:
        graph.structure["changed"] = [names.get(name, name) for name in graph.structure["changed"]]
        n_changed = {f"changed.{old}": f"changed.{new}" for old, new in names.items()}
        graph.outputs = [n_changed.get(name, name) for name in graph.outputs]
    signature = signature_data(graph.structure["inputs"])
    if all(structure == LEAF for structure in signature["parameters"].values()):
        of_parameters = dict(zip(signature["parameters"], names.values(), strict=True))
        parameters = dict.fromkeys(of_parameters.values(), LEAF)
        positional = [of_parameters[name] for name in signature["positional"]]
        graph.structure["inputs"] = to_json({"positional": positional, "parameters": parameters})


def apply_forward(graph: Graph, forward: Any) -> None:
    """Let calls of `graph` pass by position the arguments that `forward` takes by position, although they
    were exported by name."""
    signature = signature_data(graph.structure["inputs"])
    parameters = signature["parameters"]
    found = list(inspect.signature(forward).parameters.values())
    if any(each.kind == each.VAR_POSITIONAL for each in found):
        return
    placed = [each for each in found if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    last = max((i for i, each in enumerate(placed) if each.name in parameters), default=-1)
    names = []
    for each in placed[: last + 1]:
        if each.name not in parameters:  # the example omits it, so calls must as well
            if each.default is not None and not isinstance(each.default, bool | int | float | str):
                break
            parameters[each.name] = {"constant": each.default}
        names.append(each.name)
    if len(names) > len(signature["positional"]) and set(signature["positional"]) <= set(names):
        graph.structure["inputs"] = to_json({"positional": names, "parameters": parameters})


def _check(spec: InputSpec, type: Any) -> None:
    shape, dtype = getattr(type, "shape", None), getattr(type, "dtype", "")
    if spec.dtype and spec.dtype != dtype:
        raise ArgumentError(f'input "{spec.name}" is said to be {spec.dtype}; the program takes {type}')
    if spec.shape is None:
        return
    same_rank = shape is not None and len(shape) == len(spec.shape)
    if not same_rank or any(
        isinstance(said, int) and isinstance(size, int) and said != size
        for said, size in zip(spec.shape, shape or (), strict=False)
    ):
        said = ", ".join(str(size) if isinstance(size, int) else _name(size) for size in spec.shape)
        raise ArgumentError(f'input "{spec.name}" is said to have shape [{said}]; the program takes {type}')
