"""Hosts that lack something: a home directory, folders for files, memory, torch. All else works."""

import os
import subprocess
import sys
import tempfile
import textwrap

import numpy as np
import pytest
import torch

import shapevm
from shapevm.errors import FileError

#: What a user without an entry in passwd does.
PROGRAM = """
import logging, os, pwd, sys
import fsspec, numpy as np
import shapevm
from shapevm.cli.doctor import examine
def missing(*_):
    raise KeyError("no entry")
pwd.getpwuid = missing
logged = []
handler = logging.Handler()
handler.emit = lambda record: logged.append(record.getMessage())
logging.getLogger("shapevm").addHandler(handler)

data = open(0, "rb").read()
fsspec.filesystem("memory").pipe_file("/m.svm", data)
for _ in range(2):
    exe = shapevm.load("memory://m.svm", strategy="jit")
    assert exe(np.ones((3, 8), "f"))["h"].shape == (3, 16)
    assert exe.stats().compile_failures == 0 and exe.stats().tier() == "exact"
assert [finding for finding in examine(False) if finding.name == "folder" and finding.problem]
if len(sys.argv) > 2:
    import torch
    made = shapevm.compile(torch.nn.Linear(4, 4), (torch.randn(3, 4),))
    assert made(torch.ones(3, 4)).shape == (3, 4)
about = [message for message in logged if sys.argv[1] in message]
assert about and len(about) == len(set(about)) <= 2, logged
assert not os.path.exists("~") and not os.listdir("."), os.listdir(".")
"""


def run(artifact, folder, arguments, **variables):
    folder.mkdir()
    folder.chmod(0o777)
    environment = {name: value for name, value in os.environ.items() if name not in NAMES} | variables
    command = [sys.executable, "-c", PROGRAM, *arguments]
    with open(artifact, "rb") as data:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdin=data, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr


NAMES = ("HOME", "SHAPEVM_CACHE_DIR", "XDG_CACHE_HOME")


@pytest.mark.parametrize("arguments", [(), ("compile",)])
def test_without_a_home(artifact, tmp_path, arguments):
    run(artifact, tmp_path / "here", ["has no home directory", *arguments])


@pytest.mark.parametrize("variables", [{"HOME": ""}, {"HOME": "here"}, {"SHAPEVM_CACHE_DIR": "~/kernels"}])
def test_a_home_that_is_no_absolute_path(artifact, tmp_path, variables):
    run(artifact, tmp_path / "here", ["has no home directory"], **variables)


def test_a_home_that_cannot_be_written(artifact, tmp_path):
    (tmp_path / "file").write_text("")  # also for root no folder can be made there
    run(artifact, tmp_path / "here", ["cannot be"], HOME=str(tmp_path / "file"))


def test_a_host_that_forbids_torch(artifact):
    code = """
    import sys
    sys.modules["torch"] = None
    import numpy as np, shapevm
    exe = shapevm.load(sys.argv[1], strategy="jit")
    for _ in range(4):
        assert exe(np.ones((3, 8), "f"))["h"].shape == (3, 16)
    try:
        shapevm.compile(None, ())
    except shapevm.Error as error:
        assert "compiling needs torch" in str(error), error
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code), artifact], check=True)


def test_no_memory_for_results_of_a_warm_call(build, tmp_path):
    build(lambda self, x: x + 1, torch.ones(1 << 23)).save(tmp_path / "add.svm")
    code = """
    import resource, sys
    import numpy as np, shapevm
    exe, x = shapevm.load(sys.argv[1], strategy="generic"), np.ones(1 << 23, "f")
    for _ in range(4):
        exe(x)
    size = int(open("/proc/self/statm").read().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (size + (1 << 20), resource.RLIM_INFINITY))
    try:
        exe(x)
    except shapevm.errors.OutOfMemory as error:
        assert "there is none for" in str(error), error
    else:
        raise SystemExit("there was memory")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code), tmp_path / "add.svm"], check=True)


def test_no_folder_can_be_written(artifact, tmp_path, monkeypatch):
    """A read-only file system: what needs a file without a name has it in memory; PyTorch needs a folder."""

    def none(*_, **__):
        raise FileNotFoundError(2, "No usable temporary directory found")

    for name in ("TemporaryFile", "gettempdir"):
        monkeypatch.setattr(tempfile, name, none)
    exe = shapevm.load(artifact.read_bytes(), strategy="generic")
    assert exe(np.ones((3, 8), "f"))["h"].shape == (3, 16)
    exe.save("/dev/null")
    with pytest.raises(FileError, match="needs a folder for temporary files.*set TMPDIR"):
        shapevm.compile(torch.nn.Linear(4, 4), (torch.randn(3, 4),))
