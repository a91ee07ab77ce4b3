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
    from .build.options import Options
    from .calls.profiles import record
    from .calls.value_info import ValueInfo
    from .compiler.frontends.importer import converter
    from .compiler.ir.errors import UnsupportedOp
    from .program.executable import Executable
    from .program.statistics import Stats
    from .pytorch.accelerated import accelerate
    from .reports.metrics import PrometheusCollector
    from .runner import runner_path, sdk
    from .text import CrossEncoder, SentenceEncoder
    from .vm.cancel import CancelFlag
    from .vm.codes import Strategy, Verify
    from .vm.errors import (
        ArchiveError,
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

#: Public modules that are imported on first use.
_MODULES = ("errors", "llm", "nn", "onnx")
#: Public names that are imported on first use, and their modules.
_LAZY = {
    "ArgumentError": ".vm.errors", "ArtifactError": ".vm.errors", "DeadlineExceeded": ".vm.errors",
    "DtypeError": ".vm.errors", "LimitExceeded": ".vm.errors", "Options": ".build.options",
    "PrometheusCollector": ".reports.metrics", "ArchiveError": ".vm.errors",
    "Error": ".vm.errors", "Executable": ".program.executable", "ShapeError": ".vm.errors",
    "Stats": ".program.statistics", "UnsupportedOp": ".compiler.ir.errors", "get_threads": ".vm.host",
    "record": ".calls.profiles", "accelerate": ".pytorch.accelerated", "runner_path": ".runner",
    "sdk": ".runner", "ValueInfo": ".calls.value_info", "set_threads": ".vm.host",
    "CancelFlag": ".vm.cancel", "extern": ".vm.externs", "converter": ".compiler.frontends.importer",
    "SentenceEncoder": ".text", "CrossEncoder": ".text",
}  # fmt: skip

__all__ = [
    "ArchiveError", "ArgumentError", "ArtifactError", "CancelFlag", "CrossEncoder", "DeadlineExceeded",
    "DtypeError", "Error", "Executable", "LimitExceeded", "Options", "PrometheusCollector", "SentenceEncoder",
    "ShapeError", "Stats",
    "UnsupportedOp", "ValueInfo", "accelerate", "compile", "converter", "extern", "get_threads",
    "load", "record", "runner_path", "sdk", "set_threads", "settings",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name on first use: importing the package stays quick."""
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    if name not in _LAZY:
        raise AttributeError(f"module 'shapevm' has no attribute {name!r}")
    value = getattr(import_module(_LAZY[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted([*__all__, "__version__", *_MODULES])


def compile(
    model: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    inputs: Any = None,
    optional_examples: Mapping[str, Any] | None = None,
    strategy: Strategy | None = None,
    options: Options | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Executable:
    """Compile a PyTorch program, or an ONNX model, for every shape that its contract allows.

    Args:
        model: An nn.Module (exported with the example inputs `args`, `kwargs` and `dynamic_shapes`), a
            torch.export.ExportedProgram, the path of a .pt2 file, a torch.fx.GraphModule, a TorchScript
            module, function or .pt file with example inputs, an ONNX model (its path, its bytes or a
            ModelProto), or an .svmir file, a graph as text.
        args: Example inputs by position.
        kwargs: Example inputs by name.
        dynamic_shapes: Which sizes vary, in the form that torch.export.export takes. If None, every axis of a
            TorchScript program may have any size.
        inputs: Names of the inputs, optionally with shapes and dtypes, which replace `args` and
            `dynamic_shapes`; see `shapevm.build.inputs`.
        optional_examples: Example values, by name, for TorchScript arguments that are None in `args`. Calls
            may then pass None or a value.
        strategy: "auto" (generic kernels at once, exact ones in the background), "jit" (exact before the
            first run), "bucket" (only what was compiled ahead) or "generic"; None: the setting. All
            give the same bits.
        options: Further options: kernels compiled ahead for sizes and ranges, the target, the weights' dtype,
            the fallback for operators that cannot be compiled, the source of random numbers.
        progress: Progress callback, called as `progress(stage, done, total)`.

    Returns:
        The compiled program, to be called as the model is.

    Raises:
        UnsupportedOp: Some operators can be neither compiled nor called (the message names all of them), or
            torch.export cannot trace the model.
        ShapeError: The model restricts sizes more than `dynamic_shapes` does, or behaves differently at size
            0 or 1 where a `Dim` allows these (a log record gives the range that works).
        ArchiveError: A .pt file is damaged.
        ArgumentError: The model, an input, the strategy or an option is invalid.
    """
    from .build.compile import Given, compile_model

    given = Given(model, args, kwargs, dynamic_shapes, inputs, optional_examples)
    return compile_model(given, strategy, options, progress)


def load(
    path: str | os.PathLike[str] | bytes | bytearray | memoryview, *, strategy: Strategy | None = None,
    fuel: int | None = None, memory: int | None = None, timeout: float | None = None,
    call_depth: int | None = None, nesting: int | None = None, verify: Verify | None = None,
    copy: bool | None = None, digest: str | None = None,
    trust: str | os.PathLike[str] | bytes | None = None, native_code: bool | None = None,
    plugins: Sequence[str | os.PathLike[str]] = (),
) -> Executable:  # fmt: skip
    """Load an artifact that `Executable.save` wrote. Neither torch nor llvmlite need be installed. Without
    llvmlite no new exact kernels are compiled; with it, an artifact for another kind of CPU is recompiled.

    Args:
        path: The artifact's path, its bytes, or a URL of fsspec ("s3://models/model.svm"; needs
            `shapevm[fleet]`).
        strategy: As `compile` takes it.
        fuel: Instructions of the virtual machine that one call may run. None: the setting of that name; 0:
            no limit.
        memory: Bytes that one call may hold at once. None: the setting `memory_mib`; 0: no limit.
        timeout: Seconds that one call may take. None: the setting `timeout_ms`; 0: no limit.
        call_depth: Maximum depth of calls among the program's functions. None: the setting of that name; 0:
            the runtime's maximum.
        nesting: The same for nested lists, tuples and dicts.
        verify: When the weights are compared with their hashes: "full" (now), "lazy" (in the background,
            after which a mismatch is logged and fails every call) or "none". None: full up to 64 MiB of
            weights, else lazy. Everything else of the file is always checked.
        copy: True: hold the file's bytes. False: map its weights, which other processes then share; calls
            fail if the file was changed in place. None: a copy for files up to 16 MiB, or if there is a
            digest.
        digest: Refuse a file with another SHA-256 (64 hexadecimal digits).
        trust: Refuse a file that the owner of this Ed25519 public key (a PEM file or its bytes) did not sign
            with `shapevm sign`.
        native_code: False: run nothing of the file's machine code, but compile its kernels here from their
            specs. None: the setting. SECURITY.md describes the guarantees of `verify`, `digest`, `trust` and
            this.
        plugins: Shared libraries with functions that the program calls (docs/plug-ins.md). They take
            precedence over functions that `extern` declares, and those over PyTorch's operators. A library
            runs with all rights of the process; an artifact names functions, never libraries.

    Returns:
        The program. A call that exceeds a limit raises LimitExceeded or DeadlineExceeded.

    Raises:
        FileError: The file cannot be read.
        ArtifactError: It is invalid; VerifyError if its bytecode is.
        TargetError: It holds no code for this CPU, and there is no compiler.
        ArgumentError: An argument has the wrong type, or `strategy`, `verify`, `digest` or a limit is
            invalid.
    """
    from .program.limits import Limits, check_strategy
    from .program.opening import open_executable
    from .program.trust import Trust

    limits = Limits(fuel, memory, timeout, call_depth, nesting)
    trusted = Trust(verify, copy, digest, trust, native_code)
    return open_executable(path, check_strategy(strategy), limits=limits, trust=trusted, plugins=plugins)
