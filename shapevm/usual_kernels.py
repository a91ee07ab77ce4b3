"""Kernels that a model probably needs, told from its modules before it is exported.

A wrong guess costs time of an idle CPU and room in the cache, and changes no result: a right one leaves the
kernel itself there, or one that differs in numbers alone, or at least parts.
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
#: What layers call the steps and columns of their product: PyTorch's own and those of transformers.
STEPS, COLUMNS = ("in_features", "in_channels", "nx"), ("out_features", "out_channels", "nf")
MAX_SIDE, MAX_PRODUCTS = 1 << 16, 16
#: Activations that are computed behind a product, and the modules that stand for them.
ACTIVATIONS = {"gelu": {"GELU", "GELUActivation"}, "relu": {"ReLU"}}


def usual_kernels(model: Any) -> list[KernelSpec]:
    """Return kernels whose parts a model will need, those that take longest early; of whatever is no
    nn.Module, what most models need."""
    from .jit.families.conv.usual import usual_convs
    from .jit.families.matmul.usual import usual_products

    try:
        modules = list(model.modules())
    except Exception:  # it is no module, or one of its own kind: whatever is wrong, others say so
        modules = []
    first, *others = _products(modules) or usual_products()
    convs = usual_convs() if any(_is_dense_conv(module, 3) for module in modules) else []
    return [first, *_attention(modules), *convs, *others]


def _products(modules: Sequence[Any]) -> list[KernelSpec]:
    """Return the products of linear layers and of convolutions of one tap, with what mostly follows those."""
    from .jit.families.matmul.usual import usual_product

    names = {type(module).__name__ for module in modules}
    activation = next((kind for kind, known in ACTIVATIONS.items() if known & names), "")
    is_transformer = any(name.endswith(("LayerNorm", "RMSNorm")) for name in names)
    found: dict[KernelSpec, None] = {}
    for module in modules:
        steps, columns = (_first_int(module, sides) for sides in (STEPS, COLUMNS))
        if not (0 < steps <= MAX_SIDE and 0 < columns <= MAX_SIDE) or len(found) >= MAX_PRODUCTS:
            continue
        for ending in _endings(module, steps, columns, activation, is_transformer):
            found[usual_product(steps, columns, ending)] = None
    return list(found)


def _endings(
    module: Any, steps: int, columns: int, activation: str, is_transformer: bool
) -> list[tuple[str, ...]]:
    """Return what may follow a product in its kernel. What narrows in a transformer is added to what went in,
    and so is what widens in a network of convolutions."""
    if "in_channels" in vars(module):
        if activation != "relu" or not _is_dense_conv(module, 1):
            return []
        return [("bias", "residual", "relu") if columns > steps else ("bias", "relu")]
    if not is_transformer:
        return [("bias",)]
    if columns > steps:
        return [("bias", activation) if activation else ("bias",)]
    return [("bias", "residual")] if columns < steps else [("bias",), ("bias", "residual")]


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


def _is_dense_conv(module: Any, taps: int) -> bool:
    """Whether a module is a convolution of `taps` x `taps` taps at stride 1, dense, in one group."""
    wanted = {"kernel_size": (taps, taps), "stride": (1, 1), "dilation": (1, 1), "groups": 1}
    return all(vars(module).get(name) == value for name, value in wanted.items())
