"""`shapevm doctor`: each fact, and one sentence with the fix for what is wrong."""

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

import shapevm
from shapevm.__main__ import main
from shapevm.cli.doctor import examine
from shapevm.cli.tested_versions import TESTED


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.startswith("SHAPEVM_"):
            monkeypatch.delenv(name)
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("SHAPEVM_CACHE_DIR", str(folder))
    return folder


def run(*args, code=0):
    result = CliRunner().invoke(main, ["doctor", *args])
    assert result.exit_code == code, result.output
    return result.stdout


def found(name):
    return next(finding for finding in examine(measure=False) if finding.name == name)


def test_facts(environment):
    text = run()
    assert text.splitlines()[-1] == "no problems"
    assert (
        shapevm.__version__ in text and str(environment) in text and f"user {os.geteuid()}, mode 700" in text
    )
    assert "GFLOP/s" in text and "GB/s" in text and f"{len(os.sched_getaffinity(0))} available of" in text
    data = json.loads(run("--json", "--no-measure"))
    assert data["problems"] == 0
    assert {row["group"] for row in data["findings"]} == {
        "machine", "versions", "kernel cache", "settings from the environment",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("SHAPEVM_THREADS", "many", "SHAPEVM_THREADS='many' must be a whole number from 0"),
        ("SHAPEVM_THREADS", "200", "cores are available: set SHAPEVM_THREADS="),
        ("SHAPEVM_STRATEGY", "fast", "must be one of auto, jit, bucket, generic"),
        ("SHAPEVM_THREDS", "2", "it is no setting and has no effect; did you mean SHAPEVM_THREADS?"),
        ("SHAPEVM_CACHE", "maybe", "must be 0 or 1"),
    ],
)
def test_settings(monkeypatch, variable, value, sentence):
    monkeypatch.setenv(variable, value)
    assert sentence in found(variable).problem
    assert "PROBLEM" in run("--no-measure", code=1)
    assert json.loads(run("--no-measure", "--json", code=1))["problems"] >= 1


def test_cache_of_others(environment, monkeypatch, tmp_path):
    environment.chmod(0o777)
    assert "others may write to" in found("folder").problem
    environment.chmod(0o700)
    assert found("folder").problem == ""
    (environment / "ab").mkdir()
    (environment / "ab" / "cd").write_bytes(bytes(1 << 20))
    assert found("size").value == "1.0 of 256 MiB in 1 entries"
    monkeypatch.setenv("SHAPEVM_CACHE_DIR", str(tmp_path / "new" / "er"))
    assert found("folder").value.endswith("not made yet") and found("folder").problem == ""
    (tmp_path / "file").touch()
    monkeypatch.setenv("SHAPEVM_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert "set SHAPEVM_CACHE_DIR to a folder of your own" in found("folder").problem
    monkeypatch.setenv("SHAPEVM_CACHE", "0")
    assert found("folder").value.startswith("off")


def test_shared_cache(monkeypatch, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"0" * 32)
    secret.chmod(0o644)
    monkeypatch.setenv("SHAPEVM_CACHE_URL", "memory://kernels")
    assert "is trusted" in found("secret").value
    monkeypatch.setenv("SHAPEVM_CACHE_SECRET_FILE", str(secret))
    assert found("secret").problem == f"others may read it: chmod 600 {secret}"
    secret.chmod(0o600)
    assert found("secret").problem == ""


def test_old_new_and_missing_versions(monkeypatch):
    from shapevm.cli import doctor

    known = {"llvmlite": "0.30.1", "torch": "2.12.0+cpu", "numpy": "2.4.99", "rich": "99.0.1"}
    real = doctor.version

    def version(name):
        if name == "sympy":
            raise doctor.PackageNotFoundError(name)
        return known.get(name) or real(name)

    monkeypatch.setattr(doctor, "version", version)
    assert found("llvmlite").problem.endswith(": pip install 'llvmlite>=0.45.0'")
    assert found("torch").problem == found("sympy").problem == found("rich").problem == ""
    assert "pip install 'shapevm[compile]'" in found("sympy").value
    assert found("rich").value == f"99.0.1 (newer than {TESTED['rich'].newest}, the newest tested)"
    assert found("torch").value == "2.12.0+cpu" and found("numpy").value == "2.4.99"  # a newer patch release


def test_without_a_compiler(environment):
    """Where neither torch nor llvmlite is installed, artifacts run: nothing is wrong."""
    code = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('torch', 'llvmlite', 'sympy'):\n"
        "            raise ModuleNotFoundError(name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "import importlib.util\n"
        "real = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *a: None if name == 'llvmlite' else real(name, *a)\n"
        "from shapevm.__main__ import main\n"
        "sys.argv = ['shapevm', 'doctor']\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no problems" in done.stdout and "limits" not in done.stdout


@pytest.mark.parametrize(
    ("quota", "threads", "shown", "problem"),
    [
        (None, "0", "none", ""),
        (2.5, "0", "2.5 CPUs", ""),
        (2.5, "3", "2.5 CPUs", "3 threads share 2.5 CPUs: set SHAPEVM_THREADS=2"),
        (0.5, "0", "0.5 CPUs", ""),
        (0.5, "2", "0.5 CPUs", "2 threads share 0.5 CPUs: set SHAPEVM_THREADS=1"),
    ],
)
def test_the_quota_of_a_container(monkeypatch, quota, threads, shown, problem):
    from shapevm.vm import host

    from shapevm.cli import doctor

    monkeypatch.setattr(host, "cpu_quota", lambda: quota)
    monkeypatch.setenv("SHAPEVM_THREADS", threads)
    found = doctor._quota(8)
    assert (found.value, found.problem) == (shown, problem)
