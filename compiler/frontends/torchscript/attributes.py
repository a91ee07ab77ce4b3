"""Attributes of operators that only a call tells: an axis, a mode or a flag, with a branch for each value;
numbers such as an eps or a scale, for which the operator is imported as arithmetic on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...ir.errors import DtypeError, ShapeError, UnsupportedOp
from ...ops import build as B
from .control import branch
from .scalars import scalar_op, value_of
from .values import List, Tensor, is_run_time, is_size, kind_of

if TYPE_CHECKING:
    from .importer import ScriptImporter

#: The values of arguments that are one of a few; "reduce" apart, operators that share a name share them.
CHOICES: dict[str, tuple[Any, ...]] = {
    "approximate": ("none", "tanh"),
    "indexing": ("ij", "xy"),
    "interpolation_mode": (0, 1, 2),  # bilinear, nearest, bicubic
    "mode": ("constant", "reflect", "replicate", "circular"),  # of padding
    "padding_mode": (0, 1, 2),  # zeros, border, reflection
    "reduce": ("sum", "prod", "mean", "amax", "amin"),
    "reduction": (0, 1, 2),  # none, mean, sum
    "rounding_mode": ("trunc", "floor"),
    "side": ("left", "right"),
}
AXES = ("dim", "dims", "dim0", "dim1", "axis0", "axis1", "start_dim", "end_dim", "source", "destination")

_NORM = """
    made = centred * torch.rsqrt((centred * centred).mean(dims, True) + eps)
"""
_SCALE_AND_SHIFT = """
    if weight is not None:
        made = made * weight
    if bias is not None:
        made = made + bias
    return made
"""
_BY_CHANNEL = """
    sizes = [x.size(1)]
    for i in range(x.dim() - 2):
        sizes.append(1)
    if weight is not None:
        made = made * weight.reshape(sizes)
    if bias is not None:
        made = made + bias.reshape(sizes)
    return made
"""
_REDUCED = """
    if reduction == 1:
        made = made.mean()
    if reduction == 2:
        made = made.sum()
    return made
"""
#: TorchScript of operators by the name of the operator.
SOURCES = {
    "layer_norm": f"""
def layer_norm(x: Tensor, shape: List[int], weight: Optional[Tensor], bias: Optional[Tensor], eps: float,
               cudnn: bool) -> Tensor:
    dims: List[int] = []
    for i in range(len(shape)):
        dims.append(-1 - i)
    centred = x - x.mean(dims, True)
    {_NORM}{_SCALE_AND_SHIFT}
""",
    "rms_norm": f"""
def rms_norm(x: Tensor, shape: List[int], weight: Optional[Tensor], eps: float) -> Tensor:
    dims: List[int] = []
    for i in range(len(shape)):
        dims.append(-1 - i)
    centred = x
    {_NORM}
    if weight is not None:
        made = made * weight
    return made
""",
    "batch_norm": f"""
def batch_norm(x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], mean: Tensor, var: Tensor,
               training: bool, momentum: float, eps: float, cudnn: bool) -> Tensor:
    assert not training, "batch_norm: eps is told by a call only in evaluation"
    shape = [x.size(1)]
    for i in range(x.dim() - 2):
        shape.append(1)
    made = (x - mean.reshape(shape)) * torch.rsqrt(var + eps).reshape(shape)
    {_BY_CHANNEL}
""",
    "scaled_dot_product_attention": """
def scaled_dot_product_attention(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], p: float,
                                 causal: bool, scale: float, gqa: bool) -> Tensor:
    scaled = q * (scale * float(q.size(-1)) ** 0.5)
    return torch._C._nn.scaled_dot_product_attention(scaled, k, v, mask, p, causal, enable_gqa=gqa)
""",
    "leaky_relu": """
def leaky_relu(x: Tensor, slope: float) -> Tensor:
    return torch.where(x > 0, x, x * slope)
""",
    "elu": """
def elu(x: Tensor, alpha: float, scale: float, input_scale: float) -> Tensor:
    return torch.where(x > 0, x * scale, torch.expm1(x * input_scale) * (alpha * scale))
""",
    "celu": """
def celu(x: Tensor, alpha: float) -> Tensor:
    return torch.where(x > 0, x, torch.expm1(x / alpha) * alpha)
""",
    "softplus": """
def softplus(x: Tensor, beta: float, threshold: float) -> Tensor:
    return torch.where(x * beta > threshold, x, torch.log1p(torch.exp(x * beta)) / beta)
""",
    "threshold": """
def threshold(x: Tensor, least: float, value: float) -> Tensor:
    return torch.where(x > least, x, torch.zeros_like(x) + value)
""",
    "clamp": """
def clamp(x: Tensor, low: Optional[float], high: Optional[float]) -> Tensor:
    if low is not None:
        x = torch.maximum(x, torch.zeros_like(x) + low)
    if high is not None:
        x = torch.minimum(x, torch.zeros_like(x) + high)
    return x
""",
    "clamp_min": """
def clamp_min(x: Tensor, low: float) -> Tensor:
    return torch.maximum(x, torch.zeros_like(x) + low)
""",
    "clamp_max": """
def clamp_max(x: Tensor, high: float) -> Tensor:
    return torch.minimum(x, torch.zeros_like(x) + high)
""",
    "hardtanh": """
def hardtanh(x: Tensor, low: float, high: float) -> Tensor:
    return torch.minimum(torch.maximum(x, torch.zeros_like(x) + low), torch.zeros_like(x) + high)
""",
    "add": """
def add(x: Tensor, other: Tensor, alpha: float) -> Tensor:
    return x + other * alpha
""",
    "sub": """
def sub(x: Tensor, other: Tensor, alpha: float) -> Tensor:
    return x - other * alpha
""",
    "addmm": """
def addmm(x: Tensor, one: Tensor, two: Tensor, beta: float, alpha: float) -> Tensor:
    return x * beta + torch.mm(one, two) * alpha
""",
    **{
        name: f"""
def {name}(x: Tensor, diagonal: int) -> Tensor:
    distance = torch.arange(x.size(-1)) - torch.arange(x.size(-2)).unsqueeze(1)
    return torch.where(distance {relation} diagonal, x, torch.zeros_like(x))
"""
        for name, relation in (("triu", ">="), ("tril", "<="))
    },
    "group_norm": f"""
def group_norm(x: Tensor, groups: int, weight: Optional[Tensor], bias: Optional[Tensor], eps: float,
               cudnn: bool) -> Tensor:
    rows = x.reshape([x.size(0), groups, -1])
    dims = [2]
    centred = rows - rows.mean(dims, True)
    {_NORM}
    made = made.reshape(x.size())
    {_BY_CHANNEL}
""",
    "instance_norm": f"""
def instance_norm(x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], mean: Optional[Tensor],
                  var: Optional[Tensor], of_input: bool, momentum: float, eps: float, cudnn: bool) -> Tensor:
    assert of_input, "instance_norm: eps is told by a call only where the statistics are the input's"
    dims: List[int] = []
    for i in range(x.dim() - 2):
        dims.append(2 + i)
    centred = x - x.mean(dims, True)
    {_NORM}{_BY_CHANNEL}
""",
    "cosine_similarity": """
def cosine_similarity(x: Tensor, y: Tensor, dim: int, eps: float) -> Tensor:
    one = torch.sqrt((x * x).sum([dim], True))
    other = torch.sqrt((y * y).sum([dim], True))
    x = x / torch.maximum(one, torch.zeros_like(one) + eps)
    return (x * (y / torch.maximum(other, torch.zeros_like(other) + eps))).sum([dim])
""",
    "hardshrink": """
def hardshrink(x: Tensor, bound: float) -> Tensor:
    return torch.where(x.abs() <= bound, torch.zeros_like(x), x)
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
    "smooth_l1_loss": f"""
def smooth_l1_loss(x: Tensor, target: Tensor, reduction: int, beta: float) -> Tensor:
    far = (x - target).abs()
    made = torch.where(far < beta, 0.5 * far * far / beta, far - 0.5 * beta)
    {_REDUCED}
""",
    "pad": """
def pad(x: Tensor, sizes: List[int], mode: str, value: float) -> Tensor:
    made = torch._C._nn.pad(x, sizes, mode, 0.0)
    if mode != "constant":
        return made
    inside = torch._C._nn.pad(torch.ones_like(x), sizes, mode, 0.0)
    return torch.where(inside > 0, made, (torch.zeros_like(made) + value).to(x.dtype))
""",
    "lerp": """
def lerp(x: Tensor, other: Tensor, weight: float) -> Tensor:
    return x + (other - x) * weight
""",
}


def is_arithmetic(name: str, args: Sequence[Any]) -> bool:
    """Return True for an operator with a number that only a call tells, and that SOURCES has."""
    rest = args[2:] if name in ("add", "sub") else args[1:]
    is_told = any(is_run_time(x) or (is_size(x) and name in ("triu", "tril")) for x in rest)
    return name in SOURCES and isinstance(args[0], Tensor) and is_told


def axis_at(names: Sequence[str], args: Sequence[Any]) -> int | None:
    """Return which argument is an axis, or a list with one, that only a call tells."""
    for i, (name, x) in enumerate(zip(names, args, strict=False)):
        if name in AXES and any(map(is_run_time, x.content if _is_plain_list(x) else [x])):
            return i
    return None


def _is_plain_list(x: Any) -> bool:
    return isinstance(x, List) and isinstance(x.content, list)


Choice = tuple[int, str, tuple[Any, ...]]  # an argument's position and name, and the values it may have


def choice_at(arguments: Sequence[Any], args: Sequence[Any]) -> Choice | None:
    """Return an argument that has one of a few values, of which only a call tells which."""
    for i, (argument, x) in enumerate(zip(arguments, args, strict=False)):
        if not is_run_time(x) and not is_size(x):
            continue
        values = (False, True) if str(argument.type) == "bool" else CHOICES.get(argument.name, ())
        if values and kind_of(x) == kind_of(values[0]):
            return i, argument.name, values
    return None


def of_each_choice(
    importer: ScriptImporter,
    name: str,
    args: Sequence[Any],
    choice: Choice,
    run: Callable[[list[Any]], list[Any]],
) -> list[Any]:
    """Import an operator once for each value that an argument may have; a call chooses. A value for which it
    cannot be imported is refused when a call gives it; where that is so for all, raises the last one's
    error."""
    at, argument, values = choice
    b, given = importer.builder, args[at]
    ways: list[tuple[Any, Callable[[], list[Any]]]] = []
    refused: Exception | None = None
    for value in values:
        way = partial(run, [*args[:at], value, *args[at + 1 :]])
        try:
            with importer.trial():
                way()
            ways.append((value, way))
        except (UnsupportedOp, ShapeError, DtypeError) as error:
            refused = error
    if not ways:
        raise refused or UnsupportedOp(f"{name}: no {argument} can be compiled")
    given = value_of(b, given, kind_of(given))
    if len(ways) == 2 and kind_of(given) == "bool":
        return branch(importer, given, [ways[1][1], ways[0][1]], tells_form=True)
    flags = [scalar_op(b, "eq", (given, value)) for value, _ in ways]
    known = flags[0]
    for flag in flags[1:]:
        known = b.one("bool_or", known, flag)
    shown = ", ".join(repr(value) for value, _ in ways)
    b.apply("guard", known, message=f"{name}: {argument} must be one of {shown}")

    def of_one_from(k: int) -> list[Any]:
        if k == len(ways) - 1:
            return ways[k][1]()
        return branch(importer, flags[k], [ways[k][1], lambda: of_one_from(k + 1)])

    return of_one_from(0)


def of_each_axis(
    importer: ScriptImporter, name: str, args: Sequence[Any], at: int, run: Callable[[list[Any]], list[Any]]
) -> list[Any]:
    """Import an operator once for each axis that argument `at` may be; a call chooses."""
    b, given = importer.builder, args[at]
    items = list(given.content) if isinstance(given, List) else [given]
    place = next(i for i, x in enumerate(items) if is_run_time(x))
    first = args[0].content[0] if isinstance(args[0], List) else args[0]
    rank = len(B.shape_of(importer.tensors.read(first))) + (name in ("stack", "unsqueeze"))
    axis = value_of(b, items[place], "int")
    in_range = b.one(
        "bool_and", b.one("int_le", value_of(b, -rank), axis), b.one("int_lt", axis, b.size(rank))
    )
    b.apply("guard", in_range, message=f"{name}: the axis is out of range; the tensor has {rank} of them")

    def of(k: int) -> list[Any]:
        changed = [*items[:place], k, *items[place + 1 :]]
        return run([*args[:at], List(changed) if isinstance(given, List) else k, *args[at + 1 :]])

    def of_one_from(k: int) -> list[Any]:
        if k >= rank - 1:
            return of(max(k, 0))
        one, other = (b.one("int_eq", axis, value_of(b, number)) for number in (k, k - rank))
        return branch(importer, b.one("bool_or", one, other), [lambda: of(k), lambda: of_one_from(k + 1)])

    return of_one_from(0)
