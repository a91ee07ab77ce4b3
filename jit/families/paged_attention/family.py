"""The row of PagedAttention: attention to keys and values in pages of a cache."""

from __future__ import annotations

import math

import numpy as np

from ...decode import refuse
from ...dependence import Launch
from ...evaluation import Evaluation
from ...spec_check import check_ranks
from ..family import Example, Family
from .paged_attention import emit
from .reference import Cache, Rule, paged_attention
from .spec import MAX_HEADS, MAX_SIZE, SCALED, PagedAttention, accesses


def _evaluate(run: Evaluation, spec: PagedAttention) -> None:
    query, keys, values, table, offsets, lengths, *scales = run.inputs()
    rule = Rule(spec.scale, spec.window, spec.soft_cap)
    found = paged_attention(query, Cache(keys, values, table, lengths, *scales), offsets, rule)
    run.set_outputs(found.astype(np.float32))


def _check(spec: PagedAttention) -> None:
    is_scaled = len(spec.buffers) > 1 and spec.is_scaled
    check_ranks(spec, 3, 3, 3, 2, 1, 1, *[3] * is_scaled, 3)
    query, keys, values, table, _, lengths, *scales, out = (buffer.shape for buffer in spec.buffers)
    _check_heads(query[1], keys[1])
    for name, size in (("size", query[2]), ("v_size", values[2])):
        if not isinstance(size, int) or not 1 <= size <= MAX_SIZE:
            raise refuse(name, str(size), f"an int from 1 to {MAX_SIZE}")
    wanted = (keys[1:] == (keys[1], query[2]), values[:2] == keys[:2], lengths[0] == table[0])
    have_scales = all(each == (*keys[:2], 2) for each in scales)
    if not all(wanted) or not have_scales or out != (query[0], query[1], values[2]):
        shapes = [str(list(map(str, buffer.shape))) for buffer in spec.buffers]
        raise refuse(
            "buffers",
            shapes,
            "[tokens, heads, size], [slots, kv_heads, size], [slots, kv_heads, v_size], [sequences, pages], "
            "[sequences + 1], [sequences], with i8 [slots, kv_heads, 2], [tokens, heads, v_size]",
        )
    if not math.isfinite(spec.scale):
        raise refuse("scale", spec.scale, "a finite number")
    if not 0 <= spec.window < 2**31:
        raise refuse("window", spec.window, "from 0 to 2147483647")
    if not (math.isfinite(spec.soft_cap) and spec.soft_cap >= 0):
        raise refuse("soft_cap", spec.soft_cap, "a finite number, at least 0")


def _check_heads(heads: object, kv_heads: object) -> None:
    if not isinstance(heads, int) or not 1 <= heads <= MAX_HEADS:
        raise refuse("heads", str(heads), f"an int from 1 to {MAX_HEADS}")
    if not isinstance(kv_heads, int) or kv_heads < 1 or heads % kv_heads:
        raise refuse("kv_heads", str(kv_heads), f"a divisor of {heads}, the number of heads")


def _follow(launch: Launch, spec: PagedAttention) -> None:
    launch.altogether("attends to pages by number")


def _example(dtype: str, shape: tuple[int, int, int, int], rule: str) -> Example:
    heads, kv_heads, size, v_size = shape
    scales = f"\n  b6 f32[n1,{kv_heads},2]" if dtype == SCALED else ""
    return Example(
        f"""paged_attention n_dims=5 {rule}
  b0 f32[n0,{heads},{size}]
  b1 {dtype}[n1,{kv_heads},{size}]
  b2 {dtype}[n1,{kv_heads},{v_size}]
  b3 i32[n2,n3]
  b4 i64[n4]
  b5 i64[n2]{scales}
  b{7 if scales else 6} f32[n0,{heads},{v_size}] output""",
        (9, 69, 3, 5, 4),
    )


EXAMPLES = (
    _example("f32", (4, 2, 64, 64), "scale=0.125 window=0 soft_cap=0.0"),
    _example("f32", (3, 3, 20, 37), "scale=0.3 window=2 soft_cap=1.5"),
    _example("bf16", (4, 1, 16, 16), "scale=0.25 window=0 soft_cap=0.0"),
    _example("i8", (4, 2, 20, 16), "scale=0.25 window=0 soft_cap=0.0"),
)

FAMILY = Family(PagedAttention, emit, accesses, _evaluate, _check, _follow, EXAMPLES)
