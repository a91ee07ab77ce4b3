"""Which packages compiling needs, and whether they are installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

from .vm.errors import Error

_FOR_KERNELS = {"llvmlite": "llvmlite"}  # module: package
_FOR_GRAPHS = {**_FOR_KERNELS, "sympy": "sympy"}
_FOR_MODELS = {**_FOR_GRAPHS, "torch": "torch"}


class MissingPackage(Error, RuntimeError):
    """Compiling needs a package that is not installed."""


def has_compiler() -> bool:
    """Return True where kernels can be compiled here: llvmlite is installed."""
    return not _missing(_FOR_KERNELS)


def check_kernel_compiler() -> None:
    """Raise MissingPackage where kernels cannot be compiled here."""
    missing = _missing(_FOR_KERNELS)
    if missing:
        raise MissingPackage(f"compiling kernels needs {', '.join(missing)}: install shapevm[compile]")


def check_compiler(is_torch: bool = True) -> None:
    """Raise MissingPackage where models, of PyTorch's or without it, cannot be compiled here."""
    missing = _missing(_FOR_MODELS if is_torch else _FOR_GRAPHS)
    if missing:
        raise MissingPackage(
            f"compiling needs {', '.join(missing)}: install shapevm[compile]; running artifacts does not"
        )


def _missing(needed: Mapping[str, str]) -> list[str]:
    return [package for module, package in needed.items() if importlib.util.find_spec(module) is None]
