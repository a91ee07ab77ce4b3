"""All strategies, tiers, kinds of buckets and numbers of threads: the same bits along every stream."""

import itertools

import numpy as np
import pytest
import torch
from shapevm.vm.artifact import read, write
from shapevm.vm.host import get_threads

import shapevm
from shapevm.promises.samples import sample_inputs
from shapevm.promises.stress import STREAMS, shapes
from shapevm.specialise.buckets import add_cells, cells
from shapevm.specialise.kernel_store import open_store

WIDTH, BATCH, LENGTH = 48, 6, 40
#: Sizes, ranges, what is left up to a size, multiples, rounding up: each alone, then over two sizes.
BUCKETS = {
    "size": {"length": [1, 7, 16]},
    "range": {"length": [(2, 9), (10, 40)]},
    "max": {"length": ["max 14", "max 40"]},
    "multiple": {"length": ["multiple 8", "multiple 3"]},
    "round": {"length": ["round 16"]},
    "rounds": {"batch": [1, "round 4"], "length": ["round 8 to 24", "round 16"]},
    "product": {"batch": [2, "max 6"], "length": [5, (6, 14), "multiple 4", (15, 40)]},
}
N_CALLS = 14


class Encoder(torch.nn.Module):
    """A matrix product, attention, reductions along both sizes; amax(0) needs a batch."""

    def __init__(self):
        super().__init__()
        self.wide = torch.nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x):
        q, k, v = self.wide(x).split(WIDTH, -1)
        h = torch.nn.functional.scaled_dot_product_attention(q, k, v) + x
        h = torch.nn.functional.gelu(h) / h.square().mean(-1, keepdim=True).add(1).sqrt()
        return h, h.sum(1), h.amax(0)


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory):
    """Artifacts by the kind of their buckets; "": without any."""
    folder = tmp_path_factory.mktemp("bits")
    torch.manual_seed(0)
    model, x = Encoder().eval(), torch.randn(2, 5, WIDTH)
    batch, length = torch.export.Dim("batch", min=1, max=BATCH), torch.export.Dim("length", min=0, max=LENGTH)
    with shapevm.compile(model, (x,), dynamic_shapes=({0: batch, 1: length},), strategy="generic") as exe:
        exe.save(folder / ".svm")
    program, store = read(folder / ".svm"), open_store()
    for kind, buckets in BUCKETS.items():
        found = add_cells(program, store, cells(buckets, program.symbols))
        write(found, folder / f"{kind}.svm")
    return {kind: folder / f"{kind}.svm" for kind in ("", *BUCKETS)}


@pytest.fixture
def programs(artifacts):
    """Loaded programs by strategy, those with buckets by kind."""
    with shapevm.settings.scope(compile_budget=0, hot_calls=1):
        found = {name: shapevm.load(artifacts[""], strategy=name) for name in ("generic", "jit", "auto")}
        found |= {kind: shapevm.load(artifacts[kind], strategy="bucket") for kind in BUCKETS}
        found["auto with buckets"] = shapevm.load(artifacts["product"], strategy="auto")
    yield found
    for exe in found.values():
        exe.close()


def bits(exe, inputs, strategy=None):
    call = exe.machine.call if strategy is None else lambda xs: exe.machine.call_as(strategy, xs)
    return [np.asarray(result).tobytes() for result in call(inputs)]


@pytest.fixture
def threads():
    """Set the number of threads; it is set back afterwards."""
    before = get_threads()
    yield shapevm.set_threads
    shapevm.set_threads(before)


@pytest.mark.parametrize("stream", STREAMS)
def test_the_same_bits(programs, threads, stream):
    plain = programs["generic"].machine
    for sizes in itertools.islice(shapes(plain.symbols, stream, seed=3), N_CALLS):
        inputs = sample_inputs(plain.inputs, plain.symbols, sizes, seed=1)
        threads(1)
        expected = bits(programs["generic"], inputs)
        for n, (name, exe) in itertools.product((1, 2, 5), programs.items()):
            threads(n)
            assert bits(exe, inputs) == expected, (name, n, sizes)
            assert bits(exe, inputs, "generic") == expected, (name, n, sizes, "generic")
    assert programs["auto"].wait_until_specialised(timeout=600)
    threads(2)
    assert bits(programs["auto"], inputs) == expected
    tiers = {name: {e.tier for _, e in exe.stats().entries if e.dims} for name, exe in programs.items()}
    assert tiers["generic"] == {"generic"} and tiers["jit"] == {"exact"} and "exact" in tiers["auto"]
    assert any("bucket" in tiers[kind] for kind in BUCKETS)


def test_every_kind_of_bucket_is_met(programs):
    machine = programs["generic"].machine
    met = {kind: set() for kind in BUCKETS}
    for batch, length in itertools.product((1, 3), range(LENGTH + 1)):
        inputs = sample_inputs(machine.inputs, machine.symbols, {"batch": batch, "length": length}, seed=2)
        expected = bits(programs["generic"], inputs)
        for kind in BUCKETS:
            assert bits(programs[kind], inputs) == expected, (kind, batch, length)
            met[kind] |= {e.tier for _, e in programs[kind].stats().entries}
    assert all("bucket" in tiers for tiers in met.values()), met
    assert "generic" in met["size"] and "generic" in met["multiple"], met
    assert all("generic" not in met[kind] for kind in ("max", "round", "rounds")), met
