"""shapevm-run with packed tokens: the results of the padded batch, and the sentences about offsets."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import shapevm

LENGTHS = [3, 1, 7, 2]
Run = Callable[..., subprocess.CompletedProcess[str]]


class Sums(torch.nn.Module):
    """Ids and embeddings of tokens; the mask, as bool and as integers, takes padding out."""

    def forward(
        self, ids: torch.Tensor, rows: torch.Tensor, mask: torch.Tensor, seen: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return (ids + 1) * mask, (torch.where(seen[..., None], rows + 1, 0.0)).sum(1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    ids = torch.zeros(3, 5, dtype=torch.int64)
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    given = (ids, torch.zeros(3, 5, 2), ids.clone(), ids.bool())
    exe = shapevm.compile(Sums(), given, dynamic_shapes=({0: batch, 1: length},) * 4)
    path = tmp_path_factory.mktemp("packed") / "sums.svm"
    exe.save(path)
    return path


@pytest.fixture
def run(build: Callable[[str, str], Path], model: Path, tmp_path: Path) -> Run:
    """Return run(offsets, ids, *options), with the embeddings of the tokens."""

    def call(offsets: np.ndarray, ids: np.ndarray, *options: str) -> subprocess.CompletedProcess[str]:
        rows = np.stack([ids, -ids], -1).astype(np.float32)
        for name, x in {"offsets": offsets, "ids": ids, "rows": rows}.items():
            np.save(tmp_path / f"{name}.npy", x)
        command = [str(build("runner", "address")), str(model), "--offsets", str(tmp_path / "offsets.npy")]
        command += ["--input", f"ids={tmp_path / 'ids.npy'}", "--input", f"rows={tmp_path / 'rows.npy'}"]
        command += ["--output", str(tmp_path / "out.npz"), *options]
        return subprocess.run(command, capture_output=True, text=True)

    return call


def test_tokens_become_rows(run: Run, tmp_path: Path) -> None:
    offsets, ids = np.cumsum([0, *LENGTHS]), np.arange(sum(LENGTHS))
    done = run(offsets, ids)
    assert done.returncode == 0, done.stderr
    found, sums = np.load(tmp_path / "out.npz").values()
    for row, n in enumerate(LENGTHS):
        part = ids[offsets[row] : offsets[row + 1]]
        assert np.array_equal(found[row], [*(part + 1), *[0] * (7 - n)])
        assert np.array_equal(sums[row], [(part + 1).sum(), (1 - part).sum()])


@pytest.mark.parametrize(
    ("offsets", "said"),
    [
        (np.array([0, 3, 3, 13]), "the offsets do not go up: a text is empty"),
        (np.array([0, 9, 4, 13]), "the offsets do not go up: a text is empty"),
        (np.array([1, 13]), "the first offset is not 0"),
        (np.array([0, 3, 12]), "an input has not as many tokens as the last offset"),
        (np.array([0, 3, 2**62]), "an input has not as many tokens as the last offset"),
        (np.array([0]), "an input has not as many tokens as the last offset"),
        (np.array([], np.int64), "the offsets are not an array i64[texts + 1]"),
        (np.array([0.0, 13.0]), "the offsets are not an array i64[texts + 1]"),
        (np.array([[0, 13]]), "the offsets are not an array i64[texts + 1]"),
    ],
    ids=str,
)
def test_offsets_that_are_none(run: Run, offsets: np.ndarray, said: str) -> None:
    done = run(offsets, np.arange(13))
    assert done.returncode == 2 and said in done.stderr


def test_padding_counts_as_memory(run: Run) -> None:
    offsets, ids = np.array([0, *range(1, 1000), 2000]), np.arange(2000)
    done = run(offsets, ids, "--memory", str(1 << 20))
    assert done.returncode == 2 and "the inputs are over the limit of --memory" in done.stderr
