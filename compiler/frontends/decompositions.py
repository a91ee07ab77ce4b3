"""Decompositions of operators for which PyTorch's is wrong or missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._decomp import decomposition_table
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode

aten = torch.ops.aten
MEAN, SUM = 1, 2  # of PyTorch's reductions; 0: none


def multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int = MEAN) -> Tensor:
    """Return sum(max(0, 1 - (x[target] - x[other])) / n) over targets, which end at the first -1, and other
    classes.

    PyTorch's own decomposition (2.13) counts the positions after the -1 as targets of class 0, and returns
    [1] for a single sample.
    """
    margins, _ = _margins(x, target)
    each = margins.relu().sum((1, 2)) / margins.shape[2]  # its gradient is 0 where a margin is
    if reduction == MEAN:
        return each.mean()
    return each.sum() if reduction == SUM else each.reshape(x.shape[:-1])


def multilabel_margin_loss_forward(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """Return the loss, and which classes are targets, as 0 and 1."""
    _, is_target = _margins(x, target)
    return multilabel_margin_loss(x, target, reduction), is_target.to(x.dtype).reshape(target.shape)


def _margins(x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return 1 - x[target] + x[other] as [row, target, class], 0 for pairs that do not count; and which
    classes are targets."""
    rows, targets = torch.atleast_2d(x), torch.atleast_2d(target)
    n = rows.shape[1]
    classes = torch.arange(n, device=x.device)
    end = torch.where(targets == -1, classes, n).amin(-1, keepdim=True)
    is_given = classes < end
    chosen = torch.where(is_given, targets, 0)
    is_target = (classes == torch.where(is_given, targets, -1).unsqueeze(-1)).any(1)
    margins = 1 - rows.gather(-1, chosen).unsqueeze(-1) + rows.unsqueeze(-2)
    counts = is_given.unsqueeze(-1) & ~is_target.unsqueeze(-2)
    return torch.where(counts, margins, 0), is_target


def isin(x: Tensor, known: Tensor, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Return a mask of elements that are in `known`, by binary search. PyTorch's own decomposition compares
    all with all, or takes the number of elements as constant."""
    dtype = torch.result_type(x, known)
    dtype = torch.uint8 if dtype is torch.bool else dtype
    x, known = x.to(dtype), known.flatten().to(dtype).sort()[0]
    place = torch.searchsorted(known, x)
    found = (torch.cat([known, known.new_zeros(1)])[place] == x) & (place < known.shape[0])
    return ~found if invert else found


# The fast path of nn.MultiheadAttention and nn.TransformerEncoderLayer ------------------------------------

OF_QUERIES, OF_KEYS = 0, 1  # of PyTorch's kinds of masks; 2: of both, and of heads


def native_multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Return the attention's result [N, L, E] and, where they are needed, its weights; NaN for a query that
    reads nothing."""
    if query is key and key is value:
        parts = F.linear(query, qkv_weight, qkv_bias).chunk(3, -1)
    else:
        weights, biases = qkv_weight.chunk(3), qkv_bias.chunk(3)
        parts = tuple(map(F.linear, (query, key, value), weights, biases))
    q, k, v = (x.unflatten(-1, (num_head, embed_dim // num_head)).transpose(1, 2) for x in parts)
    kept = None if mask is None else ~_mask_of_scores(mask, mask_type)
    if not need_weights:
        made = F.scaled_dot_product_attention(q, k, v, kept)
        if kept is not None:
            made = made.masked_fill(~kept.any(-1, keepdim=True), float("nan"))
        return F.linear(made.transpose(1, 2).flatten(2), proj_weight, proj_bias), None
    scores = (q * (embed_dim // num_head) ** -0.5) @ k.transpose(-2, -1)
    if kept is not None:
        scores = scores.masked_fill(~kept, float("-inf"))
    chances = scores.softmax(-1)
    result = F.linear((chances @ v).transpose(1, 2).flatten(2), proj_weight, proj_bias)
    return result, chances.mean(1) if average_attn_weights else chances


def _mask_of_scores(mask: Tensor, mask_type: int | None) -> Tensor:
    """Return a mask, True where nothing is read, as it is broadcast to [N, heads, L, S]."""
    mask = mask.to(torch.bool)
    if mask_type == OF_KEYS and mask.dim() == 2:
        return mask[:, None, None, :]
    return mask


def transformer_encoder_layer_fwd(
    x: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    *rest: Any,
) -> Tensor:
    """Return the result of a layer of a transformer's encoder. `rest`: weight and bias of two norms, of two
    linear layers, the mask and its kind."""
    (*parameters, mask, mask_type) = (*rest, None, None)[:10]
    pairs = list(zip(parameters[::2], parameters[1::2], strict=True))
    attention = (embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, False, True)

    def normal(x: Tensor, i: int) -> Tensor:
        return F.layer_norm(x, (embed_dim,), *pairs[i], eps)

    def attended(x: Tensor) -> Tensor:
        return native_multi_head_attention(x, x, x, *attention, mask_type)[0]

    def forward(x: Tensor) -> Tensor:
        hidden = F.linear(x, *pairs[2])
        return F.linear(F.gelu(hidden) if use_gelu else hidden.relu(), *pairs[3])

    if norm_first:
        x = x + attended(normal(x, 0))
        return x + forward(normal(x, 1))
    x = normal(x + attended(x), 0)
    return normal(x + forward(x), 1)


#: By overload, as in PyTorch's table.
DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.multilabel_margin_loss.default: multilabel_margin_loss,
    aten.multilabel_margin_loss_forward.default: multilabel_margin_loss_forward,
    aten.isin.Tensor_Tensor: isin,
    aten._native_multi_head_attention.default: native_multi_head_attention,
    aten._transformer_encoder_layer_fwd.default: transformer_encoder_layer_fwd,
}


def threshold_backward(grad: Tensor, x: Tensor, threshold: float) -> Tensor:
    """Return the gradient where x is above the threshold, else 0, in their common dtype; PyTorch's own (2.13)
    has that of the gradient."""
    dtype = torch.result_type(grad, x)
    return torch.where(x.to(dtype) <= threshold, torch.zeros((), dtype=dtype), grad.to(dtype))


#: Functions for the type of an operator's result in a trace, as in PyTorch's table.
TYPES: dict[Any, Callable[..., Any]] = {aten.threshold_backward.default: threshold_backward}


def mistyped(graph: torch.fx.Graph) -> set[Any]:
    """Return the operators among TYPES that a graph calls with tensors of several dtypes."""
    calls = [node for node in graph.nodes if node.target in TYPES]
    return {node.target for node in calls if len(set(_dtypes(node))) > 1}


def _dtypes(node: torch.fx.Node) -> list[torch.dtype]:
    """Return the dtypes of a call's tensors; numbers that are read from tensors have none."""
    given = [arg.meta["val"] for arg in node.all_input_nodes]
    return [value.dtype for value in given if isinstance(value, Tensor)]


@contextmanager
def typed_as_eager(graph: torch.fx.Graph) -> Iterator[None]:
    """Let retracing give mistyped results their types in eager."""
    own = {op: decomposition_table[op] for op in mistyped(graph)}
    if own:
        FakeTensorMode.cache_clear()
        mode = detect_fake_mode([node.meta.get("val") for node in graph.nodes])
        if mode is not None and mode.shape_env is not None:
            mode.shape_env.fake_tensor_cache.clear()  # results of free sizes
    decomposition_table.update({op: TYPES[op] for op in own})
    try:
        yield
    finally:
        decomposition_table.update(own)


@contextmanager
def instead_of_torch_own() -> Iterator[None]:
    """Let tracing use our decompositions for operators that PyTorch decomposes before it looks them up."""
    key = torch._C.DispatchKey.Autograd
    own = {op: op.py_kernels[key] for op in DECOMPOSITIONS if key in op.py_kernels}
    _set_kernels(key, {op: DECOMPOSITIONS[op] for op in own})
    try:
        yield
    finally:
        _set_kernels(key, own)


def _set_kernels(key: Any, kernels: dict[Any, Callable[..., Any]]) -> None:
    for op, kernel in kernels.items():
        op.py_kernels[key] = kernel
        op._dispatch_cache.clear()
