"""The bits of elements as elements of another dtype of equal width."""

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

import shapevm
from tests.compiler.frontends.onnx.onnx_models import compiled, model_of, node

TYPES = {
    "f64": (TensorProto.DOUBLE, np.float64), "i64": (TensorProto.INT64, np.int64),
    "f32": (TensorProto.FLOAT, np.float32), "i32": (TensorProto.INT32, np.int32),
    "f16": (TensorProto.FLOAT16, np.float16), "bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
    "i16": (TensorProto.INT16, np.int16), "i8": (TensorProto.INT8, np.int8),
    "u8": (TensorProto.UINT8, np.uint8),
}  # fmt: skip
WIDTHS = {name: np.dtype(each).itemsize for name, (_, each) in TYPES.items()}
PAIRS = [(x, y) for x in TYPES for y in TYPES if WIDTHS[x] == WIDTHS[y]]


def _cast(source: str, target: str) -> shapevm.Executable:
    made = node("BitCast", ["x"], ["y"], to=TYPES[target][0])
    return compiled(model_of([made], {"x": ["n"]}, version=26, dtypes={"x": TYPES[source][0]}))


def _patterns(width: int, count: int) -> np.ndarray:
    if width <= 2:
        return np.arange(1 << 8 * width, dtype=f"u{width}")[:count]
    drawn = np.random.default_rng(0).integers(0, 1 << 8 * width, count, f"u{width}")
    return np.concatenate([drawn, np.array([0, 1, 1 << 8 * width - 1, (1 << 8 * width) - 1], drawn.dtype)])


def _no_nan(bits: np.ndarray, dtype: str) -> np.ndarray:
    """Return patterns without those that are a NaN of a dtype."""
    with np.errstate(invalid="ignore"):
        return bits[~np.isnan(bits.view(TYPES[dtype][1]))]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_pairs_of_equal_width(source: str, target: str) -> None:
    every = _patterns(WIDTHS[source], 1 << 16)
    with _cast(source, target) as exe:
        for count in (0, 1, 13, len(every)):
            bits = every[:count]
            for dtype in (source, target):
                bits = _no_nan(bits, dtype)
            stored = np.uint16 if source == "bf16" else TYPES[source][1]
            found = exe(bits.view(stored))
            assert found.dtype == (np.uint16 if target == "bf16" else TYPES[target][1])
            np.testing.assert_array_equal(found.view(bits.dtype), bits)


@pytest.mark.parametrize(
    ("source", "target"), [("f64", "i64"), ("i32", "f32"), ("f32", "i32"), ("i64", "f64")]
)
def test_wide_nans_keep_their_bits(source: str, target: str) -> None:
    width = WIDTHS[source]
    bits = np.array([0x7F800001, 0xFFC12345, 0x7FFFFFFF], np.uint32)
    bits = bits if width == 4 else bits.astype(np.uint64) << np.uint64(32) | np.uint64(5)
    with _cast(source, target) as exe:
        np.testing.assert_array_equal(exe(bits.view(TYPES[source][1])).view(bits.dtype), bits)


@pytest.mark.parametrize(("source", "target"), [("f16", "i16"), ("i16", "f16"), ("i16", "bf16")])
def test_narrow_nans_stay_nans(source: str, target: str) -> None:
    kind = TYPES[target if source == "i16" else source][1]
    bits = _patterns(2, 1 << 16)
    with np.errstate(invalid="ignore"):
        bits = bits[np.isnan(bits.view(kind))]
    with _cast(source, target) as exe:
        found = exe(bits.view(TYPES[source][1]))
    assert found.size > 100
    assert np.isnan(found.view(kind)).all()


def test_other_widths_are_refused() -> None:
    with pytest.raises(shapevm.UnsupportedOp, match="the bits of f32 as i64: only dtypes of equal width"):
        _cast("f32", "i64")
