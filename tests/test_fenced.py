"""tests/fence.c: an access outside of a tensor ends the process, others do not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from signal import SIGSEGV

import pytest

HERE = Path(__file__).parent
READS = """
import ctypes, sys
import numpy as np
from tests.fenced import fence_numpy
fence_numpy()
arrays = [np.ones(5, "f") for _ in range(4)]
for array in arrays:
    ctypes.string_at(array.ctypes.data + int(sys.argv[1]), 1)
print(sum(array.sum() for array in np.concatenate([arrays, arrays])))
"""


@pytest.mark.parametrize(("place", "code"), [(0, 0), (19, 0), (20, -SIGSEGV), (-1, -SIGSEGV)])
def test_reads_outside_of_arrays_end_the_process(place: int, code: int, tmp_path: Path) -> None:
    library = tmp_path / "fence.so"
    command = [os.environ.get("CC", "cc"), "-O1", "-shared", "-fPIC", "-o", library, HERE / "fence.c"]
    subprocess.run(command, check=True)
    env = {**os.environ, "LD_PRELOAD": str(library)}
    command = [sys.executable, "-X", "faulthandler=0", "-c", READS, str(place)]
    done = subprocess.run(command, env=env, cwd=HERE.parent, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert code or float(done.stdout) == 40
