"""Measures of the source: the length of functions, the fields of classes, and types that are asserted without
a check."""

from __future__ import annotations

import ast
import re
import statistics
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
_without_comments = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL).sub
ROOMS = ("compiler", "jit", "vm", "shapevm", "runtime_c")

#: Lines of a function, its docstring included.
MAX_LINES, MAX_P90, MAX_MEDIAN = 45, 18, 6
#: Fields of a class with those that it inherits.
MAX_FIELDS = 12
#: Lines of a C function; the interpreter's loop has a label for each opcode.
MAX_C_LINES, LONG_IN_C = 60, {"runtime_c/run/interpreter.c: run"}
#: Fields of a C struct, a nested one counted as one. Parameters; one list of nine is part of the C API.
MAX_C_FIELDS, MAX_PARAMETERS, LONG_LISTS_IN_C = 30, 8, {"runtime_c/run/call.c: svm_call_with"}
#: The interface: options are keywords, lists as in sentence-transformers, arguments of an operator. Those
#: behind them are to become shorter: no line is added.
LONG_LISTS = {"shapevm/__init__.py: compile", "shapevm/__init__.py: load"} | {
    "shapevm/text/encoder.py: encode",
    "shapevm/text/cross_encoder.py: predict",
    "shapevm/nn/functional.py: paged_attention",
    *(f"jit/families/attention/parts.py: {name}" for name in ("exponentiate", "finish", "_finish")),
    *(f"jit/families/matmul/amx.py: {name}" for name in ("mend", "multiply")),
    "jit/families/matmul/amx_bytes.py: add",
    *(
        f"jit/families/matmul/row_tiles.py: {name}"
        for name in ("__init__", "_call", "_panel_chunk", "_from_panels", "from_panels")
    ),
}
#: `typing.cast` and `# type: ignore` in the whole source: an `assert isinstance` is checked, these are not.
MAX_CASTS, MAX_IGNORES = 39, 31


@cache
def sources() -> dict[str, str]:
    """Return the text of each file of the source, by its path."""
    paths = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    return {str(path.relative_to(ROOT)): path.read_text() for path in paths}


def functions(text: str) -> Iterator[tuple[str, int]]:
    """Yield the name and the number of lines of every function, without the sections of its docstring."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            sections = (ast.get_docstring(node) or "").partition("\nArgs:\n")[2]
            n_lines = node.end_lineno - node.lineno + 1
            yield node.name, n_lines - (len(sections.splitlines()) + 1 if sections else 0)


def c_functions(text: str) -> Iterator[tuple[str, int]]:
    """Yield the name and the number of lines of every function of a C file, which ends at the first `}` in
    column 0."""
    for match in re.finditer(r"^\w[^;={}]*?\b(\w+)\([^;{}]*\)\s*\{$.*?^\}", text, re.M | re.S):
        yield match[1], match[0].count("\n") + 1


def parameters(text: str) -> Iterator[tuple[str, int]]:
    """Yield the name and the number of parameters of every function of a module, `self` apart. Not of those
    that are handed over by name or decorated: their callers say what they take, an operator's schema for
    example."""
    nodes = list(ast.walk(ast.parse(text)))
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    handed = {node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in called}
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.decorator_list:
            taken = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            more = bool(node.args.vararg) + bool(node.args.kwarg) - (bool(taken) and taken[0].arg == "self")
            if node.name not in handed:
                yield node.name, len(taken) + more


def c_parameters(text: str) -> Iterator[tuple[str, int]]:
    """Yield the name and the number of parameters of every function that a C file defines."""
    for match in re.finditer(r"^\w[^;{}=()]*?\b(\w+)\(([^;{}]*)\)\s*\{", _without_comments(" ", text), re.M):
        yield match[1], match[2].count(",") + 1


def c_structs(text: str) -> Iterator[tuple[str, int]]:
    """Yield the name and the number of fields of every struct of a C file."""
    for match in re.finditer(
        r"^(?:typedef )?struct (\w*) ?\{$(.*?)^\}", _without_comments(" ", text), re.M | re.S
    ):
        body, n = match[2], 1
        while n:  # what nested structs and lists of parameters hold is not counted
            body, n = re.subn(r"\{[^{}]*\}|\([^()]*\)", " ", body)
        yield match[1], sum(part.count(",") + 1 for part in body.split(";") if part.strip())


def fields(node: ast.ClassDef) -> set[str]:
    """Return the names of a class's own fields: those it declares, and those its methods set on `self`."""
    declared = {
        n.target.id
        for n in node.body
        if isinstance(n, ast.AnnAssign)
        and isinstance(n.target, ast.Name)
        and "ClassVar" not in ast.unparse(n.annotation)
    }
    methods = (n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    attributes = (n for method in methods for n in ast.walk(method) if isinstance(n, ast.Attribute))
    stored = (n for n in attributes if isinstance(n.ctx, ast.Store))
    return declared | {n.attr for n in stored if isinstance(n.value, ast.Name) and n.value.id == "self"}


def classes(texts: dict[str, str]) -> Iterator[tuple[str, int]]:
    """Yield "path: name" and the number of fields of every class, with those that it inherits."""
    found = [
        (path, node)
        for path, text in texts.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
    ]
    by_name: dict[str, list[ast.ClassDef]] = {}
    for _, node in found:
        by_name.setdefault(node.name, []).append(node)

    def all_fields(node: ast.ClassDef) -> set[str]:
        names = [ast.unparse(base.value if isinstance(base, ast.Subscript) else base) for base in node.bases]
        bases = [by_name[name][0] for name in names if len(by_name.get(name, ())) == 1]
        return fields(node).union(*map(all_fields, bases))

    for path, node in found:
        yield f"{path}: {node.name}", len(all_fields(node))


def c_files() -> dict[str, str]:
    """Return the text of each file of the C runtime, by its path."""
    return {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "runtime_c").glob("*/*.[ch]")}


def casts(text: str) -> int:
    """Return how often a module calls `typing.cast`."""
    nodes = list(ast.walk(ast.parse(text)))
    imported = [n for n in nodes if isinstance(n, ast.ImportFrom) and n.module == "typing"]
    if not any(alias.name == "cast" for n in imported for alias in n.names):
        return 0
    calls = (n.func for n in nodes if isinstance(n, ast.Call))
    return sum(isinstance(function, ast.Name) and function.id == "cast" for function in calls)


def test_functions_are_short() -> None:
    found = [(lines, path, name) for path, text in sources().items() for name, lines in functions(text)]
    too_long = [
        f"{path}: {name} has {lines} lines" for lines, path, name in sorted(found) if lines > MAX_LINES
    ]
    assert not too_long, f"at most {MAX_LINES} are allowed:\n" + "\n".join(too_long)
    lengths = sorted(lines for lines, _, _ in found)
    assert lengths[len(lengths) * 9 // 10] <= MAX_P90 and statistics.median(lengths) <= MAX_MEDIAN


def test_functions_take_few_parameters() -> None:
    found = {f"{path}: {name}": n for path, text in sources().items() for name, n in parameters(text)}
    assert len(found) > 4000
    assert {name for name, n in found.items() if n > MAX_PARAMETERS} == LONG_LISTS


def test_functions_in_c_are_short() -> None:
    files = c_files()
    found = {f"{path}: {name}": n for path, text in files.items() for name, n in c_functions(text)}
    assert len(found) > 400
    assert {name for name, lines in found.items() if lines > MAX_C_LINES} == LONG_IN_C
    found = {f"{path}: {name}": n for path, text in files.items() for name, n in c_parameters(text)}
    assert len(found) > 400
    assert {name for name, n in found.items() if n > MAX_PARAMETERS} == LONG_LISTS_IN_C


def test_structs_in_c_are_small() -> None:
    found = {f"{path}: {name}": n for path, text in c_files().items() for name, n in c_structs(text)}
    assert len(found) > 70 and found["runtime_c/run/plan.h: step"] == 5
    assert not {name: n for name, n in found.items() if n > MAX_C_FIELDS}


def test_objects_are_small() -> None:
    found = dict(classes(sources()))
    assert len(found) > 400 and found["jit/families/conv/spec.py: Conv"] == 6
    assert not {name: n for name, n in found.items() if n > MAX_FIELDS}


def test_types_are_checked_not_asserted() -> None:
    by_path = {path: casts(text) for path, text in sources().items() if casts(text)}
    assert sum(by_path.values()) <= MAX_CASTS, by_path
    ignored = {path: len(re.findall(r"# type: ignore", text)) for path, text in sources().items()}
    assert sum(ignored.values()) <= MAX_IGNORES, {path: n for path, n in ignored.items() if n}


def test_what_is_measured() -> None:
    text = "from typing import cast\ndef f():\n    x = cast(int, 1)\n\n    return b.cast(x)\n"
    assert list(functions(text)) == [("f", 4)] and casts(text) == 1
    assert list(c_functions("static int f(int x,\n  int y) {\n  if (x) {\n  }\n}\nint g(void);\n")) == [
        ("f", 5)
    ]
    text = (
        "struct p {\n  int a, *b; /* c, d; */\n  struct {\n    int c, d;\n  } e;\n  int (*f)(int, int);\n};\n"
    )
    assert list(c_structs(text)) == [("p", 4)]
    assert list(c_parameters("static int f(int (*g)(int), /* h, */ int h) {\n  if (x) {\n")) == [("f", 2)]
    text = "class A:\n    def f(self, a, *b, c, **d): ...\ndef g(a, b): ...\ntable = [g]\nf(1)\n"
    assert list(parameters(text)) == [("f", 4)]
    assert casts("def cast(x): ...\ncast(1)\n") == 0
    text = "class A:\n    x: int\n    N: ClassVar[int]\n    def f(self):\n        self.y = self.x = 1\n"
    text += "@dataclass(frozen=True)\nclass B(A[int]):\n    z: int\nclass C(A):\n    z: int\n"
    assert list(classes({"a.py": text})) == [("a.py: A", 2), ("a.py: B", 3), ("a.py: C", 3)]
