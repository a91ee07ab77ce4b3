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
    optional_examples: Mapping[str, Any] | None = None,
    strategy: str | None = None,
    options: Options | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Executable:
    """Compile a PyTorch program for every shape that its contract allows.

    Args:
        model: An nn.Module (exported with the example inputs `args`, `kwargs` and `dynamic_shapes`), a
            torch.export.ExportedProgram, the path of a .pt2 file, a torch.fx.GraphModule, a TorchScript
            module, function or .pt file with example inputs, or an .svmir file, a graph as text.
        args: Example inputs by position.
        kwargs: Example inputs by name.
        dynamic_shapes: Which sizes vary, as torch.export.export takes it. Of a TorchScript program every
            axis may be of any size where this is None.
        inputs: Names of the inputs, perhaps with shapes and dtypes, which stand in for `args` and
            `dynamic_shapes`; see `shapevm.inputs`.
        optional_examples: Of arguments of a TorchScript program that are None in the example, by name. Each
            call tells then whether they are None.
        strategy: "auto" (generic kernels at once, exact ones in the background), "jit" (exact before the
            first run), "bucket" (what was compiled ahead, nothing more) or "generic"; None: the setting. All
            give the same bits.
        options: What can be asked for besides: kernels compiled ahead for sizes and ranges, the target, the
            weights' dtype, what becomes of operators that cannot be compiled, who draws random numbers.
        progress: Called on the way as `progress(stage, done, total)`.

    Returns:
        The compiled program, to be called as the model is.

    Raises:
        UnsupportedOp: Operators can be neither compiled nor called (all are named), or torch.export cannot
            trace the model.
        ShapeError: Sizes are not as free as `dynamic_shapes` says, or the model does something else at size
            0 or 1 where a `Dim` allows these (a log record says what range works).
        ArchiveError: A .pt file is damaged.
        ArgumentError: A model, inputs, a strategy or options that cannot be.
    """
    from .collector import paused

    with paused():
        from .compiler_packages import check_compiler
        from .kernel_store import open_store

        check_compiler()
        from .argument_check import check_callable
        from .build import build, open_source, silent, small_sizes_check  # a process beside these slows them
        from .early_file import early_file
        from .early_processes import started_early
        from .limits import check_strategy
        from .opening import executable_of
        from .options import check_options

        strategy, options = check_strategy(strategy), check_options(options)
        if progress is not None:
            check_callable("progress", progress, "the stage, the steps done and all steps")
        stores, notify = list(map(open_store, options.targets)), progress or silent
        is_portable = options.target is not None  # else what other machines need is compiled by `save`
        with early_file(model, options.weights) as file:
            with started_early(stores[0], model):
                source = open_source(model, args, kwargs, dynamic_shapes, inputs, notify, optional_examples)
                program = build(source, stores, options, notify, is_portable)
            check = small_sizes_check(source, options, notify)
            return executable_of(program, strategy, stores, check, is_portable, file)


def load(
    path: str | os.PathLike[str] | bytes | bytearray | memoryview, *, strategy: str | None = None,
    fuel: int | None = None, memory: int | None = None, timeout: float | None = None,
    call_depth: int | None = None, nesting: int | None = None, verify: str | None = None,
    copy: bool | None = None, digest: str | None = None,
    trust: str | os.PathLike[str] | bytes | None = None, native_code: bool | None = None,
    plugins: Sequence[str | os.PathLike[str]] = (),
) -> Executable:  # fmt: skip
    """Load an artifact that `Executable.save` wrote. Neither torch nor llvmlite need be installed; without
    llvmlite no new exact kernels are compiled, with it an artifact for another kind of CPU is compiled anew.

    Args:
        path: The artifact's path, its bytes, or a URL of fsspec ("s3://models/model.svm"; needs
            `shapevm[fleet]`).
        strategy: As `compile` takes it.
        fuel: Instructions of the virtual machine that one call may run. None: the setting of that name; 0:
            no limit.
        memory: Bytes that one call may hold at once. None: the setting `memory_mib`; 0: no limit.
        timeout: Seconds that one call may take. None: the setting `timeout_ms`; 0: no limit.
        call_depth: How deep the program's functions may call each other. None: the setting of that name; 0:
            as deep as the runtime can.
        nesting: The same for lists, tuples and dicts within each other.
        verify: When the weights are compared with their hashes: "full" (now), "lazy" (in the background,
            after which a mismatch is logged and fails every call) or "none". None: full up to 64 MiB of
            weights, else lazy. Everything else of the file is always checked.
        copy: True: hold the file's bytes. False: map its weights, which other processes then share; calls
            fail whose file was changed in place. None: a copy up to 16 MiB, or where there is a digest.
        digest: Refuse a file with another SHA-256 (64 hexadecimal digits).
        trust: Refuse a file that the owner of this Ed25519 public key (a PEM file or its bytes) did not sign
            with `shapevm sign`.
        native_code: False: run nothing of the file's machine code, but compile its kernels here from their
            specs. None: the setting. SECURITY.md says what `verify`, `digest`, `trust` and this promise.
        plugins: Shared libraries with functions that the program calls (docs/plug-ins.md). They come before
            functions that `extern` declares, these before PyTorch's operators. A library runs with all
            rights of the process; an artifact names functions, never libraries.

    Returns:
        The program. A call of it beyond a limit raises LimitExceeded or DeadlineExceeded.

    Raises:
        FileError: The file cannot be read.
        ArtifactError: It is not sound; VerifyError, where its bytecode is not.
        TargetError: It holds no code for this CPU, and there is no compiler.
        ArgumentError: An argument of another kind, or a strategy, verify, digest or limit that cannot be.
    """
    from .limits import Limits, check_strategy
    from .opening import open_executable
    from .trust import Trust

    limits = Limits(fuel, memory, timeout, call_depth, nesting)
    trusted = Trust(verify, copy, digest, trust, native_code)
    return open_executable(path, check_strategy(strategy), limits=limits, trust=trusted, plugins=plugins)
