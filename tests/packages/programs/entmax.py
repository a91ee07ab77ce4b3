"""Sparse relatives of softmax (`entmax`)."""

from __future__ import annotations

import torch
from entmax import entmax15, entmax_bisect, normmax_bisect, sparsemax, sparsemax_bisect


def _of(function):
    return lambda: (function, (torch.randn(3, 7),), {})


PROGRAMS = {
    "sparsemax": _of(lambda x: sparsemax(x, -1)),
    "entmax": _of(lambda x: entmax15(x, -1)),
    "entmax over rows": _of(lambda x: entmax15(x, 0)),
    "bisection": _of(lambda x: entmax_bisect(x, 1.3, -1, 20)),
    "sparsemax by bisection": _of(lambda x: sparsemax_bisect(x, -1, 20)),
    "normmax by bisection": _of(lambda x: normmax_bisect(x, 2, -1, 20)),
}
