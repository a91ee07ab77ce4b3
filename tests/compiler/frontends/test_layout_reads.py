"""Questions of how tensors lie in memory: eager's answers, or a refusal."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from shapevm.compiler.frontends.export import export_model
from shapevm.compiler.frontends.layout_reads import inputs_asked
from torch import Tensor
from torch.utils._pytree import tree_leaves

import shapevm

from ...opinfo import cases as operators
from ..ops.test_torch import Function

Change = Callable[[Tensor], Tensor]
SHARES, EACH = 40, 2


def image() -> Tensor:
    """Return a channels-last image."""
    return torch.arange(100.0).reshape(2, 5, 2, 5).to(memory_format=torch.channels_last)


def rolled(x: Tensor) -> Tensor:
    return torch.roll(x, -1, 0)


QUESTIONS: dict[str, Callable[[Tensor], Any]] = {
    "returned": lambda x: (x + 1, x.stride()),
    "computed with": lambda x: x * x.stride(0) + x.stride(1),
    "branched on": lambda x: x + 1 if x.is_contiguous() else x * 2,
    "the order of the axes": lambda x: x.permute(*x.dim_order()),
    "after a change in place": lambda x: x.clone().add_(1) * x.add(1).mul_(2).stride(1),
}
FREE = (({0: torch.export.Dim.AUTO, 2: torch.export.Dim.AUTO},),)


@pytest.mark.parametrize("shapes", [None, FREE])
@pytest.mark.parametrize("ask", QUESTIONS)
def test_answers_that_only_tracing_gives_are_refused(ask: str, shapes: Any) -> None:
    with pytest.raises(shapevm.errors.UnsupportedOp, match=r"asks how a tensor lies in memory .* clone"):
        shapevm.compile(Function(lambda x: QUESTIONS[ask](rolled(x))), (image(),), dynamic_shapes=shapes)


@pytest.mark.parametrize("make", [rolled, torch.relu, lambda x: x.transpose(2, 3) @ x, lambda x: x[:, 1:]])
@pytest.mark.parametrize("ask", QUESTIONS)
def test_answers_for_rows(ask: str, make: Change) -> None:
    x = image().contiguous()
    with shapevm.compile(Function(lambda x: QUESTIONS[ask](make(x))), (x,), dynamic_shapes=FREE) as exe:
        for given in (x, torch.rand(3, 5, 4, 5)):
            torch.testing.assert_close(exe(given), QUESTIONS[ask](make(given)))


@pytest.mark.parametrize(
    "make", [lambda x: x, torch.relu, lambda x: x.transpose(1, 2), lambda x: x.mT.relu()]
)
def test_an_input_that_decides_an_answer_must_lie_in_rows(make: Change) -> None:
    x = torch.rand(2, 3, 4)
    other = x.transpose(1, 2).contiguous().transpose(1, 2)
    with shapevm.compile(Function(lambda x: x * make(x).stride(1)), (x,)) as exe:
        assert torch.equal(exe(x), x * make(x).stride(1))
        with pytest.raises(shapevm.errors.ArgumentError, match='"args.0".* contiguous copy'):
            exe(other)
    with pytest.raises(shapevm.errors.UnsupportedOp, match="asks how a tensor lies"):
        shapevm.compile(Function(lambda x: x * make(x).stride(1)), (other,))


def test_an_input_that_decides_nothing_is_free() -> None:
    x = torch.rand(3, 4)
    with shapevm.compile(Function(lambda x: x * (x @ x.T).stride(0)), (x,)) as exe:
        torch.testing.assert_close(exe(x.T.contiguous().T), x * 3)


def test_questions_of_programs_that_are_taken_apart() -> None:
    def ask(x: Tensor) -> Tensor:
        y = torch.nn.functional.channel_shuffle(x, 1).clone().squeeze_(0)
        return y * y.stride(0)

    x = image().contiguous()
    with shapevm.compile(Function(ask), (x,)) as exe:
        assert torch.equal(exe(x), ask(x))
    with pytest.raises(shapevm.errors.UnsupportedOp, match="asks how a tensor lies"):
        shapevm.compile(Function(ask), (image(),))


def lying_otherwise(x: Tensor) -> Iterator[Tensor]:
    """Yield a tensor in rows, with its first axis innermost, and an image with its channels innermost."""
    axes = tuple(reversed(range(x.ndim)))
    yield x.contiguous()
    yield x.permute(axes).contiguous().permute(axes)
    if x.ndim == 4:
        yield x.contiguous(memory_format=torch.channels_last)


def problems(call: operators.Call) -> Iterator[str]:
    """Yield the strides that the trace of an operator has, that count as certain, and that eager has not."""
    if any(x.layout != torch.strided for x in call.tensors):
        return
    laid = [list(lying_otherwise(x)) for x in call.tensors]
    for which in range(max(map(len, laid), default=0)):
        given = tuple(each[which % len(each)] for each in laid)

        def ask(*tensors: Tensor) -> Any:
            made = [x for x in tree_leaves(call(*tensors)) if isinstance(x, Tensor)]
            return [(x.stride(), x.is_contiguous()) for x in made if x.layout == torch.strided and x.numel()]

        try:
            with torch.no_grad():
                wanted = tree_leaves(ask(*(x.clone() for x in given)))
            program = export_model(Function(ask), given)
            inputs_asked(program)
        except Exception:  # what PyTorch does not run or trace, and refusals
            continue
        found = [
            leaf.arg.value for leaf in program.graph_signature.output_specs if hasattr(leaf.arg, "value")
        ]
        if found != wanted:
            yield f"{[x.stride() for x in given]}: {found} is {wanted} in eager"


@pytest.mark.drawn
@pytest.mark.parametrize("share", range(SHARES))
def test_strides_of_every_operator(share: int, pytestconfig: pytest.Config) -> None:
    drawn = random.Random(1000 * pytestconfig.getoption("seed") + share)
    infos = operators.database()
    bad = []
    for name in drawn.sample(sorted(infos), EACH):
        made = operators.samples(infos[name], "f32")
        for sample in drawn.sample(made, min(2, len(made))):
            bad += [f"{name}: {each}" for each in problems(operators.Call(infos[name].op, sample))]
    assert not bad, "\n".join(bad)


UNLIKE = (
    "copysign",
    "nn.functional.batch_norm",
    "nn.functional.max_unpool2d",
    "nn.functional.channel_shuffle",
)


@pytest.mark.parametrize("name", UNLIKE)
def test_operators_whose_strides_are_not_as_traced(name: str) -> None:
    info = operators.database()[name]
    for call in operators.calls(info, operators.samples(info, "f32"), 3):
        assert not list(problems(call))
