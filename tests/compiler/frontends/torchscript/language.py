"""Programs in the manner of PyTorch's own tests of TorchScript: statements, numbers, names, calls."""

from __future__ import annotations

import math
from enum import Enum
from typing import Any, NamedTuple, Optional, Union

import torch
from torch import Tensor

from .programs import matrices, program, x


@program((x(4), 3), (x(4), 0), (x(6), -1), (x(1), 100))
def breaks_out_of_two_loops(a: Tensor, limit: int) -> tuple[int, int]:
    seen = 0
    last = -1
    for i in range(a.size(0)):
        done = False
        for j in range(a.size(0)):
            if j > i:
                break
            if seen >= limit:
                done = True
                break
            if j % 2 == 1:
                continue
            seen += 1
        last = i
        if done:
            break
    return seen, last


@program((x(5), 0.0), (x(5), 9.0), (x(0), 1.0), (x(1), -9.0))
def returns_out_of_a_loop(a: Tensor, level: float) -> int:
    for i in range(a.size(0)):
        if float(a[i]) > level:
            return i
        elif float(a[i]) < -level:
            return -i - 10
    return -1


@program((7, 2), (-7, 2), (7, -2), (-7, -2), (0, 3), (1, 0), (2**40, 3))
def python_arithmetic(a: int, b: int) -> tuple[int, int, float, int]:
    return a // b, a % b, a / b, a - b * (a // b)


@program((7.5, 2.0), (-7.5, 2.0), (7.5, -2.0), (-0.5, 0.25))
def float_arithmetic(a: float, b: float) -> tuple[float, float, float, float]:
    return a // b, a % b, a / b, a**2 - b


@program((5, 3), (-5, 3), (1023, 10), (2**40, 2), (-1, 62))
def shifts_and_masks(a: int, n: int) -> list[int]:
    return [a << 1, a >> n % 8, a & 255, a | n, a ^ n, -a]


@program((2**40, 3), (-(2**40), 5), (2**61, 1), (7, -7))
def large_numbers(a: int, b: int) -> tuple[int, int, int]:
    c = a * b
    return c, c // 1000003, c % 1000003


@program((5, 1.5, True), (-5, -0.5, False), (0, 0.0, True))
def kinds_of_numbers(n: int, f: float, flag: bool) -> tuple[float, int, bool, int, float]:
    return n + f, n + int(flag), bool(n) and flag or f > 1, int(f), float(n) * 2


@program((3, 5, 9), (5, 3, 9), (9, 9, 9), (-1, -2, -3))
def chained_comparisons(a: int, b: int, c: int) -> tuple[bool, bool, int]:
    return a < b < c, a <= b <= c, 1 if a < b else 2 if b < c else 3


@program((2.5,), (-2.5,), (3.5,), (0.49,), (-0.0,))
def roundings(f: float) -> tuple[int, int, float, int]:
    return math.floor(f), math.ceil(f), round(f), int(f)


@program(([3, 1, 2], [1.0, 2.0]), ([5, 0, 0], [0.5, 0.0]), ([-1, -2, -3], [9.0, -9.0]))
def walks_two_lists(a: list[int], b: list[float]) -> tuple[float, list[float]]:
    total = 0.0
    made: list[float] = []
    for i, (n, f) in enumerate(zip(a, b)):  # noqa: B905 (TorchScript knows no strict)
        total += n * f + i
        made.append(total)
    return total, made


@program((x(3, 4), [0, 2]), (x(5, 2), [4, 4]), (x(2, 2), [-1, 0]))
def walks_rows_by_name(a: Tensor, rows: list[int]) -> Tensor:
    return torch.stack([a[row] * (i + 1) for i, row in enumerate(rows)])


class Colour(Enum):
    """Names for numbers."""

    RED = 1
    GREEN = 2
    BLUE = 7


@program((x(3), 1), (x(3), 2), (x(4), 7), (x(4), 5))
def an_enumeration(a: Tensor, n: int) -> Tensor:
    colour = Colour.RED
    if n == Colour.GREEN.value:
        colour = Colour.GREEN
    if n == Colour.BLUE.value:
        colour = Colour.BLUE
    if colour == Colour.RED:
        return a
    return a * 2 if colour == Colour.GREEN else a * 3


@program((x(3),), (x(1),), (x(4),))
def names_of_an_enumeration(a: Tensor) -> tuple[Tensor, str]:
    total = a * 0
    for colour in Colour:
        total = total + colour.value
    return total, Colour.BLUE.name


class Pair(NamedTuple):
    """A named tuple with a default."""

    first: Tensor
    second: Tensor
    weight: float = 0.5


class Nest(NamedTuple):
    """A named tuple of a named tuple and a list."""

    pair: Pair
    sizes: list[int]


@program((x(3), x(3)), (x(1), x(1)), (x(4), x(4)))
def named_tuples_with_defaults(a: Tensor, b: Tensor) -> Nest:
    pair = Pair(a, b)
    other = Pair(first=b, second=a, weight=2.0)
    mixed = pair.first * pair.weight + other.second * other.weight
    return Nest(Pair(mixed, other[0], pair[2] + 1.0), list(mixed.size()))


@program((Pair(x(3), x(3), 2.0), 1), (Pair(x(4), x(4), -1.0), 0), (Pair(x(1), x(1), 0.0), 3))
def takes_a_named_tuple(pair: Pair, n: int) -> Tensor:
    a, b, weight = pair
    return a * weight + pair.second * n


def _scaled(a: Tensor, by: float = 2.0, shift: int = 1) -> Tensor:
    return a * by + shift


@program((x(3), 2), (x(3), 0), (x(5), -4))
def defaults_and_keywords(a: Tensor, n: int) -> Tensor:
    return _scaled(a) + _scaled(a, shift=n) - _scaled(shift=n * 2, a=a, by=0.5)


@program((x(3), 2), (x(3), -1), (x(4), 0))
def local_before_a_branch(a: Tensor, n: int) -> Tensor:
    if n > 0:
        y = a + n
        z = "more"
    else:
        y = a - n
        z = "less"
    if z == "more" and n > 1:
        y = y * 2
    return y


@program((10,), (0,), (1,), (27,))
def collatz(n: int) -> tuple[int, list[int]]:
    steps = 0
    seen: list[int] = []
    while n > 1:
        seen.append(n)
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
        if steps > 200:
            break
    return steps, seen


@program((12, 18), (-12, 18), (17, 5), (0, 4))
def euclid_by_hand(a: int, b: int) -> int:
    while b != 0:
        a, b = b, a % b
    return a


@program((x(6), 3), (x(6), 6), (x(2), 1))
def while_with_two_conditions(a: Tensor, n: int) -> tuple[Tensor, int]:
    i = 0
    while i < n and not bool(a[i] > 1.0):
        a = a * 1.5
        i += 1
    return a, i


@program((x(3), 1), (x(3), 0), (x(3), -5), (x(2), 300))
def raises_by_hand(a: Tensor, n: int) -> Tensor:
    if n == 0:
        raise ValueError("n must not be 0")
    if n < 0:
        raise RuntimeError(f"n is {n}, which is below 0")
    assert n < 256, "n must fit a byte"
    return a / n


@program((x(3), 2), (x(3), 7), (x(3), -2))
def fails_in_a_loop(a: Tensor, n: int) -> Tensor:
    for i in range(n):
        assert i != 5, f"turn {i} of {n}"
        a = a + i
    return a


@program(("add", x(2), x(2)), ("sub", x(3), x(3)), ("mul", x(1), x(1)), ("pow", x(1), x(1)))
def an_operation_by_name(name: str, a: Tensor, b: Tensor) -> Tensor:
    if name == "add":
        return a + b
    elif name == "sub":
        return a - b
    elif name in ("mul", "times"):
        return a * b
    else:
        raise NotImplementedError("unknown operation " + name)


@program(("a", 2), ("b", 0), ("", -3))
def builds_text(name: str, n: int) -> tuple[str, str, bool, str]:
    parts: list[str] = []
    for i in range(n):
        parts.append(f"{name}{i}")
    joined = ",".join(parts)
    return joined, name + "/" + str(n), joined == "a0,a1", f"{name} has {n}"


@program((x(2, 3), None), (x(3, 2), None), (x(1, 1), None))
def optional_none_given(a: Tensor, b: Optional[Tensor]) -> Tensor:  # noqa: UP045
    return a if b is None else a + b


@program((x(3), [1, 2], None), (x(3), [0, -1], None), (x(4), [3, 3], None))
def several_optionals(
    a: Tensor,
    sizes: list[int] | None,
    scale: Optional[float],  # noqa: UP045
) -> Tensor:
    if sizes is not None:
        for n in sizes:
            a = a + n
    if scale is not None:
        a = a * scale
    return a


@program((x(3), 4), (x(3), -4), (x(2), 0))
def an_optional_in_the_middle(a: Tensor, n: int) -> tuple[Tensor, int]:
    best: Optional[int] = None  # noqa: UP045
    for i in range(n):
        if best is None or i * 3 % 7 > best:
            best = i * 3 % 7
    if best is None:
        return a, -1
    return a * best, best


def _described(value: Any) -> str:
    if isinstance(value, int):
        return "int"
    if isinstance(value, float):
        return "float"
    if isinstance(value, str):
        return "str " + value
    if torch.jit.isinstance(value, list[int]):
        return f"list of {len(value)}"
    if isinstance(value, Tensor):
        return "tensor"
    return "other"


@program((x(2), 3), (x(2), -3), (x(1), 0))
def values_of_any_type(a: Tensor, n: int) -> list[str]:
    return [
        _described(a),
        _described(n),
        _described("x"),
        _described([n, n]),
        _described(1.5),
        _described(None),
    ]


def _of_union(value: Union[int, float, Tensor]) -> float:  # noqa: UP007
    if isinstance(value, int):
        return float(value) * 2
    if isinstance(value, float):
        return value + 0.25
    return float(value.sum())


@program((x(2), 3, 0.5), (x(4), -3, -1.0), (x(1), 0, 9.0))
def values_of_a_union(a: Tensor, n: int, f: float) -> tuple[float, float, float]:
    return _of_union(a), _of_union(n), _of_union(f)


@program((x(3, 3), True, "sum"), (x(3, 3), False, "sum"), (x(2, 4), True, "mean"), (x(2, 4), False, "none"))
def flags_and_names(a: Tensor, square: bool, how: str) -> Tensor:
    y = a * a if square else a
    if how == "sum":
        return y.sum(0)
    if how == "mean":
        return y.mean(0)
    return y[0]


@matrices
def scope_of_a_comprehension(a: Tensor) -> list[int]:
    i = 100
    made = [i * 2 for i in range(4)]
    made.append(i)
    return made + [j + len(made) for j in made]


@program((3, 4), (1, 1), (0, 5), (5, 0))
def table_of_products(n: int, m: int) -> list[int]:
    made: list[int] = []
    for i in range(n):
        for j in range(m):
            if i == j:
                continue
            made.append(i * m + j)
    return made


@program((x(4), 3), (x(4), 1), (x(2), 0), (x(2), 8))
def powers_of_two(a: Tensor, n: int) -> tuple[Tensor, int]:
    total = 0
    i = 0
    while True:
        if i >= n:
            break
        if i == 2:
            i += 1
            continue
        total += 1 << i
        i += 1
    return a * total, total


@program((x(2, 3), 0), (x(2, 3), 5), (x(3, 2), -2))
def a_function_in_a_function(a: Tensor, n: int) -> Tensor:
    return _twice(_twice(a, n), _minus(n))


def _twice(a: Tensor, n: int) -> Tensor:
    if n > 3:
        return a * 2
    for _ in range(n):
        a = _scaled(a, shift=n)
    return a


def _minus(n: int) -> int:
    return -n if n > 0 else n


@program((1, 2.0, "a", True), (-7, 0.1, "", False), (2**40, 1e30, "ü", True))
def returns_what_it_gets(n: int, f: float, s: str, flag: bool) -> tuple[int, float, str, bool]:
    return n, f, s, flag


@program(((1, (x(2), "leaf")), 2), ((-5, (x(3), "node")), 0), ((0, (x(1), "")), -1))
def tagged_and_nested(tree: tuple[int, tuple[Tensor, str]], n: int) -> tuple[Tensor, str]:
    tag, (value, name) = tree
    if tag < 0:
        return value * tag, name + "!"
    return value + n, name


@program(
    ({"a": [x(2), x(2)], "b": [x(2)]}, {1: (2, 0.5)}),
    ({"a": [x(3), x(3)], "b": [x(3)]}, {1: (-2, 1.5)}),
    ({"a": [x(1), x(1)], "b": [x(1)]}, {1: (0, 0.0)}),
)
def dicts_of_lists_and_tuples(d: dict[str, list[Tensor]], e: dict[int, tuple[int, float]]) -> Tensor:
    n, f = e[1]
    total = d["b"][0] * f
    for part in d["a"]:
        total = total + part * n
    return total
