"""Type promotion against torch.result_type, exhaustively."""

from itertools import product

import pytest
import torch
from shapevm.compiler.ir.promotion import (
    SCALAR,
    TENSOR,
    ZERO_DIM,
    Operand,
    promote,
    result_dtype,
    scalar_dtype,
)

DTYPES = {
    "bool": torch.bool,
    "u8": torch.uint8,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
}
SCALARS = {"bool": True, "i64": 3, "f32": 2.5}


@pytest.mark.parametrize("a", DTYPES)
@pytest.mark.parametrize("b", DTYPES)
def test_promote_types(a: str, b: str) -> None:
    assert DTYPES[promote(a, b)] == torch.promote_types(DTYPES[a], DTYPES[b])


@pytest.mark.parametrize("categories", list(product((TENSOR, ZERO_DIM), repeat=2)))
def test_two_tensors(categories: tuple[int, int]) -> None:
    for names in product(DTYPES, repeat=2):
        tensors = [
            torch.zeros((1,) if category == TENSOR else (), dtype=DTYPES[name])
            for name, category in zip(names, categories, strict=True)
        ]
        found = result_dtype(map(Operand, names, categories))
        assert DTYPES[found] == torch.result_type(*tensors), names


@pytest.mark.parametrize("category", [TENSOR, ZERO_DIM])
def test_tensor_and_scalar(category: int) -> None:
    for name, (scalar, value) in product(DTYPES, SCALARS.items()):
        tensor = torch.zeros((1,) if category == TENSOR else (), dtype=DTYPES[name])
        found = result_dtype([Operand(name, category), Operand(scalar, SCALAR)])
        assert DTYPES[found] == torch.result_type(tensor, value), (name, value)


def test_three_operands_as_where() -> None:
    for names in product(DTYPES, repeat=3):
        tensor, zero_dim = torch.zeros(1, dtype=DTYPES[names[0]]), torch.zeros((), dtype=DTYPES[names[1]])
        other = torch.zeros(1, dtype=DTYPES[names[2]])
        found = result_dtype(map(Operand, names, (TENSOR, ZERO_DIM, TENSOR)))
        assert DTYPES[found] == torch.result_type(
            torch.zeros(1, dtype=torch.result_type(tensor, other)), zero_dim
        ), names


@pytest.mark.parametrize(("value", "dtype"), [(True, "bool"), (3, "i64"), (2.5, "f32")])
def test_scalars(value: object, dtype: str) -> None:
    assert scalar_dtype(value) == dtype


def test_needs_an_operand() -> None:
    with pytest.raises(ValueError, match="at least one operand"):
        result_dtype([])
