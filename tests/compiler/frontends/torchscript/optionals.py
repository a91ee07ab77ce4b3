"""Arguments that may be None, in every call anew: tensors, numbers, strings and tuples."""

from __future__ import annotations

from typing import NamedTuple, Optional

import torch
from torch import Tensor

from .programs import program, x


@program((x(2, 3), x(2, 3)), (x(2, 3), None), (x(4, 5), x(4, 5)), (x(0, 5), None), (x(1, 1), x(1, 1)))
def may_add(a: Tensor, b: Tensor | None) -> Tensor:
    if b is None:
        return a * 2
    return a + b


@program((x(2, 1), x(2, 3)), (None, x(4, 5)), (x(4, 1), x(4, 5)), (x(3, 1), x(4, 5)))
def mask_before(mask: Tensor | None, a: Tensor) -> Tensor:
    found = a.exp()
    if mask is not None:
        found = found * mask
    return found.sum(1)


@program((x(2, 3), 2, 0.5), (x(2, 3), None, 0.5), (x(2, 3), 7, None), (x(3, 1), None, None))
def numbers_or_none(a: Tensor, k: int | None, scale: float | None) -> Tensor:
    if k is not None and k > 3:
        a = a + k
    return a if scale is None else a * scale


@program((x(2, 3), None), (x(2, 3), 2), (x(2, 3), -1))
def none_at_first(a: Tensor, k: int | None) -> Tensor:
    n = 1 if k is None else k
    return a * n


@program((x(2, 3), "neg"), (x(2, 3), None), (x(2, 3), "abs"))
def mode_or_none(a: Tensor, mode: str | None) -> Tensor:
    if mode is None:
        return a
    return a.abs() if mode == "abs" else -a


@program(
    (x(2, 3), (x(1, 3), x(2, 3))),
    (x(2, 3), None),
    (x(5, 3), (x(1, 3), x(5, 3))),
    (x(5, 3), (x(1, 3), x(4, 3))),
)
def states_or_none(a: Tensor, state: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
    if state is None:
        h, c = torch.zeros(1, a.size(1)), torch.zeros_like(a)
    else:
        h, c = state
    return a + h, a * c


@program((x(2, 3), x(2, 3), x(3)), (x(2, 3), None, x(3)), (x(2, 3), x(2, 3), None), (x(2, 3), None, None))
def two_of_them(a: Tensor, b: Tensor | None, c: Tensor | None) -> Tensor:
    if b is not None and c is not None:
        return a + b * c
    if b is not None:
        a = a - b
    if c is not None:
        a = a * c
    return a


@program((x(2, 3), x(2, 3)), (x(2, 3), None), (x(4, 2), x(4, 2)))
def handed_on(a: Tensor, b: Tensor | None) -> tuple[Tensor, Tensor | None]:
    return a + 1, b


@program((x(2, 3), 1), (x(2, 3), None), (x(4, 2), 5))
def made_or_not(a: Tensor, k: int | None) -> tuple[Tensor | None, int | None]:
    if k is None:
        return None, a.size(0)
    return a * k, None


@program((x(2, 3), x(2, 3)), (x(2, 3), None), (x(4, 2), x(4, 2)))
def must_be_there(a: Tensor, b: Tensor | None) -> Tensor:
    assert b is not None, "b must be given"
    return a + b


@program((x(2, 3), x(2, 3)), (x(2, 3), None), (x(4, 2), x(4, 2)))
def filled_in(a: Tensor, b: Tensor | None) -> Tensor:
    if b is None:
        b = a.abs()
    return b.exp() + a


@program((x(4, 3), x(3, 3), x(3)), (x(4, 3), x(3, 3), None), (x(2, 3), x(5, 3), x(5)))
def linear_with_or_without(a: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    return torch.nn.functional.linear(a, w, bias)


@program((x(3, 2), x(2), 3), (x(3, 2), None, 3), (x(5, 4), x(4), 0), (x(5, 4), None, 2))
def in_a_loop(a: Tensor, b: Tensor | None, n: int) -> Tensor:
    for i in range(n):
        if b is not None:
            a = a + b * i
        else:
            a = a - i
    return a


# The class's syntax would give TorchScript the fields' types as texts.
Context = NamedTuple("Context", [("keys", Tensor), ("bias", Optional[Tensor])])  # noqa: UP014, UP045


@program(
    (x(2, 3), Context(x(4, 3), x(4))),
    (x(2, 3), Context(x(4, 3), None)),
    (x(5, 3), None),
    (x(1, 3), Context(x(2, 3), x(2))),
)
def nested_options(a: Tensor, context: Context | None) -> Tensor:
    if context is None:
        return a.sum(1)
    found = a @ context.keys.t()
    bias = context.bias
    if bias is not None:
        found = found + bias
    return found.sum(1)


@program((x(2, 3), x(2, 3)), (x(2, 3), None), (x(4, 2), x(4, 2)))
def written_in_place(a: Tensor, b: Tensor | None) -> Tensor:
    if b is not None:
        b.mul_(2)
        b[0] += a[0]
        return b + a
    return a


@program((x(2, 3), [1, None, 3]), (x(2, 3), [None, None, 2]), (x(2, 3), [None, 7, None]))
def options_in_a_list(a: Tensor, ks: list[int | None]) -> Tensor:
    for k in ks:
        if k is not None:
            a = a * k
    return a


@program((x(2, 3), 1), (x(2, 3), None), (x(2, 3), 4))
def which_type(a: Tensor, k: int | None) -> tuple[bool, bool, str]:
    return isinstance(k, int), torch.jit.isinstance(k, int), f"k is {k}"


@program((x(2, 3), x(3), 2), (x(2, 3), None, 2), (x(2, 3), None, None), (x(4, 1), x(1), None))
def kept_in_lists(a: Tensor, b: Tensor | None, k: int | None) -> Tensor:
    found: list[Tensor | None] = [b, None, a]
    numbers: dict[str, int | None] = {"k": k, "none": None}
    total = torch.zeros(a.size(1))
    for each in found:
        if each is not None:
            total = total + each.sum(0)
    n = numbers["k"]
    return total if n is None else total * n


@program((x(4), 1.5), (x(4), 99.0), (x(4), None), (x(0), 0.0))
def list_or_none(a: Tensor, limit: float | None) -> tuple[list[float] | None, str | None]:
    if limit is None:
        return None, "no limit"
    found: list[float] = []
    for i in range(a.size(0)):
        if float(a[i]) < limit:
            found.append(float(a[i]))
    return found, None


@program((x(2, 3, 5, 4), x(5, 4), 2), (x(1, 3, 2, 4), x(2, 4), 9), (x(2, 3, 5, 4), None, 2))
def of_one_rank_where_there(a: Tensor, mask: Tensor | None, k: int) -> Tensor:
    if k > 3:
        mask = None
    if mask is not None and mask.dim() == 2:
        mask = mask.unsqueeze(0)
    if mask is not None:
        if mask.dim() == 3:
            mask = mask.unsqueeze(0)
        return a + mask
    return a


@program((x(1, 1, 3, 4), x(3, 4), 2), (x(1, 1, 5, 2), x(5, 2), 3), (x(1, 1, 3, 4), None, 9))
def of_one_size_where_there(a: Tensor, mask: Tensor | None, k: int) -> Tensor:
    if mask is not None and mask.dim() == 2:
        mask = mask.unsqueeze(0)
    if mask is not None:
        if mask.size(0) == 1 and mask.dim() == 3:
            mask = mask.unsqueeze(0)
        return a * k + mask
    return a * k
