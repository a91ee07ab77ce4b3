"""Kernels of every family give a row the same bits alone, in any batch and in any order, and where padding is
masked, at any length: across blocks of sums and of keys, and with rows of very different scales."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from shapevm.vm.artifact import read
from torch import Tensor, nn
from torch.export import Dim

import shapevm
from shapevm.program.opening import open_executable
from shapevm.promises.prove import Padding, Prover

BATCH, LENGTH = Dim("batch", min=1, max=300), Dim("length", min=1, max=3000)


class Families(nn.Module):
    """Results of many kernels from rows of x [batch, 1000] and of images [batch, 32, 7, 7]."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.wide, self.narrow = nn.Linear(1000, 70), nn.Linear(4, 20)
        self.norm, self.behind = nn.LayerNorm(128), nn.Linear(128, 96)
        self.short = nn.Linear(64, 64).bfloat16()
        self.plain, self.strided = nn.Conv2d(32, 24, 3, padding=1), nn.Conv2d(32, 24, 3, 2)
        self.pointwise, self.depthwise = nn.Conv2d(32, 40, 1), nn.Conv2d(32, 32, 3, groups=32)
        self.grouped, self.stem = nn.Conv2d(32, 32, 3, groups=4), nn.Conv2d(3, 32, 5, 2, 2)
        self.transposed, self.line = nn.ConvTranspose2d(32, 8, 3, 2), nn.Conv1d(8, 16, 5)
        self.gru = nn.GRU(20, 8, batch_first=True)

    def forward(self, x: Tensor, image: Tensor) -> dict[str, Tensor]:
        heads = x[:, :960].reshape(-1, 2, 30, 16)
        square, line = x[:, :1000].reshape(-1, 20, 50), x[:, :800].reshape(-1, 8, 100)
        return {
            "product": self.wide(x).relu(), "few features": self.narrow(x[:, :4]).tanh(),
            "norm and product": F.gelu(self.behind(self.norm(x[:, :128]))),
            "half": self.short(x[:, :64].bfloat16()), "products of a row": square @ square.transpose(1, 2),
            "attention": F.scaled_dot_product_attention(heads, heads, heads, is_causal=True),
            "softmax": x.softmax(-1), "softmax across": square.softmax(1), "logsumexp": x.logsumexp(-1),
            "moments": square.std(1), "moments along": square.var(2), "sum": square.sum((1, 2)),
            "group norm": F.group_norm(square, 2), "norm": F.normalize(square, dim=1),
            "running": square.cumsum(1), "running along": x.cumsum(1), "prod": square.prod(2),
            "sort": x.sort(1)[0], "top": x.topk(5)[1], "median": square.median(1)[0],
            "convolution": self.plain(image), "strided": self.strided(image), "grouped": self.grouped(image),
            "pointwise": self.pointwise(image).relu(), "depthwise": self.depthwise(image),
            "stem": self.stem(image[:, :3]), "transposed": self.transposed(image), "line": self.line(line),
            "pools": F.max_pool2d(image, 3, 2, 1), "mean pools": F.adaptive_avg_pool2d(image, 3),
            "resized": F.interpolate(image, scale_factor=2, mode="bilinear"),
            "scattered": torch.zeros_like(x).scatter_add(1, (x > 0).long(), x),
            "recurrent": self.gru(x[:, :100].reshape(-1, 5, 20))[0],
        }  # fmt: skip


def scaled(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Return rows of scales from 1e-3 to 1e3."""
    scales = np.logspace(-3, 3, shape[0]).reshape(-1, *[1] * (len(shape) - 1))
    return (rng.standard_normal(shape) * scales).astype(np.float32)


def prover(path: Path, model: nn.Module, args: tuple[Tensor, ...], shapes: tuple, **options) -> Prover:
    with shapevm.compile(model.eval(), args, dynamic_shapes=shapes) as exe:
        exe.save(path)
    exe = open_executable(path, "generic")
    exe.specialisation.ensure()
    return Prover(read(path), exe, **options)


@pytest.fixture(scope="module")
def families(tmp_path_factory) -> Prover:
    path = tmp_path_factory.mktemp("families") / "model.svm"
    # In a process of its own: what other tests set in torch changes how it exports the recurrent layer.
    subprocess.run([sys.executable, __file__, str(path)], check=True)
    exe = open_executable(path, "generic")
    exe.specialisation.ensure()
    return Prover(read(path), exe, exact_share=0)


def test_all_of_them_treat_rows_one_by_one(families: Prover) -> None:
    assert {v.name: v.causes for v in families.verdicts["batch"] if v.causes} == {}


@pytest.mark.parametrize(("n", "share"), [(2, 0), (5, 1), (17, 0), (131, 0)])
def test_a_row_has_the_same_bits_in_any_batch(families: Prover, n: int, share: float) -> None:
    rng, families.exact_share = np.random.default_rng(n), share
    families.report.relations.clear()
    families.rows(families.case([scaled(rng, n, 1000), scaled(rng, n, 32, 7, 7)]), "batch")
    assert {"a row alone along batch", "rows permuted along batch"} < set(families.report.relations)
    assert [d for r in families.report.relations.values() for d in r.differences] == []


class Masked(nn.Module):
    """Results that padding has no part in where the mask is 0."""

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        keys = mask[:, None, None] != 0
        bias = (1 - mask[:, None, None].float()) * torch.finfo(torch.float32).min
        scores = (x @ x.transpose(-1, -2)).masked_fill(~keys, float("-inf"))
        weights = mask[:, None, :, None].float()
        mean = (x * weights).sum(2) / weights.sum(2)
        along = x.transpose(2, 3).contiguous() * mask[:, None, None]
        return (
            F.scaled_dot_product_attention(x, x, x, attn_mask=keys),
            F.scaled_dot_product_attention(x, x, x, attn_mask=bias),
            scores.softmax(-1) @ x, scores.logsumexp(-1), mean, along.sum(-1),
            (((x - mean[:, :, None]) * weights) ** 2).sum(2), x.masked_fill(weights == 0, -9e9).amax(2),
        )  # fmt: skip


def test_masked_padding_changes_no_bit(tmp_path) -> None:
    args = torch.randn(3, 2, 7, 16), torch.ones(3, 7, dtype=torch.long)
    shapes = {0: BATCH, 2: LENGTH}, {0: BATCH, 1: LENGTH}
    pads = [Padding("length", "mask")]
    found = prover(tmp_path / "model.svm", Masked(), args, shapes, pads=pads, exact_share=0.2)
    for n, scale in ((5, 1), (64, 30), (505, 1), (600, 30)):
        rng = np.random.default_rng(n)
        mask = rng.random((3, n)) < 0.8
        mask[:, 0] = True
        x = (rng.standard_normal((3, 2, n, 16)) * scale).astype(np.float32)
        found.padded(found.case([x, mask.astype(np.int64)]), pads[0])
    (relation,) = found.report.relations.values()
    assert relation.compared == 96 and relation.differences == []


if __name__ == "__main__":
    examples = torch.randn(3, 1000), torch.randn(3, 32, 7, 7)
    shapes = {0: BATCH}, {0: BATCH}
    with shapevm.compile(Families().eval(), examples, dynamic_shapes=shapes) as program:
        program.save(sys.argv[1])
