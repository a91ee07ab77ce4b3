"""The target that the runtime finds is the one that Linux says this CPU has."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from shapevm.vm.host import host_target

V3 = {"avx2", "fma", "bmi1", "bmi2", "f16c", "abm", "movbe"}
V4 = V3 | {f"avx512{part}" for part in ("f", "bw", "cd", "dq", "vl")}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86-64 has several targets")
def test_host_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SVM_CPU", raising=False)
    line = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags"))
    flags = set(line.split())
    wanted = {
        "x86-64-v3": V3,
        "x86-64-v3-vnni": V3 | {"avx_vnni"},
        "x86-64-v4": V4,
        "x86-64-v4-vnni": V4 | {"avx512_vnni"},
    }
    wanted["x86-64-v4-bf16"] = wanted["x86-64-v4-vnni"] | {"avx512_bf16"}
    wanted["x86-64-v4-amx"] = wanted["x86-64-v4-bf16"] | {"amx_tile", "amx_bf16", "amx_int8"}
    assert host_target() == next((name for name in reversed(wanted) if wanted[name] <= flags), "")


HOSTS = """
from shapevm.jit.llvm import target
from shapevm.vm import host
print(host.host_target(), target.host_target(), target.runs_here("x86-64-v3"), target.runs_here("x86-64-v4"))
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86-64 has several targets")
def test_a_cpu_is_taken_for_an_older_one() -> None:
    env = {**os.environ, "SVM_CPU": "x86-64-v3"}
    out = subprocess.run([sys.executable, "-c", HOSTS], env=env, check=True, capture_output=True, text=True)
    assert out.stdout.split() == ["x86-64-v3", "x86-64-v3", "True", "False"]
