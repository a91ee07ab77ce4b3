"""Operators of a user's library: functions in C and in Python, and converters."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from shapevm.compiler.frontends import importer
from shapevm.compiler.ir.errors import UnsupportedOp
from shapevm.compiler.ops import build as B
from shapevm.vm import artifact, externs
from shapevm.vm.disassembler import disassemble
from shapevm.vm.errors import ArgumentError, DtypeError, Error, ExternError, ShapeError
from torch.export import Dim

import shapevm

ROOT = Path(__file__).parents[2]


@torch.library.custom_op("shapevm_externs::outer", mutates_args=())
def outer(x: torch.Tensor, y: torch.Tensor, factor: float) -> torch.Tensor:
    return torch.outer(x, y) * factor


@outer.register_fake
def _(x: torch.Tensor, y: torch.Tensor, factor: float) -> torch.Tensor:
    return x.new_empty((x.shape[0], y.shape[0]))


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return outer(x + 1, torch.cat([x, x]), 0.5).sum(1)


X = torch.arange(5.0)
SIZES = {"x": {0: Dim("n", max=64)}}
NAME = "shapevm_externs::outer"


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """What a test declares is gone after it."""
    declared, converters = dict(externs._DECLARED), dict(importer._REGISTERED)
    yield
    externs._DECLARED.clear()
    externs._DECLARED.update(declared)
    importer._REGISTERED.clear()
    importer._REGISTERED.update(converters)


def check(exe: shapevm.Executable) -> None:
    for n in (5, 0, 1, 7, 64):
        x = torch.randn(n)
        for strategy in ("auto", "generic"):
            torch.testing.assert_close(exe.using(strategy)(x), Model()(x))


def test_a_custom_operator_is_called_with_tensors_of_its_shape_rule(tmp_path: Path) -> None:
    exe = shapevm.compile(Model(), (X,), dynamic_shapes=SIZES)
    check(exe)
    exe.save(tmp_path / "model.svm")
    with shapevm.load(tmp_path / "model.svm") as loaded:
        text = disassemble(artifact.read(tmp_path / "model.svm"))
        assert f'call_dps name="{NAME}.default"' in text and "call_packed" not in text
        check(loaded)


@pytest.mark.parametrize("fills", [False, True])
def test_a_declared_function_is_called(tmp_path: Path, fills: bool) -> None:
    calls = []

    def compute(x: np.ndarray, y: np.ndarray, factor: float, *outputs: np.ndarray) -> np.ndarray:
        calls.append(len(x))
        found = np.outer(x, y) * np.float32(factor)
        if outputs:
            outputs[0][...] = found
        return found

    shapevm.extern(NAME, fills=fills)(compute)
    exe = shapevm.compile(Model(), (X,), dynamic_shapes=SIZES, options=shapevm.Options(fallback="error"))
    calls.clear()
    check(exe)
    assert calls == [n for n in (5, 0, 1, 7, 64) for _ in range(2)]
    exe.save(tmp_path / "model.svm")
    with shapevm.load(tmp_path / "model.svm") as loaded:
        check(loaded)


def test_results_are_checked() -> None:
    answer = np.zeros((5, 10), "f4")
    shapevm.extern(NAME)(lambda *_: answer)
    exe = shapevm.compile(Model(), (X,))
    exe(X)
    for wrong, kind in ((answer.astype("f8"), DtypeError), (answer[1:], ShapeError), (answer[0], ShapeError)):
        answer = wrong
        with pytest.raises(kind, match=r"outer.default gave .*compiled for f32\[5, 10\] \(test_externs.py:"):
            exe(X)
    answer = []
    with pytest.raises(Error, match="gave 0 results; the program takes 1"):
        exe(X)


def test_an_operator_is_refused_where_nothing_has_it() -> None:
    with pytest.raises(UnsupportedOp, match=r"shapevm_externs.outer.default"):
        shapevm.compile(Model(), (X,), options=shapevm.Options(fallback="error"))
    with pytest.raises(ArgumentError, match='write "library::function"'):
        shapevm.extern("outer")


def test_a_converter_compiles_an_operator() -> None:
    @shapevm.converter(NAME)
    def convert(b, x, y, factor):
        shape = (*B.shape_of(x), *B.shape_of(y))
        rows = B.expand(b, B.reshape(b, x, (shape[0], 1)), shape)
        columns = B.expand(b, B.reshape(b, y, (1, shape[1])), shape)
        return b.one("mul", b.one("mul", rows, columns), B.full(b, factor, "f32", shape))

    exe = shapevm.compile(Model(), (X,), dynamic_shapes=SIZES, options=shapevm.Options(fallback="error"))
    assert exe.machine.externs == ()
    check(exe)
    assert callable(convert)
    with pytest.raises(ValueError, match='write "namespace::name"'):
        shapevm.converter("outer")


def test_the_example() -> None:
    command = [sys.executable, str(ROOT / "examples/plugin/scale.py")]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert [line.split()[0] for line in printed] == ["PyTorch", "C", "Python", "compiled"]
    assert all("[ 6. 11.]" in line for line in printed)
    assert "mylib::scale" not in printed[-1] and "mylib::positive" in printed[-1]


def test_a_plug_in_comes_first(tmp_path: Path) -> None:
    source, library = tmp_path / "outer.c", tmp_path / "outer.so"
    source.write_text("""#include "svm_plugin.h"
static int32_t outer(void *context, const svm_value *args, int32_t n_args, const svm_tensor *outputs,
                     int32_t n_outputs, svm_error *error) {
  (void)context, (void)n_args, (void)n_outputs;
  const svm_tensor *x = &args[0].tensor, *y = &args[1].tensor;
  if (x->sizes[0] == 3) return svm_plugin_fail(error, "%d rows are too many", (int)x->sizes[0]);
  for (int64_t i = 0; i < x->sizes[0]; i++)
    for (int64_t j = 0; j < y->sizes[0]; j++)
      ((float *)outputs[0].data)[i * y->sizes[0] + j] = ((float *)x->data)[i] * ((float *)y->data)[j] * (float)args[2].number;
  return SVM_OK;
}
SVM_PLUGIN(registry) { return registry->dps(registry, "shapevm_externs::outer", outer, NULL); }
""")  # noqa: E501
    flags = ["-shared", "-fPIC", "-I", str(ROOT / "runtime_c/include")]
    subprocess.run(["cc", *flags, str(source), "-o", str(library)], check=True)
    shapevm.compile(Model(), (X,), dynamic_shapes=SIZES).save(tmp_path / "model.svm")
    shapevm.extern(NAME)(lambda *_: 1 / 0)
    with shapevm.load(tmp_path / "model.svm", plugins=[library]) as loaded:
        check(loaded)
        with pytest.raises(ExternError, match=r"3 rows are too many \(test_externs.py:"):
            loaded(torch.ones(3))
    np.save(tmp_path / "x.npy", X.numpy())
    runner = [shapevm.runner_path(), "model.svm", "--plugin", "outer.so", "--input", "x=x.npy"]
    subprocess.run([*runner, "--output", "y.npy"], cwd=tmp_path, check=True)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), Model()(X).numpy(), rtol=1e-6)
