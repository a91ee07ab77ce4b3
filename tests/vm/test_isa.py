from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from shapevm.vm import codes, errors, generate, isa, layout, reference_scalars
from shapevm.vm._runtime import ffi, lib
from shapevm.vm.artifact import to_bytes
from shapevm.vm.assembler import assemble
from shapevm.vm.instruction import Instruction, decode, encode
from shapevm.vm.machine import Machine
from shapevm.vm.reference import Reference
from shapevm.vm.verify import RULES

from shapevm.settings import TABLE

from ..packaging.pages import blocks

ROOT = Path(isa.__file__).resolve().parent.parent
INTERPRETER = "runtime_c/run/interpreter.c"
TABLES = ("isa", "generate", "errors", "layout", "codes")


def test_generated_files_are_fresh() -> None:
    for name, text in generate.files(generate.Tables(isa, errors, layout, codes)).items():
        assert (ROOT / name).read_text() == text, f"{name} is stale: run python -m shapevm.vm.isa"


def test_runs_as_a_plain_script() -> None:
    done = subprocess.run(
        [sys.executable, "-ES", str(ROOT / "vm/isa.py"), "--check"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def copy_tables(folder: Path) -> None:
    (folder / "vm").mkdir()
    for name in TABLES:
        shutil.copy(ROOT / f"vm/{name}.py", folder / "vm")
    (folder / "runtime_c/include").mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "runtime_c/include/svm.h", folder / "runtime_c/include")  # docs/c-api.md is made of it


def test_check_names_what_is_stale(tmp_path: Path) -> None:
    copy_tables(tmp_path)
    run = [sys.executable, str(tmp_path / "vm/isa.py")]
    assert subprocess.run(run, capture_output=True).returncode == 0
    (tmp_path / "docs/opcodes.md").write_text("old")
    done = subprocess.run([*run, "--check"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout == "docs/opcodes.md is stale: run python -m shapevm.vm.isa\n"


def test_every_opcode_has_a_method() -> None:
    methods = {name.removeprefix("op_") for name in dir(Reference) if name.startswith("op_")}
    missing, unknown = set(isa.OPCODES) - methods, methods - set(isa.OPCODES)
    assert not missing, f"vm/reference.py: Reference lacks the methods {[f'op_{name}' for name in missing]}"
    assert not unknown, f"vm/isa.py: no row for {unknown}"


def test_every_opcode_has_a_label() -> None:
    text = (ROOT / INTERPRETER).read_text()
    labels = set(re.findall(r"^op_([A-Z_]+):|^  (?:INTS|FLOATS|COMPARISON)\(([A-Z_]+)", text, re.M))
    missing = {name.upper() for name in isa.OPCODES} - {a or b for a, b in labels}
    assert not missing, f"{INTERPRETER} lacks the labels {[f'op_{name}' for name in missing]}"


def test_a_new_opcode_needs_a_label_and_nothing_else_in_c(tmp_path: Path) -> None:
    """As docs/add-an-opcode.md says: the row makes the rest of the C, the compiler names a missing label."""
    copy_tables(tmp_path)
    shutil.copytree(ROOT / "runtime_c", tmp_path / "runtime_c", dirs_exist_ok=True)
    table, interpreter = tmp_path / "vm/isa.py", tmp_path / INTERPRETER
    places = dict(blocks("add-an-opcode.md"))
    row, label = places["vm/isa.py"], places[INTERPRETER]
    table.write_text(table.read_text().replace(")\n# fmt: on\n", row + ")\n# fmt: on\n"))
    assert subprocess.run([sys.executable, str(table)], capture_output=True).returncode == 0
    assert "op_NEG" in compiled(interpreter)
    interpreter.write_text(interpreter.read_text().replace("\nend_of_slice:", f"\n{label}\nend_of_slice:"))
    assert compiled(interpreter) == ""
    assert compiled(tmp_path / "runtime_c/program/verify.c") == ""


def test_the_page_on_opcodes_has_the_method() -> None:
    """It defines neg: the class made of it negates, and an int that has no opposite is an error."""
    text = "class Own(Scalars):\n" + dict(blocks("add-an-opcode.md"))["vm/reference_scalars.py"]
    scope = vars(reference_scalars) | {}
    exec(text, scope)
    operands = tuple(isa._operand(operand, "d=int a:int") for operand in ("d=int", "a:int"))
    neg = Instruction(0, isa.Op("neg", operands, ""), (1, 0), 3)
    own, registers = scope["Own"].__new__(scope["Own"]), [5, None]
    own.op_neg(registers, neg, None)
    assert registers == [5, -5]
    with pytest.raises(errors.IntegerOverflow):
        own.op_neg([-(1 << 63), None], neg, None)


def compiled(source: Path) -> str:
    """Return what the C compiler says of a file."""
    folder = source.parents[1]
    command = ["cc", "-std=c11", "-Wall", "-Werror", "-D_GNU_SOURCE", "-o", os.devnull, "-c", str(source)]
    done = subprocess.run(
        [*command, f"-I{folder}", f"-I{folder}/include"], capture_output=True, text=True, check=False
    )
    return done.stderr


def test_operands_are_parsed_and_written_alike() -> None:
    for op in isa.OPS:
        row = " ".join(map(str, op.operands))
        assert tuple(isa._operand(text, row) for text in row.split()) == op.operands
    with pytest.raises(ValueError, match="operand 'a:integer': no tag is named 'integer'"):
        isa._operand("a:integer", "a:integer")
    assert [isa.OPS[isa.OPCODES[op]].operand("a").takes for op in ("add", "len", "not")] == [
        "an int", "a list, tuple, dict or str", "a bool",
    ]  # fmt: skip


@pytest.mark.parametrize("run", ["C", "Python"])
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("add d=r0 a=r1 b=r2", "add: operand b is a str; it takes an int"),
        ("eq d=r0 a=r1 b=r2", "eq: operand b is a str; it takes an int"),
        ("fadd d=r0 a=r1 b=r1", "fadd: operand a is an int; it takes a float"),
        ("len d=r0 a=r1", "len: operand a is an int; it takes a list, tuple, dict or str"),
        ("to_int d=r0 a=r2", "to_int: operand a is a str; it takes a bool, int or float"),
        ("alloc d=r0 dtype=f32 sizes=(r1, r2)", "alloc: operand sizes is a str; it takes an int"),
    ],
)
def test_a_wrong_operand_is_one_sentence(run: str, code: str, message: str) -> None:
    program = assemble(f"""
        output "y"
        constant c0 str = "s"
        function "main" (0 params, 1 results)
          int r1 3
          const r2 c0
          {code}
          return (r0)
    """)
    with pytest.raises(errors.KindError) as caught:
        if run == "C":
            Machine.from_bytes(to_bytes(program)).call([])
        else:
            Reference(program, lambda *_: None).call([])
    assert str(caught.value).startswith(message)


def test_table_is_sound() -> None:
    assert len(isa.OPCODES) == len(isa.OPS)
    for op in isa.OPS:
        assert all(operand.kind in isa.OPERAND_KINDS for operand in op.operands)
        names = [operand.name for operand in op.operands]
        for operand in op.operands:
            like = op.operand(operand.like) if operand.like else None
            assert like is None or (like.kind == "s" and (operand.is_written or like.tags)), op.name
            assert operand.name != "sizes" or operand.tags == ("int",)  # tensor.c reads all of them alike
        assert len(set(names)) == len(names)
        assert op.flags <= set(generate.FLAGS)
        kinds = [operand.kind for operand in op.operands]
        assert not any(k in isa.LIST_KINDS for k in kinds[: kinds.index("L")]) if "L" in kinds else True
        named = {
            name
            for pair in re.findall(r'[RK]\[(\w+)(?:\.\.\.)?\]|"(\w+)"', op.effect)
            for name in pair
            if name
        }
        assert named <= {operand.name for operand in op.operands}, op.name
    assert len(RULES) == 10


def test_error_codes_are_unique_and_dense() -> None:
    assert [code for code, _, _ in errors.TABLE] == list(range(1, len(errors.TABLE) + 1))
    assert len({name for _, name, _ in errors.TABLE}) == len(errors.TABLE)
    subclasses = {c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.Error)}
    without_code = {errors.Error, errors.InputError, errors.ArchiveError}
    assert subclasses - without_code == {error for _, _, error in errors.TABLE}
    assert errors.InputError.code == errors.ArgumentError.code


@pytest.mark.parametrize("op", isa.OPS, ids=lambda op: op.name)
def test_encoding_round_trip(op: isa.Op) -> None:
    values = tuple((3, 1, 2) if o.kind in isa.LIST_KINDS else -7 if o.kind == "i" else 5 for o in op.operands)
    words = encode(op, values)
    decoded = decode(words, 0)
    assert (decoded.op, decoded.values, decoded.size) == (op, values, len(words))
    for end in range(1, len(words)):
        with pytest.raises(errors.VerifyError):
            decode(words[:end], 0)


def test_records_have_no_padding() -> None:
    for record in layout.RECORDS:
        offset = 0
        for field in record.fields:
            size = field.length if field.length is not None else int(field.type[1:]) // 8
            assert field.length is not None or offset % size == 0, f"{record.name}.{field.name}"
            offset += size
        assert offset == record.size


@pytest.mark.parametrize("table", codes.CODES)
def test_codes_are_dense_and_explained(table: str) -> None:
    assert sorted(codes.codes(table).values()) == list(range(len(codes.CODES[table])))
    assert all(codes.codes(table)[name] == code for code, name in enumerate(codes.names(table)))
    assert all(meaning and not meaning.endswith(".") for _, meaning in codes.CODES[table].values())


def test_python_and_c_have_the_same_defaults() -> None:
    made = ffi.new("svm_options *")
    lib.svm_options_init(made)
    c = (made.hot_calls, made.code_bytes_max >> 20, made.plans_max)
    python = {setting.name: setting.default for setting in TABLE}
    assert c == (python["hot_calls"], python["code_mib"], python["plans"])
    assert codes.names("strategy")[made.strategy] == python["strategy"]
