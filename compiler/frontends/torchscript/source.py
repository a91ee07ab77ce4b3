"""Opening a TorchScript program, and its signature: which arguments are tensors, numbers or constants."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ....settings import nearest
from ....vm.errors import ArgumentError, FileError
from ...ir.errors import ArchiveError, UnsupportedOp
from ..archive import read_archive
from ..archive.writer import write_archive
from ..kinds import Script
from .bounds import CallCounter

METHOD = "forward"


#: What torch's compiler raises for code that it refuses.
_REFUSED = (RuntimeError, IndexError, ValueError, OverflowError, TypeError, NotImplementedError)


def load_script(path: str | os.PathLike[str]) -> Any:
    """Return the module of a file that `torch.jit.save` wrote.

    torch gets a file that is written anew from what our own reader has checked: no pickle of the given file
    is run, and none of its code. Raises ArchiveError for what is not read, FileError for what cannot be
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
                f"torch refuses the code or the values of {path}: {reason.rstrip('.:')}"
            ) from None


def _loaded(path: str) -> Any:
    """Return the module of a file as torch.jit.load does, once it is known how large its program is."""
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
    """Return the program of `model`, all calls inlined. `optional_examples`: of arguments that are None in
    the example. Raises UnsupportedOp where arguments are missing, ArgumentError for examples of others."""
    is_function = isinstance(model, torch.jit.ScriptFunction)
    if isinstance(model, torch.jit.ScriptModule):
        model.eval()
    found = model if is_function else model._c._get_method(METHOD)
    schema = found.schema.arguments if is_function else found.schema.arguments[1:]
    graph = found.graph.copy()
    torch._C._jit_pass_inline(graph)
    given, defaults = _bound(schema, args, dict(kwargs or {}))
    for name, value in (optional_examples or {}).items():
        _check_optional(name, {each.name: each.type for each in schema}, given)
        given[name] = value
        defaults.pop(name, None)
    given = {each.name: given[each.name] for each in schema if each.name in given}
    positional = tuple(each.name for each in schema if not each.kwarg_only)
    return Script(graph, None if is_function else model._c, given, positional, defaults)


def _bound(
    schema: Sequence[Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    names = [each.name for each in schema]
    if len(args) > len(names):
        raise UnsupportedOp(
            f"{len(args)} arguments are given; the program takes {', '.join(names) or 'none'}"
        )
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    unknown = [name for name in given if name not in names]
    if unknown:
        raise UnsupportedOp(f"argument {unknown[0]} is unknown; the program takes {', '.join(names)}")
    left = [each for each in schema if each.name not in given]
    missing = [each.name for each in left if not each.has_default_value()]
    if missing:
        raise UnsupportedOp(
            f"the example has no argument {missing[0]}: give args= for every argument of the program, so "
            "that its dtypes and ranks are known"
        )
    return {name: given[name] for name in names if name in given}, {e.name: e.default_value for e in left}


def _check_optional(name: str, types: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise ArgumentError for the name of what is no argument that is None in the example."""
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
    """Return an attribute of a module or object. torch gives objects of classes that it compiled as instances
    of the Python class."""
    return owner.getattr(name) if hasattr(owner, "getattr") else getattr(owner, name)


_LINE = re.compile(r'^\s*(?:Serialized\s+)?File "([^"]*)", line (\d+)', re.MULTILINE)
_TORCH = os.path.dirname(torch.__file__) + os.sep


def source_of(node: Any) -> str:
    """Return "file.py:31", the innermost line of the model outside of torch, or ""."""
    lines = _LINE.findall(node.sourceRange())
    ours = [line for line in lines if not line[0].startswith((_TORCH, "<"))] or lines
    return f"{ours[0][0].rsplit('/', 1)[-1]}:{ours[0][1]}" if ours else ""
