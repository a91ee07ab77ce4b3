"""THE opcode table: one row makes an instruction.

Everything else is derived from it: the C header `runtime_c/include/isa.gen.h`, the assembler, the disassembler,
the verifiers, `docs/opcodes.md`, the random-program generator and the ISA hash in every artifact.

An instruction is a run of little-endian u32 words: the opcode, then its operands in order.

operand          what it is                                            kind  words
x=tags           register that is written, and its new tags      d     1
x:tags           register that is read, and its required tags          s     1
x=tags*          list of registers that are written                    D     1 (count) + count
x:tags*          list of registers that are read                       S     1 (count) + count
x:immediate      signed number                                         i     1
x:dtype          code of a dtype (`DTYPES`)                            t     1
x:#constant      index into that table: constants c, kernels k,        ckfn  1
                 functions f, strings n
x:string_function  index into `STRING_FUNCTIONS`                       x     1
x:label          word offset from the function's first word, must      L     1
                 start an instruction

tags: one or more tags of values (`TAGS`), "int|float"; `any`; or the name of an operand that is read, which
has the same tag.

Notation of effects: R[x] register, K[x] constant, "x" string. `int` is int64, `float` is float64.
Adding an opcode: docs/add-an-opcode.md.
"""

# ruff: noqa: E501 (rows of a table)

from __future__ import annotations

import hashlib
import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

OPERAND_KINDS: Final = "dsDSitckfnxL"
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


#: Operands that are not registers: type in a row -> kind.
_OTHER_KINDS: Final[dict[str, str]] = {
    "immediate": "i", "dtype": "t", "#constant": "c", "#kernel": "k", "#function": "f", "#string": "n", "label": "L",
    "string_function": "x",
}  # fmt: skip


def article(tag: str) -> str:
    """Return the tag with its article: `an int`; None has none."""
    return "None" if tag == "none" else f"{'an' if tag[0] in 'aeiou' else 'a'} {tag}"


@dataclass(frozen=True)
class Operand:
    """One operand of a row: `a:int` is Operand("a", "s", ("int",)). `tags`: the tags of the register's value,
    empty for any value; `like`: the operand whose tag it has.
    """

    name: str
    kind: str
    tags: tuple[str, ...] = ()
    like: str = ""

    @property
    def is_read(self) -> bool:
        """Whether it names registers that are read."""
        return self.kind in "sS"

    @property
    def is_written(self) -> bool:
        """Whether it names registers that are written."""
        return self.kind in "dD"

    @property
    def takes(self) -> str:
        """Its permitted tags, for a message: `an int or float`."""
        *others, last = self.tags
        return article(", ".join(others) + " or " + last if others else last)

    def __str__(self) -> str:
        held = self.like or "|".join(self.tags) or "any"
        if self.is_read or self.is_written:
            return (
                f"{self.name}{'=' if self.is_written else ':'}{held}{'*' if self.kind in LIST_KINDS else ''}"
            )
        return f"{self.name}:{next(text for text, kind in _OTHER_KINDS.items() if kind == self.kind)}"


@dataclass(frozen=True)
class Op:
    """One row of the table. `flags`: ends (control never falls through), jumps, may_fail, launches, data (reads
    tensor data).
    """

    name: str
    operands: tuple[Operand, ...]
    effect: str
    flags: frozenset[str] = frozenset()

    @property
    def encoding(self) -> str:
        """The operands' names and kinds, in the order of the words."""
        return " ".join(f"{o.name}:{o.kind}" for o in self.operands)

    def operand(self, name: str) -> Operand:
        """Return the operand of that name. Raises StopIteration if there is none."""
        return next(o for o in self.operands if o.name == name)


def _operand(text: str, row: str) -> Operand:
    """Return the operand that `text` declares in the operands of a row."""
    mark = "=" if "=" in text else ":"
    name, _, type_ = text.partition(mark)
    if type_ in _OTHER_KINDS:
        return Operand(name, _OTHER_KINDS[type_])
    held = type_.removesuffix("*")
    kind = ("D" if mark == "=" else "S") if type_.endswith("*") else "d" if mark == "=" else "s"
    if f" {held}:" in f" {row}":
        return Operand(name, kind, (), held)
    tags = () if held == "any" else tuple(held.split("|"))
    unknown = [tag for tag in tags if tag not in TAGS]
    if unknown:
        raise ValueError(f"operand {text!r}: no tag is named {unknown[0]!r}")
    return Operand(name, kind, tags)


def _op(name: str, operands: str, effect: str, flags: str = "") -> Op:
    parsed = tuple(_operand(text, operands) for text in operands.split())
    return Op(name, parsed, effect, frozenset(flags.split()))


def _int(name: str, expression: str) -> Op:
    return _op(name, "d=int a:int b:int", f"R[d] = R[a] {expression} R[b] (ints; overflow fails)", "may_fail")


def _wrapping(name: str, expression: str) -> Op:
    effect = f"R[d] = R[a] {expression} R[b] (ints; the low 64 bits of the result)"
    return _op(name, "d=int a:int b:int", effect, "may_fail")


def _float(name: str, expression: str) -> Op:
    return _op(name, "d=float a:float b:float", f"R[d] = R[a] {expression} R[b] (floats)", "may_fail")


def _compare(name: str, expression: str, tags: str = "int|float|str") -> Op:
    effect = f"R[d] = R[a] {expression} R[b] (two of one kind; str by their bytes) as bool"
    return _op(name, f"d=bool a:{tags} b:a", effect, "may_fail")


# fmt: off
OPS: Final[tuple[Op, ...]] = (
    # Control
    _op("return", "values:any*", "return R[values...] to the caller", "ends"),
    _op("jump", "target:label", "go on at target", "ends jumps"),
    _op("branch", "cond:bool otherwise:label", "if not R[cond] (bool): go on at otherwise", "jumps may_fail"),
    _op("call", "function:#function results=any* args:any*", "R[results...] = function(R[args...])", "may_fail"),
    _op("fail", "message:#string", 'stop with the error "message"', "ends may_fail"),
    _op("guard", "cond:bool message:#string", 'if not R[cond] (bool): stop with the error "message"', "may_fail"),
    # Registers
    _op("move", "d=a a:any", "R[d] = R[a]"),
    _op("const", "d=any value:#constant", "R[d] = K[value]"),
    _op("int", "d=int value:immediate", "R[d] = value"),
    _op("none", "d=none", "R[d] = none"),
    _op("free", "values:any*", "R[values...] = none: their storage may be used again"),
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
    _op("and", "d=bool a:bool b:bool", "R[d] = R[a] and R[b] (bools)", "may_fail"),
    _op("or", "d=bool a:bool b:bool", "R[d] = R[a] or R[b] (bools)", "may_fail"),
    _op("not", "d=bool a:bool", "R[d] = not R[a] (bool)", "may_fail"),
    # Floats
    _float("fadd", "+"),
    _float("fsub", "-"),
    _float("fmul", "*"),
    _float("fdiv", "/"),
    _op("to_float", "d=float a:bool|int|float", "R[d] = R[a] (bool, int or float) as float", "may_fail"),
    _op("to_int", "d=int a:bool|int|float", "R[d] = R[a] (bool, int or float, truncated; out of int64 fails) as int", "may_fail"),
    # Tensors
    _op("alloc", "d=tensor dtype:dtype sizes:int*", "R[d] = new contiguous tensor of dtype and sizes R[sizes...], zeros until it is written", "may_fail"),
    _op("view", "d=tensor a:tensor sizes:int*", "R[d] = the elements of R[a] with sizes R[sizes...] (as many elements)", "may_fail"),
    _op("dim", "d=int a:tensor axis:immediate", "R[d] = size of tensor R[a] along axis (0 <= axis < rank)", "may_fail"),
    _op("item", "d=bool|int|float a:tensor at:int*", "R[d] = the element of tensor R[a] at R[at...], one for each axis (none: its only element), as bool, int or float", "may_fail data"),
    _op("scalar", "d=tensor dtype:dtype a:bool|int|float", "R[d] = 0-d tensor of dtype holding R[a] (bool, int or float)", "may_fail"),
    _op("kernel", "kernel:#kernel dims:int* buffers:tensor*", "launch kernel with sizes R[dims...] on tensors R[buffers...]", "may_fail launches"),
    _op("call_packed", "name:#string results=any* args:any*", 'R[results...] = host function "name"(R[args...])', "may_fail data"),
    _op("expect", "a:any dtype:dtype sizes:int* what:#string", 'if R[a] is no tensor of dtype and sizes R[sizes...]: stop with an error that names "what"', "may_fail"),
    # Containers (immutable; extending one creates a new value)
    _op("list", "d=list values:any*", "R[d] = [R[values...]]"),
    _op("tuple", "d=tuple values:any*", "R[d] = (R[values...])"),
    _op("dict", "d=dict items:any*", "R[d] = {key: value, ...} from R[items...] = key, value, key, value ... (keys str or int)", "may_fail"),
    _op("get", "d=any a:list|tuple|dict key:any", "R[d] = the item of R[a] at R[key] (list or tuple: int; dict: its key)", "may_fail"),
    _op("len", "d=int a:list|tuple|dict|str", "R[d] = number of elements of list, tuple or dict R[a], of bytes of str R[a]", "may_fail"),
    _op("append", "d=list a:list value:any", "R[d] = list R[a] with R[value] after it", "may_fail"),
    _op("set", "d=list a:list index:int value:any", "R[d] = list R[a] with R[value] at R[index]", "may_fail"),
    _op("slice", "d=list a:list begin:int end:int", "R[d] = the elements R[begin] .. R[end] - 1 of list R[a]", "may_fail"),
    # Strings
    _op("concat", "d=str a:str b:str", "R[d] = str R[a] with R[b] after it", "may_fail"),
    _op("format", "d=str a:bool|int|float", "R[d] = R[a] (bool, int or float) as TorchScript writes it: True, 2, 2., 0.10000000000000001", "may_fail"),
    _op("require", "cond:bool message:str", "if not R[cond] (bool): stop with the error R[message]", "may_fail"),
    # Calls out
    _op("call_dps", "name:#string outputs:tensor* args:any*", 'host function "name" writes the tensors R[outputs...] (of allocs), given R[args...]', "may_fail data"),
    # Lists among the inputs
    _op("expect_items", "a:list tag:immediate dtype:dtype rank:immediate what:#string", 'if an element of list R[a] has another tag than tag, or is a tensor of another dtype or rank: stop with an error that names the input "what" and the element', "may_fail"),
    _op("distinct", "d=bool a:list", "R[d] = no two elements of list R[a] (bools, ints, floats, strs) are equal", "may_fail"),
    # Functions of strings
    _op("text", "d=any function:string_function args:any*", "R[d] = function of strings(R[args...])", "may_fail"),
    # Parts of tensors
    _op("part", "d=tensor a:tensor begin:int sizes:int*", "R[d] = the elements of R[a] from R[begin] on, in row-major order, as many as sizes R[sizes...] have: the same memory, which is not written through R[d]", "may_fail"),
    # Wrapping integers, as in TorchScript
    _wrapping("wrapping_add", "+"),
    _wrapping("wrapping_sub", "-"),
    _wrapping("wrapping_mul", "*"),
)
# fmt: on


@dataclass(frozen=True)
class StringFunction:
    """A function of the opcode `text`: the tags of its arguments and of its result."""

    takes: tuple[str, ...]
    gives: str
    effect: str


def _string_functions(*rows: tuple[str, str, str, str]) -> dict[str, StringFunction]:
    return {name: StringFunction(tuple(takes.split()), gives, effect) for name, takes, gives, effect in rows}


#: Functions of strings, by name: TorchScript's, which count bytes. Codes are positions: append only once there are
#: releases. A start or end below 0 counts from the end of the string; -1 as end is the end itself. `list`: of
#: str. TorchScript's other methods are made of these (compiler/frontends/torchscript/operators/library).
STRING_FUNCTIONS: Final[dict[str, StringFunction]] = _string_functions(
    ("isalnum", "str", "bool", "only letters and digits, at least one"),
    ("isalpha", "str", "bool", "only letters, at least one"),
    ("isdigit", "str", "bool", "only digits, at least one"),
    ("isspace", "str", "bool", "only whitespace, at least one character"),
    ("isupper", "str", "bool", "capital letters and no lower-case ones"),
    ("islower", "str", "bool", "small letters and no capital ones"),
    ("upper", "str", "str", "capital letters for small ones"),
    ("lower", "str", "str", "small letters for capital ones"),
    ("capitalize", "str", "str", "the first letter a capital one, the others small"),
    ("strip", "str str", "str", "without the bytes of the second string at both ends"),
    ("lstrip", "str str", "str", "without the bytes of the second string at the beginning"),
    ("rstrip", "str str", "str", "without the bytes of the second string at the end"),
    ("find", "str str int int", "int", "the first index of the second string from start to end, or -1"),
    ("rfind", "str str int int", "int", "the last index of the second string from start to end, or -1"),
    (
        "count",
        "str str int int",
        "int",
        "how often the second string begins from start to end, without overlap",
    ),
    (
        "startswith",
        "str str int int",
        "bool",
        "whether the bytes from start to end begin with the second string",
    ),
    ("endswith", "str str int int", "bool", "whether the bytes from start to end end with the second string"),
    ("item", "str int", "str", "the byte at an index"),
    ("slice", "str int int int", "str", "the bytes from start to end by a step; 2^63 - 1 is no bound"),
    ("characters", "str", "list", "the bytes"),
    (
        "split",
        "str str int",
        "list",
        "the parts between separators; at most that many splits (-1: no limit)",
    ),
    ("words", "str", "list", "the parts between runs of whitespace"),
    ("rsplit", "str str int", "list", "as split, counted from the end"),
    (
        "replace",
        "str str str int",
        "str",
        "with the second string replaced by the third, at most that many times (-1: no limit)",
    ),
    ("join", "str list", "str", "the strings of a list, separated by the first string"),
    ("ord", "str", "int", "the value of the only byte"),
    ("chr", "int", "str", "the string of a byte"),
    ("hex", "int", "str", "0x and hexadecimal digits"),
    ("oct", "int", "str", "0o and octal digits"),
    ("bin", "int", "str", "0b and binary digits"),
    ("int", "str", "int", "the decimal int"),
    ("float", "str", "float", "the float, as C's strtod reads it"),
    ("format", "str tuple", "str", "the values of a tuple for the fields {}"),
    ("percent", "str tuple", "str", "the values of a tuple for the fields %s %d %i %f %F %e %E %c"),
)

OPCODES: Final[dict[str, int]] = {op.name: code for code, op in enumerate(OPS)}


def isa_hash() -> int:
    """Return the 64-bit hash over names and operands that an artifact and a runtime must share."""
    text = ";".join(f"{op.name} {op.encoding}" for op in OPS)
    text += ";" + ",".join(f"{name}={code}:{size}" for name, (code, size) in DTYPES.items())
    text += ";" + ",".join(f"{name}={code}" for name, code in TAGS.items())
    text += ";" + ",".join(f"{name} {' '.join(row.takes)}" for name, row in STRING_FUNCTIONS.items())
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def main(arguments: list[str]) -> int:
    """Write the generated files; with `--check`, compare them, print stale ones, and return 1 if there are
    any."""
    prefix = f"{__package__}." if __package__ else ""
    generate, *others = (
        importlib.import_module(prefix + name) for name in ("generate", "errors", "layout", "codes")
    )
    tables = generate.Tables(sys.modules[__name__], *others)
    root = Path(__file__).resolve().parent.parent
    stale = 0
    for name, text in generate.files(tables).items():
        path = root / name
        if path.is_file() and path.read_text() == text:
            continue
        stale = 1
        if "--check" in arguments:
            print(f"{name} is stale: run python -m shapevm.vm.isa")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(f"{name} written")
    return stale if "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
