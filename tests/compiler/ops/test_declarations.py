"""Every declaration is complete, and its parts agree: type rule, reference, decomposition, samples,
errors."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import sympy
from shapevm.compiler.ir.dims import evaluate, symbols_of
from shapevm.compiler.ir.errors import DtypeError, ShapeError
from shapevm.compiler.ir.graph import Graph, Node, SymbolInfo, Value
from shapevm.compiler.ir.types import DictType, ListType, ScalarType, TensorType, TupleType, Type, parse_type
from shapevm.compiler.ops import COMPOSITES, OPS, Op, Sample
from shapevm.compiler.ops.declare import KINDS
from shapevm.compiler.ops.rules import COMPUTE
from shapevm.compiler.passes.decompose import decompose
from shapevm.compiler.reference import encode, run
from shapevm.compiler.verify import verify
from shapevm.jit.math.table import OPS as SCALAR_OPS

SIZES = {"s0": (5, 1, 17), "s1": (3, 1, 2)}
REGIONS = ("if", "while")  # blocks are needed to make one
CALLS = ("call", "extern")  # something to call is needed
DATA = [op for op in OPS.values() if op.name not in (*REGIONS, *CALLS)]


def cases() -> Iterator[tuple[Op, Sample]]:
    for op in DATA:
        for sample in op.samples:
            yield op, sample


def case_id(value: Any) -> str | None:
    return (
        value.name
        if isinstance(value, Op)
        else re.sub(r"[^\w.]+", "_", " ".join(value.args))
        if isinstance(value, Sample)
        else None
    )


def types_of(sample: Sample) -> list[Type | None]:
    return [parse_type(text) if text else None for text in sample.args]


def symbols_in(sample: Sample) -> set[str]:
    found = set()
    for type in types_of(sample):
        if isinstance(type, TensorType):
            found.update(*[symbols_of(dim) for dim in type.shape])
    for value in sample.attrs.values():
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, sympy.Expr):
                found |= symbols_of(item)
    return found


def graph_of(op: Op, sample: Sample) -> Graph:
    graph = Graph(op.name, symbols={name: SymbolInfo(name) for name in sorted(symbols_in(sample))})
    args = [None if type is None else graph.input(f"x{i}", type) for i, type in enumerate(types_of(sample))]
    node = Node(op.name, args, sample.attrs)
    types = op.infer([None if arg is None else arg.type for arg in args], sample.attrs)
    graph.body.nodes.append(node)
    node.results = [Value(graph.new_name(), type, node) for type in types]
    graph.body.results = list(node.results)
    graph.outputs = [f"y{i}" for i in range(len(types))]
    return graph


def fill(rng: np.random.Generator, type: Type, how: str, sizes: dict[str, int]) -> Any:
    """Return a value of `type` in storage form."""
    if isinstance(type, TensorType):
        shape = tuple(evaluate(dim, sizes) for dim in type.shape)
        return encode(array(rng, type.dtype, shape, how), type)
    if isinstance(type, TupleType):
        return tuple(fill(rng, element, how, sizes) for element in type.elements)
    if isinstance(type, ListType):
        return [fill(rng, type.element, how, sizes) for _ in range(3)]
    if isinstance(type, DictType):
        return {fill(rng, type.key, how, sizes): fill(rng, type.value, how, sizes)}
    assert isinstance(type, ScalarType)
    if type.expr is not None:
        return int(type.expr)
    return {"int": 7, "float": 2.5, "bool": True, "str": "text"}[type.kind]


def array(rng: np.random.Generator, dtype: str, shape: tuple[int, ...], how: str) -> Any:
    if dtype == "bool":
        return rng.random(shape) < 0.6
    if how.startswith("index:") and dtype in ("i32", "i64"):
        return rng.integers(0, int(how.removeprefix("index:")), shape).astype(
            {"i32": np.int32, "i64": np.int64}[dtype]
        )
    if dtype[0] in "iu":
        low = 1 if how == "positive" or dtype == "u8" else -9
        return rng.integers(low, 9, shape).astype(COMPUTE[dtype])
    low, high = {"unit": (-1, 1), "positive": (0.1, 4), "above_one": (1, 9)}.get(how, (-3, 3))
    return rng.uniform(low, high, shape).astype(np.float64 if dtype == "f64" else np.float32)


def inputs_of(sample: Sample, sizes: dict[str, int]) -> list[Any]:
    rng = np.random.default_rng(0)
    return [fill(rng, type, sample.fill, sizes) for type in types_of(sample) if type is not None]


def bindings(sample: Sample) -> list[dict[str, int]]:
    names = symbols_in(sample)
    return [{name: SIZES[name][i] for name in names} for i in range(3)] if names else [{}]


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_declaration_is_complete(op: Op) -> None:
    assert op.kind in KINDS
    assert op.schema.startswith(op.name + "(") and "->" in op.schema
    assert op.doc.endswith((".", ")")), op.doc
    assert (op.decompose is not None) == (op.kind == "composite")
    assert bool(op.scalar) == (op.kind in ("pointwise", "reduce"))
    assert op.samples or op.name in (*REGIONS, *CALLS)
    if any("tensor" in part.lower() for part in op.schema.split("->")) and op.kind not in (
        "value",
        "control",
        "source",
    ):
        assert any(symbols_in(sample) for sample in op.samples), "no sample has a symbolic size"


def test_scalar_operations_all_have_an_operator() -> None:
    assert set(SCALAR_OPS) <= set(OPS)


#: Operators that programs of shapevm.nn alone have.
OF_NN = {"shapevm.paged_attention.default", "shapevm.philox.default"}


def test_torch_names_are_unique_and_whole() -> None:
    names = [
        name for composite in {id(c): c for c in COMPOSITES.values()}.values() for name in composite.torch
    ]
    assert len(names) == len(set(names)) == len(COMPOSITES)
    torch = pytest.importorskip("torch")
    for package in (  # they define operators
        "torchao.quantization",
        "torch.ao.quantization.fx._decomposed",
        "transformers.integrations.moe",
        "shapevm.compiler.frontends.packed_operators",
    ):
        pytest.importorskip(package)
    has_torchvision = hasattr(torch.ops.torchvision, "nms")  # where it is imported, and loads
    assert set(names) >= OF_NN
    here = [x for x in names if x not in OF_NN and (has_torchvision or not x.startswith("torchvision."))]
    for name in here:
        namespace, op, overload = name.split(".")
        known = getattr(torch.ops, namespace)
        found = getattr(known, op, None) or getattr(known, f"{op}_")  # some are in place only
        assert overload in found.overloads(), f"{name} is no overload of torch"


@pytest.mark.parametrize(("op", "sample"), list(cases()), ids=case_id)
def test_reference_gives_the_inferred_type(op: Op, sample: Sample) -> None:
    graph = graph_of(op, sample)
    needed = {
        str(s)
        for t in types_of(sample)
        if isinstance(t, TensorType)
        for d in t.shape
        for s in getattr(d, "free_symbols", ())
    }
    extra = symbols_in(sample) - needed
    for name in sorted(extra):  # sizes that only attributes name come in as ints
        graph.input(name, ScalarType("int", sympy.Symbol(name, integer=True)))
    verify(graph, "imported")
    for sizes in bindings(sample):
        outputs = run(graph, [*inputs_of(sample, sizes), *(sizes[name] for name in sorted(extra))])
        assert len(outputs) == len(graph.outputs)


@pytest.mark.parametrize(("op", "sample"), [c for c in cases() if c[0].kind == "composite"], ids=case_id)
def test_decomposition_means_the_same(op: Op, sample: Sample) -> None:
    graph = graph_of(op, sample)
    decomposed = graph_of(op, sample)
    decompose(decomposed)
    verify(decomposed, "core")
    for sizes in bindings(sample):
        inputs = inputs_of(sample, sizes)
        type = graph.body.results[0].type
        (expected,), (actual,) = run(graph, inputs), run(decomposed, inputs)
        tolerance = {"f32": 3e-6, "f64": 1e-13, "f16": 2e-3, "bf16": 2e-2, "i64": 0}[type.dtype]
        if type.dtype == "bf16":
            expected, actual = ((x.astype(np.uint32) << 16).view(np.float32) for x in (expected, actual))
        np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("op", "sample", "text"), [(op, *error) for op in DATA for error in op.errors], ids=case_id
)
def test_error_sentences(op: Op, sample: Sample, text: str) -> None:
    with pytest.raises((ShapeError, DtypeError)) as caught:
        op.infer(types_of(sample), sample.attrs)
    assert str(caught.value) == text
