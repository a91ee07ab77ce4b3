"""What looks at an artifact ends, whatever the file holds: with what it says or one sentence, in bounded time
and memory."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from shapevm.vm import artifact
from shapevm.vm.assembler import assemble
from shapevm.vm.errors import VerifyError
from shapevm.vm.literals import quote
from shapevm.vm.program import Input, Program
from shapevm.vm.sizes import launches

from shapevm.build.text_files import program_text
from shapevm.reports.inspect import inspection
from shapevm.reports.invariance.verdicts import row_symbols
from shapevm.reports.launch_graph import launch_graph

SECONDS, MEMORY = 120, 4 << 30  # of a process that looks at a file, on a busy machine
HEAD = 'symbol "n" 1 .. 64\ninput "x": f32[s0]\noutput "y"\nfunction "main" (2 params, 1 results)\n'


def squares() -> Program:
    """Return a program whose number has twice the digits after each instruction."""
    return assemble(HEAD + "mul r1 r1 r1\n" * 200 + "alloc d=r2 dtype=f32 sizes=(r1)\nreturn (r2)\n")


def calls() -> Program:
    """Return functions that call the next one 20 times each, the last one the first."""
    body = "".join(
        f'function "f{k}" (1 params, 1 results)\n'
        + f'call "f{(k + 1) % 18}" (r1) (r0)\n' * 20
        + "return (r1)\n"
        for k in range(18)
    )
    return assemble(HEAD + 'call "f0" (r2) (r0)\nreturn (r2)\n' + body)


def endless() -> Program:
    """Return a program that never returns."""
    return assemble(HEAD + "again:\nadd r1 r1 r1\njump again\n")


def lists() -> Program:
    """Return a list that holds a list twice, which holds a list twice, and so on."""
    return assemble(HEAD + "list r0 (r0, r0)\n" * 200 + "get r3 r0 r1\nreturn (r0)\n")


def branches() -> Program:
    """Return many places where many ways meet, with many symbols."""
    text = "".join(f'symbol "s{i}" 1 .. 64\n' for i in range(200))
    text += f'input "x": f32[{", ".join(f"s{i}" for i in range(16))}]\ninput "z": f32[s16]\noutput "y"\n'
    text += "".join(f'input "i{i}": int = s{i}\n' for i in range(17, 200))
    text += 'function "main" (385 params, 1 results)\n'
    for k in range(2000):
        text += f"a{k}:\nlt r400 r300 r301\nbranch cond=r400 otherwise=a{(k * 7919) % 2000}\n"
        text += f"mul r{300 + k % 80} r301 r302\n"
    return assemble(text + "return (r0)\n")


def unset() -> Program:
    """Return instructions on registers that hold nothing."""
    text = "move r5 r4\nfree (r0)\nview d=r6 a=r0 sizes=(r7)\nlist r8 (r5, r9)\nmove r2 r3\nreturn (r6)\n"
    return assemble(HEAD + text)


def names() -> Program:
    """Return many records that name one long string."""
    program = assemble(HEAD + "return (r0)\n")
    long = "n" * (1 << 20)
    rows = tuple(Input(long, "int") for _ in range(2000))
    (function,) = program.functions
    many = replace(function, n_params=2002, n_registers=2002)
    return replace(program, inputs=(*program.inputs, *rows), functions=(many,), strings=("", long))


def inputs() -> Program:
    """Return as many inputs as there may be."""
    program = assemble(HEAD + "return (r0)\n")
    rows = tuple(Input(f"i{i}", "int") for i in range(65535))
    (function,) = program.functions
    many = replace(function, n_params=65537, n_registers=65537)
    return replace(program, inputs=(*program.inputs, *rows), functions=(many,))


def limited(*args: str) -> subprocess.CompletedProcess[str]:
    """Run a command in bounded time and memory."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    return subprocess.run(
        [sys.executable, "-m", "shapevm", *args],
        capture_output=True, text=True, timeout=SECONDS, preexec_fn=limit, check=False,
    )  # fmt: skip


def command(tmp_path: Path, program: Program, *args: str) -> subprocess.CompletedProcess[str]:
    """Run a command on a program."""
    path = tmp_path / "hostile.svm"
    artifact.write(program, path)
    return limited(args[0], str(path), *args[1:])


PROGRAMS = (squares, calls, endless, lists, branches, unset, names, inputs)


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_inspect_ends(make: Callable[[], Program], tmp_path: Path) -> None:
    found = command(tmp_path, make(), "inspect")
    said = [line for line in found.stderr.splitlines() if line != "shapevm inspect ..."]  # its progress
    if make is names:
        assert found.returncode == 3 and [line.startswith("Error: section INPUTS") for line in said] == [True]
    else:
        assert found.returncode == 0 and "runs with shapevm-run: yes" in found.stdout and not said, said


@pytest.mark.parametrize("make", [squares, calls, endless, lists, unset], ids=lambda make: make.__name__)
def test_what_is_too_long_to_follow_is_not_called_invariant(make: Callable[[], Program]) -> None:
    program = make()
    (verdict,) = row_symbols(program)["n"]
    if make is calls:
        assert verdict.causes == ["the program takes more than 1,048,576 steps to follow"]
    assert launches(program, {"n": 3}) == []


def test_code_that_breaks_a_rule_is_not_looked_at(tmp_path: Path) -> None:
    program = assemble(HEAD + "const r2 c0\nreturn (r2)\n", verified=False)
    artifact.write(program, tmp_path / "a.svm")
    for look in (inspection, program_text):
        with pytest.raises(VerifyError, match="constant"):
            look(tmp_path / "a.svm")


def test_a_call_into_arrays_has_a_place_in_the_graph() -> None:
    text = HEAD + 'alloc d=r2 dtype=f32 sizes=(r1)\ncall_dps "f" (r2) (r0)\nreturn (r2)\n'
    nodes = launch_graph(assemble(text))
    assert [(node.label, node.reads) for node in nodes] == [("x", set()), ("f", {0})]


def sums() -> Program:
    """Return many sums of all symbols."""
    n, registers = 1000, range(2001, 60000)
    text = "".join(f'symbol "s{i}" 1 .. 64\ninput "i{i}": int = s{i}\n' for i in range(n)) + 'output "y"\n'
    text += f'function "main" ({2 * n} params, 1 results)\nmove r2000 r0\n'
    text += "".join(f"add r{i} r{i - 1} r{i % n}\n" for i in registers)
    return assemble(text + "return (r59999)\n")


PROGRAMS_OF_EXPLAIN = (squares, endless, lists, branches, inputs, sums)


@pytest.mark.parametrize("make", PROGRAMS_OF_EXPLAIN, ids=lambda make: make.__name__)
def test_explain_ends(make: Callable[[], Program], tmp_path: Path) -> None:
    found = command(tmp_path, make(), "explain")
    assert found.returncode == 0 and found.stdout.split()[:2] == ["0", "calls,"], found.stderr


# Text ---------------------------------------------------------------------------------------------------

NASTY = "a\x1b[2J\x9b1m\u202eb\nruns with shapevm-run: yes\x07"
SHOWN = r"a\x1b[2J\x9b1m\u202eb\nruns with shapevm-run: yes\x07"


def repeated() -> Program:
    """Return many instructions that name one long string."""
    program = assemble(HEAD + 'call_packed "f" (r2) (r0)\n' * 2000 + "return (r2)\n")
    long = "n" * (1 << 20)
    return replace(program, strings=tuple(long if text == "f" else text for text in program.strings))


def nasty() -> Program:
    """Return a program whose names hold what a terminal obeys."""
    program = assemble(f'symbol "n" 1 .. 64\ninput {quote(NASTY)}: f32[s0]\noutput {quote(NASTY)}\n'
                       f'function "main" (2 params, 1 results)\nline {quote(NASTY)}\n'
                       f'call_packed {quote(NASTY)} (r2) (r0)\nreturn (r2)\n')  # fmt: skip
    return program


HUGE = 1 << 40  # bytes of a file that takes no space on the disk
KEY = """-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=
-----END PUBLIC KEY-----
"""


@pytest.mark.parametrize(
    ("name", "args", "sentence"),
    [
        (
            "a.svm.sig",
            ("verify", "a.svm", "--trust", "key.pub"),
            f"it has {HUGE} bytes; at most 16777216 are",
        ),
        ("big.pub", ("verify", "a.svm", "--trust", "big.pub"), "is no Ed25519 public key"),
        ("p.json", ("explain", "a.svm", "--profile", "p.json"), f"it has {HUGE} bytes; at most 16777216 are"),
        ("g.svmir", ("show", "g.svmir"), f"it has {HUGE} bytes; at most 2147483648 are"),
        ("t.txt", ("asm", "t.txt", "-o", "b.svm"), f"it has {HUGE} bytes; at most 2147483648 are"),
        ("a.svm", ("inspect", "a.svm"), f"{HUGE} bytes; its header says"),
        ("b.svm", ("inspect", "b.svm"), "is no .svm file"),
    ],
)
def test_a_file_without_end_is_one_sentence(
    name: str, args: tuple[str, ...], sentence: str, tmp_path: Path
) -> None:
    artifact.write(unset(), tmp_path / "a.svm")
    (tmp_path / "key.pub").write_text(KEY)
    (tmp_path / name).touch()
    os.truncate(tmp_path / name, HUGE)
    found = limited(*(str(tmp_path / arg) if "." in arg else arg for arg in args))
    said = [line for line in found.stderr.splitlines() if line.startswith("Error:")]
    assert found.returncode != 0 and len(said) == 1 and sentence in said[0], found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize("full", [[], ["--full"]])
def test_the_text_of_dis_is_bounded(full: list[str], tmp_path: Path) -> None:
    found = command(tmp_path, repeated(), "dis", *full)
    assert found.returncode == 3 and not found.stdout
    assert found.stderr.splitlines()[-1].startswith("Error: the program's text is longer than 268,435,456")


@pytest.mark.parametrize("args", [["inspect"], ["dis"], ["dis", "--full"], ["run"], ["explain"]])
def test_a_terminal_obeys_no_name(args: list[str], tmp_path: Path) -> None:
    found = command(tmp_path, nasty(), *args)
    said = found.stdout + found.stderr
    assert all(c.isprintable() for c in said.replace("\n", "")), ascii(said)
    assert not said.startswith("runs with") and "\nruns with shapevm-run: yes" not in said
    if args[0] == "inspect":
        assert f"input {SHOWN}: f32[n]" in said


def test_a_text_with_what_a_terminal_obeys_reads_back(tmp_path: Path) -> None:
    artifact.write(nasty(), tmp_path / "a.svm")
    text, arrays = program_text(tmp_path / "a.svm")
    assert assemble(text, arrays).inputs[0].name == NASTY
