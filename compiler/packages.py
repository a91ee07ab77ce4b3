"""Which packages compiling needs, and whether they are installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

from ..vm.errors import Error, FileError

_FOR_KERNELS = {"llvmlite": "llvmlite"}  # module: package
_FOR_GRAPHS = {**_FOR_KERNELS, "sympy": "sympy"}
_FOR_MODELS = {**_FOR_GRAPHS, "torch": "torch"}
_FOR_ONNX = {**_FOR_GRAPHS, "onnx": "onnx"}


class MissingPackage(Error, RuntimeError):
    """Compiling needs a package that is not installed."""


def has_compiler() -> bool:
    """Return True if kernels can be compiled here, that is, llvmlite is installed."""
    return not _missing(_FOR_KERNELS)


def check_kernel_compiler() -> None:
    """Raise MissingPackage if kernels cannot be compiled here."""
    missing = _missing(_FOR_KERNELS)
    if missing:
        raise MissingPackage(f"compiling kernels needs {', '.join(missing)}: install shapevm[compile]")


def check_compiler(is_torch: bool = True) -> None:
    """Raise MissingPackage or FileError if models (without PyTorch: kernels) cannot be compiled here."""
    missing = _missing(_FOR_MODELS if is_torch else _FOR_GRAPHS)
    if missing:
        raise MissingPackage(
            f"compiling needs {', '.join(missing)}: install shapevm[compile]; running artifacts does not"
        )
    if is_torch:
        _check_temporary_folder()


def check_onnx_compiler() -> None:
    """Raise MissingPackage if ONNX models cannot be compiled here."""
    missing = _missing(_FOR_ONNX)
    if missing:
        raise MissingPackage(f"compiling ONNX models needs {', '.join(missing)}: install shapevm[onnx]")


def _check_temporary_folder() -> None:
    """Raise FileError if PyTorch finds no folder for temporary files, which it needs."""
    import tempfile

    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        raise FileError(
            "compiling needs a folder for temporary files, and none can be written: set TMPDIR to one"
        ) from None


def _missing(needed: Mapping[str, str]) -> list[str]:
    return [package for module, package in needed.items() if importlib.util.find_spec(module) is None]
