"""Operators with run-time windows, offsets or scales along axes, as TorchScript code that selects the
positions of every window. `at` has a row for each position of the result, with the positions of its window;
`inside` marks those within the axis."""

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
#: The windows along one axis of a pool, as an axis after it, and the positions in them.
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
#: The index in the image of the first of equal maxima, or of the last NaN.
_MAX_POOL_WITH_INDICES = """
def {name}(x: Tensor, window: List[int], stride: List[int], padding: List[int], dilation: List[int],
           ceil: bool) -> Tuple[Tensor, Tensor]:
    first = x.dim() - {n}
    flat = torch.zeros([1, 1], dtype=torch.int64)
    inside = flat == 0
    x = x.unsqueeze(-1)
    shape = x.size()[:first]
    for i in range({n}):
        k = pick(window, i, 1)
        p = pick(padding, i, 0)
        assert p * 2 <= k, "{name}: the padding {{}} must be at most half of the window {{}}".format(p, k)
        size = x.size(first + i)
        at = places("{name}", size, k, pick(stride, i, k), p, pick(dilation, i, 1), ceil)
        here = (at >= 0) & (at < size)
        shape.append(at.size(0))
        x = selected(x, first + i, at, here, float("-inf")).unflatten(first + i, [at.size(0), at.size(1)])
        x = x.movedim(first + i + 1, -1).flatten(-2)
        flat = flat.unsqueeze(2).unsqueeze(1) * size + at.unsqueeze(1).unsqueeze(0)
        flat = flat.flatten(2).flatten(0, 1)
        inside = inside.unsqueeze(2).unsqueeze(1) & here.unsqueeze(1).unsqueeze(0)
        inside = inside.flatten(2).flatten(0, 1)
    x = x.flatten(first, -2)
    top = x.amax(-1, True)
    order = torch.arange(x.size(-1)) + 2
    score = torch.where(x != x, order, (x == top).to(torch.int64)) * inside.to(torch.int64)
    best = score.argmax(-1, True)
    found = flat.expand(best.size()[:-1] + [flat.size(-1)]).gather(-1, best)
    return top.reshape(shape), found.reshape(shape)
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
_MAX_UNPOOL = """
def {name}(x: Tensor, places: Tensor, sizes: List[int]{more}) -> Tensor:
    first = x.dim() - {n}
    n = 1
    for i in range({n}):
        n = n * sizes[i]
    outer = x.size()[:first]
    made = torch.zeros(outer + [n], dtype=x.dtype)
    return made.scatter(first, places.flatten(first), x.flatten(first)).reshape(outer + sizes)
"""
_IM2COL = """
def im2col(x: Tensor, window: List[int], dilation: List[int], padding: List[int],
           stride: List[int]) -> Tensor:
    is_alone = x.dim() == 3
    if is_alone:
        x = x.unsqueeze(0)
    for i in range(2):
        axis = 2 + 2 * i
        size = x.size(axis)
        at = places("unfold", size, pick(window, i, 1), pick(stride, i, 1), pick(padding, i, 0),
                    pick(dilation, i, 1), False)
        x = selected(x, axis, at, (at >= 0) & (at < size), 0.0)
        x = x.unflatten(axis, [at.size(0), at.size(1)])
    made = x.permute([0, 1, 3, 5, 2, 4]).flatten(4).flatten(1, 3)
    return made.squeeze(0) if is_alone else made
"""
_COL2IM = """
def col2im(x: Tensor, sizes: List[int], window: List[int], dilation: List[int], padding: List[int],
           stride: List[int]) -> Tensor:
    is_alone = x.dim() == 2
    if is_alone:
        x = x.unsqueeze(0)
    counts: List[int] = []
    for i in range(2):
        k = pick(window, i, 1)
        at = places("fold", pick(sizes, i, 1), k, pick(stride, i, 1), pick(padding, i, 0),
                    pick(dilation, i, 1), False)
        counts.append(at.size(0))
    high = pick(window, 0, 1)
    wide = pick(window, 1, 1)
    assert x.size(1) % (high * wide) == 0 and x.size(2) == counts[0] * counts[1], (
        "fold: {} rows and {} columns do not fit windows of {} x {} at {} x {} places".format(
            x.size(1), x.size(2), high, wide, counts[0], counts[1]))
    x = x.reshape([x.size(0), x.size(1) // (high * wide), high, wide, counts[0], counts[1]])
    x = x.permute([0, 1, 2, 4, 3, 5])
    for i in range(2):
        k = pick(window, i, 1)
        s = pick(stride, i, 1)
        from_start = (torch.arange(pick(sizes, i, 1)) + pick(padding, i, 0)).unsqueeze(1)
        from_start = from_start - torch.arange(k) * pick(dilation, i, 1)
        at = torch.floor_divide(from_start, s)
        inside = (at >= 0) & (at < counts[i]) & (at * s == from_start)
        at = torch.where(inside, at, torch.zeros_like(at)) + torch.arange(k) * counts[i]
        found = x.flatten(2 + i, 3 + i).index_select(2 + i, at.reshape([-1]))
        found = found.unflatten(2 + i, [at.size(0), at.size(1)])
        shape = along(found.dim(), 2 + i)
        shape[2 + i] = at.size(0)
        shape[3 + i] = at.size(1)
        x = torch.where(inside.reshape(shape), found, torch.zeros_like(found)).sum(3 + i)
    return x.squeeze(0) if is_alone else x
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
_DIVISOR = ", divisor: Optional[int]"
_DIVIDE = "x = x / counted.sum(1).reshape(along(x.dim(), axis))"
_DIVIDE_UNLESS = f"""if divisor is None:
            {_DIVIDE}"""
_DIVIDED = """ if divisor is None else x / divisor"""


def by_axes(source: str, names: str, helpers: str, **more: str) -> dict[str, str]:
    """Return a source for images of one, two and three axes."""
    made = enumerate(names.split(), 1)
    return {name: helpers + source.format(name=name, n=n, **more) for n, name in made}


SOURCES = {
    **by_axes(_MAX_POOL, "max_pool1d max_pool2d max_pool3d", _POOL),
    **by_axes(
        _AVG_POOL,
        "avg_pool1d avg_pool2d avg_pool3d",
        _POOL,
        divisor=_DIVISOR,
        divide=_DIVIDE_UNLESS,
        divided=_DIVIDED,
    ),
    "avg_pool1d": _POOL + _AVG_POOL.format(name="avg_pool1d", n=1, divisor="", divide=_DIVIDE, divided=""),
    **by_axes(_CONV, "conv1d conv2d conv3d", _PICK + _SELECTED + _PLACES + _COLUMNS),
    **by_axes(
        _CONV_TRANSPOSE,
        "conv_transpose1d conv_transpose2d conv_transpose3d",
        _PICK + _SELECTED + _COLUMNS,
    ),
    **by_axes(
        _MAX_POOL_WITH_INDICES,
        "max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices",
        _PICK + _SELECTED + _PLACES,
    ),
    "max_unpool2d": _MAX_UNPOOL.format(name="max_unpool2d", n=2, more=""),
    "max_unpool3d": _MAX_UNPOOL.format(
        name="max_unpool3d", n=3, more=", stride: List[int], padding: List[int]"
    ),
    "im2col": _PICK + _SELECTED + _PLACES + _IM2COL,
    "col2im": _PICK + _SELECTED + _PLACES + _COL2IM,
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
    assert x.numel() > 0, "pixel_unshuffle: the input has no elements"
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
