"""A session as ONNX Runtime's Python package has it, over shapevm's programs of any shape.

    import shapevm.onnx as ort
    session = ort.InferenceSession("model.onnx")
    session.run(None, {"x": x})

`install` makes it what `import onnxruntime` gives, for programs that cannot be edited.
"""

from __future__ import annotations

from typing import Any

from .absent import ABSENT
from .binding import IOBinding, SessionIOBinding
from .errors import (
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    ModelLoaded,
    NoModel,
    NoSuchFile,
    NotImplemented,
    RuntimeException,
)  # fmt: skip
from .install import get_all_providers, get_available_providers, get_device, install
from .options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
    set_default_logger_severity,
)  # fmt: skip
from .session import InferenceSession
from .values import ModelMetadata, NodeArg, OrtValue

__all__ = [
    "EPFail", "ExecutionMode", "ExecutionOrder", "Fail", "GraphOptimizationLevel", "IOBinding",
    "InferenceSession", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "ModelLoaded", "ModelMetadata",
    "NoModel", "NoSuchFile", "NodeArg", "NotImplemented", "OrtValue", "RunOptions", "RuntimeException",
    "SessionIOBinding", "SessionOptions", "get_all_providers", "get_available_providers", "get_device",
    "install", "set_default_logger_severity",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in ABSENT:
        return ABSENT[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
