"""shapevm.compile on small models against eager: arguments, results and their structure."""

import collections
import dataclasses
import inspect

import numpy as np
import pytest
import torch
from torch.export import Dim

import shapevm

Point = collections.namedtuple("Point", "a b")


@dataclasses.dataclass
class Pair:
    left: torch.Tensor
    right: torch.Tensor


torch.export.register_dataclass(Pair)


def assert_same(ours, theirs, path="result"):
    """Same structure, classes, dtypes, shapes, values."""
    if isinstance(theirs, torch.Tensor):
        assert type(ours) is torch.Tensor, path
        torch.testing.assert_close(ours, theirs.detach(), msg=lambda text: f"{path}: {text}")
        return
    assert type(ours) is type(theirs), path
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs), path
        pairs = [(key, ours[key], theirs[key]) for key in theirs]
    elif isinstance(theirs, (list, tuple)):
        pairs = list(zip(range(len(theirs)), ours, theirs, strict=True))
    elif dataclasses.is_dataclass(theirs):
        pairs = [(f.name, getattr(ours, f.name), getattr(theirs, f.name)) for f in dataclasses.fields(theirs)]
    else:
        assert ours == theirs, path
        return
    for key, a, b in pairs:
        assert_same(a, b, f"{path}.{key}")


def X(*shape):
    return torch.randn(*(shape or (3,)), generator=torch.Generator().manual_seed(sum(shape)))


RESULTS = {
    "one tensor": lambda self, x: x + 1,
    "tuple": lambda self, x: (x + 1, x * 2),
    "tuple of one": lambda self, x: (x + 1,),
    "list": lambda self, x: [x + 1, x - 1],
    "empty tuple": lambda self, x: (),
    "dict": lambda self, x: {"q": x + 1, "p": [x * 2, (x - 1,)]},
    "dict of int keys": lambda self, x: {7: x + 1, 0: x - 1},
    "named tuple": lambda self, x: Point(x + 1, {"b": x}),
    "dataclass": lambda self, x: Pair(x + 1, x * 3),
    "nested": lambda self, x: [Point(Pair(x, x * 2), (x + 1,)), {"a": {"b": [x - 1]}}],
    "constants": lambda self, x: (x + 1, None, 3, 1.5, "word", True),
    "sizes": lambda self, x: (x.shape[0], x.shape[0] * 2 + 1, x),
    "the input": lambda self, x: x,
    "one tensor twice": lambda self, x: (lambda y: (y, y, {"again": y}))(x + 1),
    "views": lambda self, x: (lambda y: (y, y.unsqueeze(0), y[:1], y.expand(2, -1), x[:1], x.reshape(-1, 1)))(
        x + 1
    ),
    "a constant": lambda self, x: (torch.ones(3), torch.arange(4), x.new_zeros(x.shape)),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results(build, name):
    exe = build(RESULTS[name], X(3), dynamic_shapes={"x": {0: Dim("n", min=1, max=4096)}})
    for n in (3, 1, 17, 3):
        for _ in range(3):
            assert_same(exe(X(n)), RESULTS[name](None, X(n)))


def twos(self, d, items, pairs, point, pair):
    return d["a"] + d["b"] * items[0] + items[1] + pairs[0][0] * point.a - point.b + pair.left * pair.right


ARGUMENTS = {
    "positional": (lambda self, x, y: x - 2 * y, (X(), X(4)[:3]), {}),
    "by name": (lambda self, x, y: x - 2 * y, (), {"x": X(), "y": X(4)[:3]}),
    "by name, other order": (lambda self, x, y: x - 2 * y, (), {"y": X(4)[:3], "x": X()}),
    "both": (lambda self, x, y: x - 2 * y, (X(),), {"y": X(4)[:3]}),
    "name only": (lambda self, x, *, y: x - 2 * y, (X(),), {"y": X(4)[:3]}),
    "default": (lambda self, x, m=None, k=2: x * k if m is None else x * m, (X(),), {}),
    "default, given": (lambda self, x, m=None, k=2: x * k if m is None else x * m, (X(),), {"m": X(3)}),
    "None": (lambda self, x, m, y: x + y if m is None else x * m, (X(), None, X(3)), {}),
    "nested": (
        twos,
        ({"b": X(), "a": X(4)[:3]}, [X(), X(5)[:3]], ((X(),),), Point(X(), X()), Pair(X(), X())),
        {},
    ),
    "unused": (lambda self, x, y: x + 1, (X(), X(5)), {}),
    "varargs": (lambda self, *xs: xs[0] - xs[1] * 2, (X(), X()), {}),
    "varnames": (lambda self, **xs: xs["a"] - xs["b"] * 2, (), {"a": X(), "b": X(4)[:3]}),
    "int": (lambda self, x, k: x * k, (X(), 3), {}),
    "float": (lambda self, x, k: x * k, (X(), 3.5), {}),
    "bool": (lambda self, x, k: x * 2 if k else x, (X(), True), {}),
    "str": (lambda self, x, k: x * 2 if k == "double" else x, (X(), "double"), {}),
    "nothing": (lambda self: {"a": torch.arange(4) * 2}, (), {}),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments(build, name):
    forward, args, kwargs = ARGUMENTS[name]
    exe = build(forward, *args, kwargs=kwargs)
    expected = forward(None, *args, **kwargs)
    for _ in range(3):
        got = exe(*args, **kwargs)
        if name == "nothing":  # no array says whose library the caller uses
            got = {"a": torch.as_tensor(got["a"])}
        assert_same(got, expected)


def test_positional_arguments_may_be_named(build):
    exe = build(ARGUMENTS["positional"][0], X(), X())
    assert_same(exe(y=X(5)[:3], x=X()), X() - 2 * X(5)[:3])
    assert_same(exe(X(), y=X(5)[:3]), X() - 2 * X(5)[:3])


def test_None_for_what_was_not_given(build):
    exe = build(ARGUMENTS["default"][0], X())
    assert_same(exe(X(), None), X() * 2)
    assert_same(exe(X(), m=None), X() * 2)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "argument x is missing; the program takes x, m, k"),
        ((X(), X(), 2, X()), {}, "4 positional arguments are given; the program takes x, m, k"),
        ((X(),), {"x": X()}, "argument x is given twice"),
        ((X(), X(), 3), {}, "k is 3; the program was compiled for 2"),
        ((X(), X(), 2.0), {}, "k is 2.0; the program was compiled for 2"),
        ((X(), X(), True), {}, "k is True; the program was compiled for 2"),
        ((X(), X(), X()), {}, "k is a Tensor; the program was compiled for 2"),
        ((X(), X(), 2), {"z": 1}, "argument z is unknown; the program takes x, m, k"),
        ((X(), [X()], 2), {}, 'input "m" is a list; the program takes a tensor'),
        ((X(), None, 2), {}, 'input "m" is None; the program takes a tensor'),
        ((X(), 1.5, 2), {}, 'input "m" is a float; the program takes a tensor'),
        ((X(), "text", 2), {}, 'input "m" is a str; the program takes a tensor'),
        ((X(), object(), 2), {}, 'input "m" is of type object; pass an array, int'),
    ],
)
def test_wrong_arguments(build, args, kwargs, message):
    exe = build(lambda self, x, m, k: x * m * k, X(), X(), 2)
    with pytest.raises((ValueError, TypeError)) as caught:
        exe(*args, **kwargs)
    assert isinstance(caught.value, shapevm.Error)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_wrong_nesting(build):
    exe = build(lambda self, x: x["a"] + x["b"][1], {"a": X(), "b": [X(), X()]})
    for value, message in [
        ({"a": X()}, "x has the keys a; they must be a, b"),
        ({"a": X(), "b": [X()]}, r"x\['b'\] is a list of 1; it must be a list of 2"),
        ({"a": X(), "b": X()}, r"x\['b'\] is a Tensor; it must be a list of 2"),
        (X(), "x is a Tensor; it must have a, b"),
        ({"a": X(), "b": [X(), X(4)]}, 'input "x.b.1": axis 0 has size 4; it must be 3'),
    ]:
        with pytest.raises(shapevm.Error, match=message):
            exe(value)


def test_classes_made_inside_of_functions_come_back(build):
    Local = collections.namedtuple("Local", "u v")
    assert_same(build(lambda self, x: Local(x, x + 1), X())(X()), Local(X(), X() + 1))


def test_a_scalar_input_is_a_size(build):
    exe = build(lambda self, x, k: x * k, X(), 3, dynamic_shapes={"x": None, "k": Dim.DYNAMIC})
    for k in (0, 1, 5, 100):
        assert_same(exe(X(), k), X() * k)
    with pytest.raises(shapevm.Error, match='input "k" is a float; the program takes an int'):
        exe(X(), 2.5)


class Stateful(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(X(3))
        self.register_buffer("offset", X(5)[:3])

    def forward(self, x):
        return self.weight, self.offset, x + self.weight, self.weight[1:]


def test_parameters_as_results_are_copies(build):
    model = Stateful()
    exe = build(model, X())
    for _ in range(3):
        got = exe(X())
        assert_same(got, model(X()))
        for result in got:
            result.fill_(7)
    assert_same(exe(X()), model(X()))


def test_exported_programs_and_files(tmp_path, module):
    model = module(lambda self, x: (x * 2).sum(-1))
    n = Dim("n", min=1, max=64)
    exported = torch.export.export(model, (X(4, 5),), dynamic_shapes={"x": {0: n}})
    torch.export.save(exported, tmp_path / "model.pt2")
    for source in (exported, tmp_path / "model.pt2", str(tmp_path / "model.pt2")):
        with shapevm.compile(source) as exe:
            assert_same(exe(X(7, 5)), (X(7, 5) * 2).sum(-1))


def test_the_model_is_left_as_it_was(build):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5))
    model.train()
    exe = build(model, X(2, 4))
    assert model.training and model[1].training
    with torch.no_grad():
        assert_same(exe(X(2, 4)), model[0](X(2, 4)))  # compiled in evaluation mode


# What cannot be compiled ----------------------------------------------------------------------------


class Unsupported(torch.nn.Module):
    def forward(self, x):
        y = torch.linalg.qr(x)[0]
        return torch.linalg.inv(x) + y


def test_every_unsupported_operator_is_named_with_its_line():
    line = inspect.getsourcelines(Unsupported.forward)[1]
    with pytest.raises(shapevm.UnsupportedOp) as caught:
        shapevm.compile(Unsupported(), (X(3, 3),), options=shapevm.Options(fallback="error"))
    message = str(caught.value)
    for operator, offset in (("aten.linalg_qr.default", 1), ("aten.linalg_inv_ex.default", 2)):
        assert f"{operator} (test_api.py:{line + offset})" in message
    assert "\n" not in message


def test_in_place_work_on_own_values_is_fine(build):
    exe = build(lambda self, x: x.clone().add_(1).mul_(2), X())
    assert_same(exe(X()), (X() + 1) * 2)


def test_numbers_read_from_tensors(build):
    exe = build(lambda self, x, i: x * i.item(), X(), torch.tensor(4))
    for i in (4, 0, 9):
        assert_same(exe(X(), torch.tensor(i)), X() * i)
    exe = build(lambda self, n: torch.zeros(n.sum().item()) + 1, torch.tensor([1, 2]))
    for pair in ([1, 2], [0, 0], [5, 60]):
        assert_same(exe(torch.tensor(pair)), torch.ones(sum(pair)))
    with pytest.raises(shapevm.Error, match="at least 0"):
        exe(torch.tensor([-1, 0]))


def test_complex_numbers_are_refused(module):
    with pytest.raises(shapevm.DtypeError, match="complex64"):
        shapevm.compile(module(lambda self, x: x * 2), (torch.zeros(3, dtype=torch.complex64),))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "fast"}, "strategy 'fast' is unknown; known are auto, jit, bucket, generic"),
        ({"target": "z80"}, "target 'z80' is unknown; known are x86-64-v4"),
        ({"sizes": [{"m": 3}]}, "sizes m=3 must give a value for each of n"),
        ({"sizes": [{"n": 3}, {}]}, "must give a value for each of n"),
        ({"sizes": [{"n": 65}]}, "sizes n=65: n is 65; it must be at least 2 and at most 64"),
        ({"sizes": [{"n": 1}]}, "sizes n=1: n is 1; it must be at least 2"),
    ],
)
def test_wrong_options(module, options, message):
    strategy = options.pop("strategy", None)
    with pytest.raises(shapevm.ArgumentError) as caught:
        shapevm.compile(
            module(lambda self, x: x + 1),
            (X(),),
            dynamic_shapes={"x": {0: Dim("n", min=2, max=64)}},
            strategy=strategy,
            options=shapevm.Options(**options),
        )
    assert message in str(caught.value)


def test_progress_is_told(module):
    told = []
    shapevm.compile(module(lambda self, x: x + 1), (X(),), progress=lambda *step: told.append(step)).close()
    stages = [stage for stage, _, _ in told]
    assert stages[:2] == ["export", "import"] and {"lower", "kernels"} <= set(stages)
    assert all(0 <= done <= total for _, done, total in told)


@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_results_are_of_the_callers_library(build, library):
    exe = build(lambda self, x, y: (x + y, {"m": x.sum()}), X(2, 3), X(3))
    give = (lambda t: t) if library == "torch" else (lambda t: t.numpy())
    kind = torch.Tensor if library == "torch" else np.ndarray
    for _ in range(3):
        total, rest = exe(give(X(2, 3)), give(X(3)))
        assert type(total) is kind and type(rest["m"]) is kind and rest["m"].shape == ()
        np.testing.assert_array_equal(np.asarray(total), (X(2, 3) + X(3)).numpy())


def test_limits_are_arguments_and_settings(tmp_path):
    rows = torch.export.Dim("rows", min=1, max=1 << 20)
    path = tmp_path / "m.svm"
    shapevm.compile(
        torch.nn.Linear(8, 8), (torch.randn(3, 8),), dynamic_shapes=({0: rows},), strategy="generic"
    ).save(path)
    x = torch.randn(4000, 8)
    expected = shapevm.load(path)(x)
    for limit in ({"memory": 10_000}, {"fuel": 1}):
        with pytest.raises(shapevm.LimitExceeded):
            shapevm.load(path, **limit)(x)
    with shapevm.settings.scope(memory_mib=1, fuel=1):
        with pytest.raises(shapevm.LimitExceeded):
            shapevm.load(path)(x)
        assert torch.equal(shapevm.load(path, fuel=0)(x), expected)
        with pytest.raises(shapevm.LimitExceeded, match="memory"):
            shapevm.load(path, fuel=0)(torch.randn(100_000, 8))
    exe = shapevm.load(path, timeout=30, memory=1 << 20, fuel=10_000)
    assert torch.equal(exe(x), expected) and torch.equal(exe.using(timeout=20)(x), expected)
    for limit in ({"timeout": 0.0001}, {"timeout": 1e9}):
        assert shapevm.load(path, **limit) is not None
    nan = float("nan")
    deep = {"call_depth": -1}, {"call_depth": (1 << 20) + 1}, {"nesting": 1001}, {"nesting": True}
    for wrong in ({"timeout": -1}, {"timeout": "1"}, {"timeout": nan}, {"fuel": -1}, {"memory": 1.5}, *deep):
        with pytest.raises(shapevm.ArgumentError, match=next(iter(wrong))):
            shapevm.load(path, **wrong)
