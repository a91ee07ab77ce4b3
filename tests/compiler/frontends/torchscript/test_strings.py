"""The definition of the functions of strings gives what torch.jit gives, for random arguments; so do the
methods in TorchScript that are made of these."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from shapevm.compiler.frontends.torchscript.operators.library.strings import METHODS
from shapevm.vm.errors import Error
from shapevm.vm.isa import STRING_FUNCTIONS
from shapevm.vm.string_functions import call_string_function, is_whole

PIECES = (
    "a", "b", "A", "B", "Zz", "1", "0", " ", "\t", "\n", "\r\n", "\x0b", "\x0c", "\x1c", "\x1f", "\x7f", "_",
    "-", ".", "é", "世", "\x85", "\xa0", "\u2028", "\u2029",
)  # fmt: skip
INTS = (0, 1, 2, 3, 5, 7, 10, 65, 233, -1, -2, -3, -5, 2**63 - 1, -(2**63))
NUMBERS = (
    "12", " 7", "+3", "-0", "1e5", "0x1p3", "0x.8p1", "inf", "-nan", "Infinity", "infi", "1.", "..5", "1e400",
    "-1e-320", "0x1p-1070", "0x1.1p-1074", "5e-324", "9223372036854775808", "-9223372036854775808", "\n1",
    "0x", "0.0e-999", "nan(ab_1)", "nan(", "1_0", "--1", "", "1E5", "1 ",
)  # fmt: skip
#: How TorchScript writes a function, where it is no method of that name.
WRITTEN = {
    "item": "a0[a1]", "slice": "a0[a1:a2:a3]", "characters": "list(a0)", "words": "a0.split()",
    **{name: f"{name}(a0)" for name in ("ord", "chr", "hex", "oct", "bin", "int", "float")},
}  # fmt: skip
TYPES = {"list": "List[str]"}
FORMATS = ("format", "percent")


def scripted(name: str) -> Callable[..., Any]:
    row = STRING_FUNCTIONS[name]
    names = [f"a{i}" for i in range(len(row.takes))]
    params = ", ".join(f"{a}: {TYPES.get(t, t)}" for a, t in zip(names, row.takes, strict=True))
    return compiled(name, names, params, TYPES.get(row.gives, row.gives))


def compiled(name: str, names: Sequence[str], params: str, gives: str) -> Callable[..., Any]:
    """Return the function as TorchScript has it."""
    body = WRITTEN.get(name, f"{names[0]}.{name}({', '.join(names[1:])})")
    return torch.jit.CompilationUnit(f"def f({params}) -> {gives}:\n    return {body}\n").f  # type: ignore[no-any-return]


def text(draw: random.Random) -> str:
    pieces = draw.choice([PIECES, PIECES[:2]])
    return "".join(draw.choice(pieces) for _ in range(draw.choice([0, 1, 1, 2, 3, 6, 9])))


def arguments(name: str, takes: Sequence[str], draw: random.Random) -> list[Any]:
    """Return arguments for which TorchScript ends."""
    if name in ("int", "float"):
        return [draw.choice(NUMBERS)]
    makers: dict[str, Callable[[], Any]] = {
        "str": lambda: text(draw),
        "int": lambda: draw.choice(INTS),
        "bool": lambda: draw.random() < 0.5,
        "list": lambda: [text(draw) for _ in range(draw.randrange(4))],
    }
    args = [makers[tag]() for tag in takes]
    if name in ("center", "ljust", "rjust"):
        args[1:] = [draw.choice([0, 3, 4, 5, 6, 7, 11]), draw.choice(["*", "*", " ", text(draw)])]
    if name == "expandtabs":
        args[1] = draw.choice([-1, 0, 1, 2, 3, 8])
    if name in ("count", "rsplit", "replace") and not args[1]:
        args[1] = "a"
    return args


def outcome(call: Callable[[], Any], *kinds: type[Exception]) -> Any:
    """Return what a call gives, "cut" for strings that are cut within a character, "fails" for an error."""
    try:
        found = call()
    except UnicodeDecodeError:
        return "cut"
    except kinds:
        return "fails"
    return repr(found) if is_whole(found) else "cut"


@pytest.mark.parametrize("name", [name for name in STRING_FUNCTIONS if name not in FORMATS])
def test_functions_give_what_torchscript_gives(name: str) -> None:
    draw, function = random.Random(name), scripted(name)
    for _ in range(60):
        args = arguments(name, STRING_FUNCTIONS[name].takes, draw)
        wanted = outcome(lambda: function(*args), RuntimeError)  # noqa: B023 (called at once)
        assert outcome(lambda: call_string_function(name, args), Error) == wanted, args  # noqa: B023


@pytest.mark.parametrize("name", METHODS)
def test_methods_made_of_these_give_what_torchscript_gives(name: str) -> None:
    draw, made = random.Random(name), getattr(torch.jit.CompilationUnit(METHODS[name]), name)
    given, returned = made.schema.arguments, made.schema.returns[0].type.annotation_str
    names, types = [x.name for x in given], [x.type.annotation_str for x in given]
    params = ", ".join(map("{}: {}".format, names, types))
    function = compiled(name, names, params, returned)
    for _ in range(60):
        args = arguments(name, types, draw)
        wanted = outcome(lambda: function(*args), RuntimeError)  # noqa: B023 (called at once)
        assert outcome(lambda: made(*args), RuntimeError, torch.jit.Error) == wanted, args  # noqa: B023


def formats(draw: random.Random) -> str:
    fields = draw.choice([("%s", "%d", "%f", "%E"), ("%s", "%c", "%i", "%e"), ("{}", "%%", "%F", "%x", "%s")])
    return "".join(
        draw.choice(["", "x", "%%", "é"]) + draw.choice(fields) for _ in range(draw.choice([1, 3, 3]))
    )


@pytest.mark.parametrize("name", FORMATS)
def test_formats_give_what_torchscript_gives(name: str) -> None:
    draw = random.Random(name)
    source = "a0.format(a1, a2, a3)" if name == "format" else "a0 % (a1, a2, a3)"
    params = "a0: str, a1: str, a2: int, a3: float"
    function = torch.jit.CompilationUnit(f"def f({params}) -> str:\n    return {source}\n").f
    floats = (
        0.0,
        -0.0,
        1.5,
        -2e9,
        3e9,
        1e39,
        1e-50,
        2.0**31,
        -2147483648.5,
        5e-324,
        float("inf"),
        float("nan"),
    )
    for _ in range(400):
        values = (
            draw.choice(["a", "é", "", "xyz"]),
            draw.choice([*INTS, 2**40, 16777217]),
            draw.choice(floats),
        )
        template = formats(draw)
        wanted = outcome(lambda: function(template, *values), RuntimeError)  # noqa: B023
        found = outcome(lambda: call_string_function(name, [template, values]), Error)  # noqa: B023
        assert found == wanted, (template, values)
