"""In-place operators by renaming, only where all views of the memory are known, and operators without a
converter in parts: with eager's values, and without tracing the program anew."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from shapevm.compiler.frontends import exported_program
from shapevm.compiler.frontends.export import export_model
from shapevm.compiler.frontends.exported_program import decomposition_table
from shapevm.compiler.frontends.functional import functional
from shapevm.compiler.frontends.fx_nodes import is_operator, source_of
from shapevm.compiler.frontends.parts import taken_apart

import shapevm

BATCH = torch.export.Dim("batch", min=1, max=9)


class Of(torch.nn.Module):
    """A function of x [batch, 4] as a module, with layers for it."""

    def __init__(self, function: Callable) -> None:
        super().__init__()
        self.function, self.linear = function, torch.nn.Linear(4, 4)
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, x)


def residual(m: Of, x: torch.Tensor) -> torch.Tensor:
    y = m.norm(m.linear(x))
    first = y.relu_()
    second = first.add_(x)
    return y * 2 + first - second.mul_(3)


def view_after(m: Of, x: torch.Tensor) -> torch.Tensor:
    y = m.linear(x)
    y.mul_(x)
    return y.t() + y[0, 0]


def view_before(m: Of, x: torch.Tensor) -> torch.Tensor:
    y = m.linear(x)
    row = y[0]
    y.mul_(2)
    return row + y


def dropout_of_view(m: Of, x: torch.Tensor) -> torch.Tensor:
    y = m.linear(x)
    return torch.nn.functional.dropout(y.flatten(), 0.5, training=False, inplace=True).sum() + y


def through_view(m: Of, x: torch.Tensor) -> torch.Tensor:
    y = m.linear(x)
    y[0].mul_(2)
    return y


def parts(m: Of, x: torch.Tensor) -> torch.Tensor:
    """Windows are numbered as Swin's are."""
    y = m.linear(x)
    left = y[:, 1]
    y[:, :2].copy_(x[:, 1:3])
    y[:, 1::2] = 3
    y[0, 0] = y[-1, 3]
    return torch.cat([y.relu(), left[:, None]], 1)


def axes(m: Of, x: torch.Tensor) -> torch.Tensor:
    y = m.linear(x)
    line = y.t().view(2, 2, -1).permute(2, 0, 1).unsqueeze(1)
    line[:, 0, 1].add_(x[:, :2])
    line.squeeze(1).transpose(1, 2)[:, 0].mul_(2)
    y.diagonal()[:1].zero_()
    return y + line.flatten(1)


def comparison(m: Of, x: torch.Tensor) -> torch.Tensor:
    return m.linear(x).gt_(x) + x.clone().fill_(x[0, 1])


def read_later(m: Of, x: torch.Tensor) -> torch.Tensor:
    y = m.linear(x)
    first, second = y.split(2, 1)
    highest, _ = y.max(1)
    highest.mul_(2)
    wide = y[0].expand(2, 4)
    same = torch.nn.functional.dropout(y, 0.5, training=False).to(torch.float32)
    same[:, :1] = 7
    same[x > 0] = 0
    return first + second + highest.sum() + wide.sum(0)[:2] + y.to(torch.float64).mul_(2)[:, :2]


def through_several(m: Of, x: torch.Tensor) -> torch.Tensor:
    y = m.linear(x)
    y.split(2, 1)[0].mul_(2)
    return y


def own_axes(m: Of, x: torch.Tensor) -> torch.Tensor:
    return m.linear(x).unsqueeze_(1).mul_(2).squeeze_(1)


def own_axes_of_a_view(m: Of, x: torch.Tensor) -> torch.Tensor:
    y = m.linear(x)
    row = y[0]
    y.t_()
    row.mul_(2)
    return y


def own_input(m: Of, x: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return x + 1


def other_dtype(m: Of, x: torch.Tensor) -> torch.Tensor:
    return m.linear(x).mul_(x.double())


def training(m: Of, x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.batch_norm(x, m.norm.running_mean, m.norm.running_var, training=True)


def without_converters(m: Of, x: torch.Tensor) -> torch.Tensor:
    y = torch.nn.functional.pad(m.linear(x), (1, 2, 1, 0), value=2.0)
    low, high = torch.aminmax(x, dim=1)
    z = (x[:, :, None] * torch.diff(x, dim=1)[:, None]).triu_(1)
    return (y.t() @ y).sum() + z.sum((1, 2)) + low - high


def unknown(m: Of, x: torch.Tensor) -> torch.Tensor:
    return m.linear(x).reshape(-1, 2, 2).relu_().flatten(1)


def plain(m: Of, x: torch.Tensor) -> torch.Tensor:
    return torch.min(m.norm(m.linear(x)), x)


def exported(function: Callable) -> torch.export.ExportedProgram:
    torch.manual_seed(0)
    return export_model(Of(function), (torch.randn(3, 4),), None, {"x": {0: BATCH}})


RENAMED = [
    residual, view_after, dropout_of_view, view_before, through_view, read_later, parts, axes,
    comparison, own_axes, other_dtype,
]  # fmt: skip
LEFT = [own_input, training, unknown, through_several, own_axes_of_a_view]


@pytest.mark.parametrize("function", RENAMED)
def test_what_is_changed_is_renamed(function: Callable) -> None:
    program = exported(function)
    before = str(program.graph)
    renamed = functional(program)
    assert renamed is not None and renamed is not program and str(program.graph) == before
    assert not any(node.target._schema.is_mutable for node in renamed.graph.nodes if is_operator(node))


def test_what_changes_nothing_stays() -> None:
    program = exported(plain)
    assert functional(program) is program and taken_apart(program, decomposition_table) is program


@pytest.mark.parametrize("function", LEFT)
def test_what_may_be_shared_is_left_to_torch(function: Callable) -> None:
    assert functional(exported(function)) is None


def test_operators_without_a_converter_are_taken_apart() -> None:
    program = exported(without_converters)
    assert functional(program) is None
    apart = functional(taken_apart(program, decomposition_table))
    assert apart is not None
    assert "test_functional.py" in {source_of(n).split(":")[0] for n in apart.graph.nodes if is_operator(n)}


@pytest.mark.parametrize("function", [*RENAMED, plain, without_converters, unknown, through_several])
def test_values_are_eagers(function: Callable) -> None:
    program = exported(function)
    with shapevm.compile(program, dynamic_shapes={"x": {0: BATCH}}, strategy="generic") as exe:
        for batch in (1, 4):
            x = torch.randn(batch, 4)
            with torch.no_grad():
                torch.testing.assert_close(exe(x), program.module(check_guards=False)(x))
        assert not exe.machine.externs


def test_vmap_in_a_program() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.vmap(lambda a, b: (a * b).sum() + a)(x, y).relu_()  # torch.export refuses func.grad

    n = torch.export.Dim("n", min=1, max=9)
    model, args = Model(), (torch.randn(4, 3), torch.randn(4, 3))
    exe = shapevm.compile(
        model, args, dynamic_shapes=({0: n}, {0: n}), options=shapevm.Options(fallback="error")
    )
    for size in (4, 1, 9):
        args = torch.randn(size, 3), torch.randn(size, 3)
        torch.testing.assert_close(exe(*args), model(*args))


@pytest.mark.parametrize("known", [True, False])
def test_elements_of_an_unbind_are_changed_at_all_sizes(
    known: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """`known`: without an operator that only torch takes apart. torch.compile has the same rule."""

    def change(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        first, *rest = y.unbind(-2)
        first.add_(0.1).remainder_(1.0)
        return y if known else torch.special.entr(y.abs()).logcumsumexp(0), first, *rest

    free = dict.fromkeys(range(3), torch.export.Dim.AUTO)
    program = torch.export.export(Calls(change), (torch.randn(4, 3, 5),), dynamic_shapes=((free,),))
    with shapevm.compile(program) as exe:
        compiled = torch.compile(change, backend="shapevm", dynamic=True)
        for sizes in ((4, 3, 5), (2, 3, 7)):
            x = torch.randn(sizes)
            torch.testing.assert_close(exe(x), change(x))
            torch.testing.assert_close(compiled(x), change(x))
    assert "PyTorch fixes it" not in caplog.text


def test_sizes_that_torch_fixes_are_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.unbind(1)[0].add_(1)
        return y

    monkeypatch.setattr(exported_program, "with_selects", lambda module: module)
    free = dict.fromkeys(range(2), torch.export.Dim.AUTO)
    with shapevm.compile(Calls(change), (torch.randn(4, 3),), dynamic_shapes=((free,),)):
        assert "axis 0 of args_0 is always 4: PyTorch fixes it" in caplog.text


def test_changed_windows_are_refused() -> None:
    def change(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.unfold(0, 2, 2)[0].add_(1)
        return y

    with pytest.raises(shapevm.UnsupportedOp, match="unfold: its windows are changed in place"):
        shapevm.compile(Calls(change), (torch.randn(5),))


class Calls(torch.nn.Module):
    """A module that calls a function."""

    def __init__(self, function: Callable) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


@pytest.mark.parametrize(
    "alias",
    [
        lambda x: torch.einsum("ij->ji", x),
        lambda x: torch.einsum("ii->i", x),
        lambda x: torch.nn.functional.dropout(x, 0.5, training=False),
        lambda x: x.type_as(x),
    ],
)
def test_results_that_are_the_argument_are_changed_with_it(alias: Callable) -> None:
    """The operators' schemas do not say that the results share the argument's memory."""

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            alias(x).add_(1)
            return x * 1

    ours, eagers = torch.arange(9.0).reshape(3, 3), torch.arange(9.0).reshape(3, 3)
    with shapevm.compile(Model(), (torch.ones(3, 3),), strategy="generic") as exe:
        assert torch.equal(exe(ours), Model()(eagers)) and torch.equal(ours, eagers)


def test_composites_that_may_return_their_argument_are_few() -> None:
    """A converter of another one is a reason to add it to those whose results are new, if they are."""
    plain, changing = (set(map(str, decomposition_table(is_changing))) for is_changing in (False, True))
    assert changing - plain == {"aten.einsum.default", "aten.type_as.default"}
