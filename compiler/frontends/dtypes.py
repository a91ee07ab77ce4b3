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


def dtype_name(dtype: torch.dtype) -> str:
    """Return our name of a torch dtype. Raises DtypeError for complex and quantised ones."""
    if dtype not in DTYPES:
        raise DtypeError(f"dtype {dtype} cannot be compiled; use one of {', '.join(map(str, DTYPES))}")
    return DTYPES[dtype]
