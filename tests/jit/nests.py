"""Nests that the tests share, and a builder that writes their bodies."""

from __future__ import annotations

from typing import Any

from shapevm.jit.spec import Buffer, Dim, Index, Instr, Nest, Size

N, M, K = Dim(0), Dim(1), Dim(2)


def at(*loops: int | Index | None) -> tuple[Index, ...]:
    """Index over the loops given (None: place 0)."""
    return tuple(x if isinstance(x, Index) else Index(loop=x) for x in loops)


class Body:
    """Appends instructions and buffers; every method returns the instruction's id."""

    def __init__(self) -> None:
        self.instrs: list[Instr] = []
        self.buffers: list[Buffer] = []

    def op(self, op: str, *args: int, dtype: str | None = None, **attrs: Any) -> int:
        dtype = dtype or self.instrs[args[0]].dtype
        self.instrs.append(Instr(op, dtype, args, **attrs))
        return len(self.instrs) - 1

    def const(self, value: Any, dtype: str = "f32") -> int:
        return self.op("const", dtype=dtype, value=value)

    def load(self, dtype: str, shape: tuple[Size, ...], index: tuple[Index, ...]) -> int:
        self.buffers.append(Buffer(dtype, shape))
        return self.op("load", dtype=dtype, buffer=len(self.buffers) - 1, index=index)

    def store(self, value: int, shape: tuple[Size, ...], index: tuple[Index, ...]) -> int:
        dtype = self.instrs[value].dtype
        self.buffers.append(Buffer(dtype, shape, is_output=True))
        return self.op("store", value, buffer=len(self.buffers) - 1, index=index)

    def nest(self, *domain: Size, n_dims: int = 2) -> Nest:
        return Nest(n_dims, tuple(self.buffers), domain, tuple(self.instrs))


def bias_add(n: Size = N, m: Size = M) -> Nest:
    b = Body()
    x = b.load("f32", (n, m), at(0, 1))
    bias = b.load("f32", (m,), at(1))
    b.store(b.op("add", x, bias), (n, m), at(0, 1))
    return b.nest(n, m)


def gelu(n: Size = N, m: Size = M) -> Nest:
    b = Body()
    x = b.load("f32", (n, m), at(0, 1))
    inner = b.op("erf", b.op("mul", x, b.const(0.7071067811865476)))
    half = b.op("mul", x, b.const(0.5))
    b.store(b.op("mul", half, b.op("add", inner, b.const(1.0))), (n, m), at(0, 1))
    return b.nest(n, m)


def layer_norm(n: Size = N, m: int = 384) -> Nest:
    b = Body()
    x = b.load("f32", (n, m), at(0, 1))
    inverse = b.const(1.0 / m)
    mean = b.op("mul", b.op("reduce.sum", x), inverse)
    centred = b.op("sub", x, mean)
    variance = b.op("mul", b.op("reduce.sum", b.op("mul", centred, centred)), inverse)
    scale = b.op("rsqrt", b.op("add", variance, b.const(1e-5)))
    normal = b.op("mul", centred, scale)
    weight = b.load("f32", (m,), at(1))
    bias = b.load("f32", (m,), at(1))
    b.store(b.op("add", b.op("mul", normal, weight), bias), (n, m), at(0, 1))
    return b.nest(n, m)


def softmax(n: Size = N, m: Size = M, dtype: str = "f32") -> Nest:
    b = Body()
    x = b.load(dtype, (n, m), at(0, 1))
    e = b.op("exp", b.op("sub", x, b.op("reduce.max", x)))
    b.store(b.op("mul", e, b.op("reciprocal", b.op("reduce.sum", e))), (n, m), at(0, 1))
    return b.nest(n, m)


def mean(n: Size = N, m: Size = M, dtype: str = "f32") -> Nest:
    b = Body()
    x = b.load(dtype, (n, m), at(0, 1))
    length = b.op("cast", b.op("dim", dtype="i64", size=m), dtype=dtype)
    b.store(b.op("div", b.op("reduce.sum", x), length), (n,), at(0))
    return b.nest(n, m)


def reduction(op: str, dtype: str, n: Size = N, m: Size = M) -> Nest:
    b = Body()
    x = b.load(dtype, (n, m), at(0, 1))
    b.store(b.op(op, x), (n,), at(0))
    return b.nest(n, m)


def transpose(n: Size = N, m: Size = M, dtype: str = "f32") -> Nest:
    b = Body()
    x = b.load(dtype, (m, n), at(1, 0))
    b.store(x, (n, m), at(0, 1))
    return b.nest(n, m)


def embedding(n: Size = N, m: Size = 384, rows: Size = 100) -> Nest:
    b = Body()
    i = b.load("i64", (n,), at(0))
    x = b.load("f32", (rows, m), at(Index(value=i), 1))
    b.store(x, (n, m), at(0, 1))
    return b.nest(n, m)


def copy(n: Size = N, m: Size = M, dtype: str = "f32") -> Nest:
    b = Body()
    b.store(b.load(dtype, (n, m), at(0, 1)), (n, m), at(0, 1))
    return b.nest(n, m)
