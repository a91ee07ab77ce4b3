"""Programs written without PyTorch: modules, parameters from safetensors files, `compile`.

    class Mlp(nn.Module):
        def __init__(self):
            self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 4)

        def forward(self, x):
            return self.down(nn.gelu(self.up(x)))

    exe = nn.compile(nn.load(Mlp(), "mlp.safetensors"), {"x": ("batch", 16)})

Names, arguments and values are those of `torch.nn`; no torch is imported.
"""

from .compilation import compile
from .functional import (
    arange,
    argmax,
    cat,
    gelu,
    index_copy,
    max_pool2d,
    mean,
    paged_attention,
    relu,
    rope,
    scaled_dot_product_attention,
    sigmoid,
    silu,
    softmax,
    tanh,
)
from .layers import (
    AdaptiveAvgPool2d,
    BatchNorm2d,
    Conv2d,
    Embedding,
    KVCache,
    LayerNorm,
    Linear,
    MaxPool2d,
    ModuleList,
    MultiheadAttention,
    RMSNorm,
    Sequential,
)
from .module import Buffer, Module, Parameter
from .quantised import Quantised
from .tensor import Tensor
from .weights import load

__all__ = [
    "AdaptiveAvgPool2d", "BatchNorm2d", "Buffer", "Conv2d", "Embedding", "KVCache", "LayerNorm", "Linear",
    "MaxPool2d", "Module", "ModuleList", "MultiheadAttention", "Parameter", "Quantised", "RMSNorm",
    "Sequential", "Tensor", "arange", "argmax", "cat", "compile", "gelu", "index_copy", "load", "max_pool2d",
    "mean", "paged_attention", "relu", "rope", "scaled_dot_product_attention", "sigmoid", "silu", "softmax",
    "tanh",
]  # fmt: skip
