"""Model files: parsing, checks, tensors. Everything here is read from data that nobody has checked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
from onnx import TensorProto

from ....vm.files import content_of
from ...ir.errors import ArchiveError, UnsupportedOp
from .known import NUMPY, Known, dtype_of_array

OPSETS = (7, 28)  # of ai.onnx
MAX_NODES = 1 << 20
MAX_DEPTH = 16  # of graphs within graphs
_GRAPHS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
#: Our name of each element type of ONNX that tensors of a program can have.
ELEMENTS: dict[int, str] = {
    TensorProto.FLOAT: "f32", TensorProto.DOUBLE: "f64", TensorProto.FLOAT16: "f16",
    TensorProto.BFLOAT16: "bf16", TensorProto.INT8: "i8", TensorProto.INT16: "i16",
    TensorProto.INT32: "i32", TensorProto.INT64: "i64", TensorProto.UINT8: "u8", TensorProto.BOOL: "bool",
}  # fmt: skip


def element_name(number: int, what: str) -> str:
    """Return our name of an element type. Raises UnsupportedOp for one that no tensor of a program has."""
    if number not in ELEMENTS:
        known = TensorProto.DataType.values()
        name = TensorProto.DataType.Name(number) if number in known else str(number)
        raise UnsupportedOp(f"{what} is of type {name}; use one of {', '.join(ELEMENTS.values())}")
    return ELEMENTS[number]


def domain_of(name: str) -> str:
    """Return a domain of operators; that of the standard is ""."""
    return "" if name == "ai.onnx" else name


class Model:
    """A parsed model: its graph, the opsets by domain, and the folder of its external data."""

    def __init__(self, proto: onnx.ModelProto, folder: Path | None) -> None:
        self.proto, self.folder = proto, folder
        self.files: set[str] = set()  # of external data, as far as they were read
        #: The names of the graph's weights, which old versions list among its inputs.
        self.weights = {each.name for each in proto.graph.initializer}
        self.versions = {domain_of(each.domain): each.version for each in proto.opset_import}
        self.check()

    @property
    def inputs(self) -> list[onnx.ValueInfoProto]:
        """The graph's inputs, without weights."""
        return [each for each in self.proto.graph.input if each.name not in self.weights]

    @property
    def version(self) -> int:
        """The version of ai.onnx's operators."""
        return self.versions.get("", 1)

    def check(self) -> None:
        """Raise UnsupportedOp for versions that are not read, ArchiveError for graphs beyond the limits."""
        low, high = OPSETS
        if not low <= self.version <= high:
            raise UnsupportedOp(
                f"the model uses version {self.version} of ONNX's operators; {low} to {high} are read: "
                "convert it with onnx.version_converter"
            )
        n_nodes = sum(len(graph.node) for graph in _graphs(self.proto.graph))
        if n_nodes > MAX_NODES:
            raise ArchiveError(f"the model has {n_nodes} nodes; at most {MAX_NODES} are read")

    def array(self, tensor: TensorProto) -> Known:
        """Return a tensor of the model. Raises ArchiveError if its data do not match its shape."""
        what = f'tensor "{tensor.name}"'
        element_name(tensor.data_type, what)
        if any(size < 0 for size in tensor.dims):
            raise ArchiveError(f"{what} has a negative size: {list(tensor.dims)}")
        if tensor.data_location == TensorProto.EXTERNAL:
            return self._external(tensor, what)
        try:
            array = onnx.numpy_helper.to_array(tensor)
        except (ValueError, TypeError, OverflowError, MemoryError) as error:
            raise ArchiveError(f"{what} has data that do not match its shape: {error}") from error
        return Known(array, dtype_of_array(array), tensor.name)

    def _external(self, tensor: TensorProto, what: str) -> Known:
        """Return a tensor whose data lie in another file."""
        said = {each.key: each.value for each in tensor.external_data}
        dtype = ELEMENTS[tensor.data_type]
        shape = tuple(tensor.dims)
        path = self._inside(said.get("location", ""), what)
        self.files.add(said["location"])
        n_bytes = NUMPY[dtype].itemsize * prod(shape)
        try:
            offset, length = int(said.get("offset", 0)), int(said.get("length", n_bytes))
            size = path.stat().st_size
        except (ValueError, OSError) as error:
            raise ArchiveError(f"{what}: its data in {path.name} cannot be read: {error}") from None
        if length != n_bytes or not 0 <= offset <= size - length:
            raise ArchiveError(
                f"{what} has {n_bytes} bytes; {path.name} of {size} bytes should hold {length} at {offset}"
            )
        array = np.memmap(path, np.uint8, "r", offset, (n_bytes,)) if n_bytes else np.empty(0, np.uint8)
        return Known(array.view(NUMPY[dtype]).reshape(shape), dtype, tensor.name)

    def _inside(self, location: str, what: str) -> Path:
        """Return the path of a file of external data, which must lie in the model's folder."""
        if self.folder is None:
            raise ArchiveError(f"{what} lies in the file {location!r}: give the model's path, not its bytes")
        if not location or "\0" in location:
            raise ArchiveError(f"{what} lies in the file {location!r}, which is no file name")
        folder = self.folder.resolve()
        path = Path(os.path.realpath(folder / location))
        if not path.is_relative_to(folder) or not path.is_file():
            raise ArchiveError(
                f"{what} lies in {location!r}, which is no file in the model's folder {folder}"
            )
        return path


def _graphs(graph: Any) -> Iterator[Any]:
    """Yield a graph and those inside its nodes."""
    yield graph
    for inner in _inside(graph):
        yield from _graphs(inner)


def _inside(graph: Any) -> Iterator[Any]:
    """Yield the graphs that are attributes of a graph's nodes."""
    for node in graph.node:
        for attribute in node.attribute:
            yield from (attribute.g, *attribute.graphs) if attribute.type in _GRAPHS else ()


def _check_depth(graph: Any, depth: int = 0) -> None:
    """Raise ArchiveError if graphs are nested too deeply."""
    if depth > MAX_DEPTH:
        raise ArchiveError(f"the model's graphs are nested more than {MAX_DEPTH} deep")
    for inner in _inside(graph):
        _check_depth(inner, depth + 1)


#: Fields whose texts are shown to nobody.
_FREE_TEXT = ("doc_string", "value")


def _check_texts(message: Any) -> None:
    """Raise ArchiveError for a name that is no printable text."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for inner in value if field.is_repeated else (value,):
                _check_texts(inner)
        elif field.type == field.TYPE_STRING:
            for text in value if field.is_repeated else (value,):
                is_text = isinstance(text, str)  # protobuf gives bytes for what is no UTF-8
                if not is_text or not (text.isprintable() or field.name in _FREE_TEXT):
                    raise ArchiveError(
                        f"the model has the {field.name} {text!r:.80}, which is no printable text"
                    )


def read_model(model: Any, at: Path | None = None) -> Model:
    """Read the path of an .onnx file, its bytes or a ModelProto; a model that was read is returned. `at`: the
    path of the file whose bytes are given.

    Raises FileError for a file that cannot be read, ArchiveError for one that is no model, UnsupportedOp for
    a version that is not read.
    """
    if isinstance(model, Model):
        return model
    if isinstance(model, str | os.PathLike):
        at = Path(model)
        model = content_of(at)
    name, folder = ("the model", None) if at is None else (str(at), at.parent)
    if not isinstance(model, onnx.ModelProto):
        try:
            model = onnx.load_model_from_string(bytes(model))
        except Exception as error:  # protobuf's, whose package has no types
            raise ArchiveError(f"{name} is no ONNX model, or it is damaged: {error}") from None
    if not model.HasField("graph") or not model.opset_import:
        raise ArchiveError(
            f"{name} is no ONNX model: it has no graph, or does not say which operators it uses"
        )
    _check_depth(model.graph)
    _check_texts(model)
    if model.functions:
        try:
            model = onnx.inliner.inline_local_functions(model)
        except Exception as error:  # of any kind, for functions that call themselves and the like
            raise ArchiveError(f"{name} has functions that cannot be put in place: {error}") from None
    return Model(model, folder)
