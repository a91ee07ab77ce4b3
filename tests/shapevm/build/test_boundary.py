"""Sizes 0 and 1: where the model does something else there, compiling says so."""

import logging

import pytest
import torch
from shapevm.vm import artifact, reader

import shapevm
from shapevm.build import boundary, build
from shapevm.build.boundary import agree


class Branches(torch.nn.Module):
    def forward(self, x):
        return x * 2 if x.shape[0] == 1 else x + 1


class FailsAtZero(torch.nn.Module):
    def forward(self, x):
        return x - x.amax(0)


class Same(torch.nn.Module):
    def forward(self, x, y):
        return x + y


def rows(least):
    return {0: torch.export.Dim("rows", min=least, max=64)}


def test_a_branch_at_one_is_refused():
    with pytest.raises(shapevm.ShapeError, match=r"at rows = 1 .*another way.*Dim\('rows', min=2\)"):
        shapevm.compile(Branches(), (torch.randn(5, 3),), dynamic_shapes=(rows(1),))


def test_a_bound_that_keeps_it_out_is_fine():
    x = torch.randn(5, 3)
    exe = shapevm.compile(Branches(), (x,), dynamic_shapes=(rows(2),))
    torch.testing.assert_close(exe(x), x + 1)
    with pytest.raises(shapevm.ShapeError):
        exe(x[:1])


def test_a_model_that_fails_at_zero_says_so():
    with pytest.raises(shapevm.ShapeError, match=r"at rows = 0 the model itself fails"):
        shapevm.compile(FailsAtZero(), (torch.randn(5, 3),), dynamic_shapes=(rows(0),))


def test_sizes_0_and_1_are_ordinary_elsewhere():
    x, y = torch.randn(5, 3), torch.randn(5, 3)
    exe = shapevm.compile(Same(), (x,), {"y": y}, dynamic_shapes={"x": rows(0), "y": rows(0)})
    for n in (0, 1, 5):
        torch.testing.assert_close(exe(x[:n], y=y[:n]), x[:n] + y[:n])


def test_the_program_is_not_read_from_its_file(monkeypatch):
    def fail(data):
        raise AssertionError("all weights would be hashed")

    monkeypatch.setattr(reader, "from_bytes", fail)
    x, y = torch.randn(5, 3), torch.randn(5, 3)
    exe = shapevm.compile(Same(), (x, y), dynamic_shapes=(rows(1), rows(1)))
    torch.testing.assert_close(exe(x[:1], y[:1]), x[:1] + y[:1])


# Ranges that nobody gave --------------------------------------------------------------------------

AUTO, DYNAMIC = torch.export.Dim.AUTO, torch.export.Dim.DYNAMIC


class Pools(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.max_pool2d(x, 2)


class NeedsRows(torch.nn.Module):
    def forward(self, x):
        return x + x[:1]


def exported(model, *args, hint=AUTO):
    shapes = tuple(dict.fromkeys(range(x.dim()), hint) for x in args)
    return torch.export.export(model, args, dynamic_shapes=shapes)


def said(caplog):
    return [record for record in caplog.records if record.name == "shapevm"]


def kept(tmp_path, program):
    torch.export.save(program, tmp_path / "model.pt2")
    return str(tmp_path / "model.pt2")


@pytest.mark.parametrize("hint", [AUTO, DYNAMIC])
@pytest.mark.parametrize("door", ["program", "file", "module"])
def test_sizes_that_nobody_gave_may_be_0_and_1(door, hint, tmp_path):
    x = torch.randn(5, 3)
    shapes = {"x": {0: hint, 1: hint}, "y": {0: hint, 1: hint}}
    if door == "module":
        exe = shapevm.compile(Same(), (x, x), dynamic_shapes=shapes)
    else:
        program = exported(Same(), x, x, hint=hint)
        exe = shapevm.compile(kept(tmp_path, program) if door == "file" else program)
    for n in (0, 1, 2, 5):
        torch.testing.assert_close(exe(x[:n], x[:n]), x[:n] * 2)
        torch.testing.assert_close(exe(x[:, :n], x[:, :n]), x[:, :n] * 2)


def test_a_range_that_nobody_gave_is_the_one_that_works(caplog):
    x = torch.randn(5, 3)
    exe = shapevm.compile(Branches(), (x,), dynamic_shapes=({0: AUTO},))
    assert "size s0 is at least 2: at 1 the model takes another way" in caplog.text
    torch.testing.assert_close(exe(x[:2]), x[:2] + 1)
    with pytest.raises(shapevm.ShapeError, match="must be at least 2 .at 1 the model takes another way"):
        exe(x[:1])


def test_it_is_so_for_exported_programs(caplog):
    caplog.set_level("INFO", "shapevm")
    x = torch.randn(2, 3, 8, 8)
    exe = shapevm.compile(exported(Pools(), x))
    assert [symbol.min for symbol in exe.machine.symbols] == [0, 1, 2, 2]
    assert caplog.text.count("at 1 the model itself fails (RuntimeError: Given input size") == 2
    assert {record.levelname for record in said(caplog)} == {"INFO"}
    for shape in ((0, 3, 8, 8), (1, 1, 4, 5)):
        torch.testing.assert_close(exe(x.new_ones(shape)), Pools()(x.new_ones(shape)))


def test_what_the_program_alone_refuses_is_said_at_once(caplog):
    x = torch.randn(5, 3)
    exe = shapevm.compile(NeedsRows(), (x,), dynamic_shapes=({0: AUTO},))
    assert "size s0 is at least 1: at 0 the model works, the program does not (add:" in caplog.text
    torch.testing.assert_close(exe(x[:1]), x[:1] * 2)
    caplog.clear()
    shapevm.compile(NeedsRows(), (x,), dynamic_shapes=(rows(0),))
    assert "at rows = 0 the model works, the program does not (add:" in caplog.text


def test_operators_that_want_a_size_of_one_get_it(monkeypatch):
    """Where 0 cannot be compiled, the range begins at what can be."""
    tried = []
    run = build.import_source

    def refuse(source, options, least, progress):
        tried.append(least)
        if least == 0:
            raise shapevm.ShapeError("no")
        return run(source, options, least, progress)

    monkeypatch.setattr(build, "import_source", refuse)
    exe = shapevm.compile(exported(Same(), torch.ones(5, 3), torch.ones(5, 3)))
    assert tried == [0, 1] and [symbol.min for symbol in exe.machine.symbols] == [1, 1]


def test_bounds_of_hints_hold():
    x = torch.randn(5, 3)
    hint = {0: AUTO(min=2, max=9)}
    exe = shapevm.compile(Same(), (x, x), dynamic_shapes=(hint, hint))
    assert [(symbol.min, symbol.max) for symbol in exe.machine.symbols] == [(2, 9)]


# Data that is cut ---------------------------------------------------------------------------------


class Rows(torch.nn.Module):
    def forward(self, x, i):
        return x[i]


class Graph(torch.nn.Module):
    """Sums what comes along edges [2, edges] between rows."""

    def forward(self, x, edges):
        return torch.zeros_like(x).index_add(0, edges[1], x[edges[0]] * 2)


class Bags(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = torch.nn.EmbeddingBag(10, 3)

    def forward(self, ids, offsets):
        return self.bag(ids, offsets)


class Picky(torch.nn.Module):
    """Wants data that no cutting makes."""

    def forward(self, x, y):
        if len(x) == 1 and x[0].item() < 1:
            raise ValueError("the element is too small")
        return x + y


def dims(*names):
    return [{0: torch.export.Dim(name, min=0)} for name in names]


def test_indices_that_are_cut_are_not_blamed_on_the_model(caplog):
    x, i = torch.randn(6, 3), torch.tensor([0, 5, 3, 1])
    exe = shapevm.compile(Rows(), (x, i), dynamic_shapes=tuple(dims("n", "k")))
    torch.testing.assert_close(exe(x[:1], i[:1]), x[:1])
    assert exe(x[:0], i[:0]).shape == (0, 3) and not said(caplog)


def test_edges_that_are_cut_are_not_blamed_on_the_model(caplog):
    x, edges = torch.randn(6, 3), torch.tensor([[0, 5, 3, 1], [2, 4, 4, 0]])
    rows, links = torch.export.Dim("rows", min=0), torch.export.Dim("links", min=0)
    exe = shapevm.compile(Graph(), (x, edges), dynamic_shapes=({0: rows}, {1: links}))
    for given in ((x[:1], edges[:, :0]), (x, edges[:, :1]), (x[:1], edges[:, :1] * 0)):
        torch.testing.assert_close(exe(*given), Graph()(*given))
    assert not said(caplog)


@pytest.mark.as_given  # offsets that fall have no result
def test_offsets_that_are_cut_are_not_blamed_on_the_model(caplog):
    model, ids, offsets = Bags(), torch.tensor([1, 7, 3, 3, 0]), torch.tensor([0, 2, 4])
    shapes = ({0: torch.export.Dim("n", min=0)}, {0: torch.export.Dim("bags", min=1)})
    exe = shapevm.compile(model, (ids, offsets), dynamic_shapes=shapes)
    torch.testing.assert_close(exe(ids[:1], offsets[:1]), model(ids[:1], offsets[:1]))
    assert not said(caplog)


def test_what_cannot_be_checked_is_said(caplog):
    x = torch.tensor([0.0, 1.0, 2.0])
    with shapevm.compile(Same(), (x, x), dynamic_shapes=({0: AUTO}, {0: AUTO})) as exe:
        program = artifact.read(exe.artifact)
        found = boundary.check_boundaries(exe, program, boundary.Reference(Picky(), (x, x), {}))
    assert found == {} and "size s0 = 1 is not checked: the model fails on the example" in caplog.text


# Sizes that must fit others -----------------------------------------------------------------------


def test_a_size_that_must_fit_others_is_cut_together_with_them():
    class Flattens(torch.nn.Module):
        def forward(self, x, y):
            return x.reshape(-1) + y

    x, y = torch.randn(2, 3), torch.randn(6)
    exe = shapevm.compile(Flattens(), (x, y), dynamic_shapes=({0: AUTO, 1: AUTO}, {0: AUTO}))
    assert [symbol.min for symbol in exe.machine.symbols] == [0, 0, 0]
    for n, m in ((0, 0), (1, 1), (1, 3), (2, 1), (3, 2)):
        x, y = torch.randn(n, m), torch.randn(n * m)
        torch.testing.assert_close(exe(x, y), x.reshape(-1) + y)


def test_sizes_that_torch_does_not_know_to_be_equal_are_cut_together():
    class Modulates(torch.nn.Module):
        def forward(self, x, w):
            groups = x.reshape(1, -1, x.shape[2])
            return torch.nn.functional.conv_transpose1d(groups, w.flatten(0, 1), groups=x.shape[0])

    exe = shapevm.compile(exported(Modulates(), torch.randn(2, 3, 5), torch.randn(2, 3, 4, 1)))
    for n in (1, 2, 3):
        x, w = torch.randn(n, 3, 5), torch.randn(n, 3, 4, 1)
        torch.testing.assert_close(exe(x, w), Modulates()(x, w))


def test_a_guard_on_two_sizes_narrows_neither():
    class Stacks(torch.nn.Module):
        def forward(self, x, y, z):
            return torch.cat([x, y]) * z

    exe = shapevm.compile(exported(Stacks(), torch.randn(4, 3), torch.randn(5, 3), torch.randn(9, 3)))
    for n, m in ((0, 1), (1, 0), (1, 1), (5, 4)):
        x, y, z = torch.randn(n, 3), torch.randn(m, 3), torch.randn(n + m, 3)
        torch.testing.assert_close(exe(x, y, z), torch.cat([x, y]) * z)


def test_an_example_without_elements_is_cut_no_further_than_it_goes():
    """A guard is on the height and the number of images, of which the example has none: that the result is
    empty, as it is."""
    unfold = torch.nn.Unfold(2)
    shapes = (dict.fromkeys(range(4), AUTO),)
    exe = shapevm.compile(unfold, (torch.randn(0, 1, 5, 5),), dynamic_shapes=shapes)
    for height in (5, 2, 7):
        x = torch.randn(0, 1, height, 5)
        torch.testing.assert_close(exe(x), unfold(x))


def test_a_program_that_fails_inside_of_vmap_leaves_nothing_behind():
    class Maps(torch.nn.Module):
        def forward(self, x, y):
            return torch.vmap(lambda a, b: (a * b).sum() + a)(x, y)

    x, y = torch.randn(4, 3), torch.randn(4, 3)
    shapevm.compile(exported(Maps(), x, y), options=shapevm.Options(fallback="error"))
    assert torch._C._functorch.maybe_current_level() is None
    torch.randn(2)


@pytest.mark.as_given
def test_quantised_activations_may_differ_by_steps() -> None:
    """Whether a float is rounded up or down depends on an order of sums, and so do the layers behind."""
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    torch.manual_seed(0)
    layers = [torch.nn.Linear(96, 96) for _ in range(12)]
    model = torch.nn.Sequential(*[m for layer in layers for m in (layer, torch.nn.LayerNorm(96))]).eval()
    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    rows = torch.export.Dim("rows", min=1, max=32)
    with shapevm.compile(model, (torch.randn(7, 96),), dynamic_shapes=({0: rows},)) as exe:
        assert boundary._quantises(exe)
    with shapevm.compile(torch.nn.Linear(4, 4), (torch.randn(2, 4),)) as exe:
        assert not boundary._quantises(exe)


@pytest.mark.as_given  # eager itself ends the process where inputs are cut
def test_segments_that_end_behind_cut_data_are_not_run(caplog: pytest.LogCaptureFixture) -> None:
    """`unsafe=True` lets PyTorch read whatever lies behind: far behind that ends the process."""

    class Segments(torch.nn.Module):
        def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            return torch.segment_reduce(x, "max", lengths=lengths, unsafe=True)

    rows = 40_000_000
    args = torch.randn(rows), torch.tensor([rows - 5, 2, 3])
    shapes = ({0: torch.export.Dim("n", min=0, max=rows)}, None)
    with (
        caplog.at_level(logging.WARNING, "shapevm"),
        shapevm.compile(Segments(), args, dynamic_shapes=shapes) as exe,
    ):
        for given in (args, (args[0][:1], torch.tensor([0, 1, 0]))):
            assert torch.equal(exe(*given), Segments()(*given))
    assert not said(caplog)  # with lengths of 0 it is checked


@pytest.mark.as_given
def test_pivots_and_offsets_outside_of_cut_data_are_not_used() -> None:
    """PyTorch reads and writes wherever they say."""

    class Parts(torch.nn.Module):
        def forward(
            self, lu: torch.Tensor, pivots: torch.Tensor, x: torch.Tensor, offsets: torch.Tensor
        ) -> tuple[torch.Tensor, ...]:
            return *torch.lu_unpack(lu, pivots), torch.segment_reduce(x, "max", offsets=offsets)

    rows = 20_000_000
    pivots = torch.tensor([2, 3, 3], dtype=torch.int32)
    args = torch.randn(3, 5), pivots, torch.randn(rows), torch.tensor([0, rows - 5, rows])
    shapes = ({0: AUTO, 1: AUTO}, {0: AUTO}, {0: AUTO}, None)
    with shapevm.compile(Parts(), args, dynamic_shapes=shapes) as exe:
        for a, b in zip(exe(*args), Parts()(*args), strict=True):
            torch.testing.assert_close(a, b)


def test_results_agree_up_to_rounding():
    def agrees(ours, theirs, precision=2.0**-23, dtype=torch.float32):
        return agree(torch.tensor(ours, dtype=dtype), torch.tensor(theirs, dtype=dtype), precision)

    nan, inf = float("nan"), float("inf")
    assert agrees([1.0, 2.0], [1.0, 2.00004]) and agrees([[]], [[]])
    assert agrees([nan, inf, -1.0], [nan, inf, -1.0])
    assert not agrees([nan, 1.0], [1.0, 1.0]) and not agrees([1.0, 1.0], [1.0, nan])
    assert not agrees([inf, 1.0], [-inf, 1.0]) and not agrees([inf], [1.0])
    assert not agrees([1.0, 2.0], [1.0, 2.1]) and agrees([1000.0, 0.0], [1000.5, 0.05])
    assert agrees([1.0, 2.0], [1.0, 2.1], precision=2.0**-7, dtype=torch.float16)
    assert agrees([1, 2], [1, 2], dtype=torch.int64) and not agrees([1, 2], [1, 3], dtype=torch.int64)
    assert not agree(torch.ones(2), torch.ones(2, 1), 2.0**-23)
    assert not agree(torch.ones(2), torch.ones(2).double(), 2.0**-23)


# What PyTorch does not check ----------------------------------------------------------------------


def test_ties_are_no_other_way(caplog):
    class Best(torch.nn.Module):
        def forward(self, x):
            return torch.topk(x, 2, dim=1).indices

    for shapes in (({0: AUTO},), (rows(1),)):
        with shapevm.compile(Best(), (torch.zeros(3, 8),), dynamic_shapes=shapes) as exe:
            x = torch.randn(1, 8)
            assert torch.equal(exe(x), Best()(x))
    assert not said(caplog)


def test_a_model_that_ends_its_process_at_a_small_size_is_compiled():
    class Unpacks(torch.nn.Module):
        def forward(self, lu, pivots):
            return torch.lu_unpack(lu, pivots)

    a = torch.linalg.lu_factor(torch.randn(3, 4, 4))
    shapes = ({0: AUTO, 1: AUTO, 2: AUTO}, {0: AUTO, 1: AUTO})
    with shapevm.compile(Unpacks(), tuple(a), dynamic_shapes=shapes) as exe:
        for found, expected in zip(exe(*a), torch.lu_unpack(*a), strict=True):
            torch.testing.assert_close(found, expected)
