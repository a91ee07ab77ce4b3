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
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from . import fast_path
from ._runtime import ffi, lib
from .arrays import NUMPY, Library, as_array, is_array, is_torch, library_of, sharing_pairs
from .cancel import CancelFlag
from .entry_points import read_entry_points, read_symbols
from .errors import ArgumentError
from .fast_path import QuickCalls
from .fork_lock import after_fork, notice_fork
from .handle import Handle, ProgramClosed
from .host_functions import register, register_dps
from .isa import TAGS
from .layout import PAGE
from .load_options import LoadOptions, bands_code, strategy_code
from .meta import read_meta
from .objects import serialise_object
from .program import DTYPE_NAMES, Input, KernelObject, Output
from .reports import (
    FunctionInfo,
    KernelInfo,
    SiteStats,
    read_counters,
    read_functions,
    read_kernels,
    read_site,
)
from .values import (
    Allocation,
    check,
    check_cancelled,
    check_in_rows,
    check_room,
    check_written,
    fill,
    keep_raised,
    raise_kept,
    shape_of,
    text_of,
    to_python,
)


def _forget_fork() -> None:
    lib.svm_is_forked = 0


def _python_forks(does: int) -> Callable[[], None]:
    return lambda: lib.svm_python_forks(does)


lib.svm_watch_forks()
after_fork(_forget_fork)
os.register_at_fork(
    before=_python_forks(1), after_in_parent=_python_forks(0), after_in_child=_python_forks(0)
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
    """When a kernel's entries request exact code under auto; see `svm_price`."""

    work: int = 0
    per_launch: int = 0
    declined_from: int = 0


class Machine:
    """One loaded program. Any number of threads may use it, and close it while others do: running calls
    finish normally, later ones raise ArgumentError.

    `inputs`, `outputs`, `symbols`: the contract of main, which every call checks; `entry_points`: those of
    all functions that have one.
    """

    def __init__(self, program: Any, options: LoadOptions, keep: Any = None) -> None:
        """Take over an `svm_program *`, loaded with `options`; `open` and `from_bytes` make machines."""
        self._handle = Handle(program)
        self._keep: dict[str, Any] = {"": keep}  # alive with the program: its bytes, host functions by name
        self.options = options
        self._meta: Mapping[str, Any] | None = None
        self.symbols = read_symbols(program)
        self.default_library: Library = NUMPY  # for the results of a call without arrays
        self.entry_points = read_entry_points(program)
        self._rows = {entry.function: entry for entry in self.entry_points.values()}
        self.n_state = 0  # last inputs that the caller keeps for the program, not the user's arrays
        #: By function: how many of its last outputs the caller keeps, as numpy arrays.
        self.n_kept: dict[int, int] = {}
        self._quick = {index: QuickCalls(entry.inputs) for index, entry in self._rows.items()}
        self._handle.run(lib.svm_limit_depth, options.depths.calls, options.depths.nesting)
        self._handle.run(lib.svm_use_bands, bands_code(options.bands))

    @classmethod
    def open(cls, path: str | os.PathLike[str], options: LoadOptions | None = None) -> Machine:
        """Load an artifact; the weights of a large one are mapped. Raises ArtifactError, VerifyError,
        TargetError, FileError.
        """
        return cls._opened(lib.svm_open_path, os.fsencode(path), options=options)

    @classmethod
    def open_file(cls, file: int, path: str, options: LoadOptions | None = None) -> Machine:
        """Load an artifact from an open descriptor, which stays the caller's; `path` is for messages. Raises
        the errors of `open`.
        """
        return cls._opened(lib.svm_open_file, file, os.fsencode(path), options=options)

    @classmethod
    def from_bytes(cls, data: bytes, options: LoadOptions | None = None) -> Machine:
        """Load an artifact that is in memory. Raises the errors of `open`."""
        copy = ffi.new("char[]", len(data) + PAGE)
        start = -int(ffi.cast("uintptr_t", copy)) % PAGE
        ffi.memmove(copy + start, data, len(data))
        return cls._opened(lib.svm_open_memory, copy + start, len(data), options=options, keep=copy)

    @classmethod
    def _opened(
        cls, function: Callable[..., int], *args: Any, options: LoadOptions | None, keep: Any = None
    ) -> Machine:
        program, error = ffi.new("svm_program **"), ffi.new("svm_error *")
        read: list[Any] = []  # memory that the options point to
        options = options or LoadOptions()
        check(function(*args, options.c(read), program, error), error)
        return cls(program[0], options, keep)

    def close(self) -> None:
        """Free the program as soon as nothing uses it: running calls of other threads finish normally.
        Closing twice is allowed."""
        self._handle.close()
        for quick in self._quick.values():
            quick.clear()

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None and lib is not None:  # None: Python is shutting down
            self._handle.close()

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
        """The artifact's JSON for hosts (`meta.META`). Raises ArtifactError if it is invalid."""
        if self._meta is not None:  # not functools.cached_property, whose lock a forked child may find held
            return self._meta
        text, size = ffi.new("const char **"), ffi.new("size_t *")
        with self._handle.use() as program:
            lib.svm_meta(program, text, size, ffi.NULL)
            found = bytes(ffi.buffer(text[0], size[0]))
        self._meta = read_meta(found)
        return self._meta

    @property
    def kernels(self) -> tuple[KernelInfo, ...]:
        """The kernel table."""
        with self._handle.use() as program:
            return read_kernels(program)

    @property
    def functions(self) -> tuple[FunctionInfo, ...]:
        """The functions; the first is main."""
        with self._handle.use() as program:
            return read_functions(program)

    @property
    def externs(self) -> tuple[str, ...]:
        """Names of the host functions that the program calls."""
        with self._handle.use() as program:
            return tuple(text_of(lib.svm_extern_name(program, i)) for i in range(lib.svm_n_externs(program)))

    # Calls ------------------------------------------------------------------------------------------

    def call(self, inputs: Sequence[Any], function: int = 0) -> list[Any]:
        """Call an entry point (0: main) and return its results. Arrays are torch tensors if an input is one,
        else numpy arrays; without array inputs they are `default_library`'s.

        Inputs need not be contiguous. Raises ShapeError, DtypeError, KindError and the like (see errors)
        before anything runs if the inputs break the contract.
        """
        quick = self._quick[function]
        try:
            run = quick.functions.get(quick.key(*inputs))
        except (AttributeError, TypeError):
            run = None  # a wrong number, or values without shapes: the general call reports the error
        if run is not None:
            results = run(*inputs)
            if results is None:
                results = run(*self._plain(inputs, function))
            if results is not None:
                return results
            quick.drop(inputs)  # results have new shapes: they depend on computed values
        return self._call(inputs, function)

    def call_as(
        self,
        strategy: str | None,
        inputs: Sequence[Any],
        timeout_ms: int = 0,
        cancel: CancelFlag | None = None,
    ) -> list[Any]:
        """Call main like `call`, with a strategy for this call (None: the program's), for at most
        `timeout_ms` milliseconds (0: the program's limit). Raises DeadlineExceeded beyond that, and Cancelled
        once `cancel` is set.
        """
        code = -1 if strategy is None else strategy_code(strategy)
        return self._call(inputs, 0, code, timeout_ms, cancel=cancel)

    def call_observed(self, inputs: Sequence[Any], observe: Callable[[int, bool], None]) -> list[Any]:
        """Call main like `call`; `observe(kernel, is_end)` is called before and after each launch."""
        return self._call(inputs, 0, observe=observe)

    def call_into(self, out: Mapping[int, Any], inputs: Sequence[Any]) -> list[Any]:
        """Call main like `call`, and write the results of these indices into the caller's arrays.

        Raises ArgumentError for an array that cannot hold the result: of another dtype or shape, not
        contiguous, not writable, or sharing memory with an input; also for a result that is not a tensor.
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
        return self._handle.is_open

    def check_open(self) -> None:
        """Raise ArgumentError after `close`."""
        if not self._handle.is_open:
            raise ProgramClosed

    def _plain(self, xs: Sequence[Any], function: int) -> list[Any]:
        """Return the inputs with contiguous, aligned arrays. Raises Library.array's errors."""
        named = zip(xs, self._rows[function].inputs, strict=True)
        arrays = (row if is_array(x) else None for x, row in named)
        return [
            x if row is None or row.is_written else library_of(x).array(x, f'input "{row.name}"')[0]
            for x, row in zip(xs, arrays, strict=True)
        ]

    def _library(self, xs: Sequence[Any], is_entry: bool) -> Library:
        """Return the library for a call's results: torch if any input is a torch tensor, else numpy;
        `default_library` if no input of the user is an array."""
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
            if row and row.in_rows and is_array(x):
                check_in_rows(x, what)
            fill(values[index], x, keep, what)
        return values

    def _call(
        self, xs: Sequence[Any], function: int, strategy: int = -1, timeout_ms: int = 0,
        observe: Callable[[int, bool], None] | None = None, room: Mapping[int, tuple[Any, str]] | None = None,
        cancel: CancelFlag | None = None,
    ) -> list[Any]:  # fmt: skip
        notice_fork()
        handle = ffi.NULL if observe is None else ffi.new_handle(observe)
        told = ffi.NULL if observe is None else lib.svm_py_observe
        poll = ffi.addressof(lib, "svm_poll_signals")
        flag = ffi.NULL if cancel is None else cancel.pointer
        options = ffi.new("svm_call_options *", (strategy, timeout_ms, flag, poll, handle, told))
        is_plain = strategy == -1 and not timeout_ms and observe is None and not room and cancel is None
        with self._handle.use() as program:
            return self._call_used(program, xs, function, options, room, is_plain)

    def _call_used(
        self, program: Any, xs: Sequence[Any], function: int, options: Any,
        room: Mapping[int, tuple[Any, str]] | None, is_plain: bool,
    ) -> list[Any]:  # fmt: skip
        """Call the program, which is in use. `is_plain`: a call without options."""
        n_results, entry = lib.svm_function(program, function).n_results, self._rows.get(function)
        keep: list[Any] = []
        rows = entry.inputs if entry else ()
        values = self._fill(xs, rows, keep)
        outputs, error = ffi.new("svm_value[]", max(n_results, 1)), ffi.new("svm_error *")
        allocation = Allocation(self._library(xs, entry is not None), room)
        try:
            code = lib.svm_call_with(
                program, options, function, values, len(xs), allocation.allocator, outputs, n_results, error
            )
            check_cancelled(code, options.cancel)
            check(code, error)
            raise_kept()
            made = len(allocation.leaves)
            is_new = all(_is_new(outputs[i]) for i in range(n_results)) and made == n_results
            containers: dict[int, Any] = {}
            results = [to_python(outputs[i], allocation, containers) for i in range(n_results)]
            if not is_new:  # perhaps copied from weights after the runtime's last check of them
                check(lib.svm_check_file(program, error), error)
            is_plain = is_plain and entry is not None and is_new and not allocation.leaves
            is_plain = is_plain and not any(row.in_rows for row in rows)
            if is_plain and lib.svm_is_repeatable(program, function):
                self._remember(function, xs, values, outputs, n_results)
            return results
        finally:
            for i in range(len(xs)):
                lib.svm_value_release(ffi.addressof(values, i))
            for i in range(n_results):
                lib.svm_value_release(ffi.addressof(outputs, i))

    def _remember(self, function: int, xs: Sequence[Any], values: Any, outputs: Any, n_outputs: int) -> None:
        """Make the quick function for calls like this one, if that is possible and this is the second."""
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
        run = fast_path.make(self._handle.pointer, function, rows, xs, copy, forms, libraries)
        if run is not None:
            quick.add(xs, run)

    def check_weights(self) -> None:
        """Wait until all weights are verified. Raises ArtifactError naming the damaged part, FileError if the
        mapped file was changed.
        """
        self._handle.run(lib.svm_check_weights)

    def bind(self, inputs: Sequence[Any]) -> dict[str, int]:
        """Check the inputs against the contract; return the symbols' values by name. Runs nothing."""
        keep: list[Any] = []
        values = self._fill(inputs, self.inputs, keep)
        symbols = ffi.new("int64_t[]", max(len(self.symbols), 1))
        try:
            self._handle.run(lib.svm_bind, values, len(inputs), symbols)
        finally:
            for i in range(len(inputs)):
                lib.svm_value_release(ffi.addressof(values, i))
        return {symbol.name: symbols[i] for i, symbol in enumerate(self.symbols)}

    @property
    def extern_sources(self) -> dict[str, str]:
        """The model's line that first calls each host function, "" where unknown."""
        with self._handle.use() as program:
            n = lib.svm_n_externs(program)
            sources = [text_of(lib.svm_extern_source(program, i)) for i in range(n)]
        return dict(zip(self.externs, sources, strict=True))

    def register_extern(
        self, name: str, function: Callable[..., Sequence[Any]], library: Library | None = None
    ) -> None:
        """Register the host function `name`: it takes the arguments and returns a sequence of the results.

        Tensor arguments are numpy arrays that it owns. With a `library` nothing is copied: they are its
        arrays over the program's memory, to be read during the call only, and the results' memory then
        belongs to the program. Raises ArgumentError if the program calls no `name`.
        """
        with self._handle.use() as program:
            self._keep[name] = register(program, name, function, library)

    def register_dps(self, name: str, function: Callable[..., object], library: Library = NUMPY) -> None:
        """Register the host function `name` that takes a list of the arguments and one of the outputs, arrays
        of zeros that it fills; its result is ignored. All are `library`'s arrays over the program's memory,
        valid during the call. Raises ArgumentError if the program does not call `name` in this form.
        """
        with self._handle.use() as program:
            self._keep[f"{name} (call_dps)"] = register_dps(program, name, function, library)

    def load_plugin(self, path: str) -> None:
        """Load a shared library and register its functions that the program calls (docs/plug-ins.md). Raises
        ExternError for a library that is missing, is not a plug-in or has another ABI version."""
        self._handle.run(lib.svm_load_plugin, path.encode())

    @property
    def missing_externs(self) -> dict[str, bool]:
        """The host functions that are not registered; True for one that is called with `call_dps`."""
        names = self.externs
        with self._handle.use() as program:
            missing = [i for i in range(len(names)) if lib.svm_extern_is_missing(program, i)]
            return {names[i]: bool(lib.svm_extern_kind(program, i)) for i in missing}

    # Compilation ------------------------------------------------------------------------------------

    def attach_compiler(self, attached: bool = True) -> None:
        """State that a compiler answers requests (or no longer does: waiters are woken, requests dropped)."""
        self._handle.ask(lib.svm_attach_compiler, int(attached))

    def wait_request(self, timeout: float) -> Request | None:
        """Wait up to `timeout` seconds for a request for exact code; None if there is none.

        Every request must be answered by `install`, `compile_failed` or `decline`. Raises ArgumentError if no
        compiler is attached.
        """
        request = ffi.new("svm_request *")
        got = self._handle.ask(lib.svm_request_wait, max(int(timeout * 1000), 0), request)
        if got < 0:
            raise ArgumentError("no compiler is attached to this machine (any more)")
        dims = tuple(request.dims[0 : request.n_dims])
        return Request(request.kernel, dims, request.runs, bool(request.is_awaited)) if got else None

    @property
    def compiler_is_busy(self) -> bool:
        """Whether a compiler is attached and does not wait for a request."""
        return bool(self._handle.ask(lib.svm_compiler_is_busy))

    def install(self, kernel: int, code: KernelObject | bytes) -> None:
        """Install machine code for a kernel-table entry; exact code takes effect at once for its dims.

        Raises ArtifactError for an invalid record, KernelError or TargetError for code that does not match
        it.
        """
        record = code if isinstance(code, bytes) else serialise_object(code)
        self._handle.run(lib.svm_install_code, kernel, ffi.from_buffer(record), len(record))

    def compile_failed(self, kernel: int, dims: Sequence[int], message: str) -> None:
        """Answer a request with a failure; callers that wait get the message."""
        self._handle.run(lib.svm_compile_failed, kernel, list(dims) or [0], len(dims), message.encode())

    def decline(self, kernel: int, dims: Sequence[int], again_after: int = 0) -> None:
        """Decline a request: the existing code stays. Only calls that wait for exact code request it again,
        or the entry once it has run `again_after` times in all (0: never).
        """
        self._handle.run(lib.svm_decline_request, kernel, list(dims) or [0], len(dims), again_after)

    def is_awaited(self, kernel: int, dims: Sequence[int]) -> bool:
        """Return whether calls wait for exact code of these dims."""
        return bool(self._handle.ask(lib.svm_is_awaited, kernel, list(dims) or [0], len(dims)))

    def set_price(self, kernel: int, price: Price) -> None:
        """Set when a kernel's entries request exact code under auto. Raises ArgumentError for an unknown
        kernel and for negative numbers."""
        self._handle.run(lib.svm_set_price, kernel, ffi.new("svm_price *", vars(price)))

    def hurry(self, is_hurried: bool = True) -> None:
        """State that a caller waits for all hot kernels to be compiled regardless of price; False: no longer.
        Calls nest."""
        self._handle.ask(lib.svm_hurry, int(is_hurried))

    @property
    def is_hurried(self) -> bool:
        """Whether a caller of `hurry` waits."""
        return bool(self.stats()["n_hurries"])

    def generic_code(self, kernel: int) -> bytes:
        """Return the generic code object of a kernel, its record followed by the code; b"" if there is
        none."""
        size = self._handle.ask(lib.svm_generic_code, kernel, ffi.NULL, 0)
        record = ffi.new("char[]", max(size, 1))
        self._handle.ask(lib.svm_generic_code, kernel, record, size)
        return ffi.unpack(record, size) if size else b""

    def set_strategy(self, name: str) -> None:
        """Change the strategy, for entries and plans made from now on. Raises ArgumentError for an unknown
        one.
        """
        self._handle.run(lib.svm_set_strategy, strategy_code(name))
        self.options = replace(self.options, strategy=name)

    def set_function_strategy(self, function: str, name: str | None) -> None:
        """Set the strategy of the host's calls of one function; None: the program's again. Raises
        ArgumentError for an unknown function or strategy.
        """
        own = -1 if name is None else strategy_code(name)
        self._handle.run(lib.svm_set_function_strategy, self._function(function), own)

    def _function(self, name: str) -> int:
        """Return a function's index. Raises ArgumentError for an unknown one."""
        index = int(self._handle.ask(lib.svm_find_function, name.encode()))
        if index < 0:
            raise ArgumentError(
                f"the program has no function {name!r}; it has {', '.join(f.name for f in self.functions)}"
            )
        return index

    def installed(self, kernel: int) -> Iterator[bytes]:
        """Yield the code objects that were installed for a kernel-table entry and still exist: their records
        followed by the code, in the form of `install`.
        """
        for index in itertools.count():
            size = self._handle.ask(lib.svm_installed_code, kernel, index, ffi.NULL, 0)
            while size:
                record = ffi.new("char[]", size)
                again = self._handle.ask(lib.svm_installed_code, kernel, index, record, size)
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
        return self._handle.text(lib.svm_metrics, label)

    def time_calls(self, is_on: bool = True) -> None:
        """Start (or stop) to measure the duration of calls of main, for the metrics."""
        self._handle.ask(lib.svm_time_calls, int(is_on))

    def record(self, is_recording: bool = True) -> None:
        """Start (or stop) to record the sizes that main is called with."""
        self._handle.run(lib.svm_record, int(is_recording))

    def profile(self) -> str:
        """Return the record as JSON (docs/profile.md)."""
        return self._handle.text(lib.svm_profile)

    def timeline(self, is_on: bool = True) -> None:
        """Start a new timeline of the begin and end of calls, kernels and threads; or stop it."""
        self._handle.run(lib.svm_timeline, int(is_on))

    def timeline_data(self) -> dict[str, Any]:
        """Return the latest timeline in Chrome's trace event format (`svm_timeline_text`)."""
        return dict(json.loads(self._handle.text(lib.svm_timeline_text)))

    def stats(self) -> dict[str, int]:
        """Return the counters of `svm_stats` by name."""
        with self._handle.use() as program:
            return read_counters(program)

    def site(self, kernel: int) -> SiteStats:
        """Return the call site of a kernel-table entry. Raises KernelError for an index out of range."""
        with self._handle.use() as program:
            return read_site(program, kernel)


def _is_new(value: Any) -> bool:
    return bool(value.tag == TAGS["tensor"] and value.origin == lib.SVM_ORIGIN_NEW)


@ffi.def_extern(name="svm_py_poll", onerror=keep_raised, error=1)
def _poll(context: Any) -> int:
    """Let Python run its signal handlers, which happens on entering a Python function. Their exceptions stop
    the call."""
    return 0


@ffi.def_extern(name="svm_py_observe", onerror=keep_raised)
def _observe(context: Any, kernel: int, is_end: int) -> None:
    """Notify the observer of a call's launches."""
    ffi.from_handle(context)(kernel, bool(is_end))
