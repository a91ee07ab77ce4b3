"""Artifacts with code for several targets: add one, keep some, merge files.

For each kernel, the loader takes the code of the best target that runs on its machine. Only the code differs
between targets; results may differ in their last bits (x86-64-v3 and aarch64 agree).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..vm.artifact import write_to
from ..vm.errors import ArgumentError
from ..vm.program import Kernel, KernelObject, Program

if TYPE_CHECKING:
    from ..jit.store import KernelStore


def with_target(
    program: Program, store: KernelStore, notify: Callable[[int, int], None] = lambda done, total: None
) -> Program:
    """Return `program` with code for the store's target as well: for all sizes, and for the sizes of its
    other code. `notify(done, total)` is called before each kernel."""
    from ..jit.spec_reader import from_json

    kernels: list[Kernel] = []
    for index, kernel in enumerate(program.kernels):
        notify(index, len(program.kernels))
        spec = from_json(kernel.spec)
        keys = dict.fromkeys(o.key for o in kernel.objects if o.key is not None)
        made = [*store.generic(spec), *(store.object(spec, key) for key in keys)]
        kernels.append(replace(kernel, objects=_together(kernel.objects, made)))
    return replace(program, kernels=tuple(kernels))


def with_bases(program: Program, store: KernelStore) -> Program:
    """Return a program with code for the store's target and also for the target's bases."""
    from ..jit.spec_reader import from_json
    from ..specialise.compile_ahead import compile_ahead

    specs = [from_json(kernel.spec) for kernel in program.kernels]
    compile_ahead(store, dict.fromkeys(specs, ()))
    kernels = (
        replace(kernel, objects=_together(store.generic(spec), kernel.objects))
        for spec, kernel in zip(specs, program.kernels, strict=True)
    )
    return replace(program, kernels=tuple(kernels))


def only_targets(program: Program, targets: Sequence[str]) -> Program:
    """Return `program` with only the code that these targets run: their own, or that of their best base.

    Raises ArgumentError for a target that is unknown or for which a kernel has no code.
    """
    from ..jit.llvm.target import TARGETS, bases

    for target in targets:
        if target not in TARGETS:
            raise ArgumentError(f"target {target!r} is unknown; known are {', '.join(TARGETS)}")
    kernels: list[Kernel] = []
    for index, kernel in enumerate(program.kernels):
        have = {o.target for o in kernel.objects}
        wanted = set()
        for target in targets:
            best = next((name for name in bases(target) if name in have), None)
            if best is None:
                raise ArgumentError(
                    f"kernel {index} ({kernel.label}) has code for {', '.join(sorted(have)) or 'no target'}, "
                    f"not for {target}: compile the model for that target"
                )
            wanted.add(best)
        kernels.append(replace(kernel, objects=tuple(o for o in kernel.objects if o.target in wanted)))
    return replace(program, kernels=tuple(kernels))


def merged(programs: Sequence[Program], names: Sequence[str]) -> Program:
    """Return one program with the code of all. `names`: of the programs, for messages.

    Raises ArgumentError for programs that differ in more than their code.
    """
    first, *others = programs
    known, result = _without_code(first), first
    for program, name in zip(others, names[1:], strict=True):
        if _without_code(program) != known:
            raise ArgumentError(
                f"{name} is not the program of {names[0]}: compile the same model with the same options, "
                "apart from the target"
            )
        pairs = zip(result.kernels, program.kernels, strict=True)
        kernels = (replace(a, objects=_together(a.objects, b.objects)) for a, b in pairs)
        result = replace(result, kernels=tuple(kernels))
    return result


def _without_code(program: Program) -> bytes:
    """Return an artifact without its machine code."""
    file = io.BytesIO()
    kernels = tuple(replace(kernel, objects=()) for kernel in program.kernels)
    write_to(replace(program, kernels=kernels), file)
    return file.getvalue()


def _together(first: Sequence[KernelObject], second: Sequence[KernelObject]) -> tuple[KernelObject, ...]:
    """Return all objects, only the first for each target and sizes."""
    found = {(o.target, o.key): o for o in (*second, *first)}
    order = dict.fromkeys((o.target, o.key) for o in (*first, *second))
    return tuple(found[key] for key in order)
