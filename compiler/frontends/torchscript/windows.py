"""Operators with windows, offsets or scales along axes that only a call tells, as TorchScript: it selects the
places of every window. `at` has a row for each place of the result, with the places of its window; `inside`
tells which of them lie in the axis."""

from __future__ import annotations

_PICK = """
def pick(xs: List[int], i: int, otherwise: int) -> int:
    if len(xs) == 0:
        return otherwise
    return xs[0] if len(xs) == 1 else xs[i]
"""
#: The shape, of n axes, of numbers along one of them.
ALONG = """
def along(n: int, axis: int) -> List[int]:
    shape: List[int] = []
    for i in range(n):
        shape.append(-1 if i == axis else 1)
    return shape
"""
_SELECTED = f"""{ALONG}
def selected(x: Tensor, axis: int, at: Tensor, inside: Tensor, fill: float) -> Tensor:
    found = x.index_select(axis, (at * inside.to(torch.int64)).reshape([-1]))
    return torch.where(inside.reshape(along(x.dim(), axis)), found, torch.zeros_like(found) + fill)
"""
_PLACES = """
def places(name: str, size: int, k: int, s: int, p: int, d: int, ceil: bool) -> Tensor:
    assert k > 0 and s > 0 and d > 0 and p >= 0, (
        "{}: the window {}, stride {} and dilation {} must be 1 or more, the padding {} 0 or more".format(
            name, k, s, d, p))
    reach = size + 2 * p - d * (k - 1) - 1
    assert reach >= 0, (
        "{}: a window of {} does not fit an axis of {}".format(name, d * (k - 1) + 1, size + 2 * p))
    n = reach // s + 1
    if ceil:
        n = (reach + s - 1) // s + 1
        if (n - 1) * s >= size + p:
            n = n - 1
    return (torch.arange(n) * s - p).unsqueeze(1) + torch.arange(k) * d
"""
#: The windows along one axis of a pool, as an axis behind it, and the places in them.
_POOLED = """
def pooled(name: str, x: Tensor, axis: int, i: int, window: List[int], stride: List[int], padding: List[int],
           dilation: List[int], ceil: bool, fill: float) -> Tuple[Tensor, Tensor]:
    k = pick(window, i, 1)
    p = pick(padding, i, 0)
    assert p * 2 <= k, "{}: the padding {} must be at most half of the window {}".format(name, p, k)
    at = places(name, x.size(axis), k, pick(stride, i, k), p, pick(dilation, i, 1), ceil)
    found = selected(x, axis, at, (at >= 0) & (at < x.size(axis)), fill)
    return found.unflatten(axis, [at.size(0), at.size(1)]), at
"""
_POOL = _PICK + _SELECTED + _PLACES + _POOLED
_MAX_POOL = """
def {name}(x: Tensor, window: List[int], stride: List[int], padding: List[int], dilation: List[int],
           ceil: bool) -> Tensor:
    first = x.dim() - {n}
    for i in range({n}):
        axis = first + i
        found, _ = pooled("{name}", x, axis, i, window, stride, padding, dilation, ceil, float("-inf"))
        x = found.amax(axis + 1)
    return x
"""
_AVG_POOL = """
def {name}(x: Tensor, window: List[int], stride: List[int], padding: List[int], ceil: bool,
           with_padding: bool{divisor}) -> Tensor:
    first = x.dim() - {n}
    for i in range({n}):
        axis = first + i
        size = x.size(axis)
        found, at = pooled("{name}", x, axis, i, window, stride, padding, [], ceil, 0.0)
        x = found.sum(axis + 1)
        counted = (at >= 0) & (at < size)
        if with_padding:
            counted = at < size + pick(padding, i, 0)
        {divide}
    return x{divided}
"""
_COLUMNS = """
def columns(x: Tensor, groups: int, ats: List[Tensor], insides: List[Tensor]) -> Tensor:
    n = len(ats)
    sizes = [x.size(0), groups, x.size(1) // groups]
    order = [0, 1]
    n_places = 1
    for i in range(n):
        x = selected(x, 2 + i, ats[i], insides[i], 0.0)
        sizes.append(ats[i].size(0))
        sizes.append(ats[i].size(1))
        order.append(3 + 2 * i)
        n_places = n_places * ats[i].size(0)
    order.append(2)
    steps = sizes[2]
    for i in range(n):
        order.append(4 + 2 * i)
        steps = steps * ats[i].size(1)
    return x.reshape(sizes).permute(order).reshape([sizes[0], groups, n_places, steps])

def multiplied(columns: Tensor, weight: Tensor, bias: Optional[Tensor], ats: List[Tensor]) -> Tensor:
    made = torch.matmul(columns, weight).transpose(2, 3)
    sizes = [made.size(0), made.size(1) * made.size(2)]
    shape = [-1]
    for at in ats:
        sizes.append(at.size(0))
        shape.append(1)
    made = made.reshape(sizes)
    if bias is not None:
        made = made + bias.reshape(shape)
    return made
"""
_CONV = """
def {name}(x: Tensor, weight: Tensor, bias: Optional[Tensor], stride: List[int], padding: List[int],
           dilation: List[int], groups: int) -> Tensor:
    is_alone = x.dim() == {n} + 1
    if is_alone:
        x = x.unsqueeze(0)
    assert groups > 0 and x.size(1) == weight.size(1) * groups and weight.size(0) % groups == 0, (
        "{name}: {{}} groups do not fit an image of {{}} channels and a weight of {{}} x {{}}".format(
            groups, x.size(1), weight.size(0), weight.size(1)))
    ats: List[Tensor] = []
    insides: List[Tensor] = []
    for i in range({n}):
        size = x.size(2 + i)
        at = places("{name}", size, weight.size(2 + i), pick(stride, i, 1), pick(padding, i, 0),
                    pick(dilation, i, 1), False)
        ats.append(at)
        insides.append((at >= 0) & (at < size))
    rows = weight.reshape([groups, weight.size(0) // groups, -1]).transpose(1, 2)
    made = multiplied(columns(x, groups, ats, insides), rows, bias, ats)
    return made.squeeze(0) if is_alone else made
"""
_CONV_TRANSPOSE = """
def {name}(x: Tensor, weight: Tensor, bias: Optional[Tensor], stride: List[int], padding: List[int],
           output_padding: List[int], groups: int, dilation: List[int]) -> Tensor:
    is_alone = x.dim() == {n} + 1
    if is_alone:
        x = x.unsqueeze(0)
    assert groups > 0 and x.size(1) == weight.size(0) and weight.size(0) % groups == 0, (
        "{name}: {{}} groups do not fit an image of {{}} channels and a weight of {{}} x {{}}".format(
            groups, x.size(1), weight.size(0), weight.size(1)))
    ats: List[Tensor] = []
    insides: List[Tensor] = []
    for i in range({n}):
        size = x.size(2 + i)
        k = weight.size(2 + i)
        s = pick(stride, i, 1)
        p = pick(padding, i, 0)
        o = pick(output_padding, i, 0)
        d = pick(dilation, i, 1)
        assert s > 0 and d > 0 and p >= 0 and o >= 0 and o < max(s, d), (
            "{name}: stride {{}}, dilation {{}}, padding {{}} and output padding {{}} do not fit".format(
                s, d, p, o))
        n = (size - 1) * s - 2 * p + d * (k - 1) + o + 1
        assert n > 0, "{name}: the result would have size {{}}".format(n)
        from_start = (torch.arange(n) + p).unsqueeze(1) - torch.arange(k) * d
        at = torch.floor_divide(from_start, s)
        ats.append(at)
        insides.append((at >= 0) & (at < size) & (at * s == from_start))
    each = weight.size(0) // groups
    rows = weight.reshape([groups, each, weight.size(1), -1]).permute([0, 1, 3, 2])
    rows = rows.reshape([groups, -1, weight.size(1)])
    made = multiplied(columns(x, groups, ats, insides), rows, bias, ats)
    return made.squeeze(0) if is_alone else made
"""
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
_NEAREST = """
def {name}(x: Tensor, sizes: Optional[List[int]], factors: Optional[List[float]]) -> Tensor:
    for i in range({n}):
        size = x.size(2 + i)
        n = result_size(size, i, sizes, factors)
        step = step_of(size, n, i, factors)
        if n == size or n == 2 * size:  # as PyTorch does, whatever the factor
            step = float(size) / float(n)
        at = torch.floor(torch.arange(n).to(torch.float32) * step).to(torch.int64)
        x = x.index_select(2 + i, torch.minimum(at, torch.zeros_like(at) + (size - 1)))
    return x
"""
_LINEAR = """
def {name}(x: Tensor, sizes: Optional[List[int]], align: bool, factors: Optional[List[float]]) -> Tensor:
    for i in range({n}):
        axis = 2 + i
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
        else:
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
_DIVISOR = ", divisor: Optional[int]"
_DIVIDE = "x = x / counted.sum(1).reshape(along(x.dim(), axis))"
_DIVIDE_UNLESS = f"""if divisor is None:
            {_DIVIDE}"""
_DIVIDED = """ if divisor is None else x / divisor"""


def _by_axes(source: str, names: str, helpers: str, **more: str) -> dict[str, str]:
    """Return a source for images of one, two and three axes."""
    made = enumerate(names.split(), 1)
    return {name: helpers + source.format(name=name, n=n, **more) for n, name in made}


SOURCES = {
    **_by_axes(_MAX_POOL, "max_pool1d max_pool2d max_pool3d", _POOL),
    **_by_axes(
        _AVG_POOL,
        "avg_pool1d avg_pool2d avg_pool3d",
        _POOL,
        divisor=_DIVISOR,
        divide=_DIVIDE_UNLESS,
        divided=_DIVIDED,
    ),
    "avg_pool1d": _POOL + _AVG_POOL.format(name="avg_pool1d", n=1, divisor="", divide=_DIVIDE, divided=""),
    **_by_axes(_CONV, "conv1d conv2d conv3d", _PICK + _SELECTED + _PLACES + _COLUMNS),
    **_by_axes(
        _CONV_TRANSPOSE,
        "conv_transpose1d conv_transpose2d conv_transpose3d",
        _PICK + _SELECTED + _COLUMNS,
    ),
    **_by_axes(_NEAREST, "upsample_nearest1d upsample_nearest2d upsample_nearest3d", _RESULT_SIZE),
    **_by_axes(_LINEAR, "upsample_linear1d upsample_bilinear2d upsample_trilinear3d", ALONG + _RESULT_SIZE),
    "diagonal": """
def diagonal(x: Tensor, k: int, dim1: int, dim2: int) -> Tensor:
    x = x.movedim([dim1, dim2], [-2, -1])
    n = max(min(x.size(-2) + min(k, 0), x.size(-1) - max(k, 0)), 0)
    places = torch.arange(n)
    at = (places - min(k, 0)) * x.size(-1) + places + max(k, 0)
    return x.flatten(-2).index_select(-1, at)
""",
    "diag_embed": """
def diag_embed(x: Tensor, k: int, dim1: int, dim2: int) -> Tensor:
    n = x.size(-1) + abs(k)
    rows = torch.arange(n).unsqueeze(1)
    here = torch.arange(n) - rows == k
    at = torch.arange(n) - max(k, 0)
    inside = (at >= 0) & (at < x.size(-1))
    found = x.index_select(-1, at * inside.to(torch.int64)).unsqueeze(-2)
    return torch.where(here, found, torch.zeros_like(found)).movedim([-2, -1], [dim1, dim2])
""",
    "diag": """
def diag(x: Tensor, k: int) -> Tensor:
    if x.dim() == 1:
        return torch.diag_embed(x, k)
    return torch.diagonal(x, k)
""",
    "pixel_shuffle": """
def pixel_shuffle(x: Tensor, r: int) -> Tensor:
    x = x.unflatten(-3, [-1, r, r])
    n = x.dim()
    order: List[int] = []
    for i in range(n - 5):
        order.append(i)
    x = x.permute(order + [n - 5, n - 2, n - 4, n - 1, n - 3])
    return x.flatten(-2).flatten(-3, -2)
""",
    "pixel_unshuffle": """
def pixel_unshuffle(x: Tensor, r: int) -> Tensor:
    x = x.unflatten(-1, [-1, r]).unflatten(-3, [-1, r])
    n = x.dim()
    order: List[int] = []
    for i in range(n - 5):
        order.append(i)
    x = x.permute(order + [n - 5, n - 3, n - 1, n - 4, n - 2])
    return x.flatten(-5, -3)
""",
    "channel_shuffle": """
def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    return x.unflatten(1, [groups, -1]).transpose(1, 2).flatten(1, 2)
""",
}
