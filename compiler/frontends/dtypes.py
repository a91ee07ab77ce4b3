"""torch's dtypes by our names."""

from __future__ import annotations

import torch

from ..ir.errors import DtypeError

DTYPES: dict[torch.dtype, str] = {
    torch.bool: "bool",
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
}
#: Those of complex numbers, which `compiler.ops.complex` holds as pairs.
COMPLEX_DTYPES: dict[torch.dtype, str] = {torch.complex64: "c64", torch.complex128: "c128"}
#: Our name of every dtype by the number that schemas and TorchScript have for it.
DTYPE_OF: dict[int, str] = {
    0: "u8", 1: "i8", 2: "i16", 3: "i32", 4: "i64", 5: "f16", 6: "f32", 7: "f64", 9: "c64", 10: "c128",
    11: "bool", 15: "bf16",
}  # fmt: skip
NUMBER_OF = {name: number for number, name in DTYPE_OF.items()}
TORCH_DTYPES = {name: dtype for dtype, name in (DTYPES | COMPLEX_DTYPES).items()}


def dtype_name(dtype: torch.dtype) -> str:
    """Return our name of a torch dtype. Raises DtypeError for complex and quantised ones."""
    if dtype not in DTYPES:
        raise DtypeError(f"dtype {dtype} cannot be compiled; use one of {', '.join(map(str, DTYPES))}")
    return DTYPES[dtype]


def element_name(dtype: torch.dtype) -> str:
    """Return our name of a torch dtype, real or complex. Raises DtypeError for others."""
    return complex_name(dtype) if dtype.is_complex else dtype_name(dtype)


def complex_name(dtype: torch.dtype) -> str:
    """Return our name of a complex dtype. Raises DtypeError for half precision."""
    if dtype not in COMPLEX_DTYPES:
        raise DtypeError(
            f"dtype {dtype} cannot be compiled; use one of {', '.join(map(str, COMPLEX_DTYPES))}"
        )
    return COMPLEX_DTYPES[dtype]
