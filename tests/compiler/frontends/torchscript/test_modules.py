"""Modules: submodules, attributes, state that calls change, files, sizes, the command line's runner."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Optional

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import shapevm


@pytest.fixture(autouse=True)
def verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verify the graph between all passes."""
    monkeypatch.setenv("SHAPEVM_VERIFY", "1")


class Stack(nn.Module):
    """Layers in a list and in a dict, of which a flag chooses."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.ends = nn.ModuleDict({"norm": nn.LayerNorm(4), "out": nn.Linear(4, 2)})
        self.is_normal = True
        self.scale: float = 0.5

    def forward(self, x: Tensor) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = torch.relu(layer(x)) if i % 2 == 0 else x + layer(x) * self.scale
        if self.is_normal:
            x = self.ends["norm"](x)
        for name, layer in self.ends.items():
            if name == "out":
                x = layer(x)
        return x


class Counter(nn.Module):
    """State: a buffer changed in place, one that is replaced, an int and a float."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.register_buffer("last", torch.zeros(3))
        self.n: int = 0
        self.mean: float = 0.0

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, int, float]:
        before = self.last
        self.total += x.sum(0)
        self.last = x[0] * 1.0
        self.n += x.size(0)
        if self.n > 4:
            self.mean = float(self.total.sum().item()) / self.n
        return self.total.clone(), before, self.n, self.mean


def scripted(module: nn.Module) -> torch.jit.ScriptModule:
    torch.manual_seed(0)
    return torch.jit.script(module.eval())


@pytest.mark.parametrize("how", ["script", "trace"])
def test_submodules(how: str) -> None:
    torch.manual_seed(0)
    module = Stack().eval()
    program = torch.jit.script(module) if how == "script" else torch.jit.trace(module, torch.randn(2, 4))
    with shapevm.compile(program, args=(torch.randn(2, 4),)) as exe:
        for n in (2, 1, 7, 0):
            x = torch.randn(n, 4)
            assert_close(exe(x), program(x), rtol=1e-5, atol=1e-6)
        with pytest.raises(shapevm.ShapeError, match="axis 1 has size 5; it must be 4"):
            exe(torch.randn(2, 5))


@torch.jit.interface
class Step(nn.Module):
    """What a module that is given must have."""

    def forward(self, x: Tensor) -> Tensor:
        pass


class AddOne(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1


class Chosen(nn.Module):
    """A module behind an interface, and others by a name that a call gives."""

    step: Step

    def __init__(self) -> None:
        super().__init__()
        self.step = AddOne()
        self.others = nn.ModuleDict({"tanh": nn.Tanh(), "relu": nn.ReLU()})

    def forward(self, x: Tensor, name: str) -> Tensor:
        x = self.step.forward(x)
        for key, other in self.others.items():
            if key == name:
                x = other(x)
        return x


Chosen.__annotations__["step"] = Step  # TorchScript does not look up names of annotations here


def test_interfaces_and_names() -> None:
    program = scripted(Chosen())
    with shapevm.compile(program, args=(torch.randn(2, 3), "tanh")) as exe:
        for name in ("tanh", "relu", "none"):
            x = torch.randn(4, 3)
            assert_close(exe(x, name), program(x, name))


def test_state() -> None:
    program = scripted(Counter())
    with shapevm.compile(program, args=(torch.randn(2, 3),)) as exe:
        for n in (2, 1, 4, 3):
            x = torch.randn(n, 3)
            assert_close(exe(x), program(x), rtol=1e-5, atol=1e-5)


def test_an_input_that_is_changed() -> None:
    def add_one(x: Tensor) -> Tensor:
        x += 1
        return x * 2

    with shapevm.compile(torch.jit.script(add_one), args=(torch.zeros(3),)) as exe:
        x = torch.zeros(5)
        assert_close(exe(x), torch.full((5,), 2.0))
        assert_close(x, torch.ones(5))


def padded_to_nine(x: Tensor) -> tuple[Tensor, int]:
    missing = 9 - x.shape[1]
    return nn.functional.pad(x, (2 - x.shape[0], missing)), missing * x.shape[0] - 4


def test_traced_sizes_may_be_negative() -> None:
    traced = torch.jit.trace(padded_to_nine, torch.randn(2, 5), check_trace=False)
    with shapevm.compile(traced, (torch.randn(2, 5),), strategy="generic") as exe:
        for shape in ((1, 9), (2, 5), (3, 12), (4, 30)):
            x = torch.randn(shape)
            torch.testing.assert_close(exe(x), traced(x), rtol=0, atol=0)


def test_dynamic_shapes_name_sizes() -> None:
    rows = torch.export.Dim("rows", min=1, max=9)
    program = scripted(Stack())
    with shapevm.compile(program, args=(torch.randn(2, 4),), dynamic_shapes=({0: rows},)) as exe:
        assert [(s.name, s.min, s.max) for s in exe.machine.symbols] == [("rows", 1, 9)]
        with pytest.raises(shapevm.ShapeError, match="rows is 10"):
            exe(torch.randn(10, 4))


def test_a_file(tmp_path: Path) -> None:
    program = scripted(Stack())
    program.save(str(tmp_path / "model.pt"))
    with shapevm.compile(tmp_path / "model.pt", args=(torch.randn(2, 4),)) as exe:
        x = torch.randn(3, 4)
        assert_close(exe(x), program(x), rtol=1e-5, atol=1e-6)


def test_the_command_line(tmp_path: Path) -> None:
    program = scripted(Stack())
    program.save(str(tmp_path / "model.pt"))
    command = ["compile", str(tmp_path / "model.pt"), "--input", "x=f32[rows, 4]", "-q"]
    done = subprocess.run(
        [sys.executable, "-m", "shapevm", *command, "-o", str(tmp_path / "model.svm")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    with shapevm.load(tmp_path / "model.svm") as exe:
        x = torch.randn(3, 4)
        assert_close(exe(x), program(x), rtol=1e-5, atol=1e-6)
        assert [s.name for s in exe.machine.symbols] == ["rows"]


def test_the_runner(tmp_path: Path) -> None:
    def running_sum(x: Tensor, n: int) -> Tensor:
        total = torch.zeros(x.size(1))
        for i in range(x.size(0)):
            if i == n:
                break
            total = total * 0.5 + x[i]
        return total

    program = torch.jit.script(running_sum)
    x = torch.randn(6, 3)
    with shapevm.compile(program, args=(x, 4)) as exe:
        exe.save(tmp_path / "model.svm")
    np.save(tmp_path / "x.npy", x.numpy())
    runner = Path(sys.executable).parent / "shapevm-run"
    given = ["--input", f"x={tmp_path / 'x.npy'}", "--input", "n=4", "--output", str(tmp_path / "y.npy")]
    done = subprocess.run([str(runner), str(tmp_path / "model.svm"), *given], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert_close(torch.from_numpy(np.load(tmp_path / "y.npy")), program(x, 4), rtol=1e-5, atol=1e-6)


def test_what_cannot_be_compiled_is_named() -> None:
    def sorts(x: Tensor) -> Tensor:
        return torch.linalg.eigvals(x).real

    named = r"aten\.linalg_eigvals\.default \(test_modules\.py:\d+\)"
    with pytest.raises(shapevm.UnsupportedOp, match=named):
        shapevm.compile(
            torch.jit.script(sorts), args=(torch.randn(2, 2),), options=shapevm.Options(fallback="error")
        )


class Coder:
    """An object of a class that TorchScript compiles."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def code(self, x: Tensor) -> Tensor:
        return x * self.factor


class Cached(nn.Module):
    """Attributes: an object, a list that a call makes anew, one that it makes longer, one that it sets."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.coder, self.how, self.table = Coder(2.5), how, [torch.ones(3)]
        self.scales = torch.jit.Attribute(None, Optional[list[float]])  # noqa: UP045

    def forward(self, x: Tensor) -> Tensor:
        self.table = [row.to(x.dtype) for row in self.table]
        if self.how == "longer":
            self.table.append(x)
        if self.how == "set" and self.scales is None:
            self.scales = [2.0]
        return self.coder.code(x) + self.table[0]


def test_objects_and_lists_among_the_attributes() -> None:
    x, program = torch.randn(3), scripted(Cached("same"))
    assert_close(shapevm.compile(program, args=(x,))(x), program(x))
    for how in ("longer", "set"):
        program, exe = scripted(Cached(how)), shapevm.compile(scripted(Cached(how)), args=(x,))
        for _ in range(3):
            assert_close(exe(x), program(x))


def test_a_missing_argument_is_named() -> None:
    with pytest.raises(shapevm.UnsupportedOp, match="the example has no argument x: give args="):
        shapevm.compile(scripted(Stack()))


class Recurrent(nn.Module):
    """State that is empty before the first call, and after a call with another batch."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(6, 3)
        self.state = torch.zeros(0)
        self.context = torch.zeros(0)
        self.batch: int = 0

    def forward(self, x: Tensor) -> Tensor:
        if self.batch and self.batch != x.size(0):
            self.state = torch.zeros(0)
            self.context = torch.zeros(0)
        if not len(self.context):
            self.context = torch.zeros(x.size(0), 1)
        x = torch.cat([self.context, x], dim=1)
        if len(self.state):
            h = self.state[0] + self.state[1]
        else:
            h = torch.zeros(x.size(0), 3)
        h = torch.tanh(self.cell(torch.cat([x[:, :3], h], dim=1)))
        self.state = torch.stack([h, h * 0.5])
        self.context = x[:, -1:]
        self.batch = x.size(0)
        return h


def test_state_that_is_empty_at_first(tmp_path: Path) -> None:
    program = scripted(Recurrent())
    fresh = torch.jit.script(Recurrent().eval())
    fresh.load_state_dict(program.state_dict())
    with shapevm.compile(fresh, args=(torch.randn(2, 4),)) as exe:
        exe.save(tmp_path / "model.svm")
        for n in (2, 2, 3, 3, 1, 2):
            x = torch.randn(n, 4)
            assert_close(exe(x), program(x), rtol=1e-5, atol=1e-6)
    with shapevm.load(tmp_path / "model.svm") as loaded:
        program = torch.jit.script(Recurrent().eval())
        program.load_state_dict(fresh.state_dict())
        for n in (3, 3, 1):
            x = torch.randn(n, 4)
            assert_close(loaded(x), program(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("rate", "n_samples"), [(16000, 512), (8000, 256)])
def test_silero_vad(rate: int, n_samples: int) -> None:
    silero = find_spec("silero_vad")
    if silero is None:
        pytest.skip("silero-vad is not installed")
    path = Path(next(iter(silero.submodule_search_locations))) / "data" / "silero_vad.jit"
    program = torch.jit.load(path)
    program.reset_states()
    with shapevm.compile(path, args=(torch.zeros(1, n_samples), rate)) as exe, torch.no_grad():
        for batch in (1, 1, 1, 3, 3, 2):
            x = torch.randn(batch, n_samples)
            assert_close(exe(x, rate), program(x, rate), rtol=1e-4, atol=1e-5)
        with pytest.raises(shapevm.errors.GuardError, match=f"Provided number of samples is {n_samples + 1}"):
            exe(torch.zeros(1, n_samples + 1), rate)  # what the model raises
