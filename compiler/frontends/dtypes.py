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
#: Our name of every dtype by the number that schemas and TorchScript have for it.
DTYPE_OF: dict[int, str] = {
    0: "u8", 1: "i8", 2: "i16", 3: "i32", 4: "i64", 5: "f16", 6: "f32", 7: "f64", 11: "bool", 15: "bf16",
}  # fmt: skip
NUMBER_OF = {name: number for number, name in DTYPE_OF.items()}
TORCH_DTYPES = {name: dtype for dtype, name in DTYPES.items()}


def dtype_name(dtype: torch.dtype) -> str:
    """Return our name of a torch dtype. Raises DtypeError for complex and quantised ones."""
    if dtype not in DTYPES:
        raise DtypeError(f"dtype {dtype} cannot be compiled; use one of {', '.join(map(str, DTYPES))}")
    return DTYPES[dtype]
