"""Kernels that a model probably needs, predicted from its modules before it is exported.

A wrong prediction costs time of an idle CPU and space in the cache, and changes no result; a right one puts
the kernel itself there, or one that differs only in numbers, or at least parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..jit.families.attention.spec import Attention
    from ..jit.families.conv.usual import Layer
    from ..jit.spec import KernelSpec

#: Attribute names of the number of heads and their width, in attention modules of PyTorch and transformers.
HEADS = ("num_heads", "num_attention_heads", "n_heads")
WIDTHS = ("head_dim", "attention_head_size", "key_value_proj_dim")
MAX_HEADS, MAX_WIDTH = 1024, 1024
MASKS = {True: ("query",), False: ("sequence", "")}  # kinds of masks by whether attention is causal
#: Attribute names of the steps and columns of a layer's product, in PyTorch and transformers.
STEPS, COLUMNS = ("in_features", "nx"), ("out_features", "nf")
MAX_SIDE, MAX_PRODUCTS, MAX_CONVS = 1 << 16, 20, 16
LOOKED_AT = 64  # elements of a weight
#: Activations that follow a product, and their modules.
ACTIVATIONS = {"gelu": {"GELU", "GELUActivation"}, "relu": {"ReLU"}}


def usual_kernels(model: Any) -> list[KernelSpec]:
    """Return kernels that a model probably needs, whole or in parts, slow ones first; for anything but an
    nn.Module, those that most models need."""
    from ..jit.families.matmul.usual import usual_products

    try:
        modules = list(model.modules())
    except Exception:  # not a module, or an unusual one: others report the problem
        modules = []
    names = {type(module).__name__ for module in modules}
    activation = next((kind for kind, known in ACTIVATIONS.items() if known & names), "")
    is_transformer = any(name.endswith(("LayerNorm", "RMSNorm")) for name in names)
    layers = _layers(modules)
    found = _products(modules, layers, activation, is_transformer)
    first, *others = found or usual_products()
    return [first, *_attention(modules), *_convs(layers, activation), *others]


def _layers(modules: Sequence[Any]) -> list[Layer]:
    """Return the dense convolutions of images among modules."""
    from ..jit.families.conv.usual import Layer

    found = []
    for module in modules:
        channels, columns = (_first_int(module, (name,)) for name in ("in_channels", "out_channels"))
        known = vars(module)
        axes = [known.get(name) for name in ("kernel_size", "stride", "padding")]
        is_known = all(type(axis) is tuple and [*map(type, axis)] == [int, int] for axis in axes)
        is_dense = known.get("dilation") == (1, 1) and known.get("groups") == 1
        is_small = 0 < channels <= MAX_SIDE and 0 < columns <= MAX_SIDE
        if is_known and is_dense and is_small and not known.get("transposed"):
            found.append(Layer(channels, columns, *axes))
    return found


def _convs(layers: Sequence[Layer], activation: str) -> list[KernelSpec]:
    """Return the convolutions that are not plain products, with their usual followers. One that changes the
    size of images and widens them is a shortcut, which adds the sums of others."""
    from ..jit.families.conv.usual import usual_conv

    found: dict[KernelSpec, None] = {}
    for layer in layers:
        if layer.is_product or len(found) >= MAX_CONVS:
            continue
        way_around = ("shortcut",) if layer.is_shortcut else ()
        ending = ("bias", *way_around, "relu") if activation == "relu" else ("bias",)
        found[usual_conv(layer, ending)] = None
    return list(found)


def _products(
    modules: Sequence[Any], layers: Sequence[Layer], activation: str, is_transformer: bool
) -> list[KernelSpec]:
    """Return the products of linear layers and of convolutions of one tap, with their usual followers."""
    from ..jit.families.matmul.usual import usual_product

    found: dict[KernelSpec, None] = {}
    shortcuts = {layer.columns for layer in layers if layer.is_shortcut}
    for module in modules:
        steps, columns = (_first_int(module, sides) for sides in (STEPS, COLUMNS))
        if 0 < steps <= MAX_SIDE and 0 < columns <= MAX_SIDE:
            after = _endings(steps, columns, activation, is_transformer)
            dtype = _dtype_of(module)
            found |= {usual_product(steps, columns, ending, dtype): None for ending in after}
    for layer in layers:
        if activation == "relu" and layer.is_product:
            is_wide = layer.columns > layer.channels
            endings: list[tuple[str, ...]] = [("bias", *(("residual",) if is_wide else ()), "relu")]
            endings += [()] if is_wide and layer.columns in shortcuts else []
            found |= {usual_product(layer.channels, layer.columns, ending): None for ending in endings}
    return list(found)[:MAX_PRODUCTS]


def _endings(steps: int, columns: int, activation: str, is_transformer: bool) -> list[tuple[str, ...]]:
    """Return what may follow a product in its kernel: in a transformer, a narrowing layer is added to its
    block's input."""
    if not is_transformer:
        return [("bias",)]
    if columns > steps:
        return [("bias", activation) if activation else ("bias",)]
    return [("bias", "residual")] if columns < steps else [("bias",), ("bias", "residual")]


def _attention(modules: Sequence[Any]) -> Iterator[Attention]:
    """Yield attention as the first module that has heads computes it."""
    from ..jit.families.attention.usual import usual_attention

    for module in modules:
        heads, width = (_first_int(module, names) for names in (HEADS, WIDTHS))
        if 0 < heads <= MAX_HEADS and 0 < width <= MAX_WIDTH:
            is_causal = vars(module).get("is_causal") is True
            yield from (usual_attention(heads, width, mask) for mask in MASKS[is_causal])
            return


def _dtype_of(module: Any) -> str:
    """Return the dtype that represents the values of a layer's weight, judged by its first elements."""
    from ..compiler.lower.weights import held

    weight = vars(module).get("_parameters", {}).get("weight")
    is_plain = type(weight).__name__ == "Parameter" and weight.device.type == "cpu"
    if not is_plain or str(weight.dtype) != "torch.float32" or not weight.is_contiguous():
        return "f32"
    _, dtype = held(weight.detach().flatten()[:LOOKED_AT].numpy(), "f32")
    return dtype if dtype in ("f16", "bf16") else "f32"


def _first_int(module: Any, names: Sequence[str]) -> int:
    """Return the first attribute of these names that is an int, 0 without one. Properties are not computed:
    they may do anything."""
    return next((value for name in names if type(value := vars(module).get(name)) is int), 0)
