"""The compilation of exact kernels beside a program."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch

import shapevm
from shapevm.errors import CompileError
from shapevm.specialise import kernel_requests


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    rows = torch.export.Dim("rows", min=1, max=64)
    exe = shapevm.compile(torch.nn.Linear(4, 3), (torch.ones(2, 4),), dynamic_shapes=({0: rows},))
    exe.save(tmp_path / "m.svm")
    return tmp_path / "m.svm"


def test_without_a_thread_generic_kernels_stay(
    saved: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As under RLIMIT_NPROC or a container's limit of processes."""

    def refused(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(kernel_requests, "Thread", refused)
    x = np.ones((5, 4), np.float32)
    with caplog.at_level(logging.WARNING, "shapevm"), shapevm.load(saved, strategy="auto") as exe:
        assert exe(x).shape == (5, 3) and not exe.specialisation.is_running
        assert exe.wait_until_specialised(10)
    assert "no thread can be started to compile exact kernels (can't start new thread)" in caplog.text
    with (
        shapevm.load(saved, strategy="jit") as exe,
        pytest.raises(CompileError, match="no compiler"),
    ):
        exe(x)
