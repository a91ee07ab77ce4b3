"""Interpolation with run-time sizes or scales, and grids of positions, as TorchScript code that is imported
in place of the operator."""

from __future__ import annotations

from .windows import ALONG, by_axes

_RESULT_SIZE = """
def result_size(size: int, i: int, sizes: Optional[List[int]], factors: Optional[List[float]]) -> int:
    if sizes is not None:
        return sizes[i]
    n = size
    if factors is not None:
        n = int(float(size) * factors[i])
    assert n > 0, "interpolate: the result would have size {}".format(n)
    return n

def step_of(size: int, n: int, i: int, factors: Optional[List[float]]) -> float:
    if factors is not None:
        return 1.0 / factors[i]
    return float(size) / float(n)
"""
_SAME_OR_TWICE = """if n == size or n == 2 * size:  # as PyTorch does, whatever the factor
            step = float(size) / float(n)"""
_NEAREST = """
def {name}(x: Tensor, sizes: Optional[List[int]], factors: Optional[List[float]]) -> Tensor:
    for i in range({n}):
        size = x.size(2 + i)
        n = result_size(size, i, sizes, factors)
        step = step_of(size, n, i, factors)
        {exceptions}
        at = torch.floor((torch.arange(n).to(torch.float32) + {shift}) * step).to(torch.int64)
        x = x.index_select(2 + i, torch.minimum(at, torch.zeros_like(at) + (size - 1)))
    return x
"""
#: The source positions of a result's elements along an axis if corners are aligned, then the other case.
_ROWS = """axis = 2 + i
        size = x.size(axis)
        n = result_size(size, i, sizes, factors)
        kind = torch.float32
        if x.dtype == torch.float64:
            kind = torch.float64
        rows = torch.arange(n).to(kind)
        if align:
            step = 0.0
            if n > 1:
                step = float(size - 1) / float(n - 1)
            rows = rows * step
        else:"""
_LINEAR = """
def {name}(x: Tensor, sizes: Optional[List[int]], align: bool, factors: Optional[List[float]]) -> Tensor:
    for i in range({n}):
        {rows}
            step = step_of(size, n, i, factors)
            if n == size:  # as PyTorch does, whatever the factor
                step = 1.0
            rows = (rows + 0.5) * step - 0.5
            rows = torch.maximum(rows, torch.zeros_like(rows))
        below = torch.floor(rows).to(torch.int64)
        below = torch.minimum(below, torch.zeros_like(below) + (size - 1))
        above = torch.minimum(below + 1, torch.zeros_like(below) + (size - 1))
        part = (rows - below.to(kind)).to(x.dtype).reshape(along(x.dim(), axis))
        x = x.index_select(axis, below) * (1 - part) + x.index_select(axis, above) * part
    return x
"""
_CUBIC = f"""
def upsample_bicubic2d(x: Tensor, sizes: Optional[List[int]], align: bool,
                       factors: Optional[List[float]]) -> Tensor:
    for i in range(2):
        {_ROWS}
            rows = (rows + 0.5) * step_of(size, n, i, factors) - 0.5
        first = torch.floor(rows)
        t = rows - first
        at = first.to(torch.int64)
        weights = [outer(t + 1.0), inner(t), inner(1.0 - t), outer(2.0 - t)]
        made = torch.zeros_like(x.index_select(axis, torch.relu(at) * 0))
        for k in range(4):
            place = torch.clamp(at + (k - 1), min=0)
            place = torch.minimum(place, torch.zeros_like(place) + (size - 1))
            made = made + x.index_select(axis, place) * weights[k].to(x.dtype).reshape(along(x.dim(), axis))
        x = made
    return x
"""
_CUBIC_WEIGHTS = """
def inner(t: Tensor) -> Tensor:
    return (t * 1.25 - 2.25) * t * t + 1.0

def outer(t: Tensor) -> Tensor:
    return ((t * -0.75 + 3.75) * t - 6.0) * t + 3.0
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
    **by_axes(
        _NEAREST,
        "upsample_nearest1d upsample_nearest2d upsample_nearest3d",
        _RESULT_SIZE,
        shift="0.0",
        exceptions=_SAME_OR_TWICE,
    ),
    **by_axes(
        _NEAREST,
        "_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d",
        _RESULT_SIZE,
        shift="0.5",
        exceptions="",
    ),
    **by_axes(
        _LINEAR,
        "upsample_linear1d upsample_bilinear2d upsample_trilinear3d",
        ALONG + _RESULT_SIZE,
        rows=_ROWS,
    ),
    "upsample_bicubic2d": ALONG + _RESULT_SIZE + _CUBIC_WEIGHTS + _CUBIC,
    "affine_grid_generator": ALONG + _AFFINE_GRID,
}
