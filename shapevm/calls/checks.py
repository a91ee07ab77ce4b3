"""Checks of arguments: wrong models, example inputs, dynamic_shapes and argument types get one sentence with
the fix, before anything is traced or run."""

from __future__ import annotations

import inspect
import logging
import os
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..vm.cancel import CancelFlag
from ..vm.errors import ArchiveError, ArgumentError, ArtifactError, FileError
from ..vm.files import system_path
from ..vm.layout import MAGIC
from ..vm.spelling import nearest

_LOG = logging.getLogger("shapevm")

#: Suffixes of model files that `compile` opens; the first are TorchScript's.
SCRIPT_SUFFIXES = (".pt", ".pth", ".jit", ".ts")
GRAPH_SUFFIX, ONNX_SUFFIX = ".svmir", ".onnx"
#: Suffixes of files that are not artifacts.
FOREIGN_SUFFIXES = frozenset(
    [".gguf", ".h5", ".onnx", ".ort", ".pb", ".pt", ".pt2", ".pth", ".py", ".safetensors", ".tflite"]
)
MODEL_SUFFIXES = (".pt2", *SCRIPT_SUFFIXES, ONNX_SUFFIX, GRAPH_SUFFIX)
_MODULE = "give the torch.nn.Module"
_EXPORT = "give the file that torch.export.save(torch.export.export(module, args), FILE.pt2) writes"
_SCRIPT = "give the file that torch.jit.save(torch.jit.script(module), FILE.pt) writes"
_PICKLED = (
    "was written by torch.save: it holds weights or a pickled module, which no program can be read from; "
    "give the torch.nn.Module itself, after module.load_state_dict(torch.load(...)), or on the command line "
    "a function that makes it, FILE.py:NAME"
)
#: The content of other files, and what to pass instead.
_OTHER_FILES = {
    ".svm": "is a compiled program: load it with shapevm.load, run it with shapevm run",
    ".svmasm": "is the text of a compiled program: assemble it with shapevm asm",
    ".safetensors": f"holds weights alone: {_MODULE} that they were loaded into",
    ".bin": f"holds weights alone: {_MODULE} that they were loaded into",
    ".ckpt": f"holds a checkpoint: {_MODULE} that it was loaded into",
    ".gguf": f"holds weights alone: {_MODULE} that they were loaded into",
    ".tflite": "is a TensorFlow Lite model: shapevm compiles programs of PyTorch",
    ".h5": "is a Keras model: shapevm compiles programs of PyTorch",
    ".py": "is Python code: on the command line name a function in it, FILE.py:NAME",
}


def check_file(path: str | Path) -> None:
    """Raise ArgumentError for a path that is not a model's, FileError for one that does not exist."""
    suffix = Path(path).suffix
    if suffix == ".svm":
        check_artifact(Path(path))
    if suffix in _OTHER_FILES:
        raise ArgumentError(f"{path} {_OTHER_FILES[suffix]}")
    if suffix not in MODEL_SUFFIXES:
        raise ArgumentError(
            f"{path} has the suffix {suffix!r}; a model is a file of {', '.join(MODEL_SUFFIXES)}"
            if suffix
            else f"model {str(path)!r} is neither a module nor a file of {', '.join(MODEL_SUFFIXES)}"
        )
    if not Path(path).is_file():
        raise FileError(f"{path} does not exist")
    if suffix not in (ONNX_SUFFIX, GRAPH_SUFFIX):
        _check_content(Path(path), suffix)


def _check_content(path: Path, suffix: str) -> None:
    """Raise ArgumentError for a file with a model's suffix whose content is of another known kind."""
    import zipfile  # `load` does not need it

    try:
        with open(path, "rb") as file:
            begin = file.read(4)
        members = None
        if begin == b"PK\x03\x04":
            with zipfile.ZipFile(path) as archive:
                members = archive.namelist()
    except zipfile.BadZipFile as error:
        reason = str(error).rstrip(".")
        raise ArchiveError(f"{path} is damaged (a zip archive: {reason}); copy it again") from None
    except (OSError, ValueError):
        return  # the reader reports the problem
    if begin.startswith(b"\x80"):
        raise ArgumentError(f"{path} {_PICKLED}")
    if members is None:
        if suffix == ".pt2":
            raise ArgumentError(f"{path} is no program of torch.export: {_EXPORT}")
        raise ArchiveError(f"{path} is no program of TorchScript: {_SCRIPT}")
    inner = [name.partition("/")[2] for name in members]
    is_script = "constants.pkl" in inner
    if "data.pkl" in inner and not is_script:
        raise ArgumentError(f"{path} {_PICKLED}")
    is_exported = "serialized_exported_program.json" in (*inner, *members)
    is_exported |= any(name.startswith("models/") for name in inner)
    if not is_exported and any(name.startswith("data/aotinductor/") for name in inner):
        raise ArgumentError(
            f"{path} holds the machine code of AOTInductor, not a program: {_EXPORT} instead of what "
            "aoti_compile_and_package makes of it"
        )
    if is_exported and suffix != ".pt2":
        raise ArgumentError(f"{path} holds a program of torch.export: rename it to {path.stem}.pt2")
    if is_script and suffix == ".pt2":
        raise ArgumentError(f"{path} holds TorchScript: rename it to {path.stem}.pt")


_COMPILE = "compile a model with shapevm compile"
#: First bytes of files that may be mistaken for compiled programs, and their formats.
_OTHER_BYTES = (
    (b"PK\x03\x04", f"a zip archive, such as .pt2, .pt or .npz; {_COMPILE}"),
    (b"\x93NUMPY", f"a numpy array; {_COMPILE}"),
    (b"\x7fELF", f"a program or library of the system; {_COMPILE}"),
    (b"{", f"JSON, such as a profile; {_COMPILE}"),
    (b"\x08", "perhaps an ONNX model; compile it with shapevm compile"),
    (b"\x1f\x8b", "compressed by gzip; unpack it first, with gunzip"),
)
_OTHER_KIND = f"another kind of file; {_COMPILE}"


def check_artifact(path: Path) -> None:
    """Raise ArtifactError for a file that does not start like a compiled program, naming its format."""
    try:
        with open(path, "rb") as file:
            begin = file.read(len(MAGIC))
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}") from None
    if begin and begin != MAGIC:
        kind = next((kind for first, kind in _OTHER_BYTES if begin.startswith(first)), _OTHER_KIND)
        raise ArtifactError(f"{path} is no .svm file: it is {kind}")


def check_path(name: str, value: Any, others: str = "") -> None:
    """Raise ArgumentError unless the value is a path. `others`: what else the argument `name` may be."""
    if not isinstance(value, str | os.PathLike):
        raise ArgumentError(f"{name} is {reprlib.repr(value)}; give a path{others}")
    try:
        system_path(value)
    except OSError as error:
        raise ArgumentError(
            f"{name} is {reprlib.repr(value)}: {error.strerror}; give a path{others}"
        ) from None


def check_suffix(path: str | os.PathLike[str]) -> None:
    """Raise ArgumentError for an artifact's output path with the suffix of another format."""
    written = Path(path)
    if written.suffix.lower() in FOREIGN_SUFFIXES:
        raise ArgumentError(
            f"{written} has the suffix {written.suffix}, but an artifact is written; give "
            f"{written.with_suffix('.svm').name}"
        )


def check_plugins(plugins: Any) -> None:
    """Raise ArgumentError unless the value is a list of paths."""
    if isinstance(plugins, str | bytes | os.PathLike) or not isinstance(plugins, Iterable):
        raise ArgumentError(f"plugins is {reprlib.repr(plugins)}; give a list of paths")
    for plugin in plugins:
        check_path("a plug-in", plugin)


def check_flag(name: str, value: Any) -> None:
    """Raise ArgumentError unless the value is a bool or None."""
    if value is not None and not isinstance(value, bool):
        raise ArgumentError(f"{name} is {reprlib.repr(value)}; it must be True, False or None")


def check_callable(name: str, value: Any, takes: str) -> None:
    """Raise ArgumentError unless the value is callable. `takes`: the arguments of its calls."""
    if not callable(value):
        raise ArgumentError(f"{name} is {reprlib.repr(value)}; give a function of {takes}")


def check_by_name(name: str, values: Any, of: str) -> None:
    """Raise ArgumentError unless the value is a dict of `of` by name."""
    if type(values) is not dict and not isinstance(values, Mapping):
        raise ArgumentError(f"{name} is of type {type(values).__name__}; give a dict of {of} by name")


def check_seconds(name: str, value: Any) -> None:
    """Raise ArgumentError unless the value is a number of seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise ArgumentError(f"{name} is {reprlib.repr(value)}; give a number of seconds, 0 or more")


def check_cancel(value: Any) -> CancelFlag | None:
    """Return a call's cancel flag. Raises ArgumentError for anything else."""
    if value is None or isinstance(value, CancelFlag):
        return value
    raise ArgumentError(f"cancel is {reprlib.repr(value)}; give a shapevm.CancelFlag")


def check_count(name: str, value: Any) -> None:
    """Raise ArgumentError unless the value is a positive integer."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ArgumentError(f"{name} is {reprlib.repr(value)}; give a whole number, 1 or more")


def check_programs(programs: Iterable[Any]) -> None:
    """Raise ArgumentError for an argument that is not a compiled program."""
    for program in programs:
        if not hasattr(program, "machine"):
            raise ArgumentError(
                f"{reprlib.repr(program)} is no program; give what shapevm.compile and shapevm.load return"
            )


def check_model(model: Any) -> None:
    """Raise ArgumentError unless the value is a model, and say what to pass instead."""
    if isinstance(model, str | Path):
        check_file(model)
    elif is_onnx(model):
        return
    elif isinstance(model, type):
        raise ArgumentError(f"the model is the class {model.__name__}; give an instance: {model.__name__}()")
    elif isinstance(model, Mapping):
        raise ArgumentError(
            f"the model is a state dict of {len(model)} entries; {_MODULE} after module.load_state_dict(...)"
        )
    elif not hasattr(type(model), "graph") and not hasattr(model, "forward"):
        name = getattr(model, "__name__", "") if callable(model) else ""
        what = f"the function {name}" if name else reprlib.repr(model)
        fix = "a torch.nn.Module whose forward calls it, or torch.jit.script of it" if name else "a module"
        raise ArgumentError(f"the model is {what}; give {fix}")


def is_onnx(model: Any) -> bool:
    """Whether a model is ONNX: a file's path, its bytes, a ModelProto, or what was read of one."""
    if isinstance(model, str | os.PathLike):
        return Path(model).suffix == ONNX_SUFFIX
    return isinstance(model, bytes | bytearray | memoryview) or hasattr(
        getattr(model, "proto", model), "opset_import"
    )


def program_of(model: Any) -> Any:
    """Return the program in a result of transformers' exporter; return any other model unchanged. Raises
    ArgumentError if there are several programs, or none of PyTorch's."""
    components = getattr(model, "components", None)
    if not isinstance(components, Mapping) or not hasattr(model, "export_format"):
        return model
    if len(components) != 1:
        raise ArgumentError(
            f"the exported model has {len(components)} programs; give one of them: "
            + ", ".join(f"model.components[{name!r}].program" for name in components)
        )
    (component,) = components.values()
    if not hasattr(component.program, "graph_signature"):
        found = type(component.program).__name__
        raise ArgumentError(f"the exported model holds a {found}; export it by transformers' DynamoExporter")
    return component.program


def check_graph_alone(path: str | Path, **given: Any) -> None:
    """Raise ArgumentError for arguments besides a file that is complete by itself."""
    for name, value in given.items():
        if value is not None and value != () and value != {}:
            raise ArgumentError(
                f"{name} is given beside {path}, which says its inputs and sizes: leave it out"
            )


def check_no_optionals(optional_examples: Any) -> None:
    """Raise ArgumentError for examples of optional arguments unless the model is a TorchScript program."""
    if optional_examples:
        raise ArgumentError(
            f"optional_examples names {', '.join(optional_examples)}, but only calls of TorchScript programs "
            "tell what is None; compile a program of this model for each form"
        )


def check_arguments(model: Any, args: Any, kwargs: Any, dynamic_shapes: Any) -> None:
    """Check a module's example inputs and their sizes; log if its training mode has no effect. Raises
    ArgumentError."""
    _check_containers(args, kwargs)
    signature = inspect.signature(model.forward)
    try:
        bound = signature.bind(*args, **(kwargs or {})).arguments
    except TypeError as error:
        raise ArgumentError(
            f"forward{_parameters(signature)} cannot be called with the example inputs: {error}; give them "
            'as args=(x, ...) and kwargs={...}, or as inputs={"x": (("batch", 16), "f32")}'
        ) from None
    for name, value in _by_name(signature, bound).items():
        _check_input(name, value)
    for name in dynamic_shapes if isinstance(dynamic_shapes, Mapping) else ():
        if name in signature.parameters and name not in bound:
            raise ArgumentError(
                f"dynamic_shapes names {name!r}, which has no example; give one or leave it out"
            )
    _check_dynamic_shapes(bound | _by_name(signature, bound), len(bound), dynamic_shapes)
    say_training(model)


def _parameters(signature: inspect.Signature) -> str:
    return f"({', '.join(signature.parameters)})"


def _check_containers(args: Any, kwargs: Any) -> None:
    if isinstance(args, Mapping):
        raise ArgumentError(f"args is a dict with {', '.join(map(str, args))}; give it as kwargs={{...}}")
    if hasattr(args, "shape"):
        raise ArgumentError("args is a tensor; give a tuple of example inputs: args=(x,)")
    if isinstance(args, str) or not isinstance(args, Sequence):
        raise ArgumentError(
            f"args is of type {type(args).__name__}; give a tuple of example inputs: args=(x,)"
        )
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise ArgumentError(
            f"kwargs is of type {type(kwargs).__name__}; give a dict of example inputs by name"
        )


def _check_input(name: str, value: Any) -> None:
    if type(value).__module__ == "numpy":
        raise ArgumentError(f"example input {name} is a numpy array; give torch.from_numpy({name})")


def _check_dynamic_shapes(bound: Mapping[str, Any], n_parameters: int, dynamic_shapes: Any) -> None:
    if dynamic_shapes is None or hasattr(dynamic_shapes, "dynamic_shapes"):  # torch's ShapesCollection
        return
    if isinstance(dynamic_shapes, str) or not isinstance(dynamic_shapes, Mapping | Sequence):
        raise ArgumentError(
            f"dynamic_shapes is {dynamic_shapes!r}; give a dict from the inputs' names to their dynamic "
            'axes, such as {"x": {0: torch.export.Dim("batch")}}'
        )
    names = list(bound)
    if not isinstance(dynamic_shapes, Mapping):
        if len(dynamic_shapes) != n_parameters:
            raise ArgumentError(
                f"dynamic_shapes has {len(dynamic_shapes)} entries; give one for each of "
                f"{', '.join(names) or 'no inputs'}"
            )
        dynamic_shapes = dict(zip(names, dynamic_shapes, strict=False))
    for name in dynamic_shapes:
        if name not in names:
            hint = nearest(str(name), names, f"it takes {', '.join(names) or 'none'}")
            raise ArgumentError(f"dynamic_shapes names {name!r}, which is no input of forward; {hint}")
    for name, axes in dynamic_shapes.items():
        _check_axes(name, axes, getattr(bound[name], "ndim", None))
        _check_sizes(name, axes, getattr(bound[name], "shape", ()))


def _check_axes(name: str, axes: Any, rank: int | None) -> None:
    for axis in axes if isinstance(axes, Mapping) and rank is not None else ():
        if rank is None or not isinstance(axis, int) or 0 <= axis < rank:
            continue
        has = f"has axes 0 to {rank - 1}" if rank else "is a number without axes"
        raise ArgumentError(f"dynamic_shapes names axis {axis!r} of {name}, which {has}")


def _check_sizes(name: str, axes: Any, shape: Sequence[int]) -> None:
    """Check the sizes of one tensor: Dims, which must admit the example's sizes."""
    if not shape or isinstance(axes, str) or not isinstance(axes, Mapping | Sequence):
        return
    for axis, dim in axes.items() if isinstance(axes, Mapping) else enumerate(axes):
        if isinstance(dim, str | float | Mapping | Sequence):
            written = f'torch.export.Dim("{dim}", min=1, max=...)' if isinstance(dim, str) else "a Dim"
            raise ArgumentError(f"dynamic_shapes says {dim!r} of axis {axis} of {name}; give {written}")
        low, high = (getattr(dim, bound, None) for bound in ("min", "max"))
        if (
            hasattr(dim, "root")
            or not isinstance(low, int)
            or not isinstance(high, int)
            or axis >= len(shape)
        ):
            continue
        size = shape[axis]
        if size > high or (size < low and size != 1):  # size 1: its rows are repeated
            fix = f"give a {'smaller' if size > high else 'larger'} example or a wider Dim"
            bounds = f"{dim.__name__} is {low} to {high}"
            raise ArgumentError(f"axis {axis} of {name} has size {size} in the example, but {bounds}; {fix}")


def _by_name(signature: inspect.Signature, bound: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs by name; those in **kwargs have their own names."""
    found: dict[str, Any] = {}
    for name, value in bound.items():
        is_rest = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
        found.update(value if is_rest else {name: value})
    return found


def say_training(model: Any) -> None:
    """Log that a module is compiled in evaluation mode if that makes a difference."""
    if not getattr(model, "training", False) or not hasattr(model, "named_modules"):
        return
    from torch import nn
    from torch.nn.modules.batchnorm import _NormBase
    from torch.nn.modules.dropout import _DropoutNd

    for name, part in model.named_modules():
        kind = getattr(nn, getattr(part, "original_name", ""), type(part))  # TorchScript's have but the name
        if part.training and issubclass(kind, _NormBase | _DropoutNd):
            _LOG.warning(
                "the module is in training mode, but compiled as in evaluation: %s (%s) does something else "
                "there; call model.eval() before you compare results",
                name or "it", kind.__name__,
            )  # fmt: skip
            return
