"""The row of Fft: discrete Fourier transforms."""

from __future__ import annotations

from ...decode import refuse
from ...dependence import Launch
from ...evaluation import Evaluation
from ..family import Example, Family
from .fft import emit
from .reference import transform
from .spec import DTYPES, TABLES, Fft, accesses


def _evaluate(run: Evaluation, spec: Fft) -> None:
    cosines, sines, *parts = run.inputs()
    x = parts[0].astype(complex)
    if len(parts) > 1:
        x.imag = parts[1]
    found = transform(x, cosines.reshape(-1), sines.reshape(-1))[:, : run.size(spec.kept)]
    n_outputs = sum(buffer.is_output for buffer in spec.buffers)
    run.set_outputs(*(found.real, found.imag)[:n_outputs])


def _check(spec: Fft) -> None:
    are_outputs = [buffer.is_output for buffer in spec.buffers]
    n_inputs = are_outputs.count(False)
    if n_inputs - TABLES not in (1, 2) or len(are_outputs) - n_inputs not in (1, 2):
        raise refuse("buffers", len(are_outputs), "two tables, one or two inputs and one or two outputs")
    if are_outputs != sorted(are_outputs) or any(len(buffer.shape) != 3 for buffer in spec.buffers):
        raise refuse("buffers", are_outputs, "inputs, then outputs, of rank 3")
    if spec.buffers[TABLES].dtype not in DTYPES:
        raise refuse(f"buffers[{TABLES}].dtype", spec.buffers[TABLES].dtype, f"one of {', '.join(DTYPES)}")
    if isinstance(spec.kept, int) and isinstance(spec.length, int) and spec.kept > spec.length:
        raise refuse("kept", spec.kept, f"at most the length, {spec.length}")


def _follow(launch: Launch, spec: Fft) -> None:
    launch.along((spec.outer, spec.length, spec.columns), 1, "transforms rows")


def _example(dtype: str, n_inputs: int, n_outputs: int, dims: tuple[int, ...]) -> Example:
    lines = ["fft n_dims=4 outer=n0 length=n1 columns=n2 kept=n3", *["f64[1,n1,1]"] * TABLES]
    lines += [f"{dtype}[n0,n1,n2]"] * n_inputs + [f"{dtype}[n0,n3,n2] output"] * n_outputs
    named = [f"  b{i} {line}" for i, line in enumerate(lines[1:])]
    return Example("\n".join([lines[0], *named]), dims)


EXAMPLES = (
    _example("f32", 1, 2, (2, 40, 19, 21)),
    _example("f64", 2, 2, (1, 42, 3, 42)),
    _example("f32", 2, 1, (3, 13, 17, 13)),
)

FAMILY = Family(Fft, emit, accesses, _evaluate, _check, _follow, EXAMPLES)
