"""Graphs as text that are made to take long, or to be more than they seem: each ends with one sentence."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from shapevm.compiler.ir.dims import parse_dim, product
from shapevm.compiler.ir.errors import ShapeError, TextError

from shapevm.build.text_files import read_graph

SECONDS, MEMORY = 240, 4 << 30  # of a process that reads a text, on a busy machine
LETTERS = "abcdefgh"


def joined(item: str, n: int, by: str = "+") -> str:
    """Return n numbered copies of an item."""
    return by.join(item.format(i) for i in range(n))


DIMS = {
    "power": f"({'+'.join(LETTERS)})**16",
    "power of a power": "((((a+b)**16)**16)**16)**16",
    "number": "((((9**16)**16)**16)**16)**16",
    "sum": joined("a{0}", 2000),
    "product": joined("(a{0}+1)", 20, "*"),
    "maximum": f"Max({joined('a{0}*b{0}', 200, ',')})",
    "nested maximum": f"{'Max(' * 30}a{joined('+a{0},b{0})', 30, '')}",
    "nested division": f"{'floordiv(' * 40}a{joined('+a{0},b{0})', 40, '')}",
    "nested remainder": f"{'Mod(' * 60}a{joined('*a{0},7)', 60, '')}",
    "division of powers": "floordiv((a+b+c+1)**4*d**16*e,(a+b+c+1)**3+d)",
    "signs": "-" * 3000 + "a",
}


@pytest.mark.parametrize("text", DIMS.values(), ids=DIMS)
def test_an_expression_that_explodes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="at most|not an expression") as caught:
        parse_dim(text)
    assert len(str(caught.value)) < 200


def test_what_is_just_allowed() -> None:
    assert parse_dim(joined("a{0}", 200)) == parse_dim(joined("a{0}", 200))
    assert parse_dim("(a+b)**7") == parse_dim("(a+b)**6*a+(a+b)**6*b")


def test_a_product_that_explodes_is_refused() -> None:
    sizes = [parse_dim(joined(f"a{i}x{{0}}", 64)) for i in range(16)]
    with pytest.raises(ShapeError, match="a size may have 79228162514264337593543950336 terms, expanded"):
        product(sizes)


def graph(inputs: str, nodes: str = "", output: str = "%x0") -> str:
    """Return a graph's text."""
    return f'graph "g"\n  symbol n min=1 max=9 multiple_of=1\n{inputs}{nodes}  output {output} as "y"\n'


def many_dims() -> str:
    """Return many inputs, each with another expression that is allowed by itself."""
    rows = (f"  input %x{i}: f32[Max({joined(f'a{{0}}*b{i}', 16, ',')})]\n" for i in range(2000))
    return graph("".join(rows))


def long_types() -> str:
    """Return an operator that there is not, with a type of a long text."""
    sizes = ", ".join(joined(f"a{i}x{{0}}", 64) for i in range(16))
    nodes = "  %y: f32[n] = aten.flatten.using_ints(%x0) {start_dim=0, end_dim=-1}\n"
    return graph(f"  input %x0: f32[{sizes}]\n", nodes, "%y")


def nested_types() -> str:
    """Return a type in a type in a type."""
    return graph(f"  input %x0: {'list<' * 2000}f32[n]{'>' * 2000}\n")


def nested_attributes() -> str:
    """Return a list in a list in a list."""
    return graph("  input %x0: f32[n]\n", f"  %y: f32[n] = aten.neg(%x0) {{a={'[' * 2000}{']' * 2000}}}\n")


def body_of_a_spec() -> str:
    """Return a kernel's spec with a long body, and with sizes of expressions."""
    body = joined(f"  v{{0}} = load f32 b0[i0+({joined('a{{0}}*n', 8)}+{{0}})]\n", 20000, "")
    head = "\nspec @0 symbolic\n  nest n_dims=0 domain=[n]\n  b0 f32[n]\n"
    return graph("  input %x0: f32[n]\n") + head + body


def number_of_digits() -> str:
    """Return numbers of many digits where sizes stand."""
    return graph(f"  input %x0: f32[{'9' * 60000}]\n")


def huge_arrays() -> str:
    """Return an array of more elements than it writes."""
    array = "{array=float32[4611686018427387904](1.0)}"
    return graph("  input %x0: f32[n]\n", f"  %y: f32[2] = constant() {array}\n")


TEXTS = (
    many_dims, long_types, nested_types, nested_attributes, body_of_a_spec, number_of_digits, huge_arrays,
)  # fmt: skip


@pytest.mark.parametrize("make", TEXTS, ids=lambda make: make.__name__)
def test_show_ends_with_one_sentence(make: Callable[[], str], tmp_path: Path) -> None:
    path = tmp_path / "hostile.svmir"
    path.write_text(make())

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    found = subprocess.run(
        [sys.executable, "-m", "shapevm", "show", "-q", str(path)],
        capture_output=True, text=True, timeout=SECONDS, preexec_fn=limit, check=False,
    )  # fmt: skip
    (said,) = found.stderr.splitlines()
    assert found.returncode == 1 and said.startswith("Error: ") and len(said) < 1000, said[:2000]


@pytest.mark.parametrize("name", ["a\x1b[2J", "a\x9b", "a\u202e"])
def test_a_symbol_is_named_by_letters(name: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.svmir"
    path.write_text(graph("  input %x0: f32[n]\n").replace("symbol n", f"symbol {name}"))
    with pytest.raises(TextError, match="a symbol such as"):
        read_graph(path)
