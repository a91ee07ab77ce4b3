"""Programs as text: what is written assembles to the same bytes, everything else is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shapevm.vm import artifact, assembler, builder, instruction, isa
from shapevm.vm.assembler import AssemblyError, assemble
from shapevm.vm.disassembler import disassemble, large_arrays
from shapevm.vm.errors import ArtifactError, VerifyError
from shapevm.vm.layout import BY_NAME
from shapevm.vm.program import Constant, Program
from shapevm.vm.verify import static_flow, verify

from .programs import SAMPLE, programs, sample

GOLDEN = sorted((Path(__file__).parent.parent / "packaging" / "golden").glob("*.svm"))

TEXT = """\
symbol "n" 1 .. 8
input "x": f32[2*s0+1, 4]
output "y"
constant c0 int = 3
kernel k0 "relu" (1 dims, f32[n0], out f32[n0]) = {}

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
    text = disassemble(program, full=True)
    assert assemble(text) == program
    read = artifact.from_bytes(artifact.to_bytes(program))
    assert disassemble(read, full=True) == text


@settings(max_examples=100, deadline=None)
@given(programs())
def test_random_programs_round_trip(program: Program) -> None:
    verify(program)
    text = disassemble(program, full=True)
    assert disassemble(assemble(text), full=True) == text
    read = artifact.from_bytes(artifact.to_bytes(program))
    assert disassemble(read, full=True) == text
    assert static_flow(read) == static_flow(program)


HEAD = 'function "f" (0 params, 0 results)\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("add r0 r0 r0", "line 1, column 1: 'add' stands before the first function; declare one"),
        (HEAD + "  adds r0", "line 2, column 3: opcode 'adds' is unknown; the nearest is 'add'"),
        (HEAD + "  add r0 r0", "line 2, column 12: a name such as r0 must stand where the line's end does"),
        (HEAD + "  add d=r0 b=r0 a=r0", "line 2, column 12: operand 'a' must stand where 'b' does"),
        (HEAD + "  add x0 r0 r0", "line 2, column 7: a name such as r0 must stand where 'x0' does"),
        (HEAD + "  add r0 r0 r99999999999", "line 2, column 13: 99999999999 must be from 0 to 4294967295"),
        (HEAD + f"  int r{'9' * 5000} 1", "must be from 0 to 4294967295"),
        (HEAD + "  alloc r0 f31 ()", "line 2, column 12: dtype 'f31' is unknown; the nearest is 'f32'"),
        (HEAD + "  jump nowhere", "line 2, column 8: label 'nowhere' is never placed; write nowhere: before"),
        (
            HEAD + "a:\n  a:\n  return ()",
            "line 3, column 3: label 'a' is placed already; give it another name",
        ),
        (HEAD + "  return () 3", "line 2, column 13: '3' must not follow; delete it"),
        (HEAD + "  int r0 1.5", "line 2, column 10: 1.5 is not an integer"),
        (HEAD + "  int r0 3000000000", "column 10: 3000000000 must be from -2147483648 to 2147483647"),
        (HEAD + '  fail "\\ud800"', "line 2, column 8: the string holds half of a surrogate pair"),
        (HEAD + '  fail "\\u0000"', "the string holds a zero character"),
        (HEAD + '  fail "\\x"', "the string is not as JSON has it: Invalid \\escape"),
        (HEAD + '  fail "no', "line 2, column 8: a string is not closed: its last quote is missing"),
        (HEAD + HEAD, "line 2, column 10: function 'f' is there already; give it another name"),
        ('function "f" (0 params)', "a function says its params and results, such as"),
        ('function "f" (0 params, 0 params, 0 results)', "params are there twice"),
        ('function "f" (2 params, 0 results, 1 registers)', "1 registers do not hold 2 params"),
        ('function "f" (9999999 params, 0 results)', "9999999 must be from 0 to 1048576"),
        ('symbol "n" 3 .. 2', "line 1, column 17: 2 must be from 3 to 9223372036854775806"),
        ('symbol "n" 0 .. 64 step 0', "0 must be from 1 to 9223372036854775807"),
        ('input "x": f32[s0]', "line 1, column 16: symbol s0 is not declared before; 0 are"),
        ('input "x": f32[-1]', "-1 must be from 0 to"),
        (
            f'input "x": f32[{"1, " * 16}1]',
            "line 1, column 64: more than 16 axes of a tensor are not allowed",
        ),
        ('input "x": dict', "the kind 'dict' is unknown; known are int, float, bool, str, list"),
        ('output "x": f32[""]', 'the size "" says nothing'),
        ("constant c1 int = 3", "line 1, column 10: c1 is not the next one; write c0"),
        ("constant c0 f32[2] = [1.0]", "the elements are not f32[2] (cannot reshape"),
        ("constant c0 u8[1] = [256]", "the elements are not u8[1]"),
        ("constant c0 f32[2] = <8 bytes>", "line 1, column 22: '<8 bytes>' is not understood"),
        ('constant c0 f32[2] = base64 "?"', "line 1, column 29: the text is not base64"),
        ('constant c0 f32[2] = base64 "é"', "the text is not base64"),
        ('constant c0 float = base64 "AA=="', "a float has 1 bytes; it must have 8"),
        (
            "constant c0 f32[99] = @0123456789abcdef",
            "array 0123456789abcdef is not in the file beside the text",
        ),
        ("constant c0 f32[2] = c0", "c0 is no tensor that is declared before"),
        ("constant c0 bool = 3", "line 1, column 20: a name must stand where '3' does"),
        ("constant c0 none = True", "the value 'True' is unknown; known are None"),
        ('kernel k0 "k" (1 dims, f32[n1]) = {}', "line 1, column 28: n1 is none of the kernel's 1 dims"),
        ('kernel k0 "k" (0 dims) = {}\nobject k0 base64 "AAAA"', "line 2, column 18: code object: 3 bytes"),
        ('object k0 base64 ""', "line 1, column 8: kernel k0 is not declared before; 0 are"),
        ("§", "line 1, column 1: '§' is not understood; write a name, a number"),
        ("meta [1]", "line 1, column 6: a JSON object, such as {} must stand where '[' does"),
        ('meta {"a": }', "line 1, column 6: JSON: it is not JSON: Expecting value: line 1 column 7"),
        ('meta {"a": 1}', "line 1, column 6: JSON: the whole has the key 'a'; it knows name, structure"),
        ('meta {"name": "\\ud800"}', "; it must be a string of at most 65536 printable"),
        ('meta {"a": ' + "[" * 100000, "JSON: it nests deeper than 200"),
        ("", 'line 1, column 1: there is no function; declare one, such as function "main"'),
    ],
    ids=str,
)
def test_errors_name_line_and_column(text: str, message: str) -> None:
    with pytest.raises(AssemblyError) as caught:
        assemble(text)
    assert message in str(caught.value)


def test_assembled_programs_are_verified() -> None:
    with pytest.raises(VerifyError, match="^line 2, column 3: .*control runs beyond"):
        assemble('function "f" (0 params, 0 results)\n  none r0')
    with pytest.raises(VerifyError, match="^line 2, column 3: .*function 4294967295 of 1"):
        assemble('function "f" (0 params, 0 results)\n  call "g" () ()\n  return ()')
    with pytest.raises(ArtifactError, match="main has 1 parameters; 0 inputs and 0 symbols make 0"):
        assemble('function "f" (1 params, 0 results)\n  return ()')


# The same bytes -------------------------------------------------------------------------------------


def again(content: bytes) -> bytes:
    """Return the bytes of an artifact that went through its full text."""
    program = artifact.from_bytes(content)
    return artifact.to_bytes(assemble(disassemble(program, full=True), large_arrays(program)))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_artifacts_come_back(path: Path) -> None:
    content = path.read_bytes()
    if BY_NAME["header"].unpack(content, 0)["isa_hash"] == isa.isa_hash():
        assert again(content) == content
    else:  # see tests/packaging/test_golden.py
        with pytest.raises(ArtifactError, match="instruction set"):
            again(content)


def test_a_program_of_everything_comes_back() -> None:
    content = artifact.to_bytes(sample())
    assert again(content) == content


@settings(max_examples=100, deadline=None)
@given(programs())
def test_random_programs_come_back(program: Program) -> None:
    content = artifact.to_bytes(program)
    assert again(content) == content


def with_constants(*constants: Constant) -> bytes:
    program = assemble('function "main" (0 params, 0 results)\n  return ()')
    return artifact.to_bytes(replace(program, constants=constants))


def test_constants_come_back() -> None:
    """Floats with the bits of other NaNs; tensors of all sizes of text; memory that two constants share, and
    equal numbers that lie there twice."""
    hidden = np.array([0x7FC00001, 0xFFC00000, 0x7F800001], "<u4").view("<f4")
    (number,) = np.array([0x7FF8000000000001], "<u8").view("<f8").tolist()
    small, medium, large = (np.arange(n, dtype="<f4").reshape(-1, 2) for n in (16, 18, 4000))
    arrays = (hidden, small, small.copy(), medium, large, large.copy(), large, np.zeros((0, 3), "<f4"))
    content = with_constants(
        Constant(number), Constant(-0.0), Constant(float("inf")),
        Constant("line\x85\u2028\n; \\"), Constant(5),
        *(Constant.tensor(array, "f32") for array in arrays),
        Constant.tensor(np.array([2, 0], "u1").view("?"), "bool"),
        Constant.tensor(large.T, "f32"), Constant.tensor(large.reshape(-1), "f32"),
    )  # fmt: skip
    assert again(content) == content
    text = disassemble(artifact.from_bytes(content), full=True)
    assert [line for line in text.split("\n") if line.endswith(("= c9", "= c10"))] == [
        "constant c11 f32[2000, 2] = c9",
        "constant c15 f32[4000] = c9",
    ]


def test_an_array_beside_the_text_must_be_the_constant() -> None:
    text = "constant c0 f32[2000] = @0123456789abcdef"
    with pytest.raises(AssemblyError, match=r"line 1, column 25: array 0123456789abcdef is float32\[99\]"):
        assemble(text, {"0123456789abcdef": np.zeros(99, "f4")})


@pytest.mark.parametrize(
    "strings", [("", "b", "a"), ("", "unused", "a", "b"), ("", "a", "b"), ("", "a", "b", "z")]
)
def test_the_order_of_strings_comes_back(strings: tuple[str, ...]) -> None:
    """Also of those that no instruction names, and where the code names them in another order."""
    code = 'function "main" (0 params, 0 results)\n  none r0\n  guard r0 "a"\n  fail "b"'
    program = assemble("".join(f'string "{text}"\n' for text in strings[1:]) + code)
    assert program.strings == strings
    content = artifact.to_bytes(program)
    assert again(content) == content
    text = disassemble(artifact.from_bytes(content), full=True)
    assert ("string" in text) == (strings not in (("", "a", "b"),))


def test_a_new_opcode_needs_its_row_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A made-up one with operands of all kinds: assembler, encoder and disassembler read the table."""
    row = "d=int xs:any* t:dtype at:label n:immediate c:#constant k:#kernel f:#function s:#string ys=any*"
    probe = isa._op("probe", f"{row} w:string_function x:any", "R[d] = R[xs...] at n")
    assert {operand.kind for operand in probe.operands} == set(isa.OPERAND_KINDS)
    for module in (assembler, builder, instruction):
        monkeypatch.setattr(module, "OPS", (*isa.OPS, probe), raising=False)
        monkeypatch.setattr(module, "OPCODES", {**isa.OPCODES, "probe": len(isa.OPS)}, raising=False)
    code = 'probe d=r1 xs=(r0, r1) t=f16 at=L0 n=-7 c=c0 k=k0 f="main" s="why" ys=(r2, r3) w=isalpha x=r0'
    tables = 'constant c0 none = None\nkernel k0 "k" (0 dims) = {}\n'
    program = assemble(f'{tables}function "main" (0 params, 0 results)\nL0:\n  {code}\n  return ()')
    words = (len(isa.OPS), 1, 2, 0, 1, 6, 0, (1 << 32) - 7, 0, 0, 0, 1, 2, 2, 3, 1, 0)
    assert program.functions[0].code == (*words, 0, 0)  # then `return ()`
    assert code in disassemble(program)
    content = artifact.to_bytes(program)
    assert again(content) == content


# Hostile text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "start", ["", HEAD, HEAD + "jump ", HEAD + "x:\nadd d=", "constant c0 ", 'symbol "n" ']
)
@pytest.mark.parametrize(
    "token", ["x" * 100000, "9" * 100000, "{" * 100000, "(" * 100000, '"' + "\\" * 100001]
)
def test_an_error_about_something_long_is_short(start: str, token: str) -> None:
    with pytest.raises(AssemblyError) as caught:
        assemble(start + token)
    assert len(str(caught.value)) < 500


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_malformed_text_is_refused(data: st.DataObject) -> None:
    """Changed lines and pieces of a sound text are a program that the artifact's reader takes, or an error of
    ours."""
    text = data.draw(st.sampled_from((SAMPLE, TEXT, disassemble(sample(), full=True))))
    pieces = st.sampled_from(re.findall(r"\w+|\s|[^\w\s]", SAMPLE))
    noise = st.text(max_size=4) | st.sampled_from(
        ("9" * 5000, '"', "{", "-1", "s1", "99999999999", "@", "\\")
    )
    lines = text.split("\n")
    for _ in range(data.draw(st.integers(1, 3))):
        row = data.draw(st.integers(0, len(lines) - 1))
        at = data.draw(st.integers(0, min(len(lines[row]), 100)))
        match data.draw(st.sampled_from(("cut", "drop", "piece", "noise", "copy"))):
            case "cut":
                lines[row] = lines[row][:at] + lines[row][at + data.draw(st.integers(1, 9)) :]
            case "drop":
                lines[row] = ""
            case "piece":
                lines[row] = lines[row][:at] + data.draw(pieces) + lines[row][at:]
            case "noise":
                lines[row] = lines[row][:at] + data.draw(noise) + lines[row][at:]
            case "copy":
                lines.insert(row, data.draw(st.sampled_from(lines)))
    try:
        program = assemble("\n".join(lines))
    except AssemblyError as error:
        assert re.match(r"line \d+, column \d+: ", str(error))
        return
    except ArtifactError:  # what is no fault of one line: a broken rule of the verifier or of the contract
        return
    content = artifact.to_bytes(program)
    assert artifact.to_bytes(artifact.from_bytes(content)) == content


@settings(max_examples=200, deadline=None)
@given(st.text() | st.text(alphabet='function"(){}[]:=@,.0123rc \n;\\'))
def test_any_text_is_refused(text: str) -> None:
    with pytest.raises(AssemblyError, match=r"^line \d+, column \d+: "):
        assemble(text)
