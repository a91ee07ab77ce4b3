"""Try a wheel for AArch64 on another machine: `try_wheel.py WHEEL FOLDER ARTIFACTS`.

Debian's Python for that machine and the packages that the wheel needs are unpacked into FOLDER, and run under
qemu (`make aarch64-tools` installs it). They run what make_artifact.py wrote into ARTIFACTS, whose bits must
come. apt works on lists of its own: the system's are not changed.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from make_wheel import ROOT, run

EMULATOR, COMPILER = "qemu-aarch64-static", "aarch64-linux-gnu-gcc"
#: Debian's packages: Python and the libraries that it and numpy link.
PACKAGES = [
    *("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib"),
    *("libc6", "libgcc-s1", "libstdc++6", "libexpat1", "zlib1g", "libffi8"),
]
NEEDED = ["numpy", "cffi", "click", "rich", "platformdirs"]
TAGS = [f"manylinux_2_{minor}_aarch64" for minor in (17, 28)]


def get_system(folder: Path) -> Path:
    """Unpack Python for the other machine; return the folder that is its root."""
    root, apt = folder / "root", folder / "apt"
    if (root / "usr/bin/python3.11").exists():
        return root
    for place in ("state/lists/partial", "cache/archives/partial", "debs"):
        (apt / place).mkdir(parents=True, exist_ok=True)
    (apt / "state/status").touch()
    (apt / "apt.conf").write_text(
        'APT::Architecture "arm64";\nAPT::Architectures {"arm64";};\nAPT::Sandbox::User "root";\n'
        f'Dir::State "{apt}/state";\nDir::State::status "{apt}/state/status";\nDir::Cache "{apt}/cache";\n'
    )
    settings = {"APT_CONFIG": str(apt / "apt.conf")}
    run("apt-get", "-qq", "update", **settings)
    run("apt-get", "-qq", "download", *PACKAGES, folder=apt / "debs", **settings)
    for package in sorted((apt / "debs").glob("*.deb")):
        run("dpkg-deb", "-x", package, root)
    return root


def get_site(folder: Path, wheel: Path) -> Path:
    """Unpack the wheel and what it needs; return the folder that Python imports them from."""
    site, wheels = folder / "site", folder / "wheels"
    platforms = [word for tag in TAGS for word in ("--platform", tag)]
    run(
        *(sys.executable, "-m", "pip", "download", "-q", "-c", ROOT / "constraints.txt", "--dest", wheels),
        *(*platforms, "--python-version", "3.11", "--only-binary=:all:", *NEEDED),
    )
    for path in [*wheels.glob("*.whl"), wheel]:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(site)
    return site


def check_runner(emulated: list[object], site: Path, artifacts: Path) -> None:
    """Exit with an error where the wheel's runner gives other bits."""
    runner, out = site / "shapevm/bin/shapevm-run", artifacts / "out.npy"
    runner.chmod(0o755)
    for x in sorted(artifacts.glob("x_*.npy")):
        run(*emulated, runner, artifacts / "model.svm", "--input", f"x={x}", "--output", out)
        if out.read_bytes() != x.with_name(x.name.replace("x_", "y_")).read_bytes():
            sys.exit(f"shapevm-run for AArch64 gives other results for {x.name}")


def check_sdk(emulated: list[object], site: Path, folder: Path) -> None:
    """Exit with an error where no program can be built and started with the wheel's SDK."""
    sdk, program = site / "shapevm/sdk", folder / "embed"
    for library in (["-lsvm"], ["-l:libsvm.a", "-lm", "-pthread"]):
        flags = [f"-I{sdk}/include/shapevm", f"-L{sdk}/lib", *library]
        run(COMPILER, ROOT / "examples/sdk/embed.c", "-o", program, *flags)
        words = [str(word) for word in (*emulated, "-E", f"LD_LIBRARY_PATH={sdk}/lib", program)]
        done = subprocess.run([*words, "no.svm", "1"], capture_output=True, text=True)
        if done.returncode != 1 or "no.svm: cannot open it" not in done.stderr:
            sys.exit(f"{' '.join(words)}: exit status {done.returncode}: {done.stderr}")


def main() -> None:
    """Try the wheel."""
    wheel, folder, artifacts = (Path(word).resolve() for word in sys.argv[1:])
    root, site = get_system(folder), get_site(folder, wheel)
    emulated: list[object] = [EMULATOR, "-L", root]
    smoke = [ROOT / "tests/packaging/smoke.py", artifacts, "emulated"]
    print(run(*emulated, root / "usr/bin/python3.11", "-P", *smoke, PYTHONPATH=str(site)), end="")
    check_runner(emulated, site, artifacts)
    check_sdk(emulated, site, folder)
    print(f"{wheel.name}: Python, shapevm-run and the C SDK work under {EMULATOR}")


if __name__ == "__main__":
    main()
