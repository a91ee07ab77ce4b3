"""The options of a compilation: one dataclass for Python, the command line and torch.compile."""

import dataclasses
import re
from dataclasses import fields
from pathlib import Path

import click
import pytest
import torch
from shapevm.compiler.lower.weights import _CONVERSIONS
from shapevm.jit.llvm import target
from shapevm.vm.errors import ArgumentError

import shapevm
from shapevm.__main__ import main
from shapevm.build.options import FIXED_IN_GRAPHS, BackendOptions, Options, default_of, row_of
from shapevm.cli.flags import with_flags
from shapevm.pytorch import dynamo

USAGE = Path(__file__).parents[3] / "docs" / "usage.md"
NAMES = [known.name for known in fields(Options)]


def flags() -> dict[str, click.Option]:
    return {p.name: p for p in main.commands["compile"].params if isinstance(p, click.Option)}


@pytest.mark.parametrize("name", NAMES)
def test_every_option_is_a_flag_with_its_help(name):
    known = next(f for f in fields(Options) if f.name == name)
    flag, row = flags()[name], row_of(known)
    assert flag.opts == [f"--{name.replace('_', '-')}"] and flag.help.startswith(row.meaning)
    assert (set(flag.type.choices) | {None}) == {None, *row.choices} if row.choices else True
    assert flag.multiple == (row.parse is not None or row.is_many)


def test_there_are_no_other_flags():
    assert flags().keys() - set(NAMES) == {"output", "quiet", "as_json", "inputs", "cache_tokens", "cache"}


@pytest.mark.parametrize("kind", [Options, BackendOptions])
def test_the_docstring_has_every_option_with_type_default_and_meaning(kind):
    text = " ".join(kind.__doc__.split())
    for known in fields(kind):
        assert f"{known.name}: {known.type} = {default_of(known)!r} {row_of(known).meaning}." in text


def test_the_usage_page_has_a_row_for_every_option():
    table = USAGE.read_text().partition("| field of `shapevm.Options` |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.M) == NAMES


def test_the_choices_are_what_the_stages_know():
    choices = {known.name: row_of(known).choices for known in fields(Options)}
    assert set(choices["weights"]) == {"f32", "int8", "int4", *_CONVERSIONS} - {"i8"}
    assert set(choices["target"]) == {None, *target.TARGETS}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"targt": None}, "option 'targt' is unknown; did you mean target?"),
        ({"jit": "sync"}, "option 'jit' is unknown; known are sizes, buckets, target, fallback"),
        ({"target": "z80"}, "target 'z80' is unknown; known are x86-64-v4-amx, x86-64-v4-bf16"),
        ({"weights": "int3"}, "weights 'int3' is unknown; known are f32, bf16, f16"),
        ({"fallback": None}, "fallback None is unknown; known are torch, error"),
        ({"random": ["torch"]}, "random ['torch'] is unknown; known are native, torch"),
        ({"accurate": 1}, "accurate is 1; it must be True or False"),
        ({"sizes": {"n": 3}}, "sizes is {'n': 3}; it must be a list with the values of all symbols"),
        ({"sizes": [{"n": 3.5}]}, "sizes is [{'n': 3.5}]; it must be a list"),
        ({"sizes": "n=3"}, "sizes is 'n=3'; it must be a list"),
        ({"buckets": {"n": 3}}, "buckets is {'n': 3}; it must be a mapping from sizes' names to lists"),
        ({"buckets": [16]}, "buckets is [16]; it must be a mapping"),
    ],
)
def test_wrong_options_are_one_sentence(given, message):
    with pytest.raises(ArgumentError) as caught:
        Options(**given)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


def test_options_do_not_change():
    options = Options(weights="bf16")
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.weights = "f16"
    assert dataclasses.replace(options, accurate=True) == Options(weights="bf16", accurate=True)
    assert repr(options).startswith("Options(sizes=(), buckets={}, target=None, fallback='torch'")


def test_what_is_no_options_is_refused():
    for wrong in ({"weights": "bf16"}, "bf16"):
        with pytest.raises(ArgumentError, match=f"options is a {type(wrong).__name__}; it must be a shapevm"):
            shapevm.compile(torch.nn.ReLU(), (torch.ones(3),), options=wrong)


def test_flags_change_what_the_model_asks_for():
    asked = Options(weights="bf16", accurate=True, sizes=[{"n": 3}])
    nothing = {name: () if row_of(f).parse else None for f in fields(Options) for name in [f.name]}
    assert with_flags(asked, nothing) == asked
    given = {"accurate": False, "fallback": "error", "sizes": ("n=4", "n=5"), "buckets": ("n=8,max9",)}
    changed = with_flags(asked, {**nothing, **given})
    wanted = {"sizes": [{"n": 4}, {"n": 5}], "buckets": {"n": ["8", "max9"]}, "accurate": False}
    assert changed == dataclasses.replace(asked, fallback="error", **wanted)


def test_the_backend_takes_the_same_names():
    assert [f.name for f in fields(BackendOptions)] == [*NAMES[:-2], "strategy", "freeze"]  # no bits, no pack
    free = {
        name: default_of(f)
        for f in fields(Options)
        for name in [f.name]
        if name not in {*FIXED_IN_GRAPHS, "bits", "pack"}
    }
    assert dynamo._options(free) == BackendOptions()
    for name, value in {"sizes": [{"n": 1}], "buckets": {"n": [1]}, "random": "native"}.items():
        with pytest.raises(ArgumentError, match=f"^{name} .* is not available under torch.compile: "):
            dynamo._options({name: value})
    with pytest.raises(ArgumentError, match="option 'freze' is unknown; did you mean freeze?"):
        dynamo._options({"freze": False})


def test_the_backend_rounds_weights_and_refuses_operators():
    torch._dynamo.reset()
    model, x = torch.nn.Linear(40, 200), torch.randn(5, 40)
    rounded = torch.nn.functional.linear(x, model.weight.bfloat16().float(), model.bias)
    with torch.no_grad():
        compiled = torch.compile(model, backend=dynamo.backend, options={"weights": "bf16"})
        torch.testing.assert_close(compiled(x), rounded, rtol=1e-5, atol=1e-5)
        inverse = torch.compile(torch.linalg.inv, backend=dynamo.backend, options={"fallback": "error"})
        with pytest.raises(Exception, match="linalg_inv_ex") as caught:
            inverse(torch.eye(3))
    chain = [caught.value, caught.value.__cause__, getattr(caught.value, "inner_exception", None)]
    assert any(isinstance(error, shapevm.UnsupportedOp) for error in chain)
    torch._dynamo.reset()


def test_equal_bits_on_all_targets_exclude_what_some_targets_have():
    for other in ({"precision": "bf16"}, {"precision": "bf16x6"}, {"random": "torch"}):
        ((name, value),) = other.items()
        with pytest.raises(ArgumentError, match=f"^{name} is '{value}', but bits is 'portable': "):
            Options(bits="portable", **other)
    assert Options(bits="portable").allowed_fallback == "error" != Options().allowed_fallback
    with pytest.raises(ArgumentError, match="option 'bits' is unknown"):
        dynamo._options({"bits": "portable"})
