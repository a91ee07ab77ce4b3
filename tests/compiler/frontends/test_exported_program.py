"""Importing exported programs: names, structure, sizes, contract, errors."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from shapevm.compiler.frontends.export import export_model
from shapevm.compiler.frontends.exported_program import import_program
from shapevm.compiler.frontends.importer import find_converter, known_overloads, register_converter
from shapevm.compiler.ir.errors import GuardError, ShapeError, UnsupportedOp
from shapevm.compiler.ir.graph import Graph
from shapevm.compiler.ir.text import format_graph, parse
from shapevm.compiler.ops import build
from shapevm.compiler.reference import run
from shapevm.compiler.verify import verify
from torch.export import Dim
from torch.utils._pytree import tree_map

import shapevm
from shapevm.calls.pytree import read_signature, read_structure


def module(forward: Any) -> torch.nn.Module:
    """Return a module with this forward (self first)."""
    return type("Model", (torch.nn.Module,), {"forward": forward})()


def compiled(
    forward: Any, args: tuple[Any, ...], shapes: Any = None, kwargs: dict[str, Any] | None = None
) -> Graph:
    graph = import_program(export_model(module(forward), args, kwargs, shapes), dynamic_shapes=shapes)
    verify(graph, "imported")
    return graph


def call(graph: Graph, *args: Any, **kwargs: Any) -> Any:
    leaves = read_signature(graph.structure["inputs"]).flatten(args, kwargs)
    leaves = [leaf.numpy() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    return read_structure(graph.structure["outputs"]).unflatten(run(graph, leaves))


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


@dataclass
class Result:
    value: torch.Tensor
    rest: Any = None


X = torch.arange(12.0).reshape(4, 3)


def test_nested_inputs_and_outputs() -> None:
    def forward(
        self: Any, x: torch.Tensor, more: dict[str, Any], scale: Any = None, *, flag: Any = None
    ) -> Any:
        return {"sum": x + more["b"][0], "parts": (more["c"] * 2, None, 3, [x])}

    graph = compiled(forward, (X, {"b": [X + 1], "c": X[0]}), None, {"flag": None})
    assert graph.inputs == ["x", "more.b.0", "more.c"]
    assert graph.outputs == ["sum", "parts.0", "parts.3.0"]
    result = call(graph, X, more={"b": [X], "c": X[1]})
    np.testing.assert_array_equal(result["sum"], (X + X).numpy())
    assert result["parts"][1:3] == (None, 3)
    np.testing.assert_array_equal(result["parts"][3][0], X.numpy())


def test_named_tuples() -> None:
    graph = compiled(lambda self, x: Pair(x + 1, x * 2), (X,))
    assert graph.outputs == ["first", "second"]
    result = call(graph, X)
    assert type(result) is Pair
    np.testing.assert_array_equal(result.second, (X * 2).numpy())


def test_dataclasses() -> None:
    torch.export.register_dataclass(Result)
    graph = compiled(lambda self, x: Result(x + 1), (X,))
    assert graph.outputs[0] == "value"
    result = call(graph, X)
    assert type(result) is Result and result.rest is None
    np.testing.assert_array_equal(result.value, (X + 1).numpy())


def test_parameters_keep_their_names() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    graph = import_program(export_model(model, (X,)))
    constants = [node.attrs["name"] for node in graph.nodes() if node.op == "constant"]
    assert constants == ["0.weight", "0.bias"]


def test_tied_parameters_are_one_constant() -> None:
    model = torch.nn.Module()
    model.a = torch.nn.Linear(3, 3)
    model.b = model.a
    model.forward = lambda x: model.b(model.a(x))
    graph = import_program(export_model(model, (X,)))
    assert sum(node.op == "constant" for node in graph.nodes()) == 2


def test_bf16_parameters_are_bits() -> None:
    model = torch.nn.Linear(3, 2).bfloat16()
    x = X.bfloat16()
    graph = import_program(export_model(model, (x,)))
    (actual,) = run(graph, [x.view(torch.uint16).numpy()])
    expected = model(x).detach().float().numpy()
    np.testing.assert_allclose((actual.astype(np.uint32) << 16).view(np.float32), expected, rtol=0.02)


# Sizes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dim", "low", "high"),
    [
        (Dim("n"), 0, None),
        (Dim("n", min=1, max=9), 1, 9),
        (Dim("n", min=0, max=9), 0, 9),
        (Dim("n", min=4), 4, None),
    ],
)
def test_ranges(dim: Any, low: int, high: int | None) -> None:
    graph = compiled(lambda self, x: x + 1, (X,), {"x": {0: dim}})
    assert (graph.symbols["n"].min, graph.symbols["n"].max) == (low, high)
    assert str(graph.body.params[0].type) == "f32[n, 3]"


def test_symbols_without_names_are_numbered() -> None:
    graph = compiled(lambda self, x: x + 1, (X,), {"x": {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}})
    assert str(graph.body.params[0].type) == "f32[s0, s1]"
    assert graph.symbols["s0"].min == 0


def test_divisible_sizes() -> None:
    half = Dim("half", max=50)
    graph = compiled(lambda self, x: x.reshape(-1, 2, 3).sum(1), (X,), {"x": {0: 2 * half}})
    assert str(graph.body.params[0].type) == "f32[2*half, 3]"
    np.testing.assert_array_equal(call(graph, X), X.reshape(-1, 2, 3).sum(1).numpy())
    with pytest.raises(ShapeError, match="must be 2"):
        call(graph, X[:3])


def test_size_arithmetic() -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        n = x.shape[0]
        return x[: n // 2], x[: min(n, 3)], torch.arange(n % 3), x.new_zeros(max(n, 2) * 2 + 1), n * n - 1

    graph = compiled(forward, (X,), {"x": {0: Dim("n", max=50)}})
    for n in (0, 1, 2, 3, 4, 7):
        x = torch.randn(n, 3)
        expected = forward(None, x)
        actual = call(graph, x)
        for ours, theirs in zip(actual[:4], expected[:4], strict=True):
            np.testing.assert_array_equal(ours, theirs.numpy())
        assert actual[4] == expected[4]


def test_slices_narrow_the_contract() -> None:
    graph = compiled(lambda self, x, y: x[:2] + y, (X, X[:2]), {"x": {0: Dim.DYNAMIC}, "y": {}})
    assert graph.symbols["s0"].min == 2
    with pytest.raises(ShapeError, match="size s0 is 1; it must be in 2"):
        call(graph, X[:1], X[:2])


def test_equal_sizes_are_one_symbol() -> None:
    graph = compiled(lambda self, x, y: x + y, (X, X), {"x": {0: Dim.AUTO}, "y": {0: Dim.AUTO}})
    assert [str(p.type) for p in graph.body.params] == ["f32[s0, 3]", "f32[s0, 3]"]
    with pytest.raises(ShapeError, match="input y: dimension 0 is 3; it must be s0 = 4"):
        call(graph, X, X[:3])


def test_sizes_read_from_tensors() -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        k = x.sum().to(torch.int64).item()
        torch._check(k >= 0)
        torch._check(k <= 10)
        return torch.arange(k) * 2

    graph = compiled(forward, (torch.ones(4),))
    assert "u0" not in graph.symbols
    np.testing.assert_array_equal(call(graph, torch.ones(4)), [0, 2, 4, 6])
    assert call(graph, torch.zeros(4)).shape == (0,)
    with pytest.raises(GuardError, match="at most 10"):
        call(graph, torch.full((4,), 3.0))


class Assumes(torch.nn.Module):
    """Reads numbers from a tensor, of which `check` holds."""

    def __init__(self, check: Any) -> None:
        super().__init__()
        self.check = check

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, Any]:
        n, m = x.tolist()
        torch._check(self.check(n, m, y.shape[0]))
        return y + n, m


@pytest.mark.parametrize(
    ("check", "right", "wrong", "message"),
    [
        (lambda n, m, size: n == 3, (3, 1), (4, 1), "must be 3"),
        (lambda n, m, size: n == size, (2, 1), (3, 1), "must be s0; it is 3; here s0 is 2"),
        (lambda n, m, size: n == 2 * size, (4, 1), (5, 1), "must be 2\\*s0"),
        (lambda n, m, size: n == m, (5, 5), (5, 4), "Eq"),
        (lambda n, m, size: m, (True, True), (True, False), "must be True"),
        (lambda n, m, size: torch.sym_not(m), (True, False), (True, True), "Ne"),
    ],
)
def test_what_is_assumed_of_values_read_from_tensors_is_checked(
    check: Any, right: tuple[int, int], wrong: tuple[int, int], message: str
) -> None:
    model, y = Assumes(check), torch.ones(2)
    exe = shapevm.compile(
        model,
        (torch.tensor(right), y),
        dynamic_shapes=({}, {0: Dim.AUTO}),
        options=shapevm.Options(fallback="error"),
    )
    found, m = exe(torch.tensor(right), y)
    assert torch.equal(found, y + right[0]) and m == right[1] and type(m) is type(right[1])
    with pytest.raises(GuardError, match=message):
        exe(torch.tensor(wrong), y)


def test_truth_values_read_from_tensors() -> None:
    class Truth(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> bool:
            return x.any().item()

    exe = shapevm.compile(Truth(), (torch.ones(3),), options=shapevm.Options(fallback="error"))
    assert exe(torch.tensor([0.0, 2.0, 0.0])) is True and exe(torch.zeros(3)) is False


def test_an_empty_maximum_is_refused() -> None:
    graph = compiled(lambda self, x: x.amax(0), (X,), {"x": {0: Dim("n", max=9)}})
    np.testing.assert_array_equal(call(graph, X), X.amax(0).numpy())
    with pytest.raises(
        GuardError, match="max: the axis that it reduces is empty; it needs at least 1 element"
    ):
        call(graph, X[:0])
    graph = compiled(lambda self, x: x.amax(0), (X,), {"x": {0: Dim("n", min=1, max=9)}})
    assert not any(node.op == "guard" for node in graph.nodes())


def test_integer_inputs() -> None:
    graph = compiled(lambda self, x, n: x + n, (X, 3), {"x": {}, "n": Dim.DYNAMIC})
    np.testing.assert_array_equal(call(graph, X, 7), (X + 7).numpy())


def test_graph_survives_text() -> None:
    graph = compiled(lambda self, x: (x.softmax(-1), x[: x.shape[0] // 2]), (X,), {"x": {0: Dim("n", max=9)}})
    assert format_graph(parse(format_graph(graph))) == format_graph(graph)


# Errors -------------------------------------------------------------------------------------------


def test_all_missing_operators_are_named_at_once() -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        return torch.linalg.qr(x), torch.linalg.svdvals(x)

    with pytest.raises(UnsupportedOp) as caught:
        compiled(forward, (X,))
    text = str(caught.value)
    assert text.startswith("the program uses 2 operators that cannot be compiled: ")
    assert "aten.linalg_qr.default (test_exported_program.py:" in text and "aten._linalg_svd.default" in text


def test_nearest_known_names() -> None:
    @torch.library.custom_op("shapevm_test::softmax", mutates_args=())
    def softmax(x: torch.Tensor) -> torch.Tensor:
        return x.softmax(-1)

    softmax.register_fake(torch.empty_like)
    with pytest.raises(UnsupportedOp, match=r"shapevm_test\.softmax\.default"):
        compiled(lambda self, x: torch.ops.shapevm_test.softmax(x), (X,))


def test_registered_converters() -> None:
    @torch.library.custom_op("shapevm_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x + x

    twice.register_fake(torch.empty_like)
    register_converter("shapevm_test.twice.default", lambda b, x: build.pointwise(b, "mul", x, 2))
    graph = compiled(lambda self, x: torch.ops.shapevm_test.twice(x), (X,))
    np.testing.assert_array_equal(call(graph, X), (X + X).numpy())
    assert "shapevm_test.twice.default" in known_overloads()
    with pytest.raises(ValueError, match=r"namespace\.name\.overload"):
        register_converter("twice", lambda b, x: x)


def test_state_is_inputs_and_outputs_behind_those_of_the_user() -> None:
    model = torch.nn.Module()
    model.register_buffer("count", torch.zeros(3))

    def forward(x: torch.Tensor) -> torch.Tensor:
        model.count.add_(1)
        x.mul_(2)
        return x + model.count

    model.forward = forward
    graph = import_program(export_model(model, (X.clone(),)))
    verify(graph, "imported")
    assert graph.inputs == ["x", "state.count"]
    assert graph.outputs == ["output", "changed.x", "state.count"]
    assert (graph.structure["state"], graph.structure["changed"]) == (["count"], ["x"])
    np.testing.assert_array_equal(graph.state["state.count"][0], np.zeros(3))
    y, changed, count = run(graph, [X.numpy(), np.full(3, 4, "f4")])
    np.testing.assert_array_equal(y, X.numpy() * 2 + 5)
    np.testing.assert_array_equal(changed, X.numpy() * 2)
    np.testing.assert_array_equal(count, np.full(3, 5, "f4"))


def test_unknown_overload() -> None:
    assert find_converter("aten.no_such.default") is None


def test_a_size_that_is_always_one_is_that_number() -> None:
    auto = {0: Dim.AUTO, 1: Dim.AUTO}
    graph = compiled(lambda self, x, y: torch.fmod(x, y), (X[:, :1] + 5, X + 1), {"x": auto, "y": dict(auto)})
    x, y = (str(param.type) for param in graph.body.params)
    assert x == "f32[s0, 1]" and y == "f32[s0, s2]" and set(graph.symbols) == {"s0", "s2"}
    assert np.array_equal(call(graph, X[:2, :1] + 5, X[:2] + 1), torch.fmod(X[:2, :1] + 5, X[:2] + 1))
    with pytest.raises(ShapeError, match="dimension 1 is 3; it must be 1"):
        call(graph, X, X)


def test_an_axis_of_size_1_is_squeezed_at_the_example() -> None:
    """The result's rank depends on the size, which is then fixed, where the caller leaves that open."""
    x = torch.arange(15.0).reshape(5, 1, 3)
    auto = (dict.fromkeys(range(3), Dim.AUTO),)
    for squeeze in (lambda self, x: x.squeeze(), lambda self, x: torch.squeeze_copy(x, 1)):
        graph = compiled(squeeze, (x,), auto)
        for given in (x, x[:2], x[:, :, :2].contiguous()):
            np.testing.assert_array_equal(call(graph, given), squeeze(None, given))
    named = compiled(lambda self, x: x.squeeze(1), (x,), ({1: Dim("n", min=1, max=9)},))
    with pytest.raises(GuardError, match="axis 1, of size n, must not be 1 in a call"):
        call(named, x)


def test_squeezes_of_numbers() -> None:
    """Axes 0 and -1 of a number may be named."""
    graph = compiled(lambda self, x: (x.squeeze(0), x.squeeze(-1), x.squeeze()), (X[0, 0],))
    assert [float(y) for y in call(graph, X[1, 1])] == [float(X[1, 1])] * 3


@pytest.mark.parametrize("mode", ("nearest", "linear"))
def test_a_size_that_is_multiplied_by_a_float_gets_a_bound(mode: str) -> None:
    """So that its product is a quotient of integers: 1.7 s is 17 s // 10 as f64 computes it up to 2**20."""

    class Resize(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.interpolate(x, scale_factor=1.7, mode=mode)

    model = Resize()
    sizes = ({2: Dim("n", min=1)},)
    exe = shapevm.compile(
        model, (torch.randn(2, 3, 5),), dynamic_shapes=sizes, options=shapevm.Options(fallback="error")
    )
    for size in (1, 4, 5, 10, 30, 1000):
        x = torch.randn(2, 3, size)
        torch.testing.assert_close(exe(x), model(x))
    with pytest.raises(shapevm.Error, match="1048576"):
        exe(torch.zeros(2, 3, 2**20 + 1))


def test_as_strided_of_a_part_of_storage_starts_at_the_part() -> None:
    part = torch.arange(20.0)[5:15]
    graph = compiled(lambda self, x: x.as_strided((2, 2), (1, 2)), (part,))
    np.testing.assert_array_equal(call(graph, part), [[5, 7], [6, 8]])
    with pytest.raises(UnsupportedOp, match="from another place than the tensor's first element"):
        compiled(lambda self, x: x.as_strided((2, 2), (1, 2), 0), (part,))


# Names ------------------------------------------------------------------------------------------

NAMES = ("input", "type", "out", "lambda_", "print", "true", "state", "output", "L", "inf", "ключ")
BODIES = (
    "{}.clone().relu_() + 1",  # renamed
    "torch.nn.functional.mse_loss({0}, {0} * 2)",  # taken apart
    "{}.add_(1) * 2",  # an input that changes
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("body", BODIES)
def test_inputs_have_any_name(name: str, body: str) -> None:
    made: dict[str, Any] = {"torch": torch}
    exec(f"def forward(self, {name}): return " + body.format(name), made)
    model, shapes = module(made["forward"]), ({0: Dim.DYNAMIC, 1: Dim("side", min=0)},)
    program = torch.export.export(model, (X.clone(),), dynamic_shapes=shapes)
    exe = shapevm.compile(program, dynamic_shapes=shapes)
    assert [row.name for row in exe.machine.inputs] == [name]
    assert "side" in [symbol.name for symbol in exe.machine.symbols]
    ours, theirs = X[1:].clone(), X[1:].clone()
    torch.testing.assert_close(exe(ours), model(theirs))
    torch.testing.assert_close(ours, theirs)


def keys(self: Any, input: dict[str, Any]) -> Any:
    return input["a.b"] + input["a"]["b"].mul_(2)


def shared(self: Any, args_1: torch.Tensor, *args: torch.Tensor) -> Any:
    return args_1[0] + args[0] + args[1] * 3


def by_name(self: Any, *args: torch.Tensor, args_1: torch.Tensor) -> Any:
    return args_1[0] + args[0] + args[1] * 3


def field(self: Any, input: Pair) -> Any:
    return input.first + input.second.mul_(2)


ROW = {1: Dim.DYNAMIC}
ALIKE = (
    (keys, ({"a.b": X, "a": {"b": X}},), {}, [{"a.b": ROW, "a": {"b": ROW}}], ["input.a.b", "input.a.b_2"]),
    (shared, (X, X[0], X[0]), {}, [ROW, ({0: Dim.DYNAMIC},) * 2], ["args_1", "args_0", "args_1_2"]),
    (
        by_name,
        (X[0], X[0]),
        {"args_1": X},
        {"args": ({0: Dim.DYNAMIC},) * 2, "args_1": ROW},
        ["args_0", "args_1_2", "args_1"],
    ),
    (field, (Pair(X, X),), {}, [Pair(ROW, ROW)], ["input.first", "input.second"]),
)


@pytest.mark.parametrize(
    ("forward", "args", "kwargs", "shapes", "names"), ALIKE, ids=[row[0].__name__ for row in ALIKE]
)
def test_names_that_are_alike(forward: Any, args: Any, kwargs: Any, shapes: Any, names: list[str]) -> None:
    """The sizes are equal by a guard, which names the inputs in torch's way."""
    ours, theirs = (tree_map(torch.clone, (args, kwargs)) for _ in range(2))
    shapes = tuple(shapes) if isinstance(shapes, list) else shapes
    exe = shapevm.compile(module(forward), *tree_map(torch.clone, (args, kwargs)), dynamic_shapes=shapes)
    assert [row.name for row in exe.machine.inputs] == names
    for _ in range(2):
        torch.testing.assert_close(exe(*ours[0], **ours[1]), module(forward)(*theirs[0], **theirs[1]))
    torch.testing.assert_close(ours, theirs)


class Counter(torch.nn.Module):
    """Has state, inputs and results that are named alike."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, state: dict[str, torch.Tensor]) -> Any:
        """Count, and change the input."""
        self.count.add_(1)
        state["count"].mul_(2)
        return {"state": {"count": self.count + state["count"]}, "changed": {"state.count": self.count * 3}}


def test_state_and_results_named_alike() -> None:
    exe = shapevm.compile(Counter(), ({"count": X.clone()},))
    model, ours, theirs = Counter(), X.clone(), X.clone()
    for _ in range(2):
        torch.testing.assert_close(exe({"count": ours}), model({"count": theirs}))
    torch.testing.assert_close(ours, theirs)
    inputs, outputs = ([row.name for row in rows] for rows in (exe.machine.inputs, exe.machine.outputs))
    assert inputs == ["state.count_2", "state.count"] and len(set(outputs)) == len(outputs)
    assert set(exe.run({"state.count_2": X.numpy().copy()})) == set(outputs[:2])
    with pytest.raises(shapevm.ArgumentError, match="is the program's own state; give another name"):
        shapevm.compile(Counter(), ({"count": X.clone()},), inputs=["state.count"])


# Sizes, numbers and calls -------------------------------------------------------------------------

ROWS_FROM_0 = {0: Dim("rows", min=0)}


@pytest.mark.parametrize(("start", "step"), [(0.0, 0.5), (1.0, 0.75), (0.0, 1)])
def test_floats_are_counted_to_a_size(start: float, step: float) -> None:
    model = module(lambda self, x: torch.arange(start, x.shape[0], step))
    exe = shapevm.compile(model, (X,), dynamic_shapes=({0: Dim("rows", min=1)},))
    for n in (1, 2, 7):
        torch.testing.assert_close(exe(torch.ones(n, 3)), model(torch.ones(n, 3)))


def test_an_int_input_is_a_size() -> None:
    model = module(lambda self, x, k: torch.arange(k) + x.sum())
    exe = shapevm.compile(model, (X, 5), dynamic_shapes=(None, Dim.DYNAMIC))
    for k in (0, 1, 7):
        torch.testing.assert_close(exe(X, k), model(X, k))


def test_exact_code_for_sizes_beside_those_of_data() -> None:
    model = module(lambda self, x: x[x[:, 0] > 0] * 2)
    exe = shapevm.compile(
        model, (X,), dynamic_shapes=(ROWS_FROM_0,), options=shapevm.Options(sizes=[{"rows": 4}])
    )
    torch.testing.assert_close(exe(X), model(X))


def options(self: Any, ids: torch.Tensor, flag: bool = False, mask: Any = None, *, more: Any = None) -> Any:
    return ids - mask


def test_a_call_takes_what_forward_takes() -> None:
    """Also where it was exported by name, in another order."""
    exe = shapevm.compile(module(options), kwargs={"mask": X + 1, "ids": X})
    one = X + 1
    for args, kwargs in (((X, False, one), {}), ((X,), {"mask": one}), ((), {"ids": X, "mask": one})):
        torch.testing.assert_close(exe(*args, **kwargs), X - one)
    with pytest.raises(shapevm.ArgumentError, match="flag is True; the program was compiled for False"):
        exe(X, True, X)


class Subtract(torch.nn.Module):
    """Takes an optional argument between two that it needs."""

    def forward(self, ids: torch.Tensor, flag: bool = False, mask: Any = None) -> torch.Tensor:
        """Subtract."""
        return ids - mask


@pytest.mark.parametrize("strict", [False, True])
def test_a_call_of_an_exported_program_takes_what_forward_takes(strict: bool, tmp_path: Path) -> None:
    """Also from a file, as long as the class is loaded."""
    program = torch.export.export(Subtract(), (), {"mask": X + 1, "ids": X}, strict=strict)
    torch.export.save(program, tmp_path / "subtract.pt2")
    one = X + 1
    for source in (program, tmp_path / "subtract.pt2"):
        exe = shapevm.compile(source)
        for args, kwargs in (((X, False, one), {}), ((X,), {"mask": one}), ((), {"mask": one, "ids": X})):
            torch.testing.assert_close(exe(*args, **kwargs), X - one)


def test_a_call_of_an_exported_program_whose_class_is_gone() -> None:
    class Local(Subtract):
        pass

    exe = shapevm.compile(torch.export.export(Local(), (), {"mask": X + 1, "ids": X}))
    with pytest.raises(shapevm.ArgumentError, match="takes none; give mask, ids by name"):
        exe(X, X + 1)


class Sparse(torch.nn.Module):
    """Multiplies by a sparse buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("adjacency", torch.eye(4).to_sparse())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        return torch.sparse.mm(self.adjacency, x)


def test_sparse_tensors_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedOp, match=r"^adjacency is torch.sparse_coo, .* to_dense\(\)"):
        shapevm.compile(Sparse(), (torch.ones(4, 2),))
    model = module(lambda self, x, y: torch.sparse.mm(x, y))
    with pytest.raises(UnsupportedOp, match="^input x is torch.sparse_coo, which no program takes"):
        shapevm.compile(model, (torch.eye(4).to_sparse(), torch.ones(4, 2)))


class Registered:
    """A class of the user's that is registered with torch's pytrees."""

    def __init__(self, one: torch.Tensor, other: torch.Tensor, name: str) -> None:
        self.one, self.other, self.name = one, other, name


torch.utils._pytree.register_pytree_node(
    Registered,
    lambda pair: ([pair.one, pair.other], pair.name),
    lambda parts, name: Registered(*parts, name),
    serialized_type_name="test_exported_program.Registered",
    flatten_with_keys_fn=lambda pair: (
        [(torch.utils._pytree.GetAttrKey(key), getattr(pair, key)) for key in ("one", "other")],
        pair.name,
    ),
)


class Exchanges(torch.nn.Module):
    """Takes and gives such objects."""

    def forward(self, pair: Registered, scale: torch.Tensor) -> dict[str, Registered]:
        return {"made": Registered(pair.other * scale, pair.one, "made")}


def test_objects_of_registered_classes(tmp_path):
    """They come back as their class in this process, and as dicts of their parts by position in others; both
    are taken."""
    torch.manual_seed(0)
    pair, scale = Registered(torch.randn(2, 3), torch.randn(4), "given"), torch.randn(4)
    exe = shapevm.compile(Exchanges(), (pair, scale))
    for given in (pair, {"0": pair.one, "1": pair.other}):
        made = exe(given, scale)["made"]
        assert isinstance(made, Registered) and made.name == "made" and torch.equal(made.other, pair.one)
        torch.testing.assert_close(made.one, pair.other * scale)
    with pytest.raises(
        shapevm.ArgumentError, match="pair is a tuple of 2; it must be a .*:Registered of 2 parts"
    ):
        exe((pair.one, pair.other), scale)
    exe.save(tmp_path / "model.svm")
    code = """
import sys
import numpy as np
import shapevm
exe, one = shapevm.load(sys.argv[1]), np.ones((2, 3), "f4")
print(exe({"0": one, "1": np.ones(4, "f4")}, np.full(4, 2, "f4"))["made"]["0"].tolist())
"""
    command = [sys.executable, "-c", code, str(tmp_path / "model.svm")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.strip() == "[2.0, 2.0, 2.0, 2.0]", done.stderr


class _Anywhere(torch.nn.Module):
    def forward(self, x, y):
        return x * 2 + 1, y.reshape(-1) + 1, x.sum(0), y.flip(0)


LAYOUTS = {
    "steps": lambda: (torch.randn(8, 6, 10)[::2, :, ::3], torch.randn(5, 7)[:, 1::2]),
    "permuted": lambda: (torch.randn(3, 4, 5).permute(2, 0, 1), torch.randn(4, 5).t()),
    "expanded": lambda: (torch.randn(1, 4, 5).expand(3, 4, 5), torch.randn(4, 1).expand(4, 5)),
    "overlapping": lambda: (torch.randn(4, 20).unfold(1, 5, 2), torch.randn(9).unfold(0, 3, 1)),
}


@pytest.mark.parametrize("how", ["module", "exported", "strict"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_example_inputs_lie_in_memory_as_they_like(layout: str, how: str, caplog: Any) -> None:
    """What tracing assumes of an example's strides binds no call; sizes 0 and 1 are checked all the same."""
    x, y = LAYOUTS[layout]()
    shapes = (dict.fromkeys(range(3), torch.export.Dim.AUTO), {0: torch.export.Dim.AUTO})
    if how == "module":
        exe = shapevm.compile(_Anywhere(), (x, y), dynamic_shapes=shapes, strategy="generic")
    else:
        program = torch.export.export(_Anywhere(), (x, y), dynamic_shapes=shapes, strict=how == "strict")
        exe = shapevm.compile(program, strategy="generic")
    assert "is not checked" not in caplog.text
    for a, b in ((x, y), (x.contiguous(), y.contiguous()), (x[1:, :, 1:], y[1:])):
        torch.testing.assert_close(exe(a, b), _Anywhere()(a, b))
