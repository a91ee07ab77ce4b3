"""Graphs as text, exact in both directions: `parse(format_graph(g), constants(g))` is `g` again.

    graph "model"
      symbol batch min=1 max=64 multiple_of=1 why="model.py:9"
      state "steps" i64 int64[1](0)
      input %x: f32[batch, 384]
      %w1: f32[384, 384] = constant() {array=float32[384, 384]@2c26b46b68ffc68f, dtype="f32", name="w"}
      %v2: f32[batch, 384] = matmul(%x, %w1) {}  # model.py:12
      %v3: f32[batch, 384] = if(%c, %v2) {}
        then:
          yield %v2
        else:
          yield %x
      output %v3 as "y"

Large arrays are named by their hash and stored beside the text; small ones are written out. Kernel specs
follow the graph, each once: `spec @HASH` and the lines of `jit.text`; `spec @HASH symbolic` is one whose
sizes are still dimension expressions. Indentation and blank lines are ignored. docs/graph-text.md has the
grammar.

The nodes of a kernel that fusion has chosen are in the region of a `fused` node until lowering:

      %k9: f32[batch, 384] = fused()
        body:
          %v3: f32[batch, 384] = neg(%v2)
          %v4: f32[batch, 384] = exp(%v3)
          yield %v4
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

import numpy as np
import sympy

from ...jit.spec import KernelSpec, spec_hash
from ...jit.text import NUMBERED, SizeText, format_spec, parse_spec
from ...vm import schema
from ...vm.isa import DTYPES
from ...vm.literals import MAX_INLINE, array_hash
from ...vm.meta import STRUCTURE
from ...vm.program import NUMPY_DTYPES
from .dims import format_dim, limited_work, parse_dim
from .errors import TextError
from .graph import Block, Graph, Node, SymbolInfo, Value
from .sizes import expressions
from .types import ListType, ScalarType, TensorType, TupleType, Type, parse_type, split_commas

MAX_SHOWN = 200  # characters of a line that an error shows
MAX_DIGITS = 20  # of a 64-bit integer, including its sign
_BOOLS = {"True": True, "False": False}
_ARRAY_DTYPES = tuple(dict.fromkeys(dtype.name for dtype in NUMPY_DTYPES.values()))
#: The errors of parsing malformed text. RecursionError, MemoryError: from nested brackets.
_MALFORMED = (ValueError, LookupError, TypeError, ArithmeticError, RecursionError, MemoryError)
REGION_NAMES = {"if": ("then", "else"), "while": ("cond", "body"), "fused": ("body",)}
_WORDS: dict[str, Any] = {
    "true": True, "false": False, "none": None, "inf": math.inf, "-inf": -math.inf, "nan": math.nan,
}  # fmt: skip
SYMBOLIC = SizeText(format_dim, parse_dim)
RESERVED_NAMES = frozenset(_WORDS)  # a size symbol of such a name could not be read back


# Printing ------------------------------------------------------------------------------------------


def format_graph(graph: Graph) -> str:
    """Return `graph` as text, with a trailing newline. Raises TextError for attrs that are not data."""
    lines = [f"graph {json.dumps(graph.name)}"]
    lines += [f"  {_format_symbol(info)}" for info in graph.symbols.values()]
    if graph.structure:
        lines.append(f"  structure {_format_structure(graph)}")
    for name, (first, type) in graph.state.items():
        lines.append(f"  state {json.dumps(name)} {type} {_format_attr(first)}")
    for name, value in zip(graph.inputs, graph.body.params, strict=True):
        lines.append(f"  input {_typed(value)}{'' if name == value.name else f' as {json.dumps(name)}'}")
    lines += _format_nodes(graph.body, "  ")
    for name, value in zip(graph.outputs, graph.body.results, strict=True):
        lines.append(f"  output {_name(value)} as {json.dumps(name)}")
    specs = {_spec_name(item): item for item in _attributes(graph) if _is_spec(item)}
    for spec_name, spec in specs.items():
        form, sizes = (" symbolic", SYMBOLIC) if _is_symbolic(spec) else ("", NUMBERED)
        lines += ["", f"spec {spec_name}{form}"]
        lines += [f"  {line}" for line in format_spec(spec, sizes).splitlines()]
    return "\n".join(lines) + "\n"


def constants(graph: Graph) -> dict[str, np.ndarray]:
    """Return the arrays that `format_graph` names by hash."""
    arrays = (item for item in _attributes(graph) if isinstance(item, np.ndarray))
    return {array_hash(array): array for array in arrays if array.size > MAX_INLINE}


def format_node(node: Node, indent: str = "") -> str:
    """Return one node, including its regions, as text."""
    results = ", ".join(_typed(value) for value in node.results)
    args = ", ".join("none" if arg is None else _name(arg) for arg in node.args)
    attrs = ", ".join(f"{name}={_format_attr(value)}" for name, value in node.attrs.items())
    tail = (f" {{{attrs}}}" if attrs else "") + (f"  # {node.source}" if node.source else "")
    lines = [f"{indent}{results}{' ' if results else ''}= {node.op}({args}){tail}"]
    names = REGION_NAMES.get(node.op, ())
    for i, region in enumerate(node.regions):
        params = f"({', '.join(map(_typed, region.params))})" if region.params else ""
        lines.append(f"{indent}  {names[i] if i < len(names) else 'region'}{params}:")
        lines += _format_nodes(region, indent + "    ")
        lines.append(f"{indent}    yield {', '.join(map(_name, region.results))}".rstrip())
    return "\n".join(lines)


def _format_nodes(block: Block, indent: str) -> list[str]:
    return [format_node(node, indent) for node in block.nodes]


def _name(value: Value) -> str:
    return f"%{value.name}" if re.fullmatch(r"[\w.]+", value.name) else f"%{json.dumps(value.name)}"


def _typed(value: Value) -> str:
    return f"{_name(value)}: {value.type}"


def _format_symbol(info: SymbolInfo) -> str:
    bound = "" if info.max is None else f" max={info.max}"
    why = f" why={json.dumps(info.why)}" if info.why else ""
    return f"symbol {info.name} min={info.min}{bound} multiple_of={info.multiple_of}{why}"


def _format_structure(graph: Graph) -> str:
    try:
        return json.dumps(graph.structure)
    except TypeError as error:
        raise TextError(f"graph {graph.name!r}: its structure is not JSON data: {error}") from error


def _attributes(graph: Graph) -> Iterator[Any]:
    """Yield every attribute value, including items of tuples."""

    def flatten(items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            yield item
            if isinstance(item, tuple):
                yield from flatten(item)

    yield from flatten(first for first, _ in graph.state.values())
    for node in graph.nodes():
        yield from flatten(node.attrs.values())


def _is_spec(value: Any) -> bool:
    return isinstance(value, KernelSpec)


def _format_attr(value: Any) -> str:
    if isinstance(value, float | bool | None) and str(value).lower() in _WORDS:
        return str(value).lower()
    if isinstance(value, (int, float)) and not isinstance(value, np.generic):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, sympy.Expr):
        return format_dim(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(_format_attr, value))}]"
    if isinstance(value, np.ndarray):
        return _format_array(value)
    if _is_spec(value):
        return _spec_name(value)
    if isinstance(value, get_args(Type)):
        return f"type<{value}>"
    raise TextError(f"an attribute of type {type(value).__name__} is not data: {value!r}")


def _format_array(array: np.ndarray) -> str:
    head = f"{array.dtype}[{', '.join(map(str, array.shape))}]"
    if array.size > MAX_INLINE:
        return f"{head}@{array_hash(array)}"
    return f"{head}({', '.join(str(item) for item in array.reshape(-1))})"


def _is_symbolic(spec: KernelSpec) -> bool:
    return any(True for _ in expressions(spec))


def _spec_name(spec: KernelSpec) -> str:
    """Return the name of a spec: the hash of its identity or, before it has one, of its text."""
    if _is_symbolic(spec):
        return f"@{hashlib.sha256(format_spec(spec, SYMBOLIC).encode()).hexdigest()[:16]}"
    return f"@{spec_hash(spec)[:16]}"


# Parsing -------------------------------------------------------------------------------------------


def parse(text: str, constants: Mapping[str, np.ndarray] | None = None) -> Graph:
    """Parse `text` into a graph. Raises TextError naming the line and its error."""
    main, *spec_texts = re.split(r"^spec (?=@)", text, flags=re.MULTILINE)
    with limited_work():
        specs = dict(_parse_specs(spec_texts, main.count("\n") + 1))
        return _Parser(main, constants or {}, specs).graph()


def _parse_specs(texts: Sequence[str], line: int) -> Iterator[tuple[str, KernelSpec]]:
    """Yield the kernel specs by name; the first text begins in `line`."""
    for text in texts:
        head, _, body = text.partition("\n")
        name, _, form = head.strip().partition(" ")
        try:
            if form not in ("", "symbolic"):
                raise ValueError(f"{form!r} is not understood; a spec may be 'symbolic'")
            yield name, parse_spec(body, SYMBOLIC if form else NUMBERED)
        except _MALFORMED as error:
            raise TextError(f"line {line}: {_reason(error)}, in kernel spec {name}") from None
        line += text.count("\n")


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError | MemoryError):
        return "the text is nested too deeply"
    return str(error.args[0] if error.args else error)


class _Parser:
    """Reads lines; every method takes the current line and moves on."""

    def __init__(self, text: str, arrays: Mapping[str, np.ndarray], specs: Mapping[str, KernelSpec]) -> None:
        numbered = enumerate(text.split("\n"), start=1)
        stripped = ((number, line.strip()) for number, line in numbered)
        self.lines = [(number, line) for number, line in stripped if line and not line.startswith("#")]
        self.position = 0
        self.arrays, self.specs = arrays, specs
        self.values: dict[str, Value] = {}
        self.result = Graph("")

    def graph(self) -> Graph:
        """Read the whole text."""
        try:
            self._graph()
        except _MALFORMED as error:
            number, line = self.lines[min(self.position, len(self.lines) - 1)] if self.lines else (1, "")
            shown = line if len(line) <= MAX_SHOWN else f"{line[: MAX_SHOWN - 3]}..."
            raise TextError(f"line {number}: {_reason(error)}, in {shown!r}") from None
        numbers = (re.search(r"[0-9]{1,9}$", name) for name in self.values)
        self.result._n_values = max([0, *(int(match[0]) for match in numbers if match)])
        return self.result

    def _graph(self) -> None:
        graph = self.result
        graph.name = json.loads(self._rest("graph"))
        while self._peek("symbol"):
            info = _parse_symbol(self._rest("symbol"))
            graph.symbols[info.name] = info
        if self._peek("structure"):
            graph.structure = self._structure(self._rest("structure"))
        while self._peek("state"):
            self._state(self._rest("state"))
        while self._peek("input"):
            typed, name = _split_as(self._rest("input"))
            value = self._define(typed, None)
            graph.body.params.append(value)
            graph.inputs.append(value.name if name is None else name)
        self._nodes(graph.body, ("output",))
        while self.position < len(self.lines):
            text, name = _split_as(self._rest("output"))
            graph.outputs.append(name if name is not None else text[1:])
            graph.body.results.append(self._value(text))

    def _structure(self, text: str) -> dict[str, Any]:
        return dict(STRUCTURE.read(schema.parse(text), ()))

    def _state(self, text: str) -> None:
        match = re.match(r'("(?:[^"\\]|\\.)*") (\w+)', text)
        end = match.end() if match is not None else 0
        if match is not None and text[end : end + 1] == "<":
            end = _end_of_type(text, end)
        if match is None or text[end : end + 1] != " ":
            raise ValueError("a state such as 'state \"steps\" i64 int64[1](0)' expected")
        type, first = text[match.start(2) : end], self._attr(text[end + 1 :])
        _check_first(first, type)
        self.result.state[json.loads(match[1])] = first, type

    def _peek(self, *words: str) -> bool:
        if self.position >= len(self.lines):
            return False
        return re.match(r"\w*", self.lines[self.position][1])[0] in words  # type: ignore[index]

    def _rest(self, word: str) -> str:
        """Take a line that must start with `word`; return what follows it."""
        if not self._peek(word):
            raise ValueError(f"{word!r} expected")
        line = self.lines[self.position][1]
        self.position += 1
        return line[len(word) :].strip()

    def _nodes(self, block: Block, end: tuple[str, ...]) -> None:
        while self.position < len(self.lines) and not self._peek(*end):
            block.nodes.append(self._node())

    def _node(self) -> Node:
        line = self.lines[self.position][1]
        results, equals, rest = _split_equals(line)
        op, parenthesis, _ = rest.partition("(")
        if not equals or not parenthesis:
            raise ValueError("a node such as '%y: f32[2] = neg(%x)' expected")
        close = _closing(rest, len(op))
        names = split_commas(rest[len(op) + 1 : close])
        args = [None if name == "none" else self._value(name) for name in names]
        tail = rest[close + 1 :].strip()
        attrs: dict[str, Any] = {}
        if tail.startswith("{"):
            end = _closing(tail, 0)
            attrs = self._attrs(tail[1:end])
            tail = tail[end + 1 :].strip()
        if tail and not tail.startswith("#"):
            raise ValueError(f"{tail!r} is not understood")
        node = Node(op.strip(), args, attrs, source=tail[1:].strip())
        self.position += 1
        self._regions(node)
        node.results = [self._define(typed, node) for typed in split_commas(results)]
        return node

    def _regions(self, node: Node) -> None:
        while self._peek("region", "then", "else", "cond", "body"):
            line = self.lines[self.position][1]
            params = line[line.index("(") + 1 : _closing(line, line.index("("))] if "(" in line else ""
            block = Block([self._define(typed, None) for typed in split_commas(params)])
            self.position += 1
            self._nodes(block, ("yield",))
            block.results = [self._value(name) for name in split_commas(self._rest("yield"))]
            node.regions.append(block)

    def _attrs(self, text: str) -> dict[str, Any]:
        pairs = (part.partition("=") for part in split_commas(text))
        return {name.strip(): self._attr(value.strip()) for name, _, value in pairs}

    def _attr(self, text: str) -> Any:
        if text in _WORDS:
            return _WORDS[text]
        if text.startswith('"'):
            return json.loads(text)
        if text.startswith("[") and text.endswith("]"):
            return tuple(self._attr(part) for part in split_commas(text[1:-1]))
        if text.startswith("@"):
            return self._find(self.specs, text, "kernel spec")
        if text.startswith("type<") and text.endswith(">"):
            return parse_type(text[5:-1])
        array = re.fullmatch(r"(\w+)\[([\d, ]*)\](?:\((.*)\)|@(\w+))", text)
        if array is not None:
            return self._array(*array.groups())
        if re.fullmatch(r"-?\d+", text):
            return _int64(text)
        try:
            return float(text)
        except ValueError:
            return parse_dim(text)

    def _array(self, dtype: str, sizes: str, items: str | None, digest: str | None) -> np.ndarray:
        if dtype not in _ARRAY_DTYPES:
            raise ValueError(f"dtype {dtype!r} of an array is not one of {', '.join(_ARRAY_DTYPES)}")
        shape = tuple(_int64(size) for size in split_commas(sizes))
        if items is None:
            found: np.ndarray = self._find(self.arrays, str(digest), "constant")
            if found.dtype.name != dtype or found.shape != shape:
                raise ValueError(f"constant {digest} is {found.dtype}{list(found.shape)}")
            return found
        number = _BOOLS.__getitem__ if dtype == "bool" else np.dtype(dtype).type
        return np.array([number(item) for item in split_commas(items)], dtype=dtype).reshape(shape)

    def _find(self, table: Mapping[str, Any], name: str, what: str) -> Any:
        if name not in table:
            raise ValueError(f"{what} {name} is not given with the text")
        return table[name]

    def _define(self, typed: str, node: Node | None) -> Value:
        text, colon, type_text = typed.partition(":") if not typed.startswith('%"') else _split_quoted(typed)
        if not colon:
            raise ValueError(f"{typed!r} lacks its type, as in '%x: f32[2]'")
        value = Value(self.result.take_name(_parse_name(text)), parse_type(type_text), node)
        if value.name in self.values:
            raise ValueError(f"%{value.name} is defined twice")
        self.values[value.name] = value
        return value

    def _value(self, text: str) -> Value:
        name = _parse_name(text)
        if name not in self.values:
            raise ValueError(f"%{name} is not defined before its use")
        return self.values[name]


def _end_of_type(text: str, start: int) -> int:
    """Return the position of the bracket that closes the one at `start`."""
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == "<") - (text[i] == ">")
        if not depth:
            return i + 1
    raise ValueError("a type's '<' has no '>'")


def _check_first(first: Any, type: str) -> None:
    """Raise ValueError if a state's initial value is not of its type."""
    if type not in DTYPES:
        if not _is_of(first, parse_type(type)):
            raise ValueError(f"the first value is no {type}")
    elif not isinstance(first, np.ndarray) or first.dtype != NUMPY_DTYPES[type]:
        what = first.dtype if isinstance(first, np.ndarray) else "none"
        raise ValueError(f"the array is {what}, which does not hold {type}")


def _is_of(value: Any, type: Type) -> bool:
    if isinstance(type, ListType):
        return isinstance(value, tuple) and all(_is_of(item, type.element) for item in value)
    if isinstance(type, TupleType):
        pairs = zip(value, type.elements, strict=False) if isinstance(value, tuple) else ()
        return len(value) == len(type.elements) and all(_is_of(*pair) for pair in pairs)
    if isinstance(type, TensorType):
        is_array = isinstance(value, np.ndarray) and value.dtype == NUMPY_DTYPES[type.dtype]
        return is_array and value.shape == type.shape
    kinds = {"int": int, "float": float, "bool": bool, "str": str}
    return isinstance(type, ScalarType) and value.__class__ is kinds.get(type.kind)


def _parse_name(text: str) -> str:
    text = text.strip()
    if not text.startswith("%"):
        raise ValueError(f"{text!r} is not a value: a name such as %x expected")
    return str(json.loads(text[1:])) if text[1:2] == '"' else text[1:]


def _int64(text: str) -> int:
    value = int(text) if len(text) <= MAX_DIGITS else 1 << 64
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{text[:MAX_DIGITS]} is no integer of 64 bits")
    return value


def _split_equals(line: str) -> tuple[str, str, str]:
    """Split a line at the first "= " outside of strings, as str.partition does."""
    for match in re.compile(r'"(?:[^"\\]|\\.)*"|= ').finditer(line):
        if match[0] == "= ":
            return line[: match.start()], match[0], line[match.end() :]
    return line, "", ""


def _split_quoted(typed: str) -> tuple[str, str, str]:
    """Split '%"name": type' at the colon after the quoted name."""
    _, end = json.JSONDecoder().raw_decode(typed, 1)
    return typed[:end], typed[end : end + 1], typed[end + 1 :]


def _split_as(text: str) -> tuple[str, str | None]:
    """Split 'TEXT as "name"' into TEXT and the name, None where there is none."""
    head, found, name = text.partition(' as "')
    return (head.strip(), json.loads('"' + name)) if found else (text, None)


def _parse_symbol(text: str) -> SymbolInfo:
    match = re.fullmatch(r'([^\W\d]\w*) min=(-?\d+)(?: max=(-?\d+))? multiple_of=(\d+)(?: why=(".*"))?', text)
    if match is None:
        raise ValueError("a symbol such as 'symbol s0 min=1 max=64 multiple_of=1' expected")
    name, low, high, multiple, why = match.groups()
    bound = None if high is None else _int64(high)
    if _int64(multiple) < 1:
        raise ValueError(f"multiple_of is {multiple}; it must be at least 1")
    return SymbolInfo(name, _int64(low), bound, _int64(multiple), json.loads(why or '""'))


def _closing(text: str, start: int) -> int:
    """Return the position of the bracket that closes the one at `start`, skipping strings."""
    depth = 0
    for match in re.compile(r'"(?:[^"\\]|\\.)*"|[()\[\]{}]').finditer(text, start):
        depth += (match[0] in "([{") - (match[0] in ")]}")
        if depth == 0:
            return match.start()
    raise ValueError(f"{text[start]!r} is not closed")
