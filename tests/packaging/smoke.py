"""What an installed wheel must do by itself: run with a clean environment's Python, outside the repository."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
import sysconfig
from pathlib import Path


def check_environment() -> None:
    """The wheel is what is being tested, and the compile extra is absent."""
    import shapevm

    origin, prefix = Path(shapevm.__file__ or "").resolve(), Path(sys.prefix).resolve()
    assert origin.is_relative_to(prefix), f"shapevm comes from {origin}, not from the wheel"
    for name in ("torch", "llvmlite", "elftools"):
        assert importlib.util.find_spec(name) is None, f"{name} is installed here; the test needs it absent"
    assert importlib.util.find_spec("shapevm.tests") is None, "the wheel carries the repository's tests"


def check_imports() -> None:
    """Everything but the compiler's frontends and code generation is importable from the package alone."""
    for name in ("shapevm.vm", "shapevm.vm.isa", "shapevm.vm._runtime", "shapevm.__main__"):
        importlib.import_module(name)
    for name in ("torch", "llvmlite"):
        assert name not in sys.modules, f"{name} was imported"


def check_programs() -> None:
    """Both console entries answer `--help`, and so does the C runner itself."""
    from shapevm.runner import runner_path

    scripts = Path(sysconfig.get_path("scripts"))
    for program in (scripts / "shapevm", scripts / "shapevm-run", runner_path()):
        done = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{program} --help: exit status {done.returncode}: {done.stderr}"
        assert "sage" in done.stdout + done.stderr, f"{program} --help printed no usage"


def main() -> None:
    """Run every check; an assertion ends the program with status 1."""
    for check in (check_environment, check_imports, check_programs):
        check()
        print(f"{check.__name__}: ok")


if __name__ == "__main__":
    main()
