"""shapevm.accelerate: what compiles runs here, the rest in PyTorch, which is said once."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import shapevm
from shapevm.pytorch.accelerated import MAX_VERSIONS, AcceleratedScript


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Any:
    """Return a function that gives the warnings up to now."""
    caplog.set_level(logging.WARNING, "shapevm")
    return lambda: [record.getMessage() for record in caplog.records if "PyTorch" in record.getMessage()]


class Net(nn.Module):
    """A small classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Return probabilities."""
        return torch.softmax(torch.relu(self.linear(x)), dim=-1)


def script() -> Any:
    torch.manual_seed(0)
    return torch.jit.script(Net().eval())


def n_programs(model: AcceleratedScript) -> int:
    return sum(len(versions.programs) for versions in model._versions.values())


def test_a_script_runs_here(warnings: Any) -> None:
    program = script()
    model = shapevm.accelerate(program, strategy="generic")
    with torch.no_grad():
        for n in (2, 5, 0, 1):
            x = torch.randn(n, 4)
            assert_close(model(x), program(x))
        assert n_programs(model) == 1
        x = torch.randn(2, 3, 4)
        assert_close(model(x), program(x))
        assert n_programs(model) == 2
    assert not warnings()


def test_changed_weights_are_seen() -> None:
    program = script()
    model = shapevm.accelerate(program, strategy="generic")
    x = torch.randn(2, 4)
    with torch.no_grad():
        for _ in range(6):
            assert_close(model(x), program(x))
            program.linear.weight += 1


def test_gradients_come_from_pytorch(warnings: Any) -> None:
    program = script()
    model = shapevm.accelerate(program, strategy="generic")
    for _ in range(2):
        model(torch.randn(2, 4)).sum().backward()
    assert program.linear.weight.grad is not None
    assert n_programs(model) == 0
    assert warnings() == [
        "a call of the model runs in PyTorch: the call needs gradients; call it under torch.no_grad()"
    ]


def test_what_cannot_be_compiled_runs_in_pytorch(warnings: Any) -> None:
    def roots(x: Tensor) -> Tensor:
        return torch.linalg.eigvals(x)

    model = shapevm.accelerate(torch.jit.script(roots))
    x = torch.randn(3, 3)
    for _ in range(2):
        assert_close(model(x), torch.linalg.eigvals(x))
    assert len(warnings()) == 1
    assert "linalg_eigvals" in warnings()[0]


def test_state_stays_in_pytorch(warnings: Any) -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("n", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.n += x.sum()
            return self.n.clone()

    program = torch.jit.script(Counter().eval())
    model = shapevm.accelerate(program)
    assert [model(torch.ones(2)).item() for _ in range(3)] == [2, 4, 6]
    assert program.n.item() == 6
    assert warnings() == ["a call of the model runs in PyTorch: its calls change n"]


def test_the_models_own_errors_are_its_own(warnings: Any) -> None:
    def checked(x: Tensor, n: int) -> Tensor:
        if n < 0:
            raise ValueError("n is negative")
        return x * n

    model = shapevm.accelerate(torch.jit.script(checked), strategy="generic")
    assert_close(model(torch.ones(2), 3), torch.full((2,), 3.0))
    with pytest.raises(torch.jit.Error, match="n is negative"):
        model(torch.ones(2), -1)
    assert n_programs(model) == 1
    assert not warnings()


def test_other_sizes_get_programs_of_their_own(warnings: Any) -> None:
    def split(x: Tensor) -> Tensor:
        rows = x * 2
        for each in rows.unbind(0):  # changed through views: of as many rows as in the example
            each += 1
        return rows

    program = torch.jit.script(split)
    model = shapevm.accelerate(program, strategy="generic")
    for n in range(1, MAX_VERSIONS + 3):
        x = torch.randn(n, 3)
        assert_close(model(x), program(x))
    assert n_programs(model) == MAX_VERSIONS
    assert len(warnings()) == 1


def test_lengths_keys_and_strings_share_a_program(warnings: Any) -> None:
    class Weighted(nn.Module):
        def forward(self, parts: list[Tensor], scales: dict[str, float], how: str) -> Tensor:
            total = torch.zeros(2)
            for part in parts:
                total = total + part
            for name, scale in scales.items():
                if name == how:
                    total = total * scale
            return total

    program = torch.jit.script(Weighted().eval())
    model = shapevm.accelerate(program, strategy="generic")
    with torch.no_grad():
        for n in range(1, MAX_VERSIONS + 4):
            scales = {f"name {i}": i + 0.5 for i in range(n)}
            args = ([torch.randn(2) for _ in range(n)], scales, f"name {n - 1}")
            assert_close(model(*args), program(*args))
        assert n_programs(model) == 1
    assert not warnings()


def test_containers_in_containers_share_a_program(warnings: Any) -> None:
    class Losses(nn.Module):
        def forward(
            self, state: tuple[list[Tensor], Tensor], targets: list[dict[str, Tensor]]
        ) -> tuple[Tensor, list[dict[str, Tensor]]]:
            parts, total = state
            for part in parts:
                total = total + part
            found: list[dict[str, Tensor]] = []
            for target in targets:
                total = total + target["boxes"].sum() * target["labels"].sum()
                found.append({"boxes": target["boxes"] * 2, "labels": target["labels"] + 1})
            return total, found

    program = torch.jit.script(Losses().eval())
    model = shapevm.accelerate(program, strategy="generic")
    with torch.no_grad():
        for n in range(1, MAX_VERSIONS + 4):
            targets = [{"boxes": torch.randn(i, 4), "labels": torch.arange(i)} for i in range(n)]
            args = (([torch.randn(2) for _ in range(n)], torch.zeros(2)), targets)
            (total, found), (wanted, others) = model(*args), program(*args)
            assert_close(total, wanted)
            assert len(found) == len(others) == n
            for one, other in zip(found, others, strict=True):
                assert_close(one, other)
        assert n_programs(model) == 1
    assert not warnings()


def test_lengths_that_a_program_keeps(warnings: Any) -> None:
    class Filled(nn.Module):
        def forward(self, x: Tensor, sizes: list[int]) -> Tensor:
            return x.expand(sizes)

    program = torch.jit.script(Filled().eval())
    model = shapevm.accelerate(program, strategy="generic")
    with torch.no_grad():
        for rank in range(1, MAX_VERSIONS + 3):
            x, sizes = torch.randn(1), [2] * rank
            assert_close(model(x, sizes), program(x, sizes))
        assert n_programs(model) == MAX_VERSIONS
    assert len(warnings()) == 1


def test_a_module_of_python() -> None:
    torch.manual_seed(0)
    net = Net().eval()
    model = shapevm.accelerate(net, strategy="generic")
    with torch.no_grad():
        for n in (2, 5):
            x = torch.randn(n, 4)
            assert_close(model(x), net(x))


def test_what_is_no_model() -> None:
    with pytest.raises(shapevm.ArgumentError, match="the model is an int; give a module or a function"):
        shapevm.accelerate(3)
