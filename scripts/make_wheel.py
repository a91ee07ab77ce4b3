"""Build wheels for old and new Linux systems: `make_wheel.py FOLDER [x86_64] [aarch64]`.

The compiler is zig's (package `ziglang`), which links against the glibc that it is told. auditwheel checks
which glibc the wheel needs, abi3audit that the Python module keeps to the stable ABI, cibuildwheel that its
configuration names the same wheels. A wheel for AArch64 needs Debian's package binutils-aarch64-linux-gnu.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
GLIBC = (2, 28)
PYTHONS = ("cp311", "cp314t")
CPUS = {"x86_64": "x86_64", "aarch64": "generic"}


def run(*command: object, folder: Path = ROOT, **environment: str) -> str:
    """Run a command in a folder and return what it prints; exit with its errors where it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, **environment},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stdout}")
    return done.stdout


def cross_options(machine: str) -> list[str]:
    """Return CMake's definitions for a machine that is not this one."""
    if machine == os.uname().machine:
        return []
    tools = {tool: shutil.which(f"{machine}-linux-gnu-{tool}") for tool in ("objcopy", "ld", "strip")}
    missing = [tool for tool, path in tools.items() if path is None]
    if missing:
        sys.exit(f"{machine}-linux-gnu-{missing[0]} is missing; install binutils-{machine}-linux-gnu")
    defined = {
        "CMAKE_SYSTEM_NAME": "Linux",
        "CMAKE_SYSTEM_PROCESSOR": machine,
        "CMAKE_OBJCOPY": tools["objcopy"],
        "CMAKE_LINKER": tools["ld"],
        "CMAKE_STRIP": tools["strip"],
    }
    return [f"-Ccmake.define.{name}={value}" for name, value in defined.items()]


def build(machine: str, folder: Path) -> Path:
    """Build a wheel that needs glibc 2.28 or newer into `folder`; return its path."""
    target = f"{machine}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"
    with tempfile.TemporaryDirectory() as place:
        run(
            sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", place,
            "-C", f"build-dir=build/wheel-{machine}", *cross_options(machine), ".",
            CC=f"{sys.executable} -m ziglang cc -target {target}",
            CFLAGS=f"-mcpu={CPUS[machine]} -g0",
            _PYTHON_HOST_PLATFORM=f"linux-{machine}",
        )  # fmt: skip
        (made,) = Path(place).iterdir()
        tag = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{machine}"
        name = run(sys.executable, "-m", "wheel", "tags", "--platform-tag", tag, made).split()[-1]
        return Path(shutil.move(made.with_name(name), folder / name))


def check(wheel: Path, machine: str) -> None:
    """Exit with an error where the wheel needs more than its name says."""
    said = run(sys.executable, "-m", "auditwheel", "show", wheel)
    tag = said.partition("platform tag:")[2].partition('"')[2].partition('"')[0]
    major, minor = (int(part) for part in tag.split("_")[1:3]) if tag.startswith("manylinux_") else (99, 0)
    if (major, minor) > GLIBC or not tag.endswith(machine):
        sys.exit(f"{wheel.name}: {said}")
    with tempfile.TemporaryDirectory() as place, zipfile.ZipFile(wheel) as archive:
        module = archive.extract("shapevm/vm/_runtime.abi3.so", place)
        run(sys.executable, "-m", "abi3audit", "--strict", module)
    print(f"{wheel}: {wheel.stat().st_size:,} bytes, fit for {tag}")


def check_configuration() -> None:
    """Exit with an error where cibuildwheel, by its table in pyproject.toml, would not build these wheels."""
    said = run(sys.executable, "-m", "cibuildwheel", "--platform", "linux", "--print-build-identifiers", ROOT)
    if set(said.split()) != {f"{python}-manylinux_{machine}" for python in PYTHONS for machine in CPUS}:
        sys.exit(f"cibuildwheel would build:\n{said}")


def main() -> None:
    """Build and check the wheels."""
    check_configuration()
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for machine in sys.argv[2:] or ["x86_64"]:
        check(build(machine, folder), machine)


if __name__ == "__main__":
    main()
