"""Programs with several functions: one set of weights, one state, contracts of their own."""

from __future__ import annotations

import re
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shapevm.vm.artifact import read, to_bytes
from shapevm.vm.assembler import assemble
from shapevm.vm.disassembler import disassemble, large_arrays
from shapevm.vm.layout import BY_NAME

import shapevm
from shapevm import nn
from shapevm.reports.inspect import inspection


class Counter(nn.Module):
    """`forward` adds means to a total, `scaled` reads it, `reset_to` sets it; all use one weight."""

    def __init__(self) -> None:
        self.weight = nn.Parameter((64, 64))
        self.weight.array = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
        self.total = nn.Buffer((64,))

    def forward(self, x: Any) -> Any:
        self.total.update(self.total + nn.mean(x @ self.weight, 0))
        return self.total + 0.0

    def scaled(self, scale: Any) -> Any:
        return {"total": self.total * scale}

    def reset_to(self, row: Any) -> Any:
        self.total.update((row[None, :] @ self.weight)[0])
        return ()


FUNCTIONS = {"scaled": {"scale": ("k", 1)}, "reset_to": {"row": (64,)}}


def counter(**more: Any) -> shapevm.Executable:
    return nn.compile(Counter(), {"x": ("n", 64)}, functions=FUNCTIONS, strategy="generic", **more)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("counter") / "counter.svm"
    counter().save(path)
    return path


def check(exe: shapevm.Executable) -> None:
    x, weight = np.random.default_rng(1).standard_normal((5, 64)).astype(np.float32), Counter().weight.array
    assert weight is not None
    total = (x @ weight).mean(0)
    for i in (1, 2, 3):  # the third call is a replay, through the quick path
        np.testing.assert_allclose(exe(x), i * total, rtol=1e-4, atol=1e-4)
        for _ in range(3):
            found = exe.call("scaled", np.array([[2.0], [0.5], [i]], np.float32))["total"]
            np.testing.assert_allclose(found, np.outer([2, 0.5, i], i * total), rtol=1e-4, atol=1e-3)
    assert exe.call("reset_to", row=x[0]) == ()
    found = exe.call("scaled", np.ones((1, 1), np.float32))["total"][0]
    np.testing.assert_allclose(found, x[0] @ weight, rtol=1e-4, atol=1e-4)


def test_the_weights_of_all_functions_are_rounded(tmp_path: Path) -> None:
    options = shapevm.Options(weights="int8", max_error=0.5, target="x86-64-v3")  # others may leave it in f32
    counter(options=options).save(tmp_path / "counter.svm")
    found = inspection(tmp_path / "counter.svm")
    assert [row["format"] for row in found["rounded_weights"]] == ["int8"]
    assert found["weight_bytes"] < 64 * 64 * 2  # one copy of bytes for both functions


def test_functions_share_the_state(saved: Path) -> None:
    with shapevm.load(saved, strategy="generic") as exe:
        assert exe.functions == ("main", "scaled", "reset_to")
        check(exe)
        assert exe.stats().replays > 5
    check(counter())


def test_weights_are_there_once(saved: Path) -> None:
    tensors = [c for c in read(saved).constants if c.dtype is not None and c.value.nbytes >= 64 * 64 * 4]
    assert len(tensors) == 1


def test_each_function_has_its_contract(saved: Path) -> None:
    with shapevm.load(saved, strategy="generic") as exe:
        with pytest.raises(shapevm.ShapeError, match=r'input "scale": axis 1 has size 2; it must be 1'):
            exe.call("scaled", np.ones((3, 2), np.float32))
        with pytest.raises(shapevm.ShapeError, match=r'input "row" has rank 2, sizes \[1, 64\]'):
            exe.call("reset_to", np.ones((1, 64), np.float32))
        with pytest.raises(shapevm.ArgumentError, match="no function 'decode' to call; it has main, scaled"):
            exe.call("decode", np.ones((1, 64), np.float32))


def test_text_assembles_to_the_same_bytes(saved: Path) -> None:
    program = read(saved)
    text = disassemble(program, full=True)
    assert 'input "scale" of "scaled": f32[s1, 1]' in text
    assert 'output "total" of "scaled": f32[s1, 64]' in text
    assert to_bytes(assemble(text, large_arrays(program))) == saved.read_bytes()


def run(saved: Path, folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [shapevm.runner_path(), str(saved), *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_runner_calls_a_function_by_name(saved: Path, tmp_path: Path) -> None:
    state = np.arange(64, dtype=np.float32)
    np.savez(tmp_path / "in.npz", **{"scale": np.full((1, 1), 3, np.float32), "state.total": state})
    options = ["--function", "scaled", "--input", "in.npz", "--output", "out.npz"]
    assert run(saved, tmp_path, *options).returncode == 0
    found = np.load(tmp_path / "out.npz")
    assert np.array_equal(found["total"], state[None] * 3)
    listed = run(saved, tmp_path, "--list").stdout
    assert re.search(r"function scaled\n  input   scale: f32\[k, 1\]\n", listed), listed
    wrong = run(saved, tmp_path, "--function", "decode")
    assert wrong.returncode == 2 and "no function of that name" in wrong.stderr


def test_signatures_are_shown(saved: Path) -> None:
    from shapevm.reports.inspect import inspect_text, inspection

    rows = inspection(saved)["functions"]
    assert [row["name"] for row in rows] == ["main", "scaled", "reset_to"]
    assert [each["name"] for each in rows[1]["inputs"]] == ["scale", "state.total"]
    assert "function scaled:\n  input scale: f32[k, 1]\n" in inspect_text(saved)


def test_sessions_do_not_disturb_each_other(saved: Path) -> None:
    rng = np.random.default_rng(2)
    xs = [rng.standard_normal((3, 64)).astype(np.float32) for _ in range(4)]
    with shapevm.load(saved, strategy="generic") as exe:
        sessions = [exe.session() for _ in xs]

        def work(i: int) -> None:
            for _ in range(50):
                sessions[i](xs[i])

        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(xs))]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        alone = exe.session()
        for i, session in enumerate(sessions):
            alone.reset_state()
            for _ in range(50):
                alone(xs[i])
            assert np.array_equal(session.state()["total"], alone.state()["total"])
        assert not exe.state()["total"].any()
        exe.set_state(sessions[0].state())
        one = np.ones((1, 1), np.float32)
        assert np.array_equal(exe.call("scaled", one)["total"], sessions[0].call("scaled", one)["total"])


@pytest.mark.parametrize(
    "functions, message",
    [
        ({"decode": {"x": (2,)}}, "functions names 'decode', which is no method of Counter"),
        ({"forward": {"x": (2,)}}, "functions names 'forward', which is no method"),
    ],
)
def test_other_functions_are_refused(functions: Any, message: str) -> None:
    with pytest.raises(shapevm.ArgumentError, match=message):
        nn.compile(Counter(), {"x": ("n", 64)}, functions=functions)


def test_a_function_needs_an_input() -> None:
    class Constant(nn.Module):
        def forward(self, x: Any) -> Any:
            return x + 1.0

        def answer(self) -> Any:
            return nn.arange(3)

    with pytest.raises(shapevm.ArgumentError, match="function 'answer' has no inputs"):
        nn.compile(Constant(), {"x": ("n",)}, functions={"answer": {}})


@pytest.mark.parametrize("field, value", [("function", 9), ("function", 1), ("memory", 4)])
def test_entry_points_of_a_file_are_checked(saved: Path, tmp_path: Path, field: str, value: int) -> None:
    """An input of main that another function claims, or that no function has."""
    import hashlib

    data, header, section = bytearray(saved.read_bytes()), BY_NAME["header"], BY_NAME["section"]
    at = header.size + 2 * section.size  # INPUTS
    row = section.unpack(data, at)
    begin, end = row["offset"], row["offset"] + row["size"]
    changed = BY_NAME["input"].unpack(data, begin) | {field: value}
    data[begin : begin + BY_NAME["input"].size] = BY_NAME["input"].pack(**changed)
    data[at : at + section.size] = section.pack(**row | {"sha256": hashlib.sha256(data[begin:end]).digest()})
    table = hashlib.sha256(data[header.size : header.size + 14 * section.size]).digest()
    data[: header.size] = header.pack(**header.unpack(data, 0) | {"table_sha256": table})
    (tmp_path / "x.svm").write_bytes(data)
    with pytest.raises(shapevm.ArtifactError):
        shapevm.load(tmp_path / "x.svm")
    with pytest.raises(shapevm.ArtifactError):
        read(tmp_path / "x.svm")


class Differences(nn.Module):
    """The lengths of parts, from where each begins and where the last one ends."""

    def forward(self, offsets: Any, weights: Any) -> nn.Tensor:
        return (offsets[1:] - offsets[:-1]) * weights


def test_a_size_may_be_an_expression_of_another() -> None:
    inputs = {"offsets": ("parts + 1",), "weights": ("parts",)}
    exe = nn.compile(Differences(), inputs, {"parts": (0, 8)})
    for n in (0, 1, 5):
        offsets, weights = np.arange(n + 1, dtype=np.float32) ** 2, np.full(n, 2, np.float32)
        np.testing.assert_array_equal(exe(offsets, weights), np.diff(offsets) * 2)
    with pytest.raises(shapevm.errors.ShapeError):
        exe(np.zeros(4, np.float32), np.zeros(4, np.float32))
