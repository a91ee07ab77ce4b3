"""The element types of buffers and instructions: THE table of their sizes and LLVM types."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Dtype:
    """One element type.

    `memory` is its LLVM type in a buffer. `register` is its LLVM type in a body: f16 and bf16 live in
    registers as `float` holding a value that f16 / bf16 can represent (each operation computes in f32 and
    rounds once, as PyTorch does on CPU); bool is `i1`. `numpy`: the type of its arrays (bf16: its bits as
    uint16).
    """

    name: str
    bytes: int
    memory: str
    register: str
    kind: str  # "float", "int" (signed), "uint" or "bool"
    numpy: str


DTYPES: dict[str, Dtype] = {
    dtype.name: dtype
    for dtype in (
        Dtype("f64", 8, "double", "double", "float", "float64"),
        Dtype("f32", 4, "float", "float", "float", "float32"),
        Dtype("f16", 2, "half", "float", "float", "float16"),
        Dtype("bf16", 2, "i16", "float", "float", "uint16"),
        Dtype("i64", 8, "i64", "i64", "int", "int64"),
        Dtype("i32", 4, "i32", "i32", "int", "int32"),
        Dtype("i16", 2, "i16", "i16", "int", "int16"),
        Dtype("i8", 1, "i8", "i8", "int", "int8"),
        Dtype("u8", 1, "i8", "i8", "uint", "uint8"),
        Dtype("bool", 1, "i8", "i1", "bool", "bool"),
    )
}


def vector(element: str, lanes: int) -> str:
    """Return the LLVM type of `lanes` elements of LLVM type `element`."""
    return f"<{lanes} x {element}>"
