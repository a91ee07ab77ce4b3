"""What kernels take with parts left out: where the cycles of attention and of rows in memory go.

    python benchmarks/stripped.py [attention|cache|memory ...]

Cycles are those in which the machine could do two vectors of 16 fused multiply-adds each, by the FMA peak
measured in turn with the kernels; each the least of many, in the processor's time. `attention`: cycles for
each vector of 16 scores (the products alone need 64 at heads of 64), whole and with parts left out; what a
part gives is then meaningless. `cache`: cycles a vector in the first-level cache, by the slope between two
sizes. `memory`: a stream of 64 MB read and 64 MB written with more and more arithmetic on the way, beside a
copy.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

import numpy as np
from kernels import aligned, attention_spec, prepare, random
from limits import HEADS
from measure import Run, median
from shapevm.jit import compiler
from shapevm.jit import spec as s
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import Kernel
from shapevm.jit.families.attention import attention
from shapevm.jit.families.attention.weights import Weights
from shapevm.jit.llvm.function import Value
from shapevm.jit.measure.roofline import fma_peak

LANES, FMAS_A_CYCLE = 16, 2
ATTENTION = [(64, 64), (64, 256), (64, 1024), (64, 2048), (32, 64), (32, 256)]  # head dimension, length
Method = Callable[..., object]
PARTS: dict[str, tuple[object, str, Method]] = {  # where a function is, its name, what stands in for it
    "packing": (attention, "pack", lambda emission, *_: emission.scratch.values),
    "weights": (Weights, "_weighing", lambda _, kernels, *__: kernels),
    "factors": (Weights, "_finish", lambda *_: Value("i1", "false")),
}
SMALL, LARGE = 1024, 4096  # elements of rows in the first-level cache
MEGABYTES = 64
CHAINS = (0, 8, 16, 24)  # fused multiply-adds, one after the other, on the way of a stream
ROUNDS, SECONDS = 150, 0.001


def seconds(run: Run) -> float:
    """Return how long one call takes of the thread's processor time: others may run beside it."""
    start = time.thread_time()
    run()
    return time.thread_time() - start


def in_turn(runs: Sequence[Run], rounds: int = ROUNDS) -> np.ndarray:
    """Return the seconds of each run by round; a short one is repeated for SECONDS."""
    repeats = [max(1, int(SECONDS / max(min(seconds(run) for _ in range(3)), 1e-6))) for run in runs]
    found = np.empty((len(runs), rounds))
    for i in range(rounds):
        for j, (run, n) in enumerate(zip(runs, repeats, strict=True)):
            run()
            found[j, i] = seconds(lambda run=run, n=n: [run() for _ in range(n)]) / n  # type: ignore[misc]
    return found


def cycles(runs: Sequence[Run]) -> list[float]:
    """Return each run's cycles."""
    peak, flops = fma_peak()
    top, *times = in_turn([peak, *runs])
    return [float(took.min() / top.min()) * flops / (2 * LANES * FMAS_A_CYCLE) for took in times]


def attention_without(parts: Sequence[str], head_dim: int, length: int) -> Run:
    """Return a call of an attention kernel that was compiled without some of PARTS."""
    kept = [(owner, name, getattr(owner, name)) for owner, name, _ in PARTS.values()]
    try:
        for part in parts:
            setattr(*PARTS[part])
        kernel = Kernel(compile_kernel(attention_spec(HEADS, head_dim), (length,)))
    finally:
        for method in kept:
            setattr(*method)
        compiler._PARTS = compiler.Parts()
    operands = [random(length, HEADS, head_dim) for _ in range(4)]
    return prepare(kernel, [*operands, aligned(np.zeros(length, np.float32))], (length,))


def show_attention() -> None:
    """Print the cycles of attention, whole and with parts left out."""
    for head_dim, length in ATTENTION:
        cases = {"whole": [], **{f"no {part}": [part] for part in PARTS}}
        cases["products alone"] = list(PARTS)
        found = cycles([attention_without(parts, head_dim, length) for parts in cases.values()])
        vectors = HEADS * length * length / LANES
        text = ", ".join(f"{name} {c / vectors:.1f}" for name, c in zip(cases, found, strict=True))
        print(f"heads of {head_dim}, length {length} ({head_dim} at the peak): {text}", flush=True)


Emit = Callable[[list[s.Instr]], int]  # append the body of a row; return the id of what is stored


def nest(shape: tuple[int, ...], emit: Emit) -> s.Nest:
    """Return a nest that reads an array and writes another."""
    loops = tuple(s.Index(loop=i) for i in range(len(shape)))
    buffers = (s.Buffer("f32", shape), s.Buffer("f32", shape, is_output=True))
    body = [s.Instr("load", "f32", buffer=0, index=loops)]
    last = emit(body)
    body.append(s.Instr("store", "f32", (last,), buffer=1, index=loops))
    return s.Nest(0, buffers, shape, tuple(body))


def append(body: list[s.Instr], op: str, *args: int, value: float | None = None) -> int:
    """Append an instruction; return its id."""
    body.append(s.Instr(op, "f32", args) if value is None else s.Instr(op, "f32", value=value))
    return len(body) - 1


def function(*names: str) -> Emit:
    """Return the body that applies functions one after the other."""

    def emit(body: list[s.Instr]) -> int:
        last = 0
        for name in names:
            last = append(body, name, last)
        return last

    return emit


def chain(n: int) -> Emit:
    """Return the body of n fused multiply-adds, each of the one before."""

    def emit(body: list[s.Instr]) -> int:
        factor, term = (append(body, "const", value=value) for value in (0.999, 0.001))
        last = 0
        for _ in range(n):
            last = append(body, "fma", last, factor, term)
        return last

    return emit


def softmax(body: list[s.Instr]) -> int:
    """Append e^(x - max) / sum."""
    e = append(body, "exp", append(body, "sub", 0, append(body, "reduce.max", 0)))
    return append(body, "mul", e, append(body, "reciprocal", append(body, "reduce.sum", e)))


def maximum(body: list[s.Instr]) -> int:
    """Append x - max."""
    return append(body, "sub", 0, append(body, "reduce.max", 0))


BODIES: dict[str, Emit] = {
    "copy": function(),
    "exp": function("exp"),
    "erf": function("erf"),
    "gelu": function("gelu_erf"),
    "tanh": function("tanh"),
    "x - max of a row": maximum,
    "softmax": softmax,
}


def arrays(n: int) -> list[np.ndarray]:
    """Return an operand and a result."""
    return [random(n), aligned(np.zeros(n, np.float32))]


def show_cache() -> None:
    """Print cycles a vector in the first-level cache."""
    runs = []
    for emit in BODIES.values():
        for n in (SMALL, LARGE):
            runs.append(prepare(Kernel(compile_kernel(nest((1, n), emit), ())), arrays(n), ()))
    found = cycles(runs)
    for i, name in enumerate(BODIES):
        slope = (found[2 * i + 1] - found[2 * i]) / ((LARGE - SMALL) / LANES)
        print(f"{name}, in the first-level cache: {slope:.1f} cycles a vector", flush=True)


def show_memory() -> None:
    """Print the share of a copy that a stream with arithmetic on the way reaches."""
    n = (MEGABYTES << 20) // 4
    x, out = arrays(n)
    target = aligned(x)
    bodies = {f"{k} fused multiply-adds": chain(k) for k in CHAINS} | {
        name: BODIES[name] for name in ("exp", "erf", "tanh", "gelu")
    }
    runs = [prepare(Kernel(compile_kernel(nest((n,), emit), ())), [x, out], ()) for emit in bodies.values()]
    copy, *times = in_turn([lambda: np.copyto(target, x), *runs], rounds=15)
    for name, took in zip(bodies, times, strict=True):
        print(f"64 MB with {name} on the way: {median(list(copy / took)):.0%} of a copy", flush=True)


def main() -> None:
    """Entry point."""
    shows = {"attention": show_attention, "cache": show_cache, "memory": show_memory}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", default=list(shows), choices=list(shows), metavar="|".join(shows))
    for name in parser.parse_args().what:
        shows[name]()


if __name__ == "__main__":
    main()
