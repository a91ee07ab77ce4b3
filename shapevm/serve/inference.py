"""The Open Inference Protocol, version 2, for one program: metadata, and inference by JSON and binary data.

https://github.com/kserve/open-inference-protocol and Triton's extension "binary_tensor_data".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from .. import Executable, __version__
from . import tensors
from .fields import ANY, FLAG, LIST, OBJECT, TEXT, Field, checked, optional, parsed, shown
from .refusals import Refused, about
from .work import Answer, Request, Work

if TYPE_CHECKING:
    from ..vm.cancel import CancelFlag
    from .batches import Batcher

VERSION = "1"
LENGTH = "inference-header-content-length"
_SIZE = Field(lambda value: type(value) is int and value >= 0, "a whole number of bytes", None)
_PARAMETERS = OBJECT._replace(default={})
_REQUEST = {
    "inputs": LIST,
    "outputs": LIST._replace(default=[]), "id": TEXT._replace(default=""), "parameters": _PARAMETERS,
}  # fmt: skip
#: Triton's clients send a priority and a timeout on request; both are hints.
_OF_REQUEST = {
    "binary_data_output": FLAG._replace(default=False), "priority": optional(ANY), "timeout": optional(ANY),
    "content_type": optional(ANY), "headers": optional(ANY),
}  # fmt: skip
_INPUT = {
    "name": TEXT, "shape": ANY, "datatype": TEXT,
    "data": ANY._replace(default=None), "parameters": _PARAMETERS,
}  # fmt: skip
_OF_INPUT = {"binary_data_size": _SIZE}
_OUTPUT = {"name": TEXT, "parameters": _PARAMETERS}
_OF_OUTPUT = {"binary_data": FLAG._replace(default=None), "binary_data_output": FLAG._replace(default=None)}
_DATATYPES = {each.name: each for each in (*tensors.DATATYPES, tensors.BYTES)}


def unsupported(exe: Executable) -> str | None:
    """Return why the protocol cannot transport a program's inputs or outputs, in a sentence; None if it
    can."""
    named = [("input", info, tensors.CARRIED) for info in exe.inputs]
    named += [("output", info, tensors.CARRIED | {"none"}) for info in exe.outputs]
    for what, info, carried in named:
        if info.kind not in carried or (info.kind == "tensor" and (info.dtype is None or info.shape is None)):
            return (
                f"{what} {info.name!r} is {info.type}, which the Open Inference Protocol does not transport"
            )
    return None


def call(
    exe: Executable, payloads: Sequence[Mapping[str, Any]], cancel: CancelFlag | None
) -> list[dict[str, Any]]:
    """Run the program on each request's inputs."""
    run = exe.run if cancel is None else exe.using(cancel=cancel).run
    return [run(payload) for payload in payloads]


class Inference:
    """One program behind the protocol."""

    def __init__(self, exe: Executable, name: str, batcher: Batcher) -> None:
        self.name = name
        self.problem = unsupported(exe)
        self._batcher = batcher
        self._inputs = {info.name: info for info in exe.inputs}
        self._outputs = {info.name: info for info in exe.outputs if info.kind != "none"}

    def server(self) -> dict[str, Any]:
        """Return the metadata of the server."""
        return {"name": "shapevm", "version": __version__, "extensions": ["binary_tensor_data"]}

    def metadata(self) -> dict[str, Any]:
        """Return the metadata of the model. Raises Refused if the protocol cannot transport its values."""
        self._check()
        return {
            "name": self.name,
            "versions": [VERSION],
            "platform": "shapevm_svm",
            "inputs": [tensors.described(info) for info in self._inputs.values()],
            "outputs": [tensors.described(info) for info in self._outputs.values()],
        }

    def _check(self) -> None:
        if self.problem is not None:
            raise Refused(self.problem)

    def infer(self, request: Request) -> Work:
        """Read a request for inference. Raises Refused."""
        self._check()
        head, binary = _parts(request)
        given = checked(parsed(head), _REQUEST)
        values: dict[str, Any] = {}
        for each in given["inputs"]:
            name, value, binary = self._input(each, binary)
            if name in values:
                raise Refused(f"input {shown(name)} is given twice; give each input once")
            values[name] = value
        if binary:
            raise Refused(
                f"{len(binary)} bytes of binary data belong to no input; give their binary_data_size"
            )
        missing = [name for name in self._inputs if name not in values]
        if missing:
            raise Refused(f"input {missing[0]!r} is missing; the program takes {', '.join(self._inputs)}")
        wanted = self._wanted(given)
        return Work(self._batcher, [values], [1], partial(self._answer, given["id"], wanted))

    def _input(self, given: Any, binary: memoryview) -> tuple[str, Any, memoryview]:
        """Return an input's name, its value, and the binary data behind it."""
        values = checked(given, _INPUT, "an input")
        name, info = values["name"], self._inputs.get(values["name"])
        if info is None:
            raise Refused(f"input {shown(name)} is unknown; the program takes {', '.join(self._inputs)}")
        kind = tensors.datatype_of(info)
        if values["datatype"] != kind.name:
            known = values["datatype"] in _DATATYPES
            said = values["datatype"] if known else f"unknown datatype {shown(values['datatype'])}"
            raise Refused(f"input {name!r} is {said}; the program takes {kind.name}")
        size = checked(values["parameters"], _OF_INPUT, f"input {name!r}")["binary_data_size"]
        with about(f"input {name!r}"):
            shape = tensors.checked_shape(values["shape"])
            if size is None:
                array = tensors.from_json(values["data"], shape, kind)
            elif values["data"] is not None:
                raise Refused("it has both data and binary_data_size; give one of them")
            elif size > len(binary):
                raise Refused(f"binary_data_size is {size}, but {len(binary)} bytes are left of the body")
            else:
                array = tensors.from_binary(binary[:size], shape, kind)
            return name, tensors.argument(array, info), binary[size or 0 :]

    def _wanted(self, given: Mapping[str, Any]) -> dict[str, bool]:
        """Return the outputs to send, each with whether it is sent as binary data."""
        of_all = checked(given["parameters"], _OF_REQUEST, "the request's parameters")["binary_data_output"]
        if not given["outputs"]:
            return dict.fromkeys(self._outputs, of_all)
        wanted = {}
        for each in given["outputs"]:
            values = checked(each, _OUTPUT, "an output")
            name = values["name"]
            if name not in self._outputs:
                raise Refused(
                    f"output {shown(name)} is unknown; the program gives {', '.join(self._outputs)}"
                )
            own = checked(values["parameters"], _OF_OUTPUT, f"output {name!r}")["binary_data"]
            wanted[name] = of_all if own is None else own
        return wanted

    def _answer(self, identifier: str, wanted: Mapping[str, bool], results: Sequence[Any]) -> Answer:
        outputs, pieces = [], []
        for name, is_binary in wanted.items():
            info = self._outputs[name]
            array, kind = tensors.result(results[0][name], info), tensors.datatype_of(info)
            row: dict[str, Any] = {"name": name, "datatype": kind.name, "shape": list(array.shape)}
            if is_binary:
                pieces.append(tensors.to_binary(array))
                row["parameters"] = {"binary_data_size": len(pieces[-1])}
            else:
                with about(f"output {name!r}"):
                    row["data"] = tensors.to_json(array, kind)
            outputs.append(row)
        head = Answer.json(
            {"model_name": self.name, "model_version": VERSION, "outputs": outputs}
            | ({"id": identifier} if identifier else {})
        )
        if not any(wanted.values()):
            return head
        sizes = {LENGTH: str(len(head.body))}
        return Answer(b"".join([head.body, *pieces]), "application/octet-stream", sizes)


def _parts(request: Request) -> tuple[memoryview, memoryview]:
    """Return the JSON and the binary data of a body."""
    body, said = memoryview(request.body), request.headers.get(LENGTH)
    if said is None:
        return body, body[len(body) :]
    if not (said.isascii() and said.isdigit() and len(said) < 16 and int(said) <= len(body)):
        raise Refused(
            f"header {LENGTH} is {shown(said)}; it must be a number of bytes, at most the body's {len(body)}"
        )
    return body[: int(said)], body[int(said) :]
