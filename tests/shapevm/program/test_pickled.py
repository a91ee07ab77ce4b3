"""Executables survive pickling: by path and hash where a file has them, else by their bytes."""

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from shapevm.vm.errors import ArgumentError, ArtifactError, FileError

import shapevm
from shapevm.program.trust import digest

X = np.arange(12, dtype=np.float32).reshape(3, 4)


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.n += 1
        return x + self.n


@pytest.fixture(scope="module")
def made() -> shapevm.Executable:
    rows = torch.export.Dim("rows", min=1, max=64)
    model = torch.nn.Linear(4, 5).eval()
    return shapevm.compile(model, (torch.zeros(3, 4),), dynamic_shapes=({0: rows},), strategy="generic")


@pytest.fixture
def path(made: shapevm.Executable, tmp_path: Path) -> Path:
    made.save(tmp_path / "model.svm")
    return tmp_path / "model.svm"


def test_a_loaded_program_is_pickled_as_its_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    exe = shapevm.load(path.name, strategy="bucket", fuel=10**6, timeout=5)
    monkeypatch.chdir("/")
    text = pickle.dumps(exe)
    again = pickle.loads(text)
    assert len(text) < 2000 < path.stat().st_size
    assert again(X).tobytes() == exe(X).tobytes()
    for field in ("strategy", "limits", "native_code"):
        assert getattr(again.machine.options, field) == getattr(exe.machine.options, field)


def test_another_process_loads_it(path: Path) -> None:
    exe = shapevm.load(path, strategy="generic")
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer)(pickle.load(sys.stdin.buffer)).tobytes())"
    done = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(exe) + pickle.dumps(X), capture_output=True
    )
    assert done.stdout.decode().strip() == repr(exe(X).tobytes()), done.stderr


def test_a_program_without_a_file_is_pickled_whole(made: shapevm.Executable, path: Path) -> None:
    expected = made(X).tobytes()
    assert pickle.loads(pickle.dumps(made))(X).tobytes() == expected
    exe = shapevm.load(path, strategy="jit")
    exe(X)
    exe.freeze()
    again = pickle.loads(pickle.dumps(exe))  # with the code that was frozen
    assert again(X).tobytes() == expected and again.stats().compiled == 0
    loaded = shapevm.load(path, strategy="generic")
    path.unlink()
    assert pickle.loads(pickle.dumps(loaded))(X).tobytes() == expected


def test_a_program_frozen_after_its_digest_was_checked_is_copied(path: Path) -> None:
    exe = shapevm.load(path, strategy="jit", digest=digest(path))
    exe(X)
    exe.freeze()
    for again in (copy.copy(exe), pickle.loads(pickle.dumps(exe))):
        assert again(X).tobytes() == exe(X).tobytes()


def test_state_and_place_in_a_stream_of_calls_are_kept() -> None:
    exe = shapevm.compile(Counter(), (torch.zeros(2),), strategy="generic")
    exe(torch.zeros(2))
    again = pickle.loads(pickle.dumps(exe))
    assert again(torch.zeros(2)).tolist() == [2, 2] == exe(torch.zeros(2)).tolist()
    state = exe.state()
    exe(torch.zeros(2))
    exe.set_state(state)
    assert exe(torch.zeros(2)).tolist() == [3, 3]


def test_a_file_that_is_gone_or_another_is_refused(path: Path, tmp_path: Path) -> None:
    text = pickle.dumps(shapevm.load(path, strategy="generic"))
    path.rename(tmp_path / "elsewhere.svm")
    with pytest.raises(
        FileError, match="model.svm cannot be opened.*put that file, with SHA-256 [0-9a-f]{64}"
    ):
        pickle.loads(text)
    shapevm.compile(Counter(), (torch.zeros(2),), strategy="generic").save(path)
    with pytest.raises(ArtifactError, match="SHA-256"):
        pickle.loads(text)
    path.write_bytes(b"")
    exe = shapevm.load(tmp_path / "elsewhere.svm", strategy="generic")
    (tmp_path / "elsewhere.svm").write_bytes(b"other")
    with pytest.raises(FileError, match="the file was changed while its program was loaded"):
        pickle.dumps(exe)


def test_a_state_that_is_not_the_programs_is_refused(made: shapevm.Executable) -> None:
    with pytest.raises(ArgumentError, match="state n: the program has none"):
        made.set_state({"n": np.zeros(1, "f")})
    exe = shapevm.compile(Counter(), (torch.zeros(2),), strategy="generic")
    for state, problem in (
        ({}, "state 'n': the program's buffers are n"),
        ({"n": np.zeros(1, "f"), "m": X}, "state 'm': the program's buffers are n"),
        ({"n": X}, r"state 'n' is float32\[3, 4\], not float32\[1\]"),
    ):
        with pytest.raises(ArgumentError, match=problem):
            exe.set_state(state)
