"""Programs that the tests share, and a generator of random ones driven by the opcode table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from shapevm.vm.assembler import assemble
from shapevm.vm.builder import FunctionBuilder, ProgramBuilder
from shapevm.vm.isa import DTYPES, OPS, STRING_FUNCTIONS, Op, Operand
from shapevm.vm.program import (
    Constant,
    Dim,
    EntryPoint,
    KernelObject,
    Lines,
    MachineCode,
    Output,
    Program,
    SizeRange,
    Work,
)

#: Calls n + 1 functions within each other.
RECURSION = """input "n": int
output "y": int
function "main" (1 params, 1 results)
  call "down" (r1) (r0)
  return (r1)
function "down" (1 params, 1 results)
  int r1 1
  lt r2 r0 r1
  branch r2 otherwise=deeper
  return (r0)
deeper:
  sub r3 r0 r1
  call "down" (r4) (r3)
  add r5 r4 r1
  return (r5)
"""
SAMPLE = """
symbol "n" 1 .. 64 step 2 why "model.py:3"
symbol "rest" 0 ..
input "x": f32[s0, 2*s1+1, 3]
input "k": int = s0
input "eps": float
output "y": f32[s0, 2*s0-1, 3, "floordiv(n,2)"]
output "pair": tuple
meta {"name": "a test", "structure": {"state": ["ä"]}}
constant c0 "w" f32[2, 2] = [1.0, 2.5, nan, -inf]
constant c1 int = -5
constant c2 "text" str = "grüße; \\"quoted\\""
constant c3 bf16[3] = [16256, 0, 65535]
constant c4 none = None
constant c5 bool = True
constant c6 float = 1e-12
constant c7 i64[0, 4] = []
kernel k0 "copy" (1 dims, f32[n0, 3], out f32[n0, 3]) source "model.py:9" = "{\\"family\\": \\"nest\\"}"
kernel k1 "nothing" (0 dims) = "{}"
function "main" (5 params, 2 results)
  line "model.py:9"
  lt r5 r3 r4
  branch cond=r5 otherwise=end
  guard r5 "no luck"
  const r6 c0
  dim d=r6 a=r6 axis=0
  int r7 -3
end:
  line "model.py:10"
  alloc d=r8 dtype=f32 sizes=(r3, r4)
  kernel kernel=k0 dims=(r3) buffers=(r0, r8)
  kernel k1 () ()
  call "pair" (r9) (r8, r2)
  return (r8, r9)
function "pair" (2 params, 1 results, 7 registers)
again:
  none r3
  list r4 (r0, r1, r3)
  jump out
  jump again
out:
  return values=(r4)
"""


def forever_at_0(*last: str) -> str:
    """Return a program that never ends for its int k = 0, in r0; else it ends with instructions `last`."""
    begin = ('input "k": int', 'output "y": int', 'function "main" (1 params, 1 results)')
    lines = ("int r1 0", "eq r2 r0 r1", "branch r2 out", "again:", "jump again", "out:", *last)
    return "\n".join((*begin, *(line if line.endswith(":") else f"  {line}" for line in lines), ""))


def sample(objects: bool = True) -> Program:
    """Return the program of SAMPLE, with code objects for its first kernel unless told otherwise."""
    program = assemble(SAMPLE)
    if not objects:
        return program
    kernel = program.kernels[0]
    dim, number = Dim(0), 3
    generic = KernelObject(
        kernel.spec_hash, "x86-64-v3", 1, kernel.buffers,
        Work(((dim, 4), (number, 1)), ((4, (dim, number)),), ((2, ()),),
             (Lines(0, 0, dim, 2, 1, 3), Lines(1, 0, number))),
        ((dim, -1, -1, number),), MachineCode(bytes(range(1, 201)), 3), None, "plain",
    )  # fmt: skip
    exact = replace(generic, exact_dims=(7,), code=MachineCode(b"\xc3"), schedule="")
    ranges = (SizeRange(16, None, 8),)
    bucket = replace(generic, ranges=ranges, code=MachineCode(b"\x90\xc3", 1), schedule="for a range")
    return replace(program, kernels=(replace(kernel, objects=(generic, exact, bucket)), program.kernels[1]))


# Random programs ------------------------------------------------------------------------------------

#: Placed by hand or not at all.
SKIPPED = {"kernel", "call_packed", "call_dps", "call", "return", "jump", "fail"}
CONSTANTS = (
    Constant(None), Constant(True), Constant(False), Constant(3), Constant(-(1 << 63)),
    Constant((1 << 63) - 1), Constant(2.5), Constant(float("nan")),
    Constant(-1e300), Constant("a"), Constant("ß€"),
    Constant.tensor(np.array(7, "<i4"), "i32"), Constant.tensor(np.array([[1.5]], "<f4"), "f32"),
    Constant.tensor(np.arange(6, dtype="<f8").reshape(2, 3), "f64"),
    Constant.tensor(np.array([True]), "bool"),
    Constant.tensor(np.array([0x3FC0], "<u2"), "bf16"), Constant.tensor(np.zeros((0, 2), "<i8"), "i64"),
)  # fmt: skip
N_REGISTERS = 12
ZERO = N_REGISTERS - 1  # holds 0: a size of all allocs whose other sizes may be anything
SMALL = ZERO - 1  # holds 2: the size of the others


class _Code:
    """Writes random straight-line code with forward branches, roughly knowing what registers hold."""

    def __init__(self, draw: Any, builder: ProgramBuilder, f: FunctionBuilder) -> None:
        self.draw, self.builder, self.f = draw, builder, f
        f.n_registers = N_REGISTERS
        self.tags = ["none"] * N_REGISTERS

    def source(self, wanted: tuple[str, ...] = ()) -> int:
        """Return a register that holds one of these tags (none: anything), if there is one, mostly."""
        fitting = [r for r, tag in enumerate(self.tags) if not wanted or tag in wanted]
        careless = self.draw(st.integers(0, 19)) == 0
        return self.draw(st.sampled_from(fitting if fitting and not careless else range(N_REGISTERS)))

    def operand(self, op: str, operand: Operand, before: dict[str, Any]) -> Any:
        """Return a value for an operand; `before`: those of the operands before it."""
        draw, register = self.draw, st.integers(0, SMALL - 1)
        if operand.kind == "d":
            return draw(register)
        if operand.kind == "s":
            like = (self.tags[before[operand.like]],) if operand.like else ()
            return self.source(like or operand.tags)
        if operand.kind == "S":
            n = draw(st.integers(0, 3)) * (2 if op == "dict" else 1)
            if op == "free":
                return tuple(draw(register) for _ in range(n))
            if op == "alloc" and draw(st.booleans()):
                return (SMALL,) * n
            if op == "text":
                return tuple(self.source((tag,)) for tag in STRING_FUNCTIONS[before["function"]].takes)
            return tuple(self.source(operand.tags) for _ in range(n)) + ((ZERO,) if op == "alloc" else ())
        if operand.kind == "x":
            return draw(st.sampled_from(sorted(STRING_FUNCTIONS)))
        if operand.kind == "t":
            return draw(st.sampled_from(sorted(DTYPES)))
        if operand.kind == "c":
            return self.builder.constant(draw(st.sampled_from(CONSTANTS)))
        if operand.kind == "n":
            return draw(st.sampled_from(["stop", "no", ""]))
        return draw(st.integers(-1, 4)) if op == "int" else draw(st.integers(0, 2))

    def step(self) -> None:
        op = self.draw(st.sampled_from([op for op in OPS if op.name not in SKIPPED and op.name != "branch"]))
        operands: dict[str, Any] = {}
        for operand in op.operands:
            operands[operand.name] = self.operand(op.name, operand, operands)
        self.f.op(op.name, **operands)
        if "d" in operands:
            self.tags[operands["d"]] = self.result(op, operands)
        elif op.name == "free":
            for register in operands["values"]:
                self.tags[register] = "none"

    def result(self, op: Op, operands: dict[str, Any]) -> str:
        """Return what `d` holds then, "none" where the row leaves it open."""
        made = op.operand("d")
        if op.name == "const":
            return self.builder._constants[operands["value"]].tag
        if op.name == "text":
            return STRING_FUNCTIONS[operands["function"]].gives
        if made.like:
            return self.tags[operands[made.like]]
        return made.tags[0] if len(made.tags) == 1 else "none"


@st.composite
def programs(draw: Any, data: bool = True) -> Program:
    """Return a program that the verifier accepts: main without inputs, a callee, branches, any opcode but
    launches.
    """
    builder = ProgramBuilder()
    main, callee = builder.function("main", 0, 3), builder.function("callee", 2, 1)
    code = _Code(draw, builder, main)
    for index, constant in enumerate((Constant(True), Constant(4), Constant(0.5), Constant("s"))):
        main.op("const", d=index, value=builder.constant(constant))
        code.tags[index] = constant.tag
    main.op("int", d=ZERO, value=0)
    main.op("int", d=SMALL, value=2)
    main.op("alloc", d=4, dtype="f32", sizes=(1, ZERO))
    code.tags[4] = "tensor"
    for _ in range(draw(st.integers(0, 12))):
        kind = draw(st.integers(0, 9))
        if kind == 0:
            label = _label()
            main.op("branch", cond=code.source(("bool",)), otherwise=label)
            code.step()
            main.place(label)
        elif kind == 1:
            main.op(
                "call",
                function=1,
                results=(draw(st.integers(0, SMALL - 1)),),
                args=(code.source(), code.source()),
            )
        else:
            main.line(draw(st.sampled_from(["m.py:1", "m.py:2", ""])))
            code.step()
    main.op("return", values=tuple(draw(st.integers(0, N_REGISTERS - 1)) for _ in range(3)))
    other = _Code(draw, builder, callee)
    for _ in range(draw(st.integers(0, 4))):
        other.step()
    callee.op("return", values=(draw(st.integers(0, 1)),))
    return builder.finish(entry_points=[EntryPoint(0, (), (Output("a"), Output("b"), Output("c")))])


def _label() -> Any:
    from shapevm.vm.builder import Label

    return Label()


def with_code(program: Program, code: tuple[int, ...]) -> Program:
    """Return `program` with other words in main."""
    return replace(program, functions=(replace(program.functions[0], code=code), *program.functions[1:]))
