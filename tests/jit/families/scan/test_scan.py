"""Scan kernels: right against the definition; all tiers and any sharing of the tiles give the same bits."""

import numpy as np
import pytest
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.families.scan.scan import RULES
from shapevm.jit.families.scan.spec import Scan
from shapevm.jit.llvm.dtypes import DTYPES
from shapevm.jit.reference import evaluate
from shapevm.jit.spec import Buffer, Dim, Size, to_json
from shapevm.jit.spec_reader import from_json
from shapevm.jit.text import format_spec, parse_spec

from ..nest.test_nest import random, run

SIZES = [(0, 5, 3), (5, 0, 3), (2, 5, 0), (1, 1, 1), (3, 17, 5), (2, 131, 16), (1, 40, 300), (9, 64, 2)]
LENGTHS = [(0, 5), (5, 0), (1, 1), (7, 16), (3, 17), (13, 131), (1, 5003), (2, 15)]


COLUMNS = Dim(2)


def scan(op: str, dtype: str = "f32", columns: Size = COLUMNS) -> Scan:
    shape = (Dim(0), Dim(1), columns)
    outputs = [Buffer(dtype, shape, True)]
    outputs += [Buffer("i64", shape, True)] if op in ("max", "min") else []
    return Scan(3, (Buffer(dtype, shape), *outputs), *shape, op)


def check(spec: Scan, dims: tuple[int, ...], x: np.ndarray) -> None:
    expected = [np.empty(x.shape, DTYPES[buffer.dtype].numpy) for buffer in spec.buffers[1:]]
    evaluate(spec, dims, [x, *expected])
    dtype = spec.buffers[0].dtype
    tolerance = {"f32": 1e-6, "f64": 1e-13}.get(dtype, 0)
    if dtype in ("f16", "bf16"):  # kept in f32 by the kernel, in f64 by the definition
        tolerance = 2e-2
    for actual, wanted in zip(run(spec, dims, [x]), expected, strict=True):
        if dtype == "bf16" and wanted.dtype == np.uint16:
            actual, wanted = ((y.astype(np.uint32) << 16).view(np.float32) for y in (actual, wanted))
        np.testing.assert_allclose(actual, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("op", RULES)
@pytest.mark.parametrize("dims", SIZES)
def test_down_columns(op, dims):
    check(scan(op), dims, random(dims, "f32", "x"))


@pytest.mark.parametrize("op", RULES)
@pytest.mark.parametrize("dims", LENGTHS)
def test_along_rows(op, dims):
    check(scan(op, columns=1), (*dims, 0), random((*dims, 1), "f32", "x"))


@pytest.mark.parametrize("op", ["sum", "max"])
@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16", "i64", "i32", "i8", "u8"])
@pytest.mark.parametrize("columns", [1, 3])
def test_dtypes(op, dtype, columns):
    check(scan(op, dtype, columns), (2, 35, 0), random((2, 35, columns), dtype, "x"))


@pytest.mark.parametrize("op", RULES)
@pytest.mark.parametrize("columns", [1, 2])
def test_infinities_nans_and_ties(op, columns):
    low, top, nan = -np.inf, np.inf, np.nan  # not so that a NaN meets one that arithmetic makes
    rows = [
        [low, low, 1, 1, 2, 2, low, -1, 1],
        [1, 2, 2, top, top, 1, 2, top, 1],
        [3, 1, nan, 1, nan, -1, 2, nan, 1],
    ]
    x = np.array([row * 4 for row in rows], np.float32).repeat(columns).reshape(3, 36, columns)
    check(scan(op, columns=columns), (3, 36, 0), x)


def test_round_trips():
    assert parse_spec(format_spec(scan("max"))) == scan("max")
    assert from_json(to_json(scan("sum", columns=1))) == scan("sum", columns=1)


def test_unknown_schedules_are_refused():
    with pytest.raises(ValueError, match="schedule 'rows' is unknown; known is columns"):
        compile_kernel(scan("sum"), None, schedule="rows")
