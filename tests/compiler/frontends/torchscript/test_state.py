"""State that is no tensor: what a call leaves in lists, dicts, strings and optionals, the next one finds."""

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from shapevm.vm.artifact import to_bytes
from torch import Tensor, nn

import shapevm
from shapevm.build.compile import compiled_graph
from shapevm.build.options import Options
from shapevm.build.text_files import program_text, read_program, write_files

from .stateful import MODULES
from .test_programs import assert_runner_agrees, assert_same


@pytest.fixture(autouse=True)
def verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verify the graph between all passes."""
    monkeypatch.setenv("SHAPEVM_VERIFY", "1")


def scripted(name: str) -> torch.jit.ScriptModule:
    torch.manual_seed(0)
    return torch.jit.script(MODULES[name][0]().eval())


@pytest.mark.parametrize("name", MODULES)
def test_equals_torchscript(name: str, tmp_path: Path) -> None:
    """Call after call, after saving and loading, from a pickle in the middle, and in the runner for the first
    call."""
    program, arguments = scripted(name), MODULES[name][1]
    path = tmp_path / "model.svm"
    with shapevm.compile(scripted(name), args=copy.deepcopy(arguments[0]), strategy="generic") as exe:
        assert not [each for each in exe.machine.externs if "::" in each], "PyTorch runs a part of it"
        exe.save(path)
        assert_runner_agrees(exe, tmp_path, arguments[0])
        exe.reset_state()
        for args in arguments:
            assert_same(exe(*copy.deepcopy(args)), program(*copy.deepcopy(args)))
    program = scripted(name)
    loaded = shapevm.load(path)
    for args in arguments:
        assert_same(loaded(*copy.deepcopy(args)), program(*copy.deepcopy(args)))
        loaded = pickle.loads(pickle.dumps(loaded))


@pytest.mark.parametrize("name", ["History", "Counts", "Named", "LayerCaches", "Queue", "Memoised"])
def test_goes_through_text(name: str, tmp_path: Path) -> None:
    """The graph as text and the program as text make the same artifact."""
    example = {"model": scripted(name), "args": copy.deepcopy(MODULES[name][1][0])}
    text, arrays = compiled_graph(example, Options(), lambda *_: None)
    path, artifact = tmp_path / "graph.svmir", tmp_path / "model.svm"
    write_files(path, text, arrays)
    example["model"] = scripted(name)
    with shapevm.compile(**example) as model, shapevm.compile(path) as graph:
        model.save(artifact)
        graph.save(tmp_path / "graph.svm")
    assert (tmp_path / "graph.svm").read_bytes() == artifact.read_bytes()
    assembly = tmp_path / "model.svmasm"
    write_files(assembly, *program_text(artifact))
    assert to_bytes(read_program(assembly)) == artifact.read_bytes()


def test_state_can_be_read_and_set() -> None:
    with shapevm.compile(scripted("Logged"), args=(torch.ones(2),)) as exe:
        exe(torch.ones(2))
        state = exe.state()
        assert state["log.lines"] == ["2 elements"]
        exe(torch.ones(3))
        exe.set_state(state)
        assert exe(torch.ones(3))[1] == ["2 elements", "3 elements"]
        exe.reset_state()
        assert exe.state()["log.lines"] == []
        with pytest.raises(shapevm.ArgumentError, match="'log.lines' is a str; the program takes a list"):
            exe.set_state({**state, "log.lines": "text"})
        with pytest.raises(shapevm.ArgumentError, match=r"has elements of int and str; they must be alike"):
            exe.set_state({**state, "log.lines": ["text", 1]})


def test_state_of_a_size_that_calls_change_can_be_set() -> None:
    with shapevm.compile(scripted("LayerCaches"), args=(torch.ones(1, 4),)) as exe:
        exe(torch.ones(1, 4))
        state = exe.state()
        wanted = exe(torch.ones(1, 4))
        exe.reset_state()
        exe.set_state(state)
        assert_same(exe(torch.ones(1, 4)), wanted)
        with pytest.raises(shapevm.ArgumentError, match=r"'caches.0' is float64\[1, 1, 4\], not float32"):
            exe.set_state({**state, "caches.0": state["caches.0"].astype("f8")})


class Shared(nn.Module):
    """Two attributes that are one list after a call."""

    one: list[int]
    other: list[int]

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = [], []

    def forward(self, a: Tensor) -> Tensor:
        self.one.append(1)
        self.other = self.one
        return a + len(self.other)


class Mixed(nn.Module):
    """A list whose tensors have several sizes."""

    rows: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.rows = []

    def forward(self, a: Tensor) -> Tensor:
        self.rows.append(a)
        self.rows.append(a[1:])
        return self.rows[0]


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Shared, "attributes one and other, which calls change, are one list after a call"),
        (Mixed, r"attribute rows, whose length or keys calls change, has elements of f32\[3\] and f32\[2\]"),
    ],
)
def test_what_cannot_be_kept_is_refused(module: Any, message: str) -> None:
    with pytest.raises(shapevm.UnsupportedOp, match=message):
        shapevm.compile(torch.jit.script(module()), args=(torch.ones(3),))
