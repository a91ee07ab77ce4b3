"""Which producers a matmul takes in as its prologue, and which stay kernels or epilogues of their own."""

import numpy as np
import pytest
from shapevm.compiler.ir.text import parse
from shapevm.compiler.lower.prologue import MAX_NODES, prologue
from shapevm.vm.layout import LIMITS

from .test_lower import B, L, check, constant, finish, linear, new_graph


def wide(b, x, *shape):
    return b.one("expand", x, shape=shape)


def scalar(b, x, *shape):
    return wide(b, b.constant(np.array(x, np.float32), "f32", f"c{x}"), *shape)


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f64", "i8", "u8", "i32", "bool"])
def test_a_cast_is_computed_on_the_way_in(dtype):
    def build():
        graph, b, (x,) = new_graph(x=(dtype, (B, L, 8)))
        return finish(
            graph, b.one("gelu", linear(b, b.one("cast", x, dtype="f32"), 8, 40, "w"), approximate="none")
        )

    (spec,) = check(build, 1, ["matmul"])
    assert (
        spec.product.a == -1
        and spec.product.a_index == ()
        and [i.op for i in spec.product.prologue] == ["load", "cast"]
    )
    assert spec.product.batch == () and spec.n_dims == 1  # all rows are one loop


def test_activations_are_dequantised_on_the_way_in():
    """(q - zero[row]) * scale[channel], the zeros one for each row of the input."""

    def build():
        graph, b, (q, zero) = new_graph(q=("u8", (B, L, 8)), zero=("i32", (B, L, 1)))
        centred = b.one("sub", b.one("cast", q, dtype="i32"), wide(b, zero, B, L, 8))
        scaled = b.one(
            "mul", b.one("cast", centred, dtype="f32"), wide(b, constant(b, 8, name="scale"), B, L, 8)
        )
        return finish(graph, linear(b, scaled, 8, 8, "w"))

    (spec,) = check(build, 1, ["matmul"])
    assert {buffer.dtype for buffer in spec.buffers} == {"u8", "i32", "f32"}


def test_two_arrays_of_memory_make_one_operand():
    def build():
        graph, b, (x, y) = new_graph(x=("f32", (B, L, 8)), y=("f32", (B, L, 8)))
        return finish(graph, linear(b, b.one("add", b.one("mul", x, scalar(b, 2, B, L, 8)), y), 8, 8, "w"))

    (spec,) = check(build, 1, ["matmul"])
    assert sum(i.op == "load" for i in spec.product.prologue) == 2


def test_views_on_the_way_are_free():
    def build():
        graph, b, (x,) = new_graph(x=("bf16", (L, B, 12)))
        part = b.one("slice", b.one("permute", x, axes=(1, 0, 2)), axis=2, start=3, length=8, step=1)
        return finish(graph, linear(b, b.one("cast", part, dtype="f32"), 8, 8, "w"))

    (spec,) = check(build, 1, ["matmul"])
    assert spec.product.prologue[0].index[-1].offset == 3


def test_a_reshape_of_memory_is_read_under_its_new_shape():
    def build():
        graph, b, (x,) = new_graph(x=("f16", (B, L, 2, 4)))
        flat = b.one("reshape", x, shape=(B, L, 8))
        return finish(graph, linear(b, b.one("cast", flat, dtype="f32"), 8, 8, "w"))

    check(build, 1, ["matmul"])


def test_a_batched_operand_and_one_that_varies_along_rows_only():
    def build():
        graph, b, (x, y) = new_graph(x=("f16", (B, L, 8)), y=("f32", (B, 8, L)))
        return finish(graph, b.one("matmul", b.one("cast", x, dtype="f32"), y))

    def rows_only():
        graph, b, (x,) = new_graph(x=("i64", (B, 1)))
        return finish(graph, linear(b, b.one("cast", wide(b, x, B, 8), dtype="f32"), 8, 8, "w"))

    (spec,) = check(build, 1, ["matmul"])
    assert spec.product.b_layout == "rows" and spec.product.batch != ()
    check(rows_only, 1, ["matmul"])


def test_a_position_in_the_operand():
    """x + the number of its column: an arange has no memory."""

    def build():
        graph, b, (x,) = new_graph(x=("f32", (B, 8)))
        places = b.one("cast", b.one("iota", start=1, step=2, length=8, dtype="i64"), dtype="f32")
        return finish(graph, linear(b, b.one("add", x, wide(b, places, B, 8)), 8, 8, "w"))

    (spec,) = check(build, 1, ["matmul"])
    assert spec.product.prologue[-1].dtype == "f32"


# What stays in memory ---------------------------------------------------------------------------------


def test_a_transposing_producer_is_a_kernel():
    def build():
        graph, b, (x,) = new_graph(x=("bf16", (B, 8, L)))
        return finish(
            graph, linear(b, b.one("cast", b.one("permute", x, axes=(0, 2, 1)), dtype="f32"), 8, 8, "w")
        )

    specs = check(build, 2, ["nest", "matmul"])
    assert specs[1].product.prologue == ()


def test_a_strided_producer_is_a_kernel():
    def build():
        graph, b, (x,) = new_graph(x=("bf16", (B, 16)))
        part = b.one("slice", x, axis=1, start=0, length=8, step=2)
        return finish(graph, linear(b, b.one("cast", part, dtype="f32"), 8, 8, "w"))

    check(build, 2, ["nest", "matmul"])


def test_a_value_used_twice_is_in_memory():
    def two_matmuls():
        graph, b, (x,) = new_graph(x=("bf16", (B, 8)))
        y = b.one("cast", x, dtype="f32")
        return finish(graph, linear(b, y, 8, 8, "w"), linear(b, y, 8, 8, "v"))

    def an_output():
        graph, b, (x,) = new_graph(x=("bf16", (B, 8)))
        y = b.one("cast", x, dtype="f32")
        return finish(graph, linear(b, y, 8, 8, "w"), y)

    def both_operands():
        graph, b, (x,) = new_graph(x=("bf16", (B, L, 8)))
        y = b.one("cast", x, dtype="f32")
        return finish(graph, b.one("matmul", y, b.one("permute", y, axes=(0, 2, 1))))

    def residual():
        graph, b, (x,) = new_graph(x=("bf16", (B, 8)))
        y = b.one("cast", x, dtype="f32")
        return finish(graph, b.one("add", linear(b, y, 8, 8, "w"), y))

    for build, n in ((two_matmuls, 3), (an_output, 2), (both_operands, None), (residual, 2)):
        specs = check(build, n)
        assert all(spec.product.prologue == () for spec in specs if spec.family == "matmul")


def test_a_value_in_memory_is_read_by_the_prologue_and_the_epilogue():
    """y = exp(x) is used twice; y * 2 is the operand."""

    def build():
        graph, b, (x,) = new_graph(x=("f32", (B, L, 8)))
        y = b.one("exp", x)
        return finish(graph, b.one("add", linear(b, b.one("mul", y, scalar(b, 2, B, L, 8)), 8, 8, "w"), y))

    specs = check(build, 2, ["nest", "matmul"])
    assert [i.op for i in specs[1].product.prologue] == ["load", "const", "mul"]


def test_what_is_dear_is_computed_once():
    def build():
        graph, b, (x,) = new_graph(x=("bf16", (B, 8)))
        return finish(graph, linear(b, b.one("exp", b.one("cast", x, dtype="f32")), 8, 8, "w"))

    check(build, 2, ["nest", "matmul"])


@pytest.mark.parametrize("extra, n_kernels", [(0, 1), (1, 2)])
def test_a_long_chain_is_computed_once(extra, n_kernels):
    def build():
        graph, b, (x,) = new_graph(x=("f32", (B, 8)))
        y = x
        for _ in range(MAX_NODES + extra):
            y = b.one("add", y, y)
        return finish(graph, linear(b, y, 8, 8, "w"))

    check(build, n_kernels)


def test_activations_between_matmuls_stay_epilogues():
    def build():
        graph, b, (x,) = new_graph(x=("f32", (B, L, 8)))
        y = linear(b, x, 8, 8, "w")
        y = b.one("where", b.one("gt", y, scalar(b, 0, B, L, 8)), y, b.one("mul", y, scalar(b, 0.1, B, L, 8)))
        return finish(graph, linear(b, b.one("relu", y), 8, 8, "v"))

    specs = check(build, 2, ["matmul", "matmul"])
    assert all(spec.product.prologue == () for spec in specs)


def test_norms_before_matmuls_stay_rows():
    def layer_norm():
        graph, b, (x,) = new_graph(x=("f32", (B, L, 8)))
        y = b.one("layer_norm", x, constant(b, 8), constant(b, 8, name="b"), n_axes=1, eps=1e-5)
        return finish(graph, linear(b, y, 8, 8, "w"))

    def rms_norm():
        graph, b, (x,) = new_graph(x=("bf16", (B, 8)))
        y = b.one("cast", x, dtype="f32")
        scale = b.one("rsqrt", b.one("reduce_sum", b.one("mul", y, y)))
        return finish(graph, linear(b, b.one("mul", y, wide(b, scale, B, 8)), 8, 8, "w"))

    def weighted():
        """e * (1 / sum of e): the sum's loop is the row that e is computed in."""
        graph, b, (x,) = new_graph(x=("f32", (B, 8)))
        e = b.one("exp", x)
        inverse = b.one("reciprocal", b.one("reduce_sum", e))
        return finish(graph, linear(b, b.one("mul", e, wide(b, inverse, B, 8)), 8, 8, "w"))

    for build in (layer_norm, rms_norm, weighted):
        check(build, 2, ["nest", "matmul"])


# The pass, text in and text out -----------------------------------------------------------------------

HEAD = """
graph "g"
  symbol s min=0 multiple_of=1
  input %q: u8[s, 4]
  input %x: f32[s, 4]
  input %w: f32[4, 2]
"""
PRODUCER = """
  %k1: f32[s, 4] = fused()
    body:
      %v2: f32[s, 4] = cast(%q) {dtype="f32"}
      %v3: f32[s, 4] = mul(%v2, %x)
      yield %v3
"""
PRODUCT = """
  %k4: f32[s, 2] = fused()
    body:
      %v5: f32[s, 2] = matmul(%k1, %w)
      %v6: f32[s, 2] = exp(%v5)
      yield %v6
  output %k4 as "y"
"""
COLUMNS = "slice(%k1) {axis=1, start=0, length=2, step=1}"


def nodes_of(text):
    return text.split("%w: f32[4, 2]\n", 1)[1]


def test_the_producer_moves_into_the_region_of_the_product(turns):
    after = """
      %k4: f32[s, 2] = fused()
        body:
          %v2: f32[s, 4] = cast(%q) {dtype="f32"}
          %v3: f32[s, 4] = mul(%v2, %x)
          %v5: f32[s, 2] = matmul(%v3, %w)
          %v6: f32[s, 2] = exp(%v5)
          yield %v6
      output %k4 as "y"
    """
    turns(prologue, HEAD + PRODUCER + PRODUCT, after)


def test_it_moves_through_views_of_the_product(turns):
    views = """
      %p1: f32[4, s] = permute(%k1) {axes=[1, 0]}
      %p2: f32[s, 4] = permute(%p1) {axes=[1, 0]}
      %v5: f32[s, 2] = matmul(%p2, %w)
    """
    product = PRODUCT.replace("%v5: f32[s, 2] = matmul(%k1, %w)", views.strip())
    nodes = PRODUCER.split("body:")[1].split("yield")[0]
    after = product.replace("body:", f"body:\n{nodes}").replace("permute(%k1)", "permute(%v3)")
    turns(prologue, HEAD + PRODUCER + product, after)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mul(%v2, %x)", "div(%v2, %x)"),  # dear
        ('output %k4 as "y"', 'output %k4 as "y"\n output %k1 as "z"'),  # needed in memory
        ("%v6: f32[s, 2] = exp(%v5)", f"%v7: f32[s, 2] = {COLUMNS}\n %v6: f32[s, 2] = add(%v5, %v7)"),  # also
        ("matmul(%k1, %w)", COLUMNS),  # no product
    ],
)
def test_what_stays(turns, old, new):
    text = HEAD + (PRODUCER + PRODUCT).replace(old, new)
    turns(prologue, text, nodes_of(text))


def test_what_is_made_for_the_product_alone_stays(turns):
    """An exponential for the product alone: its kernel has the rest for nothing."""
    exponential = """
      %k7: f32[s, 4] = fused()
        body:
          %v8: f32[s, 4] = exp(%x)
          yield %v8
    """
    text = HEAD + exponential + PRODUCER.replace("mul(%v2, %x)", "mul(%v2, %k7)") + PRODUCT
    turns(prologue, text, nodes_of(text))
    graph = parse(text + 'output %k7 as "z"\n')
    prologue(graph)
    assert [node.op for node in graph.body.nodes] == ["fused", "fused"]


def test_a_kernel_has_no_more_buffers_than_it_may():
    """The operand has as many inputs as a kernel has buffers, and the epilogue as many again."""
    inputs = {f"x{i}": ("f32", (B, 8)) for i in range(MAX_NODES)}
    others = {f"y{i}": ("f32", (B, 8)) for i in range(LIMITS["BUFFERS"][0] - 5)}

    def build():
        graph, b, values = new_graph(**inputs, **others)
        total = values[0]
        for value in values[1:MAX_NODES]:
            total = b.one("add", total, value)
        y = linear(b, total, 8, 8, "w")
        for value in values[MAX_NODES:]:
            y = b.one("add", y, value)
        return finish(graph, y)

    specs = check(build, 2)
    assert specs[1].product.prologue == ()
