"""ONNX models that packages hold: ONNX Runtime's results at several sizes."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import shapevm
from tests.compiler.frontends.onnx.peers import same

pytestmark = pytest.mark.drawn
RNG = np.random.default_rng(0)


def file_of(package: str, name: str) -> str:
    """Return a file of a package, which is not imported."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed")
    return str(Path(spec.submodule_search_locations[0]) / name)


def sound(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / 8).astype(np.float32)


HIGH, LOW = np.array(16000), np.array(8000)


@pytest.mark.parametrize(
    ("name", "sets"),
    [
        ("silero_vad", [(sound(2, 576), sound(2, 2, 128), HIGH), (sound(1, 288), sound(2, 1, 128), LOW)]),
        ("silero_vad_16k_op15", [(sound(n, 576), sound(2, n, 128), HIGH) for n in (1, 3)]),
        ("silero_vad_16k_sequence", [(sound(n, 576), sound(1, 1, 128), sound(1, 1, 128)) for n in (1, 7)]),
        ("silero_vad_half", [(sound(n, 576), sound(2, n, 128)) for n in (1, 3)]),
        ("silero_vad_openvino_16k", [(sound(1, 576), sound(2, 1, 128))]),
        (
            "silero_vad_op18_ifless",
            [(sound(1, 576), HIGH, sound(2, 1, 128)), (sound(3, 288), LOW, sound(2, 3, 128))],
        ),
    ],
)
def test_voices(name: str, sets: list[tuple[np.ndarray, ...]]) -> None:
    path = file_of("silero_vad", f"data/{name}.onnx")
    with shapevm.compile(path, strategy="generic") as exe:
        same(exe, path, *sets, atol=1e-5)


def test_characters() -> None:
    path = file_of("ddddocr", "common.onnx")
    with shapevm.compile(path, strategy="generic") as exe:
        same(exe, path, *([RNG.random((1, 1, 64, width), np.float32)] for width in (97, 160)), atol=1e-3)


def test_characters_by_integers() -> None:
    """Inputs are quantised at run time: a number that lies between two integers may go either way."""
    path = file_of("ddddocr", "common_old.onnx")
    with shapevm.compile(path, strategy="generic") as exe:
        same(exe, path, *([RNG.random((1, 1, 64, width), np.float32)] for width in (97, 160)), atol=0.5)


def test_places_of_characters() -> None:
    path = file_of("ddddocr", "common_det.onnx")
    with shapevm.compile(path, strategy="generic") as exe:
        same(exe, path, [RNG.random((1, 3, 416, 416), np.float32)], atol=1e-3)
