"""`shapevm prove`: the guarantees on a program's bits, tested on inputs, without tolerances.

The relations: every tier and number of threads, a saved and loaded copy, the runner; for every symbol along
which the program treats rows independently (`invariance` decides that), a row alone, in another batch, in
another order; for padded symbols, any padding; and for golden vectors, another machine or version. NaNs may
have any bits; nothing else may differ.
"""

from __future__ import annotations

import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .. import runner_path
from ..program.executable import Executable
from ..program.opening import open_executable
from ..reports.invariance.verdicts import (
    AMX,
    Verdict,
    along,
    exceptions,
    is_exception,
    row_symbols,
)
from ..vm.arrays import is_array
from ..vm.artifact import read, write
from ..vm.errors import ArgumentError, Error, InputError
from ..vm.host import get_threads, set_threads
from ..vm.program import NUMPY_DTYPES, Input, Program, SizeRange, Symbol
from .golden import Call, read_golden, write_golden
from .report import Relation, Report
from .samples import sample_inputs
from .texts import compare_texts

MAX_SIZE = 48  # greatest value of a made-up size
MAX_ROWS = 9
MAX_ALONE = 4  # rows of a batch that are tested alone
MAX_GOLDEN = 8  # calls whose results are stored
THREADS = (1, 2, 3, 5)
MAX_INT = 100  # greatest made-up integer, if the program accepts it
Inputs = list[Any]


@dataclass(frozen=True)
class Case:
    """Inputs of a call, their sizes, and its results."""

    inputs: Inputs
    sizes: dict[str, int]
    results: list[Any]

    @property
    def where(self) -> str:
        """The sizes as text."""
        return ", ".join(f"{name} {value}" for name, value in self.sizes.items()) or "fixed sizes"


@dataclass(frozen=True)
class Padding:
    """A padded symbol, and the input that masks the padding, if any."""

    symbol: str
    mask: str | None


class Prover:
    """One program and the executables compared with it; each method tests one relation."""

    def __init__(
        self,
        program: Program,
        exe: Executable,
        pads: Sequence[Padding] | None = (),
        seed: int = 0,
        exact_share: float = 0.25,
    ) -> None:
        """`exe`: the program under strategy "generic". `pads`: the padded symbols; None: those of inputs with
        "mask" in their names. `exact_share`: the share of the calls with other rows or padding that run exact
        code."""
        self.program, self.exe, self.exact_share = program, exe, exact_share
        self.rng = random.Random(seed)
        self.report = Report(exceptions=exceptions(program))
        self.verdicts = row_symbols(self.program)
        self.report.along = along(self.verdicts)
        self.inputs = self.program.inputs[: len(self.program.inputs) - self._n_state]
        self.pads = self._found_pads() if pads is None else list(pads)
        for pad in self.pads:
            self._check_pad(pad)
        self._highest: dict[str, int] | None = None
        self._row_exe: Executable | None = None
        self._names = [row.name for row in self.program.outputs]
        self.cases: list[Case] = []  # the first ones and the last

    @property
    def _n_state(self) -> int:
        return len(self.program.meta.get("structure", {}).get("state", []))

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """The contract's symbols."""
        return self.program.symbols

    def _symbol(self, name: str) -> Symbol:
        return next(s for s in self.symbols if s.name == name)

    def _found_pads(self) -> list[Padding]:
        found = {}
        for row in self.inputs:
            named = [self.symbols[a.symbol].name for a in row.axes if a.symbol is not None]
            named = [name for name in named if any(v.causes for v in self.verdicts[name])]
            if "mask" in row.name and named and row.dtype in ("i64", "i32", "bool", "u8", "i8"):
                found[named[-1]] = Padding(named[-1], row.name)
        return list(found.values())

    def _check_pad(self, pad: Padding) -> None:
        names = [s.name for s in self.symbols]
        if pad.symbol not in names:
            raise ArgumentError(f"pad {pad.symbol!r}: the program's sizes are {', '.join(names) or 'fixed'}")
        if pad.mask is not None and pad.mask not in [row.name for row in self.inputs]:
            raise ArgumentError(f"pad {pad.symbol!r}: the program has no input {pad.mask!r}")

    # Inputs
    def made_up(self, sizes: Mapping[str, int], seed: int) -> Inputs:
        """Return random inputs at `sizes`; integers are as large as the program accepts."""
        made = sample_inputs(self.inputs, self.symbols, sizes, seed)
        if self._highest is None:
            self._highest = self._take_highest(made)
        rng = np.random.default_rng(seed)
        for i, row in enumerate(self.inputs):
            if row.name in self._highest:
                made[i] = rng.integers(0, self._highest[row.name], made[i].shape).astype(made[i].dtype)
        for pad in self.pads:
            self._unmask(made, pad)
        return made

    def _take_highest(self, made: Inputs) -> dict[str, int]:
        """Return the integer inputs that may be as large as MAX_INT without failures or overflow."""
        found = {}
        masks = {pad.mask for pad in self.pads}
        for i, row in enumerate(self.inputs):
            if row.kind != "tensor" or row.dtype not in ("i64", "i32", "i16", "u8") or row.name in masks:
                continue
            tried = list(made)
            tried[i] = np.random.default_rng(0).integers(0, MAX_INT, made[i].shape).astype(made[i].dtype)
            try:
                results = self.call(self.exe, tried)
            except Error:
                continue
            if all(np.isfinite(x).all() for x in map(np.asarray, results) if x.dtype.kind == "f"):
                found[row.name] = MAX_INT
        return found

    def _unmask(self, made: Inputs, pad: Padding) -> None:
        """Let a made-up mask keep the first position: nothing is guaranteed if all positions are masked."""
        for i, row in enumerate(self.inputs):
            if row.name == pad.mask:
                axis = self._axis_of(row, pad.symbol)
                if axis is not None and made[i].shape[axis]:
                    made[i][(slice(None),) * axis + (0,)] = _kept(row)

    def _axis_of(self, row: Input, symbol: str) -> int | None:
        names = [None if a.symbol is None else self.symbols[a.symbol].name for a in row.axes]
        return names.index(symbol) if symbol in names else None

    def sizes(self) -> dict[str, int]:
        """Return random sizes that the contract allows."""
        found = {}
        for s in self.symbols:
            few = s.name in self.verdicts and not all(v.causes for v in self.verdicts[s.name])
            step = s.multiple_of
            low = s.least_tried // step
            top = max(low, (MAX_ROWS if few else MAX_SIZE) // step)
            high = top if s.max is None else max(low, min(top, s.max // step))
            found[s.name] = step * self.rng.randint(max(low, min(2, high)), high)
        return found

    @property
    def row_exe(self) -> Executable:
        """The executable for comparisons of rows and padding.

        If alternatives exist, it has no code on AMX tiles, whose bits depend on the number of rows.
        """
        if self._row_exe is None:
            self._row_exe = self._without_tiles()
        return self._row_exe

    def _without_tiles(self) -> Executable:
        kernels = tuple(
            replace(kernel, objects=tuple(o for o in kernel.objects if o.target != AMX))
            if is_exception(kernel)
            else kernel
            for kernel in self.program.kernels
        )
        if not self.report.exceptions or not all(kernel.objects for kernel in kernels):
            return self.exe
        self.report.note(
            "rows and padding on AMX tiles, the exception; the artifact's other code is compared"
        )
        with tempfile.TemporaryDirectory(prefix="shapevm-") as folder:
            write(replace(self.program, kernels=kernels), Path(folder, "rows.svm"))
            exe = open_executable(Path(folder, "rows.svm"), "generic")
        if self.exe.specialisation.is_running:
            exe.specialisation.ensure()
        return exe

    def _for_rows(self, case: Case) -> Case:
        """Return a case with the results of `row_exe`."""
        if self.row_exe is self.exe:
            return case
        return replace(case, results=self.call(self.row_exe, case.inputs))

    # Calls
    def call(self, exe: Executable, inputs: Inputs, strategy: str | None = None) -> list[Any]:
        """Return the results of a call that starts from the initial state and leaves its inputs unchanged."""
        exe.reset_state()
        given = [x.copy() if is_array(x) else x for x in inputs]
        machine = exe.machine
        run: Callable[..., Any] = machine.call if strategy is None else partial(machine.call_as, strategy)
        with exe.specialisation.in_a_hurry() if strategy == "jit" else nullcontext():
            return exe.run_flat(run, given)

    def _compare(self, name: str, where: str, found: Sequence[Any], wanted: Sequence[Any]) -> None:
        for output, a, b in zip(self._names, found, wanted, strict=False):
            for path, x, y in _leaves(output, a, b):
                self.report.compare(name, where, path, x, y)

    # Relations
    def round(self, inputs: Inputs, number: int) -> None:
        """Test all relations on one set of inputs."""
        case = self.case(inputs)
        self.report.sizes.append(case.sizes)
        self.cases = [*self.cases[: MAX_GOLDEN - 1], case]
        self._compare("called again", case.where, self.call(self.exe, inputs), case.results)
        if self.report.relations["called again"].differences:
            self.report.note("the rest: two equal calls differ, so nothing can be compared")
            return
        self.threads(case)
        self.tiers(case)
        self.saved(case, freezes=number == 0)
        for name in self.verdicts:
            self.rows(case, name)
        for pad in self.pads:
            self.padded(case, pad)
        compare_texts(self, inputs)

    # Golden vectors
    def write(self, path: Path) -> None:
        """Write the calls and their results as golden vectors unless something differs."""
        if not self.report.is_proved:
            self.report.golden = f"{path} is not written: results differ here"
            return
        calls = [Call(self._named_inputs(case), self._named_results(case.results)) for case in self.cases]
        write_golden(path, calls)
        self.report.golden = f"wrote {path}: {len(calls)} calls; where it exists, it is checked"

    def check(self, path: Path) -> None:
        """Test all relations on the calls of golden vectors, and compare their results.

        Raises FileError for a file without golden vectors, InputError if they are another program's.
        """
        golden = read_golden(path)
        for number, call in enumerate(golden.calls):
            self.round([_given(call.inputs, row, str(path)) for row in self.inputs], number)
            found = self._named_results(self.cases[-1].results)
            if set(found) != set(call.results):
                raise InputError(
                    f"{path} has the results {', '.join(call.results) or 'none'}; the program has "
                    f"{', '.join(found) or 'none'}: it is another program's"
                )
            where = f"call {number} ({self.cases[-1].where}), by {golden.written_by}"
            for name, x in found.items():
                self.report.compare("golden vectors", where, name, x, call.results[name])
        self.report.golden = f"{path}: {len(golden.calls)} calls, by {golden.written_by}"

    def _named_inputs(self, case: Case) -> dict[str, np.ndarray]:
        return {row.name: np.asarray(x) for row, x in zip(self.inputs, case.inputs, strict=True)}

    def _named_results(self, results: Sequence[Any]) -> dict[str, np.ndarray]:
        """Return the arrays and numbers among results, by their paths."""
        pairs = zip(self._names, results, strict=False)
        leaves = [leaf for name, x in pairs for leaf in _leaves(name, x, x)]
        return {path: np.asarray(x) for path, x, _ in leaves if np.asarray(x).dtype != object}

    def case(self, inputs: Inputs) -> Case:
        """Return inputs with the generic tier's results."""
        return Case(inputs, self.exe.bind_flat(inputs), self.call(self.exe, inputs))

    def threads(self, case: Case, counts: Sequence[int] = THREADS) -> None:
        """Compare the results with other numbers of threads."""
        before = get_threads()
        try:
            for n in counts:
                set_threads(n)
                found = self.call(self.exe, case.inputs)
                self._compare("threads", f"{case.where}, {n} threads", found, case.results)
        finally:
            set_threads(before)

    def tiers(self, case: Case) -> None:
        """Compare the results of exact code, and of code for ranges of sizes."""
        from ..compiler.packages import has_compiler

        if not has_compiler():
            self.report.note("exact and bucket tiers: no compiler is installed (llvmlite)")
            return
        self.exe.specialisation.ensure()
        self._compare("exact tier", case.where, self.call(self.exe, case.inputs, "jit"), case.results)
        if self.symbols:
            with self._bucketed(case.sizes) as exe:
                self._compare("bucket tier", case.where, self.call(exe, case.inputs), case.results)

    @contextmanager
    def _bucketed(self, sizes: Mapping[str, int]) -> Iterator[Executable]:
        """Open a copy of the program with kernels for ranges around `sizes`."""
        cell: dict[str, int | SizeRange] = {}
        for s in self.symbols:
            low = max(sizes[s.name] // 2 // s.multiple_of * s.multiple_of, s.min)
            high = 2 * sizes[s.name] if s.max is None else min(2 * sizes[s.name], s.max)
            cell[s.name] = SizeRange(low, high, s.multiple_of) if low < high else low
        made = self.exe.specialisation.with_code(self.program, cell)
        with tempfile.TemporaryDirectory(prefix="shapevm-") as folder:
            write(made, Path(folder, "bucket.svm"))
            with open_executable(Path(folder, "bucket.svm"), "bucket") as exe:
                yield exe

    def saved(self, case: Case, freezes: bool = False, runs: bool = True) -> None:
        """Compare the results of a saved and loaded copy, and of the runner. `freezes`: the copy has the
        exact code that was compiled so far. `runs`: test the runner."""
        with tempfile.TemporaryDirectory(prefix="shapevm-") as folder:
            path = Path(folder, "saved.svm")
            if freezes:
                self.exe.freeze()
            self.exe.save(path)
            with open_executable(path, "bucket") as exe:
                self._compare("saved and loaded", case.where, self.call(exe, case.inputs), case.results)
            if runs:
                self._runner(case, path)

    def _runner(self, case: Case, path: Path) -> None:
        program = self.program
        calls = self.exe.machine.externs
        if calls or not all(kernel.objects for kernel in program.kernels):
            self.report.note(f"the runner: {f'PyTorch runs {calls[0]}' if calls else 'kernels without code'}")
            return
        kinds: dict[str, Callable[[Any], str]] = {
            "int": str, "float": repr, "bool": lambda x: str(bool(x)).lower()
        }  # fmt: skip
        if any(row.kind not in ("tensor", *kinds) for row in self.inputs):
            self.report.note("the runner: it takes no text as an input")
            return
        out, given = path.with_name("out.npz"), path.with_name("in.npz")
        named = list(zip(self.inputs, case.inputs, strict=True))
        tensors = {row.name: x for row, x in named if row.kind == "tensor"}
        command = [str(runner_path()), str(path), "--output", str(out)]
        if tensors:
            np.savez(given, **tensors)
            command += ["--input", str(given)]
        for row, x in named:
            if row.kind != "tensor":
                command += ["--input", f"{row.name}={kinds[row.kind](x)}"]
        relation = self.report.relations.setdefault("runner", Relation())
        for strategy, threads in (("generic", 1), ("auto", 2)):
            options = ["--strategy", strategy, "--threads", str(threads)]
            done = subprocess.run([*command, *options], capture_output=True, text=True)
            if done.returncode:
                relation.differences.append(f"{case.where}: exit {done.returncode}: {done.stderr.strip()}")
                return
            with np.load(out) as found:
                for name, result in zip(self._names, case.results, strict=False):
                    for path_, x, _ in _leaves(name, result, result):
                        self.report.compare("runner", f"{case.where}, {strategy}", path_, found[path_], x)

    def rows(self, case: Case, name: str) -> None:
        """Compare rows along symbol `name` with the same rows in other batches."""
        verdicts, n = self.verdicts[name][: len(case.results)], case.sizes[name]
        if not n or all(v.causes for v in verdicts):
            return
        case = self._for_rows(case)
        for relation, rows in self._batches(self._symbol(name), n):
            found = self.call(self.row_exe, self._taken(case.inputs, name, n, rows), self._any_tier())
            for v, x, y in zip(verdicts, found, case.results, strict=False):
                if v.causes:
                    continue
                part = _rows_of(v, np.asarray(y), n, rows)
                where = f"{case.where}, rows {rows}"
                self.report.compare(f"{relation} along {name}", where, v.name, x, part)

    def _any_tier(self) -> str | None:
        """Return "jit" for some calls, if there is a compiler: single rows may also have exact code."""
        has_exact = self.exe.specialisation.opened_store is not None
        return "jit" if has_exact and self.rng.random() < self.exact_share else None

    def _batches(self, symbol: Symbol, n: int) -> Iterator[tuple[str, list[int]]]:
        """Yield selections of `n` rows as other batches, and what each one tests."""
        least = max(symbol.min, 1)
        least = -(-least // symbol.multiple_of) * symbol.multiple_of
        for row in self.rng.sample(range(n), min(n, MAX_ALONE)):
            yield "a row alone" if least == 1 else f"a row {least} times", [row] * least
        order = list(range(n))
        self.rng.shuffle(order)
        yield "rows permuted", order
        most = 2 * n + 1 if symbol.max is None else min(2 * n + 1, symbol.max)
        for _ in range(2):
            count = self.rng.randint(least, max(most, least)) // symbol.multiple_of * symbol.multiple_of
            yield "rows in another batch", [self.rng.randrange(n) for _ in range(count)]

    def _taken(self, inputs: Inputs, name: str, n: int, rows: list[int]) -> Inputs:
        """Return the inputs of a batch of these rows."""
        found = []
        for row, x in zip(self.inputs, inputs, strict=True):
            if row.kind != "tensor":
                is_size = row.symbol is not None and self.symbols[row.symbol].name == name
                found.append(len(rows) if is_size else x)
                continue
            for axis, a in enumerate(row.axes):
                if a.symbol is not None and self.symbols[a.symbol].name == name:
                    shape = x.shape
                    x = x.reshape(*shape[:axis], n, a.scale, *shape[axis + 1 :]).take(rows, axis)
                    x = x.reshape(*shape[:axis], len(rows) * a.scale, *shape[axis + 1 :])
            found.append(np.require(x, requirements="C"))
        return found

    def padded(self, case: Case, pad: Padding) -> None:
        """Compare results with those of longer inputs whose extra positions are masked."""
        symbol, n, case = self._symbol(pad.symbol), case.sizes[pad.symbol], self._for_rows(case)
        for extra in (1, n // 2 + 1, n + 3):
            more = -(-(n + extra) // symbol.multiple_of) * symbol.multiple_of
            if symbol.max is not None and more > symbol.max:
                continue
            longer = self._longer(pad, case.inputs, {**case.sizes, pad.symbol: more}, extra)
            found = self.call(self.row_exe, longer, self._any_tier())
            for v, x, y in zip(self.verdicts[pad.symbol], found, case.results, strict=False):
                part = np.asarray(x)
                for axis, size in enumerate(v.sizes):
                    if size.varies and part.shape[axis] == more:
                        part = part.take(range(n), axis)
                where = f"{case.where}, padded to {more}"
                self.report.compare(f"padded along {pad.symbol}", where, v.name, part, y)

    def _longer(self, pad: Padding, inputs: Inputs, sizes: Mapping[str, int], seed: int) -> Inputs:
        found = self.made_up(sizes, seed)
        for i, (row, x) in enumerate(zip(self.inputs, inputs, strict=True)):
            axis = self._axis_of(row, pad.symbol) if row.kind == "tensor" else None
            if axis is None:
                found[i] = found[i] if row.symbol is not None else x
                continue
            if row.name == pad.mask:
                found[i][...] = _dropped(row)
            before = (slice(None),) * axis
            found[i][(*before, slice(0, x.shape[axis]))] = x
        return found


def _kept(row: Input) -> Any:
    """Return a mask's value for a position that is kept."""
    return 0.0 if NUMPY_DTYPES[row.dtype or "bool"].kind == "f" else 1


def _dropped(row: Input) -> Any:
    """Return a mask's value for padding: 0, or the least number if the mask is added to scores."""
    kind = NUMPY_DTYPES[row.dtype or "bool"]
    return np.finfo(kind).min if kind.kind == "f" else 0


def _leaves(name: str, a: Any, b: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield (path, leaf, leaf) of two results of one structure, with the runner's names."""
    if isinstance(a, (list, tuple)):
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from _leaves(f"{name}.{i}", x, y)
    elif isinstance(a, dict):
        for key in a:
            yield from _leaves(f"{name}.{key}", a[key], b[key])
    else:
        yield name, a, b


def _rows_of(v: Verdict, x: np.ndarray, n: int, rows: Sequence[int]) -> np.ndarray:
    """Return the rows of a result, or the whole result if it has none."""
    if v.place is None:
        return x
    axis, is_outermost = v.place
    count = x.shape[axis] // n
    shape = (n, count) if is_outermost else (count, n)
    parts = x.reshape(*x.shape[:axis], *shape, *x.shape[axis + 1 :])
    taken = parts.take(rows, axis if is_outermost else axis + 1)
    return taken.reshape(*x.shape[:axis], count * len(rows), *x.shape[axis + 1 :])


def prove(
    path: Path,
    given: Mapping[str, Any] | None = None,
    wanted_sizes: Sequence[Mapping[str, int]] = (),
    seconds: float = 0,
    pads: Sequence[Padding] | None = None,
    seed: int = 0,
    golden: Path | None = None,
) -> Report:
    """Test every guarantee on the inputs `given` (by name), else on random ones: at `wanted_sizes`, or at
    random sizes of the contract for `seconds`, at least one round. `golden`: a file of golden vectors, whose
    calls are tested instead; it is written if it does not exist.

    Raises ArgumentError for inputs, sizes or padding that the program does not have, FileError for a file
    without golden vectors or one that cannot be written.
    """
    with open_executable(path, "generic") as exe:
        prover = Prover(read(path), exe, pads, seed)
        if golden is not None and golden.exists():
            prover.check(golden)
            return prover.report
        if given is not None:
            prover.round([_given(given, row, "--inputs") for row in prover.inputs], 0)
        else:
            _rounds(prover, wanted_sizes, seconds, seed)
        if golden is not None:
            prover.write(golden)
        return prover.report


def _rounds(prover: Prover, wanted_sizes: Sequence[Mapping[str, int]], seconds: float, seed: int) -> None:
    """Test all relations on random inputs."""
    end, number = time.monotonic() + seconds, 0
    names = [s.name for s in prover.symbols]
    for sizes in wanted_sizes:
        if set(sizes) != set(names):
            raise ArgumentError(f"sizes must be given for {', '.join(names) or 'no symbol'}")
        prover.round(prover.made_up(sizes, seed + number), number)
        number += 1
    while not number or (not wanted_sizes and time.monotonic() < end):
        prover.round(prover.made_up(prover.sizes(), seed + number), number)
        number += 1


def _given(given: Mapping[str, Any], row: Input, place: str) -> Any:
    if row.name not in given:
        raise InputError(f"input {row.name!r} is missing; {place} has {', '.join(given) or 'nothing'}")
    x = given[row.name]
    return x.item() if row.kind != "tensor" and isinstance(x, np.ndarray) and x.size == 1 else x


__all__: Sequence[str] = ["Padding", "Prover", "Report", "prove"]
