"""The code generator's own code, which the keys of compiled kernels depend on.

It comes from the modules' own loaders, so that a program without source files (only `.pyc` files, a zip
file, a frozen program) has keys that depend on it, too.
"""

from __future__ import annotations

import os
import pkgutil
import secrets
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from types import CodeType
from typing import Any

from ... import jit


class Sources(Mapping[str, bytes]):
    """The source, or its substitute, of each module of the package `jit`, including its rooms, by name and
    independent of its location. Each is read when it is used: together they are 1.2 MB."""

    def __init__(self) -> None:
        inner = pkgutil.walk_packages(jit.__path__, f"{jit.__name__}.")
        self._names = (jit.__name__, *(module.name for module in inner))

    def __getitem__(self, name: str) -> bytes:
        return _code_of(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def generator_sources() -> Sources:
    """Return the sources of the code generator."""
    return Sources()


def _code_of(name: str) -> bytes:
    """Return a module's source, or else its bytecode, or else the file that was compiled from it. If the
    loader has none of these, other processes cannot identify the code, so compiled kernels serve only this
    one."""
    spec = find_spec(name)
    loader: Any = spec and spec.loader
    if (source := _asked(loader, "get_source", name)) is not None:
        return source.encode()
    if (code := _asked(loader, "get_code", name)) is not None:
        return _text(code).encode()
    assert spec is not None
    return _asked(loader, "get_data", spec.origin) or secrets.token_bytes()


def llvm_version() -> bytes:
    """Return what distinguishes versions of llvmlite: its file of them. importlib.metadata, which is asked if
    there is none, would take 1.4 MiB."""
    spec = find_spec("llvmlite")
    file = os.path.join(os.path.dirname(spec and spec.origin or ""), "_version.py")
    code: bytes | None = _asked(spec and spec.loader, "get_data", file)
    if code is None:
        from importlib.metadata import version

        code = version("llvmlite").encode()
    return code


def _asked(loader: Any, method: str, argument: str | None) -> Any:
    """Return a loader's answer, None if it has no such method or no answer."""
    try:
        return getattr(loader, method)(argument)
    except (AttributeError, ImportError, OSError, TypeError):
        return None


def _text(value: Any) -> str:
    """Return a constant of bytecode, or bytecode, as text: without file names and line numbers, sets in
    order."""
    if isinstance(value, CodeType):
        names = (value.co_name, value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars)
        counts = (value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount, value.co_flags)
        return _text((value.co_code, value.co_exceptiontable, value.co_consts, names, counts))
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))})"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(_text, value)))}}}"
    return repr(value)
