"""shapevm.nn builds and compiles without importing torch."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import numpy as np
import shapevm.nn as nn

class Scale(nn.Module):
    def forward(self, x):
        return nn.softmax(x * 2.0 + 1.0)

y = nn.compile(Scale(), {"x": ("n", 4)}, strategy="generic")(np.zeros((3, 4), np.float32))
assert (y == 0.25).all() and "torch" not in sys.modules, sorted(n for n in sys.modules if "torch" in n)
"""


def test_a_compilation_imports_no_torch() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
