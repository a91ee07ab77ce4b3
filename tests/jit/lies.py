"""Kernel specs that lie in one value, and running what is made of them where nothing can be touched unseen:
every buffer, and scratch, lies between pages that may not be touched, and inputs cannot be written.

    python -m tests.jit.lies [N [SEED]]

takes N lies about the specs of the tests of variants and of the families' examples.
"""

from __future__ import annotations

import argparse
import copy
import faulthandler
import json
import os
import random
import resource
import signal
import struct
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice, repeat
from math import prod
from typing import Any

import numpy as np
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.decode import SpecError
from shapevm.jit.execute import SCRATCH_ALIGN, Kernel
from shapevm.jit.families.matmul.layouts import LAYOUTS
from shapevm.jit.llvm.dtypes import DTYPES
from shapevm.jit.llvm.target import runs_here
from shapevm.jit.spec import Dim, KernelSpec
from shapevm.jit.spec_reader import from_json
from shapevm.vm import artifact, program
from shapevm.vm.builder import ProgramBuilder
from shapevm.vm.errors import Error, InternalError
from shapevm.vm.program import Axis, Buffer, Constant, EntryPoint, Input, Output
from shapevm.vm.work import product_terms

import shapevm

from ..guarded import guarded, is_untouched_beside

MAX_BYTES = 1 << 22  # of the buffers of a launch that is tried, and of its scratch
SECONDS = 20  # that one may take
LIMITS: dict[str, Any] = {"fuel": 10_000, "memory": 1 << 27, "timeout": 5}  # of a program
NUMBERS = (0, 1, 2, 3, 7, 16, 31, 32, 33, 64, 1 << 10, 1 << 20, (1 << 31) - 1, 1 << 31, 1 << 40, 1 << 62,
           (1 << 62) - 1, (1 << 63) - 1, -1, -2, -7, -(1 << 31), -(1 << 63))  # fmt: skip
TEXTS = {
    "dtype": tuple(DTYPES),
    "b_layout": tuple(LAYOUTS),
    "mode": ("set", "sum", "max", "all"),
    "op": (
        "load",
        "store",
        "const",
        "iota",
        "dim",
        "checked",
        "divisor",
        "acc",
        "cast",
        "add",
        "reduce.sum",
        "sum",
        "max",
    ),
}
HOSTILE = (
    0,
    1,
    -1,
    2,
    1 << 40,
    -(1 << 40),
    (1 << 62),
    -(1 << 63),
    (1 << 63) - 1,
    (1 << 31) - 1,
    -(1 << 31),
    5,
)
Path = tuple[str | int, ...]


# Lies ---------------------------------------------------------------------------------------------


def leaves(data: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield every value inside of JSON data, lists and objects too, with its path."""
    if path:
        yield path, data
    for key, value in (
        data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    ):
        yield from leaves(value, (*path, key))


def others(value: Any, path: Path, n_dims: int) -> list[Any]:
    """Return what may stand in place of a value."""
    dims = [{"dim": i} for i in range(n_dims)]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1, 2 * value, 2 * value + 1, -value, *NUMBERS, *dims]
    if isinstance(value, str):
        return list(TEXTS.get(str(path[-1]), ("", "x")))
    if isinstance(value, float):
        return [0.0, -value, 1e30]
    if isinstance(value, dict) and list(value) == ["dim"]:
        return [*dims, {"dim": n_dims}, 0, 1, 3, 16, 64, 1 << 31, 1 << 62]
    if isinstance(value, list):
        return [value[1:], value[:-1], value[::-1], value + value[-1:], value[:1] * 2, []]
    return [None]


def lies(text: str, rng: random.Random) -> Iterator[str]:
    """Yield specs that differ from that of `text` in one value, or one list, and now and then in two, without
    end."""
    data = json.loads(text)
    while True:
        changed = copy.deepcopy(data)
        for _ in range(rng.choice((1, 1, 1, 2))):
            field = rng.choice(list(changed))  # as often as any other, however much it holds
            path, value = rng.choice(list(leaves(changed[field], (field,))))
            place = changed
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = rng.choice(others(value, path, data["n_dims"]))
        if changed != data:
            yield json.dumps(changed)


def hostile_dims(dims: Sequence[int], rng: random.Random) -> tuple[int, ...]:
    """Return the sizes of a launch, mostly with one changed."""
    found = list(dims)
    if found and rng.random() < 0.7:
        i = rng.randrange(len(found))
        found[i] = rng.choice((0, 1, found[i] + 1, found[i] - 1, 2 * found[i], 17, 1 << 20, 1 << 40, 1 << 62))
    return tuple(found)


# Running ------------------------------------------------------------------------------------------


class GuardedKernel(Kernel):
    """A kernel whose scratch lies between pages that may not be touched."""

    at_end = True

    def _scratch(self, n_bytes: int) -> np.ndarray:
        room = -(-n_bytes // SCRATCH_ALIGN) * SCRATCH_ALIGN
        return guarded(np.full(room, 0xFF, np.uint8), self.at_end)


def _values(dtype: str, shape: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    """Return random values, among integers such as are no index of any axis."""
    kind, numpy = DTYPES[dtype].kind, DTYPES[dtype].numpy
    if kind == "float":
        return (
            rng.standard_normal(shape).astype(numpy)
            if dtype != "bf16"
            else rng.integers(0, 1 << 16, shape, numpy)
        )
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(numpy)
    values = rng.integers(0, 4, shape).astype(np.int64)
    is_hostile = rng.random(shape) < rng.choice((0.0, 0.1))
    return np.where(is_hostile, rng.choice(HOSTILE, shape), values).astype(numpy)


def launch(spec: KernelSpec, kernel: GuardedKernel, dims: tuple[int, ...], rng: random.Random) -> str:
    """Run a kernel on buffers of the sizes that it declares; return how that ends. Raises AssertionError
    where a byte beside a buffer was written."""
    work, kernel.at_end = kernel.code.work, rng.random() < 0.5
    shapes = [[dims[size.index] if isinstance(size, Dim) else size for size in b.shape] for b in spec.buffers]
    n_bytes = [
        DTYPES[b.dtype].bytes * prod(map(max, shape, repeat(1)))
        for b, shape in zip(spec.buffers, shapes, strict=True)
    ]
    if max((*n_bytes, product_terms(work.scratch, dims))) > MAX_BYTES:
        return "large"
    if min((0, *dims)) < 0 or kernel.n_tiles(dims) > 1 << 16:
        return "large"
    seeded, buffers = np.random.default_rng(rng.randrange(1 << 32)), []
    for buffer, shape in zip(spec.buffers, shapes, strict=True):
        array = _values(buffer.dtype, shape, seeded)
        buffers.append(guarded(array, rng.random() < 0.5, is_read_only=not buffer.is_output))
    try:
        kernel.run(buffers, dims)
    except (ValueError, IndexError):
        return "refused at launch"
    finally:
        assert all(map(is_untouched_beside, buffers)), "it writes beside a buffer"
    return "ran"


def compiled(
    text: str, key: tuple[int, ...] | None, target: str | None
) -> tuple[KernelSpec, GuardedKernel] | str:
    """Return a kernel of a spec, or how the spec was refused. Raises AssertionError for a refusal that is no
    sentence."""
    try:
        spec = from_json(text)
    except SpecError as error:
        said = str(error)
        assert "\n" not in said and said.endswith(("export the artifact again", "reads version 1")), said
        return "refused"
    try:
        return spec, GuardedKernel(compile_kernel(spec, key, target))
    except Exception:  # no generator takes it: `generic_record` makes a sentence of whatever it is
        return "not compiled"


def attempt(text: str, dims: tuple[int, ...], target: str | None, rng: random.Random) -> str:
    """Read, compile and run one spec; return how that ends."""
    if rng.random() < 0.3:
        return load_and_call(text, dims, rng)
    key = dims if rng.random() < 0.5 else None
    made = compiled(text, key, target)
    if isinstance(made, str):
        return made
    spec, kernel = made
    if key is not None:
        return launch(spec, kernel, key, rng)
    given = [hostile_dims((*dims, *(3,) * spec.n_dims)[: spec.n_dims], rng) for _ in range(4)]
    return Counter(launch(spec, kernel, d, rng) for d in given).most_common(1)[0][0]


# Whole artifacts --------------------------------------------------------------------------------------


def artifact_of(text: str, dims: Sequence[int]) -> bytes:
    """Return an artifact without machine code, all hashes right, that launches the kernel of a spec once: its
    inputs are the program's, its outputs new."""
    spec = json.loads(text)
    shapes = [[dims[s["dim"]] if isinstance(s, dict) else s for s in b["shape"]] for b in spec["buffers"]]
    declared = [[Dim(s["dim"]) if isinstance(s, dict) else s for s in b["shape"]] for b in spec["buffers"]]
    made = [bool(b.get("is_output")) for b in spec["buffers"]]
    dtypes = [b["dtype"] for b in spec["buffers"]]
    builder, n_outputs = ProgramBuilder(), sum(made)
    main = builder.function("main", len(made) - n_outputs, n_outputs)
    free = iter(range(len(made)))
    registers = [None if is_made else next(free) for is_made in made]

    def number(value: int) -> int:
        register = main.register()
        main.op("const", d=register, value=builder.constant(Constant(value)))
        return register

    for i in (i for i, is_made in enumerate(made) if is_made):
        sizes = tuple(map(number, shapes[i]))
        registers[i] = main.register()
        main.op("alloc", d=registers[i], dtype=dtypes[i], sizes=sizes)
    buffers = tuple(Buffer(d, tuple(s), m) for d, s, m in zip(dtypes, declared, made, strict=True))
    kernel = builder.kernel(program.Kernel(text, spec["n_dims"], buffers, "hostile"))
    given = tuple(map(number, dims[: spec["n_dims"]]))
    main.op("kernel", kernel=kernel, dims=given, buffers=tuple(registers))
    main.op("return", values=tuple(r for r, is_made in zip(registers, made, strict=True) if is_made))
    rows = [(d, tuple(map(Axis.const, s))) for d, s in zip(dtypes, shapes, strict=True)]
    inputs = [Input(f"x{i}", "tensor", *rows[i]) for i, is_made in enumerate(made) if not is_made]
    outputs = [Output(f"y{i}", "tensor", *rows[i]) for i, is_made in enumerate(made) if is_made]
    entry = EntryPoint(0, tuple(inputs), tuple(outputs))
    return artifact.to_bytes(builder.finish((), (entry,), None))


def load_and_call(text: str, dims: Sequence[int], rng: random.Random) -> str:
    """Load the artifact of a spec without native code and call it; return how that ends."""
    try:
        data = artifact_of(text, dims)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, struct.error):
        return "not written"
    try:
        with shapevm.load(data, native_code=False, strategy="generic", **LIMITS) as exe:
            axes = [(i.dtype, [a.offset for a in i.axes]) for i in artifact.from_bytes(data).inputs]
            if any(d == "bf16" or prod(max(n, 1) for n in shape) > MAX_BYTES >> 3 for d, shape in axes):
                return "large"
            seeded = np.random.default_rng(rng.randrange(1 << 32))
            exe(*(guarded(_values(d, s, seeded), rng.random() < 0.5, is_read_only=True) for d, s in axes))
    except Error as error:
        assert not isinstance(error, InternalError) and len(str(error)) > 10, error
        return f"artifact: {error.name}"
    return "artifact: ran"


# Many in processes of their own -----------------------------------------------------------------------


Case = tuple[str, tuple[int, ...], str | None]


def _child(cases: Sequence[Case], seed: int, first: int, out: int) -> None:
    """Try cases from number `first` on; write a line before and after each."""
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for i in range(first, len(cases)):
        os.write(out, f"{i} ".encode())
        signal.alarm(SECONDS)
        try:
            ended = attempt(*cases[i], random.Random(f"{seed} {i}"))
        except BaseException as error:
            ended = f"wrong: {type(error).__name__}: {error}".replace("\n", " ")
        os.write(out, f"{ended}\n".encode())


def try_all(cases: Sequence[Case], seed: int) -> tuple[Counter[str], list[str]]:
    """Try all cases, in a process that is made anew where one ends it; return how many ended how, and what
    was wrong."""
    seen, wrong, first = Counter[str](), [], 0
    while first < len(cases):
        pipe = os.pipe()
        child = os.fork()
        if not child:
            try:
                _child(cases, seed, first, pipe[1])
            finally:
                os._exit(0)
        os.close(pipe[1])
        with open(pipe[0]) as lines:
            said = [line.rstrip("\n").split(" ", 1) for line in lines]
        status = os.waitpid(child, 0)[1]
        if said and not said[-1][1]:
            ended = f"wrong: signal {os.WTERMSIG(status)}"
            said[-1][1] = "slow" if os.WTERMSIG(status) == signal.SIGALRM else ended
        for number, ended in said:
            seen["wrong" if ended.startswith("wrong") else ended] += 1
            if ended.startswith("wrong"):
                wrong.append(f"{ended}: {cases[int(number)]}")
        first = int(said[-1][0]) + 1 if said else len(cases)
    return seen, wrong


def seeds() -> dict[str, Case]:
    """Return the specs of the families' examples and of the tests of variants that run here, with sizes."""
    from shapevm.jit.families.table import FAMILIES
    from shapevm.jit.spec import to_json
    from shapevm.jit.text import parse_spec

    from .families.test_variants import CASES

    found: dict[str, Case] = {}
    for name, family in FAMILIES.items():
        for i, example in enumerate(family.examples):
            found[f"{name} {i}"] = (to_json(parse_spec(example.text)), example.dims, None)
    for name, (spec, dims, target, _) in CASES.items():
        given = dims if dims is not None else DIMS.get(name, (5,) * spec.n_dims)
        n_bytes = [product_terms([(DTYPES[b.dtype].bytes, b.shape)], given) for b in spec.buffers]
        if runs_here(target) and max(n_bytes) <= MAX_BYTES:
            found[name] = (to_json(spec), given, target)
    return found


#: Sizes for specs of `CASES` that are tested for any sizes.
DIMS = {
    "rows of any number": (2, 3, 5, 8, 6),
    "winograd, any images": (1, 18, 18, 18, 18, 324),
    "planes": (1, 9, 11, 5, 6, 30),
    "depthwise": (1, 9, 9, 9, 9, 81),
}


def draw(n: int, seed: int) -> list[Case]:
    """Return n cases: the specs themselves, then lies about each in turn."""
    rng, known = random.Random(seed), list(seeds().values())
    made = [lies(text, rng) for text, _, _ in known]
    drawn = list(known)
    while len(drawn) < n:
        drawn += [(next(lie), dims, target) for lie, (_, dims, target) in zip(made, known, strict=True)]
    return list(islice(drawn, n))


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("n", type=int, nargs="?", default=20_000)
    parser.add_argument("seed", type=int, nargs="?", default=0)
    options = parser.parse_args()
    seen, wrong = try_all(draw(options.n, options.seed), options.seed)
    print(f"{options.n} specs: " + ", ".join(f"{n} {name}" for name, n in seen.most_common()))
    for line in wrong[:20]:
        print(f"  {line[:1500]}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
