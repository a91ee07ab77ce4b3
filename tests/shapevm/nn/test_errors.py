"""What is refused, in one sentence each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from shapevm import ArgumentError, nn
from shapevm.errors import ShapeError


class One(nn.Module):
    def __init__(self) -> None:
        self.layer = nn.Linear(4, 2, bias=False)

    def forward(self, x: Any) -> Any:
        return self.layer(x)


@pytest.mark.parametrize(
    ("tensors", "wanted"),
    [
        (
            {"layer.weight": np.zeros((2, 3), np.float32)},
            r'"layer.weight" is f32\[2, 3\] in .*but f32\[2, 4\]',
        ),
        (
            {"layer.weight": np.zeros((2, 4), np.float16)},
            r'"layer.weight" is f16\[2, 4\] in .*but f32\[2, 4\]',
        ),
        ({}, r'"layer.weight" is not in .*f32\[2, 4\]'),
        (
            {"layer.weight": np.zeros((2, 4), np.float32), "b": np.zeros(1, np.float32)},
            'has "b", which is no parameter of One',
        ),
    ],
)
def test_a_file_that_does_not_fit(tmp_path: Path, tensors: Any, wanted: str) -> None:
    save_file(tensors, tmp_path / "w.safetensors")
    with pytest.raises(ArgumentError, match=wanted):
        nn.load(One(), tmp_path / "w.safetensors")


def test_a_file_that_is_no_safetensors_file(tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").write_bytes(b"\xff" * 40)
    with pytest.raises(ArgumentError, match="cannot be read as a safetensors file"):
        nn.load(One(), tmp_path / "w.safetensors")


def test_parameters_without_values() -> None:
    with pytest.raises(ArgumentError, match='"layer.weight" has no values; call nn.load'):
        nn.compile(One(), {"x": ("n", 4)})


@pytest.mark.parametrize(
    ("inputs", "sizes", "wanted"),
    [
        ({"x": ("n", 4)}, {"m": (1, 2)}, "sizes names 'm'.*they are n"),
        ({"x": ("n", 4)}, {"n": (3, 2)}, "n the range 3 to 2"),
        ({"x": ("n-1", 4)}, {}, "\"x\" has the size 'n-1'"),
        (["x"], {}, '"x" has no shape'),
    ],
)
def test_a_contract_that_cannot_be(inputs: Any, sizes: Any, wanted: str) -> None:
    with pytest.raises(ArgumentError, match=wanted):
        nn.compile(One(), inputs, sizes)


def test_shapes_that_do_not_fit_name_the_line(tmp_path: Path) -> None:
    save_file({"layer.weight": np.zeros((2, 4), np.float32)}, tmp_path / "w.safetensors")
    with pytest.raises(ShapeError, match=r"test_errors.py:\d+"):
        nn.compile(nn.load(One(), tmp_path / "w.safetensors"), {"x": ("n", 5)})


def test_a_tensor_outside_of_forward() -> None:
    with pytest.raises(ArgumentError, match="exist in forward only"):
        nn.relu(1.0)


def test_a_buffer_keeps_its_type() -> None:
    class Wrong(nn.Module):
        def __init__(self) -> None:
            self.total = nn.Buffer((2,))

        def forward(self, x: Any) -> Any:
            self.total.update(x)
            return x

    with pytest.raises(ArgumentError, match=r'buffer "total" is f32\[2\]; it cannot be updated to f32\[3\]'):
        nn.compile(Wrong(), {"x": (3,)})
