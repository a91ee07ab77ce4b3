"""Buckets: which kernels a range makes, which code a launch takes, the same bits under every strategy."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from shapevm.vm.artifact import read
from shapevm.vm.load_options import CacheLimits
from shapevm.vm.program import SizeRange as R
from shapevm.vm.program import Symbol
from shapevm.vm.sizes import kernel_keys

import shapevm
from shapevm.program import opening
from shapevm.specialise.buckets import cells, keys_of_buckets, parse_buckets

ROWS, WIDTH = Symbol("rows", 1, 512), Symbol("width", 8, None, 8)


def net(self, x):
    h = torch.softmax(x @ self.weight + 1, -1)
    return h.sum(0), h[: h.shape[0] // 2]


class Net(torch.nn.Module):
    forward = net

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.weight = torch.nn.Parameter(torch.randn(24, 40))


OPTIONS = {"dynamic_shapes": ({0: torch.export.Dim("rows", min=1, max=512)},)}


def rows(n):
    return np.random.default_rng(n).standard_normal((n, 24), dtype=np.float32)


def bits(results):
    return [x.tobytes() for x in results]


@pytest.mark.parametrize(
    ("items", "found"),
    [
        ([16, 32, (33, 128), "max 512"], [16, 32, R(33, 128), R(129, 512)]),
        (["multiple 8"], [R(8, 512, 8)]),
        (["4..9", "10..30/5", (7, 7)], [R(4, 9), R(10, 30, 5), 7]),
        (["max16", "max 20", "100.."], [R(1, 16), R(17, 20), R(100, 512)]),
        (["round 128"], [R(1, 128), R(129, 256), R(257, 384), R(385, 512)]),
        ([1, (2, 20), "round 16 to 40", "max 512"], [1, R(2, 20), R(21, 32), R(33, 40), R(41, 512)]),
        (["round1to3"], [1, 2, 3]),
    ],
)
def test_items(items, found):
    assert [cell["rows"] for cell in cells({"rows": items}, [ROWS])] == found


def test_products_in_order_and_multiples_of_the_contract():
    made = cells({"rows": [1, (2, 8)], "width": [16, "max 64"]}, [ROWS, WIDTH])
    assert made == [{"rows": r, "width": w} for r, w in itertools.product((1, R(2, 8)), (16, R(24, 64, 8)))]
    assert cells({"width": ["multiple 12"]}, [ROWS, WIDTH]) == [{"width": R(24, None, 24)}]
    made = cells({"width": ["round 12 to 40"]}, [ROWS, WIDTH])
    assert [cell["width"] for cell in made] == [8, R(16, 24, 8), 32, 40]


@pytest.mark.parametrize(
    ("buckets", "message"),
    [
        ({"length": [3]}, "no size is named 'length'; the program has rows, width"),
        ({"rows": [0]}, r"the item 0; the program takes 1..512"),
        ({"rows": [(500, 600)]}, r"the item \(500, 600\); the program takes 1..512"),
        ({"rows": [(9, 3)]}, r"the item \(9, 3\)"),
        ({"rows": ["about 3"]}, "an item is a size, a pair"),
        ({"rows": [True]}, "an item is a size, a pair"),
        ({"rows": ["multiple 0"]}, "multiples are of 1 or more"),
        ({"rows": ["round 0"]}, "sizes round up to multiples of 1 or more"),
        ({"rows": ["round 16 to 600"]}, "the item 'round 16 to 600'; the program takes 1..512"),
        ({"rows": ["max 512", "round 16"]}, "behind 512, which leaves no sizes up to 512; put it before"),
        ({"width": ["round 16"]}, 'no greatest size; say where it ends: "round 16 to 512"'),
        ({"width": ["round 1 to 9000"]}, "8993 buckets; at most 4096 are allowed: round up to a greater"),
        ({"rows": ["round 2"], "width": ["round 8 to 999"]}, "31744 cells; at most 4096 are allowed: take"),
        ({"rows": "16"}, "it must be a list"),
        ({"width": [12]}, "the program takes 8.., a multiple of 8"),
        ({"rows": list(range(1, 101)), "width": [8 * n for n in range(1, 101)]}, "10000 cells; at most 4096"),
    ],
)
def test_buckets_that_cannot_be(buckets, message):
    with pytest.raises(shapevm.ArgumentError, match=message):
        cells(buckets, [ROWS, WIDTH])


def test_the_command_lines_form():
    texts = ["rows=16,33..128", "width=multiple16", "rows=max512"]
    assert parse_buckets(texts) == {"rows": ["16", "33..128", "max512"], "width": ["multiple16"]}
    with pytest.raises(shapevm.ArgumentError, match="'rows' must look like"):
        parse_buckets(["rows"])


def test_too_many_kernels_are_refused(bucketed, monkeypatch):
    monkeypatch.setattr("shapevm.specialise.buckets.MAX_KERNELS", 9)
    assert keys_of_buckets(read(bucketed), {"rows": ["round 256"]})[1].endswith(" kernels for 2 buckets")
    with pytest.raises(shapevm.ArgumentError, match="kernels for 512 buckets; at most 9 are compiled: take"):
        keys_of_buckets(read(bucketed), {"rows": ["round 1"]})


@pytest.fixture(scope="module")
def bucketed(tmp_path_factory):
    path = tmp_path_factory.mktemp("buckets") / "net.svm"
    buckets = {"rows": [7, (8, 63), "128..512/32"]}
    with shapevm.compile(
        Net(), (torch.randn(3, 24),), **OPTIONS, options=shapevm.Options(buckets=buckets), strategy="generic"
    ) as exe:
        exe.save(path)
    return path


def test_keys_are_of_the_launches_dims(bucketed):
    program = read(bucketed)
    for n in (1, 7, 100):
        with shapevm.load(bucketed, strategy="generic") as exe:
            exe(rows(n))
            launched = {(k, e.dims) for k, e in exe.stats().entries if e.dims}
        assert set(kernel_keys(program, {"rows": n})) == launched
    ranges = kernel_keys(program, {"rows": R(8, 63)})
    assert len(ranges) == len(kernel_keys(program, {"rows": 9}))
    for n in range(8, 64):
        for (k, dims), (same, key) in zip(kernel_keys(program, {"rows": n}), ranges, strict=True):
            assert k == same and all(
                size == r if isinstance(r, int) else size in r for size, r in zip(dims, key, strict=True)
            )


def test_exact_then_bucket_then_generic(bucketed):
    tiers = {
        7: "exact",
        8: "bucket",
        63: "bucket",
        64: "generic",
        128: "bucket",
        130: "generic",
        160: "bucket",
    }
    with shapevm.load(bucketed, strategy="bucket") as exe:
        for n, tier in tiers.items():
            before = exe.stats()
            exe(rows(n)), exe(rows(n)), exe(rows(n))
            assert exe.stats().since(before).tier() == tier, n
        sites = [exe.machine.site(k) for k in range(len(exe.machine.kernels))]
        assert {site.outside for site in sites if site.entries[0].dims} == {2}
        assert exe.stats().compiled == 0


def test_every_strategy_gives_the_same_bits(bucketed):
    with shapevm.load(bucketed, strategy="bucket") as exe:
        for n in (1, 7, 8, 40, 63, 64, 128, 130, 160, 512):
            found = [bits(exe(rows(n)))]
            for strategy in ("generic", "bucket", "auto", "jit", "generic"):
                found.append(bits(exe.using(strategy)(rows(n))))
            assert all(x == found[0] for x in found), n
        with pytest.raises(shapevm.ArgumentError, match="strategy 'fast' is unknown"):
            exe.using("fast")


def test_a_call_under_jit_compiles_for_itself(bucketed):
    with shapevm.load(bucketed, strategy="generic") as exe:
        assert exe.using("jit")(rows(77)) is not None
        assert {e.tier for _, e in exe.stats().entries if e.dims} == {"generic"}  # what the program's runs
        exe.machine.set_strategy("bucket")
        assert exe.stats().tier() == "exact"


def test_evicted_code_leaves_the_bucket(bucketed, monkeypatch):
    options = opening.machine_options
    caches = CacheLimits(code_bytes_max=1 << 16)
    monkeypatch.setattr(opening, "machine_options", lambda *a: replace(options(*a), caches=caches))
    with shapevm.load(bucketed, strategy="jit") as exe, shapevm.load(bucketed, strategy="generic") as plain:
        for n in range(8, 64):
            assert bits(exe(rows(n))) == bits(plain(rows(n)))
        assert exe.machine.stats()["code_evicted"] > 0
        assert {e.tier for _, e in exe.stats().entries if e.dims} == {"exact", "bucket"}


def test_buckets_are_in_the_artifact(bucketed):
    program = read(bucketed)
    keys = {key for kernel in program.kernels for o in kernel.objects if (key := o.key) is not None}
    assert (7,) in keys and (R(8, 63),) in keys and (R(128, 512, 32),) in keys
