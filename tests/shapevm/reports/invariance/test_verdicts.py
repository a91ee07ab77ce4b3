"""What `invariance` says of small models: along which sizes each row's results are its own, and what forbids
it, by operator and line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from shapevm.compiler.ir.text import parse
from shapevm.vm.artifact import read
from shapevm.vm.assembler import assemble
from shapevm.vm.program import Program
from torch import Tensor, nn
from torch.export import Dim

import shapevm
from shapevm.build.compile import compile_graphs
from shapevm.reports.invariance.values import BATCH
from shapevm.reports.invariance.verdicts import Verdict, exceptions, verdicts

BATCHES = Dim("batch", min=1, max=64)
LENGTHS = Dim("length", min=1, max=64)


class Model(nn.Module):
    """A function of x [batch, length, 16] with some weights at hand."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.linear, self.norm = nn.Linear(16, 16), nn.LayerNorm(16)
        self.table, self.lstm = nn.Embedding(10, 16), nn.LSTM(16, 8, batch_first=True)
        self.conv = nn.Conv1d(16, 8, 3, padding=1)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.batch_norm = nn.BatchNorm1d(16)

    def forward(self, x: Tensor) -> object:
        return self.function(self, x)


def program_of(functions: dict[str, Callable[..., object]], folder: Path, **options: str) -> Program:
    """Return a program with one result, or several, for each function of (model, x)."""
    model = Model(lambda m, x: {name: function(m, x) for name, function in functions.items()}).eval()
    dynamic = ({0: BATCHES, 1: LENGTHS},)
    given = shapevm.Options(**options)
    with shapevm.compile(model, (torch.randn(3, 5, 16),), dynamic_shapes=dynamic, options=given) as exe:
        exe.save(folder / "model.svm")
    return read(folder / "model.svm")


def found(function: Callable[..., object], symbol: str, folder: Path) -> list[Verdict]:
    """Return the verdicts of a function of (model, x)."""
    return verdicts(program_of({"it": function}, folder), symbol)


OWN = {
    "a row of everything": lambda m, x: m.norm(F.gelu(m.linear(x)) + x).softmax(-1),
    "attention": lambda m, x: m.attention(x, x, x, need_weights=False)[0],
    "sums along the row": lambda m, x: (x.mean(1), x.amax((1, 2)), x.std(1), x.cumsum(1), x.logsumexp(1)),
    "batch norm with fixed statistics": lambda m, x: m.batch_norm(x.transpose(1, 2)),
    "convolution": lambda m, x: m.conv(x.transpose(1, 2)).relu(),
    "lstm": lambda m, x: m.lstm(x)[0],
    "batch behind": lambda m, x: x.permute(1, 2, 0) * 2,
    "batch merged": lambda m, x: (x.reshape(-1, 16) @ m.linear.weight).sum(1),
    "rows twice": lambda m, x: torch.cat([x, x * 2], 0),
    "products of a row": lambda m, x: x @ x.transpose(1, 2),
    "sort and top": lambda m, x: (x.sort(1)[0], x[:, 0].topk(3)[1]),
    "embedding": lambda m, x: m.table((x[..., 0] > 0).long()),
    "scatter in the row": lambda m, x: torch.zeros_like(x).scatter_add(1, (x > 9).long(), x),
    "its own number as an index": lambda m, x: x[:, 0][torch.arange(x.shape[0])],
    "gathers in the row": lambda m, x: (
        x.gather(1, (x > 9).long()), x.median(1)[0], x[torch.arange(x.shape[0]), (x[:, 0, 0] > 9).long()],
    ),
    "a fill": lambda m, x: x.new_zeros(x.shape[0], 4) + 1,
    "the row's length": lambda m, x: x.sum(1) / x.shape[1],
}  # fmt: skip


@pytest.fixture(scope="module")
def own(tmp_path_factory) -> list[Verdict]:
    return verdicts(program_of(OWN, tmp_path_factory.mktemp("own")), "batch")


@pytest.mark.parametrize("name", OWN)
def test_rows_that_are_their_own(name: str, own: list[Verdict]) -> None:
    results = [v for v in own if v.name.split(".")[0] == name]
    assert results
    for verdict in results:
        assert verdict.causes == []
        assert verdict.place is not None
        assert verdict.sizes[verdict.place[0]].value % BATCH == 0


def places(shape: tuple[int, ...], i: Tensor) -> Tensor:
    """Return what a gather reads in the memory of all rows, as numbers."""
    return torch.where((i >= 0) & (i < shape[1]), torch.arange(shape[0]) * shape[1] + i, -7)


FORBIDDEN = {
    "mean": (lambda m, x: x - x.mean(0), ["sum over rows", "uses the number of rows"]),
    "maximum": (lambda m, x: x.amax(0), ["max over rows"]),
    "batch norm in training": (
        lambda m, x: F.batch_norm(x.transpose(1, 2), None, None, training=True), ["sum over rows"],
    ),
    "softmax across": (lambda m, x: x.softmax(0), ["sum over rows", "max over rows"]),
    "products of rows": (lambda m, x: x[:, 0] @ x[:, 0].T, ["pairs rows with each other"]),
    "sort across": (lambda m, x: x.sort(0)[0], ["sorts rows"]),
    "running sum": (lambda m, x: x.cumsum(0), ["running sum over rows"]),
    "division by the number": (lambda m, x: x / x.shape[0], ["uses the number of rows"]),
    "numbers": (lambda m, x: x * torch.arange(x.shape[0])[:, None, None], ["uses the rows' numbers"]),
    "numbers through a maximum": (
        lambda m, x: torch.arange(x.shape[0])[:, None].expand(-1, 4).amax(1), ["uses the rows' numbers"],
    ),
    "rows of a table by their numbers": (
        lambda m, x: x * torch.linspace(0.0, 1.0, 99)[: x.shape[0], None, None], ["uses the rows' numbers"],
    ),
    "places as a result": (lambda m, x: places(x.shape, (x[:, 0, 0] > 9).long()), ["uses the rows' numbers"]),
    "reversed": (lambda m, x: x[x.shape[0] - 1 - torch.arange(x.shape[0])], ["chooses rows by data"]),
    "one row": (lambda m, x: x - x[:1], ["takes some of the rows"]),
    "flip": (lambda m, x: x.flip(0), ["takes some of the rows"]),
    "rows by data": (lambda m, x: x[(x[:, 0, 0] > 99).long()], ["chooses rows by data"]),
    "window": (lambda m, x: m.conv(x.permute(1, 2, 0)), ["slides a window over rows"]),
    "one more row": (lambda m, x: torch.cat([x, x[:1]], 0), ["takes some of the rows", "number of rows"]),
    "regrouped": (lambda m, x: x.reshape(x.shape[1], x.shape[0], 16).sum(0), ["regroups elements"]),
    "attention across": (
        lambda m, x: m.attention(*[x.transpose(0, 1)] * 3, need_weights=False)[0], ["over rows"],
    ),
    "histogram": (lambda m, x: x.new_zeros(4).index_add(0, (x[:, 0, 0] > 0).long(), x[:, 0, 0]), ["rows"]),
}  # fmt: skip


@pytest.fixture(scope="module")
def forbidden(tmp_path_factory) -> list[Verdict]:
    functions = {name: function for name, (function, _) in FORBIDDEN.items()}
    return verdicts(program_of(functions, tmp_path_factory.mktemp("forbidden")), "batch")


@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_forbids_it_is_named_with_its_line(name: str, forbidden: list[Verdict]) -> None:
    _, wanted = FORBIDDEN[name]
    causes = [cause for v in forbidden if v.name.split(".")[0] == name for cause in v.causes]
    assert causes
    for text in wanted:
        assert any(text in cause for cause in causes), causes
    matches = [re.search(r" at (\w+\.py):\d+: ", cause) for cause in causes]
    files = {match and match[1] for match in matches}
    assert files <= {"test_verdicts.py", "activation.py", "conv.py"}, causes


def test_a_copy_for_each_row_is_no_row_of_its_own(tmp_path) -> None:
    """A result has as many rows for each row as there are rows, so none of its axes is one of rows."""
    every = found(lambda m, x: x[:, 0].expand(x.shape[0], -1, -1).reshape(-1, 16).cos(), "batch", tmp_path)
    assert [v.causes for v in every] == [["result it: its sizes are no multiples of the rows"]]


def test_results_are_judged_one_by_one(tmp_path) -> None:
    both = found(lambda m, x: (x * 2, x - x.mean(0), x.sum((0, 1))), "batch", tmp_path)
    assert [bool(v.causes) for v in both] == [False, True, True]


def test_every_symbol_is_judged_for_itself(tmp_path) -> None:
    own = lambda m, x: F.relu(m.linear(x))  # noqa: E731
    assert not found(own, "length", tmp_path)[0].causes
    assert not found(own, "batch", tmp_path)[0].causes
    assert "sum over rows" in found(lambda m, x: x.sum(1), "length", tmp_path)[0].causes[0]


def test_branches_on_the_number_of_rows_and_on_their_data_are_named() -> None:
    text = """
        symbol "n" 1 .. 64
        input "x": f32[s0]
        output "y"
        function "main" (2 params, 1 results)
          line "model.py:3"
          int d=r2 value=4
          lt d=r3 a=r1 b=r2
          branch cond=r3 otherwise=L
          return values=(r0)
        L:
          return values=(r0)
    """
    (verdict,) = verdicts(assemble(text), "n")
    assert verdict.causes == ["a branch at model.py:3: depends on the number of rows"]
    data = text.replace("int d=r2 value=4", "item d=r2 a=r0 at=()").replace("a=r1 b=r2", "a=r2 b=r2")
    (verdict,) = verdicts(assemble(data), "n")
    assert verdict.causes == ["item at model.py:3: reads the data of rows"]


@pytest.mark.parametrize(
    ("begin", "keeps"),
    [
        ("int d=r2 value=0", True),
        ("add d=r2 a=r1 b=r1", False),  # from here on the number of rows may tell which they are
        ("int d=r2 value=2; mul d=r2 a=r1 b=r2", True),
        ("int d=r2 value=1; sub d=r2 a=r1 b=r2; mul d=r2 a=r1 b=r2", False),
        ("mul d=r2 a=r1 b=r1", False),
        ("int d=r2 value=3", False),
    ],
)
def test_parts_that_begin_with_a_first_row_keep_rows(begin: str, keeps: bool) -> None:
    text = f"""
        symbol "n" 1 .. 64
        input "x": f32[9, s0]
        output "y"
        function "main" (2 params, 1 results)
          line "model.py:3"
          {begin.replace(";", chr(10))}
          part d=r3 a=r0 begin=r2 sizes=(r1)
          return values=(r3)
    """
    (verdict,) = verdicts(assemble(text), "n")
    assert verdict.causes == ([] if keeps else ["part at model.py:3: takes some of the rows"])


def test_tokens_of_a_segment_depend_on_each_other(tmp_path: Path) -> None:
    text = """graph "g"
      symbol tokens min=0 multiple_of=1
      symbol heads min=0 multiple_of=1
      symbol n min=1 multiple_of=1
      symbol longest min=1 multiple_of=1
      input %x: f32[tokens, heads, 16]
      input %offsets: i64[n]
      input %like: f32[longest]
      %v0: f32[tokens, heads, 16] = segment_attention(%x, %x, %x, %offsets, none) {scale=0.25, \
longest=longest}
      output %v0 as "y0"
      output %like as "y1"
    """
    with compile_graphs(lambda: [parse(text)]) as exe:
        exe.save(tmp_path / "model.svm")
    program = read(tmp_path / "model.svm")
    found = {name: verdicts(program, name)[0] for name in ("heads", "tokens", "n", "longest")}
    assert found["heads"].causes == [] and found["heads"].place == (1, True)
    assert "segment_attention: pairs rows with each other" in found["tokens"].causes
    assert found["n"].causes == ["segment_attention: takes some of the rows"]
    assert found["longest"].causes == ["segment_attention: uses the number of rows"]


def test_what_pytorch_runs_is_taken_to_mix_rows() -> None:
    text = """
        symbol "n" 1 .. 64
        input "x": f32[s0]
        output "y"
        function "main" (2 params, 1 results)
          line "model.py:7"
          call_packed name="aten::foo" results=(r2) args=(r0)
          return values=(r2)
    """
    (verdict,) = verdicts(assemble(text), "n")
    assert verdict.causes == ["aten::foo at model.py:7: takes all rows"]


def test_products_on_amx_tiles_are_an_exception(tmp_path) -> None:
    """Their bits depend on the number of rows; `inspect` and `prove` report it of an artifact with them."""

    def exceptions_on(target: str, precision: str = "bf16x6") -> list[str]:
        program = program_of({"it": lambda m, x: m.linear(x)}, tmp_path, precision=precision)
        (kernel,) = program.kernels
        objects = tuple(replace(o, target=target) for o in kernel.objects)
        return exceptions(replace(program, kernels=(replace(kernel, objects=objects),)))

    assert exceptions_on("x86-64-v4") == []
    assert exceptions_on("x86-64-v4-amx", precision="f32") == []
    (text,) = exceptions_on("x86-64-v4-amx")
    assert text.startswith("k0 matmul add on x86-64-v4-amx: with 96 rows and more")
