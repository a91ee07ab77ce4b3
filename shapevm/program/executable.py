"""An Executable: a compiled program that is called like the model it came from."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ..calls import profiles
from ..calls.checks import check_by_name, check_cancel, check_seconds
from ..calls.form import forms_of
from ..calls.opened import add_opened
from ..calls.session import Session
from ..calls.state import RANDOM
from ..calls.value_info import ValueInfo, infos
from ..specialise.background import BackgroundCompilation
from ..vm.codes import COMPILING
from ..vm.errors import ArgumentError, GuardError, InputError
from ..vm.files import replacing
from ..vm.fork_lock import ForkLock
from ..vm.handle import ProgramClosed
from ..vm.held_file import HeldFile
from ..vm.host import get_threads
from ..vm.machine import Machine
from . import torch_profiler
from .limits import check_strategy, milliseconds
from .reported import Reported
from .saving import saving
from .statistics import Stats

if TYPE_CHECKING:
    from ..specialise.kernel_store import StoreOnDemand
    from ..vm.cancel import CancelFlag
    from ..vm.codes import Strategy
    from ..vm.load_options import LoadOptions
    from ..vm.program import Constant, Input, Program, Symbol
    from .pickled import Pickled


class OtherForms(Protocol):
    """Programs for arguments of other forms than this one takes."""

    def program(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Executable | None:
        """Return the program for a call that was refused, None if there is none."""

    def close(self) -> None:
        """Close the programs."""


@dataclass(frozen=True)
class Again:
    """The functions that copy an executable: from its open artifact, and from a pickle."""

    opened: Callable[[HeldFile, LoadOptions, StoreOnDemand], Executable]
    restored: Callable[[Pickled], Executable]


class Executable(Reported):
    """A loaded program. Call it like the model: positional and keyword arguments, nested containers, torch
    tensors or numpy arrays. Results have the model's structure and the array type of the arguments or,
    without arrays among them, torch's if torch was imported before the program was loaded. Threads may share
    it. Buffers that the model changes are kept here: each call sees the state that the previous one left, so
    calls of such a program are serialised. `save` writes their initial values.

    Every call checks the contract: violations raise ShapeError, DtypeError or TypeError with one sentence
    before anything runs.
    """

    def __init__(self, machine: Machine, file: HeldFile, store: StoreOnDemand, again: Again) -> None:
        """Take over a machine and the open artifact that it was loaded from; `compile` and `load` make
        executables.

        `store` compiles exact kernels on request.
        """
        self._machine = machine
        self._forms, self._state_names = forms_of(machine)
        self._form = next(iter(self._forms.values()))
        self._session = self._new_session()
        #: Compiles the program's exact kernels.
        self.specialisation = BackgroundCompilation(machine, store)
        self._file, self._again = file, again
        self._saving = ForkLock()
        self.is_portable = True  # False: the file lacks code that other machines need
        self.other_forms: OtherForms | None = None  # of arguments that were None in the example
        add_opened(self)
        torch_profiler.find()
        profiles.opened(self)

    def __copy__(self) -> Executable:
        """Return an independent executable of the same artifact, with the current state: it has its own
        strategy, file and code. Raises FileError if the file was changed since it was loaded.
        """
        self._file.check()
        options = self._machine.options.without_digest()  # it was the digest of the file when it was loaded
        made = self._again.opened(self._file, options, self.specialisation.on_demand)
        made.set_state(self.state())
        made.is_portable = self.is_portable
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Executable:
        return self.__copy__()

    def __reduce__(self) -> tuple[Callable[..., Executable], tuple[Any, ...]]:
        """Pickle its artifact's path and SHA-256 (or its bytes, if no file has them), its load options, and
        its state. Unpickling loads that file. Strategies of functions are not pickled."""
        from .pickled import Pickled

        return self._again.restored, (Pickled.of(self._portable(), self._machine.options, self.state()),)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program."""
        form, call = self._form, self._machine.call
        if torch_profiler.module._is_profiler_enabled:
            call = partial(torch_profiler.run, self._machine, self.name)
            results = self.run_flat(call, form.flat(args, kwargs))
            return results[0] if form.is_one else form.nested(results)
        is_plain = not kwargs and len(args) == form.n_plain  # each further Python call costs 0.2 us or more
        try:
            inputs = args if is_plain else form.flat(args, kwargs)
        except ArgumentError:
            other = None if self.other_forms is None else self.other_forms.program(args, kwargs)
            if other is None:
                raise
            return other(*args, **kwargs)
        try:
            results = call(inputs) if is_plain else self.run_flat(call, inputs)
        except GuardError as error:
            error.args = (f"{error.args[0]}{self._sizes_text(inputs)}",)
            raise
        return results[0] if form.is_one else form.nested(results)

    def run_flat(self, run: Callable[[Sequence[Any]], list[Any]], inputs: Sequence[Any]) -> list[Any]:
        """Return run(all inputs)'s results for the user."""
        return self._form.run(self._session.held, run, inputs)

    def call(self, function: str, *args: Any, **kwargs: Any) -> Any:
        """Run one of the program's functions, such as "decode", like a call of this object runs main, with
        the same state. Raises ArgumentError for a name that is not in `functions`.
        """
        return self._session.call(function, *args, **kwargs)

    @property
    def functions(self) -> tuple[str, ...]:
        """The functions that can be called; the first is main, which a call of this object runs."""
        return tuple(self._forms)

    def session(self) -> Session:
        """Return a session: calls of this program with their own state, which starts with the artifact's
        values. It shares weights, kernels and plans with this object and may be used until that is closed."""
        self._machine.check_open()
        return self._new_session()

    def _new_session(self) -> Session:
        return Session(self._machine, self._forms, self._state_names)

    def state(self) -> dict[str, Any]:
        """Return copies of the model's buffers that calls change, as the last call left them, by name."""
        return self._session.state()

    def set_state(self, values: Mapping[str, Any]) -> None:
        """Set the buffers that calls change to values that `state` of this program or a copy returned.

        Raises ArgumentError for a buffer that is missing or unknown, or has another dtype or shape.
        """
        self._session.set_state(values)

    def manual_seed(self, seed: int) -> None:
        """Reseed the program's generator. Raises ArgumentError if the program does not draw random numbers
        itself."""
        state = self._session.held
        if state is None or RANDOM not in state.names:
            raise ArgumentError(
                "the program draws no random numbers of its own; torch.manual_seed seeds PyTorch's"
            )
        state.seed(seed)

    def reset_state(self) -> None:
        """Reset the buffers that calls change to the artifact's values."""
        self._session.reset_state()

    def using(
        self,
        strategy: Strategy | None = None,
        *,
        timeout: float | None = None,
        cancel: CancelFlag | None = None,
    ) -> Using:
        """Return this program for calls under another strategy, `exe.using("generic")(x)`, with results of
        the same bits, or with a timeout in seconds: `exe.using(timeout=0.5)(x)` raises DeadlineExceeded if a
        call takes longer. None: the program's own. A call raises Cancelled once another thread has set
        `cancel`.

        Raises ArgumentError for an unknown strategy and for a timeout that is no positive number.
        """
        return Using(self, None if strategy is None else check_strategy(strategy), timeout, cancel)

    def set_strategy(self, strategy: Strategy | None, function: str | None = None) -> None:
        """Change the strategy (None: the setting's) of all calls; or those of one function (None: the
        program's again); "main" is the function that a call of this object runs. A call's strategy (`using`)
        overrides a function's, which overrides the program's.

        Raises ArgumentError for an unknown strategy or function.
        """
        own = None if function is not None and strategy is None else check_strategy(strategy)
        if function is not None:
            self._machine.set_function_strategy(function, own)
        else:
            self._machine.set_strategy(check_strategy(strategy))
        if own in COMPILING:
            self.specialisation.ensure()

    def _sizes_text(self, inputs: Sequence[Any]) -> str:
        """Return the sizes of inputs, for a message."""
        sizes = [f"{name} is {value}" for name, value in self.bind_flat(inputs).items()]
        return f"; here {', '.join(sizes)}" if sizes else ""

    def run(self, inputs: Mapping[str, Any], out: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Run on flat inputs by name; return flat outputs by name, as the standalone runner does.

        `out`: arrays by name, into which these outputs are written; they must match `outputs`.
        Raises InputError for an input that is missing or unknown, ArgumentError if `inputs` or `out` is not a
        dict or an array in `out` does not match.
        """
        call = partial(self._machine.call_into, self._places(out)) if out else self._machine.call
        return self.run_named(call, inputs)

    def run_named(
        self, run: Callable[[Sequence[Any]], list[Any]], inputs: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return run(all inputs)'s results by name. Raises InputError as `run` does."""
        check_by_name("inputs", inputs, "arrays")
        names = self._form.names
        for name in (*inputs, *names):
            if name not in names or name not in inputs:
                problem = "is missing" if name in names else "is unknown"
                raise InputError(
                    f"input {name!r} {problem}; the program takes {', '.join(names) or 'no inputs'}"
                )
        results = self.run_flat(run, [inputs[name] for name in names])
        return {row.name: value for row, value in zip(self._machine.outputs, results, strict=False)}

    def _places(self, out: Mapping[str, Any]) -> dict[int, Any]:
        check_by_name("out", out, "arrays")
        names = [row.name for row in self.outputs]
        unknown = [name for name in out if name not in names]
        if unknown:
            raise ArgumentError(f"out {unknown[0]!r} is unknown; the program gives {', '.join(names)}")
        return {names.index(name): array for name, array in out.items()}

    def map(
        self,
        items: Iterable[Any],
        *,
        max_tokens: int = 2048,
        max_rows: int | None = None,
        window: int = 1024,
        threads: int | None = None,
        padding: Mapping[str, Any] | None = None,
        progress: Callable[[str, int, int], None] | bool = False,
    ) -> Iterator[Any]:
        """Return an iterator over the results of items of different sizes, in their order: they run in
        batches, with the bits that each has alone. At most two windows of items are held at once.

        Args:
            items: A list or a generator. An item is an array, a tuple of arrays or a mapping by the inputs'
                names, each without the axis of the batch. The inputs `attention_mask` and `mask` of whole
                numbers or bools may be left out. If the program has such a mask, items of different sizes
                share a batch, padded to the longest; otherwise only items of equal sizes do.
            max_tokens: Places of a batch, padding included; an item alone may have more.
            max_rows: Items of a batch; None: no limit.
            window: Items that are sorted by their sizes at a time.
            threads: Batches that run at once; None: the number of threads that run kernels (`set_threads`).
            padding: The number by which an input is padded, by its name, where it is not 0. A name that
                contains "mask" is an additional mask.
            progress: True: a bar on standard error if that is a terminal; or a function, called as
                `progress("map", done, total)`, with 0 for an unknown total.

        Raises:
            ArgumentError: A program that keeps state or whose inputs and outputs are not all rows, or an
                invalid argument.
            Error: Errors of items, such as ShapeError; the message begins with the item's number.
        """
        from .item_shapes import ItemShapes
        from .mapping import Batches, ItemRuns, shown

        if self._session.held is not None:
            raise ArgumentError("the program keeps state between calls, so the order of its calls matters")
        batches = Batches(max_tokens, max_rows, window, get_threads() if threads is None else threads)
        outputs = self._machine.outputs[: self._form.n_results]
        shapes = ItemShapes(self.user_inputs, outputs, self._machine.symbols, padding or {})
        runs = ItemRuns(self._machine.call, shapes, batches)
        return shown(items, runs, self.nested, progress)

    def flat(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        """Return a call's arguments as the flat inputs of the program, in order."""
        return self._form.flat(args, kwargs)

    def nested(self, results: Sequence[Any]) -> Any:
        """Return the flat results of the program as the model would."""
        return self._form.nested(results)

    def bind(self, *args: Any, **kwargs: Any) -> dict[str, int]:
        """Check arguments against the contract and return their sizes by symbol; nothing runs."""
        return self.bind_flat(self._form.flat(args, kwargs))

    def bind_flat(self, inputs: Sequence[Any]) -> dict[str, int]:
        """Check flat inputs, in order, and return their sizes as `bind` does."""
        state = self._session.held
        return self._machine.bind(inputs if state is None else state.inputs(inputs))

    @property
    def user_inputs(self) -> Sequence[Input]:
        """The flat inputs of the contract that a caller passes: all but the state."""
        return self._machine.inputs[: len(self._form.names)]

    @property
    def inputs(self) -> tuple[ValueInfo, ...]:
        """The flat inputs of `run`: names, kinds, dtypes and shapes."""
        rows = self._machine.inputs[: len(self._form.names)]
        return infos(rows, self._machine.symbols)

    @property
    def outputs(self) -> tuple[ValueInfo, ...]:
        """The flat outputs of `run`: names, kinds, dtypes and shapes."""
        rows = self._machine.outputs[: self._form.n_results]
        return infos(rows, self._machine.symbols)

    @property
    def machine(self) -> Machine:
        """The loaded program itself: contract, kernels, call sites."""
        return self._machine

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the artifact, for `shapevm.load` and the standalone runner. The file is written beside
        `path`, synced and renamed: it appears whole or not at all, and programs loaded from a previous file
        keep that.

        The first save of a compiled program also compiles the code for machines that lack some of this one's
        instructions (AMX).

        Raises ArgumentError for the suffix of another format, and FileError if the file cannot be written, or
        if the program's artifact was changed since it was loaded.
        """
        with saving(path), self._saving, replacing(path) as file:
            for piece in self._portable().pieces():
                file.write(piece)

    def freeze(self) -> int:
        """Add the code that was compiled since loading and is in use to the artifact, byte for byte.

        Returns the number of these code objects. `save` then writes them too, so the saved program starts
        warm.
        """
        from ..vm.artifact import parse_object, read, write_to

        self._machine.check_open()
        with self._saving:
            program = read(self._portable().path)
            kernels, n_added = [], 0
            for index, kernel in enumerate(program.kernels):
                have = {(o.target, o.key) for o in kernel.objects}
                found = {(o.target, o.key): o for o in map(parse_object, self._machine.installed(index))}
                made = [o for key, o in found.items() if key not in have]
                kernels.append(replace(kernel, objects=(*kernel.objects, *made)))
                n_added += len(made)
            frozen = replace(program, kernels=tuple(kernels))
            file = HeldFile.temporary(partial(write_to, frozen), self._file.name)
            self._file.check()
            self._file = file
        return n_added

    @property
    def name(self) -> str:
        """The artifact's file name without folders and suffix; "compiled" for a newly compiled program."""
        name = os.path.basename(self._file.name)
        return os.path.splitext(name)[0] if os.path.isabs(self._file.name) or "." in name else "compiled"

    @property
    def artifact(self) -> str:
        """A path by which the open artifact can be read."""
        return self._portable().path

    def program(self) -> Program:
        """Return the program of the open artifact, which may lack code for other machines."""
        from ..vm.artifact import read

        return read(self._file.path)

    def constants(self, name: str) -> tuple[Constant, ...]:
        """Return the tensors of that name in the open artifact: data that no instruction reads."""
        from ..vm.artifact import read_constants

        return read_constants(self._file.path, name)

    def _portable(self) -> HeldFile:
        """Return the artifact with all code that other machines need, compiled now if the program was never
        saved."""
        from ..vm.artifact import write_to
        from .targets import with_bases

        with self._saving:
            if not self.is_portable:
                program = with_bases(self.program(), self.specialisation.on_demand.get())
                self._file = HeldFile.temporary(partial(write_to, program), self._file.name)
                self.is_portable = True
            return self._file

    def stats(self) -> Stats:
        """Return counters and the state of every call site."""
        self._machine.check_open()
        counters, n_kernels = self._machine.stats(), len(self._machine.kernels)
        entries = [(k, entry) for k in range(n_kernels) for entry in self._machine.site(k).entries]
        store = self.specialisation.opened_store
        compiled, from_cache = (store.stats.compiled, store.stats.from_cache) if store else (0, 0)
        return Stats(
            counters["calls"], counters["replays"], counters["extern_calls"], counters["n_plans"], compiled,
            from_cache, counters["n_failed"], store.cache_failures if store else 0, counters["code_bytes"],
            counters["arena_bytes"], tuple(entries),
        )  # fmt: skip

    def wait_until_specialised(self, timeout: float = 60.0) -> bool:
        """Wait until no kernel is queued or being compiled and the compiling thread is idle, so that the
        process may be forked in C; False if that takes longer than `timeout` seconds."""
        check_seconds("timeout", timeout)
        return self.specialisation.wait(timeout)

    def summary(self) -> str:
        """Return one line: kernels, and the sizes with their bounds."""
        return summary_of(len(self._machine.kernels), self._machine.symbols)

    def __repr__(self) -> str:
        try:
            called = ", ".join(torch_operators(self._machine))
            return f"<shapevm.Executable: {self.summary()}{'; calls PyTorch for ' if called else ''}{called}>"
        except ProgramClosed:
            return "<shapevm.Executable, closed>"

    def close(self) -> None:
        """Free the program as soon as nothing uses it: running calls and reads of other threads finish
        normally, later ones raise ArgumentError. It can still be saved. Closing twice is allowed."""
        if self._machine.is_open:
            profiles.closing(self)
        self.specialisation.close()
        if self.other_forms is not None:
            self.other_forms.close()

    def __enter__(self) -> Executable:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Using:
    """A program with a strategy, a timeout and a cancel flag for its calls; see `Executable.using`."""

    def __init__(
        self, exe: Executable, strategy: Strategy | None, timeout: float | None = None,
        cancel: CancelFlag | None = None,
    ) -> None:  # fmt: skip
        self.executable, self.strategy = exe, strategy
        self._call = partial(
            exe.machine.call_as, strategy, timeout_ms=milliseconds(timeout), cancel=check_cancel(cancel)
        )
        if strategy in COMPILING:
            exe.specialisation.ensure()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program."""
        exe = self.executable
        return exe.nested(exe.run_flat(self._call, exe.flat(args, kwargs)))

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run on flat inputs by name, as `Executable.run` does."""
        return self.executable.run_named(self._call, inputs)


def summary_of(n_kernels: int, symbols: Sequence[Symbol]) -> str:
    """Return the number of kernels of a program and its sizes: "9 kernels for batch 1..32, length
    1..512"."""
    ranges = [f"{s.name} {s.shown_min}..{'' if s.max is None else s.max}" for s in symbols]
    return f"{n_kernels} kernel{'' if n_kernels == 1 else 's'} for {', '.join(ranges) or 'fixed sizes'}"


def torch_operators(machine: Machine) -> dict[str, str]:
    """Return the PyTorch operators that a program calls, with the model's line that first calls each."""
    return {name: source for name, source in machine.extern_sources.items() if "::" in name}
