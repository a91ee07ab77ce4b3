"""Programs in another hand than the others': the constructs that a stranger would try first, with names and
arguments of its own."""

from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from .programs import program, x


class Span(NamedTuple):
    """A part of a signal."""

    start: int
    stop: int
    label: str


def _energy(signal: Tensor, gain: float) -> Tensor:
    return (signal * gain).square().sum()


@program((x(6), 2.0), (x(9), -1.5), (x(1), 0.0))
def forks_in_a_loop(signal: Tensor, gain: float) -> list[Tensor]:
    waiting: list[torch.jit.Future[Tensor]] = []
    for step in range(signal.size(0)):
        waiting.append(torch.jit.fork(_energy, signal[step:], gain + step))
    found: list[Tensor] = []
    for future in waiting:
        found.append(torch.jit.wait(future))
    return found


@program((x(4), 1), (x(5), 4), (x(2), 0))
def forks_in_a_branch(signal: Tensor, n: int) -> Tensor:
    future = torch.jit.fork(_energy, signal, 2.0)
    if n > 2:
        return torch.jit.wait(future) + n
    other = torch.jit.fork(_energy, signal + n, 0.5)
    return torch.jit.wait(other) - torch.jit.wait(future)


@program((7, 2), (-7, 2), (7, -2), (-7, -2), (-(2**62) - 1, 3), (2**63 - 1, -1), (5, 0))
def rounds_down(top: int, bottom: int) -> tuple[int, int, int, bool]:
    quotient, rest = top // bottom, top % bottom
    return quotient, rest, quotient * bottom + rest, rest * bottom >= 0


@program((7.5, 2.0), (-7.5, 2.0), (7.5, -2.0), (-0.0, 3.0))
def rounds_down_floats(top: float, bottom: float) -> tuple[float, float, float]:
    return top // bottom, top % bottom, top / bottom


@program((x(6, 4), 1), (x(6, 4), -2), (x(3, 3), 0))
def views_of_a_grid(grid: Tensor, amount: int) -> tuple[Tensor, Tensor]:
    work = grid.clone()
    turned = work.t()
    corner = turned[1:3]
    column = corner[0]
    column.add_(amount)
    corner[1, 0] = 7.0
    work[0].mul_(2)
    flat = work.view(-1)
    flat[2:4].zero_()
    return work, turned[1]


@program((x(5), 3, 0.5), (x(2), 1, -1.0), (x(8), 8, 2.0))
def views_in_a_loop(signal: Tensor, n: int, rate: float) -> Tensor:
    kept = torch.zeros(n, signal.size(0))
    for step in range(n):
        line = kept[step]
        line.copy_(signal)
        line *= rate + step
        if step > 0:
            line += kept[step - 1]
    return kept


@program((["a", "b", "a"], 3), (["z", "new", "z"], 0), (["b", "b", "c"], -1))
def a_dict_that_changes(words: list[str], bonus: int) -> tuple[list[str], list[int], int]:
    counts: dict[str, int] = {"a": 100, "q": 1}
    for word in words:
        if word in counts:
            counts[word] += 1
        else:
            counts[word] = bonus
    counts.setdefault("new", 9)
    taken = counts.pop("q")
    if "b" in counts and counts["b"] > 1:
        del counts["b"]
    counts.update({"a": counts["a"] * 2})
    return list(counts.keys()), list(counts.values()), taken


@program((x(4, 3), 0), (x(4, 3), 1), (x(2, 2), -1))
def a_dict_of_tensors(grid: Tensor, axis: int) -> dict[str, Tensor]:
    table = {"total": grid.sum(axis), "mean": grid.mean(axis)}
    table["total"] += 1
    table["range"] = grid.amax(axis) - grid.amin(axis)
    if axis > 0:
        table["mean"] = -table["mean"]
    return table


@program((x(8), 2), (x(5), 1), (x(3), 3))
def named_spans(signal: Tensor, width: int) -> tuple[list[Tensor], list[str], int]:
    spans: list[Span] = []
    for begin in range(0, signal.size(0), width):
        end = min(begin + width, signal.size(0))
        spans.append(Span(begin, end, f"{begin}..{end}"))
    parts = [signal[span.start : span.stop].sum() for span in spans]
    length = 0
    for span in spans:
        length = max(length, span.stop - span.start)
    return parts, [span.label for span in spans], length


def _kind(value: Any) -> str:
    if isinstance(value, int):
        return "int " + str(value)
    if isinstance(value, float):
        return "float " + str(value)
    if isinstance(value, str):
        return "str " + value
    if isinstance(value, Tensor):
        return "tensor of " + str(value.dim())
    return "other"


@program((3, 1.5, "t"), (-4, 0.1, ""), (0, 1e300, "ü"))
def anything(whole: int, real: float, text: str) -> list[str]:
    pair = (whole, text)
    return [_kind(whole), _kind(real), _kind(text), _kind(pair), _kind(torch.ones(2, 2))]


@program((x(3), 2), (x(4), -3), (x(1), 0))
def asserts_twice(signal: Tensor, limit: int) -> Tensor:
    assert limit != 0, f"limit {limit} must not be zero"
    total = signal * limit
    if limit < 0:
        raise ValueError("negative limit " + str(limit))
    return total


@program((12, 0.25, True), (-1, 2.0, False), (2**40, 1e-9, True))
def texts_of_values(count: int, share: float, flag: bool) -> list[str]:
    return [
        f"{count} of {share}, {flag}",
        "{}/{}".format(count, "x"),
        "%d-%s" % (count, share),  # noqa: UP031
        str([count, count + 1]),
        str((count, share)),
        ", ".join([str(count), str(flag)]),
    ]


@program((x(3, 4, 2), 1, 1e-5, "sum"), (x(3, 4, 2), -1, 0.1, "mean"), (x(2, 2, 2), 0, 1.0, "max"))
def computed_axis_eps_mode(cube: Tensor, axis: int, eps: float, mode: str) -> Tensor:
    if mode == "sum":
        found = cube.sum(axis)
    elif mode == "mean":
        found = cube.mean(axis)
    else:
        found = cube.amax(axis)
    width = eps * 2
    scaled = torch.nn.functional.layer_norm(found, [found.size(-1)], eps=width)
    return torch.softmax(scaled, axis if axis < 1 else 0) + cube.size(axis)


@program((x(4), 0), (x(4), 3), (x(6), -1))
def none_at_run_time(signal: Tensor, n: int) -> tuple[Tensor, int]:
    best: Optional[Tensor] = None  # noqa: UP045
    at: Optional[int] = None  # noqa: UP045
    for step in range(n):
        if best is None or bool(signal[step] > best):
            best = signal[step]
            at = step
    if best is None or at is None:
        return torch.zeros(()), -1
    return best, at


@program((x(6), "loud"), (x(6), "loudest"), (x(6), "quiet"), (x(6), ""), (x(6), "lo"))
def starts_of_a_text(signal: Tensor, how: str) -> Tensor:
    if how.startswith("loud"):
        return signal * 10
    if "quietly".startswith(how):
        return signal / 10
    return signal


@program(
    ("grün", "grü"),
    ("grün", "grün"),
    ("grün", "grüne"),
    ("", ""),
    ("\U0010ffff\U0010ffff", "\U0010ffff"),
    ("a", "b"),
    ("b", "a"),
)
def starts_of_texts(text: str, part: str) -> bool:
    return text.startswith(part)


@program((x(4, 5), 0.2), (x(6, 2), 10.0), (x(1, 1), -10.0))
def a_loop_until_a_value(grid: Tensor, limit: float) -> tuple[Tensor, int]:
    state, turns = grid, 0
    while state.abs().max().item() > limit:
        if turns == 4:
            break
        turns += 1
        if turns % 2 == 1:
            state = state * 0.5
            continue
        state = state - state.mean()
    return state, turns


@program((x(2, 3), 2), (x(4, 1), 3), (x(1, 1), 0))
def lists_in_a_list(grid: Tensor, n: int) -> list[list[int]]:
    rows: list[list[int]] = []
    for i in range(3):
        row = [i]
        for j in range(n):
            row.insert(0, j * grid.size(1))
        rows.append(row)
    rows[0][-1] = -1
    rows[-1].extend([grid.size(0), 7])
    return rows


@program((x(2, 3), 0.5), (x(2, 3), -4.0), (x(1, 1), 1e9))
def pads_with_a_number(grid: Tensor, rim: float) -> tuple[Tensor, Tensor]:
    whole = torch.nn.functional.pad(grid.to(torch.int64), [1, 0], "constant", rim)
    return torch.nn.functional.pad(grid, [1, 2, 0, 1], value=rim), whole


@program((3, -2, True), (0, 0, False), (5, 7, True), (7, 5, True))
def counts_up_and_down(stop: int, start: int, half: bool) -> tuple[Tensor, Tensor, Tensor]:
    up = torch.arange(start, stop, dtype=torch.float32)
    down = torch.arange(stop, -3, -2)
    return up * 0.5 if half else up, down, torch.arange(stop)


@program((x(2, 4, 5), 1e-5), (x(3, 4, 2), 0.5), (x(1, 4, 7), 10.0))
def norms_with_an_eps(signal: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    scale = torch.arange(4).to(torch.float32)
    grouped = torch.group_norm(signal, 2, scale, scale - 1, eps)
    each = torch.nn.functional.instance_norm(signal, weight=scale, eps=eps)
    return grouped, each, torch.nn.functional.cosine_similarity(signal, signal * 0.5 - 1, 1, eps)


@program(
    (x(3, 4), x(3, 4, 1)[..., 0], 0.5), (x(2, 2), x(2, 2, 1)[..., 0], 2.0), (x(1, 5), x(1, 5, 1)[..., 0], 0.1)
)
def bounds_of_losses(found: Tensor, wanted: Tensor, bound: float) -> list[Tensor]:
    return [
        torch.nn.functional.huber_loss(found, wanted, delta=bound),
        torch.nn.functional.smooth_l1_loss(found, wanted, reduction="none", beta=bound),
        torch.nn.functional.hardshrink(found, bound),
        torch.nn.functional.softshrink(found, bound),
    ]
