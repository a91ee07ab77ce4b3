"""The values of an archive's pickles.

They are read by an interpreter of the opcodes that PyTorch writes, which makes plain data only: no class is
looked up and no function is called.
"""

from __future__ import annotations

import io
import pickletools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...ir.errors import ArchiveError

MAX_OPCODES = 4_000_000
MAX_DEPTH = 200
MAX_VALUES = 4_000_000  # with shared values counted as often as they are reached


@dataclass(frozen=True)
class Global:
    """A name that the pickle mentions, never looked up."""

    name: str


@dataclass(eq=False)
class Record:
    """An object of a class of the program, or a module: its class's name and its attributes."""

    class_name: str
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Device:
    """A device by its name."""

    name: str


class TypedList(list[Any]):
    """A list, and its type as the archive writes it, such as "List[int]"; "" if an outer type gives it."""

    type = ""


class TypedDict(dict[Any, Any]):
    """A dict, and its type as the archive writes it."""

    type = ""


class _Mark:
    """The start of a run of values on the stack."""


_MARK = _Mark()
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "MARK": lambda: _MARK, "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple, "EMPTY_LIST": TypedList, "EMPTY_DICT": TypedDict,
}  # fmt: skip
_WITH_VALUE = {"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE"}
#: Functions that make a list of one type: the type, and that of its items; tensors are checked when they are
#: made.
_LISTS: dict[str, tuple[str, type]] = {
    "build_intlist": ("List[int]", int), "build_doublelist": ("List[float]", float),
    "build_boollist": ("List[bool]", bool), "build_tensorlist": ("List[Tensor]", object),
}  # fmt: skip
_NO_TENSORS = bool | int | float | str | list | dict | tuple | Record | None


def read_pickle(data: bytes, name: str, rebuild: Callable[[str, tuple[Any, ...]], Any]) -> Any:
    """Return the value of a pickle. `rebuild(function, args)` makes tensors and storages."""
    return _Reader(data, name, rebuild).run()


class _Reader:
    """The stack and the memo of one pickle."""

    def __init__(self, data: bytes, name: str, rebuild: Callable[[str, tuple[Any, ...]], Any]) -> None:
        self.file, self.name, self.rebuild = io.BytesIO(data), name, rebuild
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        """Interpret everything."""
        for _ in range(MAX_OPCODES):
            at = self.file.tell()
            op, arg = self._next()
            if op == "STOP":
                found = self._pop()
                if self.stack or self.file.read(1):
                    raise self._refused("has values left at its end", at)
                _check_tree(found, self.name)
                return found
            self._step(op, arg, at)
        raise ArchiveError(f"{self.name} has more than {MAX_OPCODES:,} opcodes")

    def _next(self) -> tuple[str, Any]:
        at = self.file.tell()
        op = _BY_CODE.get(self.file.read(1).decode("latin-1"))
        if op is None or op.name not in _OPCODES:
            what = "no opcode" if op is None else f"opcode {op.name}, which PyTorch does not write,"
            raise self._refused(f"has {what}", at)
        try:
            arg = op.arg.reader(self.file) if op.arg is not None else None
            if isinstance(arg, str):
                arg.encode()  # lone surrogates are no text
        except ValueError:
            raise self._refused(f"has an opcode {op.name} without a valid argument", at) from None
        return op.name, arg

    def _refused(self, reason: str, at: int) -> ArchiveError:
        return ArchiveError(f"{self.name} {reason} at byte {at:,}")

    def _pop(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise self._refused("takes a value from an empty stack", self.file.tell())
        return self.stack.pop()

    def _pop_run(self) -> list[Any]:
        run = []
        while self.stack and self.stack[-1] is not _MARK:
            run.append(self.stack.pop())
        if not self.stack:
            raise self._refused("closes a run of values that was not begun", self.file.tell())
        self.stack.pop()
        return run[::-1]

    def _step(self, op: str, arg: Any, at: int) -> None:
        if op in _CONSTANTS:
            self.stack.append(_CONSTANTS[op]())
        elif op in _WITH_VALUE:
            self.stack.append(arg)
        elif op == "GLOBAL":
            self.stack.append(Global(arg.replace(" ", ".")))
        elif op in ("BINPUT", "LONG_BINPUT"):
            self.memo[arg] = self._pop()
            self.stack.append(self.memo[arg])
        elif op in ("BINGET", "LONG_BINGET"):
            if arg not in self.memo:
                raise self._refused(f"reads entry {arg}, which was not written,", at)
            self.stack.append(self.memo[arg])
        elif op == "PROTO":
            if arg != 2 or at != 0:
                raise self._refused(f"states protocol {arg}; PyTorch writes 2, once,", at)
        elif op.startswith("TUPLE"):
            items = self._pop_run() if op == "TUPLE" else [self._pop() for _ in range(int(op[5:]))][::-1]
            self.stack.append(tuple(items))
        else:
            self._change(op, at)

    def _change(self, op: str, at: int) -> None:
        if op in ("APPEND", "APPENDS"):
            items = self._pop_run() if op == "APPENDS" else [self._pop()]
            self._top(list, at).extend(items)
        elif op in ("SETITEM", "SETITEMS"):
            items = self._pop_run() if op == "SETITEMS" else [self._pop(), self._pop()][::-1]
            keys, values = items[::2], items[1::2]
            if len(items) % 2 or not all(isinstance(key, bool | int | float | str) for key in keys):
                raise self._refused("sets a dict's items without plain keys and their values", at)
            self._top(dict, at).update(zip(keys, values, strict=True))
        elif op == "BUILD":
            self._build(self._pop(), self._top(Record, at), at)
        elif op == "BINPERSID":
            self.stack.append(self._made("storage", self._pop(), at))
        else:  # REDUCE, NEWOBJ
            args, function = self._pop(), self._pop()
            if not isinstance(function, Global):
                raise self._refused("calls what is no name", at)
            self.stack.append(self._made(function.name, args, at))

    def _top(self, kind: type, at: int) -> Any:
        if not self.stack or not isinstance(self.stack[-1], kind):
            raise self._refused(f"changes what is no {kind.__name__.lower()}", at)
        return self.stack[-1]

    def _build(self, state: Any, record: Record, at: int) -> None:
        if not isinstance(state, dict):
            state = {"__getstate__": state}  # what the class's own __setstate__ would take
        if record.attributes or not all(isinstance(name, str) for name in state):
            raise self._refused("sets an object's attributes twice or without names", at)
        record.attributes = state

    def _made(self, function: str, args: Any, at: int) -> Any:
        if function.startswith("__torch__.") and isinstance(args, int | float | str):  # a member of an Enum
            return Record(function, {"value": args})
        if not isinstance(args, tuple):
            raise self._refused("calls a function without a tuple of arguments", at)
        module, _, name = function.rpartition(".")
        one = args[0] if args else None
        if function.startswith("__torch__.") and not args:
            return Record(function)
        if module == "torch.jit._pickle" and _set_type(name, args):
            return one
        if function == "collections.OrderedDict" and not args:
            return {}
        if function == "torch.device" and len(args) == 1 and isinstance(one, str):
            return Device(one)
        if function == "builtins.complex" and len(args) == 2 and all(type(x) is float for x in args):
            return complex(*args)
        made = self.rebuild(function, args)
        if made is None:
            raise self._refused(f"calls {function[:100]!r}, which is not read,", at)
        return made


_BY_CODE = {op.code: op for op in pickletools.opcodes}
_OPCODES = {
    *_CONSTANTS, *_WITH_VALUE, "GLOBAL", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "PROTO", "STOP",
    "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "BUILD", "BINPERSID",
    "REDUCE", "NEWOBJ",
}  # fmt: skip


def _set_type(name: str, args: tuple[Any, ...]) -> bool:
    """Give a list or dict the type that a function of torch.jit._pickle states; return False if it is another
    function, or the value does not fit it."""
    match name, args:
        case "restore_type_tag", (TypedList() | TypedDict() as x, str(kind)):
            x.type = kind
        case (
            ("build_intlist" | "build_doublelist" | "build_boollist" | "build_tensorlist"),
            (TypedList() as x,),
        ):
            kind, item = _LISTS[name]
            if item is object and any(isinstance(each, _NO_TENSORS) for each in x):
                return False
            if item is not object and any(type(each) is not item for each in x):
                return False
            x.type = kind
        case _:
            return False
    return True


def _children(x: Any) -> Sequence[Any]:
    if isinstance(x, Record):
        return list(x.attributes.values())
    if isinstance(x, dict):
        return list(x.values())
    return x if isinstance(x, list | tuple) else ()


def _check_tree(root: Any, name: str) -> None:
    """Raise ArchiveError for a value that is cyclic, nested too deep or too large."""
    known: dict[int, tuple[int, int]] = {}  # depth and number of values, by identity
    open_: set[int] = set()
    todo = [(root, False)]
    while todo:
        x, is_done = todo.pop()
        if isinstance(x, Global | _Mark):
            raise ArchiveError(f"{name} holds a bare name, which no value is")
        if is_done:
            open_.discard(id(x))
            below = [known.get(id(child), (1, 1)) for child in _children(x)]
            known[id(x)] = (1 + max(d for d, _ in below), 1 + sum(n for _, n in below))
            if known[id(x)][0] > MAX_DEPTH or known[id(x)][1] > MAX_VALUES:
                raise ArchiveError(f"{name} nests more than {MAX_DEPTH} levels or {MAX_VALUES:,} values")
        elif id(x) in open_:
            raise ArchiveError(f"{name} has a value that holds itself, which is not read")
        elif id(x) not in known and _children(x):
            open_.add(id(x))
            todo.append((x, True))
            todo.extend((child, False) for child in _children(x))
