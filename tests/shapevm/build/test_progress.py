"""Progress: nothing at first, a line where there is no terminal, a spinner on one; stdout stays clean."""

import os
import pty
import subprocess
import sys
import time

import pytest

import shapevm.build.progress
from shapevm.build.progress import waiting


@pytest.mark.parametrize(
    ("seconds", "quiet", "text"), [(0, False, ""), (0.3, False, "a long task ...\n"), (0.3, True, "")]
)
def test_a_line_after_some_time(monkeypatch, capsys, seconds, quiet, text):
    monkeypatch.setattr(shapevm.build.progress, "PATIENCE", 0.05)
    with waiting("a long task", quiet):
        time.sleep(seconds)
    time.sleep(0.1)
    assert capsys.readouterr() == ("", text)


def test_an_error_passes_through(monkeypatch):
    monkeypatch.setattr(shapevm.build.progress, "PATIENCE", 0.01)
    with pytest.raises(KeyError), waiting("a task"):
        time.sleep(0.05)
        raise KeyError


def test_a_spinner_on_a_terminal():
    code = (
        "import time, shapevm.build.progress as p\n"
        "p.PATIENCE = 0.1\n"
        "with p.waiting('a long task'): time.sleep(0.6)\n"
        "print('result')\n"
    )
    master, slave = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=slave, env=env, timeout=60, check=True
    )
    os.close(slave)
    shown = os.read(master, 1 << 16).decode()
    os.close(master)
    assert "a long task" in shown and "0:00:00" in shown and done.stdout == b"result\n"


def test_the_spinner_ends_before_what_is_printed():
    code = (
        "import sys, time, click, shapevm.build.progress as p\n"
        "p.PATIENCE = 0.1\n"
        "with p.waiting('a long task'):\n"
        "    time.sleep(0.6)\n"
        "    click.echo('first line')\n"
        "    print('end of spinner', file=sys.stderr, flush=True)\n"
        "    time.sleep(0.6)\n"
    )
    master, slave = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=slave, env=env, timeout=60, check=True
    )
    os.close(slave)
    before, _, after = os.read(master, 1 << 16).decode().partition("end of spinner")
    os.close(master)
    assert done.stdout == b"first line\n"
    assert "a long task" in before and "a long task" not in after


def test_every_command_says_that_it_waits(artifact):
    code = (
        "import sys, shapevm.build.progress as p\n"
        "p.PATIENCE = 0.2\n"
        "from shapevm.__main__ import main\n"
        f"sys.argv += ['stress', {str(artifact)!r}, '--seconds', '0.5', '--threads', '2']\n"
        "main()\n"
    )
    for options, is_said in (([], True), (["--quiet"], False)):
        done = subprocess.run([sys.executable, "-c", code, *options], capture_output=True, text=True)
        told = done.stderr.splitlines()  # besides, of kernels that the stress makes fail
        assert done.returncode == 0 and ("shapevm stress ..." in told) == is_said, done.stderr
