"""GFLOP/s of matmul and attention kernels on one core, beside PyTorch's and the machine's FMA peak.

    python benchmarks/kernels.py [matmul|gelu|residual|attention] [--rounds 9] [--weights 8]

Every figure is a median over rounds in which all candidates of a row run one after the other, the peak
among them: a machine that slows down slows all of them. `--weights`: how many weight matrices take
turns, so that they come from memory as they do in a model, not from cache. The last columns:
milliseconds to compile the exact kernel.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from shapevm.jit import spec as s
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import NOTHING_PREPARED, Kernel, _Rt, product_terms
from shapevm.jit.families.attention.spec import Attention, Extents, Layout, Softmax
from shapevm.jit.families.matmul.layouts import PANEL, pack_panels
from shapevm.jit.families.matmul.spec import Matmul, MatrixProduct
from shapevm.jit.measure.roofline import fma_peak

SECONDS = 0.004  # of one measurement
WEIGHTS = [(384, 384), (384, 1152), (384, 1536), (1536, 384), (768, 768), (768, 3072), (3072, 768)]  # (K, N)
ROWS = [1, 4, 8, 16, 37, 64, 128, 197, 256, 512]
HEADS = [(12, 64), (12, 32)]
LENGTHS = [16, 37, 64, 128, 256, 512, 1024, 2048]
Run = Callable[[], None]


def aligned(array: np.ndarray) -> np.ndarray:
    """Return a copy that starts at a cache line."""
    memory = np.empty(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def random(*shape: int) -> np.ndarray:
    return aligned(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def prepare(kernel: Kernel, buffers: Sequence[np.ndarray], dims: Sequence[int]) -> Run:
    """Return a call of all tiles, as the C runtime makes it: addresses only, nothing allocated."""
    kernel._check(buffers, dims)
    memory = aligned(np.zeros(product_terms(kernel.code.work.scratch, dims) + 64, np.uint8))
    rt = _Rt(memory.ctypes.data, 0, 0, 0, NOTHING_PREPARED)
    pointers = (ctypes.c_void_p * len(buffers))(*[b.ctypes.data for b in buffers])
    sizes = (ctypes.c_int64 * max(len(dims), 1))(*dims)
    n, call = kernel.n_tiles(dims), kernel._call
    places = ctypes.addressof(pointers), ctypes.addressof(sizes), ctypes.addressof(rt)
    keep = (kernel, memory, pointers, sizes, rt, buffers)

    def run(_keep: object = keep) -> None:
        rt.prepared = NOTHING_PREPARED
        call(*places, 0, n)

    return run


def medians(candidates: Sequence[Run], rounds: int) -> list[float]:
    """Return each candidate's median seconds, all of them interleaved."""
    times: list[list[float]] = [[] for _ in candidates]
    repeats = []
    for run in candidates:
        run()
        begin = time.perf_counter()
        run()
        repeats.append(max(1, int(SECONDS / (time.perf_counter() - begin))))
    for _ in range(rounds):
        for run, repeat, found in zip(candidates, repeats, times, strict=True):
            begin = time.perf_counter()
            for _ in range(repeat):
                run()
            found.append((time.perf_counter() - begin) / repeat)
    return [float(np.median(found)) for found in times]


def in_turn(runs: Sequence[Run]) -> Run:
    """Return a call of all `runs`."""

    def run() -> None:
        for each in runs:
            each()

    return run


# Matmul ---------------------------------------------------------------------------------------------------


def linear_spec(k: int, n: int, epilogue: str) -> Matmul:
    """x @ w, + bias, then gelu or + residual."""
    m, i, j, kk = s.Dim(0), *(s.Index(loop=loop) for loop in range(3))
    shapes: list[tuple[s.Size, ...]] = [(m, k), (-(-n // PANEL), k, PANEL), (m, n), (n,)]
    body = [
        s.Instr("acc", "f32"),
        s.Instr("load", "f32", buffer=3, index=(j,)),
        s.Instr("add", "f32", (0, 1)),
    ]
    if epilogue == "gelu":
        body.append(s.Instr("gelu_erf", "f32", (2,)))
    if epilogue == "residual":
        shapes.append((m, n))
        body += [s.Instr("load", "f32", buffer=4, index=(i, j)), s.Instr("add", "f32", (2, 3))]
    body.append(s.Instr("store", "f32", (len(body) - 1,), buffer=2, index=(i, j)))
    buffers = tuple(s.Buffer("f32", shape, is_output=b == 2) for b, shape in enumerate(shapes))
    return Matmul(1, buffers, MatrixProduct((), m, n, k, 0, (i, kk), 1, (), "panels", tuple(body)))


def matmul_rows(epilogue: str, n_weights: int) -> Iterable[tuple[str, float, list[Run], float]]:
    for k, n in WEIGHTS:
        spec = linear_spec(k, n, epilogue)
        generic = Kernel(compile_kernel(spec, None))
        weights = [random(k, n) for _ in range(n_weights)]
        panels = [aligned(pack_panels(w)) for w in weights]
        transposed = [torch.from_numpy(np.ascontiguousarray(w.T)) for w in weights]
        for m in ROWS:
            x, bias, rest, out = random(m, k), random(n), random(m, n), random(m, n)
            code = compile_kernel(spec, (m,))
            assert code.timings is not None
            runs = []
            for kernel in (Kernel(code), generic):
                buffers = [[x, p, out, bias, *([rest] if epilogue == "residual" else [])] for p in panels]
                runs.append(in_turn([prepare(kernel, b, (m,)) for b in buffers]))
            runs.append(in_turn([eager_linear(epilogue, x, w, bias, rest) for w in transposed]))
            yield f"{m:5} x {k:4} x {n:4}", 2.0 * m * k * n * n_weights, runs, code.timings.total


def eager_linear(epilogue: str, x: np.ndarray, w: torch.Tensor, bias: np.ndarray, rest: np.ndarray) -> Run:
    tx, tb, tr = torch.from_numpy(x), torch.from_numpy(bias), torch.from_numpy(rest)
    if epilogue == "gelu":
        return lambda: F.gelu(F.linear(tx, w, tb))  # type: ignore[return-value]
    if epilogue == "residual":
        return lambda: F.linear(tx, w, tb) + tr  # type: ignore[return-value]
    return lambda: F.linear(tx, w, tb)  # type: ignore[return-value]


# Attention ------------------------------------------------------------------------------------------------


def attention_spec(heads: int, d: int) -> Attention:
    """Heads inside rows ([length, heads, d]) and a mask added to the keys, as encoders have them."""
    length, h, i, j, feature = s.Dim(0), *(s.Index(loop=loop) for loop in range(4))
    shape = (length, heads, d)
    buffers = (*(s.Buffer("f32", shape, is_output=b == 3) for b in range(4)), s.Buffer("f32", (length,)))
    body = (
        s.Instr("acc", "f32"),
        s.Instr("load", "f32", buffer=4, index=(j,)),
        s.Instr("add", "f32", (0, 1)),
    )
    rows, keys = (i, h, feature), (j, h, feature)
    extents, layout = Extents((heads,), length, length, d, d), Layout(0, 1, 2, 3, rows, keys, keys, rows)
    return Attention(1, buffers, extents, layout, Softmax(d**-0.5, True, body))


def attention_rows(n_weights: int) -> Iterable[tuple[str, float, list[Run], float]]:
    for heads, d in HEADS:
        spec = attention_spec(heads, d)
        generic = Kernel(compile_kernel(spec, None))
        for length in LENGTHS:
            q, k, v, out = (random(length, heads, d) for _ in range(4))
            mask = aligned(np.zeros(length, np.float32))
            code = compile_kernel(spec, (length,))
            assert code.timings is not None
            runs = [prepare(kernel, [q, k, v, out, mask], (length,)) for kernel in (Kernel(code), generic)]
            tq, tk, tv = (torch.from_numpy(x).transpose(0, 1)[None] for x in (q, k, v))
            tm = torch.from_numpy(mask)[None, None, None, :].expand(1, heads, length, length)
            runs.append(lambda a=tq, b=tk, c=tv, m=tm: F.scaled_dot_product_attention(a, b, c, m))  # type: ignore[misc]
            yield f"{length:5} of {heads} x {d}", 4.0 * heads * length * length * d, runs, code.timings.total


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("which", nargs="*", default=["matmul", "gelu", "residual", "attention"])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--weights", type=int, default=8)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    peak, peak_flops = fma_peak()
    for which in options.which:
        rows = (
            attention_rows(options.weights) if which == "attention" else matmul_rows(which, options.weights)
        )
        titles = " ".join(f"{title:>14}" for title in ("exact", "generic", "PyTorch"))
        print(f"\n{which:20} {'peak':>7} {titles} {'ratio':>6} {'compile':>9}")
        compiles = []
        for name, flops, runs, compile_seconds in rows:
            top, *found = medians([peak, *runs], options.rounds)
            limit = peak_flops / top / 1e9
            speeds = [flops / t / 1e9 for t in found]
            shown = " ".join(f"{speed:7.1f} ({speed / limit:4.0%})" for speed in speeds)
            compiles.append(compile_seconds * 1e3)
            print(
                f"{name:20} {limit:7.1f} {shown} {speeds[0] / speeds[2]:6.2f} {compiles[-1]:6.1f} ms",
                flush=True,
            )
        middle, worst = np.median(compiles), np.percentile(compiles, 99)
        print(f"compile, exact: median {middle:.1f} ms, 99th percentile {worst:.1f} ms")


if __name__ == "__main__":
    main()
