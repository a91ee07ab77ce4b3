"""Kernels that a model probably needs, told from its modules before it is exported.

They are compiled for their parts, so a wrong guess costs time of an idle CPU and changes no result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .jit.families.attention.spec import Attention
    from .jit.spec import KernelSpec

#: What attention's modules call the number of their heads, and the width of one: PyTorch's own and those of
#: transformers.
HEADS = ("num_heads", "num_attention_heads", "n_heads")
WIDTHS = ("head_dim", "attention_head_size", "key_value_proj_dim")
MAX_HEADS, MAX_WIDTH = 1024, 1024


def usual_kernels(model: Any) -> list[KernelSpec]:
    """Return kernels whose parts a model will need, those that take longest early; of whatever is no
    nn.Module, what most models need."""
    from .jit.families.conv.usual import usual_convs
    from .jit.families.matmul.usual import usual_products

    try:
        modules = list(model.modules())
    except Exception:  # it is no module, or one of its own kind: whatever is wrong, others say so
        modules = []
    deep, *others = usual_products()
    convs = usual_convs() if any(map(_is_usual_conv, modules)) else []
    return [deep, *_attention(modules), *convs, *others]


def _attention(modules: Sequence[Any]) -> Iterator[Attention]:
    """Yield attention as the first module that has heads computes it."""
    from .jit.families.attention.usual import usual_attention

    for module in modules:
        heads, width = (_first_int(module, names) for names in (HEADS, WIDTHS))
        if 0 < heads <= MAX_HEADS and 0 < width <= MAX_WIDTH:
            yield usual_attention(heads, width, vars(module).get("is_causal") is True)
            return


def _first_int(module: Any, names: Sequence[str]) -> int:
    """Return the first attribute of these names that is an int, 0 without one. Properties are not computed:
    they may do anything."""
    return next((value for name in names if type(value := vars(module).get(name)) is int), 0)


def _is_usual_conv(module: Any) -> bool:
    """Whether a module is a convolution of 3 x 3 taps at stride 1, dense, in one group."""
    wanted = {"kernel_size": (3, 3), "stride": (1, 1), "dilation": (1, 1), "groups": 1}
    return all(vars(module).get(name) == value for name, value in wanted.items())
