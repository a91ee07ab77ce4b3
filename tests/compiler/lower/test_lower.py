"""From operators to kernels: the right ones, and the same values as the graph before."""

from pathlib import Path

import numpy as np
import pytest
from shapevm.compiler.ir.dims import evaluate as evaluate_dim
from shapevm.compiler.ir.dims import symbol
from shapevm.compiler.ir.graph import Builder, Graph
from shapevm.compiler.ir.text import format_graph, parse
from shapevm.compiler.ir.types import TensorType
from shapevm.compiler.lower.bind import bind
from shapevm.compiler.lower.collapse import collapse
from shapevm.compiler.lower.fuse import MAX_NODES, fuse
from shapevm.compiler.lower.lower import lower
from shapevm.compiler.lower.packing import pack
from shapevm.compiler.ops import OPS, build
from shapevm.compiler.passes.pipeline import run
from shapevm.jit.evaluation import bf16_to_f32, f32_to_bf16
from shapevm.jit.reference import evaluate as evaluate_spec
from shapevm.vm.layout import LIMITS
from shapevm.vm.program import NUMPY_DTYPES

B, L = symbol("b"), symbol("l")
SIZES = [{"b": 1, "l": 1}, {"b": 2, "l": 3}, {"b": 3, "l": 17}]


def new_graph(**inputs):
    from shapevm.compiler.ir.graph import SymbolInfo

    graph = Graph("test", symbols={"b": SymbolInfo("b"), "l": SymbolInfo("l")})
    values = [graph.input(name, TensorType(dtype, shape)) for name, (dtype, shape) in inputs.items()]
    return graph, Builder(graph), values


def finish(graph, *values):
    graph.body.results = list(values)
    graph.outputs = [f"out{i}" for i in range(len(values))]
    return graph


def concrete(attr, sizes):
    if isinstance(attr, tuple):
        return tuple(concrete(item, sizes) for item in attr)
    return evaluate_dim(attr, sizes) if hasattr(attr, "free_symbols") else attr


def execute(graph, arrays, sizes):
    """Run a graph: kernels by their specs' definition, other ops by their own."""
    env = dict(zip(graph.body.params, arrays, strict=True))
    for node in graph.body.nodes:
        args = [None if arg is None else env[arg] for arg in node.args]
        if node.op == "free":
            continue
        if node.op == "kernel":
            outs = [np.empty(concrete(v.type.shape, sizes), NUMPY_DTYPES[v.type.dtype]) for v in node.results]
            evaluate_spec(node.attrs["spec"], concrete(node.attrs["dims"], sizes), [*args, *outs])
            env |= zip(node.results, outs, strict=True)
        else:
            attrs = {name: concrete(value, sizes) for name, value in node.attrs.items()}
            given = [computable(arg, value) for arg, value in zip(args, node.args, strict=True)]
            env[node.result] = OPS[node.op].reference(given, attrs)
    return [env[value] for value in graph.body.results]


def computable(array, value):
    """Return a value as operators' references take it: bf16 bits as float32."""
    is_bf16 = value is not None and value.type.dtype == "bf16"
    return bf16_to_f32(array) if is_bf16 and array.dtype == np.uint16 else array


def kernels(graph):
    return [node.attrs["spec"] for node in graph.nodes() if node.op == "kernel"]


def random(rng, dtype, shape):
    """Return random elements; bf16 as its bits. Integers are 0 or 1, for they may be indices."""
    if dtype == "bf16":
        return f32_to_bf16(rng.normal(size=shape).astype(np.float32))
    numbers = rng.normal(size=shape) if dtype in ("f64", "f32", "f16") else rng.integers(0, 2, shape)
    return np.asarray(numbers).astype(NUMPY_DTYPES[dtype])


def check(build, n_kernels=None, families=None):
    """Lower build()'s graph; compare values at several sizes; return the specs."""
    before, after = build(), build()
    run(after)
    for sizes in SIZES:
        rng = np.random.default_rng(0)
        arrays = [random(rng, v.type.dtype, concrete(v.type.shape, sizes)) for v in before.body.params]
        for ours, theirs in zip(execute(after, arrays, sizes), execute(before, arrays, sizes), strict=True):
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    specs = kernels(after)
    if n_kernels is not None:
        assert len(specs) == n_kernels, [spec.family for spec in specs]
    if families is not None:
        assert [spec.family for spec in specs] == families
    return specs


def constant(b, *shape, name="w"):
    rng = np.random.default_rng(sum(map(ord, name)))
    return b.constant(rng.normal(size=shape).astype(np.float32), "f32", name)


def test_pointwise_chain_is_one_collapsed_loop():
    def build():
        graph, b, (x, y) = new_graph(x=("f32", (B, L, 6)), y=("f32", (B, L, 6)))
        z = b.one("mul", b.one("add", x, y), b.one("exp", x))
        return finish(graph, z)

    (spec,) = check(build, 1)
    assert len(spec.domain) == 1 and spec.n_dims == 1


def test_broadcast_and_permuted_inputs():
    def build():
        graph, b, (x, y) = new_graph(x=("f32", (B, L)), y=("f32", (L, B)))
        row = b.one("expand", constant(b, 5, name="bias"), shape=(B, L, 5))
        a = b.one("expand", b.one("reshape", x, shape=(B, L, 1)), shape=(B, L, 5))
        c = b.one("permute", y, axes=(1, 0))
        c = b.one("expand", b.one("reshape", c, shape=(B, L, 1)), shape=(B, L, 5))
        return finish(graph, b.one("add", b.one("mul", a, row), c))

    check(build, 1)


def test_softmax_is_one_kernel():
    def build():
        graph, b, (x,) = new_graph(x=("f32", (B, L, 6)))
        return finish(graph, b.one("softmax", x, axis=2))

    (spec,) = check(build, 1)
    assert len(spec.domain) == 2  # rows, row


def test_softmax_over_another_axis():
    def build():
        graph, b, (x,) = new_graph(x=("f32", (B, L, 6)))
        return finish(graph, b.one("softmax", x, axis=1))

    check(build)


def test_layer_norm_is_one_kernel():
    def build():
        graph, b, (x,) = new_graph(x=("f32", (B, L, 8)))
        return finish(
            graph, b.one("layer_norm", x, constant(b, 8), constant(b, 8, name="b"), n_axes=1, eps=1e-5)
        )

    check(build, 1, ["nest"])


def linear(b, x, n_in, n_out, name):
    w = constant(b, n_out, n_in, name=name)
    bias = constant(b, n_out, name=name + ".bias")
    return b.one("linear", x, w, bias)


def test_linear_takes_its_bias_and_activation_along():
    def build():
        graph, b, (x,) = new_graph(x=("f32", (B, L, 8)))
        return finish(graph, b.one("gelu", linear(b, x, 8, 10, "w"), approximate="none"))

    (spec,) = check(build, 1, ["matmul"])
    assert spec.product.batch == () and spec.product.b_layout == "panels" and spec.n_dims == 1


def test_a_slice_of_a_matmul_is_no_epilogue():
    def build():
        graph, b, (x,) = new_graph(x=("f32", (B, 12, 8)))
        rows = b.one("slice", linear(b, x, 8, 10, "w"), axis=1, start=0, length=5, step=1)
        return finish(graph, b.one("gelu", rows, approximate="none"))

    check(build, 2, ["matmul", "nest"])


def test_residual_joins_the_matmul_and_layer_norm_follows():
    def build():
        graph, b, (x,) = new_graph(x=("f32", (B, L, 8)))
        y = b.one("add", linear(b, x, 8, 8, "w"), x)
        z = b.one("layer_norm", y, constant(b, 8), constant(b, 8, name="b"), n_axes=1, eps=1e-5)
        return finish(graph, z)

    specs = check(build, 2, ["matmul", "nest"])
    assert [instr.op for instr in specs[0].product.epilogue] == ["acc", "load", "add", "load", "add", "store"]
    assert [instr.op for instr in specs[1].body].count("load") == 3  # the row, weight, bias


def heads(b, x):
    split = b.one("reshape", x, shape=(B, L, 2, 4))
    return b.one("permute", split, axes=(0, 2, 1, 3))


@pytest.mark.parametrize("mask", [None, "bool", "f32"])
def test_attention_block_moves_nothing(mask):
    def build():
        inputs = {"x": ("f32", (B, L, 8))} | ({"mask": (mask, (B, L))} if mask else {})
        graph, b, (x, *rest) = new_graph(**inputs)
        q, k, v = (heads(b, linear(b, x, 8, 8, name)) for name in "qkv")
        wide = None
        if rest:
            wide = b.one("expand", b.one("reshape", rest[0], shape=(B, 1, 1, L)), shape=(B, 2, L, L))
        out = b.one("attention", q, k, v, wide, scale=0.5, safe=True)
        joined = b.one("reshape", b.one("permute", out, axes=(0, 2, 1, 3)), shape=(B, L, 8))
        return finish(graph, linear(b, joined, 8, 8, "o"))

    specs = check(build, 5, ["matmul", "matmul", "matmul", "attention", "matmul"])
    assert all(spec.product.batch == () for spec in specs if spec.family == "matmul")


@pytest.mark.parametrize("mask", [None, "bool", "f32"])
def test_segment_attention_moves_nothing(mask):
    def build():
        inputs = {"x": ("f32", (B, 8)), "offsets": ("i64", (L,))} | ({"mask": (mask, (B, B))} if mask else {})
        graph, b, (x, offsets, *rest) = new_graph(**inputs)
        whole = b.one("reshape", linear(b, x, 8, 24, "qkv"), shape=(B, 3, 2, 4))
        cuts = (b.one("slice", whole, axis=1, start=i, length=1, step=1) for i in range(3))
        rows = [b.one("reshape", cut, shape=(B, 2, 4)) for cut in cuts]
        wide = [b.one("expand", b.one("reshape", seen, shape=(1, B, B)), shape=(2, B, B)) for seen in rest]
        out = b.one("segment_attention", *rows, offsets, *(wide or [None]), scale=0.5, longest=B)
        return finish(graph, linear(b, b.one("reshape", out, shape=(B, 8)), 8, 8, "o"))

    check(build, 3, ["matmul", "attention", "matmul"])


def test_segment_attention_writes_heads_first():
    def build():
        graph, b, (x, offsets) = new_graph(x=("f32", (B, 2, 4)), offsets=("i64", (3,)))
        out = b.one("segment_attention", x, x, x, offsets, None, scale=0.5, longest=B)
        return finish(graph, b.one("permute", out, axes=(1, 0, 2)))

    check(build, 1, ["attention"])


def test_embedding_gathers_in_place():
    def build():
        graph, b, (ids,) = new_graph(ids=("i64", (B, L)))
        words = b.one("gather", constant(b, 7, 8, name="words"), ids, axis=0)
        places = b.one("slice", constant(b, 30, 8, name="places"), axis=0, start=0, length=L, step=1)
        y = b.one("add", words, b.one("expand", places, shape=(B, L, 8)))
        z = b.one("layer_norm", y, constant(b, 8), constant(b, 8, name="b"), n_axes=1, eps=1e-5)
        return finish(graph, z)

    check(build, 1)


def test_mean_over_a_middle_axis_then_normalise():
    def build():
        graph, b, (x, m) = new_graph(x=("f32", (B, L, 6)), m=("f32", (B, L)))
        wide = b.one("expand", b.one("reshape", m, shape=(B, L, 1)), shape=(B, L, 6))
        weighted = b.one("permute", b.one("mul", x, wide), axes=(0, 2, 1))
        total = b.one("reshape", b.one("reduce_sum", weighted), shape=(B, 6))
        norm = b.one("sqrt", b.one("reduce_sum", b.one("mul", total, total)))
        return finish(graph, b.one("div", total, b.one("expand", norm, shape=(B, 6))))

    check(build)


def test_values_used_twice_are_computed_once():
    def build():
        graph, b, (x,) = new_graph(x=("f32", (B, L, 8)))
        y = b.one("exp", x)
        return finish(graph, linear(b, y, 8, 8, "w"), b.one("add", y, y))

    check(build, 3)


def test_outputs_that_are_views():
    def build():
        graph, b, (x,) = new_graph(x=("f32", (B, L, 6)))
        y = b.one("exp", x)
        flat = b.one("reshape", y, shape=(B * L, 6))
        turned = b.one("permute", y, axes=(2, 0, 1))
        return finish(graph, flat, turned)

    check(build, 2)


def test_batched_matmul_of_dynamic_operands():
    def build():
        graph, b, (x, y) = new_graph(x=("f32", (B, L, 8)), y=("f32", (B, L, 8)))
        scores = b.one("matmul", x, b.one("permute", y, axes=(0, 2, 1)))
        return finish(graph, b.one("matmul", b.one("sigmoid", scores), y))

    specs = check(build)
    assert [spec.product.b_layout for spec in specs if spec.family == "matmul"] == ["rows", "rows"]


def test_a_product_that_is_read_in_two_orders_is_in_memory():
    """z + z with its batch axes exchanged: a kernel has each sum at one place only."""

    def build():
        graph, b, (x,) = new_graph(x=("f32", (3, 3, L, 4)))
        z = linear(b, x, 4, 5, "w")
        return finish(graph, b.one("add", z, b.one("permute", z, axes=(1, 0, 2, 3))))

    check(build, 2, ["matmul", "nest"])


def test_a_product_that_is_used_twice_in_one_order_is_one_kernel():
    def build():
        graph, b, (x,) = new_graph(x=("f32", (B, 4)))
        z = linear(b, x, 4, 5, "w")
        return finish(graph, b.one("mul", z, b.one("exp", z)))

    check(build, 1)


def test_zero_d_and_iota():
    def build():
        graph, b, (x,) = new_graph(x=("f32", ()))
        i = b.one("cast", b.one("iota", start=2, step=3, length=L, dtype="i64"), dtype="f32")
        return finish(graph, b.one("mul", i, b.one("expand", x, shape=(L,))), b.one("exp", x))

    check(build, 2)


def test_row_scalar_in_a_second_use_of_the_row():
    def build():
        graph, b, (x,) = new_graph(x=("f32", (B, 6)))
        top = b.one("reduce_max", x)
        low = b.one("reduce_min", x)
        span = b.one("expand", b.one("sub", top, low), shape=(B, 6))
        return finish(graph, b.one("div", x, span))

    check(build, 1)


# Large programs -----------------------------------------------------------------------------------


def make_kernels(graph):
    for step in (fuse, lower, pack, collapse, bind):
        step(graph)


def kernels_of(graph):
    return [node for node in graph.body.nodes if node.op == "kernel"]


def chain(n):
    """x + 0.5 - x + 0.5 ..., n operators."""
    graph, b, (x,) = new_graph(x=("f32", (B,)))
    half, y = build.full(b, 0.5, "f32", (B,)), x
    for i in range(n):
        y = b.one("sub", y, x) if i % 2 else b.one("add", y, half)
    return finish(graph, y)


def test_a_long_chain_is_cut_into_kernels():
    graph, before = chain(2 * MAX_NODES + 3), chain(2 * MAX_NODES + 3)
    make_kernels(graph)
    found = kernels_of(graph)
    assert len(found) == 3
    assert all(len(node.attrs["spec"].body) <= 2 * MAX_NODES for node in found)
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(execute(graph, [x], {"b": 3}), execute(before, [x], {"b": 3}))


def test_a_chain_of_5000_operators():
    graph = chain(5000)
    make_kernels(graph)
    assert len(kernels_of(graph)) == -(-5000 // MAX_NODES)


def test_a_chain_of_5000_views():
    graph, b, (x,) = new_graph(x=("f32", (3, 3)))
    y = x
    for i in range(5000):
        y = (
            b.one("permute", y, axes=(1, 0))
            if i % 2
            else b.one("slice", y, axis=0, start=2, length=3, step=-1)
        )
    finish(graph, y)
    make_kernels(graph)
    assert len(kernels_of(graph)) == 1
    array = np.arange(9, dtype=np.float32).reshape(3, 3)
    (found,) = execute(graph, [array], {})
    np.testing.assert_array_equal(found, array if 5000 % 4 == 0 else np.rot90(array, 5000 // 2 % 4))


def test_a_chain_of_reshapes_in_memory():
    graph, b, (x,) = new_graph(x=("f32", (4, 4)))
    y = b.one("add", x, x)
    for _ in range(1000):
        y = b.one("reshape", b.one("reshape", y, shape=(16,)), shape=(4, 4))
    finish(graph, b.one("permute", y, axes=(1, 0)), y)
    make_kernels(graph)
    array = np.arange(16, dtype=np.float32).reshape(4, 4)
    transposed, same = execute(graph, [array], {})
    np.testing.assert_array_equal(same, array * 2)
    np.testing.assert_array_equal(transposed, array.T * 2)


def test_a_kernel_has_no_more_buffers_and_dims_than_it_may():
    n = 150
    graph, b, xs = new_graph(**{f"x{i}": ("f32", (L,)) for i in range(n)}, y=("f32", (B,)))
    *terms, y = xs
    total = terms[0]
    for term in terms[1:]:
        total = b.one("add", total, term)
    sliced = y
    for i in range(60):  # each starts at a place that is a dim of its kernel
        part = b.one("slice", y, axis=0, start=B - 1 - i * L, length=B, step=1)
        sliced = b.one("maximum", sliced, part)
    finish(graph, total, sliced)
    make_kernels(graph)
    specs = [node.attrs["spec"] for node in kernels_of(graph)]
    assert all(len(s.buffers) <= LIMITS["BUFFERS"][0] and s.n_dims <= LIMITS["DIMS"][0] for s in specs)
    assert 4 <= len(specs) <= 10


# The pass, text in and text out -------------------------------------------------------------------

HEAD = 'graph "g"\n symbol s min=0 multiple_of=1\n input %x: f32[s, 4]\n'


def test_a_fused_node_becomes_a_kernel_over_symbols(turns):
    before = """
      %k4: f32[s, 4] = fused()  # model.py:3
        body:
          %v1: f32[s, 1] = reduce_sum(%x)
          %v2: f32[s, 4] = expand(%v1) {shape=[s, 4]}
          %v3: f32[s, 4] = div(%x, %v2)
          yield %v3
      output %k4 as "y"
    """
    after = """
      %k4: f32[s, 4] = kernel(%x) {spec=@a, label="reduce_sum div"}  # model.py:3
      output %k4 as "y"

      spec @a symbolic
        nest n_dims=0 domain=[s,4]
        b0 f32[s,4]
        b1 f32[s,4] output
        v0 = load f32 b0[i0,i1]
        v1 = reduce.sum f32 v0
        v2 = div f32 v0 v1
        v3 = store f32 v2 b1[i0,i1]
    """
    turns(lower, HEAD + before, after)


def test_the_operators_of_a_concat_are_pieces(turns):
    before = """
      %k3: f32[2*s, 4] = fused()
        body:
          %v1: f32[s, 4] = neg(%x)
          %v2: f32[2*s, 4] = concat(%v1, %x) {axis=0}
          yield %v2
      output %k3 as "y"
    """
    after = """
      %k3: f32[2*s, 4] = kernel(%x) {spec=@a, label="neg concat"}
      output %k3 as "y"

      spec @a symbolic
        concat n_dims=0
        b0 f32[2*s,4] output
        b1 f32[s,4]
        piece [s,4]
        v0 = load f32 b1[i0,i1]
        v1 = neg f32 v0
        v2 = store f32 v1 b0[i0,i1]
        piece [s,4]
        v0 = load f32 b1[i0,i1]
        v1 = store f32 v0 b0[i0+(s),i1]
    """
    turns(lower, HEAD + before, after)


def test_a_prologue_is_what_operand_a_is_computed_of(turns):
    before = """
      input %q: u8[s, 4]
      input %w: f32[4, 4]
      %k4: f32[s, 4] = fused()
        body:
          %v1: f32[s, 4] = cast(%q) {dtype="f32"}
          %v2: f32[s, 4] = matmul(%v1, %w)
          %v3: f32[s, 4] = add(%v2, %x)
          yield %v3
      output %k4 as "y"
    """
    after = """
      %k4: f32[s, 4] = kernel(%q, %w, %x) {spec=@a, label="cast matmul add"}
      output %k4 as "y"

      spec @a symbolic
        matmul n_dims=0 batch=[] m=s n=4 k=4 a=-1 a_index=[] b=1 b_index=[i2,i1] b_layout="rows" chain=32
        b0 u8[s,4]
        b1 f32[4,4]
        b2 f32[s,4]
        b3 f32[s,4] output
        p0 = load u8 b0[i0,i2]
        p1 = cast f32 p0
        v0 = acc f32
        v1 = load f32 b2[i0,i1]
        v2 = add f32 v0 v1
        v3 = store f32 v2 b3[i0,i1]
    """
    turns(lower, HEAD + before, after)


def test_a_standalone_operator_is_a_kernel(turns):
    before = """
      %v1: f32[s, 2], %v2: i64[s, 2] = sort(%x) {keep=2, descending=true}
      output %v1 as "y"
    """
    after = """
      %v1: f32[s, 2], %v2: i64[s, 2] = kernel(%x) {spec=@a, label="sort"}
      output %v1 as "y"

      spec @a symbolic
        sort n_dims=0 rows=s length=4 keep=2 descending=true
        b0 f32[s,4]
        b1 f32[s,2] output
        b2 i64[s,2] output
    """
    turns(lower, HEAD + before, after)


def test_the_page_on_graphs_shows_the_stages():
    """docs/graph-text.md: a graph, what fusion makes of it, and the kernel with its spec."""
    page = (Path(__file__).parents[3] / "docs" / "graph-text.md").read_text()
    blocks = page.split("```text\n")[1:]
    text, fused, lowered = (
        next(b.split("```")[0] for b in blocks if word in b.split("```")[0])
        for word in ('graph "scaled"', "fused()", " symbolic\n")
    )
    graph = parse(text)
    fuse(graph)
    assert fused in format_graph(graph)
    lower(graph)
    node, spec = lowered.split("\n\n")
    assert node in format_graph(graph) and spec in format_graph(graph)


@pytest.mark.parametrize(
    ("axis", "width", "n_kernels"),
    [(0, 4, 1), (0, 16, 1), (1, 4, 2), (1, 16, 1)],
)
def test_narrow_parts_of_the_last_axis_are_computed_apart(axis, width, n_kernels):
    """What is computed in parts narrower than a vector of the innermost loop would be slower there."""
    shapes = []
    for size in (width, 2 * width):
        sizes = ["s", "s"]
        sizes[axis] = str(size)
        shapes.append(", ".join(sizes))
    part, whole = shapes
    graph = parse(f"""
      graph "g"
      symbol s min=0 multiple_of=1
      input %x: f32[{part}]
      %v1: f32[{whole}] = concat(%x, %x) {{axis={axis}}}
      %v2: f32[{whole}] = neg(%v1)
      output %v2 as "y"
    """)
    run(graph)
    assert sum(node.op == "kernel" for node in graph.nodes()) == n_kernels
