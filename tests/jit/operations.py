"""One scalar operation as a kernel, hard operands for it, and errors in units of the last place."""

from __future__ import annotations

from functools import cache

import numpy as np
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.llvm.dtypes import DTYPES
from shapevm.jit.llvm.target import TARGETS, runs_here
from shapevm.jit.math.table import BY_TARGET, OPS, result_dtype
from shapevm.jit.spec import Nest

from .nests import Body, N, at

HOST_TARGETS = [target for target in TARGETS if runs_here(target)]  # best first
INF, NAN = np.inf, np.nan
SPECIAL = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, 1 / 3, INF, -INF, NAN, 1e-45, -1e-45, 1e-40, -1e-40,
    1.1754944e-38, 3.4028235e38, -3.4028235e38, 88.72, 88.73, -87.3, -103.9, -104.0, -150.0, 89.0, 710.0,
    -745.0, 0.625, 3.93, 1e10, 1e20, 1e30, 4194304.0, 16777216.0, 0.9999999, 1.0000001, -0.9999999, np.pi,
    np.pi / 2,
]  # fmt: skip
SPECIAL_F64 = [1e300, -1e300, 5e-324, 2.2e-308, 1.7e308, 1e-310, 709.78, 709.79, -745.1, 1e16, 2.0**53]


def op_nest(name: str, dtype: str) -> Nest:
    """out[i] = name(x0[i], x1[i], ..)."""
    b = Body()
    args = [b.load(dtype, (N,), at(0)) for _ in range(OPS[name].arity)]
    b.store(b.op(name, *args, dtype=result_dtype(name, dtype)), (N,), at(0))
    return b.nest(N, n_dims=1)


@cache
def op_kernel(name: str, dtype: str, target: str) -> Kernel:
    return Kernel(compile_kernel(op_nest(name, dtype), None, target))


def run_op(name: str, dtype: str, *args: np.ndarray) -> np.ndarray:
    """Run the operation on every target that the host has; all must agree, but for the bits of a NaN.

    Of an operation `BY_TARGET` the best target's results are returned; `run_op_on` has the others.
    """
    results = [run_op_on(target, name, dtype, *args) for target in HOST_TARGETS]
    for other in [] if name in BY_TARGET else results[1:]:
        assert identical(results[0], other).all()
    return results[0]


def run_op_on(target: str, name: str, dtype: str, *args: np.ndarray) -> np.ndarray:
    """Run the operation on one target."""
    out = np.empty(args[0].shape, DTYPES[result_dtype(name, dtype)].numpy)
    op_kernel(name, dtype, target).run([*args, out], (args[0].size,))
    return out


def identical(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Per element: the same value and sign, or both NaN."""
    same = a == b
    return (
        same & (np.signbit(a) == np.signbit(b)) | np.isnan(a) & np.isnan(b) if a.dtype.kind == "f" else same
    )


def floats(dtype: str, count: int, seed: int = 0) -> np.ndarray:
    """f32 or f64: special values, random bit patterns, and uniform values in several ranges."""
    rng = np.random.default_rng(seed)
    kind, bits = (np.float32, np.uint32) if dtype == "f32" else (np.float64, np.uint64)
    special = SPECIAL + (SPECIAL_F64 if dtype == "f64" else [])
    parts = [
        np.array(special, kind),
        rng.integers(0, np.iinfo(bits).max, count // 2, bits, endpoint=True).view(kind),
    ]
    parts += [rng.uniform(-r, r, count // 12).astype(kind) for r in (1, 10, 100, 800, 1e6)]
    parts.append((1 + rng.uniform(-1e-3, 1e-3, count // 12)).astype(kind))
    return np.concatenate(parts)


def float_operands(arity: int, dtype: str, count: int) -> list[np.ndarray]:
    """`floats` for every operand: all combinations of special values, then random pairs."""
    lists = [floats(dtype, count, seed) for seed in range(arity)]
    if arity == 1:
        return lists
    rng = np.random.default_rng(9)
    grid = np.meshgrid(*[np.array(SPECIAL, x.dtype) for x in lists])
    return [np.concatenate([g.ravel(), rng.permutation(x)]) for g, x in zip(grid, lists, strict=True)]


def ulps(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Errors against `want`, of a wider format; infinite where a special value or a zero's sign differs."""
    with np.errstate(over="ignore"):
        nearest = want.astype(got.dtype)
    finite = np.isfinite(got) & np.isfinite(nearest)
    with np.errstate(all="ignore"):
        error = np.abs(got.astype(want.dtype) - want) / np.spacing(np.abs(nearest)).astype(want.dtype)
    zeros = (got == 0) & (nearest == 0)
    exact = np.where(zeros, np.signbit(got) == np.signbit(nearest), identical(got, nearest))
    return np.where(finite & ~(zeros & ~exact), error, np.where(exact, 0, np.inf)).astype(np.float64)
