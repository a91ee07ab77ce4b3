"""shapevm: compile a PyTorch program once, run it at any shape.

    exe = shapevm.compile(model, (x,), dynamic_shapes={"x": {0: torch.export.Dim("batch", min=1)}})
    y = exe(x)
    exe.save("model.svm")
    exe = shapevm.load("model.svm")     # needs neither torch nor llvmlite

The packages `shapevm.compiler`, `shapevm.jit` and `shapevm.vm` live in the
top-level folders of the same names; the build maps them into this package.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .settings import settings

if TYPE_CHECKING:
    from .accelerated import accelerate
    from .compiler.frontends.importer import converter
    from .compiler.ir.errors import ArchiveError, UnsupportedOp
    from .executable import Executable
    from .metrics import PrometheusCollector
    from .options import Options
    from .profiles import record
    from .runner import runner_path, sdk
    from .statistics import Stats
    from .value_info import ValueInfo
    from .vm.errors import (
        ArgumentError,
        ArtifactError,
        DeadlineExceeded,
        DtypeError,
        Error,
        LimitExceeded,
        ShapeError,
    )
    from .vm.externs import extern
    from .vm.host import get_threads, set_threads

__version__ = "0.1.0"

#: Public names that are imported when first used, and where they live.
_LAZY = {
    "ArgumentError": ".vm.errors", "ArtifactError": ".vm.errors", "DeadlineExceeded": ".vm.errors",
    "DtypeError": ".vm.errors", "LimitExceeded": ".vm.errors", "Options": ".options",
    "PrometheusCollector": ".metrics", "ArchiveError": ".compiler.ir.errors",
    "Error": ".vm.errors", "Executable": ".executable", "ShapeError": ".vm.errors", "Stats": ".statistics",
    "UnsupportedOp": ".compiler.ir.errors", "get_threads": ".vm.host", "record": ".profiles",
    "accelerate": ".accelerated", "runner_path": ".runner", "sdk": ".runner", "ValueInfo": ".value_info",
    "set_threads": ".vm.host", "extern": ".vm.externs", "converter": ".compiler.frontends.importer",
}  # fmt: skip

__all__ = [
    "ArchiveError", "ArgumentError", "ArtifactError", "DeadlineExceeded", "DtypeError", "Error", "Executable",
    "LimitExceeded", "Options", "PrometheusCollector", "ShapeError", "Stats",
    "UnsupportedOp", "ValueInfo", "accelerate", "compile", "converter", "extern", "get_threads",
    "load", "record", "runner_path", "sdk", "set_threads", "settings",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name on first use: importing the package stays quick."""
    if name == "errors":
        return import_module(".errors", __name__)
    if name not in _LAZY:
        raise AttributeError(f"module 'shapevm' has no attribute {name!r}")
    value = getattr(import_module(_LAZY[name], __name__), name)
    globals()[name] = value
    return value


def compile(
    model: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    inputs: Any = None,
    strategy: str | None = None,
    options: Options | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Executable:
    """Compile a PyTorch program for every shape its contract allows.

    `model`: an nn.Module (exported with the example inputs `args`, `kwargs` and with `dynamic_shapes` as
    torch.export.export takes them), a torch.export.ExportedProgram, the path of a .pt2 file, a
    torch.fx.GraphModule, a TorchScript module, function or .pt file with example inputs (without
    `dynamic_shapes` every axis of these may be of any size), or an .svmir file, a graph as text. `inputs`:
    names of the inputs, perhaps shapes and dtypes, which stand in for `args` and `dynamic_shapes`; see
    `shapevm.inputs`. `strategy`: "auto" (generic kernels at once, exact ones in the background), "jit"
    (exact before the first run), "bucket" (what was compiled ahead, nothing more) or "generic"; None: the
    setting. All give the same bits. `options`: `shapevm.Options`, which says what can be asked for besides:
    kernels compiled ahead for sizes and ranges, the target, the weights' dtype, what becomes of operators
    that cannot be compiled, who draws random numbers. `progress(stage, done, total)` is called on the way.

    Raises UnsupportedOp naming every operator that cannot be compiled nor called, and what torch.export
    cannot trace; ArchiveError for a damaged .pt file; ArgumentError for a model, inputs, a strategy or
    options that cannot be; ShapeError where sizes are not as free as `dynamic_shapes` says, and for a model
    that does something else at size 0 or 1, where a `Dim` allows these (a log record says what range works).
    """
    from .specialise import check_compiler, open_store

    check_compiler()
    from .build import build, open_source, silent, small_sizes_check
    from .collector import paused
    from .limits import check_strategy
    from .opening import executable_of
    from .options import check_options

    strategy, options, notify = check_strategy(strategy), check_options(options), progress or silent
    stores = [open_store(target) for target in options.targets]
    with paused():
        source = open_source(model, args, kwargs, dynamic_shapes, inputs, notify)
        program = build(source, stores, options, notify)
        notify("check sizes 0 and 1", 0, 1)
        return executable_of(program, strategy, stores, small_sizes_check(source, options))


def load(
    path: str | os.PathLike[str] | bytes | bytearray | memoryview,
    *,
    strategy: str | None = None,
    fuel: int | None = None,
    memory: int | None = None,
    timeout: float | None = None,
    verify: str | None = None,
    copy: bool | None = None,
    digest: str | None = None,
    trust: str | os.PathLike[str] | bytes | None = None,
    native_code: bool | None = None,
    plugins: Sequence[str | os.PathLike[str]] = (),
) -> Executable:
    """Load an artifact that `Executable.save` wrote, from its path, its bytes or a URL of fsspec
    ("s3://models/model.svm"; `shapevm[fleet]`). Works without torch and without llvmlite installed (then no
    new exact kernels are compiled). `strategy`: as `compile` takes it.

    `fuel`, `memory`, `timeout`: what one call may use: instructions, bytes, seconds; None: the settings
    `fuel`, `memory_mib`, `timeout_ms`; 0: without a limit. A call beyond them raises LimitExceeded or
    DeadlineExceeded.

    `verify`: when the weights are compared with their hashes: "full" now, "lazy" in the background, after
    which a mismatch is logged and fails every call, "none"; None: full up to 64 MiB of weights, else lazy.
    Everything else of the file is always checked. `copy`: hold the file's bytes (True), or map its weights,
    which other processes then share (False): calls fail whose file was changed in place; None: a copy up to
    16 MiB, or where there is a digest. `digest`: refuse a file with another SHA-256 (64 hexadecimal digits).
    `trust`: refuse a file that the owner of this Ed25519 public key (a PEM file or its bytes) did not sign
    with `shapevm sign`. `native_code`: False runs nothing of the file's machine code, kernels are compiled
    here from their specs; None: the setting. What each promises: SECURITY.md.

    `plugins`: shared libraries with functions that the program calls (docs/plug-ins.md). They come before
    functions that `extern` declares, these before PyTorch's operators. A library runs with all rights of the
    process; an artifact names functions, never libraries.
    Where llvmlite is installed, an artifact for another kind of CPU is compiled anew. Raises FileError for a
    file that cannot be read, ArtifactError or VerifyError for one that is not sound, TargetError where it
    holds no code for this CPU and there is no compiler, ArgumentError for a strategy, verify, digest or limit
    that cannot be.
    """
    from .limits import Limits, check_strategy
    from .opening import open_executable
    from .trust import Trust

    limits, trusted = Limits(fuel, memory, timeout), Trust(verify, copy, digest, trust, native_code)
    return open_executable(path, check_strategy(strategy), limits=limits, trust=trusted, plugins=plugins)
