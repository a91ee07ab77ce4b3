"""The table of quantised programs: formats of weights by activations by operators, as torchao and PT2E write
them. What neither of the two quantisers makes is left out by `LEFT_OUT`, which gives the reason."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.ao.quantization.fx._decomposed  # defines the operators
from torch import nn
from torchao.quantization import (
    Float8WeightOnlyConfig,
    Int8DynamicActivationIntxWeightConfig,
    Int8StaticActivationInt8WeightConfig,
    IntxWeightOnlyConfig,
    MappingType,
    quantize_,
)
from torchao.quantization.granularity import PerAxis, PerGroup, PerRow, PerTensor

Q = torch.ops.quantized_decomposed
STEPS, COLUMNS, TABLE = 256, 37, 41  # of linear layers and matrices; rows of an embedding
CHANNELS = 32  # of an image
#: (scale, zero point) of activations that are static
STATIC = {torch.int8: (0.03125, -9), torch.uint8: (0.03125, 117)}


@dataclass(frozen=True)
class Format:
    """How a weight is quantised; `group`: steps that have a scale together, None: those of a channel."""

    dtype: torch.dtype
    group: int | None
    has_zero: bool

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest integer."""
        return (-8, 7) if self.dtype == torch.int4 else (-128, 127)

    @property
    def held(self) -> str:
        """What kernels read; integers of whole channels are held in a byte."""
        if self.dtype == torch.float8_e4m3fn:
            return "float"
        return "i8" if self.group is None else f"i4, groups of {self.group}"


FORMATS = {
    f"{str(dtype)[6:]}, {'channels' if group is None else group}{', zeros' if has_zero else ''}": Format(
        dtype, group, has_zero
    )
    for dtype, groups in ((torch.int8, (None,)), (torch.int4, (None, 32, 64, 128)))
    for group, has_zero in itertools.product(groups, (False, True))
} | {"float8": Format(torch.float8_e4m3fn, None, False)}
ACTIVATIONS = ("f32", "bf16", "dynamic int8", "static int8", "static uint8")
FLOATS = {"f32": torch.float32, "bf16": torch.bfloat16}
AFTER: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "alone": lambda y, _: y,
    "relu": lambda y, _: torch.relu(y),
    "gelu": lambda y, _: nn.functional.gelu(y),
    "silu": lambda y, _: nn.functional.silu(y),
    "residual": lambda y, other: y + other,
}
#: outputs, kernel, stride, padding, groups
WINDOWS = {
    "conv": (COLUMNS, 3, 1, 0, 1),
    "conv 1x1": (COLUMNS, 1, 1, 0, 1),
    "conv strided": (COLUMNS, 3, 2, 0, 1),
    "conv padded": (COLUMNS, 3, 1, 1, 1),
    "conv grouped": (48, 3, 1, 1, 2),
    "conv depthwise": (CHANNELS, 3, 1, 1, CHANNELS),
}
LINEAR = tuple(f"linear {rank}-d, {after}" for after in AFTER for rank in (1, 2, 3))


@dataclass(frozen=True)
class Case:
    """A row of the table; `has_bias` is that of a linear layer, a matrix has none."""

    form: str
    activation: str
    operator: str
    has_bias: bool

    @property
    def format(self) -> Format:
        """How the weight is quantised."""
        return FORMATS[self.form]

    @property
    def kind(self) -> str:
        """The operator without its variant."""
        return self.operator.split()[0]

    @property
    def has_bytes(self) -> bool:
        """Whether activations are quantised."""
        return "int8" in self.activation

    @property
    def is_of_bytes(self) -> bool:
        """Whether kernels multiply bytes: grouped convolutions need integers of a byte without their zero
        points."""
        is_grouped = self.operator in ("conv grouped", "conv depthwise")
        return self.has_bytes and not (is_grouped and self.form == "int8, channels, zeros")

    @property
    def is_torchao(self) -> bool:
        """Whether torchao writes it; otherwise PT2E does. torchao's static activations have two axes."""
        if self.kind in ("matmul", "conv"):
            return False
        if not self.activation.startswith("static"):
            return True
        is_plain = self.form == "int8, channels" and self.operator.startswith("linear 2-d")
        return self.activation == "static int8" and is_plain

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the program's inputs and results."""
        return FLOATS.get(self.activation, torch.float32)

    def __str__(self) -> str:
        return f"{self.form}-{self.activation}-{self.operator}{', bias' if self.has_bias else ''}"


#: (why there is no such program, whether a case is one)
LEFT_OUT: tuple[tuple[str, Callable[[Case], bool]], ...] = (
    (
        "torchao's weights in float8 alone are those of linear layers; PT2E has none",
        lambda case: case.form == "float8" and (case.kind != "linear" or case.has_bytes),
    ),
    (
        "neither quantiser gives groups of a convolution's window a scale",
        lambda case: case.kind == "conv" and case.format.group is not None,
    ),
    (
        "PT2E quantises the images of convolutions statically only, torchao not at all",
        lambda case: case.kind == "conv" and case.activation == "dynamic int8",
    ),
    (
        "static activations stand beside one scale a channel",
        lambda case: case.activation.startswith("static") and case.format.group is not None,
    ),
    (
        "an embedding reads integers that are no activations",
        lambda case: case.kind == "embedding" and case.has_bytes,
    ),
)


def cases() -> list[Case]:
    """Return the table. Of the 30 linear layers each pair of format and activations has five, others than its
    neighbour has: all epilogues, and over the table all ranks and biases with each of them."""
    found = []
    for number, (form, activation) in enumerate(itertools.product(FORMATS, ACTIVATIONS)):
        linear = [LINEAR[3 * i + (i + number) % 3] for i in range(len(AFTER))]
        for place, operator in enumerate((*linear, "matmul", "embedding", *WINDOWS)):
            has_bias = operator not in ("matmul", "embedding") and bool((number // 3 + place) % 2)
            found.append(Case(form, activation, operator, has_bias))
    return [case for case in found if not any(is_one(case) for _, is_one in LEFT_OUT)]


@dataclass(frozen=True)
class Weight:
    """A quantised weight [N, K ..] and its scales and zero points [N, groups]."""

    q: torch.Tensor
    scale: torch.Tensor
    zero: torch.Tensor | None

    def spread(self, x: torch.Tensor) -> torch.Tensor:
        """Return what each element of the weight has of `x`, in f64."""
        rows = self.q.flatten(1)
        return x.double().repeat_interleave(rows.shape[1] // x.shape[1], 1).reshape(self.q.shape)

    def integers(self) -> torch.Tensor:
        """Return q - zero in f64."""
        return self.q.double() - (0 if self.zero is None else self.spread(self.zero))


def made_weight(case: Case, shape: tuple[int, ...]) -> Weight:
    """Return a weight of random integers; where sums are exact, scales are powers of two."""
    low, high = case.format.limits
    groups = 1 if case.format.group is None else STEPS // case.format.group
    q = torch.randint(low, high + 1, shape).to(torch.int8)
    scale = 2.0 ** -torch.randint(6, 10, (shape[0], groups)).float()
    is_exact = case.is_of_bytes and groups == 1
    scale = scale if is_exact else scale * (1 + torch.rand(scale.shape))
    zero = torch.randint(-5, 6, scale.shape)
    return Weight(q, scale, zero if case.format.has_zero else torch.zeros_like(zero))


def torchao_config(case: Case) -> object:
    """Return torchao's configuration."""
    form = case.format
    mapping = MappingType.ASYMMETRIC if form.has_zero else MappingType.SYMMETRIC
    granularity = PerAxis(0) if form.group is None else PerGroup(form.group)
    if case.form == "float8":
        return Float8WeightOnlyConfig()
    if case.activation == "dynamic int8":
        return Int8DynamicActivationIntxWeightConfig(
            weight_dtype=form.dtype, weight_granularity=granularity, weight_mapping_type=mapping
        )
    if case.activation == "static int8":
        scale, zero = STATIC[torch.int8]
        return Int8StaticActivationInt8WeightConfig(
            act_quant_scale=torch.tensor([[scale]]),
            act_quant_zero_point=torch.tensor([[zero]], dtype=torch.int8),
            granularity=[PerTensor(), PerRow()],
            act_mapping_type=MappingType.ASYMMETRIC,
            set_inductor_config=False,
        )
    return IntxWeightOnlyConfig(form.dtype, granularity, mapping)


class Program(nn.Module):
    """One operator that reads a quantised weight, and what comes after it."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        self.after = AFTER[case.operator.split(", ")[1] if case.kind == "linear" else "alone"]
        shape = (COLUMNS, STEPS)
        if case.kind == "conv":
            outputs, kernel, *_, groups = WINDOWS[case.operator]
            shape = (outputs, CHANNELS // groups, kernel, kernel)
        self.bias = nn.Buffer(torch.randn(shape[0], dtype=case.dtype)) if case.has_bias else None
        if case.is_torchao:
            self.weight = self._of_torchao()
            return
        self.weight = made_weight(case, shape)
        self.q, self.scale, self.zero = map(nn.Buffer, (self.weight.q, self.weight.scale, self.weight.zero))

    def _of_torchao(self) -> Weight:
        kind = nn.Embedding if self.case.kind == "embedding" else nn.Linear
        sizes = (TABLE, STEPS) if kind is nn.Embedding else (STEPS, COLUMNS)
        self.inner = kind(*sizes) if kind is nn.Embedding else kind(*sizes, bias=False)
        self.inner.to(self.case.dtype)
        if self.bias is not None:
            self.inner.bias = nn.Parameter(self.bias)
        quantize_(self, torchao_config(self.case), lambda module, _: isinstance(module, kind))
        found = self.inner.weight
        scale = found.scale.reshape(sizes[0] if kind is nn.Embedding else COLUMNS, -1)
        zero = getattr(found, "zero_point", None)
        return Weight(found.qdata, scale, None if zero is None else zero.reshape(scale.shape))

    def forward(self, x: torch.Tensor, other: torch.Tensor | None = None) -> torch.Tensor:
        """Compute; `other`: a residual."""
        if self.case.is_torchao:
            return self.after(self.inner(x), other)
        return self.after(self._computed(self._activation(x), self._dequantised()), other)

    def _activation(self, x: torch.Tensor) -> torch.Tensor:
        if not self.case.has_bytes:
            return x
        if self.case.activation == "dynamic int8":
            scale, zero = Q._choose_qparams_per_token_asymmetric_impl(x, torch.int8)
            given = scale, zero, -128, 127, torch.int8
            return Q.dequantize_per_token(Q.quantize_per_token(x, *given), *given, torch.float32)
        dtype = getattr(torch, self.case.activation.split()[1])
        given = *STATIC[dtype], torch.iinfo(dtype).min, torch.iinfo(dtype).max, dtype
        return Q.dequantize_per_tensor(Q.quantize_per_tensor(x, *given), *given)

    def _dequantised(self) -> torch.Tensor:
        form, dtype = self.case.format, self.case.dtype
        limits = *form.limits, torch.int8
        if form.group is None:
            given = self.q, self.scale[:, 0], self.zero[:, 0], 0, *limits
            return Q.dequantize_per_channel(*given, out_dtype=dtype)
        given = self.q, self.scale, self.zero, *limits, form.group
        return Q.dequantize_per_channel_group(*given, dtype)

    def _computed(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        if self.case.kind == "matmul":
            return x @ weight.t()
        if self.case.kind == "linear":
            return nn.functional.linear(x, weight, self.bias)
        *_, stride, padding, groups = WINDOWS[self.case.operator]
        return nn.functional.conv2d(x, weight, self.bias, stride, padding, 1, groups)

    def inputs(self, rows: int) -> tuple[torch.Tensor, ...]:
        """Return arguments for a number of rows; some activations are beyond a static range."""
        case = self.case
        if case.kind == "embedding":
            return (torch.randint(0, TABLE, (rows, 3)),)
        shape: tuple[int, ...] = (rows, STEPS)
        if case.kind == "conv":
            shape = (rows, CHANNELS, 9, 7)
        elif case.kind == "linear":
            shape = {"1": (STEPS,), "2": shape, "3": (rows, 3, STEPS)}[case.operator.split()[1][0]]
        x = 2 * torch.randn(shape, dtype=case.dtype)
        if "residual" not in case.operator:
            return (x,)
        return x, torch.randn(*shape[:-1], COLUMNS, dtype=case.dtype)

    @property
    def least(self) -> int:
        """The least number of rows: torchao fails to quantise no rows."""
        return 1 if self.case.is_torchao and self.case.has_bytes else 0

    @property
    def has_rows(self) -> bool:
        """Whether a size of the inputs changes."""
        return not self.case.operator.startswith("linear 1-d")
