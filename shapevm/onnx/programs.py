"""Programs compiled from models, kept between processes under the SHA-256 of the model's bytes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..jit.object.seal import check_folder
from ..program.kept import kept_folder, locked, trim
from ..program.opening import open_executable
from ..settings import settings, warn_once
from ..vm.errors import ArtifactError
from ..vm.files import content_of, read_regular
from ..vm.host import host_target
from ..vm.schema import Integer, ListOf, MapOf, Object, OneOf, Text, decode
from .values import TYPES, ModelMetadata, NodeArg

if TYPE_CHECKING:
    from ..program.executable import Executable

NO_VERSION = (1 << 63) - 1  # of a model that does not say its version, as ONNX Runtime has it
FOLDER = "onnx"  # within the folder of kept artifacts
_NAME = Text()
_ARGUMENT = Object({"name": _NAME, "type": _NAME, "shape": ListOf(OneOf((Integer(0), _NAME)))})
_DESCRIPTION = Object(
    {
        "inputs": ListOf(_ARGUMENT),
        "outputs": ListOf(_ARGUMENT),
        "weights": ListOf(_ARGUMENT),
        "meta": Object(
            {
                "producer_name": _NAME, "graph_name": _NAME, "domain": _NAME, "description": _NAME,
                "graph_description": _NAME, "version": Integer(), "custom_metadata_map": MapOf(_NAME),
            }
        ),
        "files": MapOf(ListOf(Integer(0), most=2)),
    }
)  # fmt: skip


@dataclass(frozen=True)
class Description:
    """What a session says of its model. `weights`: those that old models list among their inputs; `files`:
    sizes and times of change of the files of external data."""

    inputs: list[NodeArg]
    outputs: list[NodeArg]
    weights: list[NodeArg]
    meta: ModelMetadata
    files: Mapping[str, list[int]]


@dataclass(frozen=True)
class Opened:
    """A program with its description."""

    program: Executable
    description: Description


def open_model(model: Any, numbers: Mapping[str, int]) -> Opened:
    """Return the program of a model, its path or its bytes, from the folder of kept programs if it is there.
    `numbers`: values of the model's named sizes.

    Raises FileError for a file that cannot be read, and the errors of compiling.
    """
    path = Path(model) if isinstance(model, str | os.PathLike) else None
    data = content_of(path) if path is not None else bytes(model)
    folder, key = _folder(), _key(data, numbers)
    if folder is None:
        return _compiled(data, path, numbers)
    with locked(folder):  # processes that start together compile once
        found = _kept(folder / key, path)
        if found is None:
            found = _compiled(data, path, numbers)
            _keep(folder, key, found)
    return found


def _folder() -> Path | None:
    """Return the folder of kept programs; None if there can be none, or if it is another user's or others may
    write to it, which is logged once."""
    folder = kept_folder(FOLDER)
    try:
        if folder is not None:
            check_folder(folder, 0o022, os.geteuid())
    except OSError as error:
        warn_once("programs of models cannot be kept (%s): each session compiles its model", error)
        return None
    return folder


def _key(data: bytes, numbers: Mapping[str, int]) -> str:
    """Return the name under which a model's program is kept: of its bytes, the compiler and the machine."""
    digest = hashlib.sha256(data)
    digest.update(
        json.dumps([sorted(numbers.items()), settings.target or host_target(), compiler()]).encode()
    )
    return digest.hexdigest()


@cache
def compiler() -> str:
    """Return what distinguishes compilers: the versions of its packages and, as in a source tree
    versions stay, the sizes and times of its files."""
    digest = hashlib.sha256()
    for name in ("shapevm", "llvmlite"):
        with suppress(ImportError):
            digest.update(version(name).encode())
    digest.update("\n".join(sorted(sources())).encode())
    return digest.hexdigest()


def sources() -> Iterator[str]:
    """Yield the path, size and time of each source file, also of a source tree's other folders."""
    root = Path(__file__).parents[1]
    beside = () if (root / "compiler").is_dir() else ("compiler", "jit", "vm")
    for folder in (root, *(root.parent / name for name in beside)):
        for place, _, names in os.walk(folder):
            for path in (os.path.join(place, name) for name in names if name.endswith(".py")):
                status = os.stat(path)
                yield f"{os.path.relpath(path, root)} {status.st_size} {status.st_mtime_ns}"


def _kept(at: Path, model: Path | None) -> Opened | None:
    """Return the program kept at a path; None if there is none, or the model's other files have changed."""
    try:
        text = read_regular(at.with_suffix(".json"))
        description = _described(decode(text, _DESCRIPTION, "a kept model"))
        if description.files and (
            model is None or description.files != _times(model.parent, description.files)
        ):
            return None
        os.utime(at.with_suffix(".svm"))  # the most recent are kept
        return Opened(open_executable(at.with_suffix(".svm"), None), description)
    except (OSError, ArtifactError):
        return None


def _described(data: Mapping[str, Any]) -> Description:
    def arguments(name: str) -> list[NodeArg]:
        shapes = ([None if size == "" else size for size in each["shape"]] for each in data[name])
        return [
            NodeArg(each["name"], each["type"], shape) for each, shape in zip(data[name], shapes, strict=True)
        ]

    meta = ModelMetadata(**data["meta"])
    return Description(arguments("inputs"), arguments("outputs"), arguments("weights"), meta, data["files"])


def _keep(folder: Path, key: str, opened: Opened) -> None:
    """Keep a program; a full disk only means that it is compiled again."""
    data = asdict(opened.description)
    for each in (*data["inputs"], *data["outputs"], *data["weights"]):
        each["shape"] = ["" if size is None else size for size in each["shape"]]
    with suppress(OSError):
        opened.program.save(folder / f"{key}.svm")
        (folder / f"{key}.json").write_text(json.dumps(data))
        trim(folder, settings.artifacts_mib << 20, f"{key}.svm")


def _times(folder: Path, names: Any) -> dict[str, list[int]]:
    """Return the size and the time of change of files of a folder."""
    found = {}
    for name in names:
        status = (folder / name).stat()
        found[name] = [status.st_size, status.st_mtime_ns]
    return found


# Compiling ------------------------------------------------------------------------------------------


def _compiled(data: bytes, path: Path | None, numbers: Mapping[str, int]) -> Opened:
    """Compile the bytes that the key is of, whatever became of their file."""
    from ..build.compile import Given, compile_model
    from ..compiler.packages import check_onnx_compiler

    check_onnx_compiler()
    from ..compiler.frontends.onnx.reader import read_model

    opened = read_model(data, path)
    program = compile_model(Given(opened, dynamic_shapes=_narrowed(opened, numbers)))
    folder = opened.folder or Path()
    return Opened(program, _description(opened, program, _times(folder, opened.files)))


def _narrowed(model: Any, numbers: Mapping[str, int]) -> dict[str, dict[int, int]]:
    """Return the values of the inputs' named sizes by input and axis."""
    return {
        each.name: {
            axis: numbers[dim.dim_param]
            for axis, dim in enumerate(each.type.tensor_type.shape.dim)
            if dim.dim_param in numbers
        }
        for each in model.proto.graph.input
    }


def _description(model: Any, program: Executable, files: Mapping[str, list[int]]) -> Description:
    proto = model.proto
    graph = proto.graph
    weights = [each for each in graph.input if each.name in model.weights]
    outputs = [_of_output(*pair) for pair in zip(graph.output, program.outputs, strict=True)]
    meta = ModelMetadata(
        proto.producer_name,
        graph.name,
        proto.domain,
        proto.doc_string,
        graph.doc_string,
        proto.model_version if proto.HasField("model_version") else NO_VERSION,
        {each.key: each.value for each in proto.metadata_props},
    )
    return Description(
        [_argument(x) for x in model.inputs], outputs, [_argument(x) for x in weights], meta, files
    )


def _argument(info: Any) -> NodeArg:
    """Return the description of an input of the model."""
    from ..compiler.frontends.onnx.reader import ELEMENTS

    kind = info.type.tensor_type
    return NodeArg(
        info.name, f"tensor({TYPES[ELEMENTS[kind.elem_type]]})", [_size(dim) for dim in kind.shape.dim]
    )


def _of_output(info: Any, found: Any) -> NodeArg:
    """Return the description of an output: the model's sizes where it says them, else the program's."""
    said = list(info.type.tensor_type.shape.dim)
    own: list[int | str | None] = [size if isinstance(size, int) else None for size in found.shape or ()]
    sizes = [_size(dim) for dim in said] if len(said) == len(own) else own
    return NodeArg(info.name, f"tensor({TYPES[found.dtype]})", sizes)


def _size(dim: Any) -> int | str | None:
    if dim.HasField("dim_value"):
        return int(dim.dim_value) if dim.dim_value >= 0 else None  # some exporters write -1 for a free size
    return str(dim.dim_param) or None
