"""Hosts whose disks are full, or from whose folder for temporary files nothing may be run.

Each program has mounts of its own, which takes the right to make them: root, or user namespaces.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import logging, os, sys, time
import numpy as np
import shapevm
from shapevm.specialise import kernel_requests, profitability
profitability.START_SECONDS = profitability.ASK_NS = 0
profitability.Gains.pays_after = lambda self, kernel, dims: 2
profitability.KernelGain.declined_from = 0
logged = []
handler = logging.Handler()
handler.emit = lambda record: logged.append(record.getMessage())
logging.getLogger("shapevm").addHandler(handler)
path, strategy, is_full = sys.argv[1], sys.argv[2], sys.argv[3] == "full"
if is_full:
    assert os.statvfs(os.environ["SHAPEVM_CACHE_DIR"]).f_bavail == 0
expected = shapevm.load(path, strategy="generic")
exe = shapevm.load(path, strategy=strategy)
end, n = time.monotonic() + 120, 9
while time.monotonic() < end and (n < 14 or not exe.stats().compiled):
    n += 1
    x = np.sin(np.arange(n * 64, dtype="f")).reshape(n, 64)
    for _ in range(4):
        assert np.array_equal(exe(x), expected(x)), n
    time.sleep(0.05 if n > 20 else 0)
stats = exe.stats()
assert stats.compiled and not stats.compile_failures, (stats, logged)
assert len(logged) <= 2 and bool(logged) == is_full, logged
exe.close()
"""
NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount", "--"]
CAN_MOUNT = "mount -t tmpfs none /tmp"


def _can_mount() -> bool:
    try:
        return not subprocess.run([*NAMESPACE, "sh", "-c", CAN_MOUNT], capture_output=True).returncode
    except OSError:
        return False


@pytest.mark.skipif(not _can_mount(), reason="may make no mounts")
@pytest.mark.parametrize("strategy", ["jit", "auto"])
@pytest.mark.parametrize("disk", ["full", "noexec"])
def test_a_disk(disk: str, strategy: str, path: Path, tmp_path: Path) -> None:
    own = tmp_path / "disk"
    own.mkdir()
    mount = "mount -t tmpfs -o mode=700"
    mounts = {
        "full": f"{mount},size=64k none {own}; head -c 1M /dev/zero >{own}/all 2>/dev/null",
        "noexec": f"{mount},noexec none {own}; {mount},noexec none /dev/shm",
    }
    variables = f"TMPDIR={own} HOME={own} SHAPEVM_CACHE_DIR={own} SHAPEVM_COMPILE_BUDGET=1000"
    run = shlex.join([sys.executable, "-c", PROGRAM, str(path), strategy, disk])
    command = f"{mounts[disk]}; {variables} {run}"
    done = subprocess.run([*NAMESPACE, "sh", "-c", command], capture_output=True, text=True)
    assert not done.returncode, done.stderr
