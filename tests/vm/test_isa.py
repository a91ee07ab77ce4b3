from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from shapevm.vm import errors, generate, isa, layout
from shapevm.vm.instruction import decode, encode
from shapevm.vm.reference import Reference
from shapevm.vm.verify import RULES

ROOT = Path(isa.__file__).resolve().parent.parent


def test_generated_files_are_fresh() -> None:
    for name, text in generate.files(isa, errors, layout).items():
        assert (ROOT / name).read_text() == text, f"{name} is stale: run python -m shapevm.vm.isa"


def test_runs_as_a_plain_script() -> None:
    done = subprocess.run(
        [sys.executable, "-ES", str(ROOT / "vm/isa.py"), "--check"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_check_names_what_is_stale(tmp_path: Path) -> None:
    for folder in ("vm", "runtime_c/include", "docs"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("isa", "generate", "errors", "layout"):
        (tmp_path / f"vm/{name}.py").write_text((ROOT / f"vm/{name}.py").read_text())
    run = [sys.executable, str(tmp_path / "vm/isa.py")]
    assert subprocess.run(run, capture_output=True).returncode == 0
    (tmp_path / "docs/opcodes.md").write_text("old")
    done = subprocess.run([*run, "--check"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout == "docs/opcodes.md is stale: run python -m shapevm.vm.isa\n"


def test_every_opcode_has_a_method() -> None:
    assert {name[3:] for name in dir(Reference) if name.startswith("op_")} == set(isa.OPCODES)


def test_table_is_sound() -> None:
    assert len(isa.OPCODES) == len(isa.OPS)
    for op in isa.OPS:
        assert all(operand.kind in isa.OPERAND_KINDS for operand in op.operands)
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
    assert len(RULES) == 8


def test_error_codes_are_unique_and_dense() -> None:
    assert [code for code, _, _ in errors.TABLE] == list(range(1, len(errors.TABLE) + 1))
    assert len({name for _, name, _ in errors.TABLE}) == len(errors.TABLE)
    subclasses = {c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.Error)}
    assert subclasses - {errors.Error} == {error for _, _, error in errors.TABLE}


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
