"""Programs that call the methods of lists, and functions of `math`, on run-time values."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .programs import matrices, program, x

# Sorting ------------------------------------------------------------------------------------------------


@program(([3, 1, 2],), ([1, 5, -1],), ([2, 2, 2],))
def sorts_an_argument(a: list[int]) -> tuple[list[int], list[int]]:
    b = sorted(a)
    a.sort(reverse=True)
    return a, b


@program(([3.0, 1.5, 2.0, -0.25],), ([1.0, 5.0, -1.0, 1.0],), ([0.0, 0.0, 0.0, 0.0],))
def sorts_floats(a: list[float]) -> tuple[float, list[float]]:
    a.sort()
    return a[0], a


@program((x(5),), (x(0),), (x(1),), (x(37),), (x(64),))
def sorts_what_a_loop_makes(a: Tensor) -> list[float]:
    found: list[float] = []
    for i in range(a.size(0)):
        found.append(float(a[i]))
    found.sort()
    return found


@program((7, True), (20, False), (0, True), (1, False), (2, True), (33, False))
def sorts_both_ways(n: int, down: bool) -> tuple[list[int], list[int]]:
    found = [(i * i * 7) % 13 for i in range(n)]
    up = sorted(found)
    found.sort(reverse=down)
    return found, up


@program((5, 2, 3), (0, 7, 1), (9, 9, 9), (-1, -5, 4))
def sorts_names_of_numbers(a: int, b: int, c: int) -> tuple[int, int, int, list[int]]:
    found = [a, b, c, 4]
    found.sort()
    three = sorted([a, b, c])
    return found[0], found[3], three[1], three


@program(("b", "a"), ("", "z"), ("aa", "a"), ("\u00e9", "z"), ("m", "m"))
def sorts_strings(a: str, b: str) -> int:
    names = [a, b, "m"]
    names.sort()
    found = 0
    for i, name in enumerate(names):
        if name == a:
            found += i * 10
        if name == "m":
            found += i
    return found


@program((9,), (0,), (1,), (14,))
def sorts_strings_that_a_loop_makes(n: int) -> int:
    names: list[str] = []
    for i in range(n):
        names.append(str((i * 7) % 11))
    names.sort(reverse=True)
    place = 0
    for i, name in enumerate(names):
        if name == "10":
            place = i
    return place


@program(("a", "b"), ("b", "a"), ("a", "a"), ("", "a"), ("ab", "abc"))
def compares_strings(a: str, b: str) -> tuple[bool, bool, bool, bool]:
    return a < b, a <= b, a > b, a >= b


@matrices
def sorts_constants(a: Tensor) -> Tensor:
    words = ["pear", "apple", "fig"]
    words.sort()
    numbers = sorted([3, 1, 2])
    return a * numbers[2] + words.index("fig") + words.count("kiwi")


# Other methods of lists -------------------------------------------------------------------------------


@program((5, 2), (5, 0), (5, -2), (5, 99), (5, -99), (0, 0))
def inserts(n: int, k: int) -> list[int]:
    found = [i for i in range(n)]  # noqa: C416 (TorchScript)
    found.insert(k, 9)
    found.insert(-1, 10)
    found.insert(100, 11)
    return found


@program((5, 2), (5, 0), (5, -1), (5, -5), (5, 5), (0, 0))
def pops_a_position(n: int, k: int) -> tuple[int, list[int]]:
    found = [i * 3 for i in range(n)]
    taken = found.pop(k)
    return taken, found


@program((5,), (2,), (1,), (0,))
def deletes(n: int) -> list[int]:
    found = [i * 3 for i in range(n)]
    del found[1]
    return found


@program((5, 2), (5, 9), (2, 0), (0, 0))
def removes(n: int, k: int) -> list[int]:
    found = [i % 3 for i in range(n)]
    found.remove(k)
    return found


@program((5, 2), (5, 9), (2, 1), (0, 0))
def searches(n: int, k: int) -> tuple[int, int]:
    found = [i % 3 for i in range(n)]
    return found.count(k), found.index(k)


@program((5, 2), (5, 1), (2, 5), (0, 0))
def searches_and_removes_from_a_known_length(n: int, k: int) -> tuple[int, int, list[int]]:
    found = [1, 2, n, 2]
    place, times = found.index(k), found.count(k)
    found.remove(k)
    return place, times, found


@program((7, 1), (7, 2), (0, 3), (6, 4), (5, 0))
def slices_with_steps(n: int, k: int) -> tuple[list[int], list[int], list[int]]:
    found = [i * i for i in range(n)]
    return found[::2], found[1:-1:3], found[1::k]


@program((5,), (0,), (1,))
def reverses(n: int) -> list[int]:
    found = [i * i for i in range(n)]
    found.reverse()
    return found


@program((5, 3), (2, 2), (0, 0), (3, 3))
def compares_lists(n: int, m: int) -> tuple[bool, bool, bool, bool]:
    one = [i for i in range(n)]  # noqa: C416 (TorchScript)
    two = [i for i in range(m)]  # noqa: C416 (TorchScript)
    three = [0, 1, 2]
    empty: list[int] = []
    return one == two, one != two, three == one, one == empty


@program((5,), (0,), (1,), (4,))
def any_and_all(n: int) -> tuple[bool, bool, bool]:
    found = [i % 2 == 0 for i in range(n)]
    return any(found), all(found), any([each > 3 for each in range(n)])  # noqa: C419 (TorchScript)


@program((5,), (1,), (9,), (0,))
def greatest_and_least(n: int) -> tuple[int, int]:
    found = [(i * 5) % 7 for i in range(n)]
    return max(found), min(found)


@program((x(3, 2), 1), (x(4, 2), 2), (x(2, 2), 0))
def methods_of_lists_of_tensors(a: Tensor, k: int) -> Tensor:
    rows: list[Tensor] = []
    for i in range(a.size(0)):
        rows.append(a[i])
    rows.reverse()
    rows.insert(k, a[0] * 2)
    first = rows.pop(0)
    return torch.stack(rows) + first


# Functions of numbers -----------------------------------------------------------------------------------


@program((2.5, 1.5), (0.3, 0.1), (-2.5, 3.5))
def functions_of_math(a: float, b: float) -> tuple[float, float, float, float, float, float, float, float]:
    one, two = math.atan2(a, b), math.fmod(a, b)
    three, four = math.log1p(a * a), math.expm1(a)
    five, six = math.sinh(a), math.cosh(a)
    return one, two, three, four, five, six, math.asin(b / 9), math.acos(b / 9)


@program((2.5, 1.5), (0.3, 0.1), (-2.5, 3.5))
def more_functions_of_math(a: float, b: float) -> tuple[float, float, float, float, float, float, float]:
    one, two = math.degrees(a), math.radians(a)
    three, four = math.erf(a), math.erfc(a)
    return one, two, three, four, math.lgamma(a), math.fabs(a), math.copysign(a, -b)


@program((2.5, 1.5), (0.3, 0.1), (math.nan, 3.5), (math.inf, 3.5))
def functions_that_classify(a: float, b: float) -> tuple[float, float, float, bool, bool, bool]:
    one, two, three = math.asinh(b), math.acosh(b + 2), math.atanh(b / 9)
    return one, two, three, math.isnan(a), math.isinf(a), math.isfinite(a)


@program((12, 18), (7, 5), (0, 4), (-12, 18), (3, -7), (3, 0))
def functions_of_ints(a: int, b: int) -> tuple[int, int, int, float, float]:
    quotient, rest = divmod(a, b)
    return math.gcd(a, b), quotient, rest, math.atan2(a, b), math.fmod(a, b)


@program((12.5, 1.5), (-7.25, 5.0), (1.0, 3.0))
def divmod_of_floats(a: float, b: float) -> tuple[float, float]:
    return divmod(a, b)


@program((5,), (0,), (-1,), (12,))
def factorials(n: int) -> int:
    return math.factorial(n)
