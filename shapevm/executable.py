"""An Executable: a compiled program that is called like the model it came from."""

from __future__ import annotations

import importlib.util
import logging
import math
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import profiles, pytree
from .settings import STRATEGIES, settings
from .state import RANDOM, state_of
from .trust import Trust
from .vm.arrays import torch_library
from .vm.codes import COMPILING, LIMITS
from .vm.errors import ArgumentError, ArtifactError, ExternError, FileError, GuardError
from .vm.files import HeldFile, replacing
from .vm.fork_lock import ForkLock
from .vm.machine import EntryStats, Machine, Options, set_threads

if TYPE_CHECKING:
    from .boundary import Least
    from .explain import Explanation
    from .jit.store import KernelStore
    from .specialise import Specialiser
    from .vm.program import Program, Symbol

_LOG = logging.getLogger("shapevm")
MAX_TIMEOUT = LIMITS["TIMEOUT_S"][0]  # seconds


@dataclass(frozen=True)
class Stats:
    """What an Executable has done so far. `entries`: (kernel index, entry) of every kernel at every shape it
    met.

    `calls`: all calls; `replays`: those that replayed a plan; `torch_calls`: calls of PyTorch's kernels and
    other host functions; `plans`: shapes with a plan now. `compiled`, `from_cache`: kernels compiled, and
    found in the disk cache: the exact ones since loading, and those of `shapevm.compile`. `compile_failures`:
    kernels that could not be compiled; `cache_failures`: reads and writes of the kernel cache that failed.
    `code_bytes`: exact code mapped since loading; `arena_bytes`: memory between kernels that is kept for the
    next call.
    """

    calls: int
    replays: int
    torch_calls: int
    plans: int
    compiled: int
    from_cache: int
    compile_failures: int
    cache_failures: int
    code_bytes: int
    arena_bytes: int
    entries: tuple[tuple[int, EntryStats], ...]

    def since(self, before: Stats) -> Stats:
        """Return what happened after `before`: counters subtracted, entries that ran since."""
        hits = {
            (kernel, entry.dims): entry.hits for kernel, entry in before.entries
        }  # an entry's first run is no hit
        ran = tuple((k, entry) for k, entry in self.entries if entry.hits > hits.get((k, entry.dims), -1))
        counters = {name: getattr(self, name) - getattr(before, name) for name in _COUNTERS}
        return replace(self, entries=ran, **counters)

    def tier(self) -> str:
        """Return which code the entries run: "exact", "bucket", "generic", or how many of each ("exact 3,
        generic 2"), or "none" where no kernel has run.
        Kernels whose sizes are all fixed do not count: their only code is exact."""
        if not self.entries:
            return "none"
        tiers = [entry.tier for _, entry in self.entries if entry.dims]
        counts = {tier: tiers.count(tier) for tier in ("exact", "bucket", "generic")}
        found = [tier for tier, n in counts.items() if n]
        if len(found) < 2:
            return found[0] if found else "exact"
        return ", ".join(f"{tier} {counts[tier]}" for tier in found)


_COUNTERS = (
    "calls", "replays", "torch_calls", "compiled", "from_cache", "compile_failures", "cache_failures",
)  # fmt: skip

#: All executables that exist.
OPEN: weakref.WeakSet[Executable] = weakref.WeakSet()


class CallForm:
    """How the model's nested arguments and results map to the flat ones of the program."""

    def __init__(self, machine: Machine) -> None:
        """Raise ArtifactError where the artifact describes other inputs or outputs than the program has."""
        structure = machine.meta.get("structure", {})
        n_state, n_changed = len(structure.get("state", [])), len(structure.get("changed", []))
        names = [row.name for row in machine.inputs][: len(machine.inputs) - n_state]
        n_results = len(machine.outputs) - n_state - n_changed
        self._signature: Mapping[str, Any] = {
            "positional": names,
            "parameters": dict.fromkeys(names, pytree.LEAF),
        }
        self._results: pytree.Structure = {"tuple": [pytree.LEAF] * n_results}
        try:
            self._signature = (
                pytree.from_json(structure["inputs"]) if "inputs" in structure else self._signature
            )
            self._results = (
                pytree.from_json(structure["outputs"]) if "outputs" in structure else self._results
            )
            n_inputs, n_outputs = len(pytree.call_paths(self._signature)), pytree.n_leaves(self._results)
        except (ValueError, TypeError, RecursionError) as error:
            raise ArtifactError(f"the structure of inputs and outputs cannot be read: {error}") from None
        if (n_inputs, n_outputs) != (len(names), n_results):
            raise ArtifactError(
                f"the structure has {n_inputs} inputs and {n_outputs} outputs; the program has {len(names)} "
                f"and {n_results}"
            )
        self.state = state_of(machine, structure)
        machine.n_state = n_state
        self.names = names
        parameters = self._signature["parameters"]
        self._is_flat = list(parameters) == names and all(
            inner == pytree.LEAF for inner in parameters.values()
        )
        self._by_position = self._is_flat and self._signature["positional"] == names
        self.is_one = self._results == pytree.LEAF
        #: Positional arguments that are the program's inputs as they are, -1 where that is not all of them.
        self.n_plain = len(names) if self._by_position and self.state is None else -1

    def flat(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        """Return the inputs in order. Raises ArgumentError for arguments that the program does not take."""
        if not kwargs and self._by_position and len(args) == len(self.names):
            return args
        if (
            not args
            and self._is_flat
            and len(kwargs) == len(self.names)
            and all(n in kwargs for n in self.names)
        ):
            return [kwargs[name] for name in self.names]
        return pytree.flatten_call(args, kwargs, self._signature)

    def nested(self, results: Sequence[Any]) -> Any:
        """Return the results as the model would."""
        return results[0] if self.is_one else pytree.unflatten(results, self._results)


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

    def __init__(self, machine: Machine, file: HeldFile, store: KernelStore | None = None) -> None:
        """Take over a machine and the open artifact that it was loaded from; `compile` and `load` make
        executables.

        `store` compiles exact kernels; None: nothing does.
        """
        self._machine = machine
        self._form = CallForm(machine)
        self._store = store
        self._specialiser: Specialiser | None = None
        self._closing = ForkLock()
        self._file = file
        self._saving = ForkLock()
        OPEN.add(self)
        profiles.opened(self)

    def __copy__(self) -> Executable:
        """Return an independent executable of the same artifact, with the state as it is now: it has a
        strategy, a file and code of its own. Raises FileError where the file was changed since it was loaded.
        """
        self._file.check()
        made = _executable(self._file, self._machine.options, self._store)
        if self._form.state is not None and made._form.state is not None:
            made._form.state.take(self._form.state)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Executable:
        return self.__copy__()

    def specialise(self, per_second: float | None = None) -> None:
        """Start to compile, in the background, the exact kernels that the program asks for.

        `per_second`: the seconds of compilation granted each second, None for all.
        """
        from .specialise import Specialiser

        assert self._store is not None and self._specialiser is None
        self._specialiser = Specialiser(self._machine, self._store, per_second)
        weakref.finalize(self, self._specialiser.stop).atexit = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program."""
        form, call = self._form, self._machine.call
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
        state = self._form.state
        return run(inputs) if state is None else state.call(run, inputs)

    def state(self) -> dict[str, Any]:
        """Return copies of the model's buffers that calls change, as the last call left them, by name."""
        return self._form.state.values() if self._form.state is not None else {}

    def manual_seed(self, seed: int) -> None:
        """Begin the random numbers of a program that draws its own anew. Raises ArgumentError for another."""
        state = self._form.state
        if state is None or RANDOM not in state.names:
            raise ArgumentError(
                "the program draws no random numbers of its own; torch.manual_seed seeds PyTorch's"
            )
        state.seed(seed)

    def reset_state(self) -> None:
        """Set the buffers that calls change to the values that the artifact has."""
        if self._form.state is not None:
            self._form.state.reset()

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
            self.ensure_compiler()

    def ensure_compiler(self) -> None:
        """Start specialising if nothing does yet and a compiler is installed."""
        from .specialise import has_compiler, open_store

        with self._closing:
            if self._specialiser is None and has_compiler():
                if self._store is None:
                    self._store = open_store(own_target(self._machine), is_host=True)
                self.specialise(settings.compile_budget / 1e3 if settings.compile_budget else None)

    def _sizes_text(self, inputs: Sequence[Any]) -> str:
        """Return the sizes that inputs give, for a message."""
        sizes = [f"{name} is {value}" for name, value in self.bind_flat(inputs).items()]
        return f"; here {', '.join(sizes)}" if sizes else ""

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run on flat inputs by name; return flat outputs by name, as the standalone runner does.

        Raises ArgumentError for an input that is missing or unknown.
        """
        names = self._form.names
        for name in (*inputs, *names):
            if name not in names or name not in inputs:
                problem = "is missing" if name in names else "is unknown"
                raise ArgumentError(
                    f"input {name!r} {problem}; the program takes {', '.join(names) or 'no inputs'}"
                )
        results = self.run_flat(self._machine.call, [inputs[name] for name in names])
        return {row.name: value for row, value in zip(self._machine.outputs, results, strict=False)}

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
        state = self._form.state
        return self._machine.bind(inputs if state is None else state.inputs(inputs))

    @property
    def machine(self) -> Machine:
        """The loaded program itself: contract, kernels, call sites."""
        return self._machine

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the artifact, for `shapevm.load` and the standalone runner. The file is written beside
        `path`, synced and renamed: it appears whole or not at all, and programs that were loaded from the
        file that was there keep it.

        Raises FileError where it cannot be written, or where the artifact that the program was loaded from
        was changed since.
        """
        try:
            with self._saving, replacing(path) as file:
                for piece in self._file.pieces():
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
            program = read(self.artifact)
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

    def metrics(self) -> str:
        """Return all counters as OpenMetrics text."""
        from .metrics import metrics_text

        return metrics_text(self)

    def explain(self, measure: bool = False) -> Explanation:
        """Return what every call site did and why: print it, or take its `text()`, `json()` or `html()`.

        `measure`: run the kernels on made-up data to tell the milliseconds that exact code saved.
        """
        from .explain import explain

        return explain(self, measure)

    @property
    def store(self) -> KernelStore | None:
        """What compiles kernels for this program, None where nothing does yet."""
        return self._store

    @property
    def compile_seconds(self) -> Mapping[tuple[int, tuple[int, ...]], float]:
        """Seconds that exact code took to come, by (kernel, dims): of the latest requests."""
        return dict(self._specialiser.seconds) if self._specialiser is not None else {}

    @property
    def gains(self) -> Mapping[int, float]:
        """Generic against exact time of the kernels that were measured beside the program."""
        known = dict(self._specialiser.gains.known) if self._specialiser is not None else {}
        return {kernel: gain.ratio for kernel, gain in known.items() if gain.ratio is not None}

    @property
    def pays_after(self) -> Mapping[tuple[int, tuple[int, ...]], int]:
        """Runs after which exact code pays for its compilation, by (kernel, dims): of what waits for that."""
        if self._specialiser is None:
            return {}
        gains = self._specialiser.gains
        waiting = [
            (kernel, entry.dims) for kernel, entry in self.stats().entries
            if entry.tier != "exact" and entry.state in ("idle", "queued", "compiling")
        ]  # fmt: skip
        return {key: gains.pays_after(*key) for key in waiting if not gains.is_declined(*key)}

    @property
    def artifact(self) -> str:
        """A path under which the open artifact can be read."""
        return self._file.path

    def stats(self) -> Stats:
        """Return counters and the state of every call site."""
        self._machine.check_open()
        counters, n_kernels = self._machine.stats(), len(self._machine.kernels)
        entries = [(k, entry) for k in range(n_kernels) for entry in self._machine.site(k).entries]
        store = self._store
        compiled, from_cache = (store.stats.compiled, store.stats.from_cache) if store else (0, 0)
        return Stats(
            counters["calls"], counters["replays"], counters["extern_calls"], counters["n_plans"], compiled,
            from_cache, counters["n_failed"], store.cache_failures if store else 0, counters["code_bytes"],
            counters["arena_bytes"], tuple(entries),
        )  # fmt: skip

    def wait_until_specialised(self, timeout: float = 60.0) -> bool:
        """Wait until no kernel is queued or being compiled; False when that took longer than `timeout`
        seconds."""
        end = time.monotonic() + timeout
        with self.in_a_hurry():
            while self._machine.stats()["n_pending"]:
                if time.monotonic() > end:
                    return False
                time.sleep(0.001)
        return True

    @contextmanager
    def in_a_hurry(self) -> Iterator[None]:
        """Lift the budget of compilation."""
        self._machine.hurry()
        try:
            yield
        finally:
            self._machine.hurry(False)

    def summary(self) -> str:
        """Return one line: kernels, and the sizes with their bounds."""
        return summary_of(len(self._machine.kernels), self._machine.symbols)

    def __repr__(self) -> str:
        if not self._machine.is_open:
            return "<shapevm.Executable, closed>"
        called = ", ".join(torch_operators(self._machine))
        return f"<shapevm.Executable: {self.summary()}{'; calls PyTorch for ' if called else ''}{called}>"

    def close(self) -> None:
        """Free the program; no call may be running. It can still be saved. Closing twice is fine."""
        with self._closing:
            if self._machine.is_open:
                profiles.closing(self)
            if self._specialiser is not None:
                self._specialiser.close()
            self._machine.close()

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
            exe.ensure_compiler()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program."""
        exe = self.executable
        inputs = exe.flat(args, kwargs)
        call = partial(exe.machine.call_as, self.strategy, timeout_ms=self._timeout_ms)
        return exe.nested(exe.run_flat(call, inputs))


def summary_of(n_kernels: int, symbols: Sequence[Symbol]) -> str:
    """Return how many kernels a program has and for which sizes: "9 kernels for batch 1..32, length
    1..512"."""
    ranges = [f"{s.name} {s.min}..{'' if s.max is None else s.max}" for s in symbols]
    return f"{n_kernels} kernel{'' if n_kernels == 1 else 's'} for {', '.join(ranges) or 'fixed sizes'}"


@dataclass(frozen=True)
class Limits:
    """What one call may use; None: what the setting of that name says, 0: without a limit.

    `fuel`: instructions of the virtual machine. `memory`: bytes that the call holds at once: between kernels,
    results, copies of inputs. `timeout`: seconds.
    """

    fuel: int | None = None
    memory: int | None = None
    timeout: float | None = None

    def of(self, options: Options) -> Options:
        """Return the runtime's options with these limits. Raises ArgumentError for one that cannot be."""
        fuel = settings.fuel if self.fuel is None else _count("fuel", self.fuel)
        memory = settings.memory_mib << 20 if self.memory is None else _count("memory", self.memory)
        timeout = settings.timeout_ms if self.timeout is None else milliseconds(self.timeout or None)
        return replace(options, fuel=fuel, memory_max=memory, timeout_ms=timeout)


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise ArgumentError(f"{name}={value!r} must be a whole number from 0 (no limit) to 2**63 - 1")
    return value


def milliseconds(timeout: float | None) -> int:
    """Return seconds as whole milliseconds, at least 1; None as 0. Raises ArgumentError for what is no
    positive number."""
    if timeout is None:
        return 0
    is_number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
    if not is_number or not 0 < timeout <= MAX_TIMEOUT:
        raise ArgumentError(f"timeout={timeout!r} must be a number of seconds above 0, at most {MAX_TIMEOUT}")
    return math.ceil(timeout * 1000)


def machine_options(strategy: str | None, has_compiler: bool, limits: Limits | None = None) -> Options:
    """Return the runtime's options from the settings. Raises ArgumentError for an unknown strategy and for a
    limit that cannot be."""
    settings.check()
    options = Options(
        strategy=check_strategy(strategy),
        hot_calls=settings.hot_calls,
        has_compiler=has_compiler,
        perf_map=settings.perf_map,
        code_bytes_max=settings.code_mib << 20,
        plans_max=settings.plans,
    )
    return (limits or Limits()).of(options)


def check_strategy(strategy: str | None) -> str:
    """Return the strategy, the setting's for None. Raises ArgumentError for an unknown one."""
    if strategy is not None and strategy not in STRATEGIES:
        raise ArgumentError(f"strategy {strategy!r} is unknown; known are {', '.join(STRATEGIES)}")
    return strategy or settings.strategy


def _set_threads() -> None:
    """Set the number of threads that the settings want, where that is not what they wanted before."""
    global _threads
    wanted = settings.threads
    if wanted != _threads:
        set_threads(wanted)
        _threads = wanted


_threads = 0  # what the settings wanted last; the runtime starts with one per CPU


def open_executable(
    path: Path,
    strategy: str | None,
    store: KernelStore | None = None,
    limits: Limits | None = None,
    trust: Trust | None = None,
) -> Executable:
    """Load the artifact at `path`; with a compiler installed and a strategy that wants it, start
    specialising. `store`: what compiles for it, if that is there already."""
    from .specialise import has_compiler

    options = machine_options(strategy, has_compiler(), limits)
    options = (trust or Trust()).of(options, path)
    return _executable(HeldFile.open(path), options, store)


def _executable(
    file: HeldFile, options: Options, store: KernelStore | None = None, is_trial: bool = False
) -> Executable:
    """Load an artifact. `store`: what compiled it just now, if anything did. `is_trial`: the program is
    opened again for its user, so nothing is logged of it."""
    from .specialise import add_generic, open_store

    _set_threads()
    machine = Machine.open_file(file.descriptor, file.name, options)
    if "torch" in sys.modules:
        machine.default_library = torch_library()
    attach_torch(machine)
    if not is_trial:
        _log_torch(machine)
    foreign = [index for index, kernel in enumerate(machine.kernels) if not kernel.n_objects]
    wanted = options.has_compiler and options.strategy in COMPILING
    if foreign or (wanted and store is None):
        store = open_store(own_target(machine), is_host=True)
        add_generic(machine, store, foreign)
    made = Executable(machine, file, store)
    if wanted:
        limited = options.strategy == "auto" and settings.compile_budget > 0
        made.specialise(settings.compile_budget / 1e3 if limited else None)
    return made


def torch_operators(machine: Machine) -> dict[str, str]:
    """Return the operators that a program calls in PyTorch, with the model's line that first calls each."""
    return {name: source for name, source in machine.extern_sources.items() if "::" in name}


def _log_torch(machine: Machine) -> None:
    """Log which of PyTorch's kernels a program calls, if any."""
    called = torch_operators(machine)
    if called:
        named = ", ".join(f"{name} ({source})" if source else name for name, source in called.items())
        _LOG.warning("a program calls PyTorch's kernels for %d of its operators: %s", len(called), named)


def attach_torch(machine: Machine) -> None:
    """Offer PyTorch's operators to a program that calls some.

    Raises ExternError naming an operator and the model's line where torch is not installed or lacks it.
    """
    called = torch_operators(machine)
    if not called:
        return
    if importlib.util.find_spec("torch") is None:
        name, source = next(iter(called.items()))
        raise ExternError(f"{name} has no kernel, it is PyTorch's: install torch to run this", source=source)
    from .torch_host import attach

    attach(machine)


def own_target(machine: Machine) -> str | None:
    """Return the best target of the artifact's code that runs here, None without any. Exact code is compiled
    for the same: other targets may give other bits."""
    from .jit.llvm.target import TARGETS

    found = {kernel.target for kernel in machine.kernels if kernel.n_objects}
    return next((name for name in TARGETS if name in found), None)


def executable_of(
    program: Program,
    strategy: str | None,
    store: KernelStore,
    check: Callable[[Executable], Mapping[str, Least]] | None = None,
) -> Executable:
    """Return the executable of a freshly compiled program, whose artifact has no name. `check` tries it out
    first, in an executable of its own, and says which sizes are too small."""
    from .specialise import has_compiler
    from .vm.artifact import write_to

    file = HeldFile.temporary(partial(write_to, program), "the compiled program")
    options = machine_options(strategy, has_compiler())
    if check is not None:
        with _executable(file, replace(options, strategy="generic"), store, is_trial=True) as tried:
            least = check(tried)
        if least:
            file = HeldFile.temporary(partial(write_to, _narrowed(program, least)), file.name)
    return _executable(file, options, store)


def _narrowed(program: Program, least: Mapping[str, Least]) -> Program:
    """Return `program` for sizes that are not too small."""
    symbols = tuple(
        replace(s, min=least[s.name].value, why=least[s.name].why) if s.name in least else s
        for s in program.symbols
    )
    return replace(program, symbols=symbols)


__all__: Sequence[str] = ["Executable", "Stats"]
