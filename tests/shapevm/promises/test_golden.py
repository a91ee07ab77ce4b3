"""Golden vectors: written once, checked elsewhere; a difference or another file gets one sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import click.testing
import numpy as np
import pytest
import torch
from shapevm.jit.llvm.target import runs_here
from torch import Tensor
from torch.export import Dim

import shapevm
from shapevm.__main__ import main
from shapevm.errors import FileError
from shapevm.promises.golden import HEAD, Call, read_golden, write_golden

N = Dim("n", min=1, max=32)


def forward(self, x: Tensor, k: float, flags: Tensor) -> dict[str, object]:
    y = torch.nn.functional.gelu(x) * k
    return {"y": y, "parts": [flags.sum(1), (y.tanh() @ y.mT).bfloat16()]}


@pytest.fixture
def model(build, tmp_path: Path) -> Path:
    options = shapevm.Options(bits="portable", target=["x86-64-v4", "x86-64-v3"])
    shapes = {"x": {0: N}, "k": None, "flags": {0: N}}
    args = (torch.randn(3, 16), 0.5, torch.ones(3, 4, dtype=torch.bool))
    build(forward, *args, dynamic_shapes=shapes, options=options).save(tmp_path / "model.svm")
    return tmp_path / "model.svm"


def prove(*arguments: object, code: int = 0) -> str:
    result = click.testing.CliRunner().invoke(main, ["prove", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


def test_what_is_written_is_found_again_on_other_machines(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "golden.npz"
    text = prove(model, "--golden", file, "--sizes", "n=3", "--sizes", "n=7")
    assert f"golden: wrote {file}: 2 calls" in text and len(read_golden(file).calls) == 2
    before = file.read_bytes()
    file.chmod(0o444)
    text = prove(model, "--golden", file)
    assert "golden vectors: 6 results, equal bits" in text and text.endswith("proved\n")
    assert file.read_bytes() == before
    if runs_here("x86-64-v4"):
        command = [sys.executable, "-m", "shapevm", "prove", str(model), "--golden", str(file)]
        env = {**os.environ, "SVM_CPU": "x86-64-v3"}
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        assert done.returncode == 0 and "golden vectors: 6 results, equal bits" in done.stdout, done.stdout


def test_a_difference_names_call_result_place_and_both_values(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "golden.npz"
    prove(model, "--golden", file, "--sizes", "n=3")
    (call,) = read_golden(file).calls
    changed = call.results["y"].copy()
    right, changed[2, 5] = changed[2, 5], np.float32(9)
    write_golden(file, [Call(call.inputs, {**call.results, "y": changed})])
    text = prove(model, "--golden", file, code=1)
    wanted = f"result y: 1 of 48 elements, first at [2, 5]: {right} is not 9.0"
    assert f"call 0 (n 3), by shapevm {shapevm.__version__} on" in text and wanted in text
    assert text.endswith("NOT proved: results differ\n")


def test_another_programs_calls_are_refused(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "golden.npz"
    prove(model, "--golden", file, "--sizes", "n=3")
    (call,) = read_golden(file).calls
    inputs = dict(call.inputs)
    for given, results, sentence in (
        ({**inputs, "x": inputs["x"][:, :5]}, call.results, 'input "x": axis 1 has size 5; it must be 16'),
        ({name: x for name, x in inputs.items() if name != "flags"}, call.results, "'flags' is missing; "),
        (inputs, {"z": call.results["y"]}, "has the results z; the program has y, parts.0, parts.1"),
    ):
        write_golden(file, [Call(given, results)])
        result = click.testing.CliRunner().invoke(main, ["prove", str(model), "--golden", str(file)])
        assert result.exit_code in (1, 2) and "Traceback" not in result.output
        assert result.output.startswith("Error: ") and sentence in result.output, result.output


def head(data: object) -> np.ndarray:
    return np.frombuffer(json.dumps(data).encode(), np.uint8)


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {HEAD: head([])},
        {HEAD: head({"format": 2})},
        {HEAD: head({"format": 1, "written_by": "x", "calls": 5})},
        {HEAD: head({"format": 1, "written_by": "x", "calls": [{"inputs": ["x"], "results": []}]})},
        {HEAD: head({"format": 1, "written_by": "x", "calls": [{"inputs": [["x"]], "results": 1}]})},
        {HEAD: np.frombuffer(b"[" * 100_000, np.uint8)},
        {HEAD: np.zeros((2, 2))},
        {HEAD: np.array("text")},
    ],
)
def test_other_archives_are_refused(arrays: dict[str, np.ndarray], tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(FileError, match=r"x.npz (holds no golden vectors|has format 2|cannot be)"):
        read_golden(tmp_path / "x.npz")


def test_archives_that_lie_about_sizes_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{HEAD}.npy", bytes(1 << 24))
    with pytest.raises(FileError, match="golden vectors have at most 4,294,967,296, not compressed"):
        read_golden(tmp_path / "bomb.npz")
    for name, data in (("empty.npz", b""), ("text.npz", b"not a zip"), ("cut.npz", b"PK\3\4" + bytes(50))):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(FileError, match="cannot be read as golden vectors"):
            read_golden(tmp_path / name)
    with zipfile.ZipFile(tmp_path / "huge.npz", "w") as archive:
        shape = "{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }"
        archive.writestr(
            f"{HEAD}.npy", b"\x93NUMPY\x01\x00" + len(shape).to_bytes(2, "little") + shape.encode()
        )
    with pytest.raises(FileError, match="huge.npz"):
        read_golden(tmp_path / "huge.npz")
