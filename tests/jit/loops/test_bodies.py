"""Bodies: every access, cast and tail against the numpy evaluation, and errors of gathers and of callers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.evaluation import from_memory, to_memory
from shapevm.jit.execute import Kernel
from shapevm.jit.llvm.abi import PARAMS
from shapevm.jit.llvm.constants import rounded
from shapevm.jit.llvm.dtypes import DTYPES
from shapevm.jit.llvm.function import Function, Value
from shapevm.jit.loops.bodies import LANES, BodyEmitter, Position, splat, tail_mask
from shapevm.jit.loops.saturation import find_saturating
from shapevm.jit.math.table import OPS, result_dtype
from shapevm.jit.reference import evaluate
from shapevm.jit.spec import Buffer, Index, Instr, Nest, Size

from ..nests import Body, M, N, at
from ..operations import HOST_TARGETS, identical


def sample(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Small values of `dtype` in memory form."""
    rng = np.random.default_rng(seed)
    if DTYPES[dtype].kind == "float":
        return to_memory(
            rng.standard_normal(shape) if dtype == "f64" else np.float32(rng.standard_normal(shape)), dtype
        )
    return rng.integers(0, 2 if dtype == "bool" else 100, shape).astype(DTYPES[dtype].numpy)


def shape_of(buffer: Buffer, dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(s if isinstance(s, int) else dims[s.index] for s in buffer.shape)


def check(spec: Nest, dims: tuple[int, ...], inputs: list[np.ndarray], guard: int = 64) -> None:
    """Run on all targets, exact and generic; outputs must be the evaluation's and bytes around them stay."""
    wanted = fill(spec, dims, inputs)
    evaluate(spec, dims, wanted)
    for target in HOST_TARGETS:
        for exact in (dims, None):
            kernel = Kernel(compile_kernel(spec, exact, target))
            buffers, guards = list(inputs), []
            for i, buffer in enumerate(spec.buffers):
                if buffer.is_output:
                    shape = shape_of(buffer, dims)
                    n_bytes = int(np.prod(shape)) * DTYPES[buffer.dtype].bytes
                    around = np.full(n_bytes + 2 * guard, 77, np.uint8)
                    guards.append(around)
                    inside = around[guard : guard + n_bytes]
                    buffers.insert(i, inside.view(DTYPES[buffer.dtype].numpy).reshape(shape))
            kernel.run(buffers, dims)
            for around in guards:
                assert (around[:guard] == 77).all() and (around[around.size - guard :] == 77).all()
            for buffer, got, want in zip(spec.buffers, buffers, wanted, strict=True):
                values = from_memory(got, buffer.dtype), from_memory(want, buffer.dtype)
                assert identical(*values).all(), (target, exact, buffer)


def fill(spec: Nest, dims: tuple[int, ...], inputs: list[np.ndarray]) -> list[np.ndarray]:
    """All buffers: the inputs, and zeros for the outputs."""
    left = iter(inputs)
    return [
        np.zeros(shape_of(b, dims), DTYPES[b.dtype].numpy) if b.is_output else next(left)
        for b in spec.buffers
    ]


# Accesses -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", [1, 15, 16, 33])
def test_contiguous_broadcast_strided_and_transposed_loads(dtype, cols):
    b = Body()
    loads = [
        b.load(dtype, (N, M), at(0, 1)),
        b.load(dtype, (N,), at(0)),
        b.load(dtype, (M,), at(1)),
        b.load(dtype, (), ()),
        b.load(dtype, (N, 200), at(0, Index(loop=1, scale=3, offset=2))),
        b.load(dtype, (N, M), at(0, Index(loop=1, scale=-1, offset=cols - 1))),
        b.load(dtype, (M, N), at(1, 0)),
    ]
    for load in loads:
        b.store(load, (N, M), at(0, 1))
    dims = (3, cols)
    spec = b.nest(N, M)
    check(
        spec,
        dims,
        [sample(dtype, shape_of(x, dims), i) for i, x in enumerate(spec.buffers) if not x.is_output],
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_strided_stores(dtype):
    b = Body()
    x = b.load(dtype, (N, M), at(0, 1))
    b.store(x, (M, N), at(1, 0))
    b.store(x, (N, 100), at(0, Index(loop=1, scale=2)))
    dims = (3, 37)
    inputs = [sample(dtype, dims)]
    wanted = fill(b.nest(N, M), dims, inputs)
    evaluate(b.nest(N, M), dims, wanted)
    for target in HOST_TARGETS:
        got = fill(b.nest(N, M), dims, inputs)
        Kernel(compile_kernel(b.nest(N, M), None, target)).run(got, dims)
        for one, other in zip(got, wanted, strict=True):
            assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("index_dtype", ["i64", "i32", "u8"])
@pytest.mark.parametrize("rows", [9, M])
def test_gathers_along_and_across_the_lanes(index_dtype, rows: Size):
    b = Body()
    i = b.load(index_dtype, (N,), at(0))
    b.store(b.load("f32", (rows, 21), (Index(value=i), Index(loop=1))), (N, 21), at(0, 1))  # one row per i
    j = b.load(index_dtype, (21,), at(1))
    b.store(
        b.load("f16", (rows, 5), (Index(value=j), Index(offset=2))), (N, 21), at(0, 1)
    )  # one row per lane
    b.store(b.load("f64", (rows, rows), (Index(value=i), Index(value=j))), (N, 21), at(0, 1))
    dims, rng = (4, 9), np.random.default_rng(3)
    inputs = [rng.integers(0, 9, 4).astype(DTYPES[index_dtype].numpy), sample("f32", (9, 21))]
    inputs += [
        rng.integers(0, 9, 21).astype(DTYPES[index_dtype].numpy),
        sample("f16", (9, 5)),
        sample("f64", (9, 9)),
    ]
    check(b.nest(N, 21), dims, inputs)


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("bad", [9, 10**12, -1, -(2**63)])
def test_a_gather_out_of_range_is_reported_and_stays_in_memory(bad, across):
    b = Body()
    i = b.load("i64", (N,), at(1 if across else 0))
    domain = (2, N) if across else (N, 2)
    b.store(b.load("f32", (M, 2), (Index(value=i), Index(loop=0 if across else 1))), domain, at(0, 1))
    places = np.arange(5) % 3
    places[3] = bad
    for target in HOST_TARGETS:
        kernel = Kernel(compile_kernel(b.nest(*domain), None, target))
        out = np.empty((2, 5) if across else (5, 2), np.float32)
        with pytest.raises(IndexError, match=f"index {bad} is out of range for a dimension of size 9"):
            kernel.run([places, sample("f32", (9, 2)), out], (5, 9))
        with pytest.raises(IndexError, match="for a dimension of size 0"):
            kernel.run([places, np.empty((0, 2), np.float32), out], (5, 0))


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("dtype", ["i64", "i32", "u8"])
def test_checked_indices_are_what_they_were_or_an_error(dtype, across):
    """Also where masked lanes, behind the last element, hold anything."""
    b = Body()
    i = b.load(dtype, (N,), at(1 if across else 0))
    domain = (2, N) if across else (N, 2)
    b.store(b.op("checked", i, i, dtype="i64", size=M), domain, at(0, 1))
    places = (np.arange(21) % 9).astype(DTYPES[dtype].numpy)
    check(b.nest(*domain), (21, 9), [places])
    for bad in (9, 255) if dtype == "u8" else (9, -1):
        broken = places.copy()
        broken[17] = bad
        for target in HOST_TARGETS:
            kernel = Kernel(compile_kernel(b.nest(*domain), None, target))
            with pytest.raises(IndexError, match=f"index {bad} is out of range for a dimension of size 9"):
                kernel.run([broken, np.empty((2, 21) if across else (21, 2), np.int64)], (21, 9))


@pytest.mark.parametrize("dtype", ["i64", "u8"])
def test_divisors_are_what_they_were_or_an_error(dtype):
    """Also where masked lanes, behind the last element, are 0, and where loops around have no turn."""
    b = Body()
    b.store(b.op("divisor", b.load(dtype, (N,), at(0)), dtype=dtype, size=M), (N, M), at(0, 1))
    divisors = (np.arange(21) % 9 + 1).astype(DTYPES[dtype].numpy)
    check(b.nest(N, M), (21, 9), [divisors])
    divisors[17] = 0
    for target in HOST_TARGETS:
        kernel = Kernel(compile_kernel(b.nest(N, M), None, target))
        with pytest.raises(ZeroDivisionError):
            kernel.run([divisors, np.empty((21, 9), divisors.dtype)], (21, 9))
        kernel.run([divisors, np.empty((21, 0), divisors.dtype)], (21, 0))


# Instructions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [("maximum", "minimum"), ("minimum", "maximum")])
@pytest.mark.parametrize("limits", [(0.0, 255.0), (0.0, 127.0), (1.0, 255.0)])
def test_casts_of_limited_values(order, limits):
    """Those to 0 .. 255 and u8 are one conversion, with the bytes that limits and cast have one by one."""
    b = Body()
    x = b.load("f32", (N,), at(0))
    number = {"maximum": limits[0], "minimum": limits[1]}
    for op in order:
        x = b.op(op, x, b.const(number[op])) if op == order[0] else b.op(op, b.const(number[op]), x)
    b.store(b.op("cast", x, dtype="u8"), (N,), at(0))
    spec = b.nest(N)
    assert bool(find_saturating(spec.body)) == (limits == (0.0, 255.0))
    special = [
        np.nan,
        -np.nan,
        np.inf,
        -np.inf,
        0.0,
        -0.0,
        1e-40,
        0.99999994,
        254.99998,
        255.0,
        256.0,
        2.0**31,
    ]
    values = np.concatenate([special, np.random.default_rng(0).uniform(-300, 600, 200)]).astype(np.float32)
    check(spec, (len(values), 1), [values])


@pytest.mark.parametrize("source", DTYPES)
def test_casts_to_every_dtype(source):
    b = Body()
    x = b.load(source, (N,), at(0))
    for target in DTYPES:
        b.store(b.op("cast", x, dtype=target), (N,), at(0))
    rng = np.random.default_rng(4)
    if DTYPES[source].kind == "float":
        values = np.concatenate(
            [rng.standard_normal(500) * 10.0 ** rng.integers(-8, 25, 500), rng.uniform(-300, 300, 500)]
        )
        special = [
            np.nan,
            np.inf,
            -np.inf,
            0.0,
            -0.0,
            2.0**31,
            -(2.0**31),
            2.0**63,
            1e-40,
            65520.0,
            1.00390625,
        ]
        values = np.concatenate([values, special])
        with np.errstate(all="ignore"):
            x = to_memory(values if source == "f64" else values.astype(np.float32), source)
    elif source == "bool":
        x = rng.integers(0, 2, 50).astype(bool)
    else:
        limits = np.iinfo(DTYPES[source].numpy)
        x = rng.integers(limits.min, limits.max, 1001, limits.dtype, endpoint=True)
    check(b.nest(N, n_dims=1), (x.size,), [x])


def test_index_instructions_constants_and_select():
    b = Body()
    lane, row = b.op("iota", dtype="i64", loop=1), b.op("iota", dtype="i64", loop=0)
    width = b.op("dim", dtype="i64", size=M)
    inside = b.op("lt", b.op("add", lane, row), b.op("sub", width, b.const(3, "i64")), dtype="bool")
    for dtype, value in [
        ("f32", "-inf"),
        ("f64", 0.1),
        ("f16", 0.1),
        ("bf16", 0.1),
        ("u8", 255),
        ("bool", True),
    ]:
        other = b.const(0, dtype)
        b.store(b.op("select", inside, b.const(value, dtype), other, dtype=dtype), (N, M), at(0, 1))
    check(b.nest(N, M), (3, 40), [])


def test_constants_round_to_their_dtype():
    assert rounded("bf16", 1.00390625) == 1.0 and rounded("f32", 1e300) == np.inf
    assert rounded("f16", 0.1) == float(np.float16(0.1)) and np.isnan(rounded("bf16", "nan"))
    with pytest.raises(ValueError, match="constant 300 does not fit u8, which holds 0 to 255"):
        rounded("u8", 300)


# Random bodies ------------------------------------------------------------------------------------------

CHEAP = (
    "add",
    "sub",
    "mul",
    "minimum",
    "maximum",
    "neg",
    "abs",
    "eq",
    "lt",
    "and",
    "or",
    "xor",
    "not",
    "floordiv",
)


@st.composite
def bodies(draw) -> tuple[Body, int]:
    """A body over (N, M) of random operations on values of random dtypes."""
    b = Body()
    dtypes = draw(st.lists(st.sampled_from(list(DTYPES)), min_size=1, max_size=3))
    indices = [((N, M), at(0, 1)), ((N,), at(0)), ((M,), at(1)), ((M, N), at(1, 0)), ((), ())]
    for dtype in dtypes:
        b.load(dtype, *draw(st.sampled_from(indices)))
    for _ in range(draw(st.integers(1, 8))):
        value = draw(st.integers(0, len(b.instrs) - 1))
        dtype = b.instrs[value].dtype
        target = draw(st.sampled_from(list(DTYPES)))
        names = [n for n in CHEAP if dtype in OPS[n].dtypes]
        name = draw(st.sampled_from([*names, "cast"]))
        if name == "cast":
            b.op("cast", value, dtype=target)
        else:
            same = [i for i, instr in enumerate(b.instrs) if instr.dtype == dtype]
            others = [draw(st.sampled_from(same)) for _ in range(OPS[name].arity - 1)]
            b.op(name, value, *others, dtype=result_dtype(name, dtype))
    count = len(b.instrs)
    for value in draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=2)):
        b.store(value, *draw(st.sampled_from([((N, M), at(0, 1)), ((M, N), at(1, 0))])))
    return b, draw(st.integers(0, 2**31))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(bodies(), st.integers(1, 5), st.integers(1, 70))
@pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")
def test_random_bodies(made, n, m):
    body, seed = made
    spec = body.nest(N, M)
    inputs = [
        sample(x.dtype, shape_of(x, (n, m)), seed + i) for i, x in enumerate(spec.buffers) if not x.is_output
    ]
    check(spec, (n, m), inputs)


# The interface ------------------------------------------------------------------------------------------


def emitter(*body: Instr, vector_loop: int | None = 1) -> BodyEmitter:
    buffers = (Buffer("f32", (N, M)), Buffer("f32", (N,)), Buffer("i64", (N,)), Buffer("f32", (N, M), True))
    f = Function("kernel", PARAMS)
    sizes = [Value("i64", "%n"), Value("i64", "%m")]
    return BodyEmitter(f, body, buffers, sizes, vector_loop)


LOAD = Instr("load", "f32", buffer=0, index=at(0, 1))
ROW = Instr("load", "f32", buffer=1, index=at(0))


def test_hoistable_and_needed():
    body = (
        LOAD,
        ROW,
        Instr("exp", "f32", (1,)),
        Instr("mul", "f32", (0, 2)),
        Instr("reduce.sum", "f32", (3,)),
        Instr("div", "f32", (2, 4)),
        Instr("store", "f32", (5,), buffer=3, index=at(0, 1)),
        Instr("iota", "i64", loop=0),
    )
    e = emitter(*body)
    assert e.hoistable(1) == (1, 2, 7) and e.hoistable(0) == ()
    assert e.hoistable(1, ids=(0, 2)) == (2,)
    assert e.needed([4]) == (0, 1, 2, 3, 4) and e.needed([5], given=[4, 2]) == (5,)
    assert e.depends[4] == {0} and e.depends[3] == {0, 1}


def test_emit_gives_back_given_values_and_takes_acc():
    e = emitter(Instr("acc", "f32"), Instr("neg", "f32", (0,)))
    acc = Value(f"<{LANES} x float>", "%acc")
    values = e.emit(e.ids, Position((0, 0)), acc=acc)
    assert values[0] is acc and values[1].type == acc.type
    again = e.emit([1], Position((0, 0)), given={0: acc, 1: acc})
    assert again == {0: acc, 1: acc}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ((Instr("acc", "f32"),), "instruction 0: 'acc' must be given"),
        ((LOAD, Instr("reduce.sum", "f32", (0,))), "instruction 1: 'reduce.sum' must be given"),
        ((LOAD, Instr("gelu", "f32", (0,))), "instruction 1: 'gelu' is no operation"),
        ((LOAD, Instr("lt", "f32", (0, 0))), "instruction 1: lt of f32 gives bool, not f32"),
        ((LOAD, Instr("shl", "f32", (0, 0))), "shl: operands are f32"),
        (
            (LOAD, Instr("iota", "i64", loop=0), Instr("add", "f32", (0, 1))),
            r"one dtype, not \['f32', 'i64'\]",
        ),
        ((LOAD, Instr("select", "f32", (0, 0, 0))), "select of f32, f32, f32 is no f32"),
        ((Instr("load", "f64", buffer=0, index=at(0, 1)),), "load of f64 from buffer 0 of f32"),
        ((Instr("load", "f32", buffer=0, index=at(0)),), "buffer 0 has 2 axes, not 1"),
        (
            (Instr("iota", "i64", loop=0), Instr("store", "i64", (0,), buffer=3, index=at(0, 1))),
            "cast it first",
        ),
        (
            (LOAD, Instr("load", "f32", buffer=1, index=(Index(value=0),))),
            "index is f32; it must be an integer",
        ),
    ],
)
def test_wrong_bodies_are_refused(body, message):
    e = emitter(*body)
    with pytest.raises(ValueError, match=message):
        e.emit(e.ids, Position((0, 0)))


def test_a_missing_value_is_named():
    e = emitter(LOAD, Instr("neg", "f32", (0,)))
    with pytest.raises(ValueError, match=r"instruction 1 \(neg\) needs the value of 0, which is not there"):
        e.emit([1], Position((0, 0)))


def test_constants_and_masks_as_text():
    f = Function("kernel", PARAMS)
    assert splat(f, "i32", -3).name == "splat (i32 -3)" and splat(f, "bool", True).name == "splat (i1 true)"
    assert tail_mask(f, 2).name.startswith("<i1 true, i1 true, i1 false")
    assert not f.lines
