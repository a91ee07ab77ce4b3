"""THE opcode table: one row makes an instruction.

Everything else is derived from it: the C header `runtime_c/include/isa.gen.h`, the assembler, the disassembler,
the verifiers, `docs/opcodes.md`, the random-program generator and the ISA hash in every artifact.

An instruction is a run of little-endian u32 words: the opcode, then its operands in order.

kind  operand                                   words
d     destination register                      1
s     source register                           1
D     list of destination registers             1 (count) + count
S     list of source registers                  1 (count) + count
i     signed immediate                          1
t     dtype code (`DTYPES`)                     1
c     index into the constant table             1
k     index into the kernel table               1
f     index into the function table             1
n     index into the string table               1
L     label: word offset from the function's    1
      first word, must start an instruction

Notation of effects: R[x] register, K[x] constant, "x" string. `int` is int64, `float` is float64.
Adding an opcode: one row here, `python -m shapevm.vm.isa`, one label in runtime_c/run/interpreter.c, one method in
vm/reference.py (a test and the C compiler name what is missing).
"""

# ruff: noqa: E501 (rows of a table)

from __future__ import annotations

import hashlib
import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

OPERAND_KINDS: Final = "dsDSitckfnL"
LIST_KINDS: Final = "DS"

#: dtype -> (code, bytes per element). Codes are part of the format: append only.
DTYPES: Final[dict[str, tuple[int, int]]] = {
    "bool": (0, 1), "u8": (1, 1), "i8": (2, 1), "i16": (3, 2), "i32": (4, 4), "i64": (5, 8),
    "f16": (6, 2), "bf16": (7, 2), "f32": (8, 4), "f64": (9, 8),
}  # fmt: skip

#: register tag -> code. Codes are part of the C API: append only.
TAGS: Final[dict[str, int]] = {
    "none": 0, "bool": 1, "int": 2, "float": 3, "str": 4, "tensor": 5, "list": 6, "tuple": 7, "dict": 8, "function": 9,
}  # fmt: skip


@dataclass(frozen=True)
class Operand:
    """One operand of a row, e.g. `a:s` is Operand("a", "s")."""

    name: str
    kind: str


@dataclass(frozen=True)
class Op:
    """One row of the table. `flags`: ends (control never falls through), jumps, may_fail, launches, data (reads
    tensor data).
    """

    name: str
    operands: tuple[Operand, ...]
    effect: str
    flags: frozenset[str] = frozenset()


def _op(name: str, operands: str, effect: str, flags: str = "") -> Op:
    parsed = tuple(Operand(*text.split(":")) for text in operands.split())
    return Op(name, parsed, effect, frozenset(flags.split()))


def _int(name: str, expression: str, flags: str = "") -> Op:
    return _op(
        name, "d:d a:s b:s", f"R[d] = R[a] {expression} R[b] (ints; overflow fails)", f"may_fail {flags}"
    )


def _float(name: str, expression: str) -> Op:
    return _op(name, "d:d a:s b:s", f"R[d] = R[a] {expression} R[b] (floats)", "may_fail")


def _compare(name: str, expression: str) -> Op:
    return _op(
        name, "d:d a:s b:s", f"R[d] = R[a] {expression} R[b] (two ints or two floats) as bool", "may_fail"
    )


# fmt: off
OPS: Final[tuple[Op, ...]] = (
    # Control
    _op("return", "values:S", "return R[values...] to the caller", "ends"),
    _op("jump", "target:L", "go on at target", "ends jumps"),
    _op("branch", "cond:s otherwise:L", "if not R[cond] (bool): go on at otherwise", "jumps may_fail"),
    _op("call", "function:f results:D args:S", "R[results...] = function(R[args...])", "may_fail"),
    _op("fail", "message:n", 'stop with the error "message"', "ends may_fail"),
    _op("guard", "cond:s message:n", 'if not R[cond] (bool): stop with the error "message"', "may_fail"),
    # Registers
    _op("move", "d:d a:s", "R[d] = R[a]"),
    _op("const", "d:d value:c", "R[d] = K[value]"),
    _op("int", "d:d value:i", "R[d] = value"),
    _op("none", "d:d", "R[d] = none"),
    _op("free", "values:S", "R[values...] = none: their storage may be used again"),
    # Integers (sizes are ints)
    _int("add", "+"),
    _int("sub", "-"),
    _int("mul", "*"),
    _int("floordiv", "//"),
    _int("mod", "mod (sign of the divisor)"),
    _int("min", "min"),
    _int("max", "max"),
    _compare("eq", "=="),
    _compare("ne", "!="),
    _compare("lt", "<"),
    _compare("le", "<="),
    _op("and", "d:d a:s b:s", "R[d] = R[a] and R[b] (bools)", "may_fail"),
    _op("or", "d:d a:s b:s", "R[d] = R[a] or R[b] (bools)", "may_fail"),
    _op("not", "d:d a:s", "R[d] = not R[a] (bool)", "may_fail"),
    # Floats
    _float("fadd", "+"),
    _float("fsub", "-"),
    _float("fmul", "*"),
    _float("fdiv", "/"),
    _op("to_float", "d:d a:s", "R[d] = R[a] (bool, int or float) as float", "may_fail"),
    _op("to_int", "d:d a:s", "R[d] = R[a] (bool, int or float, truncated; out of int64 fails) as int", "may_fail"),
    # Tensors
    _op("alloc", "d:d dtype:t sizes:S", "R[d] = new contiguous tensor of dtype and sizes R[sizes...], contents undefined", "may_fail"),
    _op("view", "d:d a:s sizes:S", "R[d] = the elements of R[a] with sizes R[sizes...] (as many elements)", "may_fail"),
    _op("dim", "d:d a:s axis:i", "R[d] = size of tensor R[a] along axis (0 <= axis < rank)", "may_fail"),
    _op("item", "d:d a:s", "R[d] = the only element of tensor R[a] as bool, int or float", "may_fail data"),
    _op("scalar", "d:d dtype:t a:s", "R[d] = 0-d tensor of dtype holding R[a] (bool, int or float)", "may_fail data"),
    _op("kernel", "kernel:k dims:S buffers:S", "launch kernel with sizes R[dims...] on tensors R[buffers...]", "may_fail launches"),
    _op("extern", "name:n results:D args:S", 'R[results...] = host function "name"(R[args...])', "may_fail data"),
    _op("expect", "a:s dtype:t sizes:S what:n", 'if R[a] is no tensor of dtype and sizes R[sizes...]: stop with an error that names "what"', "may_fail"),
    # Containers (immutable; extending makes a new value)
    _op("list", "d:d values:S", "R[d] = [R[values...]]"),
    _op("tuple", "d:d values:S", "R[d] = (R[values...])"),
    _op("dict", "d:d items:S", "R[d] = {key: value, ...} from R[items...] = key, value, key, value ... (keys str or int)", "may_fail"),
    _op("get", "d:d a:s key:s", "R[d] = R[a][R[key]] (list or tuple: int; dict: its key)", "may_fail"),
    _op("len", "d:d a:s", "R[d] = number of elements of list, tuple, dict or str R[a]", "may_fail"),
    _op("append", "d:d a:s value:s", "R[d] = list R[a] with R[value] after it", "may_fail"),
)
# fmt: on

OPCODES: Final[dict[str, int]] = {op.name: code for code, op in enumerate(OPS)}


def isa_hash() -> int:
    """Return the 64-bit hash over names and operands that an artifact and a runtime must share."""
    text = ";".join(f"{op.name} {' '.join(o.name + ':' + o.kind for o in op.operands)}" for op in OPS)
    text += ";" + ",".join(f"{name}={code}:{size}" for name, (code, size) in DTYPES.items())
    text += ";" + ",".join(f"{name}={code}" for name, code in TAGS.items())
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def main(arguments: list[str]) -> int:
    """Write the generated files; with `--check` compare instead, print the stale ones, return 1 if there are any."""
    prefix = f"{__package__}." if __package__ else ""
    names = ("generate", "errors", "layout")
    generate, errors, layout = (importlib.import_module(prefix + name) for name in names)
    root = Path(__file__).resolve().parent.parent
    stale = 0
    for name, text in generate.files(sys.modules[__name__], errors, layout).items():
        path = root / name
        if path.is_file() and path.read_text() == text:
            continue
        stale = 1
        if "--check" in arguments:
            print(f"{name} is stale: run python -m shapevm.vm.isa")
        else:
            path.write_text(text)
            print(f"{name} written")
    return stale if "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
