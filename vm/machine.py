"""The machine: an artifact loaded into the C runtime, called from Python with torch tensors, numpy or DLPack
arrays.

>>> machine = Machine.open("model.svm")
>>> (y,) = machine.call([x])
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np

from . import fast_path
from ._runtime import ffi, lib
from .arrays import NUMPY, Library, as_array, is_array, is_torch, library_of, sharing_pairs
from .entry_points import read_entry_points, read_symbols
from .errors import ArgumentError, ArtifactError
from .fast_path import QuickCalls
from .fork_lock import ForkLock
from .host_functions import register, register_dps
from .isa import TAGS
from .layout import PAGE
from .load_options import LoadOptions, bands_code, strategy_code
from .objects import serialise_object
from .program import DTYPE_NAMES, Input, KernelObject, Output
from .reports import (
    FunctionInfo,
    KernelInfo,
    SiteStats,
    read_counters,
    read_functions,
    read_kernels,
    read_profile,
    read_site,
    read_text,
)
from .values import (
    Allocation,
    check,
    check_room,
    check_written,
    fill,
    keep_raised,
    raise_kept,
    shape_of,
    text_of,
    to_python,
)


@dataclass(frozen=True)
class Request:
    """A request for exact code: kernel index, its dims, runs of the entry so far, whether calls wait."""

    kernel: int
    dims: tuple[int, ...]
    runs: int
    is_awaited: bool = False


@dataclass(frozen=True)
class Price:
    """When a kernel's entries ask for exact code under auto; see `svm_price`."""

    work: int = 0
    per_launch: int = 0
    declined_from: int = 0


class Machine:
    """One loaded program. Any number of threads may call it; `close` only when none does.

    `inputs`, `outputs`, `symbols`: the contract of main, which every call checks; `entry_points`: those of
    all functions that have one.
    """

    def __init__(self, program: Any, options: LoadOptions, keep: Any = None) -> None:
        """Take over an `svm_program *`, loaded with `options`; `open` and `from_bytes` make machines."""
        self._program = program
        self._keep: dict[str, Any] = {"": keep}  # as long as the program: its bytes, host functions by name
        self.options = options
        self._meta: Mapping[str, Any] | None = None
        self._lock = ForkLock()
        self.symbols = read_symbols(program)
        self.default_library: Library = NUMPY  # of the results of a call without arrays
        self.entry_points = read_entry_points(program)
        self._rows = {entry.function: entry for entry in self.entry_points.values()}
        self.n_state = 0  # the last inputs, which the caller keeps for the program: none of the user's arrays
        #: By function: of its last outputs, how many the caller keeps, as numpy arrays.
        self.n_kept: dict[int, int] = {}
        self._quick = {index: QuickCalls(entry.inputs) for index, entry in self._rows.items()}
        error, depths = ffi.new("svm_error *"), options.depths
        check(lib.svm_limit_depth(program, depths.calls, depths.nesting, error), error)
        check(lib.svm_use_bands(program, bands_code(options.bands), error), error)

    @classmethod
    def open(cls, path: str | os.PathLike[str], options: LoadOptions | None = None) -> Machine:
        """Load an artifact; the weights of a large one are mapped. Raises ArtifactError, VerifyError,
        TargetError, FileError.
        """
        program, error = ffi.new("svm_program **"), ffi.new("svm_error *")
        keep: list[Any] = []
        options = options or LoadOptions()
        check(lib.svm_open_path(os.fsencode(path), options.c(keep), program, error), error)
        return cls(program[0], options)

    @classmethod
    def open_file(cls, file: int, path: str, options: LoadOptions | None = None) -> Machine:
        """Load an artifact from an open descriptor, which stays the caller's; `path` is for messages. Raises
        as `open` does.
        """
        program, error = ffi.new("svm_program **"), ffi.new("svm_error *")
        keep: list[Any] = []
        options = options or LoadOptions()
        check(lib.svm_open_file(file, os.fsencode(path), options.c(keep), program, error), error)
        return cls(program[0], options)

    @classmethod
    def from_bytes(cls, data: bytes, options: LoadOptions | None = None) -> Machine:
        """Load an artifact that is in memory. Raises as `open` does."""
        copy = ffi.new("char[]", len(data) + PAGE)
        start = -int(ffi.cast("uintptr_t", copy)) % PAGE
        ffi.memmove(copy + start, data, len(data))
        program, error = ffi.new("svm_program **"), ffi.new("svm_error *")
        keep: list[Any] = []
        options = options or LoadOptions()
        check(lib.svm_open_memory(copy + start, len(data), options.c(keep), program, error), error)
        return cls(program[0], options, copy)

    def close(self) -> None:
        """Free the program. Nothing else of the machine may be used afterwards; closing twice is fine."""
        with self._lock:
            program, self._program = self._program, None
            for quick in self._quick.values():
                quick.clear()
        if program is not None:
            lib.svm_close(program)

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_program", None) is not None and lib is not None:  # None: Python is going down
            self.close()

    # The contract -----------------------------------------------------------------------------------

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The inputs of main."""
        return self._rows[0].inputs

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The outputs of main."""
        return self._rows[0].outputs

    @property
    def meta(self) -> Mapping[str, Any]:
        """The artifact's JSON for hosts. Raises ArtifactError if it is none."""
        if self._meta is not None:  # not functools.cached_property, whose lock a forked child may find held
            return self._meta
        text, size, error = ffi.new("const char **"), ffi.new("size_t *"), ffi.new("svm_error *")
        check(lib.svm_meta(self._program, text, size, error), error)
        try:
            self._meta = dict(json.loads(ffi.unpack(text[0], size[0]).decode()))
        except (ValueError, RecursionError, TypeError) as problem:
            raise ArtifactError(f"section META: it is not a JSON object: {problem}") from None
        return self._meta

    @property
    def kernels(self) -> tuple[KernelInfo, ...]:
        """The kernel table."""
        return read_kernels(self._program)

    @property
    def functions(self) -> tuple[FunctionInfo, ...]:
        """The functions; the first is main."""
        return read_functions(self._program)

    @property
    def externs(self) -> tuple[str, ...]:
        """Names of the host functions that the program calls."""
        return tuple(
            text_of(lib.svm_extern_name(self._program, i)) for i in range(lib.svm_n_externs(self._program))
        )

    # Calls ------------------------------------------------------------------------------------------

    def call(self, inputs: Sequence[Any], function: int = 0) -> list[Any]:
        """Call an entry point, 0: main, and return its results; arrays are torch tensors if an input is one,
        else numpy arrays; `default_library`'s where no input is an array.

        Inputs need not be contiguous. Raises ShapeError, DtypeError, KindError and the like (see errors),
        before anything has run, when the inputs break the contract.
        """
        quick = self._quick[function]
        try:
            run = quick.functions.get(quick.key(*inputs))
        except (AttributeError, TypeError):
            run = None  # a wrong number, or values without shapes: the general call says what is wrong
        if run is not None:
            results = run(*inputs)
            if results is None:
                results = run(*self._plain(inputs, function))
            if results is not None:
                return results
            quick.drop(inputs)  # results of other shapes than before: what the program computes decides
        return self._call(inputs, function)

    def call_as(self, strategy: str | None, inputs: Sequence[Any], timeout_ms: int = 0) -> list[Any]:
        """Call main as `call` does, under a strategy of this call's own (None: the program's), for at most
        `timeout_ms` milliseconds (0: the program's limit). Raises DeadlineExceeded beyond them.
        """
        return self._call(inputs, 0, -1 if strategy is None else strategy_code(strategy), timeout_ms)

    def call_observed(self, inputs: Sequence[Any], observe: Callable[[int, bool], None]) -> list[Any]:
        """Call main as `call` does; `observe(kernel, is_end)` is called before and after each launch."""
        return self._call(inputs, 0, observe=observe)

    def call_into(self, out: Mapping[int, Any], inputs: Sequence[Any]) -> list[Any]:
        """Call main as `call` does, with the results of these indices in the caller's arrays.

        Raises ArgumentError for an array that is no room for the result: of another dtype or shape, not
        contiguous, not writable, in the memory of an input, or for a result that is no tensor.
        """
        kinds, room = [row.kind for row in self.outputs], {}
        for index, array in out.items():
            name = self.outputs[index].name
            if any(
                kind not in ("tensor", "int", "float", "bool", "str", "none") for kind in kinds[: index + 1]
            ):
                raise ArgumentError(f'out "{name}": the program does not say which result that is')
            if kinds[index] != "tensor" or not (is_torch(array) or isinstance(array, np.ndarray)):
                raise ArgumentError(f'out "{name}" must be an array, for a result that is a tensor')
            room[kinds[:index].count("tensor")] = (array, name)
        for _, later in sharing_pairs([*inputs, *out.values()]):
            if later >= len(inputs):
                name = self.outputs[list(out)[later - len(inputs)]].name
                raise ArgumentError(
                    f'out "{name}" shares memory with an input or another out: pass a new array'
                )
        results = self._call(inputs, 0, room=room)
        for index, array in out.items():
            if results[index] is not array:  # an input or a constant, or the same tensor as another result
                made = library_of(results[index]).numpy(results[index])
                check_room(array, self.outputs[index].name, made.shape, self.outputs[index].dtype or "")
                library_of(array).numpy(array)[...] = made
                results[index] = array
        return results

    def call_function(self, name: str, args: Sequence[Any]) -> list[Any]:
        """Call any function by name, without a contract. Raises ArgumentError for an unknown name."""
        return self._call(args, self._function(name))

    @property
    def is_open(self) -> bool:
        """Whether `close` has not been called."""
        return self._program is not None

    def check_open(self) -> None:
        """Raise ArgumentError after `close`."""
        if self._program is None:
            raise ArgumentError("the program is closed; load the artifact again")

    def _plain(self, xs: Sequence[Any], function: int) -> list[Any]:
        """Return the inputs with contiguous, aligned arrays. Raises Library.array's errors."""
        named = zip(xs, self._rows[function].inputs, strict=True)
        arrays = (row if is_array(x) else None for x, row in named)
        return [
            x if row is None or row.is_written else library_of(x).array(x, f'input "{row.name}"')[0]
            for x, row in zip(xs, arrays, strict=True)
        ]

    def _library(self, xs: Sequence[Any], is_entry: bool) -> Library:
        """Return the library that a call's results are made in: torch if any input is a torch tensor, else
        numpy; `default_library` where no input of the user's is an array."""
        users = xs[: len(xs) - self.n_state] if is_entry else xs
        libraries = [library_of(x) for x in users if is_array(x)]
        rest = NUMPY if libraries else self.default_library
        return next((library for library in libraries if library is not NUMPY), rest)

    def _fill(self, xs: Sequence[Any], rows: Sequence[Input], keep: list[Any]) -> Any:
        values = ffi.new("svm_value[]", max(len(xs), 1))
        for index, x in enumerate(xs):
            row = rows[index] if index < len(rows) else None
            what = f'input "{row.name}"' if row else f"argument {index}"
            if row and row.kind == "float" and type(x) is int:
                x = float(x)
            if row and row.dtype is not None:
                x = as_array(x, row.dtype, what)
            if row and row.is_written and is_array(x):
                check_written(x, what)
            fill(values[index], x, keep, what)
        return values

    def _call(
        self, xs: Sequence[Any], function: int, strategy: int = -1, timeout_ms: int = 0,
        observe: Callable[[int, bool], None] | None = None, room: Mapping[int, tuple[Any, str]] | None = None,
    ) -> list[Any]:  # fmt: skip
        self.check_open()
        info, entry = lib.svm_function(self._program, function), self._rows.get(function)
        keep: list[Any] = []
        values = self._fill(xs, entry.inputs if entry else (), keep)
        outputs, error = ffi.new("svm_value[]", max(info.n_results, 1)), ffi.new("svm_error *")
        allocation = Allocation(self._library(xs, entry is not None), room)
        try:
            handle = ffi.NULL if observe is None else ffi.new_handle(observe)
            told = ffi.NULL if observe is None else lib.svm_py_observe
            poll = ffi.addressof(lib, "svm_poll_signals")
            options = ffi.new("svm_call_options *", (strategy, timeout_ms, ffi.NULL, poll, handle, told))
            code = lib.svm_call_with(
                self._program, options, function, values, len(xs), allocation.allocator, outputs,
                info.n_results, error,
            )  # fmt: skip
            check(code, error)
            raise_kept()
            made = len(allocation.leaves)
            is_new = all(_is_new(outputs[i]) for i in range(info.n_results)) and made == info.n_results
            containers: dict[int, Any] = {}
            results = [to_python(outputs[i], allocation, containers) for i in range(info.n_results)]
            if not is_new:  # perhaps copied from weights after the runtime's last look at them
                check(lib.svm_check_file(self._program, error), error)
            is_plain = (
                entry is not None and strategy == -1 and not timeout_ms and observe is None and not room
            )
            is_plain = is_plain and is_new and not allocation.leaves
            if is_plain and lib.svm_is_repeatable(self._program, function):
                self._remember(function, xs, values, outputs, info.n_results)
            return results
        finally:
            for i in range(len(xs)):
                lib.svm_value_release(ffi.addressof(values, i))
            for i in range(info.n_results):
                lib.svm_value_release(ffi.addressof(outputs, i))

    def _remember(self, function: int, xs: Sequence[Any], values: Any, outputs: Any, n_outputs: int) -> None:
        """Make the quick function for calls like this one, if there can be one and this is the second."""
        quick = self._quick[function]
        if not quick.is_second(xs):
            return
        copy = ffi.new("svm_value[]", max(len(xs), 1))
        ffi.memmove(copy, values, ffi.sizeof("svm_value") * len(xs))
        forms = [
            (shape_of(outputs[i].tensor), DTYPE_NAMES[outputs[i].tensor.dtype]) for i in range(n_outputs)
        ]
        library = "numpy" if self._library(xs, True) is NUMPY else "torch"
        n_kept = self.n_kept.get(function, 0)
        libraries = [library] * (n_outputs - n_kept) + ["numpy"] * n_kept
        rows = self._rows[function].inputs
        run = fast_path.make(self._program, function, rows, xs, copy, forms, libraries)
        if run is not None:
            quick.add(xs, run)

    def check_weights(self) -> None:
        """Wait until all weights are verified. Raises ArtifactError naming what is damaged, FileError where
        the mapped file was changed.
        """
        self.check_open()
        error = ffi.new("svm_error *")
        check(lib.svm_check_weights(self._program, error), error)

    def bind(self, inputs: Sequence[Any]) -> dict[str, int]:
        """Check the inputs against the contract; return the symbols' values by name. Runs nothing."""
        self.check_open()
        keep: list[Any] = []
        values, error = self._fill(inputs, self.inputs, keep), ffi.new("svm_error *")
        symbols = ffi.new("int64_t[]", max(len(self.symbols), 1))
        try:
            check(lib.svm_bind(self._program, values, len(inputs), symbols, error), error)
        finally:
            for i in range(len(inputs)):
                lib.svm_value_release(ffi.addressof(values, i))
        return {symbol.name: symbols[i] for i, symbol in enumerate(self.symbols)}

    @property
    def extern_sources(self) -> dict[str, str]:
        """The model's line that first calls each host function, "" where unknown."""
        n = lib.svm_n_externs(self._program)
        sources = [text_of(lib.svm_extern_source(self._program, i)) for i in range(n)]
        return dict(zip(self.externs, sources, strict=True))

    def register_extern(
        self, name: str, function: Callable[..., Sequence[Any]], library: Library | None = None
    ) -> None:
        """Register the host function `name`: it takes the arguments and returns a sequence of the results.

        Tensor arguments are numpy arrays of its own. With a `library` nothing is copied: they are its arrays
        over the program's memory, to be read during the call only, and the results' memory is the program's
        from then on. Raises ArgumentError if the program calls no `name`.
        """
        self._keep[name] = register(self._program, name, function, library)

    def register_dps(self, name: str, function: Callable[..., object], library: Library = NUMPY) -> None:
        """Register the host function `name` that takes a list of the arguments and one of the outputs, arrays
        of zeros that it fills; what it returns is ignored. All are `library`'s arrays over the program's
        memory, for the time of the call. Raises ArgumentError if the program calls no such `name` so.
        """
        self._keep[f"{name} (call_dps)"] = register_dps(self._program, name, function, library)

    def load_plugin(self, path: str) -> None:
        """Load a shared library and register what it has of what the program calls (docs/plug-ins.md). Raises
        ExternError for a library that is missing, is no plug-in or is one of another ABI version."""
        error = ffi.new("svm_error *")
        check(lib.svm_load_plugin(self._program, path.encode(), error), error)

    @property
    def missing_externs(self) -> dict[str, bool]:
        """The host functions that nobody has registered; True for one that is called with `call_dps`."""
        missing, kind = lib.svm_extern_is_missing, lib.svm_extern_kind
        rows = [(i, name) for i, name in enumerate(self.externs) if missing(self._program, i)]
        return {name: bool(kind(self._program, i)) for i, name in rows}

    # Compilation ------------------------------------------------------------------------------------

    def attach_compiler(self, attached: bool = True) -> None:
        """Say that somebody answers requests (or no longer does: waiters are woken, requests dropped)."""
        lib.svm_attach_compiler(self._program, int(attached))

    def wait_request(self, timeout: float) -> Request | None:
        """Wait up to `timeout` seconds for a request for exact code; None without one.

        Every request must be answered by `install`, `compile_failed` or `decline`. Raises ArgumentError when
        no compiler is attached (any more).
        """
        request = ffi.new("svm_request *")
        got = lib.svm_request_wait(self._program, max(int(timeout * 1000), 0), request)
        if got < 0:
            raise ArgumentError("no compiler is attached to this machine (any more)")
        dims = tuple(request.dims[0 : request.n_dims])
        return Request(request.kernel, dims, request.runs, bool(request.is_awaited)) if got else None

    def install(self, kernel: int, code: KernelObject | bytes) -> None:
        """Install machine code for a kernel-table entry; exact code takes effect at once for its dims.

        Raises ArtifactError for a record that is not sound, KernelError or TargetError for code that is not
        for it.
        """
        record = code if isinstance(code, bytes) else serialise_object(code)
        error = ffi.new("svm_error *")
        check(lib.svm_install_code(self._program, kernel, ffi.from_buffer(record), len(record), error), error)

    def compile_failed(self, kernel: int, dims: Sequence[int], message: str) -> None:
        """Answer a request with a failure; callers that wait get the message."""
        values, error = ffi.new("int64_t[]", list(dims) or [0]), ffi.new("svm_error *")
        code = lib.svm_compile_failed(self._program, kernel, values, len(dims), message.encode(), error)
        check(code, error)

    def decline(self, kernel: int, dims: Sequence[int], again_after: int = 0) -> None:
        """Answer a request with no: the code that is there stays. Only calls that wait for exact code ask
        again, or the entry once it has run `again_after` times in all (0: never).
        """
        values, error = ffi.new("int64_t[]", list(dims) or [0]), ffi.new("svm_error *")
        check(lib.svm_decline_request(self._program, kernel, values, len(dims), again_after, error), error)

    def is_awaited(self, kernel: int, dims: Sequence[int]) -> bool:
        """Return whether calls wait for exact code of these dims."""
        return bool(lib.svm_is_awaited(self._program, kernel, list(dims) or [0], len(dims)))

    def set_price(self, kernel: int, price: Price) -> None:
        """Say from now on when a kernel's entries ask for exact code under auto. Raises ArgumentError for a
        kernel that does not exist and for negative numbers."""
        row, error = ffi.new("svm_price *", astuple(price)), ffi.new("svm_error *")
        check(lib.svm_set_price(self._program, kernel, row, error), error)

    def hurry(self, is_hurried: bool = True) -> None:
        """Say that somebody waits for all that is hot to be compiled, whatever its price; False: no longer.
        Calls nest."""
        lib.svm_hurry(self._program, int(is_hurried))

    @property
    def is_hurried(self) -> bool:
        """Whether somebody is in a hurry."""
        return bool(self.stats()["n_hurries"])

    def generic_code(self, kernel: int) -> bytes:
        """Return the generic code object of a kernel, its record followed by the code; b"" without one."""
        size = lib.svm_generic_code(self._program, kernel, ffi.NULL, 0)
        record = ffi.new("char[]", max(size, 1))
        lib.svm_generic_code(self._program, kernel, record, size)
        return ffi.unpack(record, size) if size else b""

    def set_strategy(self, name: str) -> None:
        """Change the strategy, for entries and plans made from now on. Raises ArgumentError for an unknown
        one.
        """
        error = ffi.new("svm_error *")
        check(lib.svm_set_strategy(self._program, strategy_code(name), error), error)
        self.options = replace(self.options, strategy=name)

    def set_function_strategy(self, function: str, name: str | None) -> None:
        """Give calls of one function by the host a strategy of their own, None: the program's again. Raises
        ArgumentError for an unknown function or strategy.
        """
        error, own = ffi.new("svm_error *"), -1 if name is None else strategy_code(name)
        index = self._function(function)
        check(lib.svm_set_function_strategy(self._program, index, own, error), error)

    def _function(self, name: str) -> int:
        """Return a function's index. Raises ArgumentError for an unknown one."""
        index = int(lib.svm_find_function(self._program, name.encode()))
        if index < 0:
            raise ArgumentError(
                f"the program has no function {name!r}; it has {', '.join(f.name for f in self.functions)}"
            )
        return index

    def installed(self, kernel: int) -> Iterator[bytes]:
        """Yield the code objects that were installed for a kernel-table entry and are still there: their
        records followed by the code, as `install` took them.
        """
        for index in itertools.count():
            size = lib.svm_installed_code(self._program, kernel, index, ffi.NULL, 0)
            while size:
                record = ffi.new("char[]", size)
                again = lib.svm_installed_code(self._program, kernel, index, record, size)
                if again <= size:
                    yield ffi.unpack(record, again)
                    break
                size = again
            else:
                return

    # Statistics -------------------------------------------------------------------------------------

    def metrics(self, model: str | None = None) -> str:
        """Return all counters as OpenMetrics text; `model`: a label of that name that each sample gets."""
        label = ffi.NULL if model is None else ffi.new("char[]", model.encode())
        return read_text(lambda program, *out: lib.svm_metrics(program, label, *out), self._program)

    def time_calls(self, is_on: bool = True) -> None:
        """Count from now on how long calls of main take, for the metrics; or no longer."""
        self.check_open()
        lib.svm_time_calls(self._program, int(is_on))

    def record(self, is_recording: bool = True) -> None:
        """Record from now on which sizes main is called with, or no longer."""
        error = ffi.new("svm_error *")
        check(lib.svm_record(self._program, int(is_recording), error), error)

    def profile(self) -> dict[str, Any]:
        """Return what was recorded (docs/profile.md)."""
        return read_profile(self._program)

    def timeline(self, is_on: bool = True) -> None:
        """Note from now on when calls, kernels and threads begin and end, in a new timeline; or no longer."""
        self.check_open()
        error = ffi.new("svm_error *")
        check(lib.svm_timeline(self._program, int(is_on), error), error)

    def timeline_data(self) -> dict[str, Any]:
        """Return the latest timeline in Chrome's trace event format (`svm_timeline_text`)."""
        self.check_open()
        return dict(json.loads(read_text(lib.svm_timeline_text, self._program)))

    def stats(self) -> dict[str, int]:
        """Return the counters of `svm_stats` by name."""
        return read_counters(self._program)

    def site(self, kernel: int) -> SiteStats:
        """Return the call site of a kernel-table entry. Raises KernelError for an index out of range."""
        return read_site(self._program, kernel)


def _is_new(value: Any) -> bool:
    return bool(value.tag == TAGS["tensor"] and value.origin == lib.SVM_ORIGIN_NEW)


@ffi.def_extern(name="svm_py_poll", onerror=keep_raised, error=1)
def _poll(context: Any) -> int:
    """Let Python run its signal handlers: entering a Python function does. What they raise stops the call."""
    return 0


@ffi.def_extern(name="svm_py_observe", onerror=keep_raised)
def _observe(context: Any, kernel: int, is_end: int) -> None:
    """Tell who looks at a call's launches."""
    ffi.from_handle(context)(kernel, bool(is_end))
