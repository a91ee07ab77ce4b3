"""Making shapevm what `import onnxruntime` gives."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from . import errors
from .absent import ABSENT, VERSION
from .session import PROVIDER


def get_available_providers() -> list[str]:
    """Return the CPU's provider."""
    return [PROVIDER]


get_all_providers = get_available_providers


def get_device() -> str:
    """Return "CPU"."""
    return "CPU"


def install() -> None:
    """Make this package what `import onnxruntime` gives in this process, from now on: its session, options,
    values and exceptions.

    Call it before the program imports onnxruntime; modules that hold ONNX Runtime's own names keep them.
    """
    names = _public()
    state = _module("onnxruntime.capi.onnxruntime_pybind11_state", _exceptions() | names)
    collection = _module("onnxruntime.capi.onnxruntime_inference_collection", names)
    parts = {"onnxruntime_pybind11_state": state, "onnxruntime_inference_collection": collection}
    capi = _module("onnxruntime.capi", {**parts, "_pybind_state": state})
    capi.__path__ = []
    sys.modules["onnxruntime.capi._pybind_state"] = state
    package = _module("onnxruntime", {**names, "capi": capi, "__version__": VERSION})
    package.__path__ = []


def _public() -> dict[str, Any]:
    onnx = sys.modules[__name__.rpartition(".")[0]]
    own = {name: getattr(onnx, name) for name in onnx.__all__ if name != "install"}
    return {name: each for name, each in own.items() if name not in _exceptions()} | ABSENT


def _exceptions() -> dict[str, type[Exception]]:
    found = {name: each for name, each in vars(errors).items() if isinstance(each, type)}
    return {name: each for name, each in found.items() if each.__module__ == errors.__name__}


def _module(name: str, content: dict[str, Any]) -> ModuleType:
    made = ModuleType(name, "shapevm in place of ONNX Runtime")
    made.__dict__.update(content)
    made.__spec__ = ModuleSpec(name, None)  # programs ask `find_spec` whether a package is installed
    sys.modules[name] = made
    return made
