"""What an installed wheel must do by itself: run with a clean environment's Python, outside the repository.

`python -P smoke.py FOLDER`, where FOLDER is what make_artifact.py wrote. `smoke.py FOLDER emulated` checks
what starts no programs, which an emulator of another machine cannot do by itself.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

#: Of the check of threads: what each does so often.
N_THREADS, ROUNDS = 8, 100


def check_environment() -> None:
    """The wheel is what is being tested, and the compile extra is absent."""
    import shapevm

    origin, sources = Path(shapevm.__file__ or "").resolve(), Path(__file__).resolve().parents[2] / "shapevm"
    assert not origin.is_relative_to(sources), f"shapevm comes from {origin}, not from the wheel"
    for name in ("torch", "llvmlite"):
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


def check_artifact_in_python(folder: Path) -> None:
    """An artifact loads and gives the bits that it gave where it was compiled."""
    import numpy as np

    import shapevm

    exe = shapevm.load(folder / "model.svm")
    for x_path in sorted(folder.glob("x_*.npy")):
        expected = np.load(x_path.with_name(x_path.name.replace("x_", "y_")))
        got = np.asarray(exe(np.load(x_path)))
        assert got.shape == expected.shape, f"{x_path.name}: {got.shape} instead of {expected.shape}"
        assert got.tobytes() == expected.tobytes(), f"{x_path.name}: other results"
    assert "torch" not in sys.modules and "llvmlite" not in sys.modules


def check_threads(folder: Path) -> None:
    """Threads that call and look at a program while it is replaced get its results, or that it is closed. A
    Python without a GIL stays without."""
    import numpy as np

    import shapevm

    x = np.load(folder / "x_5.npy")
    expected = np.load(folder / "y_5.npy").tobytes()
    current = [shapevm.load(folder / "model.svm")]
    n_right = []

    def use() -> None:
        for _ in range(ROUNDS):
            exe = current[0]
            try:
                exe.stats()
                assert np.asarray(exe(x)).tobytes() == expected, "other results beside other threads"
                n_right.append(1)
            except shapevm.errors.ArgumentError as problem:
                assert "closed" in str(problem), problem

    def replace() -> None:
        for _ in range(ROUNDS):
            old, current[0] = current[0], shapevm.load(folder / "model.svm")
            old.close()

    with ThreadPoolExecutor(N_THREADS) as pool:
        done = [pool.submit(replace), *(pool.submit(use) for _ in range(N_THREADS - 1))]
    for each in done:
        each.result()
    assert n_right, "no call found an open program"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        assert not sys._is_gil_enabled(), "an import enabled the GIL"  # type: ignore[attr-defined]


def check_artifact_in_runner(folder: Path) -> None:
    """So does the runner, which is a C program."""
    import numpy as np

    from shapevm.runner import runner_path

    for x_path in sorted(folder.glob("x_*.npy")):
        expected = np.load(x_path.with_name(x_path.name.replace("x_", "y_")))
        output = folder / "out.npy"
        command = [runner_path(), folder / "model.svm", "--input", f"x={x_path}", "--output", output]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"shapevm-run: exit status {done.returncode}: {done.stderr}"
        assert np.load(output).tobytes() == expected.tobytes(), f"{x_path.name}: other results"


def check_sdk() -> None:
    """The wheel brings the C SDK."""
    import shapevm

    sdk = shapevm.sdk()
    for path in (
        sdk.include / "svm.h",
        sdk.lib / "libsvm.so.1",
        sdk.lib / "libsvm.a",
        sdk.pkgconfig / "svm.pc",
    ):
        assert path.is_file(), f"{path} is missing"


#: By source: how the page on embedding builds it.
EXAMPLES = {
    "embed.c": "cc {source} -o embed $(pkg-config --cflags --libs svm)",
    "embed.cpp": "c++ {source} -o embed $(pkg-config --cflags svm) -L{lib} -l:libsvm.a -lm -pthread",
    "embed.rs": "rustc {source} -L {lib} -o embed",
}


def check_examples(folder: Path) -> None:
    """The examples of the page on embedding build with the wheel's SDK alone and embed a sentence."""
    import numpy as np

    import shapevm

    sdk, sources = shapevm.sdk(), Path(__file__).resolve().parents[2] / "examples" / "sdk"
    folder = folder.resolve()
    environment = {**os.environ, "PKG_CONFIG_PATH": str(sdk.pkgconfig), "LD_LIBRARY_PATH": str(sdk.lib)}
    for name, build in EXAMPLES.items():
        missing = [tool for tool in (build.split()[0], "pkg-config") if shutil.which(tool) is None]
        if missing == ["rustc"] and "RUST_REQUIRED" not in os.environ:
            print(f"{name} is not tried: rustc is missing")
            continue
        assert not missing, f"{missing[0]} is missing: {name} cannot be tried"
        script = build.format(source=f"'{sources / name}'", lib=f"'{sdk.lib}'")
        subprocess.run(["sh", "-euc", script], check=True, timeout=120, env=environment, cwd=folder)
        command = [folder / "embed", folder / "encoder.svm", *map(str, np.load(folder / "ids.npy"))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
        assert done.returncode == 0, f"{name}: exit status {done.returncode}: {done.stderr}"
        assert np.array_equal(np.float32(done.stdout.split()), np.load(folder / "embedding.npy")[0]), name


def main(folder: Path, is_emulated: bool) -> None:
    """Run every check; an assertion ends the program with status 1."""
    assert len(list(folder.glob("x_*.npy"))) >= 3, f"{folder} holds no inputs; run make_artifact.py first"
    checks: list[Callable[[], None]] = [
        check_environment,
        check_imports,
        check_sdk,
        lambda: check_artifact_in_python(folder),
    ]
    if not is_emulated:
        checks += [
            check_programs,
            lambda: check_threads(folder),
            lambda: check_artifact_in_runner(folder),
            lambda: check_examples(folder),
        ]
    for check in checks:
        check()
    print(f"{len(checks)} checks of the installed wheel passed")


if __name__ == "__main__":
    main(Path(sys.argv[1]), "emulated" in sys.argv[2:])
