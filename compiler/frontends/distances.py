"""torch.cdist by one formula at every size.

torch computes Euclidean distances of more than 25 points by a matrix product and others directly, so a trace
would hold only for one side of 25, and a row's bits would depend on other rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_BY_PRODUCT, _DIRECTLY = 1, 2  # torch's compute modes; None and 0 choose by the number of points


@contextmanager
def distances_are_direct() -> Iterator[None]:
    """Compute torch.cdist directly, unless the model requests a product."""
    vf: Any = torch._VF
    original = vf.cdist

    def cdist(a: Any, b: Any, p: float, mode: int | None) -> Any:
        if mode == _BY_PRODUCT:
            return original(a, b, p, mode)
        return torch.ops.aten._cdist_forward.default(a, b, p, _DIRECTLY)

    vf.cdist = cdist
    try:
        yield
    finally:
        vf.cdist = original
