"""Plug-ins: shared libraries with functions that programs call, in the runner and through Python."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from shapevm.vm import artifact
from shapevm.vm.assembler import assemble
from shapevm.vm.errors import ExternError
from shapevm.vm.machine import Machine

from shapevm import runner_path
from shapevm.cli import main

ROOT = Path(__file__).parents[2]
RUNNER = runner_path()
PROGRAM = """
symbol "n" 0 .. 64
input "x": f32[s0]
output "scaled"
output "positive"
constant c0 float = 2.5
function "main" (2 params, 2 results)
  line "model.py:7"
  const r2 c0
  alloc r3 f32 (r1)
  call_dps "mylib::scale" (r3) (r0, r2)
  call_packed "mylib::positive" (r4) (r3)
  return (r3, r4)
"""
X = np.array([-1, 2, 0, 4], "f4")
HEADER = '#include "svm_plugin.h"\n'
WRITER = """static int32_t f(void *context, const svm_value *args, int32_t n_args, const svm_tensor *outputs,
  int32_t n_outputs, svm_error *error) {{
  (void)context, (void)args, (void)n_args, (void)outputs, (void)n_outputs, (void)error;
  {} }}
static int32_t p(void *context, const svm_value *args, int32_t n_args, svm_value *results, int32_t n_results,
  svm_error *error) {{ (void)context, (void)n_args, (void)n_results, (void)error; results[0] = args[0];
  results[0].owner = NULL; return SVM_OK; }}
SVM_PLUGIN(r) {{ r->packed(r, "mylib::positive", p, NULL); return r->dps(r, "mylib::scale", f, NULL); }}"""


def build(folder: Path, text: str, name: str = "plugin") -> Path:
    """Compile a plug-in; return its path."""
    source, library = folder / f"{name}.c", folder / f"{name}.so"
    source.write_text(text)
    include = ROOT / "runtime_c/include"
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-I", str(include)]
    subprocess.run(["cc", *flags, str(source), "-o", str(library)], check=True)
    return library


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("plugin"), (ROOT / "examples/plugin/scale.c").read_text())


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.svm"
    path.write_bytes(artifact.to_bytes(assemble(PROGRAM)))
    np.save(tmp_path / "x.npy", X)
    return path


def run(model: Path, *flags: Any) -> subprocess.CompletedProcess[str]:
    """Run the model on X in its folder."""
    fixed = [RUNNER, model, "--input", "x=x.npy", "--output", "out.npz"]
    return subprocess.run([*fixed, *flags], capture_output=True, text=True, cwd=model.parent)


def test_runner(model: Path, example: Path) -> None:
    done = run(model, "--plugin", example)
    assert done.returncode == 0, done.stderr
    found = np.load(model.parent / "out.npz")
    np.testing.assert_array_equal(found["scaled"], X * np.float32(2.5))
    np.testing.assert_array_equal(found["positive"], np.array([5, 10], "f4"))


def test_machine(model: Path, example: Path) -> None:
    with Machine.from_bytes(model.read_bytes()) as machine:
        assert machine.missing_externs == {"mylib::scale": True, "mylib::positive": False}
        machine.load_plugin(str(example))
        assert machine.missing_externs == {}
        for n in (4, 0, 1):
            scaled, positive = machine.call([X[:n]])
            np.testing.assert_array_equal(scaled, X[:n] * 2.5)
            np.testing.assert_array_equal(positive, scaled[scaled > 0])


def test_the_command_line_takes_plug_ins(model: Path, example: Path) -> None:
    x, output = model.with_name("x.npy"), model.with_name("found.npz")
    given = ["run", str(model), "--input", f"x={x}", "--output", str(output)]
    done = CliRunner().invoke(main, [*given, "--plugin", str(example)])
    assert done.exit_code == 0, done.output
    assert np.load(output)["scaled"].tolist() == [-2.5, 5, 0, 10]
    assert CliRunner().invoke(main, given).exit_code == 3


def test_a_path_without_a_slash_is_in_the_working_directory(model: Path, example: Path) -> None:
    (model.parent / "here.so").write_bytes(example.read_bytes())
    assert run(model, "--plugin", "here.so").returncode == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER + "int unused;", "has no svm_plugin_init; define its init function with SVM_PLUGIN"),
        (
            HEADER + "#undef SVM_PLUGIN_ABI\n#define SVM_PLUGIN_ABI 99\nSVM_PLUGIN(r) { (void)r; return 0; }",
            "is of ABI version 99; this runtime takes version 1",
        ),
        (
            HEADER + 'SVM_PLUGIN(r) { return svm_plugin_fail(r->error, "no %s today", "GPU"); }',
            "does not start: no GPU today",
        ),
        (HEADER + "SVM_PLUGIN(r) { (void)r; return 3; }", "its svm_plugin_init gives no reason"),
        (
            HEADER + "SVM_PLUGIN(r) { (void)r; return 0; }",
            "mylib::scale has no kernel, it is a function of a host's: give the plug-in that has it",
        ),
    ],
)
def test_refused(model: Path, tmp_path: Path, text: str, message: str) -> None:
    done = run(model, "--plugin", build(tmp_path, text))
    assert done.returncode == 3 and message in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_missing(model: Path) -> None:
    assert "cannot be loaded" in run(model, "--plugin", "none.so").stderr
    done = run(model)
    assert done.returncode == 3 and "(--plugin LIB.so) (model.py:7)" in done.stderr
    with (
        Machine.from_bytes(model.read_bytes()) as machine,
        pytest.raises(ExternError, match="cannot be loaded.*none.so"),
    ):
        machine.load_plugin("none.so")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('return svm_plugin_fail(error, "scale: %d is too much", 7);', "scale: 7 is too much"),
        ("return 77;", 'host function "mylib::scale" failed with code 77 and no message'),
        ("error->code = 12345; return 1;", 'host function "mylib::scale" failed with code 1 and no message'),
    ],
)
def test_errors_of_functions(model: Path, tmp_path: Path, body: str, message: str) -> None:
    library = build(tmp_path, HEADER + WRITER.format(body))
    done = run(model, "--plugin", library)
    assert done.returncode == 5 and message in done.stderr and "model.py:7" in done.stderr, done.stderr


def test_what_a_function_leaves_is_zeros(model: Path, tmp_path: Path) -> None:
    library = build(tmp_path, HEADER + WRITER.format("return SVM_OK;"))
    assert run(model, "--plugin", library).returncode == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["scaled"], np.zeros(4, "f4"))
