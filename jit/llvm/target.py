"""Targets: the instruction sets that kernels are compiled for, and the LLVM target machines that emit them.

A target is a row of `TARGETS`. Its code runs on every machine with its features, so artifacts travel; the C
runtime finds the host's best target. llvmlite serialises all calls into LLVM with one lock and ctypes
releases the GIL for them: compiling in background threads is safe, needs no lock here, and never stops
Python.

LLVM takes 45 MB. What compiles imports it; looking kernels up does without.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from ...vm.host import host_target as best_target

if TYPE_CHECKING:
    import llvmlite.binding as llvm

X86_LINUX = "x86_64-unknown-linux-gnu"
ARM_LINUX = "aarch64-unknown-linux-gnu"
X86_V3 = ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
X86_V4 = (*X86_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
X86_VNNI = (*X86_V4, "avx512vnni")
X86_BF16 = (*X86_VNNI, "avx512bf16")
X86_AMX = (*X86_BF16, "amx-tile", "amx-bf16", "amx-int8")
ARM_DOT = ("neon", "dotprod")
ARM_I8MM = (*ARM_DOT, "i8mm")
VNNI_FEATURES = "-prefer-256-bit,+avx512vnni,+fast-dpwssd"
BF16_FEATURES = f"{VNNI_FEATURES},+avx512bf16"
AMX_FEATURES = f"{BF16_FEATURES},+amx-tile,+amx-bf16,+amx-int8"


@dataclass(frozen=True)
class Target:
    """One instruction set: its LLVM triple, CPU name and features, and what a host must have to run its code.

    `features` holds tuning and features that the CPU name does not imply. `vector_bytes`: the widest
    register. `extension`: its addition to its `base`, whose code is equally good for kernels that do not use
    it: "amx" (tiles), "dot" (products of bytes), "pairs" (of bf16). `dot`: the feature that multiplies bytes,
    a key of `byte_dots.DOTS`; `pairs`: the one that multiplies bf16, a key of `pair_dots.DOTS`. `quad_cost`:
    the least cost of a product of four bytes in products of two i16; 0: not measured, or tiles multiply
    bytes. `saturates`: a float out of range is converted to the nearest integer, not to the smallest one.
    """

    name: str
    triple: str
    cpu: str
    features: str
    needs: tuple[str, ...]
    vector_bytes: int
    n_vector_registers: int
    base: str = ""
    extension: str = ""
    dot: str = ""
    pairs: str = ""
    quad_cost: int = 0

    @property
    def saturates(self) -> bool:
        """See above."""
        return self.triple == ARM_LINUX

    @property
    def attributes(self) -> str:
        """The text of the LLVM attribute group of every kernel.

        "no-builtins" keeps the back end from forming calls such as memset: a kernel has no undefined symbols.
        "no-jump-tables": those of all functions of a module share a section, which the linker cannot divide.
        """
        width = 8 * self.vector_bytes
        return (
            f'nounwind "no-builtins" "no-jump-tables"="true" "target-cpu"="{self.cpu}" '
            f'"target-features"="{self.features}" '
            f'"prefer-vector-width"="{width}" "min-legal-vector-width"="{width}"'
        )


# Best first. "-prefer-256-bit": LLVM's x86-64-v4 avoids 512-bit registers unless told so. "+fast-dpwssd":
# otherwise it splits products of i16 and their sums.
TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target(
            "x86-64-v4-amx",
            X86_LINUX,
            "x86-64-v4",
            AMX_FEATURES,
            X86_AMX,
            64,
            32,
            "x86-64-v4-bf16",
            "amx",
            "avx512vnni",
            "avx512bf16",
        ),
        Target(
            "x86-64-v4-bf16",
            X86_LINUX,
            "x86-64-v4",
            BF16_FEATURES,
            X86_BF16,
            64,
            32,
            "x86-64-v4-vnni",
            "pairs",
            "avx512vnni",
            "avx512bf16",
            1,
        ),
        Target(
            "x86-64-v4-vnni",
            X86_LINUX,
            "x86-64-v4",
            VNNI_FEATURES,
            X86_VNNI,
            64,
            32,
            "x86-64-v4",
            "dot",
            "avx512vnni",
            quad_cost=1,
        ),
        Target("x86-64-v4", X86_LINUX, "x86-64-v4", "-prefer-256-bit", X86_V4, 64, 32, quad_cost=2),
        Target(
            "x86-64-v3-vnni",
            X86_LINUX,
            "x86-64-v3",
            "+avxvnni",
            (*X86_V3, "avxvnni"),
            32,
            16,
            "x86-64-v3",
            "dot",
            "avxvnni",
        ),
        Target("x86-64-v3", X86_LINUX, "x86-64-v3", "", X86_V3, 32, 16, quad_cost=2),
        Target(
            "aarch64-i8mm",
            ARM_LINUX,
            "generic",
            "+dotprod,+i8mm",
            ARM_I8MM,
            16,
            32,
            "aarch64-dotprod",
            "dot",
            "i8mm",
        ),
        Target(
            "aarch64-dotprod", ARM_LINUX, "generic", "+dotprod", ARM_DOT, 16, 32, "aarch64", "dot", "dotprod"
        ),
        Target("aarch64", ARM_LINUX, "generic", "", ("neon",), 16, 32),
    )
}


def bases(name: str) -> list[str]:
    """Return the target of that name, its base, and so on."""
    found = [name]
    while base := find_target(found[-1]).base:
        found.append(base)
    return found


def find_target(name: str) -> Target:
    """Return the row of that name. Raises ValueError, listing the names, for an unknown one."""
    if name not in TARGETS:
        raise ValueError(f"target {name!r} is unknown; known are {', '.join(TARGETS)}")
    return TARGETS[name]


@cache
def runs_here(name: str) -> bool:
    """Return True where this machine runs the target's code. Raises ValueError for an unknown name.

    The variable SVM_CPU, for tests of older CPUs, names the best target that this one is taken to run.
    """
    target, best = find_target(name), TARGETS.get(best_target())
    order = list(TARGETS.values())
    if best is None or target.triple != best.triple or order.index(target) < order.index(best):
        return False
    return {*target.needs} <= {*best.needs} or _has(target.needs)


def _has(features: tuple[str, ...]) -> bool:
    """Whether this CPU has features that its best target does not need."""
    import llvmlite.binding as llvm

    found = llvm.get_host_cpu_features()
    return all(found.get(feature) for feature in features)


@cache
def host_target() -> str:
    """Return the name of the best target that runs on this machine. Raises RuntimeError if there is none."""
    if found := best_target():
        return found
    raise RuntimeError(
        f"this {platform.machine()} CPU runs none of the targets {', '.join(TARGETS)}; x86-64-v3 needs AVX2 "
        "and FMA"
    )


@cache
def target_machine(name: str) -> llvm.TargetMachine:
    """Return LLVM's code emitter for a target (one for the whole process: llvmlite serialises its use).

    Position-independent code, small code model: kernels reach their constants relative to the program
    counter. Levels 1 to 3 of the back end take the same time and produce the same code.
    """
    import llvmlite.binding as llvm

    target = find_target(name)
    if target.triple.split("-")[0] == llvm.get_process_triple().split("-")[0]:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    else:  # 8 % more for every emission: each target has passes that LLVM looks through
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=2, reloc="pic", codemodel="small"
    )
    machine.set_asm_verbosity(False)
    return machine
