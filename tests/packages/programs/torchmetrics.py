"""Metrics as functions (`torchmetrics.functional`)."""

from __future__ import annotations

import torch
from torchmetrics import functional as F


def _numbers() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(12) + 0.1, torch.rand(12) + 0.1


def _classes() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(12, 4), torch.arange(12) % 4


def _labels() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(0, 4, (12,)), torch.arange(12) % 4


def _bits() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(12), torch.arange(12) % 2


def _images() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(2, 3, 24, 24), torch.rand(2, 3, 24, 24)


def _of(function, args, **more):
    return lambda: (lambda *x: function(*x, **more), args(), {})


PROGRAMS = {
    "mean_squared_error": _of(F.mean_squared_error, _numbers),
    "mean_absolute_percentage_error": _of(F.mean_absolute_percentage_error, _numbers),
    "mean_squared_log_error": _of(F.mean_squared_log_error, _numbers),
    "r2_score": _of(F.r2_score, _numbers),
    "explained_variance": _of(F.explained_variance, _numbers),
    "pearson_corrcoef": _of(F.pearson_corrcoef, _numbers),
    "spearman_corrcoef": _of(F.spearman_corrcoef, _numbers),
    "cosine_similarity": _of(F.cosine_similarity, lambda: (torch.randn(5, 4), torch.randn(5, 4))),
    "accuracy": _of(F.accuracy, _classes, task="multiclass", num_classes=4, validate_args=False),
    "accuracy of labels": _of(F.accuracy, _labels, task="multiclass", num_classes=4, validate_args=False),
    "top 2 accuracy": _of(
        F.accuracy, _classes, task="multiclass", num_classes=4, top_k=2, validate_args=False
    ),
    "f1_score": _of(
        F.f1_score, _labels, task="multiclass", num_classes=4, average="macro", validate_args=False
    ),
    "confusion_matrix": _of(
        F.confusion_matrix, _labels, task="multiclass", num_classes=4, validate_args=False
    ),
    "binary auroc": _of(F.auroc, _bits, task="binary", thresholds=5, validate_args=False),
    "calibration_error": _of(F.calibration_error, _bits, task="binary", n_bins=5, validate_args=False),
    "hinge_loss": _of(F.hinge_loss, _classes, task="multiclass", num_classes=4, validate_args=False),
    "pairwise_cosine_similarity": _of(
        F.pairwise_cosine_similarity, lambda: (torch.randn(5, 4), torch.randn(6, 4))
    ),
    "pairwise_euclidean_distance": _of(
        F.pairwise_euclidean_distance, lambda: (torch.randn(5, 4), torch.randn(6, 4))
    ),
    "peak_signal_noise_ratio": _of(F.peak_signal_noise_ratio, _images, data_range=1.0),
    "structural_similarity": _of(F.structural_similarity_index_measure, _images, data_range=1.0),
    "total_variation": _of(F.total_variation, lambda: _images()[:1]),
    "signal_noise_ratio": _of(F.signal_noise_ratio, lambda: (torch.randn(2, 40), torch.randn(2, 40))),
    "scale_invariant_signal_distortion_ratio": _of(
        F.scale_invariant_signal_distortion_ratio, lambda: (torch.randn(2, 40), torch.randn(2, 40))
    ),
}
