"""From an artifact, or a program compiled just now, to an Executable."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..calls.checks import check_artifact, check_path, check_plugins
from ..settings import settings
from ..vm.arrays import has_torch, torch_library
from ..vm.codes import COMPILING, DEFAULTS
from ..vm.errors import ArgumentError, ArtifactError, ExternError
from ..vm.externs import attach_externs
from ..vm.held_file import HeldFile
from ..vm.host import set_threads
from ..vm.load_options import LoadOptions
from ..vm.machine import Machine
from .executable import Again, Executable, torch_operators
from .limits import Limits, machine_options
from .remote import is_url, open_artifact
from .trust import Trust

if TYPE_CHECKING:
    from ..jit.store import KernelStore
    from ..specialise.kernel_store import StoreOnDemand
    from ..vm.program import Program
    from .early_file import EarlyFile
    from .pickled import Pickled

MAX_COPIED = DEFAULTS["COPY_BYTES"][0]  # of a file whose executable is unpickled
_LOG = logging.getLogger("shapevm")


def _set_threads() -> None:
    """Set the number of threads from the settings if it changed."""
    global _threads
    wanted = settings.threads
    if wanted != _threads:
        set_threads(wanted)
        _threads = wanted


_threads = 0  # the last number from the settings; the runtime starts with one per CPU


def open_executable(
    artifact: str | os.PathLike[str] | bytes | bytearray | memoryview,
    strategy: str | None,
    limits: Limits | None = None,
    trust: Trust | None = None,
    plugins: Sequence[str | os.PathLike[str]] = (),
) -> Executable:
    """Load an artifact from its path or its bytes; start specialising if a compiler is installed and the
    strategy uses it."""
    from ..compiler.packages import has_compiler

    options = machine_options(strategy, has_compiler(), limits)
    check_plugins(plugins)
    options = replace(options, plugins=tuple(os.path.abspath(plugin) for plugin in plugins))
    trust = trust or Trust()
    if not isinstance(artifact, bytes | bytearray | memoryview):
        check_path("the artifact", artifact, ", a URL or the artifact's bytes")
        return _open_at(artifact, options, trust)
    if trust.trust is not None:
        raise ArgumentError("trust: bytes have no signature beside them; load the signed file by its path")
    file = HeldFile.temporary(lambda to: to.write(artifact), "the given bytes")
    return open_held(file, trust.of(options, Path()))


def _open_at(path: str | os.PathLike[str], options: LoadOptions, trust: Trust) -> Executable:
    """Load the artifact at a path or a URL."""
    if not is_url(path):
        try:
            return open_held(HeldFile.open(path), trust.of(options, Path(path)))
        except ArtifactError:
            check_artifact(Path(path))  # its message names the file and its format
            raise
    if trust.trust is not None:
        raise ArgumentError("trust: a URL has no signature beside it; give the digest, or fetch both files")
    options = trust.of(options, Path())
    file = open_artifact(path, options.reading.sha256)
    # Its digest is checked and nobody else can write to it, so it is mapped rather than copied.
    return open_held(file, options.without_digest() if file.url else options)


def open_held(
    file: HeldFile, options: LoadOptions, store: StoreOnDemand | None = None, is_trial: bool = False
) -> Executable:
    """Load an artifact. `store`: the store that compiled it, if it is new. `is_trial`: the program will be
    opened again for its user, so nothing is logged."""
    from ..specialise.kernel_store import StoreOnDemand, add_generic, open_store

    _set_threads()
    machine = Machine.open_file(file.descriptor, file.name, options)
    if has_torch():
        machine.default_library = torch_library()
    for plugin in options.plugins:
        machine.load_plugin(plugin)
    attach_externs(machine)
    called = attach_torch(machine)
    if called and not is_trial:
        _log_torch(called)
    foreign = [index for index, kernel in enumerate(machine.kernels) if not kernel.n_objects]
    wanted = options.has_compiler and options.strategy in COMPILING
    if foreign or store is None:
        store = StoreOnDemand(lambda: open_store(own_target(machine), is_host=True))
    if foreign or (wanted and _has_store_settings()):
        add_generic(machine, store.get(), foreign)
    made = Executable(machine, file, store, Again(open_held, restored))
    if wanted:
        limited = options.strategy == "auto" and settings.compile_budget > 0
        made.specialisation.start(settings.compile_budget / 1e3 if limited else None)
    return made


def restored(pickled: Pickled) -> Executable:
    """Load the executable of a pickle. Raises the errors of `Pickled.file` and `shapevm.load`."""
    from ..compiler.packages import has_compiler

    file, reading = pickled.file(), pickled.options.reading
    copy = reading.copy
    if copy is None:  # a digest by itself implies a copy of every file
        copy = file.size <= MAX_COPIED
    reading = replace(reading, copy=copy, sha256=pickled.sha256)
    made = open_held(file, replace(pickled.options, has_compiler=has_compiler(), reading=reading))
    made.set_state(pickled.state)
    return made


def _has_store_settings() -> bool:
    """Whether there are settings of the store: wrong ones are reported when a program is loaded."""
    return bool(settings.target or settings.cache_url or settings.cache_secret_file)


def _log_torch(called: Mapping[str, str]) -> None:
    """Log which of PyTorch's kernels a program calls."""
    named = ", ".join(f"{name} ({source})" if source else name for name, source in called.items())
    _LOG.warning("a program calls PyTorch's kernels for %d of its operators: %s", len(called), named)


def attach_torch(machine: Machine) -> dict[str, str]:
    """Provide PyTorch's operators that a program calls and nothing else provides; return them, with the
    model's line that first calls each.

    Raises ExternError naming an operator and the model's line if torch is not installed or lacks it.
    """
    missing = machine.missing_externs
    called = {name: source for name, source in torch_operators(machine).items() if name in missing}
    if not called:
        return called
    if importlib.util.find_spec("torch") is None:
        name, source = next(iter(called.items()))
        message = f"{name} has no kernel: install torch, if it is PyTorch's, or give the plug-in that has it"
        raise ExternError(message, source=source)
    from .torch_host import attach

    attach(machine)
    return called


def own_target(machine: Machine) -> str | None:
    """Return the best target of the artifact's code that runs here, None if there is none. Exact code is
    compiled for the same target: others may give different bits."""
    from ..jit.llvm.target import TARGETS

    found = {kernel.target for kernel in machine.kernels if kernel.n_objects}
    return next((name for name in TARGETS if name in found), None)


@dataclass(frozen=True)
class Least:
    """The least value that a symbol may have, and why."""

    value: int
    why: str


def executable_of(
    program: Program,
    strategy: str | None,
    stores: Sequence[KernelStore],
    check: Callable[[Executable, Program], Mapping[str, Least]] | None = None,
    is_portable: bool = True,
    early: EarlyFile | None = None,
) -> Executable:
    """Return the executable of a newly compiled program, whose artifact has no name. `stores`: for the
    targets of its code, the best first. `check` tries it first, in a separate executable, and returns which
    sizes are too small. `is_portable`: it has the code of `KernelStore.generic`. `early`: the file to write
    it into, None for a new one."""
    from ..compiler.packages import has_compiler
    from ..jit.llvm.target import runs_here
    from ..specialise.kernel_store import StoreOnDemand
    from ..vm.artifact import write_to

    made_early = None if early is None else early.taken()
    file = HeldFile.temporary(partial(write_to, program), "the compiled program", made_early)
    options = machine_options(strategy, has_compiler())
    held = StoreOnDemand(lambda: next((s for s in stores if runs_here(s.target)), stores[0]))
    held.get()
    if check is not None:
        # Nobody else has the file, and its weights were just written, so their hashes are not checked.
        trial = replace(options, strategy="generic", reading=replace(options.reading, verify="none"))
        with open_held(file, trial, held, is_trial=True) as tried:
            least = check(tried, program)
        if least:
            file = HeldFile.temporary(partial(write_to, _narrowed(program, least)), file.name)
    made = open_held(file, options, held)
    made.is_portable = is_portable
    return made


def _narrowed(program: Program, least: Mapping[str, Least]) -> Program:
    """Return `program` for sizes that are not too small."""
    symbols = tuple(
        replace(s, min=least[s.name].value, why=least[s.name].why) if s.name in least else s
        for s in program.symbols
    )
    return replace(program, symbols=symbols)
