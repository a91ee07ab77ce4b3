"""The next token of a sequence from its logits, as a function of the program: `Decoder.sample`.

All hosts draw the same tokens, because the program computes them.
"""

from __future__ import annotations

import math
from typing import Any

from .. import nn
from ..nn.tensor import call

_RANDOM_BITS = 53  # of a number from 0 to 1, without 1


def drawn(logits: Any, tokens: Any, numbers: Any, integers: Any, mask: Any) -> Any:
    """Return the token after `tokens`, i64[1]: see `Sampling`. Only tokens with a true `mask` are drawn."""
    temperature, top_p, min_p, penalty = (numbers[i : i + 1] for i in range(4))
    top_k, seed, position = (integers[i : i + 1] for i in range(3))
    logits = _penalised(logits.reshape(-1), tokens, penalty.to("f32"))
    logits = _where(mask.reshape(-1), logits, -math.inf)
    is_drawn = temperature > 0.0
    values, order = call("aten.sort.stable", logits, stable=True, dim=0, descending=True)
    rank = nn.arange(logits.shape[0])
    scaled = values.to("f64") / _where(is_drawn, temperature, 1.0)
    is_kept = _either(top_k <= 0, rank < top_k)
    shares = _where(is_kept, call("aten.exp.default", scaled - scaled[0:1]), 0.0)
    shares = shares / call("aten.sum.dim_IntList", shares, [0], True)
    sums = call("aten.cumsum.default", shares, 0)
    is_kept = _both(is_kept, _both(sums - shares < top_p, shares >= min_p * shares[0:1]))
    is_kept = _either(_both(is_kept, shares > 0.0), rank < 1)
    index = _index(_where(is_kept, shares, 0.0), _uniform(seed, position))
    last = call("aten.amax.default", _where(is_kept, rank, 0), [0], True)
    found = call("aten.index_select.default", order, 0, call("aten.minimum.default", index, last))
    return _where(is_drawn, found, nn.argmax(logits, 0, True))


def _penalised(logits: Any, tokens: Any, penalty: Any) -> Any:
    """Divide positive logits of tokens that were drawn before, and multiply negative ones."""
    none = call("aten.full.default", [logits.shape[0]], 0.0)
    stands = call("aten.scatter.value", none, 0, tokens, 1.0) > 0.0
    return _where(stands, _where(logits > 0.0, logits / penalty, logits * penalty), logits)


def _index(shares: Any, uniform: Any) -> Any:
    """Return how many sums of shares are at most the number's part of the whole sum."""
    sums = call("aten.cumsum.default", shares, 0)
    is_below = sums <= uniform * sums[-1:]
    return call("aten.sum.dim_IntList", is_below.to("i64"), [0], True)


def _uniform(seed: Any, position: Any) -> Any:
    """Return a number from 0 to 1, without 1, of a position of the sequences with a seed."""
    bits = call(
        "aten.bitwise_and.Scalar", call("shapevm.philox.default", position, seed), (1 << _RANDOM_BITS) - 1
    )
    return bits.to("f64") * 2.0**-_RANDOM_BITS


def _where(condition: Any, one: Any, other: Any) -> Any:
    if isinstance(other, int | float):
        return call("aten.where.ScalarOther", condition, one, other)
    return call("aten.where.self", condition, one, other)


def _either(one: Any, other: Any) -> Any:
    return call("aten.logical_or.default", one, other)


def _both(one: Any, other: Any) -> Any:
    return call("aten.logical_and.default", one, other)
