"""Compiling one case and judging it against eager PyTorch."""

from __future__ import annotations

import functools
import logging
import random
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from shapevm.compiler.frontends import exported_program as frontend
from shapevm.compiler.frontends.export import export_model
from shapevm.compiler.frontends.exported_program import import_program
from torch.testing._internal import common_utils
from torch.testing._internal.opinfo import core as opinfo
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

import shapevm
from shapevm.settings import settings

from ..quick_export import keep_what_torch_recomputes
from .cases import DTYPES, OPEN, SEED, TIES, Call, Cell, Together
from .family import family

#: Judgements, best first. `slow`: no answer in time, so not judged; `skipped`: eager PyTorch or torch.export
#: itself fails; `foreign`: complex, sparse or quantised tensors, which shapevm does not have.
VERDICTS = ("native", "fallback", "refused", "differs", "crash", "slow", "skipped", "foreign")
RIGHT = ("native", "fallback")
#: Of random numbers: a few may come out the same after two seeds.
OTHER_SEEDS = range(SEED + 1, SEED + 17)
MODES = ("static", "dynamic")
#: Calls of one program: torch.export's time with dynamic sizes grows faster than their number.
MOST = {"static": 32, "dynamic": 4}


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
    torch.fx.config.do_not_emit_stack_traces = True
    for module in (opinfo, common_utils):  # samples need not know which test, many frames up, takes them
        module.extract_test_fn = lambda: None
    common_utils.set_rng_seed = set_seed
    frontend._in_known_operators = functools.lru_cache(1)(
        frontend._in_known_operators
    )  # `_callers` asks again
    keep_what_torch_recomputes()


def set_seed(seed: int = SEED) -> None:
    """Seed all generators; `torch.manual_seed` is for other devices as well, which takes time."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


@dataclass(frozen=True)
class Case:
    """A call with what eager PyTorch returns: `expected`, and `again` after other seeds."""

    op: str
    call: Call
    expected: Any
    again: Sequence[Any]


def judge_group(cells: Sequence[Cell], calls: Sequence[Sequence[Call]], mode: str) -> list[list[Verdict]]:
    """Return a verdict for every call of every cell."""
    made = [[_case(cell.op, call) for call in row] for cell, row in zip(cells, calls, strict=True)]
    kinds: dict[Hashable, list[Case]] = {}
    for case in (case for row in made for case in row if isinstance(case, Case)):
        kinds.setdefault((case.op, case.call.kind()), []).append(case)
    alike, most = list(kinds.values()), MOST[mode]
    judged: dict[int, Verdict] = {}
    for i in range(0, len(alike), most):
        some = alike[i : i + most]
        for cases, found in zip(some, judge(some, mode), strict=True):
            judged |= zip(map(id, cases), found, strict=True)
    return [[case if isinstance(case, Verdict) else judged[id(case)] for case in row] for row in made]


def judge(kinds: Sequence[Sequence[Case]], mode: str) -> list[list[Verdict]]:
    """Return a verdict for every case of every kind, whose cases differ in values alone: all in one program
    or, where that does not compile and run, halves of them, down to single cases."""
    if not kinds:
        return []
    found = _together(kinds, mode)
    if isinstance(found, list):
        return found
    if len(kinds) == 1:
        (cases,) = kinds
        return [[found]] if len(cases) == 1 else [[_alone(case, mode) for case in cases]]
    half = len(kinds) // 2
    first = judge(kinds[:half], mode)
    if all(verdict.verdict == "skipped" for row in first for verdict in row):  # so will others be
        return first + [row for kind in kinds[half:] for row in judge([kind], mode)]
    return first + judge(kinds[half:], mode)


def _alone(case: Case, mode: str) -> Verdict:
    ((found,),) = judge([[case]], mode)
    return found


def judge_one(op: str, call: Call, mode: str) -> Verdict:
    """Return the verdict of one call."""
    ((found,),) = judge_group([Cell(op, "")], [[call]], mode)
    return found


def _case(op: str, call: Call) -> Case | Verdict:
    """Return a call with eager's results, or the verdict where eager does not run it or tensors are
    foreign."""
    try:
        expected = _eager(call, call.tensors, SEED)
        seeds = OTHER_SEEDS if has_drawn() else OTHER_SEEDS[:1]
        again = [_eager(call, call.tensors, seed) for seed in seeds]
    except Exception as error:
        return Verdict("skipped", f"eager: {line(error)}")
    tensors = [leaf for leaf in (*call.tensors, *tree_leaves(expected)) if isinstance(leaf, torch.Tensor)]
    return Verdict("foreign") if any(map(_is_foreign, tensors)) else Case(op, call, expected, again)


def has_drawn() -> bool:
    """Whether random numbers were drawn since `set_seed(SEED)`."""
    now = torch.get_rng_state()
    set_seed()
    return not torch.equal(now, torch.get_rng_state())


def _is_foreign(x: torch.Tensor) -> bool:
    return x.dtype not in DTYPES.values() or x.layout != torch.strided


def _together(kinds: Sequence[Sequence[Case]], mode: str) -> list[list[Verdict]] | Verdict:
    """Return the verdicts of cases as one program, in which each kind has its part, or one verdict where it
    does not compile and run: as many calls as the largest kind has cases. With dynamic sizes the exact tier
    must give the generic tier's bits, but for random numbers."""
    rounds = [[kind[min(i, len(kind) - 1)] for kind in kinds] for i in range(max(map(len, kinds)))]
    tensors = [x for case in rounds[0] for x in case.call.tensors]  # with the storage that they are parts of
    try:
        program = _export(Together([case.call for case in rounds[0]]), tensors, mode)
    except Exception as error:
        return Verdict("skipped", f"export: {line(error)}")
    try:
        with settings.scope(threads=1):
            exe = shapevm.compile(program, strategy="generic")
            found = [exe(*_inputs(cases)) for cases in rounds]
            is_compared = mode == "dynamic" and not _draws(program)
            exact = [exe.using("jit")(*_inputs(cases)) for cases in rounds] if is_compared else found
    except Exception as error:
        if isinstance(error, shapevm.Error) and not _runs_in_torch(program, tensors):
            return Verdict("skipped", "export: the program does not run in PyTorch")
        if not isinstance(error, shapevm.Error) and not _is_decomposed_in_torch(program):
            return Verdict("skipped", "export: PyTorch cannot decompose the program")
        is_refused = isinstance(error, shapevm.Error) and not isinstance(error, AssertionError)
        return Verdict("refused" if is_refused else "crash", f"{type(error).__name__}: {line(error)}")
    callers = _callers(program) if exe.machine.externs else ()
    return [
        [_verdict(case, found[n][i], exact[n][i], i in callers) for n, case in enumerate(kind)]
        for i, kind in enumerate(kinds)
    ]


def _inputs(cases: Sequence[Case]) -> list[torch.Tensor]:
    """Return the tensors of all cases with their strides, in memory of their own."""
    tensors = [x for case in cases for x in case.call.tensors]
    return [x.clone() if x.is_contiguous() else x for x in tensors]


def _verdict(case: Case, found: Any, exact: Any, calls_torch: bool) -> Verdict:
    found, exact = _tensors(found), _tensors(exact)
    expected = _with_ties(case, found)
    problem = compare(found, expected, case.again, case.op)
    if problem and compare(found, expected, case.again, case.op, _rounded(case)):
        return Verdict("differs", problem)
    if not _are_equal(found, exact, case):
        return Verdict("differs", "the exact tier gives other bits")
    return Verdict("fallback" if calls_torch else "native")


def _with_ties(case: Case, found: Any) -> Any:
    """Return eager's results, with our places among them where they lead to the same elements: which one of
    equal elements is taken is open."""
    leaves, structure = tree_flatten(case.expected)
    ours = tree_leaves(found)
    if case.op.split(".")[0] not in TIES or case.call.is_stable or len(ours) != len(leaves):
        return case.expected
    x, places, given = case.call.tensors[0], leaves[-1], ours[-1]
    if places.shape != given.shape or places.dtype != given.dtype or places.dtype != torch.int64:
        return case.expected
    if x.dim() - places.dim() not in (0, 1):
        return case.expected
    for axis in range(x.dim()):
        wanted, chosen = (y if y.dim() == x.dim() else y.unsqueeze(axis) for y in (places, given))
        is_fit = all(wanted.shape[i] == n for i, n in enumerate(x.shape) if i != axis)
        if is_fit and _leads_to(x, axis, chosen, wanted):
            return tree_unflatten([*leaves[:-1], given], structure)
    return case.expected


def _leads_to(x: torch.Tensor, axis: int, places: torch.Tensor, others: torch.Tensor) -> bool:
    """Whether distinct `places` along an axis hold the same elements as `others`."""
    if not all(((y >= 0) & (y < x.shape[axis])).all() for y in (places, others)):
        return False
    is_distinct = (places.sort(axis).values.diff(dim=axis) != 0).all()
    ours, theirs = (x.gather(axis, y) for y in (places, others))
    return bool(is_distinct) and torch.equal(ours.nan_to_num(), theirs.nan_to_num())


def _tensors(results: Any) -> Any:
    """Return results as tensors; of a program without inputs they are numpy's, as its caller has no library,
    and those of bf16 its bits."""

    def convert(x: Any) -> Any:
        found = torch.as_tensor(x) if isinstance(x, np.ndarray) else x
        return found.view(torch.bfloat16) if getattr(found, "dtype", None) == torch.uint16 else found

    return tree_map(convert, results)


def _callers(program: Any) -> set[int]:
    """Return which results of a program of several calls are computed with PyTorch's kernels."""
    graph = import_program(program, fallback="torch")
    fed: dict[Any, bool] = {}
    for node in graph.nodes():
        called = node.op == "extern" or any(fed.get(arg, False) for arg in node.args)
        called = called or any(fed.get(value, False) for block in node.regions for value in block.results)
        fed |= dict.fromkeys(node.results, called)
    pairs = zip(graph.outputs, graph.body.results, strict=True)
    firsts = (path.split(".")[0] for path, value in pairs if fed.get(value, False))
    return {int(first) for first in firsts if first.isdigit()}  # others are state


def _export(module: Any, tensors: Sequence[torch.Tensor], mode: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if mode == "static":
            return export_model(module, tuple(tensors))
        dims = tuple(dict.fromkeys(range(x.dim()), torch.export.Dim.AUTO) for x in tensors)
        return export_model(module, tuple(tensors), None, (dims,))


def _draws(program: Any) -> bool:
    """Whether a program draws random numbers: others at every call."""
    tags = (getattr(node.target, "tags", ()) for node in program.graph.nodes)
    return any(torch.Tag.nondeterministic_seeded in found for found in tags)


def _runs_in_torch(program: Any, tensors: Sequence[torch.Tensor]) -> bool:
    """Whether torch.export's program itself runs on the tensors that it was exported with."""
    try:
        _eager(program.module(), tensors, SEED)
    except Exception:
        return False
    return True


def _is_decomposed_in_torch(program: Any) -> bool:
    """Whether torch.export's program can be written in core operators by PyTorch."""
    try:
        program.run_decompositions()
    except Exception:
        return False
    return True


def _eager(module: Any, tensors: Sequence[torch.Tensor], seed: int) -> Any:
    set_seed(seed)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return module(*(x.clone() for x in tensors))


def _rounded(case: Case) -> Any:
    return rounded(lambda wide: _eager(case.call, wide, SEED), case.call.tensors, case.expected)


def rounded(eager: Callable[[Sequence[Any]], Any], args: Sequence[Any], expected: Any) -> Any:
    """Return what `eager` gives for arguments in f64, rounded to the dtypes of `expected`, its results, where
    that works: eager's own may be less exact."""
    wide = [x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in args]
    try:
        leaves, structure = tree_flatten(eager(wide))
        found = [
            a.to(b.dtype) if isinstance(a, torch.Tensor) and a.is_floating_point() else a
            for a, b in zip(leaves, tree_leaves(expected), strict=True)
        ]
    except Exception:  # a dtype among the operator's other arguments, say
        return expected
    return tree_unflatten(found, structure)


def compare(found: Any, expected: Any, again: Sequence[Any], op: str, exact: Any = None) -> str:
    """Return how `found` differs from `expected`, "" where it does not.

    `again`: eager's results after other seeds; where one differs from `expected`, or the contents are open,
    values do not count. `exact`: values of more digits than those of `expected`, which count instead.
    """
    ours, structure = tree_flatten(found)
    theirs, wanted = tree_flatten(expected)
    counted = theirs if exact is None else tree_leaves(exact)
    if len(ours) != len(theirs) or len(counted) != len(theirs):
        return f"the results are {structure}, not {wanted}"
    for a, b, d, *c in zip(ours, theirs, counted, *map(tree_leaves, again), strict=True):
        if not isinstance(b, torch.Tensor):
            if a != b and not (isinstance(b, float) and b != b):
                return f"a result is {a!r}, not {b!r}"
            continue
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"a result is {a.dtype} {list(a.shape)}, not {b.dtype} {list(b.shape)}"
        if _is_open(op, b, c):
            continue
        try:
            torch.testing.assert_close(a, d, equal_nan=True)
        except AssertionError as error:
            return _values(a, d) + " " + " ".join(str(error).split())[:160]
    return ""


def _is_open(op: str, expected: torch.Tensor, again: Sequence[torch.Tensor]) -> bool:
    """Whether a result's values are not determined."""
    if op.split(".")[0].startswith(OPEN) or family(op) == "random":
        return True
    return not all(torch.equal(expected.nan_to_num(), other.nan_to_num()) for other in again)


def _are_equal(found: Any, exact: Any, case: Case) -> bool:
    """Whether the results of both tiers are equal."""
    results = (tree_leaves(x) for x in (found, exact, case.expected, *case.again))
    return found is exact or all(
        _is_open(case.op, c, d) or torch.equal(a.nan_to_num(), b.nan_to_num()) and torch.equal(a != a, b != b)
        for a, b, c, *d in zip(*results, strict=True)
        if isinstance(a, torch.Tensor)
    )


def _values(a: torch.Tensor, b: torch.Tensor) -> str:
    """Return the first place where values differ."""
    bad = ~torch.isclose(a.double(), b.double(), 1e-3, 1e-3, equal_nan=True)
    if not bad.any():
        return ""
    return f"{a[bad].flatten()[0].item()!r} is not {b[bad].flatten()[0].item()!r}:"


def line(error: BaseException) -> str:
    text = str(error).strip().splitlines() or [type(error).__name__]
    return text[0][:300]
