"""Operators with run-time windows, strides, offsets, scales or groups."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .programs import program, x

_IMAGE, _SERIES, _VOLUME = x(1, 4, 12, 11), x(2, 4, 13), x(1, 2, 6, 7, 5)
_CLASSES = torch.tensor([0, 3, 2])
INF = float("inf")


@program((_IMAGE, 3, 2, 1, 1), (x(2, 1, 7, 9), 2, 1, 0, 1), (_IMAGE, 4, 3, 2, 2), (_IMAGE, 3, 2, 2, 1))
def pools_maxima(a: Tensor, k: int, s: int, p: int, d: int) -> Tensor:
    return F.max_pool2d(a, k, s, p, d)


@program((_IMAGE, 2, True), (_IMAGE, 3, False), (x(3, 1, 5, 5), 2, True), (_IMAGE, 40, False))
def pools_and_rounds_up(a: Tensor, k: int, ceil: bool) -> Tensor:
    return F.max_pool2d(a, k, ceil_mode=ceil)


@program((_SERIES, 2, 1), (_SERIES, 5, 3), (_SERIES, 13, 1), (_SERIES, 0, 1))
def pools_a_series(a: Tensor, k: int, s: int) -> tuple[Tensor, Tensor]:
    return F.max_pool1d(a, k, s), F.avg_pool1d(a, k, s)


@program((_VOLUME, 2), (_VOLUME, 3), (_VOLUME, 5), (_VOLUME, 1))
def pools_a_volume(a: Tensor, k: int) -> tuple[Tensor, Tensor]:
    return F.max_pool3d(a, k), F.avg_pool3d(a, k, 1)


@program((_IMAGE, 3, 2, 1, True, False), (_IMAGE, 4, 1, 2, False, False), (_IMAGE, 2, 3, 1, True, True),
         (_IMAGE, 2, 3, 0, False, True), (_IMAGE, 2, 3, 2, True, True))  # fmt: skip
def pools_means(a: Tensor, k: int, s: int, p: int, padded: bool, ceil: bool) -> Tensor:
    return F.avg_pool2d(a, k, s, p, ceil, padded)


@program((_IMAGE, 3), (_IMAGE, 7), (_IMAGE, -2))
def divides_by_another_number(a: Tensor, n: int) -> Tensor:
    return F.avg_pool2d(a, 2, divisor_override=n)


@program((_SERIES.abs(), 2.0, 2), (_SERIES.abs(), 3.0, 3), (_SERIES.abs(), 1.0, 4))
def pools_by_powers(a: Tensor, p: float, k: int) -> Tensor:
    return F.lp_pool1d(a, p, k)


@program((_IMAGE, x(6, 4, 3, 3), 1, 1, 1), (_IMAGE, x(6, 4, 3, 3), 2, 0, 2), (_IMAGE, x(6, 4, 3, 3), 3, 2, 3),
         (_IMAGE, x(6, 4, 3, 3), 0, 2, 3))  # fmt: skip
def convolves(a: Tensor, weight: Tensor, s: int, p: int, d: int) -> Tensor:
    return F.conv2d(a, weight, None, s, p, d)


@program((_SERIES, x(6, 4, 3), x(6), 1, 1), (_SERIES, x(6, 2, 3), x(6), 2, 2),
         (_SERIES, x(4, 1, 5), x(4), 1, 4), (_SERIES, x(4, 1, 5), x(4), 1, 3))  # fmt: skip
def convolves_in_groups(a: Tensor, weight: Tensor, bias: Tensor, s: int, groups: int) -> Tensor:
    return F.conv1d(a, weight, bias, s, 0, 1, groups)


@program((_VOLUME, x(3, 2, 2, 2, 2), 1), (_VOLUME, x(3, 2, 2, 3, 1), 2), (_VOLUME, x(3, 2, 1, 1, 1), 3))
def convolves_a_volume(a: Tensor, weight: Tensor, s: int) -> Tensor:
    return F.conv3d(a, weight, None, s)


@program((_IMAGE, x(6, 4, 3, 3), "same"), (_IMAGE, x(6, 4, 3, 3), "valid"), (_IMAGE, x(6, 4, 3, 3), "half"))
def pads_by_name(a: Tensor, weight: Tensor, padding: str) -> Tensor:
    return F.conv2d(a, weight, padding=padding)


@program((x(1, 4, 5, 6), x(4, 3, 3, 3), 2, 1, 1), (x(1, 4, 5, 6), x(4, 3, 3, 2), 3, 0, 2),
         (x(1, 4, 5, 6), x(4, 3, 3, 2), 1, 0, 0), (x(1, 4, 5, 6), x(4, 3, 3, 3), 2, 1, 2))  # fmt: skip
def convolves_backwards(a: Tensor, weight: Tensor, s: int, p: int, o: int) -> Tensor:
    return F.conv_transpose2d(a, weight, None, s, p, o)


@program((x(1, 4, 5), x(4, 3, 3), 2, 1), (x(1, 4, 5), x(4, 3, 3), 3, 2), (x(1, 4, 5), x(4, 1, 2), 1, 4))
def convolves_a_series_backwards(a: Tensor, weight: Tensor, d: int, groups: int) -> Tensor:
    return F.conv_transpose1d(a, weight, None, 1, 0, 0, groups, d)


@program((_IMAGE, 2.0), (_IMAGE, 1.5), (_IMAGE, 0.4), (_IMAGE, 1.0), (_IMAGE, 0.01))
def scales_an_image(a: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    return F.interpolate(a, scale_factor=factor), F.interpolate(a, scale_factor=factor, mode="bilinear")


@program((x(1, 2, 40, 31).double(), 1.7), (x(1, 1, 90, 2).double(), 1.3), (x(2, 1, 50, 50).double(), 0.7))
def scales_an_image_of_doubles(a: Tensor, factor: float) -> Tensor:
    return F.interpolate(a, scale_factor=factor, mode="bilinear")


@program((x(1, 1, 9, 2), 1.3), (x(1, 2, 3, 1), 2.4), (x(1, 1, 2, 3), 2.2))
def scales_to_the_size_it_has_or_twice_that(a: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    return F.interpolate(a, scale_factor=factor), F.interpolate(a, scale_factor=factor, mode="bilinear")


@program((_SERIES, 2.0), (_SERIES, 1.7), (_SERIES, 0.3))
def scales_a_series(a: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    return F.interpolate(a, scale_factor=factor, mode="linear", align_corners=True), F.interpolate(
        a, scale_factor=factor
    )


@program((x(4, 5), 1), (x(4, 5), -2), (x(6, 3), 0), (x(3, 3), 3), (x(3, 3), 1))
def reads_diagonals(a: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    return torch.diagonal(a, k), torch.diag(a, k), torch.diag(a[0], k)


@program((x(2, 4), 1), (x(2, 4), -2), (x(3, 1), 0))
def makes_diagonals(a: Tensor, k: int) -> Tensor:
    return torch.diag_embed(a, k)


@program((4, 5, 0), (5, 3, 1), (2, 2, -3), (0, 4, 1))
def places_of_triangles(n: int, m: int, k: int) -> tuple[Tensor, Tensor]:
    return torch.tril_indices(n, m, k), torch.triu_indices(n, m, k)


@program((x(1, 36, 4, 3), 2), (x(1, 36, 4, 3), 3), (x(2, 36, 2, 2), 6), (x(1, 36, 4, 3), 5))
def shuffles_pixels(a: Tensor, r: int) -> Tensor:
    return F.pixel_shuffle(a, r)


@program((x(1, 1, 12, 6), 2), (x(1, 1, 12, 6), 3), (x(3, 2, 6, 6), 6), (x(1, 1, 12, 6), 5))
def gathers_pixels(a: Tensor, r: int) -> Tensor:
    return F.pixel_unshuffle(a, r)


@program((x(1, 12, 2, 3), 2), (x(1, 12, 2, 3), 3), (x(1, 12, 2, 3), 12))
def shuffles_channels(a: Tensor, groups: int) -> Tensor:
    return torch.channel_shuffle(a, groups)


@program((x(3, 5), x(3, 5), 0.1), (x(3, 5), x(3, 5), 0.5), (x(3, 5), x(3, 5), -0.5))
def cosine_margins(a: Tensor, b: Tensor, margin: float) -> Tensor:
    return F.cosine_embedding_loss(a, b, torch.tensor([1, -1, 1]), margin)


@program((x(3, 4), _CLASSES, 1.0, 1), (x(3, 4), _CLASSES, 0.5, 2), (x(3, 4), _CLASSES, 0.0, 2),
         (x(3, 4), _CLASSES, 0.0, 3))  # fmt: skip
def margins_of_classes(a: Tensor, target: Tensor, margin: float, p: int) -> Tensor:
    return F.multi_margin_loss(a, target, p, margin)


@program((x(3, 4), _CLASSES, 0.1), (x(3, 4), _CLASSES, 0.0), (x(3, 4), _CLASSES, 0.4))
def smooths_labels(a: Tensor, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    weight = torch.tensor([0.5, 1.0, 2.0, 0.25])
    return F.cross_entropy(a, target, label_smoothing=smoothing), F.cross_entropy(
        a, target, weight, reduction="none", label_smoothing=smoothing
    )


@program((x(3, 4), _CLASSES, -100), (x(3, 4), _CLASSES, 3), (x(3, 4), _CLASSES, 0))
def ignores_a_class(a: Tensor, target: Tensor, ignored: int) -> tuple[Tensor, Tensor]:
    weight = torch.tensor([0.5, 1.0, 2.0, 0.25])
    loss = F.nll_loss(a, target, ignore_index=ignored)
    return F.cross_entropy(a, target, weight, ignore_index=ignored), loss


@program((x(3, 4) * 100, 1), (x(3, 4) * 100, 0), (x(3, 4) * 100, -1))
def rounds_to_digits(a: Tensor, n: int) -> Tensor:
    return torch.round(a, decimals=n)


@program((x(3, 3), 2), (x(3, 3), 0), (x(4, 4), 3), (x(3, 3), 1))
def powers_of_a_matrix(a: Tensor, n: int) -> Tensor:
    return torch.matrix_power(a, n)


@program((torch.arange(6), 3), (torch.arange(6), 0), (torch.arange(6), -2))
def bits_of_a_number(a: Tensor, n: int) -> list[Tensor]:
    return [a & n, a | n, a ^ n, torch.isin(a, n).to(torch.int64)]


@program((x(4, 5), 1), (x(4, 5), -2), (x(1, 3), 7))
def turns_all_round(a: Tensor, k: int) -> tuple[Tensor, Tensor]:
    return torch.roll(a, k), a.tile([2, k * k])


@program((x(1, 5), 2), (x(1, 5), 7), (x(1, 5), 1))
def widens_an_axis(a: Tensor, n: int) -> Tensor:
    return a.expand(n, 5) * 2


@program((x(2, 5), 5), (x(2, 1), 4), (x(2, 1), 1))
def widens_the_last_axis(a: Tensor, n: int) -> Tensor:
    return a.expand(3, 2, n) * 2


@program((x(3, 4), 0.1, 0.3), (x(3, 4), 0.0, 0.5), (x(3, 4), 0.25, 0.25))
def slopes_between_bounds(a: Tensor, low: float, high: float) -> Tensor:
    return F.rrelu(a, low, high)


@program((_IMAGE, 3, 1, 1, 1), (_IMAGE, 2, 0, 2, 1), (x(2, 1, 5, 4), 2, 1, 1, 2), (_IMAGE, 20, 1, 1, 1),
         (_IMAGE, 3, 0, 0, 1))  # fmt: skip
def lists_windows(a: Tensor, k: int, p: int, s: int, d: int) -> tuple[Tensor, Tensor]:
    return F.unfold(a, k, d, p, s), F.unfold(a[0], [k, 1], stride=s)


@program((_IMAGE, 2, 1, 1, 1), (_IMAGE, 3, 0, 2, 1), (x(2, 3, 7, 5), 2, 1, 3, 2), (x(2, 3, 7, 5), 1, 0, 1, 1))
def adds_windows_up(a: Tensor, k: int, p: int, s: int, d: int) -> Tensor:
    return F.fold(F.unfold(a, k, d, p, s), [a.size(2), a.size(3)], k, d, p, s)


@program((x(12, 20), 4, 5), (x(12, 12), 3, 4), (x(12, 6), 2, 3), (x(12, 4), 1, 1), (x(12, 20), 4, 6))
def adds_windows_up_to_a_size(a: Tensor, h: int, w: int) -> Tensor:
    return F.fold(a, [h, w], 2, 1, 1, 1) if h == 1 else F.fold(a, [h + 1, w + 1], 2)


@program((x(4, 10), 3, 1), (x(4, 10), 2, 0), (x(7, 3), 3, -1), (x(4, 10), 5, 0))
def windows_along_an_axis(a: Tensor, n: int, dim: int) -> Tensor:
    return a.unfold(dim, n, 1)


_ROWS = [[1.0, float("nan"), 2.0, float("nan")], [3.0, 3.0, -INF, -INF], [0.0, 5.0, -INF, -INF]]
_NAN = torch.tensor([[_ROWS]])


@program((_IMAGE, 2, 1, 0), (_IMAGE, 3, 2, 1), (_NAN, 2, 2, 1), (_NAN.flip(2), 2, 1, 0), (_IMAGE, 3, 1, 2))
def places_of_maxima(a: Tensor, k: int, s: int, p: int) -> tuple[Tensor, Tensor]:
    most, at = F.max_pool2d(a, k, s, p, return_indices=True)
    return torch.nan_to_num(most, 9.0), at


@program((_SERIES, _VOLUME, 2), (_SERIES, _VOLUME, 1), (_SERIES, _VOLUME, 3))
def puts_maxima_back(a: Tensor, b: Tensor, k: int) -> tuple[Tensor, Tensor]:
    most, at = F.max_pool1d(a, k, return_indices=True)
    top, places = F.max_pool3d(b, k, return_indices=True)
    return F.max_unpool1d(most, at, k), F.max_unpool3d(top, places, k, output_size=b.size())
