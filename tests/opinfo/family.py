"""Which family of operators an entry of PyTorch's database belongs to."""

from __future__ import annotations

import re
from typing import Any

#: The first pattern that matches an entry's name says its family.
FAMILIES = (
    ("random", r"bernoulli|cauchy|exponential|geometric|log_normal|multinomial|normal|rand|uniform"
               r"|dropout|rrelu"),
    ("fft and complex", r"fft|stft|complex|polar|view_as_real|conj$|imag"),
    ("linear algebra", r"linalg|cholesky|svd|qr$|^lu|lu_|geqrf|ormqr|eig|inverse|pinverse|logdet|det$"
                       r"|triangular|matrix_exp"
                       r"|lstsq|solve|matrix_power"),
    ("convolution", r"conv|unfold|fold$|im2col|col2im"),
    ("product", r"matmul|mm|mv|dot|inner|outer|ger$|einsum|tensordot|bilinear$|linear|attention|cdist"
                r"|chain|kron"
                r"|vander|cov|corrcoef|addr|addcmul_mm"),
    ("pooling and resizing", r"pool|interpolate|upsample|grid_sample|affine_grid|pixel_"),
    ("loss", r"loss|cross_entropy|kl_div|hinge|pairwise|cosine_"),
    ("normalisation", r"norm(?!al)|softmax|softmin|log_softmax|renorm|nn.functional.normalize"),
    ("activation", r"nn\.functional\."),
    ("sort and search", r"sort|topk|kthvalue|unique|searchsorted|bucketize|mode$|median|quantile|histc"
                        r"|histogram|bincount"
                        r"|isin"),
    ("index", r"index|gather|scatter|take|put|nonzero|argwhere|masked_select|masked_scatter|where"
              r"|one_hot|embedding"
              r"|__getitem__"),
    ("scan", r"cum|logcumsumexp|trapz|trapezoid|diff$|gradient"),
    ("reduction", r"sum|prod|mean|std|var|amax|amin|aminmax|argmax|argmin|all$|any$|max\.reduction"
                  r"|min\.reduction"
                  r"|max_reduction|count_nonzero|logsumexp|equal|allclose|dist$|masked\.|trace|hash_tensor"),
    ("creation", r"empty|zeros|ones|full|arange|linspace|logspace|eye|scalar_tensor|fill|tril_indices"
                 r"|triu_indices"
                 r"|signal|window|like$"),
)  # fmt: skip

#: Families of which few are native.
LAST = ("linear algebra", "fft and complex", "random")


def family(name: str, info: Any = None) -> str:
    """Return the family of an entry."""
    kind = type(info).__name__ if info is not None else ""
    if kind in ("UnaryUfuncInfo", "BinaryUfuncInfo"):
        return "elementwise"
    if kind == "ReductionOpInfo":
        return "reduction"
    for known, pattern in FAMILIES:
        if re.search(pattern, name):
            return known
    return (
        "elementwise"
        if name.startswith(("special", "clamp", "add", "lerp", "polygamma"))
        else "view and others"
    )
