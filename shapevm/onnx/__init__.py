"""A session as ONNX Runtime's Python package has it, over shapevm's programs of any shape.

    import shapevm.onnx as ort
    session = ort.InferenceSession("model.onnx")
    session.run(None, {"x": x})

`install` makes it what `import onnxruntime` gives, for programs that cannot be edited.
"""

from __future__ import annotations

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
)
from .install import (
    disable_telemetry_events,
    enable_telemetry_events,
    get_all_providers,
    get_available_providers,
    get_device,
    install,
    set_seed,
)
from .options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
    set_default_logger_severity,
)
from .session import InferenceSession
from .values import ModelMetadata, NodeArg, OrtValue

__all__ = [
    "EPFail", "ExecutionMode", "ExecutionOrder", "Fail", "GraphOptimizationLevel", "IOBinding",
    "InferenceSession", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "ModelLoaded", "ModelMetadata",
    "NoModel", "NoSuchFile", "NodeArg", "NotImplemented", "OrtValue", "RunOptions", "RuntimeException",
    "SessionIOBinding", "SessionOptions", "disable_telemetry_events", "enable_telemetry_events",
    "get_all_providers", "get_available_providers", "get_device", "install", "set_default_logger_severity",
    "set_seed",
]  # fmt: skip
