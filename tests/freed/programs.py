"""Short programs of the kinds with which compilers of PyTorch programs test themselves: name -> (function,
how to make its arguments). Those of one kind differ in ranks, dtypes and options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Program = tuple[Callable[..., Any], Callable[[], tuple[Tensor, ...]]]
aten = torch.ops.aten


def _randn(*shapes: tuple[int, ...]) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: tuple(torch.randn(shape) for shape in shapes)


def _ints(high: int, *shapes: tuple[int, ...]) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: tuple(torch.randint(0, high, shape) for shape in shapes)


def _mixed(*makes: Callable[[], tuple[Tensor, ...]]) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: tuple(x for make in makes for x in make())


def _mask(*shape: int) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.randn(shape) > 0,)


PAIR, TWO, THREE, FOUR = _randn((3, 4), (3, 4)), _randn((3, 4)), _randn((2, 3, 4)), _randn((2, 3, 4, 5))
IMAGE = _randn((2, 3, 8, 9))

VIEWS: dict[str, Program] = {
    "flatten": (lambda x: x.flatten(), FOUR),
    "flatten inner": (lambda x: x.flatten(1, 2), FOUR),
    "unflatten": (lambda x: x.unflatten(1, (2, -1)), _randn((3, 4, 5))),
    "view expanded": (lambda x: x.view(x.shape[0], 2, 2, x.shape[2]), _randn((3, 4, 5))),
    "view collapsed": (lambda x: x.view(x.shape[0] * x.shape[1], -1), THREE),
    "view by minus one": (lambda x: x.view(-1, x.shape[-1]), FOUR),
    "view with ones": (lambda x: x.view(1, x.shape[0], 1, x.shape[1], 1), TWO),
    "view as": (lambda x, y: x.view_as(y), _randn((3, 4), (2, 6))),
    "reshape as": (lambda x, y: x.t().reshape_as(y), _randn((3, 4), (2, 6))),
    "reshape of a transposed": (lambda x: x.transpose(0, 1).reshape(-1), TWO),
    "expand": (lambda x: x.expand(5, -1, -1), TWO),
    "expand ones": (lambda x: x.expand(-1, 7, -1), _randn((3, 1, 4))),
    "expand as": (lambda x, y: x.expand_as(y), _randn((3, 1), (3, 4))),
    "broadcast to": (lambda x: torch.broadcast_to(x, (2, *x.shape)), TWO),
    "broadcast tensors": (lambda x, y: torch.broadcast_tensors(x, y), _randn((3, 1), (1, 4))),
    "permute": (lambda x: x.permute(2, 0, 1), THREE),
    "moveaxis": (lambda x: x.moveaxis(-1, 0), THREE),
    "swapaxes": (lambda x: x.swapaxes(0, -1), THREE),
    "squeeze": (lambda x: x.squeeze(), _randn((1, 3, 1, 4))),
    "squeeze an axis": (lambda x: x.squeeze(1), _randn((3, 1, 4))),
    "unsqueeze": (lambda x: x.unsqueeze(-1), TWO),
    "pixel shuffle": (lambda x: F.pixel_shuffle(x, 2), _randn((2, 8, 3, 4))),
    "pixel unshuffle": (lambda x: F.pixel_unshuffle(x, 2), _randn((2, 3, 4, 6))),
    "channel shuffle": (lambda x: F.channel_shuffle(x, 2), _randn((2, 4, 3, 3))),
    "tile": (lambda x: x.tile(2, 3), TWO),
    "repeat": (lambda x: x.repeat(3, 1, 2), TWO),
    "repeat interleave": (lambda x: x.repeat_interleave(3, 1), TWO),
    "diagonal": (lambda x: x.diagonal(1), TWO),
    "diag embed": (lambda x: x.diag_embed(), TWO),
    "diag": (lambda x: torch.diag(x[0]), TWO),
    "unfold": (lambda x: x.unfold(1, 2, 1), TWO),
    "movedim": (lambda x: x.movedim((0, 1), (1, 2)), THREE),
    "ravel": (lambda x: x.t().ravel(), TWO),
    "numel": (lambda x: x.sum() / x.numel(), THREE),
    "atleast 3d": (lambda x: torch.atleast_3d(x), TWO),
    "meshgrid": (lambda x, y: torch.meshgrid(x, y, indexing="ij"), _randn((3,), (4,))),
    "cartesian product": (lambda x, y: torch.cartesian_prod(x, y), _randn((3,), (4,))),
    "rot90": (lambda x: x.rot90(), TWO),
    "flip": (lambda x: x.flip(0, 1), TWO),
    "roll": (lambda x: x.roll((1, -1), (0, 1)), TWO),
    "as strided": (lambda x: x.as_strided((2, 2), (1, 2), 1), TWO),
}
SLICES: dict[str, Program] = {
    "slice": (lambda x: x[1:, :2], TWO),
    "slice from behind": (lambda x: x[-2:], TWO),
    "slice to behind": (lambda x: x[:, :-1], TWO),
    "slice with a step": (lambda x: x[::2], TWO),
    "slice empty": (lambda x: x[1:1], TWO),
    "slice beyond": (lambda x: x[:100], TWO),
    "halves": (lambda x: (x[: x.shape[0] // 2], x[x.shape[0] // 2 :]), _randn((4, 3))),
    "select": (lambda x: x[0], TWO),
    "select last": (lambda x: x[:, -1], TWO),
    "narrow": (lambda x: x.narrow(0, 1, 2), TWO),
    "split": (lambda x: x.split(2, 1), TWO),
    "split uneven": (lambda x: x.split(2), _randn((5, 3))),
    "split with sizes": (lambda x: x.split([1, 2], 0), TWO),
    "chunk": (lambda x: x.chunk(2, 1), TWO),
    "unbind": (lambda x: x.unbind(0), TWO),
    "tensor split": (lambda x: x.tensor_split(2), _randn((4, 3))),
    "slice scatter": (lambda x, y: x.slice_scatter(y, 0, 0, 1), _randn((3, 4), (1, 4))),
    "select scatter": (lambda x, y: x.select_scatter(y, 0, 1), _randn((3, 4), (4,))),
    "diagonal scatter": (lambda x, y: x.diagonal_scatter(y), _randn((3, 3), (3,))),
    "assign a row": (lambda x, y: _with(x, lambda z: z.__setitem__(0, y)), _randn((3, 4), (4,))),
    "assign a slice": (lambda x: _with(x, lambda z: z[1:].mul_(2)), TWO),
    "concat": (lambda x, y: torch.cat([x, y], 0), _randn((3, 4), (2, 4))),
    "concat last": (lambda x, y: torch.cat([x, y], -1), PAIR),
    "concat of one": (lambda x: torch.cat([x, x, x], 1), TWO),
    "concat promoted": (lambda x, y: torch.cat([x, y]), _mixed(TWO, _ints(9, (2, 4)))),
    "stack": (lambda x, y: torch.stack([x, y], 1), PAIR),
    "hstack": (lambda x, y: torch.hstack([x, y]), PAIR),
    "column stack": (lambda x, y: torch.column_stack([x, y]), _randn((3,), (3, 2))),
}


def _with(x: Tensor, change: Callable[[Tensor], Any]) -> Tensor:
    y = x.clone()
    change(y)
    return y


INDICES: dict[str, Program] = {
    "embedding": (lambda w, i: F.embedding(i, w), _mixed(_randn((7, 4)), _ints(7, (2, 3)))),
    "embedding with padding": (lambda w, i: F.embedding(i, w, 0), _mixed(_randn((7, 4)), _ints(7, (2, 3)))),
    "embedding bag": (lambda w, i: F.embedding_bag(i, w), _mixed(_randn((7, 4)), _ints(7, (2, 3)))),
    "gather": (lambda x, i: x.gather(1, i), _mixed(TWO, _ints(4, (3, 2)))),
    "index select": (lambda x, i: x.index_select(0, i), _mixed(TWO, _ints(3, (5,)))),
    "index": (lambda x, i: x[i], _mixed(THREE, _ints(2, (5,)))),
    "index two": (lambda x, i, j: x[i, j], _mixed(TWO, _ints(3, (5,), (5,)))),
    "index around": (lambda x, i, j: x[i, :, j], _mixed(THREE, _ints(2, (5,), (5,)))),
    "index broadcast": (lambda x, i, j: x[i, j], _mixed(TWO, _ints(3, (5, 1), (6,)))),
    "index by mask": (lambda x, m: x[m], _mixed(TWO, _mask(3, 4))),
    "index put": (lambda x, i, v: x.index_put((i,), v), _mixed(TWO, _ints(3, (2,)), _randn((2, 4)))),
    "index add": (lambda x, i, v: x.index_add(0, i, v), _mixed(TWO, _ints(3, (5,)), _randn((5, 4)))),
    "index fill": (lambda x, i: x.index_fill(0, i, 1.5), _mixed(TWO, _ints(3, (2,)))),
    "scatter": (
        lambda x, i, v: x.scatter(0, i, v),
        _mixed(TWO, lambda: (torch.tensor([[0, 1, 2, 0]]),), _randn((1, 4))),
    ),
    "scatter add": (lambda x, i, v: x.scatter_add(0, i, v), _mixed(TWO, _ints(3, (2, 4)), _randn((2, 4)))),
    "scatter a number": (lambda x, i: x.scatter(0, i, 2.5), _mixed(TWO, _ints(3, (2, 4)))),
    "scatter the greatest": (
        lambda x, i, v: x.scatter_reduce(0, i, v, "amax"),
        _mixed(TWO, _ints(3, (2, 4)), _randn((2, 4))),
    ),
    "masked fill": (lambda x, m: x.masked_fill(m, -1), _mixed(TWO, _mask(3, 4))),
    "masked scatter": (lambda x, m, v: x.masked_scatter(m, v), _mixed(TWO, _mask(3, 4), _randn((12,)))),
    "masked select": (lambda x, m: x.masked_select(m), _mixed(TWO, _mask(3, 4))),
    "take along dim": (lambda x, i: x.take_along_dim(i, 1), _mixed(TWO, _ints(4, (3, 2)))),
    "take": (lambda x, i: x.take(i), _mixed(TWO, _ints(12, (5,)))),
    "nonzero": (lambda x: x.relu().nonzero(), TWO),
    "one hot": (lambda i: F.one_hot(i, 6), _ints(6, (3, 4))),
    "bincount": (lambda i: torch.bincount(i, minlength=5), _ints(5, (9,))),
    "unique": (lambda i: torch.unique(i), _ints(5, (9,))),
    "searchsorted": (lambda x, y: torch.searchsorted(x.sort().values, y), _randn((5,), (3, 4))),
    "bucketize": (lambda x, y: torch.bucketize(x, y.sort().values), _randn((3, 4), (5,))),
    "triangles": (lambda x: (x.tril(), x.triu(1)), THREE),
    "triangle indices": (lambda x: torch.tril_indices(x.shape[0], x.shape[1], 1), TWO),
    "isin": (lambda x, y: torch.isin(x, y), _ints(5, (3, 4), (2,))),
}


def _reduces(name: str, *args: Any, **kwargs: Any) -> Program:
    return lambda x: getattr(torch, name)(x, *args, **kwargs), THREE


_OF_ALL = ("sum", "mean", "amax", "argmax", "prod", "std", "all", "median", "norm")
_OF_AN_AXIS = (
    "sum", "mean", "amax", "amin", "argmax", "argmin", "prod", "var", "any", "logsumexp", "max", "median",
)  # fmt: skip
REDUCTIONS: dict[str, Program] = {
    **{f"{name} of all": _reduces(name) for name in _OF_ALL},
    **{f"{name} of an axis": _reduces(name, 1) for name in _OF_AN_AXIS},
    **{f"{name} of an axis kept": _reduces(name, 1, keepdim=True) for name in _OF_AN_AXIS},
    "sum of two axes": (lambda x: x.sum((0, 2)), THREE),
    "sum of integers": (lambda x: x.sum(-1), _ints(9, (3, 4))),
    "sum as f64": (lambda x: x.sum(1, dtype=torch.float64), TWO),
    "mean of no axes": (lambda x: torch.mean(x, ()), TWO),
    "count nonzero": (lambda x: x.relu().count_nonzero(1), TWO),
    "var and mean": (lambda x: torch.var_mean(x, 1, correction=0), TWO),
    "std unbiased": (lambda x: x.std(-1, unbiased=True), THREE),
    "frobenius": (lambda x: torch.linalg.norm(x), TWO),
    "vector norm": (lambda x: torch.linalg.vector_norm(x, 1, 1), TWO),
    "aminmax": (lambda x: torch.aminmax(x, dim=1), TWO),
    "topk": (lambda x: x.topk(2, 1), TWO),
    "sort": (lambda x: x.sort(1, descending=True), TWO),
    "argsort": (lambda x: x.argsort(0), TWO),
    "kthvalue": (lambda x: x.kthvalue(2, 1), TWO),
    "cumsum": (lambda x: x.cumsum(1), TWO),
    "cumprod": (lambda x: x.cumprod(0), TWO),
    "cummax": (lambda x: x.cummax(1), TWO),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), TWO),
    "diff": (lambda x: x.diff(), TWO),
    "trace": (lambda x: x.trace(), _randn((3, 3))),
    "histc": (lambda x: x.histc(4, -2, 2), TWO),
    "quantile": (lambda x: x.quantile(0.3, 1), TWO),
    "cov": (lambda x: x.cov(), TWO),
    "dist": (lambda x, y: torch.dist(x, y), PAIR),
    "cdist": (lambda x, y: torch.cdist(x, y), _randn((3, 4), (5, 4))),
    "cosine similarity": (lambda x, y: F.cosine_similarity(x, y, 1), PAIR),
    "pairwise distance": (lambda x, y: F.pairwise_distance(x, y), PAIR),
}
PRODUCTS: dict[str, Program] = {
    "matmul": (torch.matmul, _randn((3, 4), (4, 5))),
    "matmul of batches": (torch.matmul, _randn((2, 3, 4), (2, 4, 5))),
    "matmul broadcast": (torch.matmul, _randn((2, 1, 3, 4), (3, 4, 5))),
    "matmul with a vector": (torch.matmul, _randn((2, 3, 4), (4,))),
    "vector times matrix": (torch.matmul, _randn((4,), (4, 5))),
    "dot": (torch.dot, _randn((4,), (4,))),
    "outer": (torch.outer, _randn((3,), (4,))),
    "addmm": (lambda x, y, z: torch.addmm(x, y, z, beta=0.5, alpha=2), _randn((5,), (3, 4), (4, 5))),
    "baddbmm": (torch.baddbmm, _randn((2, 3, 5), (2, 3, 4), (2, 4, 5))),
    "einsum": (lambda x, y: torch.einsum("bij,bkj->bik", x, y), _randn((2, 3, 4), (2, 5, 4))),
    "einsum ellipsis": (lambda x, y: torch.einsum("...ij,jk->...ik", x, y), _randn((2, 3, 4), (4, 5))),
    "tensordot": (lambda x, y: torch.tensordot(x, y, 1), _randn((3, 4), (4, 5))),
    "bilinear": (lambda x, y, w: F.bilinear(x, y, w), _randn((3, 4), (3, 5), (6, 4, 5))),
    "kron": (torch.kron, _randn((2, 3), (3, 2))),
    "cross": (lambda x, y: torch.linalg.cross(x, y), _randn((4, 3), (4, 3))),
    "integers": (torch.matmul, _ints(9, (3, 4), (4, 5))),
    "linear without bias": (lambda x, w: F.linear(x, w), _randn((2, 3, 4), (5, 4))),
    "linear": (lambda x, w, b: F.linear(x, w, b), _randn((3, 4), (5, 4), (5,))),
    "chain": (lambda x, y, z: torch.linalg.multi_dot([x, y, z]), _randn((3, 4), (4, 5), (5, 2))),
    "determinant": (lambda x: torch.linalg.det(x), _randn((2, 3, 3))),
    "slogdet": (lambda x: torch.linalg.slogdet(x), _randn((2, 3, 3))),
    "inverse": (lambda x: torch.linalg.inv(x), _randn((2, 3, 3))),
    "matrix power": (lambda x: torch.linalg.matrix_power(x, 3), _randn((2, 3, 3))),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        _randn((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 4)),
    ),
    "causal attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        _randn(*[(2, 2, 5, 4)] * 3),
    ),
    "masked attention": (
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m),
        _randn((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 4), (3, 5)),
    ),
    "broadcast mask attention": (
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m),
        _randn((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 4), (2, 1, 1, 5)),
    ),
}
IMAGES: dict[str, Program] = {
    "conv1d": (lambda x, w: F.conv1d(x, w, padding=1), _randn((2, 3, 8), (4, 3, 3))),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b), _randn((2, 3, 8, 9), (4, 3, 3, 3), (4,))),
    "conv2d strided": (lambda x, w: F.conv2d(x, w, stride=2, padding=1), _randn((2, 3, 8, 9), (4, 3, 3, 3))),
    "conv2d dilated": (
        lambda x, w: F.conv2d(x, w, dilation=2, padding=2),
        _randn((2, 3, 8, 9), (4, 3, 3, 3)),
    ),
    "conv2d grouped": (lambda x, w: F.conv2d(x, w, groups=2), _randn((2, 4, 8, 9), (6, 2, 3, 3))),
    "conv2d depthwise": (lambda x, w: F.conv2d(x, w, groups=4), _randn((2, 4, 8, 9), (4, 1, 3, 3))),
    "conv2d same": (lambda x, w: F.conv2d(x, w, padding="same"), _randn((2, 3, 8, 9), (4, 3, 3, 3))),
    "conv3d": (lambda x, w: F.conv3d(x, w), _randn((1, 3, 5, 6, 7), (4, 3, 3, 3, 3))),
    "conv transpose 1d": (lambda x, w: F.conv_transpose1d(x, w, stride=2), _randn((2, 3, 5), (3, 4, 3))),
    "conv transpose 2d": (
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1),
        _randn((2, 3, 5, 6), (3, 4, 3, 3)),
    ),
    "max pool 1d": (lambda x: F.max_pool1d(x, 3), _randn((2, 3, 9))),
    "max pool 2d": (lambda x: F.max_pool2d(x, 3, 2, 1), IMAGE),
    "max pool 2d up": (lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True), IMAGE),
    "max pool 2d with indices": (lambda x: F.max_pool2d(x, 2, return_indices=True), IMAGE),
    "max pool 3d": (lambda x: F.max_pool3d(x, 2), _randn((1, 2, 4, 5, 6))),
    "average pool 1d": (lambda x: F.avg_pool1d(x, 2), _randn((2, 3, 9))),
    "average pool 2d": (lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), IMAGE),
    "average pool 2d up": (lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True), IMAGE),
    "adaptive average 1": (lambda x: F.adaptive_avg_pool2d(x, 1), IMAGE),
    "adaptive average": (lambda x: F.adaptive_avg_pool2d(x, (3, 2)), IMAGE),
    "adaptive average 1d": (lambda x: F.adaptive_avg_pool1d(x, 4), _randn((2, 3, 9))),
    "adaptive maximum": (lambda x: F.adaptive_max_pool2d(x, 2), IMAGE),
    "adaptive maximum 1d": (lambda x: F.adaptive_max_pool1d(x, 3), _randn((2, 3, 9))),
    "lp pool": (lambda x: F.lp_pool2d(x, 2, 2), IMAGE),
    "unpool": (lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), _randn((2, 3, 8, 8))),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2.0), IMAGE),
    "nearest to a size": (lambda x: F.interpolate(x, (5, 7)), IMAGE),
    "bilinear resize": (lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"), IMAGE),
    "bilinear corners": (lambda x: F.interpolate(x, (5, 7), mode="bilinear", align_corners=True), IMAGE),
    "bicubic": (lambda x: F.interpolate(x, (5, 7), mode="bicubic"), IMAGE),
    "antialiased": (lambda x: F.interpolate(x, (5, 7), mode="bilinear", antialias=True), IMAGE),
    "resize to another's": (lambda x, y: F.interpolate(x, y.shape[-2:]), _randn((2, 3, 8, 9), (2, 3, 5, 4))),
    "grid sample": (
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        _randn((2, 3, 8, 9), (2, 4, 5, 2)),
    ),
    "affine grid": (lambda t: F.affine_grid(t, (2, 3, 5, 6), False), _randn((2, 2, 3))),
    "im2col": (lambda x: F.unfold(x, 3, padding=1), IMAGE),
    "col2im": (lambda x: F.fold(x, (4, 6), 2, stride=2), _randn((2, 12, 6))),
    "pad": (lambda x: F.pad(x, (1, 2, 0, 1)), IMAGE),
    "pad negative": (lambda x: F.pad(x, (-1, 2)), IMAGE),
    "pad by reflection": (lambda x: F.pad(x, (2, 1, 1, 0), "reflect"), IMAGE),
    "pad by replication": (lambda x: F.pad(x, (2, 1, 1, 0), "replicate"), IMAGE),
    "pad in a circle": (lambda x: F.pad(x, (2, 1, 1, 0), "circular"), IMAGE),
    "local response": (lambda x: F.local_response_norm(x, 3), IMAGE),
}
NORMS: dict[str, Program] = {
    "layer norm": (lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b), _randn((2, 3, 4), (4,), (4,))),
    "layer norm of all": (lambda x: F.layer_norm(x, x.shape), THREE),
    "layer norm of two": (lambda x: F.layer_norm(x, x.shape[1:]), THREE),
    "group norm": (lambda x: F.group_norm(x, 2), _randn((2, 4, 5, 6))),
    "batch norm": (lambda x, m, v: F.batch_norm(x, m, v.abs()), _randn((2, 3, 4, 5), (3,), (3,))),
    "batch norm of the batch": (lambda x: F.batch_norm(x, None, None, training=True), IMAGE),
    "instance norm": (lambda x: F.instance_norm(x), IMAGE),
    "rms norm": (lambda x, w: F.rms_norm(x, x.shape[-1:], w), _randn((2, 3, 4), (4,))),
    "normalize": (lambda x: F.normalize(x, dim=1), THREE),
    "softmax": (lambda x: x.softmax(1), THREE),
    "log softmax": (lambda x: x.log_softmax(-1), THREE),
    "softmin": (lambda x: F.softmin(x, 0), THREE),
    "glu": (lambda x: F.glu(x, 1), _randn((3, 4))),
    "prelu": (lambda x, w: F.prelu(x, w), _randn((2, 3, 4), (3,))),
    "dropout": (lambda x: F.dropout(x, 0.5, False), TWO),
    "nll": (lambda x, t: F.nll_loss(x.log_softmax(1), t), _mixed(TWO, _ints(4, (3,)))),
    "nll of images": (lambda x, t: F.nll_loss(x.log_softmax(1), t), _mixed(IMAGE, _ints(3, (2, 8, 9)))),
    "nll unreduced": (
        lambda x, t: F.nll_loss(x, t, reduction="none", ignore_index=1),
        _mixed(TWO, _ints(4, (3,))),
    ),
    "cross entropy": (lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), _mixed(TWO, _ints(4, (3,)))),
    "cross entropy of chances": (lambda x, t: F.cross_entropy(x, t.softmax(1)), PAIR),
    "binary cross entropy": (lambda x, t: F.binary_cross_entropy(x.sigmoid(), t.sigmoid()), PAIR),
    "binary cross entropy of logits": (lambda x, t: F.binary_cross_entropy_with_logits(x, t.sigmoid()), PAIR),
    "mse": (F.mse_loss, PAIR),
    "l1": (lambda x, t: F.l1_loss(x, t, reduction="sum"), PAIR),
    "huber": (F.huber_loss, PAIR),
    "smooth l1": (lambda x, t: F.smooth_l1_loss(x, t, reduction="none"), PAIR),
    "kl": (lambda x, t: F.kl_div(x, t.exp(), reduction="batchmean"), PAIR),
    "hinge": (lambda x, t: F.hinge_embedding_loss(x, t.sign()), PAIR),
    "triplet": (F.triplet_margin_loss, _randn((3, 4), (3, 4), (3, 4))),
    "cosine loss": (lambda x, y, t: F.cosine_embedding_loss(x, y, t.sign()), _randn((3, 4), (3, 4), (3,))),
    "poisson": (lambda x, t: F.poisson_nll_loss(x, t.abs()), PAIR),
    "multi margin": (lambda x, t: F.multi_margin_loss(x, t), _mixed(TWO, _ints(4, (3,)))),
}
GRADIENTS: dict[str, Program] = {
    "gelu backward": (lambda g, x: aten.gelu_backward(g, x), PAIR),
    "tanh backward": (lambda g, x: aten.tanh_backward(g, x.tanh()), PAIR),
    "sigmoid backward": (lambda g, x: aten.sigmoid_backward(g, x.sigmoid()), PAIR),
    "threshold backward": (lambda g, x: aten.threshold_backward(g, x, 0.1), PAIR),
    "threshold backward mixed": (lambda g, x: aten.threshold_backward(g, x.double(), 0.1), PAIR),
    "hardtanh backward": (lambda g, x: aten.hardtanh_backward(g, x, -1, 1), PAIR),
    "leaky relu backward": (lambda g, x: aten.leaky_relu_backward(g, x, 0.1, False), PAIR),
    "elu backward": (lambda g, x: aten.elu_backward(g, 1.0, 1.0, 1.0, False, x), PAIR),
    "softplus backward": (lambda g, x: aten.softplus_backward(g, x, 1, 20), PAIR),
    "silu backward": (lambda g, x: aten.silu_backward(g, x), PAIR),
    "softmax backward": (lambda g, x: aten._softmax_backward_data(g, x.softmax(1), 1, torch.float32), PAIR),
    "log softmax backward": (
        lambda g, x: aten._log_softmax_backward_data(g, x.log_softmax(1), 1, torch.float32),
        PAIR,
    ),
    "layer norm backward": (lambda g, x: _layer_norm_backward(g, x), PAIR),
    "nll backward": (
        lambda g, x, t: aten.nll_loss_backward(g.sum(), x, t, None, 1, -100, torch.tensor(3.0)),
        _mixed(PAIR, _ints(4, (3,))),
    ),
    "nll backward unreduced": (
        lambda g, x, t: aten.nll_loss_backward(g, x, t, None, 0, -100, torch.tensor(3.0)),
        _mixed(_randn((3,), (3, 4)), _ints(4, (3,))),
    ),
    "conv backward": (
        lambda g, x, w: aten.convolution_backward(
            g, x, w, [w.shape[0]], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True]
        ),
        _randn((2, 4, 8, 9), (2, 3, 8, 9), (4, 3, 3, 3)),
    ),
    "max pool backward": (
        lambda x: aten.max_pool2d_with_indices_backward(
            *_pooled(x), [2, 2], [2, 2], [0, 0], [1, 1], False, _indices(x)
        ),
        _randn((2, 3, 8, 8)),
    ),
    "average pool backward": (
        lambda g, x: aten.avg_pool2d_backward(g, x, [2, 2], [2, 2], [0, 0], False, True, None),
        _randn((2, 3, 4, 4), (2, 3, 8, 8)),
    ),
    "embedding backward": (
        lambda g, i: aten.embedding_dense_backward(g, i, 7, -1, False),
        _mixed(_randn((2, 3, 4)), _ints(7, (2, 3))),
    ),
    "index backward": (
        lambda g, i: torch.zeros(5, 4).index_put((i,), g, True),
        _mixed(_randn((3, 4)), _ints(5, (3,))),
    ),
    "dropout backward": (lambda g, m: aten.native_dropout_backward(g, m, 2.0), _mixed(TWO, _mask(3, 4))),
    "slice backward": (lambda g: aten.slice_backward(g, [5, g.shape[1]], 0, 1, 4, 1), TWO),
    "select backward": (lambda g: aten.select_backward(g, [3, g.shape[0]], 0, 1), _randn((4,))),
    "resize backward": (
        lambda g: aten.upsample_nearest2d_backward(g, [8, 10], [g.shape[0], g.shape[1], 4, 5]),
        _randn((2, 3, 8, 10)),
    ),
}


def _layer_norm_backward(g: Tensor, x: Tensor) -> Any:
    _, mean, rstd = torch.native_layer_norm(x, [x.shape[1]], None, None, 1e-5)
    return aten.native_layer_norm_backward(g, x, [x.shape[1]], mean, rstd, None, None, [True, False, False])


def _pooled(x: Tensor) -> tuple[Tensor, Tensor]:
    return F.max_pool2d(x, 2), x


def _indices(x: Tensor) -> Tensor:
    return F.max_pool2d(x, 2, return_indices=True)[1]


CREATION: dict[str, Program] = {
    "zeros": (lambda x: torch.zeros(x.shape[0], 2), TWO),
    "full": (lambda x: torch.full((x.shape[1], x.shape[0]), 2.5), TWO),
    "full of a size": (lambda x: torch.full((2, 3), x.shape[0]), TWO),
    "like": (
        lambda x: (torch.ones_like(x), torch.zeros_like(x, dtype=torch.int64), torch.full_like(x, 3)),
        TWO,
    ),
    "new": (lambda x: (x.new_zeros(2, x.shape[1]), x.new_full((3,), 1.5), x.new_ones(x.shape)), TWO),
    "arange": (lambda x: torch.arange(x.shape[0]), TWO),
    "arange from one to another": (lambda x: torch.arange(x.shape[0], x.shape[0] + x.shape[1]), TWO),
    "arange by steps": (lambda x: torch.arange(0, 2 * x.shape[0], 2), TWO),
    "arange of floats": (lambda x: torch.arange(0.0, x.shape[0], 0.5), TWO),
    "linspace": (lambda x: torch.linspace(0, 1, x.shape[1]), TWO),
    "eye": (lambda x: torch.eye(x.shape[0], x.shape[1]), TWO),
    "tensor of sizes": (lambda x: torch.tensor([x.shape[0], x.shape[1]]), TWO),
    "scalar tensor": (lambda x: torch.scalar_tensor(x.shape[0]) * x, TWO),
    "size as a float": (lambda x: x * float(x.shape[0]) + x.shape[1] ** 0.5, TWO),
    "sizes returned": (lambda x: (x.shape[0], x.shape[1] * 2, x), TWO),
    "type as": (lambda x, i: x.type_as(i), _mixed(TWO, _ints(3, (2,)))),
    "to f16 and back": (lambda x: x.half().float(), TWO),
    "to bool": (lambda x: x.to(torch.bool), TWO),
    "promotion": (lambda x, i: x * i + i, _mixed(TWO, _ints(9, (3, 4)))),
    "0-d": (lambda x: x * 2 + 1, lambda: (torch.tensor(3.0),)),
    "0-d and more": (lambda x, y: x * y, lambda: (torch.tensor(3.0), torch.randn(3, 4))),
    "a condition on a size": (lambda x: x * 2 if x.shape[0] > 2 else x, TWO),
    "where": (lambda x, y: torch.where(x > 0, x, y), PAIR),
    "where broadcast": (lambda x, y: torch.where(x > 0, x, y), _randn((3, 1), (1, 4))),
    "clamp by tensors": (lambda x, y: x.clamp(y, y + 1), _randn((3, 4), (4,))),
    "fft": (lambda x: torch.view_as_real(torch.fft.rfft(x)), TWO),
    "stft": (
        lambda x: torch.view_as_real(torch.stft(x, 4, return_complex=True, window=torch.ones(4))),
        _randn((2, 16)),
    ),
    "quantised": (lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127), TWO),
    "a loop": (lambda x: _looped(x), _randn((3, 4))),
    "addition broadcast": (lambda x, y: x + y, _randn((3, 1, 4), (5, 1))),
    "addition of a row": (lambda x, y: x + y, _randn((1, 4), (3, 4))),
    "three added": (lambda x, y, z: x + y * z, _randn((3, 4), (4,), (1,))),
    "addcmul broadcast": (lambda x, y, z: torch.addcmul(x, y, z), _randn((3, 4), (1, 4), (3, 1))),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.3), PAIR),
    "remainder": (lambda x, y: torch.remainder(x, y), PAIR),
    "bitwise": (lambda i, j: (i & j, i | j, i ^ j, i << 1), _ints(9, (3, 4), (3, 4))),
    "multi-head": (lambda x: _heads(x), _randn((2, 5, 8))),
    "rotary": (lambda x: _rotary(x), _randn((2, 5, 8))),
    "window": (lambda x: _windows(x), _randn((2, 8, 12, 3))),
    "positions": (lambda x: x + torch.arange(x.shape[1])[None, :, None], THREE),
    "causal mask": (lambda x: x.masked_fill(torch.ones(x.shape[-2:]).triu(1).bool(), -1), _randn((2, 4, 4))),
    "pooling by mask": (
        lambda x, m: (x * m[..., None]).sum(1) / m.sum(1, keepdim=True).clamp(min=1e-9),
        _randn((2, 5, 4), (2, 5)),
    ),
}


def _looped(x: Tensor) -> Tensor:
    for row in range(2):
        x = x + x[row]
    return x


def _heads(x: Tensor) -> Tensor:
    b, n, c = x.shape
    q = x.view(b, n, 2, c // 2).transpose(1, 2)
    return (q @ q.transpose(-1, -2)).softmax(-1).matmul(q).transpose(1, 2).reshape(b, n, c)


def _rotary(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[1])[:, None] * 0.1 ** torch.arange(half)
    return torch.cat([x[..., :half] * angles.cos(), x[..., half:] * angles.sin()], -1)


def _windows(x: Tensor) -> Tensor:
    b, h, w, c = x.shape
    x = x.view(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5)
    return x.reshape(-1, 16, c)


PROGRAMS: dict[str, Program] = {
    f"{kind} {name}": program
    for kind, table in (
        ("view", VIEWS),
        ("slice", SLICES),
        ("index", INDICES),
        ("reduction", REDUCTIONS),
        ("product", PRODUCTS),
        ("image", IMAGES),
        ("norm", NORMS),
        ("gradient", GRADIENTS),
        ("other", CREATION),
    )
    for name, program in table.items()
}
