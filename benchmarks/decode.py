"""Decoding, which memory bounds: products of few rows with weights from memory, and a GPT-2 token by token.

    python benchmarks/decode.py [--huge] [--rounds 9]      # the products
    python benchmarks/decode.py --tokens                   # the GPT-2

Weights take turns, more of them than the last-level cache holds. The read stream is a kernel of our own
that only adds up, 16 places at once, over as many bytes in the same kind of pages, in turn with the products:
the faster of one that prefetches lines and one that does not.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import mmap
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
from peers import export_onnx, is_installed, onnxruntime_session, openvino_request
from shapevm.jit.evaluation import f32_to_bf16
from shapevm.jit.execute import Kernel, _map
from shapevm.jit.families.matmul.layouts import pack_panels
from shapevm.jit.llvm.function import Function, Value
from shapevm.jit.llvm.target import find_target, host_target, target_machine
from shapevm.jit.object.link import Object

import shapevm
from shapevm.specialise.kernel_store import open_store

WEIGHTS = [(768, 768), (768, 3072), (3072, 768), (768, 50257)]  # (K, N) of GPT-2
ROWS = (1, 4, 8, 16)
WORKING_SET = 160 << 20  # bytes of the weights that take turns
GEMV_PANELS = 16  # places that the read stream reads at once: more gain nothing
HUGE_PAGE = 2 << 20
TOKENS, PROMPT = 64, 16
LAYERS, HEADS, HEAD_DIM = 6, 12, 64
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


def read_stream(memory: np.ndarray, asks: bool = True) -> Run:
    """Return a loop that adds up all of `memory`, at GEMV_PANELS places at once; `asks`: for lines ahead."""
    type, lanes, bytes_ahead = "<16 x float>", 16, 2048
    n = memory.nbytes // 4 // GEMV_PANELS // lanes * lanes
    f = Function("kernel", [("ptr", "x"), ("ptr", "sums")])
    f.declarations["llvm.prefetch.p0"] = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"
    with f.loop(0, n, lanes, carried=[Value(type, "zeroinitializer")] * GEMV_PANELS) as loop:
        sums = []
        for i, total in enumerate(loop.carried):
            place = f.at(f.params[0], "float", f.add(loop.index, i * n))
            if asks:
                ahead = f.op("ptr", f"getelementptr i8, ptr {place.name}, i64 {bytes_ahead}")
                f.do(f"call void @llvm.prefetch.p0(ptr {ahead.name}, i32 0, i32 3, i32 1)")
            sums.append(f.op(type, f"fadd {type} {total.name}, {f.load(type, place, align=64).name}"))
        loop.next(*sums)
    for i, total in enumerate(loop.results):
        f.store(total, f.at(f.params[1], type, i), align=4)
    target = find_target(host_target())
    text = f'target triple = "{target.triple}"\n{f.text()}attributes #0 = {{ {target.attributes} }}\n'
    blob = Object(target_machine(target.name).emit_object(llvm.parse_assembly(text))).link("kernel")
    code, address = _map(blob.code)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(address + blob.entry)
    found = aligned(np.zeros(GEMV_PANELS * lanes, np.float32))

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
    kernel = Kernel(open_store(is_host=True).object(dataclasses.replace(spec, buffers=tuple(buffers)), (m,)))
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
    memory = pages(WORKING_SET, huge)
    streams: list[tuple[Run, int]] = [(read_stream(memory, asks), WORKING_SET) for asks in (True, False)]
    for k, n in WEIGHTS:
        weight = np.random.default_rng(0).standard_normal((k, n), np.float32) * np.float32(0.02)
        wide, narrow = pack_panels(weight), pack_panels(f32_to_bf16(weight))
        for m in ROWS:
            runs = [*streams, ours(k, n, m, wide, "f32", huge), ours(k, n, m, narrow, "bf16", huge)]
            runs.append(eager(k, n, m, weight))
            times = medians([run for run, _ in runs], rounds)  # type: ignore[misc]
            asked, unasked, *speeds = (
                n_bytes / time / 1e9 for (_, n_bytes), time in zip(runs, times, strict=True)
            )
            yield k, n, m, [max(asked, unasked), *speeds]


def products(huge: bool = True, rounds: int = 5) -> list[Figure]:
    """Products of few rows."""
    found = []
    for k, n, m, (stream, wide, narrow, theirs) in product_rows(huge, rounds):
        text = f"{wide:.1f} ({wide / stream:.0%}), {narrow:.1f} ({narrow / stream:.0%}), {theirs:.1f}"
        what = f"{m} x {k} x {n}, GB/s of weights: f32, bf16 (share of the read stream), PyTorch's f32"
        found.append(Figure(what, text, "at least 85%" if m in (1, 4) else ""))
    return found


# GPT-2 ----------------------------------------------------------------------------------------------------


Past = list[tuple[torch.Tensor, torch.Tensor]]


def decoder() -> torch.nn.Module:
    """Return one step of a GPT-2 of LAYERS layers with random weights: (token, past) -> (logits, present)."""
    from transformers import GPT2Config, GPT2LMHeadModel
    from transformers.cache_utils import DynamicCache

    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = GPT2LMHeadModel(GPT2Config(n_layer=LAYERS))

        def forward(self, token: torch.Tensor, past: Past) -> tuple[torch.Tensor, Past]:
            cache = DynamicCache()
            for layer, (keys, values) in enumerate(past):
                cache.update(keys, values, layer)
            out = self.model(token, past_key_values=cache, use_cache=True)
            return out.logits, [(layer.keys, layer.values) for layer in out.past_key_values.layers]

    torch.manual_seed(0)
    return Step().eval()


def first_inputs(length: int = PROMPT) -> tuple[torch.Tensor, Past]:
    """Return a token and a cache of `length` positions."""
    shape = (1, HEADS, length, HEAD_DIM)
    past = [(torch.randn(shape), torch.randn(shape)) for _ in range(LAYERS)]
    return torch.zeros(1, 1, dtype=torch.long), past


def decode(step: Callable[[torch.Tensor, Past], Any], past: Past) -> list[int]:
    """Decode TOKENS tokens greedily, each call's cache the next one's input."""
    token, found = torch.zeros(1, 1, dtype=torch.long), []
    for _ in range(TOKENS):
        logits, past = step(token, past)
        token = logits[:, -1:].argmax(-1)
        found.append(int(token))
    return found


def decode_onnx(session: Any, past: Past) -> list[int]:
    """The same in ONNX Runtime, on numpy arrays."""
    names = [given.name for given in session.get_inputs()]
    token, arrays = np.zeros((1, 1), np.int64), [x.numpy() for pair in past for x in pair]
    found = []
    for _ in range(TOKENS):
        logits, *arrays = session.run(None, dict(zip(names, [token, *arrays], strict=True)))
        token = logits[:, -1:].argmax(-1)
        found.append(int(token.item()))
    return found


def decode_openvino(path: Path) -> Callable[[Past], list[int]]:
    """The same in OpenVINO: f32, one thread, set for latency."""
    request, names = openvino_request(path)

    def run(past: Past) -> list[int]:
        token, arrays = np.zeros((1, 1), np.int64), [x.numpy() for pair in past for x in pair]
        found = []
        for _ in range(TOKENS):
            results = request.infer(dict(zip(names, [token, *arrays], strict=True)), share_inputs=True)
            logits, *arrays = (results[i] for i in range(1 + len(arrays)))
            token = logits[:, -1:].argmax(-1)
            found.append(int(token.item()))
        return found

    return run


def decoders(folder: Path) -> dict[str, Callable[[Past], list[int]]]:
    """Return what decodes here: shapevm with weights in f32 and in bf16, PyTorch, and others that are there.

    Lengths come once in a sequence, so that generic code runs all but the products, whose sizes are fixed.
    """
    model, inputs = decoder(), first_inputs(7)
    past = torch.export.Dim("past", min=1, max=1023)
    shapes = {"token": None, "past": [({2: past}, {2: past}) for _ in range(LAYERS)]}
    runs: dict[str, Callable[[Past], list[int]]] = {}
    for weights in ("f32", "bf16"):
        exe = shapevm.compile(
            model,
            inputs,
            dynamic_shapes=shapes,
            options=shapevm.Options(weights=weights, fallback="error"),
            strategy="generic",
        )
        runs[f"shapevm {weights}"] = partial(decode, exe)
    runs["eager"] = partial(decode, model)
    others = {
        "onnxruntime": ("ONNX Runtime", lambda path: partial(decode_onnx, onnxruntime_session(path))),
        "openvino": ("OpenVINO", decode_openvino),
    }
    path, item = folder / "gpt2.onnx", dict(zip(("token", "past"), inputs, strict=True))
    if any(map(is_installed, others)):
        export_onnx(model, item, shapes, path)  # type: ignore[arg-type]
    for package, (name, make) in others.items():
        if is_installed(package):
            runs[name] = make(path)
    return runs


def tokens(rounds: int = 5) -> list[Figure]:
    """A sequence of TOKENS tokens, everybody in turn."""
    found, past = [], first_inputs()[1]
    with tempfile.TemporaryDirectory() as folder:
        runs = {name: partial(run, past) for name, run in decoders(Path(folder)).items()}
        results = {name: run() for name, run in runs.items()}
        times = interleaved(runs, rounds, warmup=1)
    if results["shapevm f32"] != results["eager"]:
        raise AssertionError("shapevm decodes other tokens than eager")
    text = ", ".join(f"{name} {median(times[name]) / TOKENS * 1e3:.1f}" for name in runs)
    found.append(Figure(f"GPT-2, {LAYERS} layers: ms a token, {TOKENS} tokens behind {PROMPT}", text))
    best = min((name for name in runs if "shapevm" not in name), key=lambda name: median(times[name]))
    for weights, goal in (("f32", "at least 1.2x"), ("bf16", "at least 2.3x")):
        gain = f"{ratio(times, best, f'shapevm {weights}'):.2f}x {best} in f32, the best"
        found.append(Figure(f"the same with weights in {weights}", gain, goal))
    return found


def figures() -> list[Figure]:
    """Return all figures, one core."""
    torch.set_num_threads(1)
    shapevm.set_threads(1)
    with torch.inference_mode():
        return [*products(), *tokens()]


def main() -> None:
    """Print the products."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--huge", action="store_true", help="weights in huge pages")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", action="store_true", help="decode instead")
    options = parser.parse_args()
    torch.set_num_threads(1)
    shapevm.set_threads(1)
    if options.tokens:
        with torch.inference_mode():
            for figure in tokens(options.rounds):
                print(f"{figure.what}: {figure.figure} ({figure.goal})")
        return
    for k, n, m, speeds in product_rows(options.huge, options.rounds):
        print(f"{m:3} x {k:4} x {n:5}", *(f"{speed:6.1f}" for speed in speeds), flush=True)


if __name__ == "__main__":
    main()
