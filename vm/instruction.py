"""One instruction between words and operands: the only encoder and decoder in Python, driven by the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import VerifyError
from .isa import LIST_KINDS, OPCODES, OPS, Op

WORD = 1 << 32
SIGN = 1 << 31

#: An operand's value: a number, or the numbers of a list.
Value = int | tuple[int, ...]


@dataclass(frozen=True)
class Instruction:
    """An instruction at word offset `pc` of its function; `values` are its operands' values, in the row's
    order.
    """

    pc: int
    op: Op
    values: tuple[Value, ...]
    size: int

    def __getitem__(self, name: str) -> Any:
        """Return the value of the operand `name`."""
        for operand, value in zip(self.op.operands, self.values, strict=True):
            if operand.name == name:
                return value
        raise KeyError(name)

    def of_kind(self, kinds: str) -> Iterator[int]:
        """Yield the values of all operands of these kinds, lists' elements one by one."""
        for operand, value in zip(self.op.operands, self.values, strict=True):
            if operand.kind in kinds:
                yield from value if isinstance(value, tuple) else (value,)


def encode(op: Op, values: Sequence[Value]) -> list[int]:
    """Return the words of an instruction. Raises ValueError for a value that does not fit a word."""
    if len(values) != len(op.operands):
        raise ValueError(f"{op.name}: {len(values)} operands given, it has {len(op.operands)}")
    words = [OPCODES[op.name]]
    for operand, value in zip(op.operands, values, strict=True):
        if operand.kind in LIST_KINDS:
            if not isinstance(value, (tuple, list)):
                raise ValueError(f"{op.name}: operand {operand.name} is a list of registers, {value!r} given")
            words += [len(value), *(_word(op, operand.name, item, 0, WORD) for item in value)]
        else:
            low, high = (-SIGN, SIGN) if operand.kind == "i" else (0, WORD)
            words.append(_word(op, operand.name, value, low, high))
    return words


def _word(op: Op, name: str, value: Any, low: int, high: int) -> int:
    if not isinstance(value, int) or not low <= value < high:
        raise ValueError(f"{op.name}: operand {name} is {value!r}; it must be from {low} to {high - 1}")
    return value % WORD


def decode(code: Sequence[int], pc: int) -> Instruction:
    """Return the instruction at `pc`. Raises VerifyError for an unknown opcode or operands beyond the end."""
    if not code[pc] < len(OPS):
        raise VerifyError(f"opcode {code[pc]} is unknown; the last one is {len(OPS) - 1}", pc=pc)
    op, at = OPS[code[pc]], pc + 1
    values: list[Value] = []
    for operand in op.operands:
        if at >= len(code):
            raise VerifyError(f"{op.name} ends beyond the function's {len(code)} words", pc=pc)
        word, at = code[at], at + 1
        if operand.kind in LIST_KINDS:
            if word > len(code) - at:
                raise VerifyError(f"{op.name} ends beyond the function's {len(code)} words", pc=pc)
            values.append(tuple(code[at : at + word]))
            at += word
        else:
            values.append(word - WORD if operand.kind == "i" and word >= SIGN else word)
    return Instruction(pc, op, tuple(values), at - pc)


def decode_all(code: Sequence[int]) -> Iterator[Instruction]:
    """Yield the instructions of a function. Raises VerifyError as `decode` does."""
    pc = 0
    while pc < len(code):
        instruction = decode(code, pc)
        yield instruction
        pc += instruction.size
