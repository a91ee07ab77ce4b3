"""Each program equals TorchScript, for every argument set, with one compilation."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.testing import assert_close

import shapevm

from . import objects, trees, values  # noqa: F401 (they add their programs to the table)
from .programs import PROGRAMS


@pytest.fixture(autouse=True)
def verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verify the graph between all passes."""
    monkeypatch.setenv("SHAPEVM_VERIFY", "1")


def outcome(function: Any, args: tuple[Any, ...]) -> tuple[Any, Exception | None]:
    """Return what a call gives, or the error that it raises."""
    try:
        return function(*copy.deepcopy(args)), None
    except Exception as error:  # TorchScript has an error type of its own
        return None, error


def test_memory_that_may_be_shared_is_not_read_after_a_change() -> None:
    def shared(a: torch.Tensor, flag: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        b = a * 1
        c = b
        if bool(flag):
            c = b * 2
        d = c
        if bool(flag.sum() > 1):
            d = c * 2
        d += 1
        return b, d

    with pytest.raises(shapevm.UnsupportedOp, match=r"may share memory with one that was changed in place"):
        shapevm.compile(torch.jit.script(shared), args=(torch.randn(3), torch.tensor(True)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_torchscript(name: str) -> None:
    function, sets = PROGRAMS[name]
    scripted = torch.jit.script(function)
    with shapevm.compile(scripted, args=copy.deepcopy(sets[0])) as exe:
        for args in sets:
            wanted, refused = outcome(scripted, args)
            found, error = outcome(exe, args)
            if refused is not None:
                assert isinstance(error, shapevm.Error), f"{args}: {found} instead of {refused}"
                continue
            assert error is None, f"{args}: {error}"
            assert_close(found, wanted, rtol=1e-5, atol=1e-6)
