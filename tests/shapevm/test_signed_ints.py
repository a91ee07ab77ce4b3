"""Int inputs that are no sizes: they may be negative, wherever the model allows it."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from shapevm.vm.errors import GuardError, ShapeError
from shapevm.vm.layout import INT_MIN
from torch.export import Dim

import shapevm
from shapevm.reports.inspect import inspect_text

MODELS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "add": lambda x, k: x + k,
    "mul": lambda x, k: x * k,
    "integers": lambda x, k: x.long() + k,
    "floor": lambda x, k: x + k // 2,
    "floor of negated": lambda x, k: x + (-k) // 3,
    "mod": lambda x, k: x + k % 3,
    "mod of a negative": lambda x, k: x + k % -3,
    "power": lambda x, k: x * k**3,
    "true division": lambda x, k: x + k / 2,
    "extrema": lambda x, k: x + max(k, 2) * min(k, -1) + abs(k),
    "less": lambda x, k: torch.where(x < k, x, 0.0),
    "clamp": lambda x, k: x.clamp(min=k),
    "fill": lambda x, k: x.masked_fill(x > 0, k),
    "roll": lambda x, k: x.roll(k),
    "arange": lambda x, k: x[0] + torch.arange(k, k + 4),
    "arange f32": lambda x, k: x[0] + torch.arange(k, k + 3, dtype=torch.float32),
    "arange f16": lambda x, k: torch.arange(k, k + 3, dtype=torch.float16),
    "tril": lambda x, k: x.expand(5, 5).tril(k),
    "full": lambda x, k: torch.full((2,), k) + x[0],
    "length": lambda x, k: torch.zeros(abs(k)) + x[0],
}
VALUES = (4, -4, 3, -3, 7, -7, 10**6, -(10**6))
SMALL = (4, -4, 3, -3, 7, -7)


class Model(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor, Any], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, k: int) -> torch.Tensor:
        return self.function(x, k)


X = torch.tensor([2.5, -1.0, 3.75, 0.0, -6.5])


def exported(function: Callable[[torch.Tensor, Any], torch.Tensor], k: int, dim: Any = Dim.DYNAMIC) -> Any:
    return torch.export.export(Model(function), (X, k), dynamic_shapes=({}, dim))


def assert_same(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("example", [5, -5])
@pytest.mark.parametrize("name", MODELS)
def test_an_exported_program_takes_both_signs(name: str, example: int) -> None:
    program = shapevm.compile(exported(MODELS[name], example))
    for k in SMALL if name == "length" else VALUES:
        assert_same(program(X, k), MODELS[name](X, k))


def test_arange_up_to_a_number_takes_any_start_below_it() -> None:
    program = shapevm.compile(exported(lambda x, k: x[0] + torch.arange(k, 5), -4))
    for k in (3, 1, 0, -1, -4, -9):
        assert_same(program(X, k), X[0] + torch.arange(k, 5))
    with pytest.raises(ShapeError, match='input "k" is 4, so s0 is 4; it must be at most 3'):
        program(X, 4)


@pytest.mark.parametrize("name", MODELS)
def test_torch_compile_takes_both_signs(name: str, caplog: pytest.LogCaptureFixture) -> None:
    torch._dynamo.reset()
    model = torch.compile(MODELS[name], backend="shapevm", dynamic=True, options={"fallback": "error"})
    with caplog.at_level(logging.WARNING, logger="shapevm"):
        for k in SMALL if name == "length" else VALUES:
            assert_same(model(X, k), MODELS[name](X, k))
    assert "runs in PyTorch" not in caplog.text


@pytest.mark.parametrize(
    ("function", "taken", "refused", "words"),
    [
        (lambda x, k: x + 1 if k > -3 else x, (-2, 0, 1, 5), (-3, -100), "it must be at least -2"),
        (lambda x, k: x + 1 if k > 0 else x, (1, 2), (0, -1), "it must be at least 1"),
        (lambda x, k: x + 1 if k != 0 else x, (-1, 1, 2), (0,), "the model needs"),
        (lambda x, k: x[0] + torch.zeros(k + 7), (-4, 0, 5), (-7, -8), "the model needs"),
        (lambda x, k: x[0] + torch.zeros(k), (2, 3), (-1, -5), "it must be at least 0"),
    ],
)
def test_what_tracing_assumed_of_an_int_is_its_bound(
    function: Callable[[torch.Tensor, Any], torch.Tensor],
    taken: tuple[int, ...],
    refused: tuple[int, ...],
    words: str,
) -> None:
    program = shapevm.compile(exported(function, 4))
    for k in taken:
        assert_same(program(X, k), function(X, k))
    for k in refused:
        with pytest.raises(shapevm.Error, match=words):
            program(X, k)


def test_the_ends_of_int64() -> None:
    program = shapevm.compile(exported(lambda x, k: x.long() + k, 4))
    for k in (2**63 - 1, INT_MIN):
        assert_same(program(torch.zeros(5), k), torch.full((5,), k))
    with pytest.raises(ShapeError, match=f'input "k" is {-(2**63)}, .*it must be at least {INT_MIN}'):
        program(X, -(2**63))


def test_ints_without_a_bound_are_shown_as_such(tmp_path: Path) -> None:
    program = shapevm.compile(exported(MODELS["mul"], 4))
    program.save(tmp_path / "m.svm")
    assert "size s0: any to any" in inspect_text(tmp_path / "m.svm")
    done = subprocess.run(
        [shapevm.runner_path(), tmp_path / "m.svm", "--list"], capture_output=True, text=True
    )
    assert "symbol  s0: any integer\n" in done.stdout


@pytest.mark.parametrize("name", ["mul", "arange", "floor", "roll", "mod of a negative"])
def test_saved_programs_and_the_runner_take_both_signs(name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.svm"
    shapevm.compile(exported(MODELS[name], 4)).save(path)
    program = shapevm.load(path)
    np.save(tmp_path / "x.npy", X.numpy())
    for k in (-3, 4):
        expected = MODELS[name](X, k)
        assert_same(program(X, k), expected)
        command = [shapevm.runner_path(), path, "--input", f"x={tmp_path / 'x.npy'}", "--input", f"k={k}"]
        subprocess.run([*command, "--output", tmp_path / "y.npy"], check=True, capture_output=True)
        np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected.numpy())


def test_the_runner_says_what_an_int_must_be(tmp_path: Path) -> None:
    path = tmp_path / "m.svm"
    shapevm.compile(exported(lambda x, k: x + 1 if k > -3 else x, 4)).save(path)
    np.save(tmp_path / "x.npy", X.numpy())
    command = [shapevm.runner_path(), path, "--input", f"x={tmp_path / 'x.npy'}", "--input", "k=-3"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 4
    assert 'input "k" is -3, so s0 is -3; it must be at least -2' in done.stderr


def test_a_truncated_float_of_a_signed_int_is_what_tracing_assumed() -> None:
    with shapevm.compile(exported(lambda x, k: x + int(k * 0.5), 4)) as exe:
        torch.testing.assert_close(exe(X, 5), X + 2)
        for k in (1, -5):
            with pytest.raises(shapevm.errors.GuardError, match=r"math.trunc\(0.5 \*.*== 2; here s0 is -?\d"):
                exe(X, k)


# Values read from tensors, and positions that may count from the end ---------------------------------

#: Of a matrix and an int, with values in range for each.
POSITIONED: dict[str, tuple[Callable[[torch.Tensor, Any], Any], tuple[int, ...]]] = {
    "scale": (lambda x, n: x * n, (2, 0, -7, 1)),
    "floor": (lambda x, n: x + n // 2 - n % 3, (2, 0, -7, 1)),
    "select": (lambda x, n: x[n] + 1, (2, 0, -1, -4, 3)),
    "from": (lambda x, n: x[n:] * 2, (2, 0, 4, 9, -1, -4, -9)),
    "up to": (lambda x, n: x[:n] * 2, (2, 0, 4, 9, -1, -4, -9)),
    "narrow": (lambda x, n: x.narrow(0, n, 2) * 2, (2, 0, 1, -2, -4)),
}
MATRIX = torch.arange(12.0).reshape(4, 3)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8])
@pytest.mark.parametrize("name", POSITIONED)
def test_a_value_read_from_a_tensor_may_be_negative(name: str, dtype: torch.dtype) -> None:
    function, values = POSITIONED[name]
    model = Model(lambda x, t: function(x, t.item()))
    with shapevm.compile(
        model, (MATRIX, torch.tensor(2, dtype=dtype)), options=shapevm.Options(fallback="error")
    ) as exe:
        for n in values:
            assert_same(exe(MATRIX, torch.tensor(n, dtype=dtype)), function(MATRIX, n))


@pytest.mark.parametrize("name", ["scale", "floor"])  # PyTorch makes the sign of a position a guard
def test_an_int_input_takes_what_a_tensor_takes(name: str) -> None:
    function, values = POSITIONED[name]
    program = torch.export.export(Model(function), (MATRIX, 2), dynamic_shapes=({}, Dim.DYNAMIC))
    with shapevm.compile(program) as exe:
        for n in values:
            assert_same(exe(MATRIX, n), function(MATRIX, n))


def test_positions_out_of_range_and_sizes_below_0_are_refused() -> None:
    def made(function: Callable[[torch.Tensor, Any], Any]) -> shapevm.Executable:
        return shapevm.compile(Model(lambda x, t: function(x, t.item())), (MATRIX, torch.tensor(2)))

    with made(lambda x, n: x[n] + 1) as exe:
        for n in (4, -5, -7):
            with pytest.raises(GuardError, match="select: index int_0 must be at least -4 and less than 4"):
                exe(MATRIX, torch.tensor(n))
    message = "u0, a value read from a tensor, must be at least 0"
    with made(lambda x, n: torch.zeros(n) + x[0, 0]) as exe, pytest.raises(GuardError, match=message):
        exe(MATRIX, torch.tensor(-1))

    def limited(x: torch.Tensor, n: int) -> torch.Tensor:
        torch._check(n >= -5)
        torch._check(n <= 5)
        return x + n

    with made(limited) as exe:
        assert_same(exe(MATRIX, torch.tensor(-5)), MATRIX - 5)
        with pytest.raises(GuardError, match="int_0, .* must be at least -5 and at most 5"):
            exe(MATRIX, torch.tensor(-6))


def test_narrow_counts_its_start_from_the_end() -> None:
    with shapevm.compile(Model(lambda x, _: x.narrow(0, -2, 2) * 2), (MATRIX, 0)) as exe:
        assert_same(exe(MATRIX, 0), MATRIX[2:] * 2)
