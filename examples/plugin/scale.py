"""A model with operators of your own library: compiled, then run with functions in Python, in C, and with a
converter. Needs a C compiler.

    python examples/plugin/scale.py
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from shapevm.compiler.ops import build as B
from torch.export import Dim

import shapevm

HERE = Path(__file__).parent


@torch.library.custom_op("mylib::scale", mutates_args=())
def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    """Return x * factor. The fake kernel is the shape rule: it gives the result's sizes."""
    return x * factor


@scale.register_fake
def _(x: torch.Tensor, factor: float) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("mylib::positive", mutates_args=())
def positive(x: torch.Tensor) -> torch.Tensor:
    """Return the elements greater than 0. Their number depends on the data."""
    return x[x > 0]


@positive.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty((torch.library.get_ctx().new_dynamic_size(),))


class Model(torch.nn.Module):
    """A model that uses both operators."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return positive(scale(x, 2.5)) + 1


def declare() -> None:
    """Give both operators functions in Python, for processes without torch."""

    @shapevm.extern("mylib::scale", fills=True)
    def fill_scaled(x: np.ndarray[Any, Any], factor: float, out: np.ndarray[Any, Any]) -> None:
        np.multiply(x, np.float32(factor), out=out)

    @shapevm.extern("mylib::positive")
    def find_positive(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return x[x > 0]


def convert() -> None:
    """Compile one of them, instead of calling anything."""

    @shapevm.converter("mylib::scale")
    def convert_scale(b: Any, x: Any, factor: float) -> Any:
        return b.one("mul", x, B.full(b, factor, B.dtype_of(x), B.shape_of(x)))


def main() -> None:
    """Run the model in four ways; all give the same."""
    x = torch.tensor([-1.0, 2.0, 0.0, 4.0])
    sizes = {"x": {0: Dim("n", max=1024)}}
    exe = shapevm.compile(Model(), (x,), dynamic_shapes=sizes)
    print("PyTorch ", exe(x).numpy())
    with tempfile.TemporaryDirectory() as folder:
        path, library = Path(folder, "model.svm"), Path(folder, "scale.so")
        exe.save(path)
        command = ["cc", "-O2", "-shared", "-fPIC", f"-I{shapevm.sdk().include}", str(HERE / "scale.c")]
        subprocess.run([*command, "-o", str(library)], check=True)
        with shapevm.load(path, plugins=[library]) as loaded:
            print("C       ", loaded(x.numpy()))
        declare()
        with shapevm.load(path) as loaded:
            print("Python  ", loaded(x.numpy()))
    convert()
    exe = shapevm.compile(Model(), (x,), dynamic_shapes=sizes)
    print("compiled", exe(x).numpy(), "calls", exe.machine.externs)


if __name__ == "__main__":
    main()
