"""An Executable: a compiled program that is called like the model it came from."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from . import profiles, torch_profiler
from .argument_check import check_by_name, check_path, check_seconds
from .background import BackgroundCompilation
from .call_form import forms_of
from .errors import InputError
from .limits import check_strategy, milliseconds
from .session import Session
from .state import RANDOM
from .statistics import Stats
from .value_info import ValueInfo, infos
from .vm.codes import COMPILING
from .vm.errors import ArgumentError, FileError, GuardError
from .vm.files import HeldFile, replacing
from .vm.fork_lock import ForkLock
from .vm.machine import Machine

if TYPE_CHECKING:
    from .execution_profile import ExecutionProfile
    from .explain import Explanation
    from .kernel_store import StoreOnDemand
    from .vm.program import Input, Program, Symbol


#: All executables that exist.
OPEN: weakref.WeakSet[Executable] = weakref.WeakSet()


class Executable:
    """A loaded program. Call it as the model: positional and keyword arguments, nested containers, torch
    tensors or numpy arrays; results have the model's structure and the arrays of the caller's library: that
    of the arguments, or, without arrays among them, torch where it was imported before the program was
    loaded.
    Threads may share it.
    Buffers that the model changes are kept here: each call sees what the one before left, so that calls of
    such a program wait for each other. `save` writes their first values.

    Every call checks the contract: ShapeError, DtypeError, TypeError with one sentence before anything runs.
    """

    def __init__(self, machine: Machine, file: HeldFile, store: StoreOnDemand) -> None:
        """Take over a machine and the open artifact that it was loaded from; `compile` and `load` make
        executables.

        `store` compiles exact kernels, once something asks for them.
        """
        self._machine = machine
        self._forms, self._state_names = forms_of(machine)
        self._form = next(iter(self._forms.values()))
        self._session = self._new_session()
        #: What compiles the program's exact kernels.
        self.specialisation = BackgroundCompilation(machine, store)
        self._file = file
        self._saving = ForkLock()
        self.is_portable = True  # False: the file lacks code that other machines need
        OPEN.add(self)
        torch_profiler.find()
        profiles.opened(self)

    def __copy__(self) -> Executable:
        """Return an independent executable of the same artifact, with the state as it is now: it has a
        strategy, a file and code of its own. Raises FileError where the file was changed since it was loaded.
        """
        from .opening import open_held

        self._file.check()
        options = self._machine.options.without_digest()  # it was that of the file as it was loaded
        made = open_held(self._file, options, self.specialisation.on_demand)
        made.set_state(self.state())
        made.is_portable = self.is_portable
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Executable:
        return self.__copy__()

    def __reduce__(self) -> tuple[Callable[..., Executable], tuple[Any, ...]]:
        """Pickle it as its artifact's path and SHA-256 (its bytes, where no file has them), how it was
        loaded, and its state. Who unpickles it loads that file. Strategies of functions are left out."""
        from .pickled import Pickled, restored

        return restored, (Pickled.of(self._portable(), self._machine.options, self.state()),)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program."""
        form, call = self._form, self._machine.call
        if torch_profiler.module._is_profiler_enabled:
            call = partial(torch_profiler.run, self._machine, self.name)
            results = self.run_flat(call, form.flat(args, kwargs))
            return results[0] if form.is_one else form.nested(results)
        is_plain = not kwargs and len(args) == form.n_plain  # each further Python call costs 0.2 us or more
        inputs = args if is_plain else form.flat(args, kwargs)
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
        """Run one of the program's functions, such as "decode", as a call of this object runs main: with the
        same state. Raises ArgumentError for a name that is not in `functions`.
        """
        return self._session.call(function, *args, **kwargs)

    @property
    def functions(self) -> tuple[str, ...]:
        """The functions that can be called, the first is main: what a call of this object runs."""
        return tuple(self._forms)

    def session(self) -> Session:
        """Return calls of this program with a state of their own, which begins with the artifact's values.
        It shares weights, kernels and plans with this object and may be used until that is closed."""
        self._machine.check_open()
        return self._new_session()

    def _new_session(self) -> Session:
        return Session(self._machine, self._forms, self._state_names)

    def state(self) -> dict[str, Any]:
        """Return copies of the model's buffers that calls change, as the last call left them, by name."""
        return self._session.state()

    def set_state(self, values: Mapping[str, Any]) -> None:
        """Give the buffers that calls change other values: what `state` returned, of this program or a copy.

        Raises ArgumentError for a buffer that is missing or unknown, or has another dtype or shape.
        """
        self._session.set_state(values)

    def manual_seed(self, seed: int) -> None:
        """Begin the random numbers of a program that draws its own anew. Raises ArgumentError for another."""
        state = self._session.held
        if state is None or RANDOM not in state.names:
            raise ArgumentError(
                "the program draws no random numbers of its own; torch.manual_seed seeds PyTorch's"
            )
        state.seed(seed)

    def reset_state(self) -> None:
        """Set the buffers that calls change to the values that the artifact has."""
        self._session.reset_state()

    def using(self, strategy: str | None = None, *, timeout: float | None = None) -> Using:
        """Return this program to be called under another strategy, `exe.using("generic")(x)`, with results of
        the same bits, or with a limit of seconds: `exe.using(timeout=0.5)(x)` raises DeadlineExceeded when a
        call takes longer. None: as the program is called.

        Raises ArgumentError for an unknown strategy and for a timeout that is no positive number.
        """
        return Using(self, None if strategy is None else check_strategy(strategy), timeout)

    def set_strategy(self, strategy: str | None, function: str | None = None) -> None:
        """Change the strategy (None: the setting's) of all calls; or of those of one function of the program
        (None: the program's again), of which "main" is what a call of this object runs. A single call's
        (`using`) comes before a function's, that before the program's.

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
        """Return the sizes that inputs give, for a message."""
        sizes = [f"{name} is {value}" for name, value in self.bind_flat(inputs).items()]
        return f"; here {', '.join(sizes)}" if sizes else ""

    def run(self, inputs: Mapping[str, Any], out: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Run on flat inputs by name; return flat outputs by name, as the standalone runner does.

        `out`: arrays for some outputs by name, into which these are written; they must fit, see `outputs`.
        Raises InputError for an input that is missing or unknown, ArgumentError for `inputs` and `out` that
        are no dicts and for an array in `out` that does not fit.
        """
        check_by_name("inputs", inputs, "arrays")
        names = self._form.names
        for name in (*inputs, *names):
            if name not in names or name not in inputs:
                problem = "is missing" if name in names else "is unknown"
                raise InputError(
                    f"input {name!r} {problem}; the program takes {', '.join(names) or 'no inputs'}"
                )
        call = partial(self._machine.call_into, self._places(out)) if out else self._machine.call
        results = self.run_flat(call, [inputs[name] for name in names])
        return {row.name: value for row, value in zip(self._machine.outputs, results, strict=False)}

    def _places(self, out: Mapping[str, Any]) -> dict[int, Any]:
        check_by_name("out", out, "arrays")
        names = [row.name for row in self.outputs]
        unknown = [name for name in out if name not in names]
        if unknown:
            raise ArgumentError(f"out {unknown[0]!r} is unknown; the program gives {', '.join(names)}")
        return {names.index(name): array for name, array in out.items()}

    def flat(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        """Return a call's arguments as the flat inputs of the program, in order."""
        return self._form.flat(args, kwargs)

    def nested(self, results: Sequence[Any]) -> Any:
        """Return the flat results of the program as the model would."""
        return self._form.nested(results)

    def bind(self, *args: Any, **kwargs: Any) -> dict[str, int]:
        """Check arguments against the contract and return the sizes they give, by symbol; nothing runs."""
        return self.bind_flat(self._form.flat(args, kwargs))

    def bind_flat(self, inputs: Sequence[Any]) -> dict[str, int]:
        """Check flat inputs, in order, and return their sizes as `bind` does."""
        state = self._session.held
        return self._machine.bind(inputs if state is None else state.inputs(inputs))

    @property
    def user_inputs(self) -> Sequence[Input]:
        """The flat inputs of the contract that a caller gives: all but the state."""
        return self._machine.inputs[: len(self._form.names)]

    @property
    def inputs(self) -> tuple[ValueInfo, ...]:
        """The flat inputs, as `run` takes them: names, kinds, dtypes and shapes."""
        rows = self._machine.inputs[: len(self._form.names)]
        return infos(rows, self._machine.symbols)

    @property
    def outputs(self) -> tuple[ValueInfo, ...]:
        """The flat outputs, as `run` gives them: names, kinds, dtypes and shapes."""
        rows = self._machine.outputs[: self._form.n_results]
        return infos(rows, self._machine.symbols)

    @property
    def machine(self) -> Machine:
        """The loaded program itself: contract, kernels, call sites."""
        return self._machine

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the artifact, for `shapevm.load` and the standalone runner. The file is written beside
        `path`, synced and renamed: it appears whole or not at all, and programs that were loaded from the
        file that was there keep it.

        A program that was compiled just now gets the code that machines without some of this one's
        instructions (AMX) need, which `compile` leaves to this.

        Raises FileError where it cannot be written, or where the artifact that the program was loaded from
        was changed since.
        """
        check_path("path", path)
        try:
            with self._saving, replacing(path) as file:
                for piece in self._portable().pieces():
                    file.write(piece)
        except FileError:
            raise
        except OSError as error:
            raise FileError(f"{os.fspath(path)} cannot be written: {error.strerror or error}") from None

    def freeze(self) -> int:
        """Put the code that was compiled since loading and is in use into the artifact, byte for byte.

        Returns how many code objects that are. `save` then writes them too: who loads that starts warm.
        """
        from .vm.artifact import parse_object, read, write_to

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
        """The artifact's file name without folders and suffix; of a program that was just compiled,
        "compiled"."""
        name = os.path.basename(self._file.name)
        return os.path.splitext(name)[0] if os.path.isabs(self._file.name) or "." in name else "compiled"

    def metrics(self, model: str | None = None) -> str:
        """Return all counters as OpenMetrics text, with the label `model` (None: the program's name). Calls
        are timed from the first reading on."""
        from .metrics import metrics_text

        if model is not None and not isinstance(model, str):
            raise ArgumentError(f"model is {model!r}; give the text of a label")
        return metrics_text(self, self.name if model is None else model)

    def explain(self, measure: bool = False) -> Explanation:
        """Return what every call site did and why: print it, or take its `text()`, `json()` or `html()`.

        `measure`: run the kernels on made-up data to tell the milliseconds that exact code saved.
        """
        from .explain import explain

        return explain(self, measure)

    def profile(self, inputs: Any = None, *, calls: int = 10) -> ExecutionProfile:
        """Return where the time of calls goes: by kernel, with its share of the machine's limits.

        `inputs`: the positional arguments in a tuple, or a dict of flat inputs by name; the program is called
        with them `calls` times, after one call that is not timed. Without inputs, a context manager that
        profiles the calls in its block, those of all threads: `with exe.profile() as profile: exe(x)`.
        Print the profile, or take its `to_json()`, `html()`, `to_chrome_trace(path)`.
        """
        from .execution_profile import profile

        return profile(self, inputs, calls)

    @property
    def artifact(self) -> str:
        """A path under which the open artifact can be read."""
        return self._portable().path

    def program(self) -> Program:
        """Return the program of the open artifact, perhaps without code for other machines."""
        from .vm.artifact import read

        return read(self._file.path)

    def _portable(self) -> HeldFile:
        """Return the artifact with all code that other machines need, which is compiled now where a compiled
        program was never saved before."""
        from .fat import with_bases
        from .vm.artifact import write_to

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
        """Wait until no kernel is queued or being compiled; False when that took longer than `timeout`
        seconds."""
        check_seconds("timeout", timeout)
        return self.specialisation.wait(timeout)

    def summary(self) -> str:
        """Return one line: kernels, and the sizes with their bounds."""
        return summary_of(len(self._machine.kernels), self._machine.symbols)

    def __repr__(self) -> str:
        if not self._machine.is_open:
            return "<shapevm.Executable, closed>"
        called = ", ".join(torch_operators(self._machine))
        return f"<shapevm.Executable: {self.summary()}{'; calls PyTorch for ' if called else ''}{called}>"

    def _repr_html_(self) -> str:
        from .inspect import executable_html

        return executable_html(self)

    def close(self) -> None:
        """Free the program; no call may be running. It can still be saved. Closing twice is fine."""
        if self._machine.is_open:
            profiles.closing(self)
        self.specialisation.close()

    def __enter__(self) -> Executable:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Using:
    """A program under a strategy and a timeout of its calls' own; see `Executable.using`."""

    def __init__(self, exe: Executable, strategy: str | None, timeout: float | None = None) -> None:
        self.executable, self.strategy = exe, strategy
        self._timeout_ms = milliseconds(timeout)
        if strategy in COMPILING:
            exe.specialisation.ensure()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program."""
        exe = self.executable
        inputs = exe.flat(args, kwargs)
        call = partial(exe.machine.call_as, self.strategy, timeout_ms=self._timeout_ms)
        return exe.nested(exe.run_flat(call, inputs))


def summary_of(n_kernels: int, symbols: Sequence[Symbol]) -> str:
    """Return how many kernels a program has and for which sizes: "9 kernels for batch 1..32, length
    1..512"."""
    ranges = [f"{s.name} {s.shown_min}..{'' if s.max is None else s.max}" for s in symbols]
    return f"{n_kernels} kernel{'' if n_kernels == 1 else 's'} for {', '.join(ranges) or 'fixed sizes'}"


def torch_operators(machine: Machine) -> dict[str, str]:
    """Return the operators that a program calls in PyTorch, with the model's line that first calls each."""
    return {name: source for name, source in machine.extern_sources.items() if "::" in name}
