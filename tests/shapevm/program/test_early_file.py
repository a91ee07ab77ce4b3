"""Files that are made before their programs: whatever lies in them already, artifacts have the same bytes."""

import errno
import os
from pathlib import Path

import pytest
import torch
from shapevm.vm.files import HUGE_PAGE

import shapevm
from shapevm.program import early_file
from shapevm.program.early_file import EarlyFile, n_bytes_of

X = torch.ones(3, 512)
STEP = HUGE_PAGE * early_file.PAGES_AT_ONCE


class Scaled(torch.nn.Module):
    """A model with a product and one that is as large and is not used, or none."""

    def __init__(self, is_unused: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(512, 512)
        self.unused = torch.nn.Linear(512, 512 if is_unused else 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * 2.0


def saved(model: torch.nn.Module, path: Path, weights: str = "f32") -> bytes:
    rows = torch.export.Dim("rows", min=1, max=64)
    options = shapevm.Options(weights=weights)
    with shapevm.compile(
        model, (X,), dynamic_shapes=({0: rows},), strategy="generic", options=options
    ) as exe:
        exe.save(path)
        assert exe._file.size == path.stat().st_size
    return path.read_bytes()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[EarlyFile]:
    """All files that are made early, which are made for any model."""
    found: list[EarlyFile] = []
    init = EarlyFile.__init__

    def noted(self: EarlyFile, n_bytes: int) -> None:
        init(self, n_bytes)
        found.append(self)

    monkeypatch.setattr(early_file, "MIN_BYTES", 1)
    monkeypatch.setattr(EarlyFile, "__init__", noted)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    return found


@pytest.mark.parametrize("weights", ["f32", "bf16", "int8"])
@pytest.mark.parametrize("is_unused", [True, False])
def test_artifacts_have_the_same_bytes(
    is_unused: bool, weights: str, made: list[EarlyFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    early = saved(Scaled(is_unused), tmp_path / "early.svm", weights)
    assert len(made) == 1
    monkeypatch.setattr(early_file, "MIN_BYTES", 1 << 40)
    assert early == saved(Scaled(is_unused), tmp_path / "late.svm", weights)
    assert len(made) == 1


@pytest.mark.parametrize("n_bytes", [1, HUGE_PAGE, 3 * STEP])
def test_a_file_is_filled_until_it_is_taken(n_bytes: int) -> None:
    early = EarlyFile(n_bytes)
    early._thread.join()
    with early.taken() as file:
        assert file.tell() == 0
        assert os.fstat(file.fileno()).st_size == -(-n_bytes // STEP) * STEP
        early.close()
        assert not file.closed


def test_a_file_that_nobody_takes_is_closed(made: list[EarlyFile]) -> None:
    class Fails(Scaled):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("no result")

    with pytest.raises(shapevm.ArgumentError):
        shapevm.compile(Fails(True), (X,))
    (early,) = made
    assert early._file is not None and early._file.closed and early._thread._ended.acquire(False)


def test_a_full_disk_is_met_by_who_writes(
    made: list[EarlyFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        def __getattr__(self, name: str) -> object:
            return getattr(os, name)

        def pwritev(self, *args: object) -> int:
            raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(early_file, "os", Full())
    assert saved(Scaled(False), tmp_path / "early.svm") and len(made) == 1


def test_one_cpu_fills_no_file(
    made: list[EarlyFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    assert saved(Scaled(False), tmp_path / "late.svm") and not made


def test_weights_are_counted_once() -> None:
    layer = torch.nn.Linear(8, 4)
    assert n_bytes_of(torch.nn.Sequential(layer, layer)) == n_bytes_of(layer) == 4 * (8 * 4 + 4)
    assert n_bytes_of(torch.nn.Linear(8, 4, device="meta")) == n_bytes_of("model.pt2") == 0
