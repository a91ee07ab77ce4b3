"""`shapevm doctor`: the machine, versions, caches and settings, and their problems."""

from __future__ import annotations

import os
import platform
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..settings import TABLE, settings
from ..vm.errors import Error
from ..vm.spelling import nearest
from .tested_versions import TESTED

if TYPE_CHECKING:  # the compiler may not be installed
    from ..jit.families.matmul.tile_choice import TileChoice

LOW_DISK = 64 << 20  # bytes
_COMPILER = ("torch", "llvmlite", "sympy")
_COMPILE = "pip install 'shapevm[compile]'"


@dataclass(frozen=True)
class Finding:
    """One fact: `group` and `name` identify it, `value` states it; `problem`: the problem and its remedy, or
    ""."""

    group: str
    name: str
    value: str
    problem: str = ""


def examine(measure: bool = True) -> list[Finding]:
    """Return all findings. `measure`: also compile a kernel and measure the machine's limits."""
    found = [*_machine(), *_tiles(measure), *_versions(), *_runner(), *_cache(), *_settings()]
    return [*found, *_limits()] if measure else found


def problems(findings: list[Finding]) -> int:
    """Return how many findings are problems."""
    return sum(bool(finding.problem) for finding in findings)


def data(findings: list[Finding]) -> dict[str, Any]:
    """Return findings as plain data."""
    return {"problems": problems(findings), "findings": [asdict(finding) for finding in findings]}


def text(findings: list[Finding]) -> str:
    """Return findings for people, each problem under its fact."""
    lines, group = [], ""
    for finding in findings:
        if finding.group != group:
            group = finding.group
            lines.append(group)
        lines.append(f"  {finding.name}: {finding.value}")
        if finding.problem:
            lines.append(f"    PROBLEM: {finding.problem}")
    n = problems(findings)
    return "\n".join([*lines, f"{n} problem{'' if n == 1 else 's'}" if n else "no problems"])


# The machine ----------------------------------------------------------------------------------------


def _machine() -> Iterator[Finding]:
    from ..vm.host import host_target

    yield Finding("machine", "system", f"{platform.system()} {platform.release()}, {platform.machine()}")
    yield Finding("machine", "cpu", _cpu())
    n_cpus = len(os.sched_getaffinity(0))
    yield Finding("machine", "cores", f"{n_cpus} available of {os.cpu_count()}")
    yield _quota(n_cpus)
    target = host_target()
    wrong = "" if target else "this CPU runs no target: x86-64 needs AVX2 and FMA, or use AArch64"
    yield Finding("machine", "target", target or "none", wrong)


def _cpu() -> str:
    names = {"model name", "Model", "CPU part"}
    for line in _read("/proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in names:
            return value.strip()
    return platform.processor() or "unknown"


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _quota(n_cpus: int) -> Finding:
    """Return a container's CPU quota: threads that wait for it make call times vary."""
    from ..vm.host import cpu_quota

    granted = cpu_quota()
    if granted is None:
        return Finding("machine", "cpu quota", "none")
    most, threads = max(int(granted), 1), _threads(n_cpus)
    wrong = (
        f"{threads} threads share {granted:.1f} CPUs: set SHAPEVM_THREADS={most}" if threads > most else ""
    )
    return Finding("machine", "cpu quota", f"{granted:.1f} CPUs", wrong)


def _threads(n_cpus: int) -> int:
    """Return the number of threads in the settings; by default at most the quota."""
    from ..vm.host import cpu_quota

    try:
        wanted = int(settings.threads)
    except Error:
        wanted = 0
    return wanted or min(n_cpus, max(int(cpu_quota() or n_cpus), 1))


def _tiles(measure: bool) -> Iterator[Finding]:
    """Yield the register tiles of products and their measurements, which are made now if missing."""
    if find_spec("llvmlite") is None:
        return
    from ..specialise.kernel_store import open_store

    try:
        store = open_store(is_host=True)
        choice = store.tile_choice
        if measure and store.wants_tiles:
            from ..jit.compile_job import TilesJob, answer

            store.remember_tiles(answer(TilesJob(store.target)).record)
            choice = store.remembered_tiles()
        streams = store.measure_streams() if measure else store.streams
    except (Error, OSError, RuntimeError):
        return  # other findings report the problem
    yield from _streams(streams)
    if choice is None:
        why = "not measured on this machine" if settings.measured_tiles else "SHAPEVM_MEASURED_TILES=0"
        yield Finding("machine", "register tiles", f"those of the built-in table ({why})")
        return
    replaced = ", ".join(f"{tile} for {_of_class(name)}" for name, tile in choice.tiles.items())
    yield Finding("machine", "register tiles", replaced or "those of the built-in table, measured")
    for name, of in choice.measured.items():
        others = (f"{tile} {max(of.shares(tile)):.2f}" for tile in of.turns[0] if tile != of.own)
        yield Finding(
            "machine", _of_class(name), f"{of.own}; share of its time that others take: {', '.join(others)}"
        )


def _of_class(name: str) -> str:
    """Return the meaning of the name of a tile choice."""
    from ..jit.families.matmul.tile_choice import ANY, CLASSES

    kind, *pages = name.split(", ")
    return " of ".join([f"{kind} rows", *pages]) if kind in (*CLASSES, ANY) else name


def _streams(choice: TileChoice | None) -> Iterator[Finding]:
    """Yield whether products of few rows, and layout changes, prefetch memory."""
    from ..jit.families.matmul.tile_choice import STREAMS, UNASKED
    from ..jit.families.nest.asking import LAYOUTS

    measured = {} if choice is None else choice.measured
    for what, name, of_what in ((STREAMS, "weights of few rows", "products"), (LAYOUTS, LAYOUTS, "they")):
        of_it = {of: found for of, found in measured.items() if of.startswith(LAYOUTS) == (what == LAYOUTS)}
        if choice is None or not of_it:
            continue
        how = "left to the processor" if what in choice.tiles else "asked for ahead"
        shares = (f"{max(found.shares(UNASKED)):.2f} for {of}" for of, found in of_it.items())
        text = f"{how}; left to it, {of_what} take at most, in times: {', '.join(shares)}"
        yield Finding("machine", name, text if what == LAYOUTS else f"{text} rows")


# Versions -------------------------------------------------------------------------------------------


def _versions() -> Iterator[Finding]:
    yield Finding("versions", "shapevm", version("shapevm"))
    for name, tested in TESTED.items():
        try:
            have = platform.python_version() if name == "python" else version(name)
        except PackageNotFoundError:
            told = f"not installed: artifacts run, nothing can be compiled; for that {_COMPILE}"
            is_needed = name not in _COMPILER
            wrong = f"it is needed: pip install {name}" if is_needed else ""
            yield Finding("versions", name, "not installed" if is_needed else told, wrong)
            continue
        if tested.is_too_old(have):
            yield Finding("versions", name, have, f"it is older than the oldest that works: {_newer(name)}")
        else:
            untested = f" (newer than {tested.newest}, the newest tested)" if tested.is_too_new(have) else ""
            yield Finding("versions", name, have + untested)


def _newer(name: str) -> str:
    least = TESTED[name].oldest
    return f"install Python {least} or newer" if name == "python" else f"pip install '{name}>={least}'"


def _runner() -> Iterator[Finding]:
    from .. import runner_path

    try:
        path = runner_path()
        subprocess.run([path, "--help"], check=True, capture_output=True, timeout=10)
    except FileNotFoundError as error:
        yield Finding("versions", "shapevm-run", "missing", str(error))
    except (OSError, subprocess.SubprocessError) as error:
        fix = "install shapevm again for this system"
        yield Finding("versions", "shapevm-run", str(path), f"it does not run ({error}): {fix}")
    else:
        yield Finding("versions", "shapevm-run", str(path))


# The cache of kernels -------------------------------------------------------------------------------


def _cache() -> Iterator[Finding]:
    try:
        path = settings.cache_path()
        limit, url, secret = settings.cache_mib, settings.cache_url, settings.cache_secret_file
    except Error as error:
        yield Finding("kernel cache", "folder", "unknown", str(error))
        return
    if path is None:
        shown, wrong = "off (SHAPEVM_CACHE=0): each process compiles anew", ""
        if settings.cache:
            shown, wrong = "none", "the user has no home directory: set SHAPEVM_CACHE_DIR to a directory"
        yield Finding("kernel cache", "folder", shown, wrong)
    elif not os.path.exists(path):
        yield Finding("kernel cache", "folder", f"{path}, not made yet", _why_not_writable(path))
    else:
        yield from _folder(path, limit)
    if url:
        is_remote = "://" in url and find_spec("fsspec") is None
        wrong = "fsspec is not installed: pip install 'shapevm[fleet]'" if is_remote else ""
        yield Finding("kernel cache", "shared cache", url, wrong)
        yield _secret(secret)


def _why_not_writable(path: Path) -> str:
    """Return why a missing folder cannot be created, "" if it can."""
    above = next(folder for folder in path.parents if os.path.exists(folder))
    if os.path.isdir(above) and os.access(above, os.W_OK):
        return ""
    return f"it cannot be made in {above}: set SHAPEVM_CACHE_DIR to a folder of your own"


def _folder(path: Path, limit_mib: int) -> Iterator[Finding]:
    status = path.stat()
    mode = f"user {status.st_uid}, mode {stat.S_IMODE(status.st_mode):o}"
    yield Finding("kernel cache", "folder", f"{path}, {mode}", _why_unusable(path))
    sizes = [entry.stat().st_size for entry in path.glob("??/*") if entry.is_file()]
    shown = f"{sum(sizes) / 2**20:.1f} of {limit_mib} MiB in {len(sizes)} entries"
    low = os.statvfs(path).f_bavail * os.statvfs(path).f_frsize
    fix = f"only {low >> 20} MiB are free on its disk: free some, or set SHAPEVM_CACHE_DIR"
    wrong = fix if low < LOW_DISK else ""
    yield Finding("kernel cache", "size", shown, wrong)


def _why_unusable(path: Path) -> str:
    """Return why the cache in a folder is not used, "" if it is."""
    if find_spec("llvmlite") is None:
        return ""
    from ..jit.object.seal import private_seal

    try:
        private_seal(path)
    except OSError as error:
        return f"{error} (until then kernels are compiled anew)"
    return "" if os.access(path, os.W_OK) else f"it cannot be written: chmod u+w {path}"


def _secret(path: str) -> Finding:
    if not path:
        return Finding("kernel cache", "secret", "none: whoever may write to the shared cache is trusted")
    try:
        status = os.stat(path)
    except OSError as error:
        return Finding("kernel cache", "secret", path, f"it cannot be read: {error.strerror}")
    is_open = status.st_mode & 0o027  # its group may be that of the users who share the cache
    return Finding("kernel cache", "secret", path, f"others may read it: chmod 600 {path}" if is_open else "")


# Settings -------------------------------------------------------------------------------------------


def _settings() -> Iterator[Finding]:
    """Yield the settings in the environment, and variables that look like settings."""
    known = {setting.variable: setting for setting in TABLE}
    n_cpus = len(os.sched_getaffinity(0))
    for variable, value in sorted(os.environ.items()):
        if not variable.startswith("SHAPEVM_"):
            continue
        wrong = ""
        if variable not in known:
            hint = nearest(variable, known, "`shapevm settings` lists them", cutoff=0.8)
            wrong = f"it is no setting and has no effect; {hint}"
        else:
            try:
                parsed = known[variable].parse(value) if value else None
            except Error as error:
                wrong = str(error)
            else:
                if variable == "SHAPEVM_THREADS" and isinstance(parsed, int) and parsed > n_cpus:
                    wrong = f"only {n_cpus} cores are available: set SHAPEVM_THREADS={n_cpus}, or 0"
        yield Finding("settings from the environment", variable, value[:80], wrong)


# What the machine can do ----------------------------------------------------------------------------


def _limits() -> Iterator[Finding]:
    """Compile and run a kernel of multiply-adds, then yield the limits."""
    if find_spec("llvmlite") is None:
        return
    from ..jit.measure.roofline import machine_limits

    n_cpus = len(os.sched_getaffinity(0))
    try:
        for threads in dict.fromkeys((1, _threads(n_cpus))):
            limits = machine_limits(threads)
            shown = f"{limits.flops / 1e9:.0f} GFLOP/s (f32), {limits.bytes / 1e9:.1f} GB/s out of cache"
            yield Finding("limits measured", f"{threads} thread{'s' * (threads > 1)}", shown)
    except (OSError, RuntimeError) as error:
        fix = "machine code cannot be mapped or run here; run artifacts where the system allows it"
        yield Finding("limits measured", "compiled code", "does not run", f"{fix} ({error})")
