"""The standalone runner: its size, what it links, its start; and how long importing the package takes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from measure import Figure, median

import shapevm

sys.path.append(str(Path(__file__).parent.parent / "examples"))
from encoder import dynamic_shapes, example_inputs, load_bert


def stripped_size(folder: Path) -> int:
    """Return the bytes of the runner without symbols."""
    copy = folder / "runner"
    shutil.copy(shapevm.runner_path(), copy)
    subprocess.run(["strip", str(copy)], check=True)
    return copy.stat().st_size


def libraries() -> list[str]:
    """Return the shared libraries that the runner needs."""
    printed = subprocess.run(
        ["readelf", "-d", str(shapevm.runner_path())], check=True, capture_output=True, text=True
    ).stdout
    return re.findall(r"NEEDED.*\[(.*?)\]", printed)


def start_to_output(folder: Path) -> tuple[float, float]:
    """Return (seconds of a whole run of the encoder at length 16, seconds that its first call takes
    inside)."""
    exe = shapevm.compile(
        load_bert(), kwargs=example_inputs(), dynamic_shapes=dynamic_shapes(), strategy="generic"
    )
    exe.save(folder / "minilm.svm")
    command = [
        str(shapevm.runner_path()),
        str(folder / "minilm.svm"),
        "--output",
        str(folder / "out.npz"),
        "--threads",
        "1",
        "--repeat",
        "1",
    ]
    for name in ("input_ids", "attention_mask"):
        np.save(folder / f"{name}.npy", torch.ones(1, 16, dtype=torch.long).numpy())
        command += ["--input", f"{name}={folder / name}.npy"]
    wholes, inners = [], []
    for _ in range(21):
        start = time.perf_counter()
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        wholes.append(time.perf_counter() - start)
        found = re.search(r"first ([\d.]+) ms", done.stdout)
        assert found is not None, done.stdout
        inners.append(float(found[1]) / 1e3)
    return median(wholes), median(inners)


def import_seconds() -> float:
    """Return the median seconds that `import shapevm` adds after numpy, in fresh processes."""
    code = "import numpy, time; t = time.perf_counter(); import shapevm; print(time.perf_counter() - t)"
    runs = [
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
        for _ in range(11)
    ]
    return median([float(text) for text in runs])


FIRST_RESULT = """
import sys, time
import numpy
start = time.perf_counter()
import shapevm
exe = shapevm.load(sys.argv[1])
ones = numpy.ones((1, 16), numpy.int64)
exe(ones, ones)
print(time.perf_counter() - start)
"""


def first_result_seconds(folder: Path) -> float:
    """Return the median seconds from numpy's import to the encoder's first result, in fresh processes that
    find compiled bytecode, as installed packages have it; the artifact is that of `start_to_output`."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    command = [sys.executable, "-c", FIRST_RESULT, str(folder / "minilm.svm")]
    runs = [
        subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
        for _ in range(12)
    ]
    return median([float(text) for text in runs[1:]])


def figures() -> list[Figure]:
    """Return the figures."""
    with tempfile.TemporaryDirectory() as name, torch.inference_mode():
        folder = Path(name)
        size = stripped_size(folder)
        whole, inner = start_to_output(folder)
        first = first_result_seconds(folder)
    return [
        Figure("shapevm-run, stripped", f"{size / 1e3:.0f} KB", "at most 320 KB"),
        Figure("shared libraries it needs", ", ".join(libraries()), "libc, libm, pthreads"),
        Figure(
            "process start to end at length 16, of which the first call (reading the weights included)",
            f"{whole * 1e3:.1f} ms, {inner * 1e3:.1f} ms",
        ),
        Figure(
            "start to first output beyond the first call", f"{(whole - inner) * 1e3:.1f} ms", "at most 10 ms"
        ),
        Figure(
            "fresh process to the encoder's first result in Python, numpy's import apart",
            f"{first * 1e3:.0f} ms",
            "at most 60 ms",
        ),
        Figure("import shapevm, numpy's import apart", f"{import_seconds() * 1e3:.0f} ms", "at most 150 ms"),
    ]
