"""Errors against f64 beside eager's: `python benchmarks/accuracy.py [--max N] [--only NAME ..]`.

Every operator runs on data of growing length, with offsets and scales, and is compared with its result in
f64, and so is eager. The greatest error of SEEDS runs may be `TIMES` eager's greatest (Winograd's: 4 times),
or `SHARE` of the greatest result (of f16 and bf16: what rounding a result costs). Of sums of products that
pass f32's greatest number in one order and not in another, we may lose `TIMES` as many as eager. Prints a
table of broken bounds (`--all`: of everything) and fails if there are any. `--max`: the greatest length, 1e8
for the full table. `--accurate`: with `Options(accurate=True)`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isqrt

import torch
import torch.nn.functional as F
from measure import SHORT, Figure

import shapevm
from shapevm.reports.tables import table_text

TIMES = 2.0
SHARE = {torch.float32: 2e-7, torch.float16: 2**-10, torch.bfloat16: 2**-7}
LEAST = 1.5e-45  # an error of one subnormal number is none
ROWS = 3
LENGTHS = (32, 65, 128, 256, 383, 1_000, 5_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
LONG = 1_000_000  # beyond, one row and one seed
SEEDS = 5
DEFAULT = shapevm.Options()
Function = Callable[..., torch.Tensor]
Tensors = tuple[torch.Tensor, ...]


def no_others(length: int) -> Tensors:
    """Return nothing: the operator has one input."""
    return ()


@dataclass(frozen=True)
class Operator:
    """What is measured: `function(x, *others(length))`.

    `is_column`: x has the length along its first axis. `has_weights`: the others are constants, and code is
    for one length. `longest`: the greatest length. `dtype`: that of x and of the others that are floats.
    `times`: what the error may be as a multiple of eager's.
    """

    function: Function
    others: Callable[[int], Tensors] = no_others
    is_column: bool = False
    has_weights: bool = False
    longest: int = 100_000_000
    dtype: torch.dtype = torch.float32
    times: float = TIMES


def _weights(*shape: int) -> Callable[[int], Tensors]:
    """Return what makes a random weight of `shape`, in which -1 stands for the length."""
    return lambda n: (torch.randn([n if size < 0 else size for size in shape]),)


def _keys(n: int) -> Tensors:
    return torch.randn(2, n, 32), torch.randn(2, n, 32)


def _places(n: int) -> Tensors:
    return (torch.randint(0, 5, (n,)),)


def _attended(x: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Queries that look at keys from which x keeps them, more or less."""
    q = torch.linspace(-1, 1, 64, dtype=k.dtype).reshape(2, 1, 32)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=x[0] * 0.1)


def _images(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A 3 x 3 convolution of square images, by Winograd's where they are large enough."""
    channels, side = w.shape[1], isqrt(x.shape[1] // w.shape[1])
    return F.conv2d(x[:, : channels * side**2].reshape(-1, channels, side, side), w, padding=1)


def _scattered(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    return x.new_zeros(x.shape[0], 5).index_add(1, places, x)


def _scatter_added(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    return x.new_zeros(x.shape[0], 5).scatter_add(1, places.expand_as(x), x)


def _rows_added(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    return x.new_zeros(5, x.shape[1]).index_add(0, places, x)


ALONG_ROWS: dict[str, Function] = {
    "sum": lambda x: x.sum(-1),
    "mean": lambda x: x.mean(-1),
    "var": lambda x: x.var(-1),
    "std": lambda x: x.std(-1),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=-1),
    "norm of order 1": lambda x: torch.linalg.vector_norm(x, 1, dim=-1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "group_norm": lambda x: F.group_norm(x[None], 1),
    "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "logsumexp": lambda x: torch.logsumexp(x, -1),
    "cumsum": lambda x: x.cumsum(-1),
    "cumprod": lambda x: (1 + (x % 1 - 0.5) / x.shape[-1]).cumprod(-1),
    "logcumsumexp": lambda x: x.logcumsumexp(-1),
    "mse_loss": lambda x: F.mse_loss(x, x * 0.5),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, x * 0.5),
    "cross_entropy": lambda x: F.cross_entropy(x, x.new_zeros(x.shape[0], dtype=torch.long)),
    "adaptive_avg_pool": lambda x: F.adaptive_avg_pool1d(x[None], 3),
    "product of few rows": lambda x: x @ x.t(),
}
ALONG_COLUMNS: dict[str, Function] = {
    "sum of columns": lambda x: x.sum(0),
    "var of columns": lambda x: x.var(0),
    "softmax of columns": lambda x: torch.softmax(x, 0),
}
NARROW = ("sum", "mean", "var", "norm", "layer_norm", "softmax", "logsumexp", "cumsum", "product of few rows")
OPERATORS = {name: Operator(function) for name, function in ALONG_ROWS.items()}
OPERATORS |= {name: Operator(function, is_column=True) for name, function in ALONG_COLUMNS.items()}
OPERATORS |= {
    "product of two inputs": Operator(torch.matmul, _weights(-1, 40), longest=LONG),
    "product with a weight": Operator(F.linear, _weights(40, -1), has_weights=True, longest=LONG),
    "product of many rows": Operator(
        lambda x, w: F.linear(x[:1].expand(100, -1), w), _weights(40, -1), has_weights=True, longest=100_000
    ),
    "convolution of channels": Operator(
        lambda x, w: F.conv1d(x[..., None].expand(-1, -1, 7), w),
        _weights(40, -1, 1),
        has_weights=True,
        longest=100_000,
    ),
    "convolution of taps": Operator(
        lambda x, w: F.conv1d(x[:, None], w), _weights(40, 1, -1), has_weights=True, longest=5_000
    ),
    "convolution by Winograd's": Operator(
        _images, _weights(32, 64, 3, 3), has_weights=True, longest=100_000, times=4.0
    ),
    "convolution of two inputs": Operator(
        lambda x, w: F.conv1d(x[..., None].expand(-1, -1, 7), w), _weights(20, -1, 1), longest=100_000
    ),
    "avg_pool": Operator(
        lambda x: F.avg_pool1d(x[None], x.shape[-1] // 2), has_weights=True, longest=100_000
    ),
    "attention": Operator(_attended, _keys, longest=LONG),
    "index_add": Operator(_scattered, _places, longest=LONG),
    "scatter_add": Operator(_scatter_added, _places, longest=LONG),
    "index_add of rows": Operator(_rows_added, _places, is_column=True, longest=LONG),
}
OPERATORS |= {
    f"{name}, {dtype}": Operator(ALONG_ROWS[name], longest=LONG, dtype=getattr(torch, dtype))
    for name in NARROW
    for dtype in ("float16", "bfloat16")
}
#: offset and scale of the uniform numbers that the operators get
UNIFORM = ((0.0, 1.0), (1e4, 1.0), (1e6, 1.0), (1e4, 2e-3))
NORMAL = (1.0, 1e3, 1e30, 1e38, 1e-30, 1e-38)


class Model(torch.nn.Module):
    """A function, with weights if it has any, as a module."""

    def __init__(self, function: Function, weights: Tensors = ()) -> None:
        super().__init__()
        self.function = function
        self.weights = torch.nn.ParameterList(torch.nn.Parameter(w, requires_grad=False) for w in weights)

    def forward(self, x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        return self.function(x, *others, *self.weights)


@dataclass(frozen=True)
class Case:
    """Errors of one operator on data of one kind, as shares of the greatest result in f64; and the finite
    results that are not finite here and in eager."""

    operator: str
    length: int
    offset: float
    scale: float
    ours: float
    eager: float
    lost: int
    lost_by_eager: int

    @property
    def bound(self) -> float:
        """What our error may be."""
        operator = OPERATORS[self.operator]
        return max(operator.times * self.eager, SHARE[operator.dtype])

    @property
    def holds(self) -> bool:
        """Whether the bound holds."""
        return self.ours <= self.bound and self.lost <= TIMES * self.lost_by_eager

    def row(self) -> list[str]:
        """Return the table's row."""
        ratio = "" if self.eager == 0 else f"{self.ours / self.eager:.3g}"
        numbers = [f"{x:g}" for x in (self.offset, self.scale)]
        errors = [f"{x:.2g}" for x in (self.ours, self.eager)]
        lost = f"{self.lost}, {self.lost_by_eager}" if self.lost or self.lost_by_eager else ""
        kind = [self.operator, str(self.length), *numbers]
        return [*kind, *errors, ratio, lost, "" if self.holds else "broken"]


def data(length: int, seed: int) -> Iterator[tuple[float, float, torch.Tensor]]:
    """Yield (offset, scale, numbers): uniform ones from an offset, normal ones about 0."""
    torch.manual_seed(seed)
    shape = (1 if length > LONG else ROWS, length)
    for offset, scale in UNIFORM:
        yield offset, scale, torch.rand(shape) * scale + offset
    for scale in NORMAL:
        yield 0.0, scale, torch.randn(shape).clamp_(-3, 3) * scale


def compiled(name: str, length: int, others: Tensors, options: shapevm.Options) -> shapevm.Executable:
    """Return the operator compiled for any number of rows and any length, with weights for these."""
    operator = OPERATORS[name]
    if operator.has_weights:
        rows = 1 if length > LONG else ROWS
        example = (torch.randn(rows, length, dtype=operator.dtype),)
        model = Model(operator.function, others)
        return shapevm.compile(model, example, strategy="generic", options=options)
    n, m = (torch.export.Dim(name, min=1, max=1 << 28) for name in ("length", "rows"))
    given = operator.others(70)
    example = (torch.randn((70, ROWS) if operator.is_column else (ROWS, 70)).to(operator.dtype), *given)
    sizes = {0: n, 1: m} if operator.is_column else {0: m, 1: n}
    along = tuple({x.shape.index(70): n} for x in given)
    dynamic = (sizes, along) if along else (sizes,)
    model = Model(operator.function)
    return shapevm.compile(model, example, dynamic_shapes=dynamic, strategy="generic", options=options)


def measured(name: str, lengths: tuple[int, ...], options: shapevm.Options = DEFAULT) -> Iterator[Case]:
    """Yield the greatest errors of one operator over the seeds, for each length and kind of data."""
    operator = OPERATORS[name]
    exe: shapevm.Executable | None = None
    for length in (n for n in lengths if n <= operator.longest):
        torch.manual_seed(length)
        others = operator.others(length)
        if exe is None or operator.has_weights:
            exe = compiled(name, length, others, options)
        found: dict[tuple[float, float], list[float]] = {}
        for seed in range(SEEDS if length <= LONG else 1):
            for offset, scale, x in data(length, seed):
                *before, lost, by_eager = found.get((offset, scale), [0.0] * 5)
                *now, lost_now, by_eager_now = errors(operator, exe, x, others)
                found[offset, scale] = [*map(max, before, now), lost + lost_now, by_eager + by_eager_now]
        for (offset, scale), (ours, eager, greatest, lost, by_eager) in found.items():
            if greatest >= LEAST:
                shares = (max(error - LEAST, 0.0) / greatest for error in (ours, eager))
                yield Case(name, length, offset, scale, *shares, int(lost), int(by_eager))


def errors(
    operator: Operator, exe: shapevm.Executable, x: torch.Tensor, others: Tensors
) -> tuple[float, ...]:
    """Return our greatest error, eager's and the greatest result, where the result in f64, ours and eager's
    are finite, zeros where none are; and how many finite results we lose, and eager."""
    x = (x.t().contiguous() if operator.is_column else x).to(operator.dtype)
    wide = [t.double() if t.is_floating_point() else t for t in (x, *others)]
    eager, exact = operator.function(x, *others), operator.function(*wide)
    ours = exe(x) if operator.has_weights else exe(x, *others)
    is_known = exact.abs() <= torch.finfo(eager.dtype).max
    lost = [int((is_known & ~y.isfinite()).sum()) for y in (ours, eager)]
    both = is_known & ours.isfinite() & eager.isfinite()
    if not both.any():
        return 0.0, 0.0, 0.0, *lost
    distances = [(y.double() - exact)[both].abs() for y in (ours, eager)]
    return *(t.abs().max().item() for t in (*distances, exact[both])), *lost


def all_cases(names: list[str], longest: float, accurate: bool = False) -> list[Case]:
    """Return the errors of the operators of these names."""
    lengths, options = tuple(n for n in LENGTHS if n <= longest), shapevm.Options(accurate=accurate)
    return [case for name in names for case in measured(name, lengths, options)]


def figures() -> list[Figure]:
    """Return the section of the benchmarks' page."""
    found = []
    longest = 1e3 if SHORT else 1e6
    for name in OPERATORS:
        cases = all_cases([name], longest)
        worst = max(cases, key=lambda case: case.ours / case.bound)
        holding = sum(case.holds for case in cases)
        errors_there = f"{worst.ours:.1e}, eager {worst.eager:.1e} (n = {worst.length:,})"
        figure = f"{holding} of {len(cases)}; nearest to its bound {errors_there}"
        found.append(
            Figure(name, figure, f"all within {OPERATORS[name].times:g} times eager's error, or 2e-7")
        )
    return found


def main() -> int:
    """Print the table; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--max", type=float, default=1e6, help="the greatest length (1e6)")
    parser.add_argument("--only", nargs="*", default=list(OPERATORS), help="names of operators")
    parser.add_argument("--all", action="store_true", help="print what holds as well")
    parser.add_argument("--accurate", action="store_true", help="compile with Options(accurate=True)")
    given = parser.parse_args()
    unknown = [name for name in given.only if name not in OPERATORS]
    if unknown:
        sys.exit(f"no operator is named {unknown[0]!r}; there are {', '.join(OPERATORS)}")
    cases = all_cases(given.only, given.max, given.accurate)
    broken = [case for case in cases if not case.holds]
    titles = ("operator", "n", "offset", "scale", "our error", "eager's", "ratio", "lost", "bound")
    print(table_text(titles, [case.row() for case in (cases if given.all else broken)]))
    print(f"{len(cases)} cases, {len(broken)} beyond their bound")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
