"""Every family's row: its examples as text and JSON, compiled on every target against the definition."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from shapevm.jit.compiler import bounds, compile_kernel
from shapevm.jit.dependence import Launch, Mixed, Number, Shared
from shapevm.jit.evaluation import from_memory, to_memory
from shapevm.jit.execute import Kernel
from shapevm.jit.families.family import Example
from shapevm.jit.families.table import FAMILIES, family_of
from shapevm.jit.llvm.dtypes import DTYPES
from shapevm.jit.reference import evaluate
from shapevm.jit.spec import Dim, KernelSpec, to_json
from shapevm.jit.spec_reader import from_json
from shapevm.jit.text import format_spec, parse_spec

from ..operations import HOST_TARGETS

EXAMPLES = [
    pytest.param(example, id=f"{name}-{i}")
    for name, family in FAMILIES.items()
    for i, example in enumerate(family.examples)
]

#: What some families' inputs are: rows in order; numbers of images that are not negative.
_FITTING = {"search": partial(np.sort, axis=-1), "roi_align": np.abs}


def buffers_of(spec: KernelSpec, dims: tuple[int, ...]) -> list[np.ndarray]:
    """Return random buffers; integers are small enough to be indices into any axis."""
    rng = np.random.default_rng(0)
    least = max(min([3, *dims]), 1)
    made = []
    for buffer in spec.buffers:
        shape = [dims[size.index] if isinstance(size, Dim) else size for size in buffer.shape]
        fitting = _FITTING.get(spec.family, np.asarray)
        if DTYPES[buffer.dtype].kind == "float":
            random = fitting(rng.standard_normal(shape))
            made.append(to_memory(random if buffer.dtype == "f64" else np.float32(random), buffer.dtype))
        else:
            made.append(fitting(rng.integers(0, least, shape)).astype(DTYPES[buffer.dtype].numpy))
    return made


def test_every_family_has_examples_of_its_own() -> None:
    for name, family in FAMILIES.items():
        assert family.spec.family == name and family.examples, name
        assert all(parse_spec(example.text).family == name for example in family.examples)


@pytest.mark.parametrize("example", EXAMPLES)
def test_text_and_json_are_exact(example: Example) -> None:
    spec = parse_spec(example.text)
    assert format_spec(spec) == example.text
    assert from_json(to_json(spec)) == spec


@pytest.mark.parametrize("target", HOST_TARGETS)
@pytest.mark.parametrize("example", EXAMPLES)
def test_kernels_compute_the_definition(example: Example, target: str) -> None:
    spec, dims = parse_spec(example.text), example.dims
    bounds(spec, dims)
    wanted = buffers_of(spec, dims)
    evaluate(spec, dims, wanted)
    found: dict[Any, list[np.ndarray]] = {}
    for key in (None, dims):
        found[key] = buffers_of(spec, dims)
        Kernel(compile_kernel(spec, key, target)).run(found[key], dims)
    for i, buffer in enumerate(spec.buffers):
        if buffer.is_output:
            values = [from_memory(b[i], buffer.dtype) for b in (wanted, found[None], found[dims])]
            np.testing.assert_allclose(values[1], values[0], rtol=1e-5, atol=1e-5)
            assert np.array_equal(found[None][i], found[dims][i])


@pytest.mark.parametrize("example", EXAMPLES)
def test_results_of_shared_inputs_are_shared(example: Example) -> None:
    spec = parse_spec(example.text)
    launch = Launch(spec, [Number(d) for d in example.dims], [Shared() for _ in spec.buffers], 1_000_003)
    family_of(spec).follow(launch, spec)
    outputs = {i for i, buffer in enumerate(spec.buffers) if buffer.is_output}
    assert set(launch.written) == outputs
    assert not any(isinstance(layout, Mixed) for layout in launch.written.values())
