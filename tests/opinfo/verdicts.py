"""Compiling one case and judging it against eager PyTorch."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from shapevm.compiler.frontends.exported_program import export_model
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

import shapevm
from shapevm.settings import settings

from ..quick_export import keep_what_torch_recomputes
from .cases import OPEN, SEED, Call, Cell, Together
from .family import family

#: Judgements, best first. `slow`: no answer in time, so not judged; `skipped`: eager PyTorch or torch.export
#: itself fails; `foreign`: complex, sparse or quantised tensors, which shapevm does not have.
VERDICTS = ("native", "fallback", "refused", "differs", "crash", "slow", "skipped", "foreign")
RIGHT = ("native", "fallback")
MODES = ("static", "dynamic")


@dataclass(frozen=True)
class Verdict:
    """What became of one case; `detail` is one line."""

    verdict: str
    detail: str = ""


def prepare() -> None:
    """Make this process fast at compiling many small programs, one after the other, on one core."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable()
    keep_what_torch_recomputes()


def judge_group(cells: Sequence[Cell], cases: Sequence[Sequence[Call]], mode: str) -> list[list[Verdict]]:
    """Return a verdict for every call of every cell: first all in one program, then, where that is not
    native, halves of it, down to single calls."""
    if not cells:
        return []
    sound = [call for calls in cases for call in calls if _skips(call) is None]
    if len(cells) == 1 and len(sound) < 2:
        return [_single(cells[0], cases[0], mode)]
    together = judge_one("", Together(sound), mode)
    if together.verdict == "native":
        return [[_skips(call) or together for call in calls] for calls in cases]
    if len(cells) == 1:
        return [_single(cells[0], cases[0], mode)]
    half = len(cells) // 2
    return judge_group(cells[:half], cases[:half], mode) + judge_group(cells[half:], cases[half:], mode)


def _single(cell: Cell, calls: Sequence[Call], mode: str) -> list[Verdict]:
    """Return the verdicts of calls one by one; the first one also on the exact tier."""
    found = [judge_one(cell.op, call, mode) for call in calls]
    if found and mode == "dynamic" and found[0].verdict == "native":
        found[0] = judge_one(cell.op, calls[0], mode, "jit")
    return found


def _skips(call: Call) -> Verdict | None:
    """Return the verdict of a call that eager PyTorch does not run, or that has foreign tensors."""
    try:
        results = _eager(call, call.tensors)
    except Exception as error:
        return Verdict("skipped", f"eager: {_line(error)}")
    tensors = [leaf for leaf in (*call.tensors, *results) if isinstance(leaf, torch.Tensor)]
    return Verdict("foreign") if any(map(_is_foreign, tensors)) else None


def _is_foreign(x: torch.Tensor) -> bool:
    return x.is_complex() or x.layout != torch.strided or x.is_quantized or x.dtype.itemsize == 0


def judge_one(op: str, module: Any, mode: str, strategy: str = "generic") -> Verdict:
    """Return the verdict of one program."""
    calls = module.calls if isinstance(module, Together) else [module]
    for call in calls:
        skipped = _skips(call)
        if skipped is not None:
            return skipped
    tensors = [x for call in calls for x in call.tensors]
    try:
        program = _export(module, tensors, mode)
    except Exception as error:
        return Verdict("skipped", f"export: {_line(error)}")
    try:
        with settings.scope(threads=1):
            exe = shapevm.compile(program, strategy=strategy)
        found = exe(*_copies(tensors))
    except (shapevm.Error, TypeError) as error:
        kind = (
            "refused"
            if isinstance(error, shapevm.Error) and not isinstance(error, AssertionError)
            else "crash"
        )
        return Verdict(kind, f"{type(error).__name__}: {_line(error)}")
    except Exception as error:
        return Verdict("crash", f"{type(error).__name__}: {_line(error)}")
    if not tensors:  # the caller has no library, so results are numpy's
        found = tree_map(lambda leaf: torch.as_tensor(leaf) if isinstance(leaf, np.ndarray) else leaf, found)
    expected, again = (_reseeded(module, tensors, seed) for seed in (SEED, SEED + 1))
    problem = compare(found, expected, again, op)
    if problem and compare(found, _exact(module, tensors, expected), again, op):
        return Verdict("differs", problem)
    return Verdict("fallback" if exe.machine.externs else "native")


def _export(module: Any, tensors: Sequence[torch.Tensor], mode: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if mode == "static":
            return export_model(module, tuple(tensors))
        dims = tuple(dict.fromkeys(range(x.dim()), torch.export.Dim.AUTO) for x in tensors)
        return export_model(module, tuple(tensors), None, (dims,))


def _copies(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return `tensors` with their strides, in memory of their own."""
    return [x.clone() if x.is_contiguous() else x for x in tensors]


def _eager(module: Any, tensors: Sequence[torch.Tensor]) -> list[Any]:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tree_leaves(module(*(x.clone() for x in tensors)))


def _reseeded(module: Any, tensors: Sequence[torch.Tensor], seed: int) -> Any:
    torch.manual_seed(seed)
    with torch.no_grad():
        return module(*(x.clone() for x in tensors))


def _exact(module: Any, tensors: Sequence[torch.Tensor], expected: Any) -> Any:
    """Return eager's results computed in f64 and rounded, where that works: eager's own may be less exact."""
    wide = [x.double() if x.is_floating_point() else x for x in tensors]
    try:
        leaves, structure = tree_flatten(_reseeded(module, wide, SEED))
        rounded = [
            a.to(b.dtype) if isinstance(a, torch.Tensor) and a.is_floating_point() else a
            for a, b in zip(leaves, tree_leaves(expected), strict=True)
        ]
    except Exception:  # a dtype among the operator's other arguments, say
        return expected
    return tree_unflatten(rounded, structure)


def compare(found: Any, expected: Any, again: Any, op: str) -> str:
    """Return how `found` differs from `expected`, "" where it does not.

    `again`: eager's results after another seed; where they differ from `expected`, or the contents are open,
    values do not count.
    """
    ours, structure = tree_flatten(found)
    theirs, wanted = tree_flatten(expected)
    if len(ours) != len(theirs):
        return f"the results are {structure}, not {wanted}"
    for a, b, c in zip(ours, theirs, tree_leaves(again), strict=True):
        if not isinstance(b, torch.Tensor):
            if a != b and not (isinstance(b, float) and b != b):
                return f"a result is {a!r}, not {b!r}"
            continue
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"a result is {a.dtype} {list(a.shape)}, not {b.dtype} {list(b.shape)}"
        is_open = op.split(".")[0].startswith(OPEN) or family(op) == "random"
        if is_open or not torch.equal(b.nan_to_num(), c.nan_to_num()):
            continue
        try:
            torch.testing.assert_close(a, b, equal_nan=True)
        except AssertionError as error:
            return _values(a, b) + " " + " ".join(str(error).split())[:160]
    return ""


def _values(a: torch.Tensor, b: torch.Tensor) -> str:
    """Return the first place where values differ."""
    bad = ~torch.isclose(a.double(), b.double(), 1e-3, 1e-3, equal_nan=True)
    if not bad.any():
        return ""
    return f"{a[bad].flatten()[0].item()!r} is not {b[bad].flatten()[0].item()!r}:"


def _line(error: BaseException) -> str:
    text = str(error).strip().splitlines() or [type(error).__name__]
    return text[0][:300]
