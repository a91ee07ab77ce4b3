"""Differences, integrals, special functions, histograms and pairs, with run-time numbers, as TorchScript code
that is imported in place of the operator."""

from __future__ import annotations

from .windows import ALONG

#: The slopes between neighbours along an axis at distance `h`; at its ends of the requested order.
_GRADIENT = """
def part(x: Tensor, axis: int, start: int, n: int) -> Tensor:
    return x.narrow(axis, max(start, 0), max(n, 0))

def checked(x: Tensor, axis: int, order: int) -> int:
    assert order == 1 or order == 2, "gradient: edge_order is {}; it must be 1 or 2".format(order)
    n = x.size(axis)
    assert n > order, "gradient: an axis of size {} must have at least {} positions".format(n, order + 1)
    return n

def even(x: Tensor, axis: int, h: float, order: int) -> Tensor:
    n = checked(x, axis, order)
    first = (part(x, axis, 1, 1) - part(x, axis, 0, 1)) / h
    last = (part(x, axis, n - 1, 1) - part(x, axis, n - 2, 1)) / h
    if order == 2:
        k = n - 3
        first = (part(x, axis, 1, 1) * 2.0 - part(x, axis, 0, 1) * 1.5 - part(x, axis, 2, 1) * 0.5) / h
        last = (part(x, axis, n - 1, 1) * 1.5 - part(x, axis, n - 2, 1) * 2.0 + part(x, axis, k, 1) * 0.5) / h
    middle = (part(x, axis, 2, n - 2) - part(x, axis, 0, n - 2)) / (h * 2.0)
    return torch.cat([first, middle, last], axis)

def uneven(x: Tensor, axis: int, at: Tensor, order: int) -> Tensor:
    n = checked(x, axis, order)
    assert at.dim() == 1 and at.size(0) == n, "gradient: each spacing must be a line of as many positions"
    far = (part(at, 0, 1, n - 1) - part(at, 0, 0, n - 1)).reshape(along(x.dim(), axis))
    slopes = (part(x, axis, 1, n - 1) - part(x, axis, 0, n - 1)) / far
    one = part(far, axis, 0, n - 2)
    two = part(far, axis, 1, n - 2)
    middle = (part(slopes, axis, 0, n - 2) * two + part(slopes, axis, 1, n - 2) * one) / (one + two)
    first = part(slopes, axis, 0, 1)
    last = part(slopes, axis, n - 2, 1)
    if order == 2:
        whole = part(far, axis, 0, 1) + part(far, axis, 1, 1)
        first = first + (first - part(slopes, axis, 1, 1)) * (part(far, axis, 0, 1) / whole)
        whole = part(far, axis, n - 3, 1) + part(far, axis, n - 2, 1)
        last = last + (last - part(slopes, axis, n - 3, 1)) * (part(far, axis, n - 2, 1) / whole)
    return torch.cat([first, middle, last], axis)

def axes(x: Tensor, dims: Optional[List[int]], dim: Optional[int]) -> List[int]:
    if dims is not None:
        return dims
    if dim is not None:
        return [dim]
    made: List[int] = []
    for i in range(x.dim()):
        made.append(i)
    return made
"""


def _gradient(arguments: str, axes: str, slope: str) -> str:
    return f"""{ALONG}{_GRADIENT}
def gradient(x: Tensor, {arguments}, order: int) -> List[Tensor]:
    made: List[Tensor] = []
    chosen = axes(x, {axes})
    for i in range(len(chosen)):
        made.append({slope})
    return made
"""


_EVEN, _UNEVEN = "even(x, chosen[i], {}, order)", "uneven(x, chosen[i], spacing[i], order)"
#: Overload -> arguments, which axes those are, the slope along one of them.
_GRADIENTS = {
    "scalarint": ("spacing: Optional[float], dim: Optional[int]", "None, dim",
                  _EVEN.format("1.0 if spacing is None else spacing")),
    "scalararray": ("spacing: float, dims: List[int]", "dims, None", _EVEN.format("spacing")),
    "array": ("dims: List[int]", "dims, None", _EVEN.format("1.0")),
    "scalarrayint": ("spacing: List[float], dim: Optional[int]", "None, dim", _EVEN.format("spacing[i]")),
    "scalarrayarray": ("spacing: List[float], dims: List[int]", "dims, None", _EVEN.format("spacing[i]")),
    "tensorarrayint": ("spacing: List[Tensor], dim: Optional[int]", "None, dim", _UNEVEN),
    "tensorarray": ("spacing: List[Tensor], dims: List[int]", "dims, None", _UNEVEN),
}  # fmt: skip
_HISTOGRAM = """
def ends(x: Tensor, low: float, high: float, margin: float) -> Tuple[Tensor, Tensor]:
    none = x.new_zeros([])
    first = none + low
    last = none + high
    if low == high:
        first = none
        last = none + 1.0
        if x.size(0) > 0:
            first = x.amin(0)
            last = x.amax(0)
            wider = torch.where(first == last, none + margin, none)
            first = first - wider
            last = last + wider
    return first, last

def counted(x: Tensor, at: Tensor, inside: Tensor, weights: Tensor, n: int) -> Tensor:
    kept = torch.where(inside, at, torch.zeros_like(at) + n)
    return torch.zeros([n + 1], dtype=x.dtype).index_add(0, kept, weights).narrow(0, 0, n)
"""
_PAIRS = """
def pairs(n: int) -> Tuple[Tensor, Tensor]:
    at = torch.triu_indices(n, n, 1)
    return at[0], at[1]
"""
_TRAPEZOID = """
def sums(x: Tensor, dim: int) -> Tensor:
    n = max(x.size(dim) - 1, 0)
    return x.narrow(dim, 0, n) + x.narrow(dim, min(x.size(dim), 1), n)
"""
_CTC = """
def labels_of(target: Tensor, lengths: Tensor, blank: int) -> Tensor:
    rows = target
    if target.dim() == 1:
        starts = torch.cumsum(lengths, 0) - lengths
        n = int(lengths.max()) if lengths.size(0) > 0 else 0
        at = starts.unsqueeze(1) + torch.arange(n)
        at = torch.minimum(at, torch.zeros_like(at) + max(target.size(0) - 1, 0))
        rows = target.index_select(0, at.reshape([-1])).reshape(at.size())
    made = torch.zeros([rows.size(0), 2 * rows.size(1) + 1], dtype=torch.int64) + blank
    places = torch.arange(rows.size(1)) * 2 + 1
    return made.index_copy(1, places, rows.to(torch.int64))

def longer(alpha: Tensor, by: int) -> Tensor:
    n = alpha.size(1)
    before = torch.zeros_like(alpha.narrow(1, 0, min(by, n))) + float("-inf")
    return torch.cat([before, alpha.narrow(1, 0, max(n - by, 0))], 1)

def joined(parts: Tensor) -> Tensor:
    most = parts.amax(0)
    most = torch.where(most == float("-inf"), torch.zeros_like(most), most)
    return most + torch.log(torch.exp(parts - most).sum(0))

def of_rows(logs: Tensor, target: Tensor, steps: Tensor, lengths: Tensor, blank: int) -> Tensor:
    assert blank >= 0 and blank < logs.size(2), (
        "ctc_loss: blank is {}; it must be one of the {} classes".format(blank, logs.size(2)))
    rows = logs.size(1)
    assert steps.size(0) == rows and lengths.size(0) == rows, (
        "ctc_loss: {} and {} lengths are given for {} rows".format(steps.size(0), lengths.size(0), rows))
    labels = labels_of(target, lengths, blank)
    n = labels.size(1)
    none = torch.zeros([labels.size(0), n], dtype=logs.dtype) + float("-inf")
    alpha = torch.where(torch.arange(n) < 2, logs[0].gather(1, labels), none)
    before = torch.cat([labels.narrow(1, 0, min(2, n)), labels.narrow(1, 0, max(n - 2, 0))], 1)
    may_skip = (labels != blank) & (labels != before)
    for t in range(1, logs.size(0)):
        skipped = torch.where(may_skip, longer(alpha, 2), none)
        new = joined(torch.stack([alpha, longer(alpha, 1), skipped])) + logs[t].gather(1, labels)
        alpha = torch.where((t < steps).unsqueeze(1), new, alpha)
    last = (lengths * 2).unsqueeze(1)
    one = alpha.gather(1, last)
    other = alpha.gather(1, torch.relu(last - 1))
    other = torch.where(last > 0, other, torch.zeros_like(one) + float("-inf"))
    return -joined(torch.stack([one, other])).squeeze(1)

def of_batch(logs: Tensor, target: Tensor, steps: Tensor, lengths: Tensor, blank: int, reduction: int,
             zero_infinity: bool) -> Tensor:
    is_alone = logs.dim() == 2
    if is_alone:
        logs = logs.unsqueeze(1)
        target = target.unsqueeze(0)
    made = of_rows(logs, target, steps.reshape([-1]), lengths.reshape([-1]), blank)
    if zero_infinity:
        made = torch.where(made == float("inf"), torch.zeros_like(made), made)
    if reduction == 1:
        return (made / torch.clamp(lengths.reshape([-1]), min=1).to(made.dtype)).mean()
    if reduction == 2:
        return made.sum()
    return made.squeeze(0) if is_alone else made
"""
#: Numbers from -1 to 1, or the middles of as many equal parts between them; one alone is 0.
_AFFINE_GRID = """
def line(n: int, align: bool) -> Tensor:
    assert n > 0, "affine_grid: a size is {}; it must be more than 0".format(n)
    made = torch.linspace(-1.0, 1.0, n) * float(min(n - 1, 1))
    if not align:
        made = made * (float(n - 1) / float(n))
    return made

def affine_grid_generator(theta: Tensor, size: List[int], align: bool) -> Tensor:
    n = len(size) - 2
    assert theta.size(0) == size[0], (
        "affine_grid: {} matrices are given for {} images".format(theta.size(0), size[0]))
    inner = size[2:]
    parts: List[Tensor] = []
    for i in range(n):
        axis = n - 1 - i
        parts.append(line(inner[axis], align).reshape(along(n, axis)).expand(inner))
    parts.append(torch.ones(inner))
    grid = torch.stack(parts, -1).to(theta.dtype).reshape([1, -1, n + 1])
    made = torch.matmul(grid, theta.transpose(1, 2))
    return made.reshape([theta.size(0)] + inner + [n])
"""


SOURCES = {
    "diff": """
def diff(x: Tensor, n: int, dim: int, prepend: Optional[Tensor], append: Optional[Tensor]) -> Tensor:
    assert n >= 0, "diff: n is {}; it must be at least 0".format(n)
    if n > 0:
        if prepend is not None:
            x = torch.cat([prepend, x], dim)
        if append is not None:
            x = torch.cat([x, append], dim)
    for _ in range(n):
        k = max(x.size(dim) - 1, 0)
        first = x.narrow(dim, 0, k)
        second = x.narrow(dim, min(x.size(dim), 1), k)
        x = second ^ first if x.dtype == torch.bool else second - first
    return x
""",
    **{f"gradient.{overload}": _gradient(*parts) for overload, parts in _GRADIENTS.items()},
    **{
        f"{name}.dx": f"""{_TRAPEZOID}
def {name}(x: Tensor, dx: float, dim: int) -> Tensor:
    return sums(x, dim).sum(dim) * (dx / 2.0)
"""
        for name in ("trapz", "trapezoid")
    },
    "cumulative_trapezoid.dx": f"""{_TRAPEZOID}
def cumulative_trapezoid(x: Tensor, dx: float, dim: int) -> Tensor:
    return torch.cumsum(sums(x, dim), dim) * (dx / 2.0)
""",
    "vander": """
def vander(x: Tensor, n: Optional[int], increasing: bool) -> Tensor:
    k = x.size(-1) if n is None else n
    assert k >= 0, "vander: N is {}; it must be at least 0".format(k)
    powers = torch.arange(k)
    powers = powers if increasing else k - 1 - powers
    return torch.pow(x.unsqueeze(-1), powers)
""",
    "narrow.Tensor": """
def narrow(x: Tensor, dim: int, start: Tensor, length: int) -> Tensor:
    at = int(start)
    return x.narrow(dim, at + int(at < 0) * x.size(dim), length)
""",
    "polygamma": """
def polygamma(n: int, x: Tensor) -> Tensor:
    assert n >= 0, "polygamma: n is {}; it must be at least 0".format(n)
    if n == 0:
        return torch.digamma(x)
    if n == 1:
        return torch.polygamma(1, x)
    factor = float(torch.exp(torch.lgamma(torch.tensor(float(n) + 1.0, dtype=torch.float64))))
    made = torch.special.zeta(torch.zeros_like(x) + (n + 1.0), x) * factor
    return made if n % 2 == 1 else -made
""",
    "mvlgamma": """
def mvlgamma(x: Tensor, p: int) -> Tensor:
    assert p >= 1, "mvlgamma: p is {}; it must be at least 1".format(p)
    parts = torch.lgamma(x.unsqueeze(-1) - torch.arange(p) * 0.5)
    return parts.sum(-1) + float(p * (p - 1)) * 0.28618247146235004
""",
    "renorm": """
def renorm(x: Tensor, p: float, dim: int, most: float) -> Tensor:
    assert p > 0.0, "renorm: p is {}; it must be more than 0".format(p)
    assert most >= 0.0, "renorm: maxnorm is {}; it must be at least 0".format(most)
    dims: List[int] = []
    for i in range(x.dim()):
        if i != dim and i != dim + x.dim():
            dims.append(i)
    norm = torch._C._linalg.linalg_vector_norm(x, p, dims, True)
    factor = torch.where(norm > most, most / (norm + 1e-7), torch.zeros_like(norm) + 1.0)
    return x * factor
""",
    "histc": f"""{_HISTOGRAM}
def histc(x: Tensor, n: int, low: float, high: float) -> Tensor:
    assert n > 0, "histc: bins is {{}}; it must be more than 0".format(n)
    assert low <= high, "histc: max is {{}}; it must not be less than min, {{}}".format(high, low)
    x = x.reshape([-1])
    first, last = ends(x, low, high, 1.0)
    inside = (x >= first) & (x <= last)
    part = (x - first) * float(n) / (last - first)
    at = torch.where(inside, part, torch.zeros_like(part)).to(torch.int64)
    at = torch.minimum(at, torch.zeros_like(at) + (n - 1))
    return counted(x, at, inside, torch.zeros_like(x) + 1, n)
""",
    "histogram.bin_ct": f"""{_HISTOGRAM}
def histogram(x: Tensor, n: int, range: Optional[List[float]], weight: Optional[Tensor],
              density: bool) -> Tuple[Tensor, Tensor]:
    assert n > 0, "histogram: bins is {{}}; it must be more than 0".format(n)
    x = x.reshape([-1])
    low = 0.0
    high = 0.0
    if range is not None:
        low = range[0]
        high = range[1]
    assert low <= high, "histogram: the range ends at {{}}, before its start, {{}}".format(high, low)
    first, last = ends(x, low, high, 0.5)
    up = torch.arange(n + 1).to(x.dtype)
    step = (last - first) / float(n)
    edges = torch.where(up < float((n + 1) // 2), first + up * step, last - (float(n) - up) * step)
    return torch.histogram(x, edges, weight=weight, density=density)
""",
    "pdist": f"""{_PAIRS}
def pdist(x: Tensor, p: float) -> Tensor:
    assert p >= 0.0, "pdist: p is {{}}; it must be at least 0".format(p)
    one, other = pairs(x.size(0))
    far = x.index_select(0, one) - x.index_select(0, other)
    if far.size(-1) == 0:
        return far.sum(-1)
    return torch._C._linalg.linalg_vector_norm(far, p, [-1], False)
""",
    "combinations": """
def combinations(x: Tensor, r: int, again: bool) -> Tensor:
    assert r > 0, "combinations: r is {}; it must be at least 1".format(r)
    n = x.size(0)
    least = 0 if again else 1
    rows = torch.arange(n).unsqueeze(1)
    for _ in range(r - 1):
        last = rows.narrow(1, max(rows.size(1) - 1, 0), 1)
        at = torch.nonzero(torch.arange(n) - last >= least)
        rows = torch.cat([rows.index_select(0, at[:, 0]), at[:, 1:]], 1)
    return x.index_select(0, rows.reshape([-1])).reshape(rows.size())
""",
    "affine_grid_generator": ALONG + _AFFINE_GRID,
    "diagflat": """
def diagflat(x: Tensor, k: int) -> Tensor:
    return torch.diag_embed(x.reshape([-1]), k)
""",
    "float_power.Tensor_Scalar": """
def float_power(x: Tensor, p: float) -> Tensor:
    return torch.pow(x.to(torch.float64), p)
""",
    "float_power.Scalar": """
def float_power(p: float, x: Tensor) -> Tensor:
    return torch.pow(p, x.to(torch.float64))
""",
    "linalg_matrix_norm": """
def linalg_matrix_norm(x: Tensor, p: float, dims: List[int], keepdim: bool, dtype: Optional[int]) -> Tensor:
    kept = x.dtype if dtype is None else dtype
    x = x.to(kept).abs()
    is_known = p == 1.0 or p == -1.0 or p == float("inf") or p == float("-inf")
    assert is_known, (
        "matrix_norm: the order is {}; as a run-time value it must be 1, -1, inf or -inf".format(p))
    sums = x.sum([dims[1]], True)
    made = sums.amax([dims[0]], True)
    if p == float("-inf"):
        made = sums.amin([dims[0]], True)
    if p == 1.0 or p == -1.0:
        sums = x.sum([dims[0]], True)
        made = sums.amax([dims[1]], True)
        if p == -1.0:
            made = sums.amin([dims[1]], True)
    return made if keepdim else made.squeeze(dims)
""",
    "ctc_loss.Tensor": f"""{_CTC}
def ctc_loss(logs: Tensor, target: Tensor, steps: Tensor, lengths: Tensor, blank: int, reduction: int,
             zero_infinity: bool) -> Tensor:
    return of_batch(logs, target, steps, lengths, blank, reduction, zero_infinity)
""",
    "ctc_loss.IntList": f"""{_CTC}
def ctc_loss(logs: Tensor, target: Tensor, steps: List[int], lengths: List[int], blank: int, reduction: int,
             zero_infinity: bool) -> Tensor:
    return of_batch(logs, target, torch.tensor(steps), torch.tensor(lengths), blank, reduction, zero_infinity)
""",
}
#: Operators without another form: also used for constants.
ALWAYS = (
    *(name for name in SOURCES if name.startswith("gradient")), "pdist", "combinations", "diagflat",
    "ctc_loss.Tensor", "ctc_loss.IntList", "vander", "im2col", "col2im", "narrow.Tensor",
)  # fmt: skip
