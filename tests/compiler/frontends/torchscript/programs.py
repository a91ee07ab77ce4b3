"""Small TorchScript programs, each with argument sets that take different ways through it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor


def x(*shape: int) -> Tensor:
    """Return the same numbers for the same shape."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


MATRICES = [(x(2, 3),), (x(5, 4),), (x(1, 1),)]
PROGRAMS: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]] = {}


def program(*arguments: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add a function to the programs, with argument sets of which the first is the example."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        sets = [each if isinstance(each, tuple) else (each,) for each in arguments]
        assert function.__name__ not in PROGRAMS, f"there is another program {function.__name__}"
        PROGRAMS[function.__name__] = function, sets
        return function

    return add


def matrices(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add a function of one matrix."""
    return program(*MATRICES)(function)


# Views and changes in place ---------------------------------------------------------------------------


@matrices
def straight(a: Tensor) -> Tensor:
    return torch.softmax(torch.relu(a) + 1, dim=-1) * a.sum(0)


@matrices
def writes_a_row(a: Tensor) -> Tensor:
    b = a * 2
    b[0] = 1.0
    return b


@matrices
def writes_through_views(a: Tensor) -> tuple[Tensor, Tensor]:
    b = a.clone()
    c = b.t()
    c[0] += 3.0
    d = b.unsqueeze(0)
    d.mul_(2.0)
    return b, c


@matrices
def writes_a_part_of_a_part(a: Tensor) -> Tensor:
    b = a + 0.0
    b[:, :1][0].zero_()
    return b


@matrices
def writes_every_other(a: Tensor) -> Tensor:
    b = a.clone()
    rows = b[::2]
    rows += 1
    b[:, 1::3] = 7.0
    rows.copy_(rows * 3)
    return b


@matrices
def fills(a: Tensor) -> Tensor:
    b = torch.empty_like(a)
    b.fill_(2.0)
    b[a > 0] = 7.0
    return b


@matrices
def changes_dtype_in_place(a: Tensor) -> Tensor:
    b = torch.zeros(a.size(1), dtype=torch.int64)
    b += 3
    b.add_(torch.ones(a.size(1), dtype=torch.int64))
    return b


@matrices
def changes_its_input(a: Tensor) -> Tensor:
    b = a.clone()
    b.add_(1).relu_().clamp_(max=1.5)
    return b


@program(x(2, 6), x(3, 8), x(1, 2))
def chunks(a: Tensor) -> Tensor:
    b, c = a.chunk(2, dim=1)
    return b * torch.sigmoid(c)


# Sizes -------------------------------------------------------------------------------------------------


@matrices
def sizes(a: Tensor) -> tuple[int, int, int]:
    return a.size(0), a.shape[1] * 2, a.numel()


@matrices
def branch_on_a_size(a: Tensor) -> Tensor:
    if a.size(0) > 2:
        return a * 2
    return a - 1


@matrices
def branch_on_the_rank(a: Tensor) -> Tensor:
    return a.sum(0) if a.dim() == 2 else a


@matrices
def divides_sizes(a: Tensor) -> tuple[int, int, int, float]:
    n = a.size(0)
    return (n - 7) // 2, (n - 7) % 3, -n // 2, n / 4


@program((x(6, 4), 3), (x(9, 2), 3), (x(2, 2), 1))
def reshapes(a: Tensor, n: int) -> Tensor:
    return a.reshape(n, -1)


@matrices
def makes_positions(a: Tensor) -> Tensor:
    return torch.arange(a.size(1)) + a.size(0)


# Numbers -----------------------------------------------------------------------------------------------


@program((7, 2), (-7, 2), (7, -2), (-8, -3), (2**40, 7))
def divides_ints(a: int, b: int) -> tuple[int, int, float]:
    return a // b, a % b, a / b


@program((1, 2.5), (-3, 0.25), (10, -4.0))
def mixes_ints_and_floats(a: int, b: float) -> tuple[float, float, float, bool]:
    return a + b, a * b, b - a, a < b


@program((True, False), (False, False), (True, True))
def logic(a: bool, b: bool) -> tuple[bool, bool, bool, bool]:
    return a and b, a or b, not a, a == b


@program((3,), (0,), (-4,))
def conversions(a: int) -> tuple[float, bool, int]:
    return float(a), bool(a), int(float(a) * 0.5)


@program((x(3), 2.0, 3), (x(4), -1.5, 0), (x(1), 0.0, -2))
def numbers_with_tensors(a: Tensor, b: float, c: int) -> Tensor:
    return a * b + c - b


@program((2.0,), (0.25,), (100.0,))
def functions_of_floats(a: float) -> tuple[float, int, int, float]:
    return math.sqrt(a), math.floor(a), math.ceil(a - 0.5), abs(-a)


@program((5, 3), (-5, 3), (4, 4))
def extremes(a: int, b: int) -> tuple[int, int, int]:
    return max(a, b), min(a, b), abs(a)


# Branches and loops ------------------------------------------------------------------------------------


@program((x(2, 3), True), (x(2, 3), False), (x(4, 1), True))
def branch_on_a_bool(a: Tensor, flag: bool) -> Tensor:
    if flag:
        a = a + 1
    else:
        a = torch.relu(a)
    return a * 2


@program(x(3, 3), -x(3, 3).abs(), x(4, 2).abs())
def branch_on_data(a: Tensor) -> Tensor:
    if bool(a.sum() > 0):
        return a[0]
    return a[-1] * 2


@program((x(3, 4), 1), (x(5, 4), 3), (x(2, 4), 0))
def branch_of_other_sizes(a: Tensor, n: int) -> Tensor:
    b = a
    if n > 1:
        b = torch.cat([a, a])
    return b.sum(0) + b.size(0)


@program((x(2, 2), 0), (x(2, 2), 1), (x(3, 2), 2))
def elif_chain(a: Tensor, mode: int) -> Tensor:
    if mode == 0:
        out = a
    elif mode == 1:
        out = a * 2
    else:
        out = a - 1
    return out


@program((x(3), 4), (x(3), 0), (x(5), 70))
def for_loop(a: Tensor, n: int) -> Tensor:
    for i in range(n):
        a = a * 0.5 + i
    return a


@program((x(2, 9), 2), (x(2, 9), 1), (x(3, 5), 20), (x(1, 30), 7), (x(2, 9), 0))
def slices_by_steps(a: Tensor, step: int) -> tuple[Tensor, Tensor]:
    return a[:, ::step], a[:, 1:-1:step] * 2


@program(
    (x(3), 0, 5, 2), (x(3), -2, 7, 3), (x(2), 5, 0, -1), (x(2), 5, -4, -2), (x(2), 5, 0, 2), (x(2), 0, 5, 0)
)
def range_by_steps(a: Tensor, low: int, high: int, step: int) -> Tensor:
    for i in range(low, high, step):
        a = a * 0.5 + i
    return a


@program((x(2, 4),), (x(3, 4),), (x(2, 5),))
def raises_with_a_size(a: Tensor) -> Tensor:
    if a.size(1) != 4:
        raise ValueError(f"rows of {a.size(1)} elements; give rows of 4")
    return a @ torch.ones(4)


@matrices
def for_over_rows(a: Tensor) -> Tensor:
    total = torch.zeros(a.size(1))
    for i in range(a.size(0)):
        total = total * 0.5 + a[i]
    return total


@matrices
def writes_rows(a: Tensor) -> Tensor:
    out = torch.zeros_like(a)
    for i in range(a.size(0)):
        out[i] = a[i] * i
    return out


@program((10,), (27,), (1,))
def while_loop(n: int) -> int:
    steps = 0
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return steps


@program(x(4), x(4) * 100, x(2) * 0.001)
def loop_until_small(a: Tensor) -> tuple[Tensor, int]:
    n = 0
    while a.abs().max().item() > 0.5:
        a = a / 2
        n += 1
    return a, n


@program((x(6), 10), (x(6), 3), (x(9), 0))
def breaks(a: Tensor, n: int) -> Tensor:
    total = torch.zeros(1)
    for i in range(a.size(0)):
        if i >= n:
            break
        total = total + a[i]
    return total


@program((x(6), 2), (x(7), 3), (x(1), 5))
def continues(a: Tensor, n: int) -> Tensor:
    total = torch.zeros(1)
    for i in range(a.size(0)):
        if i % n == 0:
            continue
        total += a[i]
    return total


@program((x(6), 0.5), (x(6), 100.0), (x(3), -100.0))
def returns_early(a: Tensor, limit: float) -> int:
    for i in range(a.size(0)):
        if a[i].item() > limit:
            return i
    return -1


@program((3, 4), (0, 2), (5, 1))
def nested_loops(n: int, m: int) -> int:
    total = 0
    for i in range(n):
        for j in range(m):
            if j > i:
                break
            total += i * j + 1
    return total


@program((x(2, 3), 3), (x(1, 2), 0), (x(4, 1), 5))
def grows(a: Tensor, n: int) -> Tensor:
    out = a
    for _ in range(n):
        out = torch.cat([out, a], dim=0)
    return out


@matrices
def steps_backwards(a: Tensor) -> Tensor:
    out = torch.zeros(a.size(1))
    for i in range(a.size(0) - 1, -1, -1):
        out = out * 0.5 + a[i]
    return out


@program((4, x(2)), (0, x(3)), (9, x(1)))
def changes_in_a_loop(n: int, a: Tensor) -> Tensor:
    b = a.clone()
    for i in range(n):
        if i % 2 == 0:
            b += 1
        else:
            b *= 2
    return b


@program((4, x(2)), (0, x(3)), (9, x(1)))
def changes_what_a_loop_hands_on(n: int, a: Tensor) -> Tensor:
    b = a * 1
    for _ in range(n):
        b += 1
        b = b * 2
        b -= 3
    return b


@program((x(3), 1), (x(4), 0), (x(2), -1))
def changes_what_a_branch_gives(a: Tensor, n: int) -> Tensor:
    b = a * 2
    if n > 0:
        b = b + 1
    b += 1
    b[0] = 5.0
    return b


@program((x(5, 2), 2), (x(6, 2), 3), (x(4, 2), 1))
def state_of_a_search(a: Tensor, n: int) -> tuple[Tensor, int, float]:
    best, where = -1e9, -1
    for i in range(a.size(0)):
        score = float(a[i].sum().item())
        if score > best and i % n == 0:
            best, where = score, i
    return a[where], where, best


@program((x(6), 4), (x(6), 2), (x(8), 0))
def slices_of_any_bounds(a: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
    return a[:n], a[-n:], a[n - 3 : n + 1]


# Containers --------------------------------------------------------------------------------------------


@matrices
def lists(a: Tensor) -> Tensor:
    parts = [a, a * 2]
    parts.append(a - 1)
    parts[0] = a * a
    parts.insert(1, a + 5)
    parts.pop()
    return torch.cat(parts, dim=1) + len(parts)


@program((x(4, 3),), (x(1, 2),), (x(7, 5),))
def list_of_rows(a: Tensor) -> Tensor:
    rows: list[Tensor] = []
    for i in range(a.size(0)):
        rows.append(a[i] * i)
    return torch.stack(rows)


@program((5,), (1,), (8,))
def list_of_ints(n: int) -> int:
    found: list[int] = []
    for i in range(n):
        found.append(i * i)
    total = 0
    for i in range(len(found)):
        total += found[i]
    return total


@matrices
def tuples(a: Tensor) -> tuple[Tensor, tuple[int, Tensor]]:
    pair = (a + 1, (a.size(0), a))
    first, (n, second) = pair
    return second * n, (n + 1, first)


class Pair(NamedTuple):
    left: Tensor
    right: Tensor


@matrices
def named_tuples(a: Tensor) -> Tensor:
    pair = Pair(a + 1, a * 2)
    return pair.left - pair.right


@matrices
def dicts(a: Tensor) -> Tensor:
    found: dict[str, Tensor] = {"one": a}
    found["two"] = a * 2
    total = torch.zeros_like(a)
    for key, value in found.items():
        if key != "one":
            total = total + value
    return total + found["one"] if "one" in found else total


@program(([x(2), x(2)],), ([x(5), x(5)],), ([x(1), x(1)],))
def list_input(parts: list[Tensor]) -> Tensor:
    return torch.stack(parts).sum(0)


@program(({"a": x(2), "b": x(2)},), ({"a": x(4), "b": x(4)},), ({"a": x(1), "b": x(1)},))
def dict_input(parts: dict[str, Tensor]) -> dict[str, Tensor]:
    return {"sum": parts["a"] + parts["b"], "difference": parts["a"] - parts["b"]}


@program((x(3), x(3)), (x(5), x(5)), (x(1), x(1)))
def optional_given(a: Tensor, b: Tensor | None = None) -> Tensor:
    if b is not None:
        a = a + b
    return a


@program((x(3),), (x(5),), (x(1),))
def optional_left_out(a: Tensor, b: Tensor | None = None) -> Tensor:
    return a * 2 if b is None else a + b


@program((x(3), 1), (x(4), 0), (x(2), -1))
def optional_that_a_call_tells(a: Tensor, n: int) -> Tensor:
    b: Tensor | None = None
    if n > 0:
        b = a * n
    if b is not None:
        return a + b
    return a


@matrices
def strings(a: Tensor) -> Tensor:
    name = "re" + "lu"
    message = f"{name} of {a.dim()}"
    if name == "relu" and len(message) > 3 and message.startswith("relu"):
        return torch.relu(a)
    return a


# Errors ------------------------------------------------------------------------------------------------


@program((x(3), 2), (x(3), -1), (x(2), 0))
def asserts(a: Tensor, n: int) -> Tensor:
    assert n >= 0, "n must not be negative"
    return a * n


@program((x(3), 2), (x(3), 9), (x(2), 0))
def raises(a: Tensor, n: int) -> Tensor:
    if n > 5:
        raise ValueError("n is too large")
    return a + n


@program((x(4), 1), (x(4), 9), (x(4), -1), (x(4), -9))
def checks_the_index(a: Tensor, i: int) -> Tensor:
    return a[i]


# Types -------------------------------------------------------------------------------------------------


@program(x(2, 3), x(5, 5), x(1, 1))
def dtypes_and_devices(a: Tensor) -> Tensor:
    b = torch.ones(a.shape, dtype=a.dtype, device=a.device)
    return b.to(torch.float64).to(a.dtype) + a if a.dtype == torch.float32 else b


@program(x(2, 3), x(5, 5), x(1, 1))
def makes_tensors(a: Tensor) -> Tensor:
    return torch.tensor([1.0, 2.0, 3.0]).sum() * a + torch.full_like(a, 2.0)


# More of each ---------------------------------------------------------------------------------------


@program((x(3),), (x(3) * 10,), (-x(2).abs(),))
def while_true(a: Tensor) -> int:
    n = 0
    while True:
        n += 1
        if n > 3 or bool(a.sum() > n):
            break
    return n


@program((x(3), x(3)), (x(5), x(5)), (x(1), x(1)))
def enumerates(a: Tensor, b: Tensor) -> Tensor:
    out = torch.zeros(1)
    for i, (u, v) in enumerate(zip([a, b], [b, a])):  # noqa: B905 (TorchScript takes no `strict`)
        out = out + (u * i - v).sum()
    return out


@program((x(2, 3),), (x(1, 4),), (x(3, 3),))
def comprehension(a: Tensor) -> Tensor:
    parts = [a * i for i in range(3)]
    return torch.cat([p + 1 for p in parts])


@program((x(3, 2),), (x(5, 2),), (x(1, 2),))
def iterates_over_a_tensor(a: Tensor) -> Tensor:
    out = torch.zeros(2)
    for row in a:
        out = out + row
    return out


@program((x(3, 2),), (x(5, 2),), (x(1, 2),))
def unbinds(a: Tensor) -> Tensor:
    x, y = a.unbind(1)
    return x * y


@program((5,), (-3,), (0,))
def list_ops(n: int) -> tuple[int, int]:
    xs = [1, 2, 3]
    xs.extend([4, n])
    xs.reverse()
    return sum(xs), xs[0] + xs[-1] + len(xs[1:3])


@program((x(3),), (x(5),), (x(1),))
def int_dict(a: Tensor) -> Tensor:
    d = {1: a, 2: a * 2}
    d[3] = d[1] + d[2]
    del d[1]
    return d[3] * len(d)


@program((5,), (0,), (30,))
def swap(n: int) -> tuple[int, int]:
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a, b


@program((x(3), 3), (x(2), 0), (x(1), 9))
def tuple_carry(a: Tensor, n: int) -> Tensor:
    st = (a, a * 2)
    for _ in range(n):
        st = (st[1], st[0] + st[1] * 0.5)
    return st[0]


@program((2.0, 4), (-1.5, 9), (0.5, 0))
def power(a: float, b: int) -> float:
    return a**2 + float(b) ** 0.5


@program((x(3), 1), (x(3), -1), (x(3), 9))
def ternary(a: Tensor, n: int) -> Tensor:
    k = 1 if n > 2 else (5 if n < 0 else 3)
    return a * k


@program((x(3, 2),), (x(5, 2),), (-x(2, 2).abs(),))
def keeps_some(a: Tensor) -> Tensor:
    return a[a > 0]


@program((x(6),), (x(9),), (-x(2).abs(),))
def writes_at_found_places(a: Tensor) -> Tensor:
    idx = torch.nonzero(a > 0).squeeze(1)
    out = torch.zeros_like(a)
    for i in range(idx.size(0)):
        out[idx[i]] = a[int(idx[i])] * i
    return out


@program((x(6),), (x(9),), (x(1),))
def slices_around_the_maximum(a: Tensor) -> Tensor:
    i = int(a.argmax())
    return a[max(0, i - 1) : i + 2]


@program((x(2, 6),), (x(3, 9),), (x(1, 1),))
def two_results(a: Tensor) -> tuple[Tensor, Tensor]:
    return torch.max(a, dim=1)


@program((x(3, 2),), (x(7, 4),), (x(1, 1),))
def recurrence(a: Tensor) -> Tensor:
    h = torch.zeros(a.size(1))
    outs: list[Tensor] = []
    for t in range(a.size(0)):
        h = torch.tanh(a[t] + h * 0.5)
        outs.append(h)
    return torch.stack(outs, dim=0)


@matrices
def tensors_of_lists(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.as_tensor([1.5, 2.5]) + a[0, 0], torch.as_tensor(a), torch.as_tensor(a, dtype=torch.float64)


@matrices
def dicts_of_pairs(a: Tensor) -> Tensor:
    empty: dict[str, Tensor] = dict()  # noqa: C408
    found = dict([("one", a), ("two", a * 2)])  # noqa: C406
    empty["three"] = found["two"]
    return empty["three"] + found["one"]


@program((x(3), x(4)), (x(1), x(7)), (x(5), x(1)))
def grids(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    rows, columns = torch.meshgrid(a, b, indexing="ij")
    other, _ = torch.meshgrid(a, b, indexing="xy")
    return rows, columns, other


@program((x(6),), (x(9),), (-x(2).abs(),))
def tensors_of_several_sizes_in_a_long_loop(a: Tensor) -> Tensor:
    found: list[Tensor] = []
    for i in range(70):
        found.append(a[a > i * 0.01])
    return torch.cat(found)


@program((x(6, 8),), (x(9, 8),), (-x(2, 8).abs(),))
def axes_that_hang_on_a_number(a: Tensor) -> Tensor:
    rows = a[a[:, 0] > 0]
    boxes = torch.relu(rows) + 1
    if rows.size(0) > 0:
        boxes = boxes.reshape(rows.size(0), 2, 4)
    stacked = torch.stack((boxes[..., 0::2], boxes[..., 1::2]), dim=boxes.dim())
    return stacked.reshape(boxes.shape).reshape(-1, 4)


@program((x(4, 3),), (x(9, 3),), (-x(2, 3).abs(),))
def a_product_that_one_way_gives_as_it_is(a: Tensor) -> Tensor:
    made = torch.matmul(a, torch.ones(3, 5)) + 1
    if bool(a.sum() > 0):
        made = made.t().reshape(made.size(0), made.size(1))
    return made
