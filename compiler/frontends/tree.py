"""torch's TreeSpec as structures of `shapevm.calls.pytree`."""

from __future__ import annotations

import hashlib
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial, reduce
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.utils._pytree import (
    SUPPORTED_NODES,
    TreeSpec,
    tree_flatten_with_path,
    tree_unflatten,
    treespec_dumps,
)

from ...calls.pytree import LEAF, Structure, distinct
from ...calls.records import class_name, registered_class
from ..ir.errors import UnsupportedOp

Leaves = Iterator[tuple[bool, Any]]  # (it is a constant, its value) of every leaf


def structure_of(spec: TreeSpec, leaves: Leaves) -> Structure:
    """Return the structure of `spec`. Raises UnsupportedOp for a container that JSON cannot represent."""
    if spec.is_leaf():
        constant, value = next(leaves)
        return {"constant": value} if constant else LEAF
    children, kind, context = spec.children(), spec.type, spec.context
    if kind in (list, tuple, torch.Size):  # a Size comes back as the tuple that it is
        return {"list" if kind is list else "tuple": [structure_of(child, leaves) for child in children]}
    if kind in (dict, OrderedDict, defaultdict):
        keys = context[1] if kind is defaultdict else context
        return _dict(keys, [structure_of(child, leaves) for child in children])
    inner = [structure_of(child, leaves) for child in children]
    if kind.__name__ == "namedtuple":
        return {"namedtuple": class_name(context), "fields": dict(zip(context._fields, inner, strict=True))}
    if issubclass(kind, tuple) and hasattr(kind, "__match_args__"):  # torch.return_types
        fields = dict(zip(kind.__match_args__, inner, strict=True))
        return {"namedtuple": class_name(kind), "fields": fields}
    names = _field_names(context, len(inner))
    if names is None:
        return _registered(spec, inner)
    return {"object": class_name(kind), "fields": dict(zip(names, inner, strict=True))}


def _registered(spec: TreeSpec, inner: list[Structure]) -> Structure:
    """Return the structure of an object of a class that is registered with torch's pytrees."""
    kind, context = spec.type, spec.context
    try:
        text = treespec_dumps(spec)
    except (NotImplementedError, TypeError, ValueError):  # a class or context without a text form
        text = f"{kind!r} {context!r} {inner!r}"
    digest = hashlib.sha256(text.encode()).hexdigest()
    make = SUPPORTED_NODES[kind].unflatten_fn
    name = registered_class(kind, lambda items: make(items, context), digest)
    return {"object": name, "fields": {str(i): x for i, x in enumerate(inner)}, "registered": digest}


def _dict(keys: list[Any], items: list[Structure]) -> Structure:
    if all(isinstance(key, str) for key in keys):
        return {"dict": dict(zip(keys, items, strict=True))}
    if all(isinstance(key, int) for key in keys):
        return {"dict": {str(key): item for key, item in zip(keys, items, strict=True)}, "int_keys": True}
    raise UnsupportedOp(f"a dict of inputs or outputs has the keys {keys}; they must be all str or all int")


def _field_names(context: Any, n: int) -> list[str] | None:
    """Return the field names in the context of a registered class: a list of them, alone or first in a list
    or tuple."""
    for names in (context, context[0] if isinstance(context, list | tuple) and context else None):
        if (
            isinstance(names, list | tuple)
            and len(names) == n
            and all(isinstance(name, str) for name in names)
        ):
            return list(names)
    return None


def signature_of(program: ExportedProgram) -> dict[str, Any]:
    """Return the signature (`shapevm.calls.pytree`) of calls of `program`.

    Arguments exported by name are passed by name: the program does not know the order of the model's
    parameters (`forward_of` may).
    """
    by_position, by_name = _arguments(program)
    positional = distinct((name for name, _ in by_position), (name for name, _ in by_name))
    specs = [*zip(positional, (spec for _, spec in by_position), strict=True), *by_name]
    leaves = iter(_leaves(program))
    return {
        "positional": positional,
        "parameters": {name: structure_of(spec, leaves) for name, spec in specs},
    }


def forward_of(program: ExportedProgram) -> Any:
    """Return `forward` of the class that `program` was exported of, which knows the order of its parameters;
    None if this process does not have the class by the name in the program's nodes."""
    stacks = (node.meta.get("nn_module_stack") or {} for node in program.graph.nodes)
    whole = (entry[1] for stack in stacks for entry in stack.values() if entry[0] == "")
    forward = getattr(_loaded(str(next(whole, ""))), "forward", None)
    return partial(forward, None) if forward is not None else None


def _loaded(name: str) -> Any:
    """Return the object under a dotted name in modules of this process, or None."""
    parts = name.split(".")
    for n in range(len(parts) - 1, 0, -1):
        found: Any = sys.modules.get(".".join(parts[:n]))
        if found is not None:
            return reduce(lambda x, part: getattr(x, part, None), parts[n:], found)
    return None


def guarded_paths(program: ExportedProgram) -> list[tuple[str, ...]]:
    """Return, for every input that is not a constant, the path by which guards name it: the argument's name
    and its keys. An element of *args that is named as another argument gets a star before its name."""
    by_position, by_name = _arguments(program)
    found, used = [], {name for name, _ in by_name}
    for name, spec in by_position:
        found += [(f"*{name}" if name in used else name, *path) for path in _paths(spec)]
        used.add(name)
    found += [(name, *path) for name, spec in by_name for path in _paths(spec)]
    is_constant = [constant for constant, _ in _leaves(program)]
    return [path for path, constant in zip(found, is_constant, strict=True) if not constant]


def flat_positions(program: ExportedProgram) -> list[int]:
    """Return, for every input that is not a constant, its position among all: a strict export names it so."""
    return [i for i, (constant, _) in enumerate(_leaves(program)) if not constant]


def by_guarded_path(program: ExportedProgram, sizes: Iterable[Any]) -> dict[tuple[str, ...], Any]:
    """Return the sizes of inputs that are not constants, given in order, under the paths that guards use."""
    names = zip(guarded_paths(program), flat_positions(program), strict=True)
    found: dict[tuple[str, ...], Any] = {}
    for (path, position), size in zip(names, sizes, strict=False):
        found[path] = found["flat_args", str(position)] = size
    return found


def _arguments(program: ExportedProgram) -> list[list[tuple[str, TreeSpec]]]:
    """Return the names and structures of the arguments given by position, and of those given by name. An
    element of *args may be named as another argument."""
    args, kwargs = program.call_spec.in_spec.children()
    signature = program.module_call_graph[0].signature
    names = list(getattr(signature, "forward_arg_names", None) or [])[: len(args.children())]
    names += [f"arg{i}" for i in range(len(names), len(args.children()))]
    return [
        list(zip(names, args.children(), strict=True)),
        list(zip(kwargs.context or [], kwargs.children(), strict=True)),
    ]


def _leaves(program: ExportedProgram) -> list[tuple[bool, Any]]:
    specs = [spec for spec in program.graph_signature.input_specs if spec.kind == InputKind.USER_INPUT]
    return [(isinstance(s.arg, ConstantArgument), getattr(s.arg, "value", None)) for s in specs]


def _paths(spec: TreeSpec) -> list[tuple[str, ...]]:
    """Return the keys that lead to every leaf."""
    with suppress(Exception):  # a class of the user's, made of numbers in place of tensors
        marked = tree_unflatten(range(spec.num_leaves), spec)
        found = tree_flatten_with_path(marked)[0]
        if [leaf for _, leaf in found] == list(range(spec.num_leaves)):
            return [tuple(map(_key, path)) for path, _ in found]
    if spec.is_leaf():
        return [()]
    keys = spec.context if spec.type in (dict, OrderedDict) else range(spec.num_children)
    pairs = zip(keys, spec.children(), strict=True)
    return [(str(key), *path) for key, child in pairs for path in _paths(child)]


def _key(key: Any) -> str:
    """Return one step of torch's path to a leaf: a key, a position or a field's name."""
    return next(str(getattr(key, field)) for field in ("key", "idx", "name") if hasattr(key, field))
