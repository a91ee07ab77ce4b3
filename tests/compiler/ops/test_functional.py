"""Layers of torch.nn.functional compiled, run on kernels, and compared with eager PyTorch.

A case is (name, function, inputs, sizes): inputs are (shape, dtype) in which names are dynamic sizes; the
function is compiled once at the first of `sizes` and run at all of them. Nothing may fall back to PyTorch.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from shapevm import Options, compile

from .test_torch import Function

f32, f64, f16, bf16, i64 = torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64
TOLERANCE = {f64: 1e-12, f32: 5e-6, f16: 2e-3, bf16: 2e-2}
aten = torch.ops.aten

Case = tuple[str, Callable[..., Any], tuple[Any, ...], list[dict[str, int]]]


def tensor(shape: tuple[Any, ...], dtype: torch.dtype, sizes: dict[str, int], seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    known = [sizes.get(size, size) for size in shape]
    if not dtype.is_floating_point:
        return torch.randint(0, 3, known, generator=generator).to(dtype)
    return (torch.rand(known, generator=generator, dtype=f64) * 4 - 2).to(dtype)


def check(function: Callable[..., Any], specs: tuple[Any, ...], sizes: list[dict[str, int]]) -> None:
    model = Function(function)
    names = {size for shape, _ in specs for size in shape if isinstance(size, str)}
    dims = {name: torch.export.Dim(name, min=min(s[name] for s in sizes), max=100) for name in names}
    dynamic = tuple(
        {axis: dims[size] for axis, size in enumerate(shape) if size in dims} for shape, _ in specs
    )
    example = tuple(tensor(shape, dtype, sizes[0], i) for i, (shape, dtype) in enumerate(specs))
    compiled = compile(
        model,
        example,
        dynamic_shapes=(dynamic,) if names else None,
        strategy="generic",
        options=Options(fallback="error"),
    )
    for size in sizes:
        inputs = tuple(tensor(shape, dtype, size, i) for i, (shape, dtype) in enumerate(specs))
        expected = torch.utils._pytree.tree_leaves(model(*inputs))
        actual = torch.utils._pytree.tree_leaves(compiled(*inputs))
        for mine, wanted in zip(actual, expected, strict=True):
            tolerance = TOLERANCE.get(wanted.dtype, 0)
            torch.testing.assert_close(mine, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)


BATCHES = [{"n": 5}, {"n": 1}, {"n": 17}]
EMPTY = [*BATCHES, {"n": 0}]
SIZES = [{"n": 2, "h": 9, "w": 7}, {"n": 1, "h": 12, "w": 16}, {"n": 3, "h": 8, "w": 8}]
ONCE: list[dict[str, int]] = [{}]


def images(dtype: torch.dtype = f32) -> tuple[Any, ...]:
    return ((("n", 4, "h", "w"), dtype),)


LINE, VOLUME = ((("n", 3, "h"), f32),), ((("n", 2, 6, "h", "w"), f32),)
FIXED = (((2, 3, 10, 7), f32),)


def channels(*dtypes: torch.dtype) -> tuple[Any, ...]:
    return tuple(((4,), dtype) for dtype in dtypes)


NORMS: list[Case] = [
    *[
        (
            f"batch_norm {str(d)[6:]}",
            lambda x, m, v, w, b: (
                F.batch_norm(x, m, v.abs(), w, b),
                F.batch_norm(x, None, None, w, b, training=True),
                F.instance_norm(x, weight=w, bias=b),
                F.group_norm(x, 2, w, b),
            ),
            (*images(d), *channels(d, d, d, d)),
            SIZES,
        )
        for d in (f32, f64, bf16, f16)
    ],
    (
        "batch_norm mixed",
        lambda x, m: F.batch_norm(x, m, m.abs(), m, m),
        ((("n", 4, 5), bf16), ((4,), f32)),
        BATCHES,
    ),
    (
        "batch_norm rows",
        lambda x, m: (F.batch_norm(x, m, m.abs()), F.group_norm(x, 2, m)),
        ((("n", 4), f32), ((4,), f32)),
        EMPTY,
    ),
    (
        "statistics",
        lambda x, m, w: (
            aten._native_batch_norm_legit.no_stats(x, w, w, True, 0.1, 1e-5),
            aten._native_batch_norm_legit_functional(x, w, w, m, m.abs(), True, 0.1, 1e-5),
            aten._native_batch_norm_legit_functional(x, w, w, m, m.abs(), False, 0.1, 1e-5),
            aten._native_batch_norm_legit_no_training(x, w, w, m, m.abs(), 0.1, 1e-5),
            aten.native_group_norm(x, w, w, x.shape[0], 4, 3, 2, 1e-5),
            torch.native_layer_norm(x, (4, 3), None, None, 1e-5),
        ),
        ((("n", 4, 3), f32), *channels(f32, f32)),
        [{"n": 5}, {"n": 17}],
    ),
    *[
        (
            f"rms_norm {str(d)[6:]}",
            lambda x, w: (
                F.rms_norm(x, (6,), w),
                F.rms_norm(x, (6,), eps=1e-3),
                F.rms_norm(x.exp() * 1e-4, (6,)),
            ),
            ((("n", 6), d), ((6,), d)),
            EMPTY,
        )
        for d in (f32, f64, bf16)
    ],
    (
        "layer_norm 2 axes",
        lambda x, w: F.layer_norm(x, (2, 5), w),
        ((("n", 2, 5), f32), ((2, 5), f32)),
        EMPTY,
    ),
    ("local_response_norm", lambda x: F.local_response_norm(x, 3, alpha=0.1), images(), SIZES),
    ("weight_norm", lambda v, g: torch._weight_norm(v, g, 0), ((("n", 6), f32), (("n", 1), f32)), BATCHES),
]


def with_nan(x: torch.Tensor) -> torch.Tensor:
    low = torch.where(x < -0.5, float("-inf"), x)
    return torch.where(x > 1.5, float("nan"), low)


POOLS: list[Case] = [
    (
        "max_pool2d",
        lambda x: (
            F.max_pool2d(x, 2),
            F.max_pool2d(x, 3, 2, 1),
            F.max_pool2d(x, (3, 2), (1, 2), (1, 0), (2, 3)),
        ),
        images(),
        SIZES,
    ),
    ("max_pool2d large", lambda x: F.max_pool2d(x, 7, 1, 3), images(bf16), SIZES),
    (
        "max_pool2d indices",
        lambda x: (
            F.max_pool2d(x.round(), 3, 2, 1, return_indices=True),
            F.max_pool2d(x.round(), (3, 2), (1, 2), (1, 0), (2, 3), return_indices=True),
        ),
        images(),
        SIZES,
    ),
    (
        "max_pool of many taps",
        lambda x: (
            *F.max_pool2d(with_nan(x.round()), 6, 2, 3, return_indices=True),
            *F.max_pool2d(x.round(), (5, 6), (1, 2), (2, 1), ceil_mode=True, return_indices=True),
            *F.max_pool2d(x.round(), (6, 5), 1, (3, 2), (1, 2), return_indices=True),
        ),
        (((2, 3, 14, 15), f32),),
        ONCE,
    ),
    (
        "max_pool3d of many taps",
        lambda x: F.max_pool3d(x.round(), 4, 2, 2, return_indices=True),
        (((1, 2, 7, 6, 5), f32),),
        ONCE,
    ),
    ("max_pool2d NaN", lambda x: F.max_pool2d(with_nan(x), 3, 2, 1, return_indices=True), images(), SIZES),
    ("max_pool2d int", lambda x: F.max_pool2d(x, 2, return_indices=True), (((2, 3, 9, 7), i64),), ONCE),
    (
        "max_pool ceil",
        lambda x: (
            F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True),
            F.max_pool2d(x, 2, 3, 1, ceil_mode=True),
            F.max_pool1d(x[0], 3, 2, 1, ceil_mode=True, return_indices=True),
        ),
        FIXED,
        ONCE,
    ),
    ("max_pool3d", lambda x: F.max_pool3d(x, 3, 2, 1, return_indices=True), VOLUME, SIZES),
    (
        "avg_pool2d",
        lambda x: (
            F.avg_pool2d(x, 2),
            F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
            F.avg_pool2d(x, 3, 2, 1, divisor_override=5),
            F.avg_pool2d(x, 7, 1, 3),
        ),
        images(),
        SIZES,
    ),
    *[
        (f"avg_pool2d {str(d)[6:]}", lambda x: F.avg_pool2d(x, 3, 2, 1), images(d), SIZES)
        for d in (f64, bf16)
    ],
    (
        "avg_pool ceil",
        lambda x: (
            F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
            F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
            F.avg_pool2d(x, 2, 3, 0, ceil_mode=True, divisor_override=2),
            F.avg_pool3d(x, 3, 2, 1, ceil_mode=True),
        ),
        FIXED,
        ONCE,
    ),
    ("avg_pool1d long", lambda x: F.avg_pool1d(x, 70, 2, 1), (((2, 3, 100), f32),), ONCE),
    (
        "adaptive_avg_pool2d",
        lambda x: (
            F.adaptive_avg_pool2d(x, 1),
            F.adaptive_avg_pool2d(x, (3, 2)),
            F.adaptive_avg_pool2d(x, (None, 20)),
            F.adaptive_avg_pool1d(x[:, 0], 3),
        ),
        images(),
        SIZES,
    ),
    ("adaptive_avg_pool2d bf16", lambda x: F.adaptive_avg_pool2d(x, (3, 2)), images(bf16), SIZES),
    (
        "adaptive fixed",
        lambda x: (
            F.adaptive_avg_pool2d(x, (5, 7)),
            F.adaptive_avg_pool2d(x, (4, 3)),
            F.adaptive_max_pool2d(x, (4, 3)),
        ),
        FIXED,
        ONCE,
    ),
    (
        "adaptive 3d",
        lambda x: (
            F.adaptive_avg_pool3d(x, (2, 3, 2)),
            F.adaptive_max_pool3d(x, (2, 3, 2), return_indices=True),
        ),
        VOLUME,
        SIZES,
    ),
    (
        "adaptive_max_pool2d",
        lambda x: (
            F.adaptive_max_pool2d(x.round(), (3, 2), return_indices=True),
            F.adaptive_max_pool2d(with_nan(x), 3, return_indices=True),
        ),
        images(),
        SIZES,
    ),
    ("lp_pool", lambda x: (F.lp_pool2d(x, 2, 3, 2), F.lp_pool1d(x[:, 0], 3.0, 3)), images(), SIZES),
]


def resized(modes: str, **how: Any) -> Callable[..., Any]:
    return lambda x: tuple(F.interpolate(x, mode=mode, **how) for mode in modes.split())


IMAGE_MODES = "nearest nearest-exact bilinear bicubic"
RESIZES: list[Case] = [
    ("factor 2", resized(IMAGE_MODES, scale_factor=2), images(), SIZES),
    *[
        (f"factors {str(d)[6:]}", resized(IMAGE_MODES, scale_factor=(1.7, 0.6)), images(d), SIZES)
        for d in (f32, f64, bf16)
    ],
    ("size", resized(IMAGE_MODES + " area", size=(5, 11)), images(), SIZES),
    (
        "size of sizes",
        lambda x: F.interpolate(x, size=(x.shape[2] * 3, x.shape[3] + 5), mode="bilinear"),
        images(),
        SIZES,
    ),
    ("corners", resized("bilinear bicubic", size=(5, 11), align_corners=True), images(), SIZES),
    ("corner of one", resized("bilinear bicubic", size=(1, 1), align_corners=True), images(), SIZES),
    ("same size", resized("bilinear bicubic", size=(9, 8)), images(), SIZES),
    (
        "the size it has, or twice that",
        resized(IMAGE_MODES, scale_factor=(1.3, 2.2)),
        ((("n", 2, 2, 3), f32),),
        SIZES,
    ),
    ("scale computed", resized("bilinear", scale_factor=1.7, recompute_scale_factor=True), images(), SIZES),
    ("1d", resized("nearest nearest-exact linear", scale_factor=1.7), LINE, SIZES),
    ("3d", resized("nearest nearest-exact trilinear", size=(5, 4, 11)), VOLUME, SIZES),
    *[
        (
            f"grid_sample {mode}",
            lambda x, g, mode=mode: tuple(
                F.grid_sample(x, g * 0.7, mode=mode, padding_mode=padding, align_corners=corners)
                for padding in ("zeros", "border", "reflection")
                for corners in (False, True)
            ),
            (*images(), (("n", 5, 6, 2), f32)),
            SIZES,
        )
        for mode in ("bilinear", "nearest", "bicubic")
    ],
    (
        "grid_sample 3d",
        lambda x, g: F.grid_sample(x, g * 0.7, align_corners=False),
        (*VOLUME, (("n", 5, 6, 2, 3), f32)),
        SIZES,
    ),
    (
        "affine_grid",
        lambda t: tuple(F.affine_grid(t, [t.shape[0], 3, 5, 6], align_corners=c) for c in (False, True)),
        ((("n", 2, 3), f32),),
        BATCHES,
    ),
]
PAIR = ((("n", 6), f32), (("n", 6), f32))
KEPT = "donot_use_mm_for_euclid_dist"
VECTORS: list[Case] = [
    (
        "cdist",
        lambda x, y: tuple(torch.cdist(x, y, p, KEPT) for p in (0.0, 1.0, 2.0, 3.0, float("inf"))),
        ((("n", 6), f32), ((4, 6), f32)),
        EMPTY,
    ),
    (
        "cdist batch",
        lambda x, y: torch.cdist(x, y, 2.0, KEPT),
        (((3, "n", 6), f32), ((1, 4, 6), f32)),
        BATCHES,
    ),
    (
        "cdist of no numbers",
        lambda x, y: torch.cdist(x, y, float("inf")),
        (((3, "n"), f32), ((4, "n"), f32)),
        EMPTY,
    ),
    (
        "pdist",
        lambda x: tuple(F.pdist(x, p) for p in (0.0, 1.0, 2.0, 3.0, float("inf"))),
        ((("n", 6), f32),),
        EMPTY,
    ),
    (
        "windows of signals",
        lambda x: tuple(
            x[:, :1] * window(5)
            for window in (
                torch.hann_window,
                torch.hamming_window,
                torch.bartlett_window,
                torch.blackman_window,
                torch.kaiser_window,
                torch.fft.fftfreq,
                torch.fft.rfftfreq,
            )
        ),
        ((("n", 6), f32),),
        EMPTY,
    ),
    (
        "similarity",
        lambda x, y: (
            F.cosine_similarity(x, y),
            F.pairwise_distance(x, y),
            F.pairwise_distance(x, y, 3.0, keepdim=True),
        ),
        PAIR,
        BATCHES,
    ),
    (
        "embedding_bag",
        lambda w, i: tuple(
            F.embedding_bag(i, w, mode=m, padding_idx=p) for m in ("sum", "mean", "max") for p in (None, 1)
        ),
        (((7, 6), f32), (("n", 4), i64)),
        BATCHES,
    ),
    (
        "embedding_bag weights",
        lambda w, i, s: F.embedding_bag(i, w, mode="sum", per_sample_weights=s),
        (((7, 6), f32), (("n", 4), i64), (("n", 4), f32)),
        BATCHES,
    ),
    (
        "products",
        lambda x, m, v: (torch.addmv(v, m, x[0], beta=0.5), torch.addr(x, x[:, 0], v), torch.vdot(v, v)),
        ((("n", 4), f32), ((4, 4), f32), ((4,), f32)),
        BATCHES,
    ),
    (
        "addbmm",
        lambda b, x, y: torch.addbmm(b, x, y, beta=0.5, alpha=2),
        (((4, 5), f32), (("n", 4, 3), f32), (("n", 3, 5), f32)),
        BATCHES,
    ),
    (
        "bilinear layer",
        F.bilinear,
        ((("n", 4), f32), (("n", 3), f32), ((5, 4, 3), f32), ((5,), f32)),
        BATCHES,
    ),
]
REDUCTIONS = ("mean", "sum", "none")


def losses(names: str, **how: Any) -> Callable[..., Any]:
    return lambda x, y: tuple(
        getattr(F, name)(x, y, reduction=r, **how) for name in names.split() for r in REDUCTIONS
    )


CLASSES = ((("n", 6), f32), (("n",), i64))
LOSSES: list[Case] = [
    ("regression", losses("mse_loss l1_loss smooth_l1_loss huber_loss poisson_nll_loss"), PAIR, BATCHES),
    ("margins", losses("soft_margin_loss kl_div"), PAIR, BATCHES),
    (
        "binary",
        lambda x, y: (
            losses("binary_cross_entropy")(x.sigmoid(), y.sigmoid()),
            losses("binary_cross_entropy_with_logits")(x, y.sigmoid()),
        ),
        PAIR,
        BATCHES,
    ),
    ("classes", losses("cross_entropy multi_margin_loss"), CLASSES, BATCHES),
    ("nll_loss", losses("nll_loss", ignore_index=1), ((("n", 6, 3, 2), f32), (("n", 3, 2), i64)), BATCHES),
]


@pytest.mark.parametrize(
    ("function", "specs", "sizes"),
    [pytest.param(*rest, id=name) for name, *rest in (*NORMS, *POOLS, *RESIZES, *VECTORS, *LOSSES)],
)
def test_matches_eager(
    function: Callable[..., Any], specs: tuple[Any, ...], sizes: list[dict[str, int]]
) -> None:
    check(function, specs, sizes)
