"""Functions of strings: C and Python agree, also on the words of errors; hostile sizes are refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from shapevm.vm import artifact
from shapevm.vm.assembler import assemble
from shapevm.vm.errors import Error, LimitExceeded, VerifyError
from shapevm.vm.isa import OPCODES, STRING_FUNCTIONS
from shapevm.vm.load_options import CallLimits, LoadOptions
from shapevm.vm.machine import Machine
from shapevm.vm.program import Program
from shapevm.vm.reference import Reference

from .programs import with_code
from .test_differential import OPTIONS, same

PIECES = (
    "a", "b", "A", "B", "ab", "Zz", "1", "07", " ", "\t", "\n", "\r\n", "\x0b", "\x1c", "_", "-", ".", "é",
    "世", "\x85", "\u2028", "{}", "{}", "%s", "%d", "%f", "%E", "%c", "%%", "%x", "0x1p3", "inf", "nan", "+",
)  # fmt: skip
INTS = (0, 1, 2, 3, 5, 8, 65, 233, -1, -2, -3, -9, 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 1.5, -2e9, 3e9, 1e39, 1e-50, 0.1, float("inf"), float("-inf"), float("nan"))


def text(draw: random.Random) -> str:
    pieces = draw.choice([PIECES, PIECES[:2], PIECES[:9]])
    return "".join(draw.choice(pieces) for _ in range(draw.choice([0, 1, 1, 2, 3, 6])))


VALUES: dict[str, Callable[[random.Random], Any]] = {
    "str": text,
    "int": lambda draw: draw.choice(INTS),
    "float": lambda draw: draw.choice(FLOATS),
    "bool": lambda draw: draw.random() < 0.5,
}


def program_of(name: str, items: tuple[str, ...] = ("str", "int", "float")) -> tuple[Program, list[str]]:
    """Return a program that calls the function with its inputs, and their tags. `items`: tags of what a
    tuple holds, each an input."""
    tags, lines, args = list[str](), list[str](), list[str]()
    for tag in STRING_FUNCTIONS[name].takes:
        inner = ["str"] * 3 if tag == "list" else list(items) if tag == "tuple" else [tag]
        registers = [f"r{len(tags) + i}" for i in range(len(inner))]
        tags += inner
        if tag in ("list", "tuple"):
            lines.append(f"  {tag} r{20 + len(lines)} ({', '.join(registers)})")
            registers = [f"r{19 + len(lines)}"]
        args += registers
    inputs = "\n".join(f'input "x{i}": {tag}' for i, tag in enumerate(tags))
    body = "\n".join(lines)
    return assemble(f"""
{inputs}
output "y"
function "main" ({len(tags)} params, 1 results)
{body}
  text d=r30 function={name} args=({", ".join(args)})
  return (r30)
"""), tags


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Error as error:
        return type(error).__name__, error.args[0]


@pytest.mark.parametrize("name", STRING_FUNCTIONS)
def test_c_and_python_agree(name: str) -> None:
    draw = random.Random(name)
    program, tags = program_of(name)
    reference = Reference(program, lambda *_: None)
    with Machine.from_bytes(artifact.to_bytes(program), OPTIONS) as machine:
        for _ in range(200):
            inputs = [VALUES[tag](draw) for tag in tags]
            expected = outcome(lambda: reference.call(inputs))  # noqa: B023 (called at once)
            got = outcome(lambda: machine.call(inputs))  # noqa: B023
            assert same(got, expected), (inputs, got, expected)


@pytest.mark.parametrize("name", ["format", "percent"])
def test_formats_of_any_values(name: str) -> None:
    draw = random.Random(name)
    for _ in range(30):
        items = tuple(draw.choice(sorted(VALUES)) for _ in range(draw.choice([0, 1, 3])))
        program, tags = program_of(name, items)
        fields = draw.choice(["{}", "%s", "%d", "%i", "%f", "%F", "%e", "%E", "%c"])
        inputs = [fields * len(items), *(VALUES[tag](draw) for tag in tags[1:])]
        expected = outcome(lambda: Reference(program, lambda *_: None).call(inputs))  # noqa: B023
        with Machine.from_bytes(artifact.to_bytes(program), OPTIONS) as machine:
            assert same(outcome(lambda: machine.call(inputs)), expected), inputs  # noqa: B023


NUMBERS = (
    "12", " 7", "+3", "-0", "1 ", "", "--1", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "-9223372036854775809", "0x10", "1e5", "1e400", "-1e-320", "1e-400", "0x1p-1070",
    "0x1.1p-1074", "5e-324", "2.2250738585072014e-308", "0x.8p1", "0X1P3", "1.", ".5", "infinity", "-inf",
    "infi", "nan(ab_1)", "nan(", "0e0", "0.0e-999", "0x0p-2000", "1E5", "..5", "1e", "1_0", "1\0",
    "7" * 5000, "-" + "0" * 5000 + "7", "0" * 5000,
)  # fmt: skip


@pytest.mark.parametrize("text", NUMBERS)
@pytest.mark.parametrize("name", ["int", "float"])
def test_numbers_are_read_alike(name: str, text: str) -> None:
    program, _ = program_of(name)
    expected = outcome(lambda: Reference(program, lambda *_: None).call([text]))
    with Machine.from_bytes(artifact.to_bytes(program), OPTIONS) as machine:
        assert same(outcome(lambda: machine.call([text])), expected), text


HUGE = 2**62
#: Function, arguments and the size that the message names.
HOSTILE = (
    ("replace", ["a" * 20_000, "a", "b" * 20_000, -1], 20_000 * 20_000),
    ("replace", ["a", "", "xy", HUGE], 2**63 - 1),
    ("join", ["x" * 2**27, "", "", "x"], 2**28 + 1),
)


@pytest.mark.parametrize(("name", "inputs", "size"), HOSTILE)
def test_a_string_over_the_limit_is_refused(name: str, inputs: list[Any], size: int) -> None:
    program, _ = program_of(name)
    message = f"a string of {size} bytes is over the limit of {2**28}"
    assert outcome(lambda: Reference(program, lambda *_: None).call(inputs)) == ("LimitExceeded", message)
    with Machine.from_bytes(artifact.to_bytes(program), OPTIONS) as machine:
        assert outcome(lambda: machine.call(inputs)) == ("LimitExceeded", message)


def test_a_search_from_the_end_takes_time_of_the_lengths() -> None:
    """Both strings are of one letter: comparing at every place would be 10^11 steps."""
    program, _ = program_of("rfind")
    with Machine.from_bytes(artifact.to_bytes(program), OPTIONS) as machine:
        assert machine.call(["a" * 1_000_000 + "b", "b" + "a" * 300_000, 0, -1]) == [-1]


def test_a_result_that_was_cut_within_a_character_is_refused() -> None:
    program, _ = program_of("item")
    wanted = ("KindError", "a result is a str that is no UTF-8: the program cut it within a character")
    assert outcome(lambda: Reference(program, lambda *_: None).call(["é", 0])) == wanted
    with Machine.from_bytes(artifact.to_bytes(program), OPTIONS) as machine:
        assert outcome(lambda: machine.call(["é", 0])) == wanted


def test_long_strings_cost_fuel() -> None:
    program, _ = program_of("upper")
    options = LoadOptions(strategy="generic", limits=CallLimits(fuel=1000))
    with Machine.from_bytes(artifact.to_bytes(program), options) as machine:
        assert machine.call(["a" * 10_000]) == ["A" * 10_000]
        with pytest.raises(LimitExceeded, match="fuel"):
            machine.call(["a" * 100_000])


@pytest.mark.parametrize("n", [0, 1, 3])
def test_the_number_of_arguments_is_verified(n: int) -> None:
    program, _ = program_of("strip")
    call = [OPCODES["text"], 30, list(STRING_FUNCTIONS).index("strip"), n, *[0] * n]
    broken = with_code(program, (*call, OPCODES["return"], 1, 30))
    with pytest.raises(VerifyError, match=f"{n} args; strip takes 2"):
        Reference(broken, lambda *_: None)
    with pytest.raises(VerifyError, match=f"{n} args given, 2 wanted"):
        Machine.from_bytes(artifact.to_bytes(broken), OPTIONS)


def test_a_function_that_is_not_known_is_refused() -> None:
    program, _ = program_of("upper")
    code = list(program.functions[0].code)
    assert code[:3] == [OPCODES["text"], 30, list(STRING_FUNCTIONS).index("upper")]
    code[2] = len(STRING_FUNCTIONS)
    broken = with_code(program, tuple(code))
    n = len(STRING_FUNCTIONS)
    with pytest.raises(VerifyError, match=f"function of strings {n} of {n}"):
        Reference(broken, lambda *_: None)
    with pytest.raises(VerifyError, match=f"operand {n} is out of range, there are {n}"):
        Machine.from_bytes(artifact.to_bytes(broken), OPTIONS)
