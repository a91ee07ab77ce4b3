"""What the targets' instruction sets have, as their manuals say."""

from __future__ import annotations

import subprocess
import sys

import pytest
from shapevm.jit.llvm.target import TARGETS, host_target


@pytest.mark.parametrize("name", TARGETS)
def test_vector_registers(name: str) -> None:
    """AVX-512 has 32 registers of 64 bytes, AVX2 16 of 32, AArch64 32 of 16."""
    target = TARGETS[name]
    wanted = {"x86-64-v4": (64, 32), "x86-64-v3": (32, 16), "aarch64": (16, 32)}
    family = next(known for known in wanted if name.startswith(known))
    assert (target.vector_bytes, target.n_vector_registers) == wanted[family]


def test_bases_are_targets() -> None:
    for target in TARGETS.values():
        assert target.base in ("", *TARGETS)


def test_kernels_are_looked_up_without_llvm() -> None:
    """It takes 45 MB, which a program whose kernels are compiled does not have."""
    code = (
        "import sys\nfrom shapevm.jit.store import KernelStore, cpu_name, machine_name\n"
        "print(KernelStore().target, cpu_name(), machine_name())\nassert 'llvmlite' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == host_target()
