"""Whether a trace holds for its own example."""

import pytest
import sympy
import torch
from shapevm.compiler.frontends import export
from shapevm.compiler.frontends.narrowing import holds, is_broken, sizes_in
from shapevm.compiler.ir.dims import floordiv
from torch.export import Dim

AXES = {0: Dim.AUTO, 1: Dim.AUTO}


class Doubled(torch.nn.Module):
    def forward(self, x: torch.Tensor, more: dict[str, torch.Tensor]) -> torch.Tensor:
        return x * 2 + more["y"]


@pytest.mark.parametrize(
    ("guard", "wanted"),
    [
        ("1 < L['x'].size()[0]*max(1, (-3) + L['more']['y'].size()[1])", False),
        ("1 < L['x'].size()[0]*max(1, (-2) + L['more']['y'].size()[1])", True),
        ("L['x'].size()[1] != 4", False),
        (
            "(8 * L['x'].size()[0]) != 8 and L['x'].size()[1] == 4",
            True,
        ),  # the first excludes the size 1 alone
        ("1 < L['x'].size()[0]", True),
        ("L['x'].stride()[0] == 7", True),  # programs take any layout
        ("L['x'].color == 3", True),  # the import refuses it
    ],
)
def test_guards_are_read_at_the_example(guard: str, wanted: bool) -> None:
    args = (torch.randn(1, 4), {"y": torch.randn(1, 4)})
    shapes = {"x": AXES, "more": {"y": AXES}}
    program = export._Trace(Doubled(), args, {}, shapes).run()
    sizes = sizes_in(program, args, {})
    assert sizes is not None and len(sizes) == 2 and holds(program, sizes)
    program._guards_code = [guard]
    assert holds(program, sizes) == wanted


def test_constants_among_the_arguments_are_left_out() -> None:
    class Scaled(torch.nn.Module):
        def forward(self, none: None, k: int, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return k * x.sum() + y.sum()

    args = (None, 3, torch.randn(2, 5), torch.randn(7, 4))
    program = export._Trace(Scaled(), args, {}, (None, None, AXES, AXES)).run()
    sizes = sizes_in(program, args, {})
    assert sizes is not None
    for guard, wanted in (("L['x'].size()[0] == 2", True), ("L['y'].size()[0] == 2", False)):
        program._guards_code = [guard]
        assert holds(program, sizes) == wanted


def test_a_trace_that_fails_its_example_is_the_last_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here every trace in which sizes 0 and 1 are ordinary."""
    monkeypatch.setattr(export, "holds", lambda program, sizes: not export.is_alike(program))
    args = (torch.randn(3, 4), {"y": torch.randn(3, 4)})
    program = export.export_model(Doubled(), args, {}, {"x": AXES, "more": {"y": AXES}})
    assert not export.is_alike(program)
    monkeypatch.setattr(export, "holds", lambda program, sizes: False)
    assert export.is_alike(export.export_model(Doubled(), args, {}, {"x": AXES, "more": {"y": AXES}}))


@pytest.mark.parametrize(
    "condition, size, wanted",
    [
        ("Ne(n, 3)", 3, True), ("Ne(n, 3)", 4, False), ("Eq(n, u)", 3, False),
        ("Eq(floordiv(2, n), 1)", 0, True),
        ("Gt(Max(1, floordiv(2, n)), 1)", 0, True), ("Gt(Max(1, floordiv(2, n)), 1)", 1, False),
    ],
)  # fmt: skip
def test_a_condition_that_divides_by_zero_is_broken(condition: str, size: int, wanted: bool) -> None:
    n = sympy.Symbol("n", integer=True, nonnegative=True)
    read = sympy.sympify(condition, {"n": n, "floordiv": floordiv})
    assert is_broken(read, {n: size}) == wanted
