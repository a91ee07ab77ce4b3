"""Names of ONNX Runtime's module that have nothing to do here: they answer, or say why they are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from .errors import Fail

VERSION = "1.23.0"  # of ONNX Runtime, whose names these are


def refused(why: str) -> Callable[..., NoReturn]:
    """Return a function, also of a class, that raises Fail with this sentence."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise Fail(why)

    return refuse


class _Refused(type):
    """A class without instances and members."""

    def __call__(cls, *_: Any, **__: Any) -> NoReturn:
        raise Fail(f"{cls.__name__}: {WHY}")

    def __getattr__(cls, name: str) -> NoReturn:
        raise AttributeError(f"{cls.__name__}.{name}: {WHY}")


WHY = (
    "shapevm runs on the CPU; it has no other devices, allocators, sparse tensors, adapters or model packages"
)
_CLASSES = """
    AdapterFormat LoraAdapter ModelCompiler ModelPackage ModelPackageComponentContext ModelPackageContext
    ModelPackageOptions ModelPackageWriteMode OrtAllocatorType OrtArenaCfg OrtCompileApiFlags OrtDevice
    OrtDeviceMemoryType OrtDeviceVendorId OrtEpAssignedNode OrtEpAssignedSubgraph OrtEpContextData
    OrtEpContextDataBuffer OrtEpDevice OrtExecutionProviderDevicePolicy OrtExternalInitializerInfo
    OrtHardwareDevice OrtHardwareDeviceType OrtMemType OrtMemoryInfo OrtMemoryInfoDeviceType OrtSparseFormat
    OrtSyncStream SparseTensor"""
_NOTHING = (  # no devices, no telemetry; the seed of a random program is its state
    "create_and_register_allocator create_and_register_allocator_v2 disable_telemetry_events "
    "enable_telemetry_events preload_dlls print_debug_info set_default_logger_verbosity set_seed"
)
_LIBRARY = refused("shapevm has no execution providers, so it loads no library of one")

#: What `__getattr__` of the package gives.
ABSENT: dict[str, Any] = {
    **{name: _Refused(name, (), {}) for name in _CLASSES.split()},
    **dict.fromkeys(_NOTHING.split(), lambda *_, **__: None),
    "cuda_version": "", "has_collective_ops": lambda: False, "package_name": "onnxruntime",
    "version": VERSION, "get_build_info": lambda: "shapevm", "get_ep_devices": list,
    "get_version_string": lambda: VERSION,
    "set_default_logger_callback": refused("messages go to Python's log 'shapevm': add a handler to it"),
    "set_global_thread_pool_sizes": refused("set the threads of the process with shapevm.set_threads"),
    "copy_tensors": refused("values are arrays of the CPU: copy with numpy"),
    "register_execution_provider_library": _LIBRARY, "unregister_execution_provider_library": _LIBRARY,
}  # fmt: skip
