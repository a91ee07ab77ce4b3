"""Checked archives rewritten for torch's TorchScript compiler: they contain no byte of the file's zip and
pickles, only values that the reader has checked, and the code's text."""

from __future__ import annotations

import ast
import os
import struct
import zipfile
from typing import Any

from ...ir.errors import ArchiveError
from .code import Class
from .nesting import check_nesting
from .reader import Archive
from .records import Device, Record, TypedDict, TypedList
from .tensors import Storage, StoredTensor

FOLDER = "archive"
_PLAIN = {None: b"N", True: b"\x88", False: b"\x89"}
#: The permitted parts of a default value or an attribute of a class: torch computes it when it reads the
#: code.
_LITERALS = (
    ast.Constant, ast.UnaryOp, ast.unaryop, ast.Tuple, ast.List, ast.Dict, ast.Name, ast.Attribute,
    ast.Subscript, ast.expr_context,
)  # fmt: skip


def write_archive(archive: Archive, path: str | os.PathLike[str]) -> None:
    """Write a file that torch.jit.load reads as it would read the one that `archive` was read from.

    Raises ArchiveError for an archive whose code torch would run while reading: objects with a __setstate__,
    computed default values.
    """
    check_runs_nothing(archive)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{FOLDER}/version", f"{archive.version}\n")
        file.writestr(f"{FOLDER}/byteorder", "little")
        for name, value in (("data", archive.root), ("constants", archive.constants)):
            pickle = _Pickle(archive.code.classes)
            file.writestr(f"{FOLDER}/{name}.pkl", pickle.of(value))
            for storage in {storage.member: storage for storage in pickle.storages}.values():
                file.writestr(f"{FOLDER}/{storage.member}", storage.elements.tobytes())
        for member, text in archive.code.texts.items():
            file.writestr(f"{FOLDER}/{member}", text)
        for member, ranges in archive.ranges.items():
            file.writestr(f"{FOLDER}/{member}", _Pickle({}).of(ranges))


def check_runs_nothing(archive: Archive) -> None:
    """Raise ArchiveError if reading the code would run some of it."""
    for name, found in archive.code.classes.items():
        for value in (*found.values, *(d for method in found.methods.values() for d in _defaults(method))):
            _check_literal(value, name)
    for name, function in archive.code.functions.items():
        for value in _defaults(function):
            _check_literal(value, name)


def _defaults(function: ast.FunctionDef) -> list[ast.expr]:
    return [x for x in (*function.args.defaults, *function.args.kw_defaults) if x is not None]


def _check_literal(value: ast.expr, owner: str) -> None:
    todo: list[ast.AST] = [value]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "annotate":
            todo.extend(node.args)
        elif isinstance(node, _LITERALS):
            todo.extend(ast.iter_child_nodes(node))
        else:
            raise ArchiveError(
                f"a default value of {owner} is computed, which would run code of the archive "
                f"(line {getattr(node, 'lineno', value.lineno)})"
            )


class _Pickle:
    """One pickle while it is written; `storages`: those of its tensors."""

    def __init__(self, classes: dict[str, Class]) -> None:
        self.classes = classes
        self.storages: list[Storage] = []
        self._out = bytearray(b"\x80\x02")
        self._memo: dict[int, int] = {}  # by identity
        self._kept: list[Any] = []  # keeps their identities valid

    def of(self, value: Any) -> bytes:
        """Return the pickle of a value."""
        self._write(value)
        return bytes(self._out + b".")

    def _write(self, x: Any) -> None:
        if x is None or x is True or x is False:
            self._out += _PLAIN[x]
        elif isinstance(x, int | float | str | complex | Device):
            self._write_plain(x)
        elif id(x) in self._memo:
            self._out += b"j" + struct.pack("<I", self._memo[id(x)])
        elif isinstance(x, tuple):
            self._write_items(b"(", x, b"t")
            self._keep(x)
        elif isinstance(x, list | dict):
            self._write_container(x)
        elif isinstance(x, Record):
            self._write_record(x)
        elif isinstance(x, StoredTensor):
            self._write_tensor(x)
            self._keep(x)
        else:
            raise ArchiveError(f"a value is a {type(x).__name__}, which a module does not hold")

    def _keep(self, x: Any) -> None:
        self._memo[id(x)] = len(self._memo)
        self._kept.append(x)
        self._out += b"r" + struct.pack("<I", self._memo[id(x)])

    def _write_plain(self, x: float | str | complex | Device) -> None:
        if isinstance(x, int):
            if not -(1 << 63) <= x < 1 << 63:
                raise ArchiveError("an int of the archive has more than 64 bits")
            small = -(1 << 31) <= x < 1 << 31
            self._out += b"J" + struct.pack("<i", x) if small else b"\x8a\x08" + struct.pack("<q", x)
        elif isinstance(x, float):
            self._out += b"G" + struct.pack(">d", x)
        elif isinstance(x, str):
            data = x.encode()
            self._out += b"X" + struct.pack("<I", len(data)) + data
        elif isinstance(x, complex):
            self._call("builtins", "complex", x.real, x.imag)
        else:
            self._call("torch", "device", x.name)

    def _write_items(self, begin: bytes, items: Any, end: bytes) -> None:
        self._out += begin
        for item in items:
            self._write(item)
        self._out += end

    def _global(self, module: str, name: str) -> None:
        self._out += b"c" + f"{module}\n{name}\n".encode()

    def _call(self, module: str, name: str, *args: Any) -> None:
        self._global(module, name)
        self._write_items(b"(", args, b"tR")

    def _write_container(self, x: list[Any] | dict[Any, Any]) -> None:
        kind = x.type if isinstance(x, TypedList | TypedDict) else ""
        if kind:
            check_nesting(kind, "a type")
            self._global("torch.jit._pickle", "restore_type_tag")
            self._out += b"("
        self._out += b"]" if isinstance(x, list) else b"}"
        self._keep(x)
        if isinstance(x, list):
            self._write_items(b"(", x, b"e")
        else:
            self._write_items(b"(", (each for item in x.items() for each in item), b"u")
        if kind:
            self._write(kind)
            self._out += b"tR"

    def _write_record(self, x: Record) -> None:
        found = self.classes.get(x.class_name)
        if found is None:
            raise ArchiveError(f"the archive has no code of the class {x.class_name[:200]}")
        if "__setstate__" in found.methods:
            raise ArchiveError(
                f"an object of the class {x.class_name[:200]} would run its __setstate__ to be read"
            )
        module, _, name = x.class_name.rpartition(".")
        if found.base == "Enum":
            self._global(module, name)
            self._write(x.attributes.get("value"))
            self._out += b"R"
            self._keep(x)
            return
        self._global(module, name)
        self._out += b")\x81"
        self._keep(x)
        self._out += b"}"
        self._write_items(b"(", (each for item in x.attributes.items() for each in item), b"ub")

    def _write_tensor(self, x: StoredTensor) -> None:
        self._global("torch._utils", "_rebuild_tensor_v2")
        self._out += b"("
        if id(x.storage) not in self._memo:
            self.storages.append(x.storage)
            self._out += b"("
            self._write("storage")
            self._global(*x.storage.kind.split("."))
            key = x.storage.member.partition("/")[2]
            self._write_items(b"", (key, "cpu", x.storage.elements.size), b"tQ")
            self._keep(x.storage)
        else:
            self._write(x.storage)
        self._write_items(b"", (x.offset, x.array.shape, x.strides, False), b"")
        self._call("collections", "OrderedDict")
        self._out += b"tR"
