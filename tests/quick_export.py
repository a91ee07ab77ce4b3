"""torch.export in less time, for tests that export hundreds of small programs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def keep_what_torch_recomputes() -> None:
    """torch walks all its operators at every export and decomposition, and makes the same annotations for
    each; between tests none is added that decomposes. A program of few operators takes a third of the
    time."""
    import torch._ops
    from shapevm.compiler.frontends import exported_program as frontend
    from torch._export import utils
    from torch.export import decomp_utils, exported_program

    if torch._ops.Callable is _Annotation:
        return
    collect = functools.cache(utils._collect_all_valid_cia_ops)
    for module in (utils, decomp_utils, exported_program):
        module._collect_all_valid_cia_ops = collect
    frontend.decomposition_table = functools.cache(frontend.decomposition_table)
    torch._ops.Callable = _Annotation


class _Annotation(Callable):  # type: ignore[type-arg]
    """typing's `Callable` without its slow `Callable[...]`, whose value nobody reads."""

    def __class_getitem__(cls, item: Any) -> type:
        return cls
