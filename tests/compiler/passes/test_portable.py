"""`bits="portable"`: the same program and the same bits on every target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from shapevm.jit.families.matmul.layouts import DIGITS_LAYOUT, PAIRS_LAYOUT
from shapevm.jit.llvm.target import TARGETS, runs_here
from shapevm.jit.math.table import BY_TARGET
from shapevm.jit.spec import bodies
from shapevm.jit.spec_reader import from_json
from torch import Tensor, nn
from torch.nn import functional as F

import shapevm

HOST_TARGETS = [name for name in TARGETS if runs_here(name)]
ROWS = ({0: torch.export.Dim("rows", min=1, max=400)},)


class Model(nn.Module):
    """What differs between targets as a rule."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = nn.Linear(96, 256), nn.Linear(256, 96)
        self.narrow, self.recurrent = nn.Linear(96, 64).bfloat16(), nn.GRU(32, 16, batch_first=True)
        self.scale = nn.Parameter(torch.randn(96))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        h = self.up(x * 4)
        y = self.down(F.gelu(h))
        return (
            F.layer_norm(y, (96,)), F.silu(h), h.tanh(), F.gelu(h, approximate="tanh"), h.sigmoid().log(),
            self.narrow(x.bfloat16()).float(), self.recurrent(x.reshape(-1, 3, 32))[0],
            (h * 1e12).to(torch.int32), h.half().tanh(), y.softmax(0), y * self.scale.exp(), y.std(0),
        )  # fmt: skip


def compiled(target: Any, bits: str = "portable", **options: Any) -> shapevm.Executable:
    given = shapevm.Options(target=target, bits=bits, **options)
    return shapevm.compile(
        Model().eval(), (torch.randn(5, 96),), dynamic_shapes=ROWS, options=given, strategy="generic"
    )


def specs(exe: shapevm.Executable) -> list[str]:
    return [kernel.spec for kernel in exe.program().kernels]


def layouts(exe: shapevm.Executable) -> set[str]:
    products = (getattr(from_json(text), "product", None) for text in specs(exe))
    return {product.b_layout for product in products if product is not None}


@pytest.mark.parametrize("weights", ["f32", "int8"])
def test_targets_have_the_same_program_and_bits(weights: str) -> None:
    x, results, programs = torch.randn(200, 96), {}, []
    for target in HOST_TARGETS:
        with compiled(target, weights=weights) as exe:
            results[target] = [np.asarray(y) for y in exe(x)]
            programs.append(specs(exe))
    assert all(program == programs[0] for program in programs)
    first, *others = results.values()
    for other in others:
        assert [a.tobytes() == b.tobytes() for a, b in zip(first, other, strict=True)] == [True] * len(first)


def test_nothing_depends_on_a_target() -> None:
    with compiled("x86-64-v4-amx", weights="int8") as exe, compiled("x86-64-v4-amx", "target") as usual:
        found = layouts(exe)
        used = {i.op for text in specs(exe) for body in bodies(from_json(text)) for i in body}
        assert PAIRS_LAYOUT not in found and DIGITS_LAYOUT not in found and PAIRS_LAYOUT in layouts(usual)
        assert not used & set(BY_TARGET) and set(BY_TARGET.values()) <= used
        targets = {o.target for kernel in exe.program().kernels for o in kernel.objects}
        assert targets <= {"x86-64-v4"}  # no kernel has code of AMX's or AVX512_BF16's own


def test_what_machines_compute_differently_is_no_constant() -> None:
    """`exp` of a weight is computed in each call; its negative is folded."""

    class Scales(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.randn(96))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.scale.exp() + (-self.scale)

    model, x = Scales().eval(), torch.randn(5, 96)
    ops = {}
    for bits in ("target", "portable"):
        with shapevm.compile(model, (x,), options=shapevm.Options(bits=bits)) as exe:
            torch.testing.assert_close(exe(x), model(x))
            ops[bits] = {i.op for text in specs(exe) for body in bodies(from_json(text)) for i in body}
    assert ops["portable"] - ops["target"] == {"exp"} and "neg" not in ops["portable"]


def test_what_pytorch_would_run_is_refused() -> None:
    with pytest.raises(shapevm.UnsupportedOp, match="linalg_inv"):
        model = torch.export.export(Inverse(), (torch.eye(3),))
        shapevm.compile(model, options=shapevm.Options(bits="portable"))


class Inverse(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.inv(x)
