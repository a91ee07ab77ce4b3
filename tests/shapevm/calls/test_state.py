"""Buffers and inputs that the model changes in place: values and state as in PyTorch, call after call."""

import subprocess
import threading

import numpy as np
import pytest
import torch
from torch.export import Dim

import shapevm

SIZES = {"x": {0: Dim("n", max=64)}}


class Count(torch.nn.Module):
    """Buffers of two dtypes, one of them given back as it is."""

    def __init__(self):
        super().__init__()
        self.register_buffer("sums", torch.zeros(3))
        self.register_buffer("calls", torch.tensor(5), persistent=False)

    def forward(self, x):
        self.sums.add_(x.sum(0))
        self.calls += 1
        return x + self.sums, self.calls


class Cache(torch.nn.Module):
    """Keys of attention, written at positions."""

    def __init__(self):
        super().__init__()
        self.register_buffer("keys", torch.zeros(1, 8, 4))

    def forward(self, x, positions):
        self.keys.index_copy_(1, positions, x)
        return torch.softmax(x @ self.keys.transpose(1, 2), -1) @ self.keys


class Change(torch.nn.Module):
    """Changes two inputs."""

    def forward(self, x, more):
        x.add_(1)
        more["a"].mul_(x.sum())
        return x * 2


class Steps(torch.nn.Module):
    """Keeps a number that decides what the next call does, as attributes of TorchScript do."""

    n: int

    def __init__(self):
        super().__init__()
        self.n = 0
        self.last = torch.zeros(1, 3)

    def forward(self, x: torch.Tensor, scale: int) -> torch.Tensor:
        y = x * scale + self.last if self.n > 0 else x * scale
        self.n = (self.n + 1) % 3
        self.last = y[-1:]
        return y


@pytest.mark.parametrize("library", [torch.Tensor.clone, torch.Tensor.numpy])
def test_state_that_decides_has_plans(library):
    """Results are the caller's library's, the state's are numpy's, also where calls are quick."""
    script = torch.jit.script(Steps())
    exe = shapevm.compile(script, args=(torch.randn(2, 3), 3), strategy="generic")
    for _ in range(20):
        x = torch.randn(2, 3)
        y = exe(library(x), 3)
        assert type(y) is type(library(x))
        torch.testing.assert_close(torch.as_tensor(y), script(x, 3), rtol=0, atol=0)
        assert all(isinstance(value, np.ndarray) for value in exe.state().values())
    stats = exe.machine.stats()
    assert stats["replays"] > 10 and stats["interpreted"] < 10
    before = exe.state()
    exe(library(x), 3)
    exe.set_state(before)
    assert all(np.array_equal(value, before[name]) for name, value in exe.state().items())


def test_each_call_sees_the_one_before(build):
    model = Count()
    exe = build(model, torch.randn(5, 3), dynamic_shapes=SIZES)
    for n in (0, 1, 5, 7):
        x = torch.randn(n, 3)
        y, calls = model(x)
        found = exe(x)
        torch.testing.assert_close(found, (y, calls))
    np.testing.assert_allclose(exe.state()["sums"], model.sums.numpy(), rtol=1e-5, atol=1e-5)
    assert isinstance(exe(np.ones((2, 3), "f4"))[0], np.ndarray)
    assert int(exe.run({"x": torch.ones(2, 3)})["1"]) == 11
    exe.reset_state()
    assert int(exe.state()["calls"]) == 5 and not exe.state()["sums"].any()


def test_the_artifact_has_the_first_state(build, tmp_path):
    exe, x = build(Count(), torch.randn(5, 3), dynamic_shapes=SIZES), torch.randn(2, 3)
    exe(x)
    exe.save(tmp_path / "count.svm")
    with shapevm.load(tmp_path / "count.svm") as loaded:
        torch.testing.assert_close(loaded(x), Count()(x))


def test_the_runner_takes_and_gives_state(build, tmp_path):
    build(Count(), torch.randn(5, 3), dynamic_shapes=SIZES).save(tmp_path / "count.svm")
    x = np.ones((2, 3), "f4")
    np.save(tmp_path / "x.npy", x)
    command = [
        shapevm.runner_path(),
        "count.svm",
        "--input",
        "x=x.npy",
        "--output",
        "out.npz",
        "--repeat",
        "3",
    ]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    with np.load(tmp_path / "out.npz") as found:
        assert found["state.calls"] == 6
        np.testing.assert_array_equal(found["state.sums"], [2, 2, 2])
        np.savez(tmp_path / "state.npz", **{name: found[name] for name in ("state.sums", "state.calls")})
    subprocess.run([*command, "--input", "state.npz"], cwd=tmp_path, check=True, capture_output=True)
    with np.load(tmp_path / "out.npz") as found:
        assert found["state.calls"] == 7 and found["1"] == 7


def test_caches(build):
    model, x = Cache(), torch.randn(1, 2, 4)
    n = {1: Dim("n", min=1, max=8)}
    exe = build(model, x, torch.arange(2), dynamic_shapes={"x": n, "positions": {0: n[1]}})
    at = 0
    for length in (3, 1, 1, 2):
        x, positions = torch.randn(1, length, 4), torch.arange(at, at + length)
        torch.testing.assert_close(exe(x, positions), model(x, positions))
        at += length


def test_statistics_of_batch_norm_in_training(build):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).train()
    shapes = ({0: Dim("n", min=2, max=64)},)
    exe = shapevm.compile(torch.export.export(model, (torch.randn(5, 3),), dynamic_shapes=shapes))
    with exe:
        for n in (2, 5, 9):
            x = torch.randn(n, 3)
            torch.testing.assert_close(exe(x), model(x), rtol=1e-4, atol=1e-5)
        for name, found in exe.state().items():
            np.testing.assert_allclose(found, model.get_buffer(name).numpy(), rtol=1e-4, atol=1e-6)
        assert len(exe.state()) == 3


@pytest.mark.parametrize("n", [0, 1, 9])
def test_inputs_are_changed(build, n):
    model = Change()
    exe = build(model, torch.randn(5, 3), {"a": torch.ones(2)}, dynamic_shapes={**SIZES, "more": {"a": None}})
    theirs, ours = torch.randn(n, 3), torch.empty(3, n).t()  # the caller's need not be contiguous
    ours.copy_(theirs)
    a, b = torch.ones(2), torch.ones(2)
    torch.testing.assert_close(exe(ours, {"a": b}), model(theirs, {"a": a}))
    torch.testing.assert_close((ours, b), (theirs, a))
    array = np.ones((n, 3), "f4")
    exe(array, {"a": np.ones(2, "f4")})
    assert (array == 2).all()
    array.flags.writeable = False
    with pytest.raises(
        shapevm.ArgumentError, match='"x" is changed by the program, but the array given cannot'
    ):
        exe(array, {"a": np.ones(2, "f4")})


ALIASES = {
    "twice": lambda x: (x, x),
    "a view": lambda x: (x, x.view(-1).view_as(x)),
    "a part": lambda x: (x[:2], x[1:]),
    "columns": lambda x: (x.t()[:2], x.t()[1:]),
}


@pytest.mark.parametrize("alias", ALIASES)
@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_arguments_that_share_memory(build, module, alias, library):
    """What the program changes must not be another argument's; elsewhere they may share."""

    def change(self, x, y):
        x.add_(1)
        return y * 2

    exe = build(
        module(change), torch.zeros(2, 3), torch.zeros(2, 3), dynamic_shapes=({0: Dim.AUTO, 1: Dim.AUTO},) * 2
    )
    plain = build(module(lambda self, x, y: x - 2 * y), *ALIASES[alias](torch.zeros(3, 3)))
    x = torch.ones(3, 3)
    first, second = ALIASES[alias](x)
    assert torch.equal(plain(first, second), first - 2 * second)
    if library == "numpy":
        first, second = first.numpy(), second.numpy()
    with pytest.raises(
        shapevm.ArgumentError, match='"y" shares memory with input "x", which the program changes'
    ):
        exe(first, second)
    assert torch.equal(x, torch.ones(3, 3))
    apart = torch.zeros(4, 3)
    exe(apart[::2], apart[1::2])  # their addresses interleave, but no element is shared
    assert torch.equal(apart, torch.tensor([1.0, 0, 1, 0])[:, None].expand(4, 3))


@pytest.mark.parametrize("alias", ALIASES)
def test_example_arguments_that_share_memory(build, module, alias):
    """torch.export takes one tensor that is given twice for one argument."""
    first, second = ALIASES[alias](torch.zeros(3, 3))
    minus = build(module(lambda self, x, y: x - 2 * y["y"]), first, {"y": second})
    x, y = torch.randn_like(first), torch.randn_like(second)
    torch.testing.assert_close(minus(x, {"y": y}), x - 2 * y)


def test_threads_wait_for_each_other(build):
    exe = build(Count(), torch.randn(5, 3), dynamic_shapes=SIZES)
    x = torch.ones(2, 3)

    def work():
        for _ in range(50):
            exe(x)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert int(exe.state()["calls"]) == 5 + 200
    np.testing.assert_array_equal(exe.state()["sums"], np.full(3, 400, "f4"))
