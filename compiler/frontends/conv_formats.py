"""Convolutions while a model is traced: the memory format of a result is no assumption about sizes.

torch's fake kernel computes the strides of a convolution's result by comparing sizes. Its guards, such as
`Max(1, s - 1) != 1`, say nothing about values, and refuse sizes at which the model works.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_impls import op_implementations_dict as kernels

_CONVOLUTION = torch.ops.aten.convolution.default
_C: Any = torch._C
_CHOOSE = "_conv_determine_backend_memory_format"


@contextmanager
def formats_leave_no_guards() -> Iterator[None]:
    """Compute the sizes of convolutions with guards and their memory formats without."""
    kernel, choose = kernels[_CONVOLUTION], getattr(_C, _CHOOSE)

    def fake(mode: Any, *args: Any, **kwargs: Any) -> Any:
        chosen = []

        def note(*given: Any) -> None:
            with _without_guards(mode):
                chosen.append(choose(*given))

        with patch.object(_C, _CHOOSE, note):
            made = kernel(mode, *args, **kwargs)
        if chosen in ([], [torch.contiguous_format]):
            return made
        with _without_guards(mode):
            return kernel(mode, *args, **kwargs)

    with patch.dict(kernels, {_CONVOLUTION: fake}):
        yield


def _without_guards(mode: Any) -> AbstractContextManager[Any]:
    return nullcontext() if mode.shape_env is None else mode.shape_env.suppress_guards()
