"""A share of the programs whose sizes are all free, drawn anew in every run; all of them by
`python -m tests.freed.coverage`."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator

import pytest
import torch

from ..opinfo.verdicts import Verdict
from . import verdicts
from .cases import Source, cells, of_tensors

SHARES, SHARE = 4, 3  # so many of each kind in one test
#: Eager takes more values than keys unchecked; a width of 3 is cut by 3; PyTorch cannot take the last apart.
KNOWN = ("attention", "pad.replicate_negative", "resize_as_")


@pytest.fixture(scope="module")
def source() -> Iterator[Source]:
    pytest.importorskip("expecttest")
    with pytest.MonkeyPatch.context() as kept:
        kept.setattr(torch.fx.config, "do_not_emit_stack_traces", False)
        verdicts.prepare()
        yield Source()
    logging.disable(logging.NOTSET)


@pytest.mark.drawn
@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("kind", ["operators", "modules", "programs"])
def test_all_sizes_are_free(source: Source, kind: str, share: int, pytestconfig: pytest.Config) -> None:
    drawn = random.Random(f"{pytestconfig.getoption('seed')} {kind} {share}")
    known = [cell for cell in cells((kind,)) if not any(name in cell.op for name in KNOWN)]
    found = {
        cell.op: verdicts.judge_one(cell.op, call)
        for cell in drawn.sample(known, SHARE)
        for call in source.calls(cell, source.samples(cell), 1)
    }
    assert not {name: verdict for name, verdict in found.items() if verdict.verdict in verdicts.BAD}


def _judged(function: object) -> Verdict:
    return verdicts.judge_one("", of_tensors(function, (torch.randn(3, 4),)))


@pytest.mark.usefixtures("source")
def test_a_wrong_value_at_another_size_is_seen() -> None:
    def lies(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if torch.compiler.is_exporting() else x * (1 + x.shape[0] // 3)

    assert _judged(lies).verdict == "differs"
    assert _judged(lambda x: x * 2).verdict == "native"


@pytest.mark.usefixtures("source")
def test_a_size_that_only_torch_takes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = verdicts.shapevm.compile
    with monkeypatch.context() as patched:
        fixed = dict.fromkeys(("dynamic_shapes",))
        patched.setattr(
            verdicts.shapevm, "compile", lambda *args, **kwargs: compiled(*args, **kwargs | fixed)
        )
        assert _judged(lambda x: x * 2).verdict == "silent"


@pytest.mark.parametrize("traced", [False, True])
def test_results_of_weights_are_as_exact_as_those_in_f64(traced: bool) -> None:
    layer, x = torch.nn.Linear(64, 64), torch.randn(8, 64)
    call = of_tensors(layer, (x,))
    if traced:
        trace = torch.jit.trace(call, (x,), check_trace=False)
        given, call = call, of_tensors(trace, (x,))
        call.in_f64 = lambda: verdicts._traced_in_f64(given)
    expected = layer(x)
    exact = torch.nn.functional.linear(x.double(), layer.weight.double(), layer.bias.double())
    assert verdicts._is_as_exact(exact.float(), expected, call)
    assert not verdicts._is_as_exact(exact.float() + 1e-4, expected, call)
