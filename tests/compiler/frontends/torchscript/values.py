"""Programs of numbers, strings, optionals, tuples and dicts."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .programs import matrices, program, x

# Ints and floats ----------------------------------------------------------------------------------------


@program((7, 3), (-7, 3), (7, -3), (-7, -3), (-(2**62), 5), (5, 0))
def python_division(a: int, b: int) -> tuple[int, int, int]:
    return a // b, a % b, (a // b) * b + a % b


@program((7.5, 2.0), (-7.5, 2.0), (7.5, -2.0), (-0.5, 3.0))
def floats_divided(a: float, b: float) -> tuple[float, float, float]:
    return a // b, a % b, a / b


@program((6, 3), (-6, 1), (0, 0), (2**40, 5))
def bits(a: int, b: int) -> tuple[int, int, int, int, int]:
    return a & b, a | b, a ^ b, a << b, a >> b


@program((3, 4), (-2, 3), (5, 0), (2, 10))
def powers(a: int, b: int) -> tuple[float, int]:
    return float(a) ** b, a * a


@program((2.5,), (-2.5,), (3.5,), (0.49,))
def rounds_a_number(a: float) -> tuple[int, int, int, float]:
    return math.floor(a), math.ceil(a), int(a), round(a)


@program((1.5,), (0.1,), (-2.0,))
def trigonometry(a: float) -> tuple[float, float, float, float]:
    return math.sin(a), math.cos(a), math.tanh(a), math.exp(a)


@program((3.0,), (0.5,), (-1.0,))
def square_root_or_error(a: float) -> float:
    if a < 0:
        raise ValueError("a must not be negative")
    return math.sqrt(a)


@program((3, 2.5, True), (-3, 0.5, False), (0, -1.0, True))
def all_kinds(a: int, b: float, c: bool) -> tuple[float, int, bool]:
    return a * b + float(c), a + int(c), a > b or c


@program((1, 2, 3), (3, 2, 1), (2, 2, 2), (-1, 5, -7))
def chained(a: int, b: int, c: int) -> tuple[bool, bool, int]:
    return a < b and b < c, a == b or b == c, min(a, min(b, c))


@program((12, 18), (7, 5), (0, 4), (100, 75))
def greatest_common_divisor(a: int, b: int) -> int:
    while b != 0:
        a, b = b, a % b
    return a


@program((10,), (2,), (1,), (30,))
def primes_below(n: int) -> int:
    count = 0
    for i in range(2, n):
        is_prime = True
        for k in range(2, i):
            if k * k > i:
                break
            if i % k == 0:
                is_prime = False
                break
        if is_prime:
            count += 1
    return count


@program((-5, 5, 2), (0, 3, 1), (3, 0, 4), (-9, -1, 3))
def ranges(low: int, high: int, n: int) -> int:
    total = 0
    for i in range(low, high):
        total += i * n
    for i in range(high, low, -2):
        total -= i
    return total


@program((x(4), -1), (x(4), 2), (x(4), 0), (x(3), -3))
def negative_numbers_with_tensors(a: Tensor, n: int) -> Tensor:
    return (a + n) * n - n // 2


@program((x(5), -2), (x(5), 2), (x(7), 0), (x(3), -5))
def rolls(a: Tensor, n: int) -> Tensor:
    k = n % a.size(0)
    return torch.cat([a[a.size(0) - k :], a[: a.size(0) - k]])


@program((x(3, 4), 0.5), (x(2, 2), -1.0), (x(1, 5), 3.25))
def scales(a: Tensor, f: float) -> Tensor:
    return torch.where(a > f, a * f, a - f)


@program((x(4),), (x(1),), (x(9),))
def statistics(a: Tensor) -> tuple[float, float, int]:
    return float(a.max()), a.sum().item(), int(a.argmin())


@program((5, 0.5), (0, 2.0), (12, 0.9))
def geometric(n: int, ratio: float) -> list[float]:
    found: list[float] = []
    term = 1.0
    for _ in range(n):
        found.append(term)
        term *= ratio
    return found


@program((3,), (0,), (7,))
def table_of_bools(n: int) -> list[bool]:
    found: list[bool] = []
    for i in range(n):
        found.append(i % 3 == 0)
    return found


# Strings ------------------------------------------------------------------------------------------------


@program((x(3), "relu"), (x(4), "relu"), (x(1), "relu"))
def string_argument(a: Tensor, how: str) -> Tensor:
    if how == "relu":
        return torch.relu(a)
    elif how.startswith("tan"):
        return torch.tanh(a)
    raise ValueError("how is unknown")


@matrices
def string_methods(a: Tensor) -> Tensor:
    words = "one,two,three".split(",")  # noqa: SIM905 (the program is what is tested)
    n = len(words)
    text = "-".join(words).upper()
    if "TWO" in text and text.endswith("THREE") and text[0] == "O" and text[1:3] == "NE":
        n += text.count("T") + text.find("T")
    return a + n


@program((x(2), 2), (x(2), 0), (x(2), -7))
def message_with_an_int(a: Tensor, n: int) -> Tensor:
    if n < 0:
        raise ValueError(f"n is {n}, which is negative")
    return a + n


@program((x(2), 1), (x(2), 0), (x(2), 5))
def chosen_name(a: Tensor, n: int) -> Tensor:
    name = "add"
    if n > 0:
        name = "mul"
    if name == "mul":
        return a * n
    return a + 1


@program((x(3), "add"), (x(3), "mul"), (x(1), "neither"), (x(2), ""))
def string_given_by_a_call(a: Tensor, how: str) -> Tensor:
    if how == "add":
        return a + 1
    elif how + "!" == "mul!":
        return a * 2
    raise ValueError("how is " + how)


@program((2, "a"), (5, "a"), (-1, "b"), (2, "c"))
def string_and_int(n: int, name: str) -> int:
    text = f"{name}{n}"
    if text == "a5" or text == "b-1":
        return n * 10
    return n


@program((x(2), "b"), (x(2), "a"), (x(3), "c"))
def position_of_a_string(a: Tensor, name: str) -> Tensor:
    names = ["a", "b"]
    for i, each in enumerate(names):
        if each == name:
            return a * i
    return a - 1


@program((x(2, 3), 0, 2.0), (x(4, 3), 0, -1.0), (x(1, 1), 0, 0.5))
def an_axis_that_must_be_a_constant(a: Tensor, axis: int, scale: float) -> Tensor:
    return a.sum(axis) * scale


# Optionals ----------------------------------------------------------------------------------------------


@program((x(3), 2.0), (x(3), -1.0), (x(1), 0.0))
def optional_float(a: Tensor, scale: float | None = None) -> Tensor:
    return a if scale is None else a * scale


@program((x(3), None), (x(4), None), (x(1), None))
def optional_is_none(a: Tensor, scale: float | None) -> Tensor:
    return a + 1 if scale is None else a * scale


@program((x(5), 0.3), (x(5), 100.0), (x(2), -100.0))
def first_above(a: Tensor, limit: float) -> Tensor:
    found: int | None = None
    for i in range(a.size(0)):
        if found is None and float(a[i]) > limit:
            found = i
    if found is None:
        return a * 0
    return a + found


@program((x(5), 3), (x(5), 0), (x(4), 2))
def optional_tensor_in_a_loop(a: Tensor, n: int) -> Tensor:
    last: Tensor | None = None
    for i in range(n):
        if last is None:
            last = a[i]
        else:
            last = last + a[i]
    if last is not None:
        return last
    return torch.zeros(())


# Tuples -------------------------------------------------------------------------------------------------


class Point(NamedTuple):
    """A named tuple as a result."""

    where: Tensor
    n: int


@program((x(3), 2), (x(1), -4), (x(5), 0))
def named_tuple_result(a: Tensor, n: int) -> Point:
    return Point(a * n, n + 1)


@program(((x(2), x(2)), 1), ((x(3), x(3)), -1), ((x(1), x(1)), 0))
def tuple_argument(pair: tuple[Tensor, Tensor], n: int) -> Tensor:
    a, b = pair
    return a * n + b


@program(((x(2), (x(2), 3)),), ((x(4), (x(4), -1)),), ((x(1), (x(1), 0)),))
def nested_tuple_argument(pair: tuple[Tensor, tuple[Tensor, int]]) -> Tensor:
    a, (b, n) = pair
    return a * n + b


@program(((0, x(2), x(2)),), ((1, x(2), x(2)),), ((2, x(3), x(3)),), ((9, x(1), x(1)),))
def tagged_tuple(node: tuple[int, Tensor, Tensor]) -> Tensor:
    tag, a, b = node
    if tag == 0:
        return a + b
    elif tag == 1:
        return a * b
    elif tag == 2:
        return torch.maximum(a, b)
    raise ValueError("the tag is unknown")


@program(
    ({"a": [x(2), x(2)], "b": [x(2)]},),
    ({"a": [x(5), x(5)], "b": [x(5)]},),
    ({"a": [x(1), x(1)], "b": [x(1)]},),
)
def dict_of_lists(parts: dict[str, list[Tensor]]) -> Tensor:
    total = parts["b"][0]
    for each in parts["a"]:
        total = total * 2 + each
    return total


@program((x(3), 4), (x(3), 1), (x(2), 0))
def swaps_in_a_tuple(a: Tensor, n: int) -> tuple[Tensor, Tensor]:
    pair = (a, a + 1)
    for _ in range(n):
        pair = (pair[1], pair[0] * 2)
    return pair


# Dicts ------------------------------------------------------------------------------------------------


@matrices
def dict_methods(a: Tensor) -> Tensor:
    found: dict[str, Tensor] = {}
    for name in ["a", "b", "c"]:
        found[name] = a * len(name) + len(found)
    found.update({"d": a - 1})
    first = found.pop("a")
    total = first + found.get("b", a)
    for key in found.keys():  # noqa: SIM118 (TorchScript)
        total = total + found[key]
    for value in found.values():
        total = total * value
    if "z" not in found:
        total = total + len(found)
    return total


@matrices
def dict_result(a: Tensor) -> dict[str, Tensor]:
    found = {"sum": a.sum(), "max": a.max()}
    found["mean"] = a.mean()
    return found


@program((x(2), 1), (x(2), 2), (x(2), 7))
def dict_in_a_branch(a: Tensor, n: int) -> Tensor:
    found: dict[str, Tensor] = {"x": a}
    if n > 1:
        found["x"] = a * n
    return found["x"] + 1


@program((x(4), 3), (x(4), 0), (x(2), 1))
def dict_in_a_loop(a: Tensor, n: int) -> Tensor:
    state: dict[str, Tensor] = {"h": a, "c": a * 0}
    for i in range(n):
        state["c"] = state["c"] + state["h"] * i
        state["h"] = torch.tanh(state["c"])
    return state["h"] + state["c"]


# Lists ------------------------------------------------------------------------------------------------


@program((6,), (1,), (0,), (13,))
def fibonacci_list(n: int) -> list[int]:
    found: list[int] = []
    for i in range(n):
        if i < 2:
            found.append(i)
        else:
            found.append(found[i - 1] + found[-2])
    return found


@program((x(6), 2), (x(5), 4), (x(3), 1))
def list_set_at_run_time(a: Tensor, n: int) -> float:
    sums = [0.0, 0.0, 0.0, 0.0]
    for i in range(a.size(0)):
        sums[i % n] += float(a[i])
    return sums[0] * 2 + sums[1] - sums[2]


@program((x(4, 3), 2), (x(6, 2), 0), (x(5, 1), 5))
def takes_from_a_list(a: Tensor, n: int) -> Tensor:
    rows: list[Tensor] = []
    for i in range(a.size(0)):
        rows.append(a[i])
    for _ in range(min(n, len(rows) - 1)):
        rows.pop()
    return torch.stack(rows).sum(0) + len(rows)


@program((5,), (0,), (2,))
def list_of_a_run_time_length(n: int) -> tuple[int, int]:
    zeros = [1] * n
    total = 0
    for each in zeros:
        total += each
    return total, len(zeros)


@program((4,), (0,), (9,))
def comprehension_of_a_range(n: int) -> int:
    squares = [i * i for i in range(n)]
    return sum(squares)


@program((x(3), 1), (x(3), 7), (x(2), -2))
def list_in_a_branch(a: Tensor, n: int) -> Tensor:
    parts = [a]
    if n > 0:
        parts.append(a * n)
    return torch.stack(parts).sum(0)


@program((3,), (1,), (20,))
def contains_at_run_time(n: int) -> tuple[bool, int]:
    seen: list[int] = []
    value = n
    while value not in seen:
        seen.append(value)
        value = (value * 3 + 1) % 11
    return value in seen, len(seen)


@program(([1, 2, 3],), ([4, -5, 6],), ([0, 0, 0],))
def list_of_int_arguments(numbers: list[int]) -> int:
    total = 0
    for each in numbers:
        total = total * 2 + each
    return total


# Any, isinstance -------------------------------------------------------------------------------------


@program((x(3), 2), (x(1), 5), (x(4), -1))
def refines_any(a: Tensor, n: int) -> Tensor:
    value: Any = a
    if isinstance(value, Tensor):
        return value * n
    return a


@program((x(4), 3), (x(2), 0), (x(3), -3))
def asserts_with_an_f_string(a: Tensor, n: int) -> Tensor:
    assert n >= 0, f"n is {n}"
    assert a.dim() == 1
    return a[:n].sum()


@program((x(2, 8), 8), (x(2, 4), 4), (x(3, 8), 8), (x(1, 6), 6))
def squeezed_to_one(a: Tensor, width: int) -> Tensor:
    if width == 8:
        made = a.view(a.size(0), width, -1)
    else:
        made = a.view(a.size(0), -1, 1).unfold(1, width, 1).squeeze(2)
    return made.sum(1) + a.view(a.size(0), -1, width).squeeze(1)[:, :1]
