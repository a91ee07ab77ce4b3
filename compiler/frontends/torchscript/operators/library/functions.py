"""Methods of lists and functions of numbers without an operator of the graph, as TorchScript code that is
imported in place of a call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from .....ir.types import ListType, ScalarType, TensorType, TupleType, Type
from ...walk import Walk
from . import arithmetic, strings


def _parts_of_pairs(name: str, letter: str, position: int) -> str:
    """Return the source of a function that lists the pairs' parts at a position, of the type `letter`."""
    return f"""
def {name}(items: List[T]) -> List[{letter}]:
    made: List[{letter}] = []
    for i in range(len(items)):
        made.append(items[i][{position}])
    return made
"""


def _of_each(name: str) -> str:
    """Return the source of a function of tensors for a list of them."""
    return f"""
def {name}(items: List[Tensor]) -> List[Tensor]:
    return [torch.{name}(item) for item in items]
"""


#: By name; `T` is the type of a list's elements. Where these are the pairs of a dict, `K` and `V` are the
#: types of their keys and values. None but "updated" changes its arguments.
SOURCES = {
    "place": """
def place(items: List[T], key: K) -> int:
    at = -1
    for i in range(len(items)):
        if items[i][0] == key:
            at = i
            break
    return at
""",
    "ensured": """
def ensured(items: List[T], key: K, pair: T) -> List[T]:
    if place(items, key) < 0:
        items.append(pair)
    return items
""",
    "found": """
def found(items: List[T], key: K) -> Optional[V]:
    at = place(items, key)
    made: Optional[V] = None
    if at >= 0:
        made = items[at][1]
    return made
""",
    "found_or": """
def found_or(items: List[T], key: K, default: V) -> V:
    at = place(items, key)
    made = default
    if at >= 0:
        made = items[at][1]
    return made
""",
    "dropped": """
def dropped(items: List[T], key: K) -> List[T]:
    made = items[:0]
    for i in range(len(items)):
        if items[i][0] != key:
            made.append(items[i])
    return made
""",
    "updated": """
def updated(items: List[T], others: List[T]) -> List[T]:
    for i in range(len(others)):
        at = place(items, others[i][0])
        if at < 0:
            items.append(others[i])
        else:
            items[at] = others[i]
    return items
""",
    "keys": _parts_of_pairs("keys", "K", 0),
    "values": _parts_of_pairs("values", "V", 1),
    "index": """
def index(items: List[T], item: T) -> int:
    for i in range(len(items)):
        if items[i] == item:
            return i
    raise ValueError("the value is not in the list")
""",
    "count": """
def count(items: List[T], item: T) -> int:
    n = 0
    for each in items:
        if each == item:
            n += 1
    return n
""",
    "equal": """
def equal(one: List[T], other: List[T]) -> bool:
    same = len(one) == len(other)
    if same:
        for i in range(len(one)):
            if one[i] != other[i]:
                same = False
    return same
""",
    "any": """
def any(items: List[T]) -> bool:
    for each in items:
        if bool(each):
            return True
    return False
""",
    "all": """
def all(items: List[T]) -> bool:
    for each in items:
        if not bool(each):
            return False
    return True
""",
    "inserted": """
def inserted(items: List[T], index: int, item: T) -> List[T]:
    n = len(items)
    at = index
    if at < 0:
        at = max(at + n, 0)
    at = min(at, n)
    made = items[:at]
    made.append(item)
    made.extend(items[at:])
    return made
""",
    "without": """
def without(items: List[T], index: int) -> List[T]:
    at = index
    if at < 0:
        at = at + len(items)
    if at < 0 or at >= len(items):
        raise IndexError("the index is not in the list")
    made = items[:at]
    made.extend(items[at + 1:])
    return made
""",
    "reversed": """
def reversed(items: List[T]) -> List[T]:
    made = items[:0]
    n = len(items)
    for i in range(n):
        made.append(items[n - 1 - i])
    return made
""",
    "stepped": """
def stepped(items: List[T], start: int, has_start: bool, end: int, has_end: bool, step: int) -> List[T]:
    if step == 0:
        raise ValueError("the step of a list's slice is 0")
    n = len(items)
    low = 0 if step > 0 else -1
    high = n if step > 0 else n - 1
    first = low if step > 0 else high
    if has_start:
        first = max(low, min(start + n if start < 0 else start, high))
    last = high if step > 0 else low
    if has_end:
        last = max(low, min(end + n if end < 0 else end, high))
    made = items[:0]
    way = 1 if step > 0 else -1
    count = max(0, (last - first + step - way) // step)
    for i in range(count):
        made.append(items[first + i * step])
    return made
""",
    "sorted": """
def less(one: T, other: T) -> bool:
    return one < other

def sorted(given: List[T], reverse: bool) -> List[T]:
    items = given
    n = len(items)
    width = 1
    while width < n:
        made = items[:0]
        start = 0
        while start < n:
            middle = min(start + width, n)
            end = min(start + 2 * width, n)
            i = start
            j = middle
            for _ in range(end - start):
                is_second = i >= middle
                if i < middle and j < end:
                    one = items[i]
                    other = items[j]
                    is_second = less(one, other) if reverse else less(other, one)
                if is_second:
                    made.append(items[j])
                    j += 1
                else:
                    made.append(items[i])
                    i += 1
            start = end
        items = made
        width = width * 2
    return items
""",
    "cat": """
def cat(given: List[Tensor], dim: int) -> Tensor:
    items = given
    while len(items) > 1:
        made: List[Tensor] = []
        for i in range(0, len(items) - 1, 2):
            made.append(torch.cat([items[i], items[i + 1]], dim))
        if len(items) % 2 == 1:
            made.append(items[-1])
        items = made
    return torch.cat([items[0]], dim)
""",
    "hstack": """
def hstack(items: List[Tensor]) -> Tensor:
    if items[0].dim() == 0:
        return torch.stack(items)
    return torch.cat(items, 0 if items[0].dim() == 1 else 1)
""",
    "vstack": """
def vstack(items: List[Tensor]) -> Tensor:
    if items[0].dim() < 2:
        return torch.stack([item.reshape([-1]) for item in items])
    return torch.cat(items, 0)
""",
    "dstack": """
def dstack(items: List[Tensor]) -> Tensor:
    if items[0].dim() < 2:
        return torch.stack([item.reshape([-1]) for item in items], 1).unsqueeze(0)
    if items[0].dim() == 2:
        return torch.stack(items, 2)
    return torch.cat(items, 2)
""",
    "column_stack": """
def column_stack(items: List[Tensor]) -> Tensor:
    if items[0].dim() < 2:
        return torch.stack([item.reshape([-1]) for item in items], 1)
    return torch.cat(items, 1)
""",
    "block_diag": """
def block_diag(given: List[Tensor]) -> Tensor:
    height = 0
    width = 0
    items = [item.reshape([1] * (2 - item.dim()) + item.size()) for item in given]
    for item in items:
        height += item.size(0)
        width += item.size(1)
    made = torch.zeros([height, width], dtype=given[0].dtype)
    row = 0
    column = 0
    for item in items:
        made[row:row + item.size(0), column:column + item.size(1)] = item
        row += item.size(0)
        column += item.size(1)
    return made
""",
    **{name: _of_each(name) for name in ("atleast_1d", "atleast_2d", "atleast_3d")},
    "pad_sequence": """
def pad_sequence(items: List[Tensor], batch_first: bool, value: float, side: str) -> Tensor:
    n = 0
    for item in items:
        n = max(n, item.size(0))
    made = torch.full([len(items), n] + items[0].size()[1:], value, dtype=items[0].dtype)
    for i in range(len(items)):
        start = n - items[i].size(0) if side == "left" else 0
        made[i, start:start + items[i].size(0)] = items[i]
    return made if batch_first else made.transpose(0, 1)
""",
    "broadcast_tensors": """
def broadcast_tensors(items: List[Tensor]) -> List[Tensor]:
    sizes = items[0].size()
    for item in items:
        for k in range(item.dim()):
            if item.size(k) != 1:
                assert sizes[k] == 1 or sizes[k] == item.size(k), (
                    "broadcast_tensors: axis {} has size {} and size {}".format(k, sizes[k], item.size(k)))
                sizes[k] = item.size(k)
    made: List[Tensor] = []
    for item in items:
        wide = item
        for k in range(item.dim()):
            wide = wide.index_select(k, torch.arange(sizes[k]) * int(item.size(k) != 1))
        made.append(wide)
    return made
""",
    "cartesian_prod": """
def cartesian_prod(items: List[Tensor]) -> Tensor:
    assert len(items) > 1, "cartesian_prod: a list of run-time length must have at least two tensors"
    made = items[0].unsqueeze(1)
    for i in range(1, len(items)):
        item = items[i]
        rows = torch.arange(made.size(0) * item.size(0))
        n = max(item.size(0), 1)
        columns = [made[rows // n], item[rows % n].unsqueeze(1)]
        made = torch.cat(columns, 1)
    return made
""",
    "multi_dot": """
def multi_dot(items: List[Tensor]) -> Tensor:
    made = items[0]
    for i in range(1, len(items)):
        made = torch.matmul(made, items[i])
    return made
""",
    "tensor_split_at": """
def tensor_split_at(x: Tensor, ends: List[int], dim: int) -> List[Tensor]:
    n = x.size(dim)
    made: List[Tensor] = []
    start = 0
    for i in range(len(ends) + 1):
        end = n
        if i < len(ends):
            end = ends[i]
        low = min(max(start + n if start < 0 else start, 0), n)
        high = min(max(end + n if end < 0 else end, 0), n)
        made.append(x.narrow(dim, low, max(high - low, 0)))
        start = end
    return made
""",
    "chunk": """
def chunk(x: Tensor, n: int, dim: int) -> List[Tensor]:
    assert n > 0, "chunk: the number of parts is {}; it must be at least 1".format(n)
    size = max((x.size(dim) + n - 1) // n, 1)
    return torch.split(x, size, dim)
""",
    "unbind": """
def unbind(x: Tensor, dim: int) -> List[Tensor]:
    made: List[Tensor] = []
    for i in range(x.size(dim)):
        made.append(x.select(dim, i))
    return made
""",
    "split": """
def split(x: Tensor, size: int, dim: int) -> List[Tensor]:
    assert size > 0, "split: the size of the parts is {}; it must be at least 1".format(size)
    made: List[Tensor] = []
    for i in range(0, max(x.size(dim), 1), size):
        made.append(x.narrow(dim, i, min(size, x.size(dim) - i)))
    return made
""",
    "split_sizes": """
def split_sizes(x: Tensor, sizes: List[int], dim: int) -> List[Tensor]:
    made: List[Tensor] = []
    start = 0
    for size in sizes:
        made.append(x.narrow(dim, start, size))
        start += size
    assert start == x.size(dim), "split: the sizes are {} in all; the axis has {}".format(start, x.size(dim))
    return made
""",
    "tensor_split": """
def tensor_split(x: Tensor, n: int, dim: int) -> List[Tensor]:
    assert n > 0, "tensor_split: the number of parts is {}; it must be at least 1".format(n)
    made: List[Tensor] = []
    size = x.size(dim) // n
    rest = x.size(dim) % n
    for i in range(n):
        made.append(x.narrow(dim, i * size + min(i, rest), size + int(i < rest)))
    return made
""",
    "roll": """
def roll(x: Tensor, shift: int) -> Tensor:
    return torch.roll(x.reshape([-1]), [shift], [0]).reshape(x.size())
""",
    "tolist": """
def tolist(x: Tensor) -> List[T]:
    made: List[T] = []
    for i in range(x.size(0)):
        made.append(T(x[i]))
    return made
""",
    "tolist2": """
def tolist2(x: Tensor) -> List[List[T]]:
    made: List[List[T]] = []
    for i in range(x.size(0)):
        row: List[T] = []
        for j in range(x.size(1)):
            row.append(T(x[i, j]))
        made.append(row)
    return made
""",
    "text": """
def text(items: List[T]) -> str:
    made: List[str] = []
    for item in items:
        made.append(str(item))
    return "[" + ", ".join(made) + "]"
""",
    "squeezed": """
def squeezed(x: Tensor) -> Tensor:
    return x.select(0, 0) if x.size(0) == 1 else x
""",
    "chosen": """
def chosen(row: Tensor, at: int) -> T:
    return T(row[at])
""",
    "first_rows": """
def first_rows(mask: Tensor) -> Tensor:
    return torch.arange(mask.size(1)) < mask.sum(1).unsqueeze(1)
""",
    "are_first": """
def are_first(mask: Tensor) -> bool:
    return bool((mask == (torch.arange(mask.size(1)) < mask.sum(1).unsqueeze(1))).all())
""",
    "shown_rows": """
def shown_rows(x: Tensor, kept: Tensor, value: float) -> Tensor:
    return torch.where(kept.unsqueeze(2), x, value)
""",
    "gcd": """
def gcd(a: int, b: int) -> int:
    while b != 0:
        a, b = b, a % b
    return abs(a)
""",
    "factorial": """
def factorial(n: int) -> int:
    if n < 0:
        raise ValueError("factorial() not defined for negative values")
    made = 1
    for i in range(2, n + 1):
        made *= i
    return made
""",
}
#: Operators of a list of tensors of run-time length.
OF_LISTS = (
    "hstack", "vstack", "row_stack", "dstack", "column_stack", "block_diag", "pad_sequence",
    "broadcast_tensors", "atleast_1d", "atleast_2d", "atleast_3d",
)  # fmt: skip
#: Functions of the library whose arguments are ints.
OF_INTS = ("gcd", "factorial")


def run(importer: Walk, name: str, args: Sequence[Any], element: Type | None = None) -> Any:
    """Import a function of the library; return its result. `element`: the type `T`."""
    graph = _graph(name, _types(element) if element is not None else ("int",))
    with importer.at_line(importer.builder.source):
        return importer.run_apart(graph, args)[0]


@cache
def _graph(name: str, elements: tuple[str, ...]) -> Any:
    source = next(table[name] for table in (SOURCES, strings.SOURCES, arithmetic.SOURCES) if name in table)
    if name != "place" and re.search(r"\bplace\(", source):
        source = SOURCES["place"] + source
    if name == "sorted" and elements[0].startswith("Tuple["):
        source = source.replace("    return one < other\n", _less(len(elements) - 1), 1)
    for letter, type in zip("TKV", elements, strict=False):
        source = re.sub(rf"\b{letter}\b", type, source)
    unit = torch.jit.CompilationUnit(source)
    graph = getattr(unit, name.partition(".")[0]).graph.copy()
    torch._C._jit_pass_inline(graph)
    return graph


def _less(n: int) -> str:
    """Return the lines of a comparison of tuples of `n` parts: the first ones that differ decide."""
    lines = [f"    if one[{i}] != other[{i}]:\n        return one[{i}] < other[{i}]\n" for i in range(n)]
    return "".join(lines) + "    return False\n"


def _types(element: Type) -> tuple[str, ...]:
    """Return the types of the letters of a source."""
    parts = element.elements if isinstance(element, TupleType) else ()
    return (_script_type(element), *map(_script_type, parts))


def _script_type(element: Type) -> str:
    """Return the annotation of a list's elements."""
    if isinstance(element, ScalarType):
        return element.kind
    if isinstance(element, ListType):
        inner = _script_type(element.element)
        if element.form == "dict":
            return f"Dict[{inner.removeprefix('Tuple[')}"
        return f"List[{inner}]" if element.form == "list" else f"Optional[{inner}]"
    if isinstance(element, TupleType) and element.keys:
        return f"Dict[str, {_script_type(element.elements[0])}]"
    if isinstance(element, TupleType):
        return f"Tuple[{', '.join(map(_script_type, element.elements))}]"
    assert isinstance(element, TensorType)
    return "Tensor"
