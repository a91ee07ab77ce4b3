"""Operators with a run-time number, such as an eps, a scale or an order, as TorchScript code that is imported
in place of the operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...values.values import List, Tensor, is_run_time, is_size
from . import covariance, numerics, signals, windows

_REDUCED = """
    if reduction == 1:
        made = made.mean()
    if reduction == 2:
        made = made.sum()
    return made
"""
_CLOSE = """
def are_close(x: Tensor, y: Tensor, rtol: float, atol: float, equal_nan: bool) -> Tensor:
    made = x == y
    if equal_nan:
        made = made | ((x != x) & (y != y))
    far = (x - y).abs()
    return made | (torch.isfinite(far) & (far <= (y * rtol).abs() + atol))
"""
#: The vector norm of a run-time order; orders with a shorter form than powers use it.
_NORM_OF = """
def norm_of(x: Tensor, p: float, dims: Optional[List[int]], keepdim: bool, dtype: Optional[int]) -> Tensor:
    if p == 0.0:
        return torch._C._linalg.linalg_vector_norm(x, 0.0, dims, keepdim, dtype=dtype)
    if p == 1.0:
        return torch._C._linalg.linalg_vector_norm(x, 1.0, dims, keepdim, dtype=dtype)
    if p == 2.0:
        return torch._C._linalg.linalg_vector_norm(x, 2.0, dims, keepdim, dtype=dtype)
    if p == float("inf"):
        return torch._C._linalg.linalg_vector_norm(x, float("inf"), dims, keepdim, dtype=dtype)
    if p == float("-inf"):
        return torch._C._linalg.linalg_vector_norm(x, float("-inf"), dims, keepdim, dtype=dtype)
    kept = x.dtype if dtype is None else dtype
    wide = x.to(kept)
    if kept == torch.float16 or kept == torch.bfloat16:
        wide = wide.to(torch.float32)
    total = torch._C._linalg.linalg_vector_norm(wide.abs() ** p, 1.0, dims, keepdim)
    return (total ** (1.0 / p)).to(kept)
"""
#: The common part of class losses: the index of each row's class, its weight, and the mean by these weights.
_OF_CLASSES = """
def classes(target: Tensor, ignored: int) -> Tuple[Tensor, Tensor]:
    kept = target != ignored
    return kept, torch.where(kept, target, torch.zeros_like(target))

def weights_of(made: Tensor, weight: Optional[Tensor], at: Tensor) -> Tensor:
    each = torch.zeros_like(made) + 1
    if weight is not None:
        each = weight.index_select(0, at.reshape([-1])).reshape(at.size())
    return each

def reduced(made: Tensor, each: Tensor, kept: Tensor, reduction: int) -> Tensor:
    zeros = torch.zeros_like(made)
    made = torch.where(kept, made, zeros)
    if reduction == 1:
        return made.sum() / torch.where(kept, each, zeros).sum()
    if reduction == 2:
        return made.sum()
    return made
"""
_CROSS_ENTROPY = f"""{windows.ALONG}{_OF_CLASSES}
def cross_entropy_loss(x: Tensor, target: Tensor, weight: Optional[Tensor], reduction: int, ignored: int,
                       smoothing: float) -> Tensor:
    axis = 0 if x.dim() == 1 else 1
    n = float(x.size(axis))
    logs = torch.log_softmax(x, axis)
    weighed = logs
    if weight is not None:
        weighed = logs * weight.reshape(along(x.dim(), axis))
    if target.is_floating_point():
        made = -(weighed * (target * (1.0 - smoothing) + smoothing / n)).sum(axis)
        count = float(x.numel()) / n
        if reduction == 1:
            return made.sum() / count
        if reduction == 2:
            return made.sum()
        return made
    kept, at = classes(target, ignored)
    made = -weighed.gather(axis, at.unsqueeze(axis)).squeeze(axis)
    each = weights_of(made, weight, at)
    made = made * (1.0 - smoothing) - weighed.sum(axis) * (smoothing / n)
    return reduced(made, each, kept, reduction)
"""


def _norm(name: str, arguments: str, call: str) -> str:
    return f"{_NORM_OF}\ndef {name}({arguments}) -> Tensor:\n    return norm_of({call})\n"


#: TorchScript of operators by the name of the operator, and of its overload where these differ.
SOURCES = {
    **windows.SOURCES,
    **numerics.SOURCES,
    **signals.SOURCES,
    **covariance.SOURCES,
    "linalg_vector_norm": _norm(
        "linalg_vector_norm",
        "x: Tensor, p: float, dims: Optional[List[int]], keepdim: bool, dtype: Optional[int]",
        "x, p, dims, keepdim, dtype",
    ),
    "norm.Scalar": _norm("norm", "x: Tensor, p: float", "x, p, None, False, None"),
    "norm.ScalarOpt_dtype": _norm("norm", "x: Tensor, p: float, dtype: int", "x, p, None, False, dtype"),
    "norm.ScalarOpt_dim": _norm(
        "norm", "x: Tensor, p: float, dims: List[int], keepdim: bool", "x, p, dims, keepdim, None"
    ),
    "norm.ScalarOpt_dim_dtype": _norm(
        "norm",
        "x: Tensor, p: float, dims: List[int], keepdim: bool, dtype: int",
        "x, p, dims, keepdim, dtype",
    ),
    "dist": _norm("dist", "x: Tensor, y: Tensor, p: float", "x - y, p, None, False, None"),
    "linalg_norm": f"""{_NORM_OF}
def linalg_norm(x: Tensor, p: float, dims: Optional[List[int]], keepdim: bool,
                dtype: Optional[int]) -> Tensor:
    n = x.dim() if dims is None else len(dims)
    if n == 2:
        return torch._C._linalg.linalg_norm(x, p, dims, keepdim, dtype=dtype)
    return norm_of(x, p, dims, keepdim, dtype)
""",
    "cdist": f"""{_NORM_OF}
def cdist(x: Tensor, y: Tensor, p: float, mode: Optional[int]) -> Tensor:
    assert p >= 0.0, "cdist: p is {{}}; it must be at least 0".format(p)
    far = x.unsqueeze(-2) - y.unsqueeze(-3)
    if far.size(-1) == 0:
        return far.sum(-1)
    return norm_of(far, p, [-1], False, None)
""",
    "pairwise_distance": f"""{_NORM_OF}
def pairwise_distance(x: Tensor, y: Tensor, p: float, eps: float, keepdim: bool) -> Tensor:
    return norm_of(x - y + eps, p, [-1], keepdim, None)
""",
    "logit": """
def logit(x: Tensor, eps: float) -> Tensor:
    if eps < 0.0:
        return torch.logit(x)
    low = torch.zeros_like(x) + eps
    high = torch.zeros_like(x) + (1.0 - eps)
    return torch.logit(torch.where(x < low, low, torch.where(x > high, high, x)))
""",
    "eye": """
def eye(n: int, m: int) -> Tensor:
    return torch.arange(n).unsqueeze(1) == torch.arange(m)
""",
    "arange.ints": """
def arange(start: int, end: int, step: int) -> Tensor:
    assert step != 0, "arange: the step must not be 0"
    n = -((start - end) // step)
    assert n >= 0, "arange: {} does not lie in the direction of the step from {}".format(end, start)
    return torch.arange(n) * step + start
""",
    "arange.floats": """
def arange(start: float, end: float, step: float) -> Tensor:
    assert step != 0.0, "arange: the step must not be 0"
    n = torch.ceil((end - start) / step)
    assert n >= 0, "arange: {} does not lie in the direction of the step from {}".format(end, start)
    return torch.arange(n).to(torch.float64) * step + start
""",
    "addr": """
def addr(x: Tensor, one: Tensor, two: Tensor, beta: float, alpha: float) -> Tensor:
    return x * beta + torch.outer(one, two) * alpha
""",
    "isclose": f"""{_CLOSE}
def isclose(x: Tensor, y: Tensor, rtol: float, atol: float, equal_nan: bool) -> Tensor:
    return are_close(x, y, rtol, atol, equal_nan)
""",
    "allclose": f"""{_CLOSE}
def allclose(x: Tensor, y: Tensor, rtol: float, atol: float, equal_nan: bool) -> bool:
    return bool(are_close(x, y, rtol, atol, equal_nan).all())
""",
    "triplet_margin_loss": f"""
def triplet_margin_loss(x: Tensor, near: Tensor, far: Tensor, margin: float, p: float, eps: float, swap: bool,
                        reduction: int) -> Tensor:
    one = torch.pairwise_distance(x, near, p, eps)
    other = torch.pairwise_distance(x, far, p, eps)
    if swap:
        other = torch.minimum(other, torch.pairwise_distance(near, far, p, eps))
    made = torch.relu(one - other + margin)
    {_REDUCED}
""",
    "margin_ranking_loss": f"""
def margin_ranking_loss(x: Tensor, y: Tensor, target: Tensor, margin: float, reduction: int) -> Tensor:
    made = torch.relu((y - x) * target + margin)
    {_REDUCED}
""",
    "hinge_embedding_loss": f"""
def hinge_embedding_loss(x: Tensor, target: Tensor, margin: float, reduction: int) -> Tensor:
    zeros = torch.zeros_like(x)
    far = torch.where(target == 1, zeros, torch.relu(margin - x))
    made = far + torch.where(target == -1, zeros, x)
    {_REDUCED}
""",
    "poisson_nll_loss": f"""
def poisson_nll_loss(x: Tensor, target: Tensor, is_log: bool, full: bool, eps: float,
                     reduction: int) -> Tensor:
    made = x
    if is_log:
        made = torch.exp(x) - target * x
    else:
        made = x - target * torch.log(x + eps)
    if full:
        more = target * torch.log(target) - target + torch.log(target * 6.283185307179586) * 0.5
        made = made + torch.where(target > 1, more, torch.zeros_like(more))
    {_REDUCED}
""",
    "cosine_embedding_loss": f"""
def cosine_embedding_loss(x: Tensor, y: Tensor, target: Tensor, margin: float, reduction: int) -> Tensor:
    eps = 1e-12
    dot = (x * y).sum(-1)
    near = dot / torch.sqrt(((x * x).sum(-1) + eps) * ((y * y).sum(-1) + eps))
    zeros = torch.zeros_like(near)
    made = torch.where(target == 1, 1.0 - near, zeros)
    made = made + torch.where(target == -1, torch.maximum(near - margin, zeros), zeros)
    {_REDUCED}
""",
    "multi_margin_loss": f"""
def multi_margin_loss(x: Tensor, target: Tensor, p: float, margin: float, weight: Optional[Tensor],
                      reduction: int) -> Tensor:
    assert p == 1.0 or p == 2.0, "multi_margin_loss: p is {{}}; it must be 1 or 2".format(p)
    is_alone = x.dim() == 1
    if is_alone:
        x = x.unsqueeze(0)
        target = target.reshape([1])
    at = target.unsqueeze(1)
    far = torch.relu(x - x.gather(1, at) + margin)
    if p == 2.0:
        far = far * far
    if weight is not None:
        far = far * weight.index_select(0, target).unsqueeze(1)
    far = torch.where(torch.arange(x.size(1)) == at, torch.zeros_like(far), far)
    made = far.sum(1) / x.size(1)
    if is_alone:
        made = made.squeeze(0)
    {_REDUCED}
""",
    "round.decimals": """
def round(x: Tensor, n: int) -> Tensor:
    ten = 10.0 ** float(abs(n))
    if n >= 0:
        return torch.round(x * ten) / ten
    return torch.round(x / ten) * ten
""",
    "rrelu": """
def rrelu(x: Tensor, low: float, high: float, training: bool, generator: Optional[int]) -> Tensor:
    assert not training, "rrelu: bounds may be run-time values only in evaluation"
    return torch.where(x >= 0, x, x * ((low + high) / 2.0))
""",
    "linalg_matrix_power": """
def linalg_matrix_power(x: Tensor, n: int) -> Tensor:
    assert n >= 0, "matrix_power: n is {}; as a run-time value it must be 0 or more".format(n)
    places = torch.arange(x.size(-1))
    made = torch.zeros_like(x) + (places == places.unsqueeze(1)).to(x.dtype)
    for _ in range(n):
        made = torch.matmul(made, x)
    return made
""",
    "cross_entropy_loss": _CROSS_ENTROPY,
    "nll_loss_nd": f"""{_OF_CLASSES}
def nll_loss_nd(x: Tensor, target: Tensor, weight: Optional[Tensor], reduction: int, ignored: int) -> Tensor:
    axis = 0 if x.dim() == 1 else 1
    kept, at = classes(target, ignored)
    made = -x.gather(axis, at.unsqueeze(axis)).squeeze(axis)
    each = weights_of(made, weight, at)
    return reduced(made * each, each, kept, reduction)
""",
    "rot90": """
def rot90(x: Tensor, k: int, dims: List[int]) -> Tensor:
    turns = k % 4
    if turns == 1:
        return x.flip([dims[1]]).transpose(dims[0], dims[1])
    if turns == 2:
        return x.flip(dims)
    if turns == 3:
        return x.transpose(dims[0], dims[1]).flip([dims[1]])
    return x * 1
""",
    "one_hot": """
def one_hot(x: Tensor, n: int) -> Tensor:
    assert n >= -1, (
        "one_hot: num_classes is {}; it must be at least 0, or -1 for as many as there are".format(n))
    if n == -1:
        n = int(x.max()) + 1
    return torch.zeros(x.size() + [n], dtype=torch.int64).scatter(-1, x.unsqueeze(-1), 1)
""",
    "quantile.scalar": """
def quantile(x: Tensor, q: float, dim: Optional[int], keepdim: bool, interpolation: str) -> Tensor:
    assert q >= 0.0 and q <= 1.0, "quantile: q is {}; it must be in 0 .. 1".format(q)
    return torch.quantile(x, torch.tensor(q, dtype=x.dtype), dim, keepdim, interpolation=interpolation)
""",
    **{
        name: f"""
def {name}(x: Tensor, diagonal: int) -> Tensor:
    distance = torch.arange(x.size(-1)) - torch.arange(x.size(-2)).unsqueeze(1)
    return torch.where(distance {relation} diagonal, x, torch.zeros_like(x))
"""
        for name, relation in (("triu", ">="), ("tril", "<="))
    },
    **{
        f"{name}_indices": f"""
def {name}_indices(n: int, m: int, diagonal: int) -> Tensor:
    distance = torch.arange(m) - torch.arange(n).unsqueeze(1)
    return torch.nonzero(distance {relation} diagonal).t()
"""
        for name, relation in (("triu", ">="), ("tril", "<="))
    },
    "instance_norm": """
def instance_norm(x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], mean: Optional[Tensor],
                  var: Optional[Tensor], of_input: bool, momentum: float, eps: float, cudnn: bool) -> Tensor:
    assert of_input, "instance_norm: eps may be a run-time value only where the statistics are the input's"
    dims: List[int] = []
    sizes = [x.size(1)]
    n = 1
    for i in range(x.dim() - 2):
        dims.append(2 + i)
        sizes.append(1)
        n = n * x.size(2 + i)
    centred = x - x.mean(dims, True)
    if mean is not None and var is not None:
        mean.copy_(mean * (1.0 - momentum) + x.mean(dims).mean(0) * momentum)
        unbiased = (centred * centred).sum(dims).mean(0) / float(n - 1)
        var.copy_(var * (1.0 - momentum) + unbiased * momentum)
    made = centred * torch.rsqrt((centred * centred).mean(dims, True) + eps)
    if weight is not None:
        made = made * weight.reshape(sizes)
    if bias is not None:
        made = made + bias.reshape(sizes)
    return made
""",
    "cosine_similarity": """
def cosine_similarity(x: Tensor, y: Tensor, dim: int, eps: float) -> Tensor:
    one = torch.sqrt((x * x).sum([dim], True))
    other = torch.sqrt((y * y).sum([dim], True))
    x = x / torch.maximum(one, torch.zeros_like(one) + eps)
    return (x * (y / torch.maximum(other, torch.zeros_like(other) + eps))).sum([dim])
""",
    "softshrink": """
def softshrink(x: Tensor, bound: float) -> Tensor:
    return torch.where(x > bound, x - bound, torch.where(x < -bound, x + bound, x * 0))
""",
    "huber_loss": f"""
def huber_loss(x: Tensor, target: Tensor, reduction: int, delta: float) -> Tensor:
    far = (x - target).abs()
    made = torch.where(far <= delta, 0.5 * far * far, (far - 0.5 * delta) * delta)
    {_REDUCED}
""",
}


#: Overloads of the same name that take other arguments.
_OTHERS = ("padding", "str_ord")
#: Operators that are imported this way because of their lists, or of their sizes.
_OF_LISTS = (*windows.SOURCES, *numerics.SOURCES)
_ALWAYS = (*numerics.ALWAYS, *covariance.SOURCES, "pixel_shuffle", "pixel_unshuffle", "channel_shuffle")
_OF_SIZES = ("triu", "tril", "istft", *windows.SOURCES)
#: Operators that accept run-time sizes in lists only in this form.
_OF_SIZES_IN_LISTS = ("im2col", "col2im", "affine_grid_generator", "max_unpool2d", "max_unpool3d")


def source_of(name: str, overload: str, args: Sequence[Any]) -> str | None:
    """Return the name in SOURCES of an operator with a run-time number, or without another form; None for
    others."""
    found = next((key for key in (f"{name}.{overload}", name) if key in SOURCES), None)
    if found is None or overload in _OTHERS or not any(isinstance(x, Tensor) for x in args):
        return None
    if name == "instance_norm" and args[3] is not None and args[5] is True:
        return found  # which also changes the statistics
    return found if found in _ALWAYS or any(_is_told(name, x) for x in args) else None


def _is_told(name: str, x: Any) -> bool:
    """Return True for a run-time number; for windows also for lists with one."""
    if isinstance(x, List) and name in _OF_LISTS and isinstance(x.content, list):
        return any(is_run_time(item) or (is_size(item) and name in _OF_SIZES_IN_LISTS) for item in x.content)
    return is_run_time(x) or (is_size(x) and name in _OF_SIZES)
