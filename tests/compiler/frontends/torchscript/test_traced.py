"""Traced programs as packages write them, and their run-time sizes: equal to the trace at
several sizes, with nothing called in PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

import shapevm

from .programs import x

_OFFSETS = torch.arange(3.0)


class Bounded(torch.autograd.Function):
    """max(x * y, 0) + n, with a gradient of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, n: int) -> Tensor:
        ctx.save_for_backward(x, y)
        return torch.maximum(x * y, torch.zeros_like(x)) + n

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient, gradient, None


class Shifted(torch.autograd.Function):
    """Two results of rows and a list, one of them from a function within."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: list[int], flag: bool) -> tuple[Tensor, Tensor]:
        y = x * _OFFSETS + (weights[1] if flag else 0)
        y.add_(1)
        return y.reshape(-1, x.shape[1]), Bounded.apply(y, x, weights[0]).sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0], None, None


class RunningSum(torch.autograd.Function):
    """A loop over the length."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        sums = [x[0]]
        for i in range(1, len(x)):
            sums.append(sums[-1] + x[i])
        return torch.stack(sums)


def autograd_functions(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    shifted, total = Shifted.apply(rows.relu(), [3, 4], True)
    return shifted, total, Bounded.apply(rows, shifted, 2)


def transforms_of_a_length(signal: Tensor) -> tuple[Tensor, ...]:
    spectrum = torch.fft.rfft(signal, n=10, dim=1)
    back, along = torch.fft.irfft(spectrum, n=7, dim=1), torch.fft.hfft(signal, n=10, dim=1)
    parts = torch.fft.fft2(signal, s=(4, 6)), torch.fft.ifftn(signal, s=(-1, 9), dim=(1, 0))
    both = torch.fft.irfft2(signal, s=(5, 8), dim=(0, 1)), torch.fft.irfft(signal, dim=1, n=signal.size(1))
    return spectrum.abs(), back, along, *map(torch.view_as_real, parts), *both


def powers(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.linalg.vander(a.sum(), N=2), torch.linalg.vander(a), torch.linalg.vander(a[0], N=3)


def rows_from_a_tensor(a: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
    a = a * 1
    torch.narrow(a, 0, first, 2).add_(1)
    return a, torch.narrow(a, 1, first, 1)


def norms_that_learn(a: Tensor, mean: Tensor, var: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    mean, var = mean * 1, var * 1
    made = F.instance_norm(a, mean, var, weight, None, True, 0.25, 1e-3)
    return F.instance_norm(made, mean * 1, var * 1, weight), mean, var


def of_equal_sides(a: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    return (
        F.conv2d(a, weight, bias, padding="same", dilation=2),
        F.conv1d(a[:, :, 0], weight[:, :, 0], bias, padding="valid"),
    )


def greatest_of_windows(rows: Tensor, window: Tensor) -> Tensor:
    padded = F.pad(rows, [0, window.shape[0] - 1])
    made, n = padded[:, : rows.shape[1]], rows.shape[1]
    for i in range(1, 6):
        made = torch.maximum(made, padded[:, i : n + i])
    return made


def turned(images: Tensor, angles: Tensor) -> Tensor:
    cos, sin, zero = angles.cos(), angles.sin(), angles * 0
    matrices = torch.stack([cos, -sin, zero, sin, cos, zero], 1).reshape(-1, 2, 3)
    grid = F.affine_grid(matrices, [matrices.shape[0], 1, 4, 5], align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)


@torch.jit.script
def _of_all_but_the_first_axis(rows: Tensor) -> Tensor:
    axes: list[int] = torch.arange(1, len(rows.shape)).tolist()
    centred = rows - rows.mean(dim=axes, keepdim=True)
    return centred / torch.sqrt(torch.var(rows, dim=axes, keepdim=True, unbiased=False) + 1e-5)


def norm_of_all_but_the_first_axis(rows: Tensor) -> Tensor:
    return _of_all_but_the_first_axis(rows)


PROGRAMS: dict[str, tuple[Any, list[tuple[Any, ...]]]] = {
    "transforms of a length": (transforms_of_a_length, [(x(n, m, 3),) for n, m in ((5, 6), (1, 4), (8, 12))]),
    "norms that learn": (
        norms_that_learn,
        [(x(n, 3, m, 4), x(3), x(3).abs(), x(3)) for n, m in ((2, 5), (1, 1), (5, 3))],
    ),
    "convolutions by a mode": (
        of_equal_sides,
        [(x(n, 2, k, 7), x(m, 2, 3, 4), x(m)) for n, k, m in ((1, 5, 1), (3, 5, 2), (5, 8, 1), (0, 3, 3))],
    ),
    "windows of a free length": (
        greatest_of_windows,
        [(x(2, n), x(m)) for n, m in ((5, 6), (1, 6), (0, 7))],
    ),
    "samples of a grid": (turned, [(x(n, 2, m, 6), x(n)) for n, m in ((2, 5), (1, 3), (4, 1))]),
    "axes from a range": (
        norm_of_all_but_the_first_axis,
        [(x(n, 3, m),) for n, m in ((2, 5), (1, 1), (0, 2))],
    ),
    "roots of sorted rows": (
        lambda rows: rows / torch.sqrt(rows.sort(-1).values + rows),
        [(x(n, 3).abs(),) for n in (2, 1)],
    ),
    "powers": (powers, [(x(n, m),) for n, m in ((3, 4), (1, 2), (2, 7))]),
    "rows from a tensor": (
        rows_from_a_tensor,
        [(x(n, 5), torch.tensor(i)) for n, i in ((4, 1), (7, 0), (3, -2))],
    ),
    "autograd functions": (autograd_functions, [(x(n, 3),) for n in (2, 5, 1, 0)]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_traced(name: str) -> None:
    function, calls = PROGRAMS[name]
    with torch.no_grad():
        program = torch.jit.trace(function, calls[0])
        with shapevm.compile(program, args=calls[0], strategy="generic") as exe:
            assert "PyTorch" not in str(exe)
            for args in calls:
                assert_close(exe(*args), program(*args), rtol=1e-5, atol=1e-5, equal_nan=True)


class Joined(nn.Module):
    """A norm of features beside bands, whose number is known at run time."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(7)

    def forward(self, features: Tensor, n: int) -> Tensor:
        bands = torch.linspace(0, 1, n).expand(features.size(0), n)
        return self.norm(torch.cat([features, bands], -1))


def test_a_norm_of_a_size_that_only_a_call_tells() -> None:
    program = torch.jit.script(Joined().eval())
    with shapevm.compile(program, args=(x(2, 3), 4)) as exe:
        for width, n in ((3, 4), (2, 5), (7, 0)):
            assert_close(exe(x(5, width), n), program(x(5, width), n))
        with pytest.raises(shapevm.errors.GuardError, match=r"layer_norm: sizes .* and 7 must be equal"):
            exe(x(2, 3), 3)


@torch.jit.ignore
def _of_python(x):  # type: ignore[no-untyped-def]
    # type: (Tensor) -> Tensor
    return torch.from_numpy(x.numpy())


def test_a_function_that_is_left_to_python_is_named() -> None:
    def program(x: Tensor) -> Tensor:
        return _of_python(x) + 1

    with pytest.raises(shapevm.UnsupportedOp, match="calls the Python function _of_python, of which it does"):
        shapevm.compile(torch.jit.script(program), args=(x(3),))


def masked(rows: Tensor, other: Tensor, token: Tensor) -> Tensor:
    return (rows + other) * token


def test_sizes_that_broadcast_as_in_the_example_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    args = x(2, 3), x(3), x(1, 1)
    with caplog.at_level("INFO", "shapevm"), shapevm.compile(torch.jit.trace(masked, args), args=args) as exe:
        assert_close(exe(x(5, 7), x(7), x(1, 1)), masked(x(5, 7), x(7), x(1, 1)))
    (line,) = [each for each in caplog.messages if "broadcasting" in each]
    places = "axis 0 of other is axis 1 of rows, axis 0 of token is 1, axis 1 of token is 1"
    assert sorted(line.partition(": ")[2].split(", ")) == places.split(", ")


def rank_in_a_loop(rows: Tensor) -> Tensor:
    found, rank = rows.sum(0) if rows.size(0) > 3 else rows, 0
    for _ in range(rows.size(1)):
        rank = found.dim()
    return rows + rank


def test_a_rank_that_calls_decide_is_refused_in_plain_terms() -> None:
    with pytest.raises(shapevm.UnsupportedOp, match="give the tensor one rank and dtype first"):
        shapevm.compile(torch.jit.script(rank_in_a_loop), args=(x(3, 4),))


def test_loops_of_python_functions_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """PyTorch runs the function itself; a trace of it has as many steps as the example."""
    program = torch.jit.trace(RunningSum.apply, (x(4, 2),))
    with shapevm.compile(program, args=(x(4, 2),)) as exe:
        assert_close(exe(x(4, 3)), x(4, 3).cumsum(0))
        with pytest.raises(shapevm.Error, match="axis 0 has size 5; it must be 4"):
            exe(x(5, 2))
    assert caplog.messages == ["loops and branches of Python functions are as in the example: RunningSum"]


def test_batches_of_one_row_in_the_example_are_equal_in_calls() -> None:
    program = torch.jit.trace(torch.mul, (x(1, 3), x(1, 3)))
    with shapevm.compile(program, args=(x(1, 3), x(1, 3))) as exe:
        assert_close(exe(x(5, 3), x(5, 3)), x(5, 3) ** 2)


def test_rows_behind_the_last_are_refused() -> None:
    args = x(4, 5), torch.tensor(1)
    with shapevm.compile(torch.jit.trace(rows_from_a_tensor, args), args=args) as exe:
        for start in (3, -5):
            with pytest.raises(shapevm.Error):
                exe(x(4, 5), torch.tensor(start))


def test_axes_that_a_squeeze_keeps_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    args = x(4, 5), x(4, 3)
    program = torch.jit.trace(lambda a, b: (torch.corrcoef(a), b.squeeze(1)), args)
    with caplog.at_level("INFO", logger="shapevm"), shapevm.compile(program, args=args) as exe:
        assert "squeezing as in the example: axis 0 of a is not 1, axis 1 of b is not 1" in caplog.text
        with pytest.raises(shapevm.Error, match="must not be 1 in a call"):
            exe(x(4, 5), x(4, 1))


def test_halves_that_a_squeeze_drops_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    program = torch.jit.trace(lambda a: tuple(half.squeeze(1) for half in a.chunk(2, 1)), x(3, 2))
    with caplog.at_level("INFO", logger="shapevm"), shapevm.compile(program, args=(x(3, 2),)) as exe:
        assert "squeezing as in the example: floordiv(s1 + 1, 2) is 1" in caplog.text
        assert_close(exe(x(5, 2)), program(x(5, 2)))
        with pytest.raises(shapevm.Error, match="squeeze: axis 1 must have size 1"):
            exe(x(5, 4))


def test_a_trial_of_small_sizes_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    args = (x(4, 6),)
    program = torch.jit.trace(lambda a: torch.unsafe_chunk(a, 2), args)
    with shapevm.compile(program, args=args) as exe:
        assert_close(exe(x(6, 6)), program(x(6, 6)))
    assert "Traceback" not in capfd.readouterr().err


@torch.jit.script_if_tracing  # type: ignore[no-untyped-call]
def of_channels(signal: Tensor, weight: Tensor) -> Tensor:
    if signal.shape[1] == 1:
        return torch.conv1d(signal, weight)
    found = torch.conv1d(signal.reshape(-1, 1, signal.size(2)), weight)
    return found.view(signal.shape[:-1] + found.shape[-2:])


def test_a_size_that_decides_a_rank_is_free() -> None:
    """In the branch the size is a number; the result has one of two ranks."""
    weight = x(4, 1, 3)
    program = torch.jit.trace(lambda signal: of_channels(signal, weight) * 2, x(2, 1, 5))
    with shapevm.compile(program, args=(x(2, 1, 5),)) as exe:
        for shape in ((2, 1, 5), (3, 1, 6), (2, 3, 5)):
            torch.testing.assert_close(exe(x(*shape)), program(x(*shape)))


def split_again(images: Tensor) -> Tensor:
    n, rows, columns = images.size(0), images.size(1) // 2, images.size(2) // 2
    n *= rows  # in a trace, sizes are tensors, which this changes in place
    parts = images[:, : rows * 2, : columns * 2].reshape(n * columns, 4)
    return (
        images + parts.view(parts.size(0) // (rows * columns), rows, columns, 4).sum((1, 2, 3))[:, None, None]
    )


def test_a_size_divided_by_its_factors_is_known() -> None:
    program = torch.jit.trace(split_again, x(1, 4, 6))
    with shapevm.compile(program, args=(x(1, 4, 6),)) as exe:
        for shape in ((1, 4, 6), (3, 2, 4), (5, 5, 3)):
            torch.testing.assert_close(exe(x(*shape)), program(x(*shape)))
        with pytest.raises(shapevm.Error, match="the divisor of // is a size that is 0"):
            exe(x(1, 1, 4))


def contracted(signal: Tensor, weight: Tensor) -> Tensor:
    spectrum = torch.fft.rfft(signal)
    return torch.einsum("bim,io->bom", spectrum, torch.complex(weight, weight)).abs()


def test_letters_of_complex_operands_are_tied() -> None:
    args = x(2, 3, 6), x(3, 4)
    program = torch.jit.trace(contracted, args)
    with shapevm.compile(program, args=args) as exe:
        torch.testing.assert_close(exe(x(1, 3, 9), x(3, 4)), program(x(1, 3, 9), x(3, 4)))


def test_shapes_are_tensors() -> None:
    program = torch.jit.trace(lambda rows: torch._shape_as_tensor(rows) * 2, x(2, 3))
    with shapevm.compile(program, args=(x(2, 3),)) as exe:
        assert exe(x(4, 0)).tolist() == [8, 0]


def of_the_positive(vector: Tensor) -> Tensor:
    made = torch.zeros_like(vector)
    made[vector > 0] = (2 * vector[vector > 0]).squeeze()
    return made


@pytest.mark.parametrize("example", [[1.0, -1.0], [1.0, 2.0]])
def test_vectors_that_data_size_are_squeezed(example: list[float]) -> None:
    program = torch.jit.trace(of_the_positive, torch.tensor(example))
    with shapevm.compile(program, args=(torch.tensor(example),)) as exe:
        for values in ([1.0, -1.0, 3.0], [-1.0, 3.0], [-1.0], [3.0]):
            torch.testing.assert_close(exe(torch.tensor(values)), program(torch.tensor(values)))


def test_messages_have_no_names_of_sizes_that_data_decide() -> None:
    program = torch.jit.script(sum_of_the_positive)
    with (
        shapevm.compile(program, args=(x(3), x(3))) as exe,
        pytest.raises(shapevm.Error, match=r"add: sizes \(that data decide\) and \(that data decide\) must"),
    ):
        exe(torch.ones(5), torch.tensor([1.0, 1.0, -1.0]))


def sum_of_the_positive(one: Tensor, two: Tensor) -> Tensor:
    return one[one > 0] + two[two > 0]
