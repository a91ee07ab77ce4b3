"""Opening a TorchScript program, and its signature: which arguments are tensors, numbers or constants."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ....vm.errors import ArgumentError, FileError
from ....vm.spelling import nearest
from ...ir.errors import ArchiveError, UnsupportedOp
from ..archive import read_archive
from ..archive.writer import write_archive
from ..kinds import Script
from .bounds import CallCounter

METHOD = "forward"


#: Errors of torch's compiler for code that it refuses.
_REFUSED = (RuntimeError, IndexError, ValueError, OverflowError, TypeError, NotImplementedError)


def load_script(path: str | os.PathLike[str]) -> Any:
    """Return the module of a file that `torch.jit.save` wrote.

    torch gets a file that is rewritten from values that our reader has checked: neither pickles nor code of
    the given file are run. Raises ArchiveError for unsupported content, FileError for a file that cannot be
    opened.
    """
    try:
        archive = read_archive(path)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}") from None
    with tempfile.TemporaryDirectory() as folder:
        checked = os.path.join(folder, "model.pt")
        write_archive(archive, checked)
        try:
            return _loaded(checked)
        except ArchiveError:
            raise
        except _REFUSED as error:
            reason = next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason")
            raise ArchiveError(
                f"torch refuses the code or the values of {path}: {reason[:500].rstrip('.:')}"
            ) from None


def _loaded(path: str) -> Any:
    """Return the module of a file like torch.jit.load, after checking the size of its program."""
    unit = torch._C.CompilationUnit()
    read: Any = torch._C.import_ir_module  # its declared type lacks arguments
    module: Any = read(unit, path, torch.device("cpu"), {}, False)
    if module._has_method(METHOD):
        CallCounter(unit).check(f"{module._type().qualified_name()}.{METHOD}")
    return torch.jit._recursive.wrap_cpp_module(module)


def open_script(
    model: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    optional_examples: Mapping[str, Any] | None = None,
) -> Script:
    """Return the program of `model`, all calls inlined. `optional_examples`: example values of arguments that
    are None in the example. Raises UnsupportedOp if arguments are missing, ArgumentError for examples of
    others."""
    is_function = isinstance(model, torch.jit.ScriptFunction)
    found = model if is_function else _method(model)
    schema = _named_apart(found.schema.arguments if is_function else found.schema.arguments[1:])
    graph = found.graph.copy()
    torch._C._jit_pass_inline(graph)
    given, defaults = _bound(schema, args, dict(kwargs or {}))
    for name, value in (optional_examples or {}).items():
        _check_optional(name, {name: each.type for name, each in schema.items()}, given)
        given[name] = value
        defaults.pop(name, None)
    given = {name: given[name] for name in schema if name in given}
    for name, x in given.items():
        wanted = schema[name].type
        is_none = x is None and wanted.kind() not in _MAY_BE_NONE
        if is_none or (wanted.kind() == "TensorType" and not isinstance(x, torch.Tensor)):
            kind = "None" if x is None else f"a {type(x).__name__}"
            raise UnsupportedOp(
                f"argument {name} of the example is {kind}; the program takes {wanted.annotation_str}"
            )
    positional = tuple(name for name, each in schema.items() if not each.kwarg_only)
    return Script(graph, None if is_function else model._c, given, positional, defaults)


_MAY_BE_NONE = ("OptionalType", "NoneType", "UnionType", "AnyType")


def _method(model: Any) -> Any:
    """Return the method that a call of a module runs; for a scripted recurrent layer, which has one for
    tensors and one for packed sequences, the one for tensors."""
    methods = model._c._method_names()
    found = next((name for name in (METHOD, f"{METHOD}__0") if name in methods), None)
    if found is None:
        raise UnsupportedOp(
            f"the module has no method {METHOD}; its methods are {', '.join(methods) or 'none'}. Script or "
            f"trace a module whose {METHOD} calls what is wanted"
        )
    return model._c._get_method(found)


def _named_apart(schema: Sequence[Any]) -> dict[str, Any]:
    """Return arguments by name. Tracing may give several the same name: later ones get a number."""
    found: dict[str, Any] = {}
    for each in schema:
        names = (each.name, *(f"{each.name}_{i}" for i in range(1, len(schema) + 1)))
        found[next(name for name in names if name not in found)] = each
    return found


def _bound(
    schema: Mapping[str, Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    names = list(schema)
    if len(args) > len(names):
        raise UnsupportedOp(
            f"{len(args)} arguments are given; the program takes {', '.join(names) or 'none'}"
        )
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    unknown = [name for name in given if name not in names]
    if unknown:
        raise UnsupportedOp(f"argument {unknown[0]} is unknown; the program takes {', '.join(names)}")
    left = {name: each for name, each in schema.items() if name not in given}
    missing = [name for name, each in left.items() if not each.has_default_value()]
    if missing:
        raise UnsupportedOp(
            f"the example has no argument {missing[0]}: give args= for every argument of the program, so "
            "that its dtypes and ranks are known"
        )
    return {name: given[name] for name in names if name in given}, {
        name: each.default_value for name, each in left.items()
    }


def _check_optional(name: str, types: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise ArgumentError for a name that is not an argument that is None in the example."""
    if name not in types:
        hint = nearest(name, list(types), f"there are {', '.join(types) or 'none'}")
        raise ArgumentError(f"optional_examples names {name!r}, which is no argument of the program; {hint}")
    if types[name].kind() != "OptionalType":
        raise ArgumentError(
            f"optional_examples names {name!r}, which is a {types[name].annotation_str}, never None; give it "
            "in args or kwargs"
        )
    if given.get(name) is not None:
        raise ArgumentError(f"optional_examples names {name!r}, which the example gives, too; leave out one")


def attribute_of(owner: Any, name: str) -> Any:
    """Return an attribute of a module or object; modules are in evaluation mode. torch gives objects of
    classes that it compiled as instances of the Python class."""
    if name == "training" and isinstance(owner, torch._C.ScriptModule):
        return False
    return owner.getattr(name) if hasattr(owner, "getattr") else getattr(owner, name)


_LINE = re.compile(r'^\s*(?:Serialized\s+)?File "([^"]*)", line (\d+)', re.MULTILINE)
_TORCH = os.path.dirname(torch.__file__) + os.sep


def source_of(node: Any) -> str:
    """Return "file.py:31", the innermost line of the model outside of torch, or ""."""
    lines = _LINE.findall(node.sourceRange())
    ours = [line for line in lines if not line[0].startswith((_TORCH, "<"))] or lines
    return f"{ours[0][0].rsplit('/', 1)[-1]}:{ours[0][1]}" if ours else ""
