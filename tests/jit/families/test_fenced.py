"""Every generator, variant and target touches nothing outside of its buffers, at random sizes: these lie
between two pages that nobody may touch, and begin or end there."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random

import numpy as np
import pytest
from shapevm.jit.compiler import compile_kernel, target_for
from shapevm.jit.execute import Kernel
from shapevm.jit.families.table import FAMILIES
from shapevm.jit.spec import KernelSpec
from shapevm.jit.text import format_spec, parse_spec
from shapevm.jit.tuning import schedules_of

from ...fenced import fenced_copy
from ..operations import HOST_TARGETS
from .conv import test_conv
from .matmul.test_matmul import M, dense
from .test_table import buffers_of
from .test_variants import CASES

SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 23, 31, 32, 33, 47, 64, 67)
ROWS = re.compile(r"rows (?:given )?for (\d+) outputs")  # a convolution's last size
TRIES = 40  # of sizes, until some fit the spec

SPECS = {
    **{
        f"{name}-{i}": (parse_spec(example.text), example.dims)
        for name, family in FAMILIES.items()
        for i, example in enumerate(family.examples)
    },
    **{name: (spec, dims) for name, (spec, dims, _, _) in CASES.items()},
}
N_RANDOM = 12  # specs of each kind whose constant sizes are random as well


def convolution(random: Random) -> KernelSpec:
    """Return a convolution of images of random width, channels, taps and steps."""
    c, f, width = random.choice(SIZES[1:]), random.choice(SIZES[1:]), random.choice((5, 6, 9, 17))
    kernel, stride, expansion = random.choice((1, 2, 3)), random.choice((1, 2)), random.choice((1, 2, 3))
    dilation, low, high = random.choice((1, -1)), random.randrange(3), random.randrange(3)
    case = (width, c, f, kernel, stride, dilation, expansion, low, high, 1)
    return test_conv.conv("random", random.choice(("panels", "rows")), {"random": case})


def product(random: Random) -> KernelSpec:
    """Return a product of rows by a weight of random sides."""
    return dense(M, random.choice(SIZES[1:]), random.choice(SIZES[1:]))


KINDS = {"convolution": convolution, "product": product}


def sizes(random: Random, spec: KernelSpec, example: tuple[int, ...] | None) -> Iterator[tuple[int, ...]]:
    """Yield random sizes of a spec, often some of its example's, then those."""
    for _ in range(TRIES):
        drawn = [random.choice(SIZES) for _ in range(spec.n_dims)]
        kept = random.random() < 0.5 and example
        yield (
            tuple(random.choice(pair) for pair in zip(drawn, example, strict=True)) if kept else tuple(drawn)
        )
    yield example if example is not None else (8,) * spec.n_dims


def run(kernel: Kernel, spec: KernelSpec, dims: tuple[int, ...], at_end: bool) -> list[np.ndarray]:
    """Return the buffers after a run in fenced memory; an index of theirs may be out of range."""
    buffers = [fenced_copy(np.ascontiguousarray(b), at_end) for b in buffers_of(spec, dims)]
    with suppress(IndexError):
        kernel.run(buffers, dims)
    return buffers


def fitting(
    random: Random, spec: KernelSpec, example: tuple[int, ...] | None, kernel: Kernel
) -> tuple[int, ...]:
    """Return random sizes that the generic kernel takes."""
    for dims in sizes(random, spec, example):
        for _ in range(2):
            try:
                compile_kernel(spec, dims, kernel.code.target)
                print("sizes", dims, flush=True)
                run(kernel, spec, dims, at_end=False)
                return dims
            except ValueError as error:  # sizes break the spec's bounds, or rows are not those of the images
                rows = ROWS.search(str(error))
                if rows is None:
                    break
                dims = (*dims[:-1], int(rows[1]))
    raise AssertionError("no sizes fit")


def in_a_process(work: Callable[[], None]) -> int:
    """Do `work` in a process of its own; return its exit code, that of a signal negative."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.drawn
@pytest.mark.parametrize("target", HOST_TARGETS)
@pytest.mark.parametrize("name", [*SPECS, *(f"{kind} {i}" for kind in KINDS for i in range(N_RANDOM))])
def test_kernels_touch_their_buffers_only(name: str, target: str, request: pytest.FixtureRequest) -> None:
    random = Random(f"{request.config.option.seed} {name} {target}")
    spec, example = SPECS[name] if name in SPECS else (KINDS[name.split(" ")[0]](random), None)

    def work() -> None:
        used = target_for(spec, target)
        print(used, format_spec(spec))
        generic = Kernel(compile_kernel(spec, None, used))
        dims = fitting(random, spec, example, generic)
        schedule = random.choice((None, *schedules_of(spec, dims, used)))
        print("and exact by", schedule, flush=True)
        kernels = [generic, Kernel(compile_kernel(spec, dims, used, schedule=schedule))]
        found = [run(kernel, spec, dims, at_end) for kernel in kernels for at_end in (False, True)]
        for i, buffer in enumerate(spec.buffers):
            assert not buffer.is_output or len({buffers[i].tobytes() for buffers in found}) == 1

    assert in_a_process(work) == 0
