"""TorchScript programs, recurrent layers and nested inputs, against PyTorch in the same run, on one core."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import silero_vad
import torch
from detection import detection
from measure import SHORT, Figure, interleaved, median, per_call, ratio, seconds
from torch import Tensor, nn
from vision import make

import shapevm
from shapevm.pytorch.dynamo import CompiledGraph

ROUNDS = 5 if SHORT else 25
CHUNK, RATE = 512, 16000  # 32 ms
N_CHUNKS = 30
HIDDEN, N_TREES, LEAVES = 300, 10 if SHORT else 100, (5, 60)
LENGTHS = (1, 2, 7, 32, 100, 384)


# Silero VAD ---------------------------------------------------------------------------------------------


def silero() -> list[Figure]:
    """A chunk of 32 ms with the state of those before."""
    folder = Path(silero_vad.__file__).parent / "data"
    generator = torch.Generator().manual_seed(0)
    chunks = [torch.randn(1, CHUNK, generator=generator) * 0.1 for _ in range(N_CHUNKS)]
    scripted = torch.jit.load(folder / "silero_vad.jit").eval()
    exe = shapevm.compile(folder / "silero_vad.jit", args=(chunks[0], RATE))
    runs: dict[str, Any] = {
        "shapevm": lambda: [exe(chunk, RATE) for chunk in chunks],
        "TorchScript": lambda: [scripted(chunk, RATE) for chunk in chunks],
    }
    if find_spec("onnxruntime") is not None:
        runs["ONNX Runtime"] = _onnx(folder / "silero_vad.onnx", chunks)
    runs["shapevm"]()
    exe.wait_until_specialised()
    times = interleaved(runs, ROUNDS)
    text = ", ".join(f"{name} {median(found) / N_CHUNKS * 1e6:.0f}" for name, found in times.items())
    gains = [f"{ratio(times, name, 'shapevm'):.2f}x {name}" for name in times if name != "shapevm"]
    goal = "4x TorchScript, 1.3x ONNX Runtime"
    return [Figure("Silero VAD, a chunk of 32 ms at 16 kHz (us)", f"{text}: {', '.join(gains)}", goal)]


def _onnx(path: Path, chunks: list[Tensor]) -> Any:
    """Return a run of ONNX Runtime over all chunks, its state and context handed on as silero_vad does."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    rate, arrays = np.array(RATE, np.int64), [chunk.numpy() for chunk in chunks]

    def run() -> None:
        state, context = np.zeros((2, 1, 128), np.float32), np.zeros((1, 64), np.float32)
        for array in arrays:
            whole = np.concatenate([context, array], 1)
            _, state = session.run(None, {"input": whole, "state": state, "sr": rate})
            context = whole[:, -64:]

    return run


# Trees --------------------------------------------------------------------------------------------------


class TreeLSTM(nn.Module):
    """Child-Sum TreeLSTM. A tree is its nodes' words and a table: row i lists the children of node i, which
    come before it; -1 fills it up."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.gates = nn.Linear(hidden, 3 * hidden)
        self.sums = nn.Linear(hidden, 3 * hidden, bias=False)
        self.forget = nn.Linear(hidden, hidden)
        self.forget_child = nn.Linear(hidden, hidden, bias=False)

    def forward(self, words: Tensor, children: Tensor) -> Tensor:
        """Return the root's state."""
        hs: list[Tensor] = []
        cs: list[Tensor] = []
        for i in range(words.size(0)):
            x = words[i]
            h_sum = torch.zeros_like(x)
            kept = torch.zeros_like(x)
            wanted = self.forget(x)
            for j in range(children.size(1)):
                k = int(children[i, j])
                if k >= 0:
                    h_sum = h_sum + hs[k]
                    kept = kept + torch.sigmoid(wanted + self.forget_child(hs[k])) * cs[k]
            one, two, three = torch.chunk(self.gates(x) + self.sums(h_sum), 3, 0)
            c = torch.sigmoid(one) * torch.tanh(three) + kept
            hs.append(torch.sigmoid(two) * torch.tanh(c))
            cs.append(c)
        return hs[-1]


def random_tree(rng: random.Random) -> tuple[Tensor, Tensor]:
    """Return the words and the children of a tree, of 2 or 3 children per node."""
    roots = list(range(rng.randint(*LEAVES)))
    children = [[-1, -1, -1] for _ in roots]
    while len(roots) > 1:
        n = min(len(roots), rng.choice((2, 2, 3)))
        at = rng.randrange(len(roots) - n + 1)
        children.append([*roots[at : at + n], *[-1] * (3 - n)])
        roots[at : at + n] = [len(children) - 1]
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    return torch.randn(len(children), HIDDEN, generator=generator), torch.tensor(children)


def trees() -> list[Figure]:
    """All trees of a random sample, one after the other."""
    torch.manual_seed(0)
    rng = random.Random(0)
    model, sample = TreeLSTM(HIDDEN).eval(), [random_tree(rng) for _ in range(N_TREES)]
    scripted = torch.jit.script(model)
    exe = shapevm.compile(scripted, args=sample[0])
    for tree in sample:
        torch.testing.assert_close(exe(*tree), model(*tree), rtol=1e-4, atol=1e-5)
    exe.wait_until_specialised()
    runs = {
        name: lambda call=call: [call(*tree) for tree in sample]
        for name, call in (("shapevm", exe), ("eager", model), ("TorchScript", scripted))
    }
    times = interleaved(runs, 5, warmup=1)
    text = ", ".join(f"{name} {median(found) / N_TREES * 1e3:.2f}" for name, found in times.items())
    gains = ", ".join(f"{ratio(times, name, 'shapevm'):.2f}x {name}" for name in ("eager", "TorchScript"))
    what = (
        f"Child-Sum TreeLSTM, {HIDDEN} wide, {N_TREES} trees of {LEAVES[0]} to {LEAVES[1]} leaves (ms a tree)"
    )
    return [Figure(what, f"{text}: {gains}", "8x eager")]


# Importing, nested inputs, recurrent layers ---------------------------------------------------------------


def importing() -> list[Figure]:
    """From a traced ResNet-50 to a program with generic kernels, without a cache and with all in it."""
    x = torch.randn(1, 3, 224, 224)
    traced = torch.jit.trace(make("resnet50"), x)

    def load() -> float:
        return seconds(lambda: shapevm.compile(traced, args=(x,), strategy="generic").close())

    with shapevm.settings.scope(cache=False):
        cold = load()
    warm = median([load() for _ in range(1 if SHORT else 3)])
    text = f"{cold:.2f} s, {warm:.2f} s with its kernels in the cache"
    return [Figure("a traced ResNet-50, to a loaded program", text, "at most 5 s")]


class Flat(nn.Module):
    """Four tensors, side by side."""

    def forward(self, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
        """Return their sum."""
        return a + b + c + d


class Nested(nn.Module):
    """Four tensors in a dict, a tuple and a list."""

    def forward(self, x: dict[str, Any]) -> Tensor:
        """Return their sum."""
        (a, b), (c, d) = x["pair"], x["list"]
        return a + b + c + d  # type: ignore[no-any-return]


def nested() -> list[Figure]:
    """What a call pays for the structure of its inputs."""
    a, b, c, d = (torch.randn(3, 16) for _ in range(4))
    tree = {"pair": (a, b), "list": [c, d]}
    flat = shapevm.compile(Flat().eval(), (a, b, c, d), strategy="jit")
    deep = shapevm.compile(Nested().eval(), (tree,), strategy="jit")
    calls = range(2000)
    runs = {
        "flat": lambda: [flat(a, b, c, d) for _ in calls],
        "nested": lambda: [deep(tree) for _ in calls],
    }
    times = interleaved(runs, ROUNDS)
    pairs = zip(times["nested"], times["flat"], strict=True)
    more = median([(x - y) / len(calls) for x, y in pairs]) * 1e6
    one, two = (median(times[name]) / len(calls) * 1e6 for name in ("flat", "nested"))
    text = f"{two:.2f} us, {one:.2f} flat: {more:.2f} us more"
    return [Figure("a call with a dict of a tuple and a list of four tensors", text, "at most 1 us more")]


def recurrent() -> list[Figure]:
    """Recurrent layers of 256 at several lengths, of one program each."""
    found = []
    for kind in (nn.LSTM, nn.GRU):
        torch.manual_seed(0)
        model = kind(256, 256).eval()
        length = torch.export.Dim("length", min=1, max=4096)
        exe = shapevm.compile(model, (torch.randn(9, 1, 256),), dynamic_shapes=({0: length},))
        gains = {}
        for n in LENGTHS:
            x = torch.randn(n, 1, 256)
            exe(x)
            exe.wait_until_specialised()
            times = interleaved({"shapevm": partial(exe, x), "eager": partial(model, x)}, ROUNDS)
            gains[n] = ratio(times, "eager", "shapevm")
        text = ", ".join(f"{n}: {gain:.2f}x" for n, gain in gains.items())
        found.append(
            Figure(f"{kind.__name__}, 256 wide, a batch of 1, by length", f"{text} eager", "1x eager")
        )
    return found


@contextmanager
def _idle() -> Iterator[None]:
    """Let programs of torch.compile give what they gave first for a size: what is left is Dynamo's."""
    kept: dict[Any, list[Any]] = {}
    run = CompiledGraph.__call__

    def give(graph: CompiledGraph, args: list[Any]) -> list[Any]:
        key = (graph, *(x.shape for x in args if isinstance(x, Tensor)))
        if key not in kept:
            kept[key] = run(graph, list(args))
        args.clear()
        return list(kept[key])

    CompiledGraph.__call__ = give  # type: ignore[method-assign]
    try:
        yield
    finally:
        CompiledGraph.__call__ = run  # type: ignore[method-assign]


def _calls(call: Any, x: Tensor) -> None:
    """Fifty calls, so that each finds the caches as the one before has left them."""
    for _ in range(50):
        call(x)


def compiled() -> list[Figure]:
    """The same layers under torch.compile, and Dynamo's calls alone."""
    found = []
    for kind in (nn.LSTM, nn.GRU):
        with torch.inference_mode(False):
            torch.manual_seed(0)
            model = kind(256, 256).eval()
        torch._dynamo.reset()  # frames of other models are looked at first
        call = torch.compile(model, backend="shapevm", dynamic=True)
        inputs = {n: torch.randn(n, 1, 256) for n in LENGTHS}
        for x in inputs.values():
            for _ in range(20):
                call(x)
        gains = {}
        for n, x in inputs.items():
            runs = {"shapevm": partial(_calls, call, x), "eager": partial(_calls, model, x)}
            gains[n] = ratio(interleaved(runs, ROUNDS), "eager", "shapevm")
        text = ", ".join(f"{n}: {gain:.2f}x" for n, gain in gains.items())
        with _idle():
            idle = per_call(partial(call, inputs[2]), 200)
        what = f"{kind.__name__} under torch.compile, 256 wide, a batch of 1, by length"
        text = f"{text} eager; a call whose program does nothing {idle * 1e6:.0f} us"
        found.append(Figure(what, text, "1x eager"))
    return found


def figures() -> list[Figure]:
    """Return all figures, one core."""
    torch.set_num_threads(1)
    shapevm.set_threads(1)
    with torch.inference_mode():
        return [*silero(), *trees(), *importing(), *nested(), *recurrent(), *compiled(), *detection()]
