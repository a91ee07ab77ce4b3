from __future__ import annotations

import pytest
from hypothesis import given, settings
from shapevm.vm import artifact
from shapevm.vm.assembler import AssemblyError, assemble
from shapevm.vm.disassembler import disassemble
from shapevm.vm.errors import VerifyError
from shapevm.vm.program import Program
from shapevm.vm.verify import static_flow, verify

from .programs import programs, sample

TEXT = """\
symbol "n" 1 .. 8
input "x": f32[2*s0+1, 4]
output "y"
constant c0 int = 3
kernel k0 "relu" (1 dims, f32[n0], out f32[n0]) = "{}"

function "main" (2 params, 1 results, 5 registers)
  line "model.py:7"
  const d=r2 value=c0                                    ;    0 r2 = int = 3
  mul d=r3 a=r1 b=r2                                     ;    3 r3 = r1 * r2 (ints; overflow fails)
L7:
  alloc d=r4 dtype=f32 sizes=(r3)                        ;    7 r4 = new contiguous tensor of f32 and sizes r3, zeros until it is written
  line ""
  kernel kernel=k0 dims=(r3) buffers=(r0, r4)            ;   12 launch "relu" with sizes r3 on tensors r0, r4
  branch cond=r2 otherwise=L7                            ;   19 if not r2 (bool): go on at L7
  return values=(r4)                                     ;   22 return r4 to the caller
"""  # noqa: E501


def test_text_in_text_out() -> None:
    assert disassemble(assemble(TEXT)) == TEXT


def test_round_trip_with_data() -> None:
    program = sample()
    text = disassemble(program, data=True)
    assert assemble(text) == program
    read = artifact.from_bytes(artifact.to_bytes(program))
    assert disassemble(read, data=True) == text


@settings(max_examples=100, deadline=None)
@given(programs())
def test_random_programs_round_trip(program: Program) -> None:
    verify(program)
    text = disassemble(program, data=True)
    assert disassemble(assemble(text), data=True) == text
    read = artifact.from_bytes(artifact.to_bytes(program))
    assert disassemble(read, data=True) == text
    assert static_flow(read) == static_flow(program)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("add r0 r0 r0", "line 1: an instruction stands before the first function"),
        ('function "f" (0 params, 0 results)\n  adds r0', "line 2: opcode 'adds' is unknown"),
        (
            'function "f" (0 params, 0 results)\n  add r0 r0',
            "line 2: a name must stand where 'the line ends' does",
        ),
        ('function "f" (0 params, 0 results)\n  add d=r0 b=r0 a=r0', "operand 'a' must stand where 'b' does"),
        ('function "f" (0 params, 0 results)\n  add x0 r0 r0', "'x0' is not a name such as r0"),
        ('function "f" (0 params, 0 results)\n  alloc r0 f31 ()', "dtype 'f31' is unknown"),
        (
            'function "f" (0 params, 0 results)\n  jump nowhere',
            "label 'nowhere' of the function before was never placed",
        ),
        (
            'function "f" (0 params, 0 results)\na:\na:\n  return ()',
            "line 3: function f: a label is placed at 0",
        ),
        ('function "f" (0 params, 0 results)\n  return () 3', "'3' must not follow"),
        ('function "f" (0 params, 0 results)\n  int r0 1.5', "1.5 is not an integer"),
        ('function "f" (0 params, 0 results)\n  int r0 3000000000', "operand value is 3000000000"),
        ('function "f" (0 params)\n', "a function says its params, results"),
        ("constant c1 int = 3", "constant c1 is not the next one, c0"),
        ("constant c0 f32[2] = [1.0]", "the elements are not f32"),
        ("constant c0 f32[2] = <8 bytes>", "is not understood"),
        ('constant c0 f32[2] = base64 "?"', "the text is not base64"),
        ("constant c0 bool = 3", "the value is a int, not a bool"),
        ('object k0 base64 ""', "kernel k0 does not exist yet"),
        ("§", "is not understood"),
        ("meta [1]", "meta must be a JSON object"),
    ],
)
def test_errors_name_the_line(text: str, message: str) -> None:
    with pytest.raises(AssemblyError) as caught:
        assemble(text)
    assert message in str(caught.value)


def test_assembled_programs_are_verified() -> None:
    with pytest.raises(VerifyError, match="control runs beyond"):
        assemble('function "f" (0 params, 0 results)\n  none r0')
    with pytest.raises(VerifyError, match="function 4294967295 of 1"):
        assemble('function "f" (0 params, 0 results)\n  call "g" () ()\n  return ()')
