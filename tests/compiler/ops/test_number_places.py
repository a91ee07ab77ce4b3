"""Every argument of every operator of PyTorch that is a number, given an element of a tensor: an operand, or
refused by one sentence. The operators and their arguments come from PyTorch's operator database."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves, tree_map

import shapevm
from shapevm import Options

from ...opinfo import cases as operators

SHARES, EACH, SAMPLES = 60, 3, 2
NATIVE = Options(fallback="error")
#: Types of a schema's arguments that are numbers. PyTorch itself traces constants only for `float`.
NUMBERS = ("number", "Optional[number]", "float", "Optional[float]")


@dataclass(frozen=True)
class Place:
    """One argument of one call of an operator."""

    overload: Any
    given: dict[str, Any]
    name: str

    def __str__(self) -> str:
        return f"{self.overload}, {self.name} = {self.given[self.name]}"


class Called(torch.fx.Interpreter):
    """Runs a traced call and notes the operators that it calls, with their arguments by name."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module)
        self.calls: list[tuple[Any, dict[str, Any]]] = []

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Note one call and run it."""
        if isinstance(target, torch._ops.OpOverload) and not target._schema.is_mutable:
            arguments = target._schema.arguments
            given = {each.name: each.default_value for each in arguments}
            given |= dict(zip((each.name for each in arguments), args, strict=False)) | dict(kwargs)
            self.calls.append((target, tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, given)))
        return super().call_function(target, args, kwargs)


class Numbered(torch.nn.Module):
    """The call of a place with an element of a tensor as the number."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place
        leaves = tree_leaves(place.given)
        self.tensors = [x for x in leaves if isinstance(x, Tensor)]

    def forward(self, numbers: Tensor, *tensors: Tensor) -> Any:
        """Call the operator."""
        left = iter(tensors)
        given = tree_map(lambda x: next(left) if isinstance(x, Tensor) else x, self.place.given)
        given[self.place.name] = numbers[0].item()
        arguments = self.place.overload._schema.arguments
        args = [given[each.name] for each in arguments if not each.kwarg_only]
        return self.place.overload(*args, **{each.name: given[each.name] for each in arguments[len(args) :]})


def places(info: Any, drawn: random.Random) -> Iterator[Place]:
    """Yield the places of some samples of an operator, each once."""
    seen = set()
    for dtype in ("f32", "i64"):
        made = operators.samples(info, dtype) if operators.DTYPES[dtype] in info.dtypes else []
        for sample in drawn.sample(made, min(SAMPLES, len(made))):
            call = operators.Call(info.op, sample)
            try:
                called = Called(make_fx(call, pre_dispatch=True)(*(x.clone() for x in call.tensors)))
                called.run(*(x.clone() for x in call.tensors))
            except Exception:  # what PyTorch does not trace
                continue
            for overload, given in called.calls:
                for each in overload._schema.arguments:
                    is_number = str(each.type) in NUMBERS and type(given[each.name]) in (int, float)
                    if is_number and (overload, each.name) not in seen:
                        seen.add((overload, each.name))
                        yield Place(overload, given, each.name)


def problem(place: Place, number: float) -> str:
    """Return what is wrong where a place gets such numbers, "" where it is right or refused in a sentence."""
    model = Numbered(place)
    tensors = model.tensors

    def run(function: Any, given: float) -> Any:
        torch.manual_seed(operators.SEED)
        return function(numbers.new_tensor([given]), *(x.clone() for x in tensors))

    numbers = torch.tensor([number], dtype=torch.float64 if isinstance(number, float) else torch.int64)
    try:
        wanted = {given: run(model, given) for given in (number, number * 2)}
    except Exception:  # no number for eager
        return ""
    try:
        exe = shapevm.compile(model, (numbers, *tensors), options=NATIVE, strategy="generic")
    except (shapevm.UnsupportedOp, shapevm.ShapeError, shapevm.DtypeError) as error:
        return "" if not isinstance(error, AssertionError) and len(str(error)) > 20 else repr(error)
    with exe:
        for given, expected in wanted.items():
            try:
                torch.testing.assert_close(
                    run(exe, given), expected, rtol=1e-4, atol=1e-4, equal_nan=True, check_stride=False
                )
            except AssertionError as error:
                return str(error)
    return ""


def problems(info: Any, drawn: random.Random) -> list[str]:
    """Return what is wrong in the places of an operator, with a float and with an int."""
    found = []
    for place in places(info, drawn):
        for number in (float(place.given[place.name]), int(place.given[place.name])):
            found += [f"{place}: {text}"] if (text := problem(place, number)) else []
    return found


@pytest.mark.drawn
@pytest.mark.parametrize("share", range(SHARES))
def test_numbers_of_every_operator(share: int, pytestconfig: pytest.Config) -> None:
    drawn = random.Random(1000 * pytestconfig.getoption("seed") + share)
    infos = operators.database()
    names = [name for name in infos if not name.startswith(("sparse", "empty", "new_empty"))]
    assert not [text for name in drawn.sample(names, EACH) for text in problems(infos[name], drawn)]


@pytest.mark.parametrize("name", ["nn.functional.elu", "lerp", "add", "nn.functional.layer_norm"])
def test_numbers_of(name: str) -> None:
    assert not problems(operators.database()[name], random.Random(3))


def test_an_argument_that_torch_takes_as_a_constant_only_is_named() -> None:
    x, numbers = torch.rand(2, 3), torch.tensor([0.5], dtype=torch.float64)
    model = Numbered(Place(torch.ops.aten.logit.default, {"self": x, "eps": 0.1}, "eps"))
    with pytest.raises(shapevm.UnsupportedOp, match=r"aten::logit: the argument eps is a number .* constant"):
        shapevm.compile(model, (numbers, x))
