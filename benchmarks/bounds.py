"""What bounds products: loops stripped down to what a kernel cannot do without, and kernels undisturbed.

python benchmarks/bounds.py                       # the loops python benchmarks/bounds.py 64x4096x4096 ...
# products (rows x K x N), by runs of tiles

Every time is the least of many short ones, so that others on the same machine stay out of it; a product's
is the sum over runs of its tiles of each one's least. `benchmarks/log/products.md` says what follows from
these figures.
"""

from __future__ import annotations

import argparse
import ctypes
from collections.abc import Callable, Iterator

import numpy as np
from kernels import Run, aligned, linear_spec, random
from measure import seconds
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.execute import NOTHING_PREPARED, Kernel, _Rt, product_terms
from shapevm.jit.families.matmul.layouts import pack_panels
from shapevm.jit.llvm.function import Function, Value
from shapevm.jit.measure.roofline import compiled, fma_peak

WEIGHT = 768 * 768  # elements: more than a second-level cache holds
LANES, STEPS, ROWS = 16, 16, 8  # of a row tile whose weight lies in registers
VECTOR = f"<{LANES} x float>"
TRIPS = 500
ROUNDS, MANY = 12, 2000
PIECE = 3e-4  # seconds of a run of tiles
PEAK = 150e9  # flops a second, about: how many tiles take PIECE
COLD = 96 << 20  # bytes of weights that take turns, to come from memory
ZERO = Value(VECTOR, "zeroinitializer")


def least(run: Run, rounds: int = MANY) -> float:
    """Return the least seconds of a call."""
    return min(seconds(run) for _ in range(rounds))


def multiply_add(f: Function, a: Value, b: Value, c: Value) -> Value:
    """Append a * b + c."""
    return f.call(VECTOR, f"llvm.fma.v{LANES}f32", a, b, c)


# Loops --------------------------------------------------------------------------------------------------


def broadcasts() -> tuple[Run, float]:
    """Return a loop of row tiles with all of the weight in registers, no epilogue, and its flops: each
    multiply-add takes an element of A, broadcast."""
    f = Function("kernel", [("ptr", "x")])
    data = f.params[0]
    weight = [f.load(VECTOR, f.at(data, VECTOR, k), align=4) for k in range(STEPS)]
    with f.loop(0, TRIPS) as trip:
        row = f.at(data, VECTOR, f.mul(f.urem(trip.index, 4), ROWS))
        sums = [ZERO] * ROWS
        for k, right in enumerate(weight):
            for r in range(ROWS):
                left = f.splat(f.load("float", f.at(row, "float", r * LANES + k), align=4), LANES)
                sums[r] = multiply_add(f, left, right, sums[r])
        for r, total in enumerate(sums):
            f.store(total, f.at(row, VECTOR, 4 * ROWS + r), align=4)
    return compiled(f, np.zeros(16 * ROWS * LANES, np.float32)), 2.0 * ROWS * LANES * STEPS * TRIPS


def reading(n: int) -> tuple[Run, int]:
    """Return a loop that adds up `n` elements, and the bytes that it reads."""
    f, side = Function("kernel", [("ptr", "x")]), 8
    with f.loop(0, n, side * LANES, [ZERO] * side) as loop:
        here = f.at(f.params[0], "float", loop.index)
        loaded = [f.load(VECTOR, f.at(here, VECTOR, i), align=4) for i in range(side)]
        pairs = zip(loop.carried, loaded, strict=True)
        loop.next(*[f.op(VECTOR, f"fadd {VECTOR} {a.name}, {b.name}") for a, b in pairs])
    for i, total in enumerate(loop.results):
        f.store(total, f.at(f.params[0], VECTOR, i), align=4)
    return compiled(f, np.zeros(n, np.float32)), 4 * n


def loops() -> Iterator[str]:
    """Yield a line for each loop."""
    for what, (run, work), unit in (
        ("multiply-adds in registers", fma_peak(), "GFLOP/s"),
        ("the same with an element of A broadcast for each", broadcasts(), "GFLOP/s"),
        ("reading a weight of 768 x 768 again and again", reading(WEIGHT), "GB/s"),
        ("reading 64 MB", reading(1 << 24), "GB/s"),
    ):
        yield f"{what}: {work / least(run, MANY if work < 1 << 24 else ROUNDS) / 1e9:.1f} {unit}"


# Products -----------------------------------------------------------------------------------------------


def pieces(kernel: Kernel, buffers: list[np.ndarray], m: int, n_pieces: int) -> list[Run]:
    """Return calls of all tiles of a kernel in at most `n_pieces` runs."""
    memory = aligned(np.zeros(product_terms(kernel.code.work.scratch, (m,)) + 64, np.uint8))
    rt, dims = _Rt(memory.ctypes.data, 0, 0, 0, NOTHING_PREPARED), (ctypes.c_int64 * 1)(m)
    pointers = (ctypes.c_void_p * len(buffers))(*[b.ctypes.data for b in buffers])
    places = ctypes.addressof(pointers), ctypes.addressof(dims), ctypes.addressof(rt)
    keep = (kernel, buffers, memory, rt, dims, pointers)
    n, call = int(kernel.n_tiles((m,))), kernel._call
    size = max(1, n // n_pieces)

    def piece(begin: int) -> Run:
        def run(_keep: object = keep) -> None:
            call(*places, begin, min(begin + size, n))

        return run

    return [piece(begin) for begin in range(0, n, size)]


def undisturbed(kernel: Kernel, sets: list[list[np.ndarray]], m: int, flops: float) -> Callable[[], float]:
    """Return a function that calls a kernel on each of `sets` once more; it returns the least seconds of one
    so far."""
    n_pieces = max(1, int(flops / PEAK / PIECE))
    runs = [run for buffers in sets for run in pieces(kernel, buffers, m, n_pieces)]
    found = [float("inf")] * len(runs)

    def again() -> float:
        for i, run in enumerate(runs):
            found[i] = min(found[i], seconds(run))
        return sum(found) / len(sets)

    return again


def product(m: int, k: int, n: int, epilogue: str) -> str:
    """Return the line of a product: exact code and code of any rows, its weight in the nearest cache that
    holds it, and from memory."""
    spec, flops = linear_spec(k, n, epilogue), 2.0 * m * k * n
    panels = pack_panels(random(k, n))
    weights = [aligned(panels) for _ in range(max(1, COLD // panels.nbytes))]
    others = [random(n), *([random(m, n)] if epilogue == "residual" else [])]
    x, out, peak = random(m, k), random(m, n), fma_peak()
    sets = [[x, w, out, *others] for w in weights]
    exact, any_rows = (Kernel(compile_kernel(spec, dims)) for dims in ((m,), None))
    runs = {
        "exact": undisturbed(exact, sets[:1], m, flops),
        "any rows": undisturbed(any_rows, sets[:1], m, flops),
        "exact, from memory": undisturbed(exact, sets, m, flops),
    }
    times = {name: [run() for _ in range(ROUNDS)][-1] for name, run in runs.items()}
    top = peak[1] / least(peak[0])
    shares = ", ".join(f"{name} {t * 1e6:.0f} us, {flops / t / top:.0%}" for name, t in times.items())
    return f"{m} x {k} x {n} {epilogue}: {shares} of {top / 1e9:.0f} GFLOP/s"


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("sizes", nargs="*", help="products: ROWSxKxN")
    parser.add_argument("--epilogue", default="matmul", choices=["matmul", "gelu", "residual"])
    given = parser.parse_args()
    for line in loops() if not given.sizes else ():
        print(line, flush=True)
    for size in given.sizes:
        m, k, n = map(int, size.split("x"))
        print(product(m, k, n, given.epilogue), flush=True)


if __name__ == "__main__":
    main()
