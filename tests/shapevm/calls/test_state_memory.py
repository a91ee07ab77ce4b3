"""The memory that a program's first state takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

#: Writes a program with 16 buffers of 16 MiB; then loads it, and prints the MiB taken at most and then.
WRITE = """
import sys
from shapevm import nn

class Kept(nn.Module):
    def __init__(self):
        self.rows = [nn.Buffer((1 << 22,), in_place=True) for _ in range(16)]
        for i, row in enumerate(self.rows):
            setattr(self, f"row{i}", row)
    def forward(self, x, at):
        for row in self.rows:
            row.update(nn.index_copy(row, 0, at, x))
        return x

nn.compile(Kept(), {"x": (("n",), "f32"), "at": (("n",), "i64")}, strategy="generic").save(sys.argv[1])
"""
LOAD = """
import sys
import shapevm

def resident(name):
    (line,) = [line for line in open("/proc/self/status") if line.startswith(name)]
    return int(line.split()[1]) / 1024

before = resident("VmHWM")
exe = shapevm.load(sys.argv[1])
print(resident("VmHWM") - before, resident("VmRSS") - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_the_first_state_is_not_made_twice_and_takes_no_memory_yet(tmp_path: Path) -> None:
    path = str(tmp_path / "kept.svm")
    for program in (WRITE, LOAD):
        done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    most, after = map(float, done.stdout.split())
    assert 200 < most < 320 and after < 40
