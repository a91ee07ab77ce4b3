"""Each program equals TorchScript, for every argument set, with one compilation."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.testing import assert_close

import shapevm

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
