"""Programs of other people that use ONNX Runtime run unchanged, with the same results."""

import json
import os
import subprocess
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("onnx_program.py")
pytestmark = pytest.mark.skipif("HOSTS_PYTHON" not in os.environ, reason="`make hosts` installs the programs")


@pytest.mark.parametrize("name", ["rapidocr", "magika", "ddddocr"])
def test_programs_of_onnxruntime_run_unchanged(name: str, tmp_path: Path) -> None:
    found = {}
    for runtime in ("onnxruntime", "shapevm"):
        done = subprocess.run(
            [os.environ["HOSTS_PYTHON"], str(PROGRAM), name, runtime],
            env={**os.environ, "SHAPEVM_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        module, found[runtime] = json.loads(done.stdout.splitlines()[-1])
        assert module == runtime
    assert found["shapevm"] == found["onnxruntime"]
