"""Which of a family's ways to compute each kernel takes: a fast path that is silently off fails here."""

from __future__ import annotations

from dataclasses import replace

import pytest
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.families.attention.attention import BLOCKS
from shapevm.jit.families.conv.conv import VARIANTS
from shapevm.jit.families.matmul import variants
from shapevm.jit.families.matmul.spec import ProductSpec
from shapevm.jit.families.nest import nest
from shapevm.jit.families.sort import sort as sort_variants
from shapevm.jit.spec import Dim, KernelSpec
from shapevm.vm.objects import parse_object, serialise_object

from .. import nests
from .attention.test_attention import attention
from .attention.test_segments import segmented
from .conv import test_conv, test_depthwise, test_planes, test_winograd, test_winograd_bytes
from .conv.test_quads import of_bytes
from .matmul import test_pairs, test_quads
from .matmul.test_grouped import product
from .matmul.test_matmul import M, batched, dense, with_prologue
from .nest import test_columns
from .sort.test_sort import sort

V3, V4 = "x86-64-v3", "x86-64-v4"
VNNI, AMX = "x86-64-v4-vnni", "x86-64-v4-amx"
Case = tuple[KernelSpec, tuple[int, ...] | None, str, str]
WEIGHT = dense(M, 384, 384)
NARROW = replace(
    WEIGHT, buffers=(WEIGHT.buffers[0], replace(WEIGHT.buffers[1], dtype="bf16"), *WEIGHT.buffers[2:])
)
SQUARE = test_conv.conv("3x3", "panels")
SIDE_BY_SIDE = replace(SQUARE, window=replace(SQUARE.window, stride=(3, 3)))


def on_tiles(spec: ProductSpec) -> ProductSpec:
    """Return `spec` with rows of f32 that AMX tiles may multiply."""
    return replace(spec, bf16x6=True)


CASES: dict[str, Case] = {
    # products with a weight in panels
    "one row": (dense(M, 384, 384), (1,), V4, "gemv panels"),
    "few rows": (dense(M, 384, 384), (8,), V4, "gemv panels"),
    "few rows, AVX2": (dense(M, 384, 384), (4,), V3, "gemv panels"),
    "many rows": (dense(M, 384, 384), (128,), V4, "panels"),
    "many rows, AVX2": (dense(M, 384, 384), (128,), V3, "panels"),
    "many rows, AMX": (on_tiles(dense(M, 384, 384)), (128,), AMX, "amx"),
    "many rows, AMX, as few": (dense(M, 384, 384), (128,), AMX, "panels"),
    "too few rows for AMX": (on_tiles(dense(M, 384, 384)), (64,), AMX, "panels"),
    "sums too short for AMX": (on_tiles(dense(M, 384, 40)), (128,), AMX, "panels"),
    "any rows": (dense(M, 384, 384), None, V4, "gemv panels"),
    "any rows, AMX": (on_tiles(dense(M, 384, 384)), None, AMX, "amx gemv panels"),
    "rows that may be zeros": (
        replace(dense(M, 384, 384), skips_zeros=True),
        None,
        V4,
        "zero-rows gemv panels",
    ),
    "a weight that registers hold": (dense(M, 16, 16), (64,), V4, "register-resident"),
    "a weight that registers do not hold": (dense(M, 33, 16), (64,), V4, "panels"),
    "a narrow weight, many rows": (NARROW, (128,), V4, "widened"),
    "a narrow weight, any rows": (NARROW, None, V4, "gemv panels widened"),
    "a narrow weight, many rows, AMX": (on_tiles(NARROW), (128,), AMX, "amx"),
    "a narrow weight, any rows, AMX": (on_tiles(NARROW), None, AMX, "amx gemv panels widened"),
    "bytes, many rows": (test_quads.product(64, 384), (128,), VNNI, "panels"),
    "bytes, many rows, AMX": (test_quads.product(64, 384), (128,), AMX, "amx-bytes"),
    "bytes, few rows, AMX": (test_quads.product(64, 384), (4,), AMX, "gemv panels"),
    "bytes, any rows, AMX": (test_quads.product(64, 384), None, AMX, "amx-bytes gemv panels"),
    "pairs, one row": (test_pairs.product(64, 384), (1,), V4, "gemv panels"),
    "pairs, any rows": (test_pairs.product(64, 384), None, V4, "gemv panels"),
    "pairs, one row, AMX": (test_pairs.product(64, 384), (1,), AMX, "amx-bytes"),
    "pairs, any rows, AMX": (test_pairs.product(64, 2, computed=True), None, AMX, "amx-bytes"),
    "int4 in groups, many rows": (product(224, 64, (7, 2, 640)), (128,), V4, "grouped"),
    "int4 in groups, any rows": (product(224, 64, (7, 2, 640)), None, V4, "gemv grouped"),
    "int4 in groups, AMX": (on_tiles(product(224, 64, (7, 2, 640))), (128,), AMX, "amx-groups"),
    "int4 in groups, any rows, AMX": (
        on_tiles(product(224, 64, (7, 2, 640))),
        None,
        AMX,
        "amx-groups gemv grouped",
    ),
    # products of two tensors
    "rows": (batched(0, (2, 3, 50, 64, 32)), (), V4, "packed"),
    "rows of one row tile": (batched(0, (2, 3, 5, 64, 32)), (), V4, "in-place"),
    "rows of any number": (batched(5, tuple(map(Dim, range(5)))), None, V4, "packed in-place"),
    "a prologue": (with_prologue(), None, V4, "panels"),
    # convolutions
    "3x3": (SQUARE, (2, 9, 9, 126), V4, "indirection panels"),
    "3x3, AVX2": (SQUARE, (2, 9, 9, 126), V3, "indirection panels"),
    "3x3, AMX": (SQUARE, (2, 9, 9, 126), AMX, "indirection panels"),
    "3x3 side by side, AMX": (on_tiles(SIDE_BY_SIDE), (2, 9, 9, 126), AMX, "patches amx"),
    "3x3 of bytes": (of_bytes("3x3"), (2, 9, 9, 126), VNNI, "indirection panels"),
    "3x3 of bytes, AMX": (of_bytes("many channels"), (2, 4, 4, 32), AMX, "patches amx-bytes"),
    "winograd of bytes": (test_winograd_bytes.conv(test_winograd_bytes.CASES[0]), (), VNNI, "winograd-bytes"),
    "winograd": (test_winograd.static(1, 28), (), V4, "winograd"),
    "winograd, small images": (test_winograd.static(1, 4), (), V4, "indirection panels"),
    "winograd, a small image of many channels": (
        test_winograd.static(1, 7, 64, 64),
        (),
        V4,
        "sorted-rows panels",
    ),
    "winograd, any images": (test_winograd.conv(16, 32), None, V4, "indirection winograd panels"),
    "planes": (test_planes.conv("stem"), None, V4, "planes"),
    "depthwise": (test_depthwise.conv("3x3"), None, V4, "depthwise"),
    # attention
    "few keys": (attention(64, 64), (1, 2, 64, 64), V4, "one-block values-in-place"),
    "keys of one block": (attention(64, 64), (1, 2, 64, 512), V4, "one-block values-packed"),
    "keys of several blocks": (attention(64, 64), (1, 2, 64, 513), V4, "online values-packed"),
    "a single query": (attention(64, 64), (1, 2, 1, 2000), V4, "online values-in-place"),
    "segments": (segmented(64, 64), (3, 2, 64, 99, 4), V4, "segments one-block values-in-place"),
    "long segments": (segmented(64, 64), (3, 2, 513, 999, 4), V4, "segments online values-packed"),
    # nests
    "pointwise": (nests.gelu(), (8, 512), V4, "pointwise"),
    "rows of sums": (nests.layer_norm(), (8, 384), V4, "rows"),
    "columns of sums": (test_columns.reduction("reduce.sum"), (64, 8), V4, "columns"),
    "a transposition": (nests.transpose(), (64, 64), V4, "tiled-transpose overlapping"),
    "a transposition, any sizes": (nests.transpose(), None, V4, "tiled-transpose"),
    "a transposition of twelve columns": (nests.transpose(), (12, 64), V4, "layout-change"),
    "a transposition of a few columns": (nests.transpose(), (8, 64), V4, "narrow-transpose"),
    "an output larger than the caches": (nests.copy(), (4096, 4096), V4, "pointwise nontemporal"),
    "large rows": (nests.softmax(), (4096, 4096), V4, "rows nontemporal"),
    # sorting
    "short rows": (sort(), (3, 40, 5), V4, "ranks"),
    "the first few": (sort(), (3, 4000, 5), V4, "first-few"),
    "whole rows": (sort(), (3, 4000, 4000), V4, "radix"),
}


@pytest.mark.parametrize("name", CASES)
def test_variant(name: str) -> None:
    spec, dims, target, wanted = CASES[name]
    assert set(compile_kernel(spec, dims, target).variants) == set(wanted.split())


def test_every_variant_has_a_case() -> None:
    known = {name for _, _, _, wanted in CASES.values() for name in wanted.split()}
    tables = variants.RUNS[:-1], variants.TILES, BLOCKS, VARIANTS[:-1], sort_variants.VARIANTS, nest.VARIANTS
    without = {variant.name for table in tables for variant in table} - known
    assert not without, f"CASES has no kernel that takes {', '.join(sorted(without))}"


def test_records_keep_variants() -> None:
    made = compile_kernel(dense(M, 384, 384), None, V4)
    kept = parse_object(serialise_object(made))
    assert kept.variants == made.variants and "gemv" in kept.variants
    assert kept.schedule == f"{made.schedule_name} {' '.join(made.variants)}"
