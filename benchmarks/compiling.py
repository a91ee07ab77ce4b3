"""What `shapevm.compile` takes against `torch.export.export` alone, the kernel cache empty and full; and the
first call under torch.compile of each of its backends.

Every run is a fresh process that has imported torch and shapevm and made the model: what a library imports at
its first use counts. `python benchmarks/compiling.py MODEL CONTESTANT` is one such run, for profilers too.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import shapevm

if TYPE_CHECKING:  # it imports parts of shapevm, which are to be imported by what is measured
    from measure import Figure

sys.path += [str(Path(__file__).parent.parent / folder) for folder in ("examples", "tests")]

ROUNDS = 1 if "--short" in sys.argv else 3
COLD, WARM = "at most 1.5x", "at most 1.1x"
#: Of torch.compile. aot_eager: PyTorch's share of shapevm's work; inductor: PyTorch's own compiler.
BACKENDS = ("shapevm", "aot_eager", "eager", "inductor")
COMPILED = ("cold", "warm")  # the kernel cache's state


@dataclass(frozen=True)
class Case:
    """A model with what both contestants take: keyword arguments to trace with and their dynamic sizes."""

    model: torch.nn.Module
    kwargs: dict[str, torch.Tensor]
    dynamic_shapes: dict[str, Any]


def minilm() -> Case:
    """The sentence encoder with its real weights."""
    from encoder import dynamic_shapes, example_inputs, load_bert

    return Case(load_bert(), example_inputs(), dynamic_shapes())


def resnet50() -> Case:
    """torchvision's ResNet-50 with random weights, any batch and side."""
    from models import vision

    batch, half = torch.export.Dim("batch", min=1, max=8), torch.export.Dim("half", min=5, max=10)
    shapes = {"x": {0: batch, 2: 32 * half, 3: 32 * half}}
    return Case(vision.make("resnet50", weights=None)().eval(), {"x": torch.randn(2, 3, 192, 192)}, shapes)


def gpt2() -> Case:
    """A transformer of GPT-2's sizes with random weights, any batch and length."""
    from transformers import GPT2Config, GPT2LMHeadModel

    batch, length = torch.export.Dim("batch", min=1, max=8), torch.export.Dim("length", min=1, max=1024)
    model = GPT2LMHeadModel(GPT2Config(use_cache=False)).eval()
    return Case(model, {"input_ids": torch.randint(0, 50000, (2, 19))}, {"input_ids": {0: batch, 1: length}})


def t5() -> Case:
    """A transformer of T5-small's sizes with random weights."""
    from transformers import T5Config, T5ForConditionalGeneration

    model = T5ForConditionalGeneration(T5Config(use_cache=False)).eval()
    ids = torch.randint(0, 30000, (2, 19))
    return Case(model, {"input_ids": ids, "decoder_input_ids": ids[:, :7]}, {})


CASES: dict[str, tuple[str, Callable[[], Case]]] = {
    "minilm": ("MiniLM-L6", minilm),
    "resnet50": ("ResNet-50", resnet50),
    "gpt2": ("GPT-2's sizes, random weights", gpt2),
}
GRAPHS: dict[str, tuple[str, Callable[[], Case]]] = {
    "minilm": ("MiniLM-L6", minilm),
    "t5": ("T5-small's sizes, random weights", t5),
}


def export(case: Case) -> None:
    """The yardstick: the program as PyTorch traces it."""
    with torch.no_grad():
        torch.export.export(case.model, (), case.kwargs, dynamic_shapes=case.dynamic_shapes, strict=False)


def compile_case(case: Case) -> int:
    """Compile and return how many kernels the compiler made."""
    exe = shapevm.compile(
        case.model, kwargs=case.kwargs, dynamic_shapes=case.dynamic_shapes, strategy="generic"
    )
    return exe.stats().compiled


def call_first(case: Case, backend: str) -> None:
    """Call the model under torch.compile for the first time, with sizes that may vary."""
    model = torch.compile(case.model, backend=backend, dynamic=True)
    with torch.no_grad():
        model(**case.kwargs)


def timed(name: str, contestant: str) -> dict[str, float]:
    """Run one contestant in this process and return its seconds."""
    case = (CASES | GRAPHS)[name][1]()
    start, n_compiled = time.perf_counter(), 0
    if contestant == "export":
        export(case)
    elif contestant == "compile":
        n_compiled = compile_case(case)
    else:
        call_first(case, contestant)
    return {"seconds": time.perf_counter() - start, "compiled": n_compiled}


def child(name: str, contestant: str, cache: Path) -> dict[str, float]:
    """Return what `timed` says in a process of its own with this kernel cache."""
    command = [sys.executable, "-P", __file__, name, contestant]  # transformers imports whatever is `kernels`
    environment = {**os.environ, "SHAPEVM_CACHE_DIR": str(cache)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is not compiled by each process
    environment["PYTHONPYCACHEPREFIX"] = str(cache.parent / "bytecode")
    environment["TORCHINDUCTOR_CACHE_DIR"] = str(cache / "inductor")
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def rounds(name: str, folder: Path) -> dict[str, list[float]]:
    """Return the seconds of each contestant, in turn: export, compile cold, compile warm, export ..."""
    times: dict[str, list[float]] = {"export": [], "cold": [], "warm": []}
    cache = folder / name
    child(name, "export", cache)  # files are read into memory, modules become bytecode
    child(name, "compile", cache)
    for _ in range(ROUNDS):
        times["export"].append(child(name, "export", cache)["seconds"])
        shutil.rmtree(cache, ignore_errors=True)
        for state in COMPILED:
            found = child(name, "compile", cache)
            if (found["compiled"] == 0) != (state == "warm"):
                raise RuntimeError(f"{name}, {state}: {found['compiled']} kernels were compiled")
            times[state].append(found["seconds"])
    return times


def figures() -> list[Figure]:
    """Return all figures."""
    from measure import Figure, median

    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (title, _) in CASES.items():
            times = rounds(name, Path(folder))
            for state, goal in zip(COMPILED, (COLD, WARM), strict=True):
                pairs = zip(times[state], times["export"], strict=True)
                ratio = median([ours / theirs for ours, theirs in pairs])
                text = f"{median(times[state]):.2f}, {median(times['export']):.2f}: {ratio:.2f}x"
                what = f"{title}, {state} cache: shapevm.compile, torch.export (s)"
                found.append(Figure(what, text, goal))
        child("minilm", "shapevm", Path(folder) / "graphs")  # modules become bytecode
        found += [first_call(name, Path(folder)) for name in GRAPHS]
    return found


def first_call(name: str, folder: Path) -> Figure:
    """Return the seconds of the first call under torch.compile, the kernel cache empty, by backend."""
    from measure import Figure

    shutil.rmtree(folder / "graphs", ignore_errors=True)
    times = {backend: child(name, backend, folder / "graphs")["seconds"] for backend in BACKENDS}
    text = f"{', '.join(f'{seconds:.1f}' for seconds in times.values())}"
    text += f": {times['shapevm'] / times['aot_eager']:.2f}x"
    what = f"{GRAPHS[name][0]}, cold cache: first call under torch.compile, {', '.join(BACKENDS)} (s)"
    return Figure(what, text, "at most 1.1x aot_eager")


if __name__ == "__main__":
    print(json.dumps(timed(sys.argv[1], sys.argv[2])))
