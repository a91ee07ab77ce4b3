"""An Executable: a compiled program that is called like the model it came from."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import pytree
from .settings import settings
from .vm.machine import EntryStats, Machine, Options

if TYPE_CHECKING:
    from .specialise import Specialiser
    from .vm.program import Program


@dataclass(frozen=True)
class Stats:
    """What an Executable has done so far. `entries`: (kernel index, entry) of every kernel at every shape it met.

    `compiled`, `from_cache`: exact kernels compiled since loading, and found in the disk cache.
    """

    calls: int
    replays: int
    plans: int
    compiled: int
    from_cache: int
    code_bytes: int
    arena_bytes: int
    entries: tuple[tuple[int, EntryStats], ...]

    def since(self, before: Stats) -> Stats:
        """Return what happened after `before`: counters subtracted, entries that ran since."""
        hits = {(kernel, entry.dims): entry.hits for kernel, entry in before.entries}
        ran = tuple(
            (kernel, entry) for kernel, entry in self.entries if entry.hits > hits.get((kernel, entry.dims), 0)
        )
        counters = {
            name: getattr(self, name) - getattr(before, name) for name in ("calls", "replays", "compiled", "from_cache")
        }
        return replace(self, entries=ran, **counters)

    def tier(self) -> str:
        """Return which code the entries run: "exact", "generic", or how many of each."""
        exact = sum(entry.tier == "exact" for _, entry in self.entries if entry.dims)
        total = sum(1 for _, entry in self.entries if entry.dims)
        if exact == total:
            return "exact"
        return "generic" if exact == 0 else f"exact {exact}, generic {total - exact}"


class CallForm:
    """How the model's nested arguments and results map to the flat ones of the program."""

    def __init__(self, machine: Machine) -> None:
        structure = machine.meta.get("structure", {})
        names = [row.name for row in machine.inputs]
        flat = {"positional": names, "parameters": {name: pytree.LEAF for name in names}}
        self._signature = pytree.from_json(structure["inputs"]) if "inputs" in structure else flat
        outputs = {"tuple": [pytree.LEAF] * len(machine.outputs)}
        self._results = pytree.from_json(structure["outputs"]) if "outputs" in structure else outputs
        self._names = names
        parameters = self._signature["parameters"]
        self._is_flat = list(parameters) == names and all(inner == pytree.LEAF for inner in parameters.values())
        self._by_position = self._is_flat and self._signature["positional"] == names

    def flat(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        """Return the inputs in order. Raises ArgumentError for arguments that the program does not take."""
        if not kwargs and self._by_position and len(args) == len(self._names):
            return args
        if not args and self._is_flat and len(kwargs) == len(self._names) and all(n in kwargs for n in self._names):
            return [kwargs[name] for name in self._names]
        return pytree.flatten_call(args, kwargs, self._signature)

    def nested(self, results: Sequence[Any]) -> Any:
        """Return the results as the model would."""
        return results[0] if self._results == pytree.LEAF else pytree.unflatten(results, self._results)


class Executable:
    """A loaded program. Call it as the model: positional and keyword arguments, nested containers, torch tensors or
    numpy arrays; results have the model's structure and the arrays of the caller's library. Threads may share it.

    Every call checks the contract: ShapeError, DtypeError, TypeError with one sentence before anything runs.
    """

    def __init__(self, machine: Machine, path: Path, specialiser: Specialiser | None) -> None:
        """Take over a machine that was opened from `path`; `compile` and `load` make executables."""
        self._machine = machine
        self._path = path
        self._specialiser = specialiser
        self._form = CallForm(machine)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program."""
        return self._form.nested(self._machine.call(self._form.flat(args, kwargs)))

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run on flat inputs by name; return flat outputs by name, as the standalone runner does."""
        names = [row.name for row in self._machine.inputs]
        if set(inputs) != set(names):
            raise TypeError(f"inputs are {', '.join(names)}; given: {', '.join(inputs) or 'none'}")
        results = self._machine.call([inputs[name] for name in names])
        return {row.name: value for row, value in zip(self._machine.outputs, results, strict=True)}

    def bind(self, *args: Any, **kwargs: Any) -> dict[str, int]:
        """Check arguments against the contract and return the sizes they give, by symbol; nothing runs."""
        return self._machine.bind(self._form.flat(args, kwargs))

    @property
    def machine(self) -> Machine:
        """The loaded program itself: contract, kernels, call sites."""
        return self._machine

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the artifact, for `shapevm.load` and the standalone runner. The file appears whole or not at all."""
        target = Path(path)
        with tempfile.NamedTemporaryFile(dir=target.absolute().parent, delete=False) as file:
            with open(self._path, "rb") as source:
                shutil.copyfileobj(source, file, 1 << 24)
        os.chmod(file.name, 0o644)
        os.replace(file.name, target)

    def stats(self) -> Stats:
        """Return counters and the state of every call site."""
        counters = self._machine.stats()
        store = self._specialiser.store.stats if self._specialiser else None
        entries = [
            (kernel, entry)
            for kernel in range(len(self._machine.kernels))
            for entry in self._machine.site(kernel).entries
        ]
        return Stats(
            counters["calls"], counters["replays"], counters["n_plans"], store.compiled if store else 0,
            store.from_cache if store else 0, counters["code_bytes"], counters["arena_bytes"], tuple(entries),
        )  # fmt: skip

    def wait_until_specialised(self, timeout: float = 60.0) -> bool:
        """Wait until no kernel is queued or being compiled; False when that took longer than `timeout` seconds."""
        end = time.monotonic() + timeout
        while self._machine.stats()["n_queued"] or self._pending():
            if time.monotonic() > end:
                return False
            time.sleep(0.001)
        return True

    def _pending(self) -> bool:
        return any(entry.state in ("queued", "compiling") for _, entry in self.stats().entries)

    def summary(self) -> str:
        """Return one line: kernels, symbols, bytes."""
        symbols = ", ".join(
            f"{s.name} {s.min}..{s.max if s.max is not None else ''}" for s in self._machine.symbols
        )
        return f"{len(self._machine.kernels)} kernels for {symbols or 'fixed sizes'}"

    def close(self) -> None:
        """Free the program; no call may be running."""
        if self._specialiser is not None:
            self._specialiser.close()
        self._machine.close()

    def __enter__(self) -> Executable:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def machine_options(strategy: str | None) -> Options:
    """Return the runtime's options from the settings."""
    return Options(
        strategy=strategy or settings.strategy,
        hot_calls=settings.hot_calls,
        perf_map=settings.perf_map,
        code_bytes_max=settings.code_mib << 20,
        plans_max=settings.plans,
    )


def open_executable(path: Path, strategy: str | None, store: Any = None) -> Executable:
    """Load the artifact at `path`; with a compiler installed and a strategy that wants it, start specialising."""
    from .specialise import Specialiser, has_compiler, open_store

    options = machine_options(strategy)
    machine = Machine.open(path, options)
    wanted = options.strategy != "generic" and has_compiler()
    specialiser = Specialiser(machine, store or open_store()) if wanted else None
    made = Executable(machine, path, specialiser)
    if specialiser is not None:
        weakref.finalize(made, specialiser.close)
    return made


def executable_of(program: Program, strategy: str | None, store: Any) -> Executable:
    """Return the executable of a freshly compiled program, kept in a temporary file while it lives."""
    from .vm.artifact import write

    folder = tempfile.mkdtemp(prefix="shapevm-")
    path = Path(folder, "program.svm")
    try:
        write(program, path)
        made = open_executable(path, strategy, store)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(made, shutil.rmtree, folder, True)
    return made


__all__: Sequence[str] = ["Executable", "Stats"]
