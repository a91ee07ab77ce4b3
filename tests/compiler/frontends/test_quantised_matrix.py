"""The table of quantised programs (`quantised_cases`): PyTorch's values, the same bits everywhere, and a
kernel that reads the weight, and the bytes of activations, as they are."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from shapevm.jit.families.matmul.problem import grouped_of
from shapevm.jit.families.matmul.spec import ProductSpec
from shapevm.jit.spec import KernelSpec, Size
from shapevm.jit.spec_reader import from_json
from torch import nn
from torchao.quantization import MappingType
from torchao.quantization.quant_primitives import choose_qparams_affine, quantize_affine

import shapevm
from shapevm.reports.inspect import inspection
from shapevm.runner import runner_path

from .quantised_cases import (
    ACTIVATIONS,
    AFTER,
    FORMATS,
    LEFT_OUT,
    STATIC,
    WINDOWS,
    Case,
    Program,
    Q,
    Weight,
    cases,
)

SIZES = (0, 1, 13, 128)
WIDENING = "x86-64-v3"  # multiplies no bytes: integers stay integers there, however few they are
#: One size has exact code in the artifact, one code for a range, and the others have generic code.
OPTIONS = shapevm.Options(fallback="error", sizes=({"rows": 13},), buckets={"rows": [(100, 128)]})
#: (strategy, threads, what the numbers of rows above run)
TIERS = (
    ("generic", 2, {}),
    ("bucket", 1, {13: "exact", 128: "bucket"}),
    ("bucket", 2, {13: "exact", 128: "bucket"}),
    ("jit", 1, {1: "exact", 13: "exact", 128: "exact"}),
    ("jit", 2, {1: "exact", 13: "exact", 128: "exact"}),
)
ROUNDING = {torch.float32: 2.0**-22, torch.bfloat16: 2.0**-8}  # of results, behind the epilogue too
CASES = cases()


# What PyTorch computes -----------------------------------------------------------------------------------


class Activation(NamedTuple):
    """Integers, the zero points and the scales of their rows, in f64; `q` may be floats."""

    q: torch.Tensor
    zero: torch.Tensor
    scale: torch.Tensor


def quantised(case: Case, x: torch.Tensor) -> Activation:
    """Return an activation as PyTorch's own operators quantise it, or as it is."""
    one = torch.ones((), dtype=torch.float64)
    if not case.has_bytes:
        return Activation(x.double(), 0 * one, one)
    if case.activation == "dynamic int8":
        if case.is_torchao:
            blocks = [1] * (x.ndim - 1) + [x.shape[-1]]
            given = MappingType.ASYMMETRIC, blocks, torch.int8, -128, 127
            scale, zero = choose_qparams_affine(x, *given, zero_point_dtype=torch.int8, keepdim=True)
            q = quantize_affine(x, blocks, scale, zero, torch.int8, -128, 127)
        else:
            scale, zero = Q._choose_qparams_per_token_asymmetric_impl(x, torch.int8)
            q = Q.quantize_per_token(x, scale, zero, -128, 127, torch.int8)
        return Activation(q.double(), zero.double(), scale.double())
    dtype = getattr(torch, case.activation.split()[1])
    scale, zero = STATIC[dtype]
    limits = torch.iinfo(dtype)
    q = Q.quantize_per_tensor(x, scale, zero, limits.min, limits.max, dtype)
    return Activation(q.double(), one * zero, one * scale)


def multiplied(case: Case, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the operator of two tensors in f64."""
    if case.kind == "conv":
        *_, stride, padding, groups = WINDOWS[case.operator]
        return nn.functional.conv2d(x, weight, None, stride, padding, 1, groups)
    return x @ weight.T


def product(case: Case, x: torch.Tensor, weight: Weight) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the product in f64, and the sum of the magnitudes of what kernels add up in f32: all terms; of
    bytes none but the product itself, whose sum is exact, or the sums of groups and what zero points take
    off."""
    given, scales = quantised(case, x), weight.spread(weight.scale)
    left = given.q - given.zero
    values = weight.integers() * scales
    if case.dtype == torch.bfloat16 and expected(case) == {"float"}:
        values = values.bfloat16().double()
    wanted = multiplied(case, left, values) * given.scale
    zeros = None if weight.zero is None else weight.spread(weight.zero)
    is_whole = weight.scale.shape[1] == 1
    has_zeros = zeros is not None and bool(zeros.any())
    if is_whole and case.is_of_bytes:
        off = multiplied(case, left.abs(), zeros.abs() * scales) if has_zeros else 0
        return wanted, wanted.abs() + off * given.scale
    size = weight.integers().abs() + (zeros.abs() if has_zeros else 0)
    terms = multiplied(case, left.abs() + (given.zero.abs() + 128 if case.has_bytes else 0), size * scales)
    return wanted, terms * given.scale


def check(case: Case, program: Program, inputs: tuple[torch.Tensor, ...], found: torch.Tensor) -> None:
    """Compare a result with PyTorch's."""
    eager = program(*inputs)
    assert found.dtype == eager.dtype and found.shape == eager.shape
    if case.kind == "embedding":
        assert torch.equal(found, eager)
        return
    wanted, terms = product(case, inputs[0], program.weight)
    rounded = wanted.abs()
    if program.bias is not None:
        bias = program.bias.double().reshape(-1, *[1] * (2 if case.kind == "conv" else 0))
        wanted, terms = wanted + bias, terms + bias.abs()
    rounding = ROUNDING[case.dtype]
    if "residual" in case.operator:
        terms = terms + inputs[1].double().abs()
    after = program.after(wanted, *(inputs[1:] or (None,)))
    precision = 2**-19 if case.kind == "conv" else 2**-21  # Winograd's transforms
    allowed = precision * terms + rounding * (rounded + wanted.abs() + after.abs()) + 1e-30
    assert ((found.double() - after).abs() <= allowed).all()


# Which kernels -------------------------------------------------------------------------------------------


def kernels(exe: shapevm.Executable) -> list[KernelSpec]:
    """Return the specs of a program's kernels."""
    return [from_json(kernel.spec) for kernel in exe.machine.kernels]


def read(spec: ProductSpec) -> str:
    """Return what a product multiplies."""
    given = spec.product
    if given.b_layout == "quads":
        return "u8 x i8"
    left = "u8 x " if given.a >= 0 and spec.buffers[given.a].dtype == "u8" else ""
    groups, dtype = grouped_of(spec), spec.buffers[given.b].dtype
    if groups is None:
        return left + ("float" if dtype in ("f32", "f16", "bf16") else dtype)
    return f"{left}{groups.dtype}, groups of {groups.steps}"


def expected(case: Case) -> set[str]:
    """Return what the products of a case multiply."""
    form = case.format
    if case.kind == "embedding":
        return set()
    if case.kind == "conv":
        return {conv_kernel(case)}
    found = {("u8 x " if case.has_bytes else "") + form.held}
    return found | {"float"} if form.group is not None and form.has_zero else found


def conv_kernel(case: Case) -> str:
    """Return what a convolution multiplies."""
    is_narrow = case.operator == "conv depthwise"
    if case.is_of_bytes:
        return "u8 x float" if is_narrow else "u8 x i8"
    return "float"


def listed(case: Case) -> tuple[bool, str]:
    """Return whether `inspect` gives a reason why a weight is not read as it is, and how it is held."""
    (kernel, *_) = sorted(expected(case) - {"float"}) or ["float"]
    if kernel == "float":
        return True, {torch.float32: "f32", torch.bfloat16: "bf16"}[case.dtype]
    return False, kernel.replace("i8", "int8").replace("i4", "int4").replace("float", "f32")


def elements(shape: tuple[Size, ...]) -> int | None:
    """Return the elements of a buffer, None where they are known at run time."""
    return math.prod(shape) if all(isinstance(size, int) for size in shape) else None


def check_kernels(case: Case, n_elements: int, exe: shapevm.Executable, path: Path) -> None:
    """Assert that the weight, and bytes of activations, are read as they are; `inspect` says the same."""
    specs = kernels(exe)
    assert {read(spec) for spec in specs if isinstance(spec, ProductSpec)} == expected(case)
    others = [b for spec in specs if not isinstance(spec, ProductSpec) for b in spec.buffers]
    if case.kind != "embedding":  # nothing is dequantised at a call
        assert not [b.shape for b in others if elements(b.shape) == n_elements]
    if case.kind == "embedding":
        assert {b.dtype for spec in specs for b in spec.buffers if 41 in b.shape and 256 in b.shape} == {"i8"}
        return
    (row,) = inspection(path)["rounded_weights"]
    assert (bool(row["reason"]), row["format"]) == listed(case)


# Everywhere ----------------------------------------------------------------------------------------------


def tiers(path: Path, inputs: dict[int, tuple[torch.Tensor, ...]]) -> Iterator[tuple[str, int, torch.Tensor]]:
    """Yield (where, rows, result) of an artifact on every tier, by 1 and 2 threads, and in the runner."""
    for strategy, threads, known in TIERS:
        with shapevm.settings.scope(threads=threads), shapevm.load(path, strategy=strategy) as exe:
            for rows, given in inputs.items():
                before = exe.stats()
                yield f"{strategy} by {threads}", rows, exe(*given)
                if len(inputs) > 1 and rows in known:
                    assert exe.stats().since(before).tier() == known[rows]
    for rows, given in inputs.items():
        yield "runner", rows, in_runner(path, given)


def memory(x: torch.Tensor) -> np.ndarray:
    """Return a tensor as the runner reads it."""
    return (x.view(torch.uint16) if x.dtype == torch.bfloat16 else x).numpy()


def in_runner(path: Path, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Return what `shapevm-run` computes."""
    given, out = path.parent / "in.npz", path.parent / "out.npz"
    names = [row["name"] for row in inspection(path)["inputs"]]
    np.savez(given, **dict(zip(names, map(memory, inputs), strict=True)))
    command = [runner_path(), path, "--input", given, "--output", out]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (found,) = np.load(out).values()
    return torch.from_numpy(found)


@pytest.mark.drawn
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_quantised_program(case: Case, tmp_path: Path) -> None:
    torch.manual_seed(0)
    program = Program(case).eval()
    dim = torch.export.Dim("rows", min=program.least, max=128)
    example = program.inputs(3)
    shapes = tuple({0: dim} for _ in example) if program.has_rows else None
    options = OPTIONS if program.has_rows else shapevm.Options(fallback="error")
    if not case.has_bytes:
        options = replace(options, target=WIDENING)
    exe = shapevm.compile(program, example, dynamic_shapes=shapes, options=options)
    path = tmp_path / "model.svm"
    exe.save(path)
    check_kernels(case, program.weight.q.numel(), exe, path)
    sizes = [rows for rows in SIZES if rows >= program.least] if program.has_rows else [1]
    inputs = {rows: program.inputs(rows) for rows in sizes}
    wanted = {}
    with shapevm.load(path, strategy="generic") as generic, shapevm.settings.scope(threads=1):
        for rows, given in inputs.items():
            wanted[rows] = generic(*given)
            check(case, program, given, wanted[rows])
    for where, rows, found in tiers(path, inputs):
        np.testing.assert_array_equal(memory(found), memory(wanted[rows]), err_msg=f"{where}, {rows} rows")


def test_the_table_has_every_format_activation_and_operator() -> None:
    for name, all_of in (("form", FORMATS), ("activation", ACTIVATIONS), ("operator", WINDOWS)):
        assert set(all_of) <= {getattr(case, name) for case in CASES}
    linear = {(case.operator, case.has_bias) for case in CASES if case.kind == "linear"}
    assert len(linear) == 2 * 3 * len(AFTER)
    assert {case.kind for case in CASES} == {"linear", "matmul", "embedding", "conv"}
    assert all(reason for reason, _ in LEFT_OUT)
