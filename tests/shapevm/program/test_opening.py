"""Loading an artifact imports no more than it needs: a process starts quickly to run one program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import shapevm

#: What only compiling, measuring, remembering and saving need.
LATER = {
    "shapevm": {"buckets", "cost_model", "files", "jit", "compiler.ir", "text_files", "tables"},
    "standard": {"pickle", "select", "socket", "subprocess", "tempfile", "secrets", "difflib", "zipfile"},
    "packages": {"torch", "llvmlite", "rich", "click", "platformdirs"},
}

PROGRAM = """
import json, sys
import numpy
known = set(sys.modules)
import shapevm
with shapevm.load({path!r}, strategy={strategy!r}) as exe:
    result = exe(numpy.ones(3, numpy.float32))
print(json.dumps([result.tolist(), sorted(set(sys.modules) - known)]))
"""


@pytest.mark.parametrize("strategy", ["generic", "auto"])
def test_a_load_imports_what_it_needs(strategy: str, tmp_path: Path) -> None:
    path = tmp_path / "model.svm"
    with shapevm.compile(torch.nn.ReLU(), args=(torch.ones(3),)) as exe:
        exe.save(path)
    program = PROGRAM.format(path=str(path), strategy=strategy)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    result, imported = json.loads(done.stdout)
    assert result == [1.0, 1.0, 1.0]
    later = LATER["standard"] | LATER["packages"] | {f"shapevm.{name}" for name in LATER["shapevm"]}
    assert sorted(later.intersection(imported)) == []
