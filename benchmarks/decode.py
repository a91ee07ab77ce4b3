"""Decoding, which memory bounds: products of few rows with weights from memory, and a GPT-2 token by token.

    python benchmarks/decode.py [--huge] [--rounds 9]      # the products alone

Weights take turns, more of them than the last-level cache holds. The read stream is a kernel of our own
that only adds up, 16 places at once, over as many bytes in the same kind of pages, in turn with the products.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import mmap
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import torch
import torch.nn.functional as F
from kernels import aligned, in_turn, linear_spec, medians, prepare, random
from measure import Figure, interleaved, median, ratio
from peers import is_installed
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel, _map
from shapevm.jit.link import link
from shapevm.jit.llvm import Function, Value
from shapevm.jit.matmul import pack_panels
from shapevm.jit.reference import f32_to_bf16
from shapevm.jit.target import find_target, host_target, target_machine

import shapevm

WEIGHTS = [(768, 768), (768, 3072), (3072, 768), (768, 50257)]  # (K, N) of GPT-2
ROWS = (1, 4, 8, 16)
WORKING_SET = 160 << 20  # bytes of the weights that take turns
STREAMS = 16  # places that the read stream reads at once: more gain nothing
HUGE_PAGE = 2 << 20
TOKENS, PROMPT = 64, 16
Run = Callable[[], object]


# Memory ---------------------------------------------------------------------------------------------------


def pages(n_bytes: int, huge: bool) -> np.ndarray:
    """Return zeroed memory in huge pages, or in none."""
    memory = mmap.mmap(-1, n_bytes + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = -ctypes.addressof(ctypes.c_char.from_buffer(memory)) % HUGE_PAGE
    memory.madvise(mmap.MADV_HUGEPAGE if huge else mmap.MADV_NOHUGEPAGE)
    found = np.frombuffer(memory, np.uint8, n_bytes, start)
    found[:] = 0
    return found


def read_stream(memory: np.ndarray) -> Run:
    """Return a loop that adds up all of `memory`, at STREAMS places at once."""
    type, lanes, bytes_ahead = "<16 x float>", 16, 2048
    n = memory.nbytes // 4 // STREAMS // lanes * lanes
    f = Function("kernel", [("ptr", "x"), ("ptr", "sums")])
    f.declarations["llvm.prefetch.p0"] = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"
    with f.loop(0, n, lanes, carried=[Value(type, "zeroinitializer")] * STREAMS) as loop:
        sums = []
        for i, total in enumerate(loop.carried):
            place = f.at(f.params[0], "float", f.add(loop.index, i * n))
            ahead = f.op("ptr", f"getelementptr i8, ptr {place.name}, i64 {bytes_ahead}")
            f.do(f"call void @llvm.prefetch.p0(ptr {ahead.name}, i32 0, i32 3, i32 1)")
            sums.append(f.op(type, f"fadd {type} {total.name}, {f.load(type, place, align=64).name}"))
        loop.next(*sums)
    for i, total in enumerate(loop.results):
        f.store(total, f.at(f.params[1], type, i), align=4)
    target = find_target(host_target())
    text = f'target triple = "{target.triple}"\n{f.text()}attributes #0 = {{ {target.attributes} }}\n'
    blob = link(target_machine(target.name).emit_object(llvm.parse_assembly(text)), "kernel")
    code, address = _map(blob.code)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(address + blob.entry)
    found = aligned(np.zeros(STREAMS * lanes, np.float32))

    def run(_keep: object = (code, memory, found)) -> None:
        call(memory.ctypes.data, found.ctypes.data)

    return run


# Products -------------------------------------------------------------------------------------------------


def weight_sets(panels: np.ndarray, huge: bool) -> list[np.ndarray]:
    """Return copies of `panels`, WORKING_SET bytes in all."""
    count = max(1, WORKING_SET // panels.nbytes)
    memory = pages(count * panels.nbytes, huge)
    sets = np.split(memory.view(panels.dtype), count)
    for each in sets:
        each[...] = panels.ravel()
    return [each.reshape(panels.shape) for each in sets]


def ours(k: int, n: int, m: int, panels: np.ndarray, dtype: str, huge: bool) -> tuple[Run, int]:
    """Return a call with each of the weights, and their bytes."""
    spec = linear_spec(k, n, "")
    buffers = list(spec.buffers)
    buffers[1] = dataclasses.replace(buffers[1], dtype=dtype)
    kernel = Kernel(compile_kernel(dataclasses.replace(spec, buffers=tuple(buffers)), (m,)))
    x, out, bias, sets = random(m, k), random(m, n), random(n), weight_sets(panels, huge)
    return in_turn([prepare(kernel, [x, w, out, bias], (m,)) for w in sets]), len(sets) * panels.nbytes


def eager(k: int, n: int, m: int, weight: np.ndarray) -> tuple[Run, int]:
    """Return the same by PyTorch: the weight [N, K] as nn.Linear has it."""
    count = max(1, WORKING_SET // weight.nbytes)
    x, bias = torch.from_numpy(random(m, k)), torch.from_numpy(random(n))
    sets = [torch.from_numpy(np.ascontiguousarray(weight.T)) for _ in range(count)]
    return in_turn([partial(F.linear, x, w, bias) for w in sets]), count * weight.nbytes  # type: ignore[list-item]


def product_rows(huge: bool, rounds: int) -> Iterator[tuple[int, int, int, list[float]]]:
    """Yield (K, N, M, GB/s of the read stream, of f32 and bf16 weights, of PyTorch)."""
    stream = read_stream(pages(WORKING_SET, huge))
    for k, n in WEIGHTS:
        weight = np.random.default_rng(0).standard_normal((k, n), np.float32) * np.float32(0.02)
        wide, narrow = pack_panels(weight), pack_panels(f32_to_bf16(weight))
        for m in ROWS:
            runs = [(stream, WORKING_SET), ours(k, n, m, wide, "f32", huge)]
            runs += [ours(k, n, m, narrow, "bf16", huge), eager(k, n, m, weight)]
            times = medians([run for run, _ in runs], rounds)  # type: ignore[misc]
            yield k, n, m, [n_bytes / time / 1e9 for (_, n_bytes), time in zip(runs, times, strict=True)]


def products(huge: bool = True, rounds: int = 5) -> list[Figure]:
    """Products of few rows."""
    found = []
    for k, n, m, (stream, wide, narrow, theirs) in product_rows(huge, rounds):
        text = f"{wide:.1f} ({wide / stream:.0%}), {narrow:.1f} ({narrow / stream:.0%}), {theirs:.1f}"
        what = f"{m} x {k} x {n}, GB/s of weights: f32, bf16 (share of the read stream), PyTorch's f32"
        found.append(Figure(what, text, "at least 85%" if m in (1, 4) else ""))
    return found


def main() -> None:
    """Print the products."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--huge", action="store_true", help="weights in huge pages")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for k, n, m, speeds in product_rows(options.huge, options.rounds):
        print(f"{m:3} x {k:4} x {n:5}", *(f"{speed:6.1f}" for speed in speeds), flush=True)


if __name__ == "__main__":
    main()
