"""GFLOP/s of convolution kernels on one core at ResNet-50's layers, beside PyTorch's and the FMA peak.

    python benchmarks/convolutions.py [--rounds 7] [--batch 1] [--only 3x3]

As `kernels.py`: medians over rounds in which all candidates of a row run one after the other. Bias and ReLU
are in the kernels of both; PyTorch's images are channels-last too. The limits beside ours: its products at
the peak (Winograd's own where it goes that way), a copy of as many bytes as image and result have.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from kernels import Run, aligned, medians, prepare, random
from shapevm.compiler.lower.packing import winograd_layout
from shapevm.jit import spec as s
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.families.conv import planes
from shapevm.jit.families.conv.by_taps import MAX_PIXELS
from shapevm.jit.families.conv.depthwise import is_narrow
from shapevm.jit.families.conv.spec import Conv, Window
from shapevm.jit.families.conv.winograd_points import SIDE, TAPS, TILE
from shapevm.jit.families.matmul.layouts import WINOGRAD, pack_columns
from shapevm.jit.families.matmul.spec import Matmul, MatrixProduct
from shapevm.jit.measure.roofline import fma_peak

# (side, C, F, kernel, stride, groups, how often ResNet-50 has it)
LAYERS = [
    (224, 3, 64, 7, 2, 1, 1),
    (56, 64, 64, 1, 1, 1, 1),
    (56, 64, 64, 3, 1, 1, 3),
    (56, 64, 256, 1, 1, 1, 4),
    (56, 256, 64, 1, 1, 1, 2),
    (56, 256, 128, 1, 1, 1, 1),
    (56, 128, 128, 3, 2, 1, 1),
    (28, 128, 512, 1, 1, 1, 4),
    (56, 256, 512, 1, 2, 1, 1),
    (28, 512, 128, 1, 1, 1, 3),
    (28, 128, 128, 3, 1, 1, 3),
    (28, 512, 256, 1, 1, 1, 1),
    (28, 256, 256, 3, 2, 1, 1),
    (14, 256, 1024, 1, 1, 1, 6),
    (28, 512, 1024, 1, 2, 1, 1),
    (14, 1024, 256, 1, 1, 1, 5),
    (14, 256, 256, 3, 1, 1, 5),
    (14, 1024, 512, 1, 1, 1, 1),
    (14, 512, 512, 3, 2, 1, 1),
    (7, 512, 2048, 1, 1, 1, 3),
    (14, 1024, 2048, 1, 2, 1, 1),
    (7, 2048, 512, 1, 1, 1, 2),
    (7, 512, 512, 3, 1, 1, 2),
]
GROUPED = [
    (56, 96, 96, 3, 1, 96, 1),
    (56, 144, 144, 3, 2, 144, 1),
    (14, 384, 384, 3, 1, 384, 1),
    (28, 104, 104, 3, 1, 13, 1),
]
#: Of MobileNetV2, EfficientNet-B0, ConvNeXt-T and ViT-B/16.
OTHERS = [
    (224, 3, 32, 3, 2, 1, 1),
    (112, 32, 32, 3, 1, 32, 1),
    (112, 16, 96, 1, 1, 1, 1),
    (112, 96, 96, 3, 2, 96, 1),
    (56, 96, 24, 1, 1, 1, 1),
    (56, 144, 144, 3, 1, 144, 1),
    (28, 192, 192, 3, 1, 192, 1),
    (14, 384, 64, 1, 1, 1, 1),
    (7, 960, 960, 3, 1, 960, 1),
    (7, 320, 1280, 1, 1, 1, 1),
    (56, 144, 144, 5, 2, 144, 1),
    (28, 240, 240, 5, 1, 240, 1),
    (14, 480, 480, 5, 1, 480, 1),
    (7, 1152, 1152, 5, 1, 1152, 1),
    (14, 80, 480, 1, 1, 1, 1),
    (224, 3, 96, 4, 4, 1, 1),
    (56, 96, 96, 7, 1, 96, 1),
    (28, 192, 192, 7, 1, 192, 1),
    (14, 384, 1536, 1, 1, 1, 1),
    (224, 3, 768, 16, 16, 1, 1),
]


def padding(kernel: int, stride: int) -> int:
    """Return the zeros on each side: patches that lie side by side have none."""
    return 0 if kernel == stride else kernel // 2


def conv_spec(batch: int, side: int, c: int, f: int, kernel: int, stride: int, groups: int) -> Matmul:
    """relu(conv(x) + bias) as the compiler makes it: a 1x1 convolution of stride 1 is a matmul."""
    pad = padding(kernel, stride)
    out = (side + 2 * pad - kernel) // stride + 1
    m, k, i, j = batch * out * out, kernel * kernel * c // groups, s.Index(loop=0), s.Index(loop=1)
    body = (
        s.Instr("acc", "f32"),
        s.Instr("load", "f32", buffer=3, index=(j,)),
        s.Instr("add", "f32", (0, 1)),
        s.Instr("const", "f32", value=0.0),
        s.Instr("maximum", "f32", (3, 2)),
        s.Instr("store", "f32", (4,), buffer=2, index=(i, j)),
    )
    layout, panels = layout_of(c, f, kernel, stride, groups, out), groups * -(-(f // groups) // 32)
    weight = (panels, k, 32)
    is_matmul = kernel == stride == groups == 1
    image = (m, c) if is_matmul else (batch, side, side, c)
    buffers = (
        s.Buffer("f32", image),
        s.Buffer("f32", (k, f) if layout == "rows" else weight),
        s.Buffer("f32", (m, f), True),
        s.Buffer("f32", (f,)),
    )
    if is_matmul:
        return Matmul(0, buffers, MatrixProduct((), m, f, k, 0, (i, s.Index(loop=2)), 1, (), "panels", body))
    two = (1, 1)
    window = Window((out, out), (kernel, kernel), (stride, stride), two, two, (pad, pad), groups)
    if reads_planes(c, kernel, stride, groups):
        buffers = (s.Buffer("f32", (batch, c, side, side)), *buffers[1:])
        return Conv(
            0, buffers, MatrixProduct((), m, f, k, 0, (), 1, (), "panels", body), window=window, planes=True
        )
    b_index = (s.Index(loop=2), j) if layout == "rows" else ()
    return Conv(0, buffers, MatrixProduct((), m, f, k, 0, (), 1, b_index, layout, body), window=window)


def reads_planes(c: int, kernel: int, stride: int, groups: int) -> bool:
    """Return True where the compiler has the image read channels first."""
    two, strides = (1, 1), (stride, stride)
    axes = {"kernel": (kernel, kernel), "stride": strides, "dilation": two, "expansion": two}
    return planes.is_fit(c, axes, groups)


def layout_of(c: int, f: int, kernel: int, stride: int, groups: int, out: int) -> str:
    """Return how the weights lie: in rows for narrow groups; for 3 x 3 taps, but for a stride on many pixels,
    a channel's taps together."""
    if is_narrow(c, f, groups):
        return "rows"
    is_fit = (kernel, groups) == (TAPS, 1) and (stride == 1 or out**2 <= MAX_PIXELS)
    return winograd_layout(c) if is_fit else "panels"


def packed(columns: np.ndarray, layout: str, groups: int) -> np.ndarray:
    """Return the weights [taps * C / groups, F] as a kernel of `layout` takes them."""
    if layout == "rows":
        return columns
    return pack_columns(layout, columns, groups)


def candidates(batch: int, layer: tuple[int, ...]) -> tuple[list[Run], float, float]:
    """Return (ours and PyTorch's, flops, milliseconds to compile)."""
    side, c, f, kernel, stride, groups, _ = layer
    spec = conv_spec(batch, side, c, f, kernel, stride, groups)
    code = compile_kernel(spec, ())
    weight = random(f, c // groups, kernel, kernel)
    columns = np.ascontiguousarray(weight.transpose(2, 3, 1, 0).reshape(-1, f))
    x, bias = random(batch, side, side, c), random(f)
    y = aligned(np.zeros([int(size) for size in spec.buffers[2].shape], np.float32))  # type: ignore[arg-type]
    image = x.transpose(0, 3, 1, 2) if isinstance(spec, Conv) and spec.planes else x
    flat = aligned(image.reshape([int(size) for size in spec.buffers[0].shape]))  # type: ignore[arg-type]
    panels = aligned(packed(columns, spec.product.b_layout, groups))  # as in an artifact
    ours = prepare(Kernel(code), [flat, panels, y, bias], ())
    tx = torch.from_numpy(x).permute(0, 3, 1, 2)
    tw, tb = torch.from_numpy(weight).contiguous(memory_format=torch.channels_last), torch.from_numpy(bias)

    def theirs() -> None:
        F.conv2d(tx, tw, tb, stride, padding(kernel, stride), 1, groups).relu_()

    ours()
    wanted = (
        F.conv2d(tx, tw, tb, stride, padding(kernel, stride), 1, groups)
        .relu_()
        .permute(0, 2, 3, 1)
        .reshape(-1, f)
    )
    np.testing.assert_allclose(y, wanted.numpy(), rtol=1e-3, atol=1e-3)
    assert code.timings is not None
    return [ours, theirs], 2.0 * spec.product.m * f * spec.product.k, code.timings.total * 1e3  # type: ignore[operator]


def own_flops(batch: int, layer: tuple[int, ...]) -> float:
    """Return the operations of the products alone, as the kernel does them."""
    side, c, f, kernel, stride, groups, _ = layer
    out = (side - 1) // stride + 1
    if stride == 1 and layout_of(c, f, kernel, stride, groups, out) == WINOGRAD:
        return 2.0 * batch * (-(-out // TILE) * SIDE) ** 2 * c * f
    return 2.0 * batch * (out * kernel) ** 2 * c // groups * f


def copy_of(batch: int, layer: tuple[int, ...]) -> Run:
    """Return a copy that reads and writes as many bytes as the image and the result have, all together."""
    side, c, f, _, stride, *_ = layer
    count = batch * (side**2 * c + (-(-side // stride)) ** 2 * f) // 2
    source, target = random(count), random(count)
    return lambda: np.copyto(target, source)


@dataclass(frozen=True)
class Measured:
    """Seconds of one layer: at the FMA peak, ours, PyTorch's; of our products at the peak, of a copy of its
    bytes; and milliseconds to compile."""

    layer: tuple[int, ...]
    peak: float
    ours: float
    torch: float
    own: float
    copy: float
    flops: float
    compile_ms: float


def measure(layers: Iterable[tuple[int, ...]], batch: int, rounds: int) -> Iterator[Measured]:
    """Yield the figures of each layer, the peak measured with it."""
    peak, peak_flops = fma_peak()
    with torch.no_grad():
        for layer in layers:
            runs, flops, compile_ms = candidates(batch, layer)
            fma, ours, theirs, copy = medians([peak, *runs, copy_of(batch, layer)], rounds)
            rate, own = peak_flops / fma, own_flops(batch, layer)
            yield Measured(layer, flops / rate, ours, theirs, own / rate, copy, flops, compile_ms)


def main(layers: Iterable[tuple[int, ...]], batch: int, rounds: int) -> None:
    """Print a line for each layer. A share above 100 % is Winograd's: flops are those of the definition."""
    print(
        f"{'layer':34} {'peak':>6} {'ours':>6} {'share':>6} {'torch':>6} {'ours us':>8} "
        f"{'own us':>7} {'copy us':>8} {'compile':>8}"
    )
    total = [0.0, 0.0, 0.0]
    for row in measure(layers, batch, rounds):
        side, c, f, kernel, stride, groups, count = row.layer
        name = f"{count} x {side}^2 {c}->{f} {kernel}x{kernel}/{stride}" + (
            f" g{groups}" if groups > 1 else ""
        )
        rates = [row.flops / time / 1e9 for time in (row.peak, row.ours, row.torch)]
        print(
            f"{name:34} {rates[0]:6.0f} {rates[1]:6.0f} {row.peak / row.ours:6.0%} "
            f"{rates[2]:6.0f} {row.ours * 1e6:8.0f} {row.own * 1e6:7.0f} {row.copy * 1e6:8.0f} "
            f"{row.compile_ms:8.1f}"
        )
        total = [t + count * x for t, x in zip(total, (row.ours, row.torch, row.peak), strict=True)]
    print("all layers, ms: ours {:.2f}, torch {:.2f}, at the peak {:.2f}".format(*(t * 1e3 for t in total)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    chosen = [layer for layer in LAYERS + GROUPED if options.only in f"{layer[3]}x{layer[3]}"]
    main(chosen, options.batch, options.rounds)
