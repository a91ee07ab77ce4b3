"""Families of models at dynamic shapes against eager: small ones here, all of them by `make models`."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

import shapevm

from . import vision, zoo

needs_torchvision = pytest.mark.skipif(
    not vision.is_installed(), reason=f"torchvision is not installed: see {vision.__name__}"
)


@pytest.mark.drawn
@pytest.mark.parametrize("name", zoo.SMALL_CLASSIFIERS)
@needs_torchvision
def test_classifiers_are_eagers_without_its_kernels(name: str) -> None:
    assert not zoo.judged(zoo.SMALL_CLASSIFIERS[name]).fallbacks


@pytest.mark.drawn
@pytest.mark.parametrize("name", zoo.TRANSFORMERS)
def test_transformers_are_eagers_without_its_kernels(name: str) -> None:
    assert not zoo.judged(zoo.TRANSFORMERS[name]).fallbacks


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(zoo.SMALL_CLASSIFIERS["resnet18"], id="resnet18", marks=needs_torchvision),
        pytest.param(zoo.TRANSFORMERS["llama"], id="llama"),
    ],
)
def test_the_runner_gives_equal_bits(model: zoo.Model, tmp_path: Path) -> None:
    with zoo.compiled(model, zoo.made(model), strategy="generic") as exe:
        exe.save(tmp_path / "model.svm")
        for sizes in model.shapes:
            given = {name: tensor.numpy() for name, tensor in model.inputs(**sizes).items()}
            expected, found = exe.run(given), in_the_runner(given, tmp_path)
            assert list(found) == list(expected)
            for name, array in expected.items():
                assert array.dtype == found[name].dtype and array.shape == found[name].shape
                assert array.tobytes() == found[name].tobytes()


def in_the_runner(given: dict[str, np.ndarray], folder: Path) -> dict[str, np.ndarray]:
    """Return what `shapevm-run` makes of inputs with the model in `folder`."""
    np.savez(folder / "in.npz", **given)
    command = [shapevm.runner_path(), folder / "model.svm", "--input", folder / "in.npz"]
    subprocess.run([*command, "--output", folder / "out.npz"], check=True, capture_output=True)
    return dict(np.load(folder / "out.npz"))
