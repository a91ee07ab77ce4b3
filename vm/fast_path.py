"""The fast path of calls: a Python function generated for one key (classes, shapes and dtypes of the inputs,
values of ints).

A first, general call at a key has determined the outputs' sizes. From then on a call only checks properties
outside of the key (contiguous, in the CPU's memory), allocates the results, writes addresses into a prepared
`svm_frame` and enters C. The function returns None if its checks fail: the general call then reports the
error, or copies inputs as needed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from types import CodeType
from typing import Any

import numpy as np

from ._runtime import ffi, lib
from .arrays import TORCH_DTYPES, has_torch
from .fork_lock import ForkLock, notice_fork
from .isa import DTYPES, TAGS
from .program import NUMPY_DTYPES, Input
from .values import check, fill_tensor, n_bytes

FORKED = -2  # of svm_frame_call, in a forked child that is not repaired yet
MAX_KEYS = 1024  # quick functions kept per machine, and keys met once; beyond that the oldest is dropped

Form = tuple[tuple[int, ...], str]  # shape, dtype

#: How inputs of a class are checked and read: (condition, address, value to write); {i} is its position.
_READ = {
    "torch": (
        "x{i}.is_contiguous() and x{i}.is_cpu and not x{i}.is_neg()",
        "x{i}.data_ptr()",
        "input_data[{i}] = a{i}",
    ),
    "numpy": ("x{i}.flags.c_contiguous", "from_buffer(x{i})", "input_pointers[{i}] = a{i}"),
    "int": ("", "", ""),  # its value is part of the key, so it is already filled in
    "float": ("", "x{i}", "inputs[{i}].number = a{i}"),
}
#: How a result is allocated and its address written.
_MAKE = {
    "torch": ("y{i} = empty_like(like{i})", "output_data[{i}] = y{i}.data_ptr()"),
    "numpy": ("y{i} = empty(*like{i})", "output_pointers[{i}] = from_buffer(y{i})"),
}


def key_function(inputs: Sequence[Input]) -> Callable[..., Any]:
    """Return the function from a call's inputs to its key. It raises AttributeError or TypeError for unusual
    ones.
    """
    parts = {
        "tensor": "x{i}.__class__, x{i}.shape, x{i}.dtype",
        "int": "x{i}.__class__, x{i}",
        "bool": "x{i}.__class__, x{i}",
        "float": "x{i}.__class__",
        "str": "x{i}.__class__, x{i}",
        "list": "x{i}.__class__",
    }
    names = ", ".join(f"x{i}" for i in range(len(inputs)))
    fields = "".join(parts[row.kind].format(i=i) + ", " for i, row in enumerate(inputs))
    made: Callable[..., Any] = eval(compile(f"lambda {names}: ({fields})", "<key of a call>", "eval"))
    return made


@lru_cache(maxsize=256)
def _code(kinds: tuple[str, ...], libraries: tuple[str, ...]) -> CodeType:
    """Return the code of `run` for inputs of these kinds and outputs of these libraries."""
    names = ", ".join(f"x{i}" for i in range(len(kinds)))
    conditions = [_READ[kind][0].format(i=i) for i, kind in enumerate(kinds) if _READ[kind][0]]
    reads = [f"a{i} = {_READ[kind][1].format(i=i)}" for i, kind in enumerate(kinds) if _READ[kind][1]]
    writes = [_READ[kind][2].format(i=i) for i, kind in enumerate(kinds) if _READ[kind][2]]
    makes = [line.format(i=i) for i, library in enumerate(libraries) for line in _MAKE[library]]
    results = ", ".join(f"y{i}" for i in range(len(libraries)))
    text = f"""
def run({names}):
    try:
        if not ({" and ".join(conditions) or "True"}):
            return None
        {"; ".join(reads) or "pass"}
    except (RuntimeError, ValueError):  # torch's layouts without strides, numpy's buffers that are closed
        return None
    try:
        frame = frames.pop()
    except IndexError:
        frame = new_frame()
    cdata, inputs, input_data, input_pointers, output_data, output_pointers, error, _ = frame
    try:
        {"; ".join(writes + makes) or "pass"}
    except (MemoryError, RuntimeError):  # no memory for a result: the general call says so
        frames.append(frame)
        return None
    code = svm_frame_call(cdata)
    if code:
        return failed(code, error, frame)
    frames.append(frame)
    return [{results}]
"""
    return compile(text, "<a warm call>", "exec")


def _kind(x: Any, row: Input) -> str | None:
    """Return the kind of `_READ` that reads an input; None if only the general call can read it."""
    if has_torch() and x.__class__ in (sys.modules["torch"].Tensor, sys.modules["torch"].nn.Parameter):
        return "torch"
    if x.__class__ is np.ndarray:
        return "numpy" if x.dtype in NUMPY_DTYPES.values() else None
    if row.kind in ("int", "bool") and x.__class__ in (int, bool):
        return "int"
    return "float" if row.kind == "float" and x.__class__ is float else None


def _frame(
    program: Any, function: int, n_inputs: int, inputs: Any, outputs: Sequence[Form]
) -> tuple[Any, ...]:
    """Return a frame: its C structure, the arrays that `run` writes into, and the objects that must stay
    alive with it."""
    n_outputs = len(outputs)
    own = ffi.new("svm_value[]", max(n_inputs, 1))
    ffi.memmove(own, inputs, ffi.sizeof("svm_value") * n_inputs)
    values, expected = ffi.new("svm_value[]", max(n_outputs, 1)), ffi.new("svm_tensor[]", max(n_outputs, 1))
    sizes, aligns = ffi.new("uint64_t[]", max(n_outputs, 1)), ffi.new("uint64_t[]", max(n_inputs, 1))
    input_data, output_data = (
        ffi.new("uintptr_t[]", max(n_inputs, 1)),
        ffi.new("uintptr_t[]", max(n_outputs, 1)),
    )
    item_bytes = dict(DTYPES.values())
    for i in range(n_inputs):
        aligns[i] = item_bytes[own[i].tensor.dtype] if own[i].tag == TAGS["tensor"] else 0
    for i, (shape, dtype) in enumerate(outputs):
        fill_tensor(expected[i], 0, dtype, shape, "output")
        sizes[i] = n_bytes(shape, dtype)
    error = ffi.new("svm_error *")
    cdata = ffi.new("svm_frame *", (
        program, function, n_inputs, n_outputs, own, values, expected, sizes, input_data, aligns, output_data,
        error,
    ))  # fmt: skip
    pointers = (ffi.cast("void **", input_data), ffi.cast("void **", output_data))
    keep = (values, expected, sizes, aligns)
    return cdata, own, input_data, pointers[0], output_data, pointers[1], error, keep


def _torch_like(shape: tuple[int, ...], dtype: str) -> Any:
    """Return a tensor of that form, with one element's memory, for `empty_like`: quicker than `empty`."""
    torch = sys.modules["torch"]
    return torch.empty((), dtype=getattr(torch, TORCH_DTYPES[dtype]), device="cpu").expand(shape)


def _failed(frames: list[Any], code: int, error: Any, frame: Any) -> None:
    """Raise the exception of a failed call, or of a signal handler; -1 requests the general call, FORKED a
    retry. The frame is free for other calls once its error is read."""
    try:
        if code == FORKED:
            notice_fork()
        elif code != -1:
            check(code, error)
    finally:
        frames.append(frame)


def make(
    program: Any,
    function: int,
    rows: Sequence[Input],
    xs: Sequence[Any],
    inputs: Any,
    outputs: Sequence[Form],
    libraries: Sequence[str],
) -> Callable[..., list[Any] | None] | None:
    """Return the quick function for calls like this one; None if only the general call can run them.

    `inputs`: the call's filled `svm_value`s; `outputs`: shape and dtype of each result, all of them new
    tensors; `libraries`: "torch" or "numpy" for each.
    """
    kinds = [_kind(x, row) for x, row in zip(xs, rows, strict=True)]
    empty = any(0 in shape for shape, _ in outputs) or any(0 in getattr(x, "shape", ()) for x in xs)
    if None in kinds or empty:  # empty arrays may have no address
        return None
    frames: list[Any] = []
    names: dict[str, Any] = {
        "frames": frames,
        "svm_frame_call": lib.svm_frame_call,
        "failed": partial(_failed, frames),
        "from_buffer": ffi.from_buffer,
    }
    names["new_frame"] = lambda: _frame(program, function, len(rows), inputs, outputs)
    for i, (shape, dtype) in enumerate(outputs):
        is_torch = libraries[i] == "torch"
        names[f"like{i}"] = _torch_like(shape, dtype) if is_torch else (shape, NUMPY_DTYPES[dtype])
    names["empty"] = np.empty
    names["empty_like"] = sys.modules["torch"].empty_like if "torch" in libraries else None
    exec(_code(tuple(str(kind) for kind in kinds), tuple(libraries)), names)
    run: Callable[..., list[Any] | None] = names.pop("run")  # no cycle: it is freed with the machine
    return run


class QuickCalls:
    """The quick functions of one machine, by the key of their calls."""

    def __init__(self, inputs: Sequence[Input]) -> None:
        self.key = key_function(inputs)
        self.functions: dict[Any, Callable[..., list[Any] | None]] = {}
        self._met: dict[Any, None] = {}  # keys with one call so far
        self._dropped: dict[Any, None] = {}  # keys whose results vary in shape
        self._lock = ForkLock()

    def clear(self) -> None:
        """Drop all quick functions."""
        with self._lock:
            self.functions.clear()
            self._met.clear()
            self._dropped.clear()

    def add(self, xs: Sequence[Any], run: Callable[..., list[Any] | None]) -> None:
        """Use `run` from now on for inputs like these."""
        with self._lock:
            if len(self.functions) >= MAX_KEYS:
                del self.functions[next(iter(self.functions))]
            self.functions[self.key(*xs)] = run

    def drop(self, xs: Sequence[Any]) -> None:
        """Never again make a quick function for calls like this one."""
        with self._lock:
            key = self.key(*xs)
            self.functions.pop(key, None)
            _keep(self._dropped, key)

    def is_second(self, xs: Sequence[Any]) -> bool:
        """Return whether a call like this one was made before; shapes that occur once get no quick
        function."""
        try:
            key = self.key(*xs)
        except (AttributeError, TypeError):
            return False
        with self._lock:
            if key in self._dropped:
                return False
            if key in self._met:
                del self._met[key]
                return True
            _keep(self._met, key)
        return False


def _keep(keys: dict[Any, None], key: Any) -> None:
    """Add a key to at most `MAX_KEYS`."""
    if len(keys) >= MAX_KEYS:
        del keys[next(iter(keys))]
    keys[key] = None
