"""Operators that no kernel does, run by PyTorch: values against eager, what is checked, what is refused."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from shapevm.compiler.ir.errors import UnsupportedOp
from shapevm.vm.errors import DtypeError, Error, ExternError, ShapeError
from torch.export import Dim

import shapevm
from shapevm.__main__ import main

X = torch.arange(15.0).reshape(5, 3)
SIZES = {"x": {0: Dim("n", max=64)}}


def custom(name, schema, fake, real):
    """Define an operator of a library of ours, once per process."""
    if not hasattr(torch.ops.shapevm_fallback, name):
        torch.library.define(f"shapevm_fallback::{name}", schema)
        torch.library.impl(f"shapevm_fallback::{name}", "cpu", real)
        torch.library.register_fake(f"shapevm_fallback::{name}", fake)
    return getattr(torch.ops.shapevm_fallback, name)


def _unbacked(x, **options):
    size = torch.library.get_ctx().new_dynamic_size()
    return x.new_empty((size, *x.shape[1:]), **options)


positive = custom("positive", "(Tensor x) -> Tensor", _unbacked, lambda x: x[x.sum(1) > 0])
several = custom(
    "several",
    "(Tensor x, Tensor?[] more, SymInt[2] sizes, float f=0.5, *, bool flag, str text, ScalarType? dtype=None)"
    " -> (Tensor, Tensor[], int)",
    lambda x, more, sizes, f=0.5, *, flag, text, dtype=None: (
        x.new_empty(sizes, dtype=dtype),
        [torch.empty_like(x), x.new_empty(())],
        7,
    ),
    lambda x, more, sizes, f=0.5, *, flag, text, dtype=None: (
        x.new_full(sizes, len(text) + f, dtype=dtype),
        [x + (0 if more[0] is None else 1) + more[1], x.sum() if flag else x.mean()],
        7,
    ),
)
itself = custom("itself", "(Tensor x) -> Tensor", torch.empty_like, lambda x: x)
liar = custom(
    "liar",
    "(Tensor x, int how) -> Tensor",
    lambda x, how: torch.empty_like(x),
    lambda x, how: [x.double(), x[:1], x[0], x / 0][how],
)
fails = custom("fails", "(Tensor x) -> Tensor", torch.empty_like, lambda x: x.reshape(7, 11))


def test_sizes_that_the_data_give(build):
    def forward(self, x):
        found = positive(x * 2)
        return found + 1, found.sum(1), torch.arange(found.shape[0]), found.shape[0] * 2

    exe = build(forward, X, dynamic_shapes=SIZES)
    assert exe.machine.externs == ("shapevm_fallback::positive.default",)
    for n in (0, 1, 2, 7, 17):
        x = torch.randn(n, 3)
        for strategy in ("auto", "generic"):
            torch.testing.assert_close(exe.using(strategy)(x), forward(None, x))


def test_every_kind_of_argument(build):
    def forward(self, x):
        n = x.shape[0]
        y, (a, b), _ = several(x, [None, x + 1], [n, n + 2], flag=False, text="three", dtype=torch.int16)
        return y * 2, a, b

    exe = build(forward, X, dynamic_shapes=SIZES)
    for n in (1, 5, 13):
        x = torch.randn(n, 3)
        torch.testing.assert_close(exe(x), forward(None, x))


def test_operators_of_torch(build):
    def forward(self, x):
        q, r = torch.linalg.qr(x)
        return q @ r, torch.linalg.svdvals(x), torch.fft.irfft(torch.fft.rfft(x) * 2, n=3)

    exe = build(forward, X, dynamic_shapes={"x": {0: Dim("n", min=1, max=64)}})
    assert "aten::linalg_qr.default" in exe.machine.externs
    for n in (1, 3, 17):
        x = torch.randn(n, 3)
        torch.testing.assert_close(exe(x), forward(None, x))
    np.testing.assert_allclose(exe(X.numpy())[2], X.numpy() * 2, atol=1e-5)


def test_calls_of_pytorch_are_told_and_counted(tmp_path, build, caplog):
    def told():
        found = [record.getMessage() for record in caplog.records if record.name == "shapevm"]
        caplog.clear()
        return found

    def forward(self, x):
        return itself(x) + 1

    exe = build(forward, X)
    (text,) = told()  # though compiling opens the program twice
    assert "calls PyTorch's kernels for 1 of its operators: shapevm_fallback::itself.default" in text
    assert repr(exe).endswith("; calls PyTorch for shapevm_fallback::itself.default>")
    before = exe.stats()
    for _ in range(3):
        exe(X)
    assert exe.stats().since(before).torch_calls == 3
    assert f'shapevm_extern_calls_total{{model="compiled"}} {exe.stats().torch_calls}\n' in exe.metrics()
    exe.save(tmp_path / "calls.svm")
    with shapevm.load(tmp_path / "calls.svm"):
        assert len(told()) == 1
    native = build(lambda self, x: x + 1, X)
    native(X)
    assert not told() and "PyTorch" not in repr(native) and native.stats().torch_calls == 0


def test_arguments_are_only_lent(build):
    exe = build(lambda self, x: (itself(x), itself(itself(x) + 1)), X)
    x = X.clone()
    first, second = exe(x)
    x.zero_()
    torch.testing.assert_close((first, second), (X, X + 1))


@pytest.mark.as_given  # other forms have seeds of their own
def test_random_numbers_are_those_of_eager(build):
    def forward(self, x):
        drop = torch.nn.functional.dropout(x + 1, 0.4, training=True)
        return torch.rand_like(x) + torch.rand_like(x), torch.randperm(x.shape[0]), torch.bernoulli(x), drop

    exe = build(forward, X / 15, dynamic_shapes=SIZES, options=shapevm.Options(random="torch"))
    for n in (1, 5, 9):
        x = torch.rand(n, 3)
        torch.manual_seed(n)
        expected = [forward(None, x) for _ in range(3)]
        torch.manual_seed(n)
        found = [exe(x) for _ in range(3)]
        torch.testing.assert_close(found, expected)
        assert not torch.equal(found[0][0], found[1][0])


def test_complex_buffers(build):
    class Rotate(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("turns", torch.polar(torch.ones(3), torch.arange(3.0)))

        def forward(self, x):
            pairs = torch.view_as_complex(x.reshape(-1, 3, 2))
            return torch.view_as_real(pairs * self.turns).flatten(1)

    x = torch.randn(5, 6)
    exe = build(Rotate(), x, dynamic_shapes=SIZES)
    torch.testing.assert_close(exe(x[:1]), Rotate()(x[:1]))
    with pytest.raises(DtypeError, match="an output is complex, which cannot be compiled"):
        build(lambda self, x: torch.fft.rfft(x), x)


def test_autocast_of_the_caller_changes_nothing(build):
    exe = build(lambda self, x: torch.linalg.qr(x)[1], X)
    expected = exe(X)
    with torch.autocast("cpu"):
        assert torch.equal(exe(X), expected)


@pytest.mark.as_given
@pytest.mark.parametrize(
    ("how", "message"), [(0, r"gave f64\[5, 3\]"), (1, r"gave f32\[1, 3\]"), (2, r"gave f32\[3\]")]
)
def test_what_comes_back_is_checked(build, how, message):
    def forward(self, x):
        return liar(x, how) + 1

    exe = build(forward, X, dynamic_shapes={"x": {0: Dim("n", min=2, max=64)}})
    with pytest.raises((DtypeError, ShapeError)) as caught:
        exe(X)
    assert str(caught.value).startswith("shapevm_fallback::liar.default gave ")
    assert "the program was compiled for f32[5, 3] (test_fallback.py:" in str(caught.value)
    assert re.search(message, str(caught.value))


def test_errors_of_the_operator(build):
    def forward(self, x):
        return fails(x)

    exe = build(forward, X)
    with pytest.raises(ExternError, match=r"fails.default failed: RuntimeError: shape .*\(test_fallback.py:"):
        exe(X)


def test_fallback_can_be_refused(build):
    def forward(self, x):
        return positive(x), torch.linalg.qr(x)[1]

    with pytest.raises(UnsupportedOp, match="2 operators.*positive.*test_fallback.py.*linalg_qr"):
        build(forward, X, options=shapevm.Options(fallback="error"))
    with pytest.raises(shapevm.ArgumentError, match="fallback 'never' is unknown; known are torch, error"):
        build(forward, X, options=shapevm.Options(fallback="never"))


@pytest.fixture
def artifact_with_torch(build, tmp_path):
    def forward(self, x):  # torch records the lines of functions of this name
        return positive(positive(x))

    path = tmp_path / "model.svm"
    build(forward, X, dynamic_shapes=SIZES).save(path)
    return path


def test_inspect_lists_them(artifact_with_torch):
    text = CliRunner().invoke(main, ["inspect", str(artifact_with_torch)]).output
    assert (
        "operators that PyTorch must run: 1\n  shapevm_fallback::positive.default, 2 times (test_fall" in text
    )
    assert "runs with shapevm-run: no" in text
    found = json.loads(CliRunner().invoke(main, ["inspect", "--json", str(artifact_with_torch)]).stdout)
    (row,) = found["fallback_operators"]
    assert (row["name"], row["calls"]) == ("shapevm_fallback::positive.default", 2)


def test_the_runner_refuses_in_one_sentence(artifact_with_torch):
    done = subprocess.run([shapevm.runner_path(), artifact_with_torch], capture_output=True, text=True)
    assert done.returncode == 3
    assert done.stderr.startswith(
        "shapevm-run: shapevm_fallback::positive.default has no kernel, it is a function of a host's: give "
        "the plug-in that has it (--plugin LIB.so) (test_fallback.py:"
    )


def test_operators_that_are_not_registered(artifact_with_torch):
    code = f"import shapevm; shapevm.load({str(artifact_with_torch)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/")
    assert "operator shapevm_fallback::positive.default is not known to torch" in done.stderr
    assert "(test_fallback.py:" in done.stderr


def test_without_torch(artifact_with_torch, monkeypatch):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else find(name))
    with pytest.raises(Error, match="positive.default has no kernel: install torch.*test_fall"):
        shapevm.load(artifact_with_torch)


def test_inputs_that_are_no_tensors(build):
    def forward(self, x, flag, factor, name, nothing=None, n=2):
        return {"a": [x * factor + n if flag else x, name], "b": nothing, "c": n + 1}

    exe = build(forward, X, True, 0.5, "text", None, 3)
    result, expected = exe(X, True, 0.5, "text", None, 3), forward(None, X, True, 0.5, "text", None, 3)
    torch.testing.assert_close(result["a"][0], expected["a"][0])
    assert (result["a"][1], result["b"], result["c"]) == ("text", None, 4)
    for wrong in ((False, 0.5, "text"), (True, 0.25, "text"), (True, 0.5, "other")):
        with pytest.raises(shapevm.ArgumentError, match="the program was compiled for"):
            exe(X, *wrong, None, 3)


@pytest.mark.parametrize(
    "name",
    [
        "load_library::__globals__.clear", "aten::__class__.mro", "aten::add.__class__", "import_module::a.b",
        "__class__::__init__.__globals__", "_dir::append.__self__", "aten::add", "::.",
    ],
)  # fmt: skip
def test_names_of_other_things_than_operators_are_not_followed(name):
    from shapevm.program.torch_host import operator

    with pytest.raises(ExternError, match="is not known to torch"):
        operator(name)


def test_names_of_dtypes_are_names_of_dtypes():
    from shapevm.program.torch_host import _named

    assert _named("torch.float32") is torch.float32 and _named(6) == 6
    for name in ("load", "torch.nn", "__dict__", "_dynamo"):
        with pytest.raises(ValueError, match="is no dtype"):
            _named(name)
