"""A part of `make operators` that is always run: elementwise operators and others of each family."""

from __future__ import annotations

import json
import logging
import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from . import cases, coverage, kept, page, verdicts
from .cases import Call, Cell
from .family import FAMILIES, family

#: Groups are one program each. Every operator here must compile to shapevm's own kernels.
NATIVE = (
    ("f32", "add div.trunc_rounding fmod remainder pow atan2 fmin hypot copysign nextafter heaviside xlogy"),
    ("f32", "exp log1p sin atan sinh acosh atanh erfc erfinv lgamma polygamma.polygamma_n_1 nan_to_num"),
    ("f32", "frexp slice_scatter select_scatter tensor_split masked_select"),
    ("f64", "i0 special.i1e special.erfcx special.log_ndtr special.ndtri logaddexp"),
    ("bf16", "mul sigmoid reciprocal trunc frac sign clamp lerp"),
    ("i64", "sub floor_divide gcd lcm bitwise_left_shift abs pow full_like arange diff"),
    ("i8", "bitwise_and bitwise_not lt div.floor_rounding true_divide clamp"),
    ("bool", "logical_and logical_not bitwise_or eq add where diff"),
)


@pytest.fixture(scope="module")
def infos() -> Iterator[dict[str, Any]]:
    """The database, in a process prepared for it; other tests, which compare messages, get theirs back."""
    pytest.importorskip("expecttest")
    with pytest.MonkeyPatch.context() as kept:
        kept.setattr(torch.fx.config, "do_not_emit_stack_traces", False)
        verdicts.prepare()
        yield cases.database()
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("mode", verdicts.MODES)
@pytest.mark.parametrize(
    ("dtype", "names"), NATIVE, ids=[f"{dtype}-{names.split()[0]}" for dtype, names in NATIVE]
)
def test_native(infos: dict[str, Any], dtype: str, names: str, mode: str) -> None:
    cells = [Cell(name, dtype) for name in names.split()]
    assert all(cases.DTYPES[dtype] in infos[cell.op].supported_dtypes("cpu") for cell in cells)
    calls = [cases.calls(infos[c.op], cases.samples(infos[c.op], dtype), 1) for c in cells]
    found = verdicts.judge_group(cells, calls, mode)
    wrong = [
        (cell.op, case)
        for cell, judged in zip(cells, found, strict=True)
        for case in judged
        if case.verdict not in ("native", "skipped")
    ]
    assert not wrong and any(case.verdict == "native" for judged in found for case in judged)


class Wrong:
    """A sample whose function does not do at run time what it did when exported."""

    input = torch.arange(2.0)
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}


def test_a_difference_is_seen() -> None:
    (found,) = verdicts.judge_group([Cell("wrong", "f32")], [[Call(_lies, Wrong)]], "static")[0]
    assert found.verdict == "differs" and "1.0 is not 1.5" in found.detail


def test_calls_that_differ_in_values_are_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is judged by its own values."""
    calls = [Call(_lies, Wrong) for _ in range(3)]
    calls[1].tensors = [torch.tensor([5.0, -1.0])]
    calls[2].tensors = [torch.tensor([5.0])]
    exported = []
    export = verdicts.export_model
    monkeypatch.setattr(verdicts, "export_model", lambda *args: exported.append(args[1]) or export(*args))
    (found,) = verdicts.judge_group([Cell("wrong", "f32")], [calls], "static")
    assert [case.detail.split(":")[0] for case in found] == [
        "1.0 is not 1.5",
        "6.0 is not 6.5",
        "6.0 is not 6.5",
    ]
    assert [len(tensors) for tensors in exported] == [2]


def test_random_results_are_open(infos: dict[str, Any]) -> None:
    """PyTorch's entries seed its generator at every call; then they would seem to be determined."""
    info = infos["nn.functional.fractional_max_pool3d"]
    calls = cases.calls(info, cases.samples(info, "f32"), 4)
    (found,) = verdicts.judge_group([Cell("fractional_max_pool3d", "f32")], [calls], "static")
    assert {case.verdict for case in found} == {"native"}


def test_absent_tensors_are_no_values() -> None:
    x, sample = torch.ones(1), SimpleNamespace(input=torch.ones(1), kwargs={})
    calls = []
    for args in ((x, None), (None, x)):
        sample.args = args
        calls.append(Call(torch.clamp, sample))
    assert calls[0].kind() != calls[1].kind()


def test_other_results_are_seen() -> None:
    one = torch.ones(2, 3)
    assert "not torch.float64" in verdicts.compare(one, one.double(), [one.double()], "")
    assert "[2, 3], not" in verdicts.compare(one, one[0], [one[0]], "")
    assert "1 is not 2" in verdicts.compare(one.int(), 2 * one.int(), [2 * one.int()], "")
    assert verdicts.compare((one, one), [one], [[one]], "")
    assert verdicts.compare(one, 2 * one, [2 * one], "empty_like") == ""
    assert verdicts.compare(one, 2 * one, [2 * one, 3 * one], "rand") == ""  # a seed gives other values
    exact = 2 * one + 1e-7  # eager's own results differ from it, and are not open for that
    assert verdicts.compare(one, 2 * one, [2 * one], "", exact) != ""
    assert verdicts.compare(2 * one, 2 * one, [2 * one], "", exact) == ""


def test_random_numbers_are_drawn_from_many_seeds(infos: dict[str, Any]) -> None:
    sample = SimpleNamespace(input=torch.ones(3), args=(0.5, True), kwargs={})
    for function, n_seeds in ((torch.dropout, len(verdicts.OTHER_SEEDS)), (torch.mul, 1)):
        sample.args = sample.args[: 2 if n_seeds > 1 else 1]
        case = verdicts._case("", Call(function, sample))
        assert isinstance(case, verdicts.Case)
        assert len(case.again) == n_seeds
        assert verdicts._is_open("", case.expected, case.again) is (n_seeds > 1)


def test_places_of_equal_elements_are_open() -> None:
    x = torch.tensor([[2, 1, 2, 0]])
    case = verdicts.Case("topk", Call(torch.topk, Wrong), x.topk(1), [x.topk(1)])
    case.call.tensors = [x]
    for place, is_right in ((0, True), (2, True), (1, False), (4, False)):
        found = (torch.tensor([[2]]), torch.tensor([[place]]))
        expected = verdicts._with_ties(case, found)
        assert (verdicts.compare(found, expected, case.again, "topk") == "") is is_right


def test_a_result_of_another_rank_is_no_place() -> None:
    x = torch.tensor([[2, 1, 2, 0]])
    case = verdicts.Case("median", Call(torch.median, Wrong), x.median(), [x.median()])
    case.call.tensors = [x]
    assert verdicts._with_ties(case, x.median()) is case.expected


def test_verdicts_are_kept_with_how_many_samples_there_are(
    tmp_path: Path,
) -> None:
    path = tmp_path / "verdicts.json"
    one, other = ("add", "f32", "static"), ("sub", "f32", "dynamic")
    kept.keep(path, {one: [("native", "")]}, {one: 2})
    kept.keep(path, {other: [("refused", "why")]}, {other: 30})
    assert kept.read(path) == (
        {one: [["native", ""]], other: [["refused", "why"]]},
        {one: 2, other: 30},
    )


def _keep_some(path: Path, op: str) -> None:
    for n in range(20):
        kept.keep(path, {(op, str(n), "static"): [("native", "")]}, {})


def test_processes_that_keep_verdicts_at_once_lose_none(tmp_path: Path) -> None:
    path, ops = tmp_path / "verdicts.json", ("add", "sub", "mul")
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=_keep_some, args=(path, op)) for op in ops]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len(kept.read(path)[0]) == 20 * len(ops)


def test_what_is_due() -> None:
    cell, key = Cell("add", "f32"), ("add", "f32", "static")
    for again, limit, rows, wanted in (
        ("bad", 2, [("native", "")] * 2, False),
        ("bad", 2, [("differs", "")] * 2, True),
        ("bad", 2, [("fallback", "")] * 2, False),
        ("fallback", 2, [("native", ""), ("fallback", "")], True),
        ("fallback", 2, [("native", "")] * 2, False),
        ("more", 9, [("native", "")] * 2, True),
        ("more", 2, [("native", "")] * 2, False),
        ("more", 9, [("native", "")] * 3, False),  # it has no more samples
        ("all", 2, [("native", "")], True),
    ):
        options = SimpleNamespace(again=again, limit=limit)
        assert coverage._is_due(options, {key: rows}, {key: 3}, "static", cell) is wanted
    options = SimpleNamespace(again="more", limit=9)
    assert coverage._is_due(options, {key: [("native", "")]}, {}, "static", cell)  # nobody knows how many


def test_verdicts_kept_with_limits_can_be_read(tmp_path: Path) -> None:
    """Fewer verdicts than the limit are of all samples there are."""
    path = tmp_path / "verdicts.json"
    rows = {"add f32 static": [["native", ""]], "sub f32 static": [["native", ""]]}
    path.write_text(json.dumps({"verdicts": rows, "limits": {"add f32 static": 2, "sub f32 static": 1}}))
    assert kept.read(path)[1] == {("add", "f32", "static"): 1}


def test_the_guilty_case_of_a_group_is_named() -> None:
    """In company of a call that PyTorch does and of one that is wrong, a third one is native."""
    calls = [[Call(function, Wrong)] for function in (_eigenvalues, torch.neg, _lies)]
    cells = [Cell(name, "f32") for name in ("eigenvalues", "neg", "wrong")]
    found = verdicts.judge_group(cells, calls, "dynamic")
    assert [case.verdict for (case,) in found] == ["fallback", "native", "differs"]


def _eigenvalues(x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.eigvalsh(torch.outer(x, x))


def _lies(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if torch.compiler.is_exporting() else x + 1.5


def test_the_page_counts_samples(
    infos: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coverage, "KEPT", tmp_path / "verdicts.json")
    keys = [("add", "f32", mode) for mode in verdicts.MODES]
    found = dict(zip(keys, ([("native", "")] * 3, [("native", "")]), strict=True))
    totals = {keys[0]: 3}  # as many as in the other mode
    coverage.count(found, totals, infos)
    text = " ".join(page.page(found, totals, infos).split())
    assert "are judged, 1 on all their samples: 3 of 3 samples, of which 3 count." in text
    assert "are judged, 0 on all their samples, the others on 1 to 1, evenly chosen: 1 of 3 samples," in text


def test_families_are_known() -> None:
    for name, wanted in (
        ("fft.fft", "fft and complex"),
        ("conv2d", "convolution"),
        ("sort", "sort and search"),
    ):
        assert family(name) == wanted and wanted in dict(FAMILIES)
