"""The console script before its command begins."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Ctrl-C comes where the module that the first argument names is first imported.
CODE = """
import builtins, os, signal, sys
signal.signal(signal.SIGINT, signal.HANDLER)
real = builtins.__import__
def imported(name, *rest):
    if name == sys.argv[1]:
        builtins.__import__ = real
        sys.argv[1] = "settings"
        os.kill(os.getpid(), signal.SIGINT)
    return real(name, *rest)
builtins.__import__ = imported
from shapevm.__main__ import run
run()
"""


def interrupted(handler: str, module: str) -> subprocess.CompletedProcess[str]:
    code = CODE.replace("HANDLER", handler)
    return subprocess.run([sys.executable, "-c", code, module], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("module", ["cli", "click", "build.progress", "shared"])
def test_ctrl_c_while_the_command_line_is_imported(module: str) -> None:
    done = interrupted("default_int_handler", module)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Error: ended by Ctrl-C\n")


def test_ctrl_c_that_is_ignored_stays_so() -> None:
    """As in a background job of a shell."""
    done = interrupted("SIG_IGN", "click")
    assert done.returncode == 0 and "SHAPEVM_STRATEGY" in done.stdout and not done.stderr
