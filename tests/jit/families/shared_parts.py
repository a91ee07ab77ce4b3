"""Which parts kernels have in common."""

from shapevm.jit import compiler
from shapevm.jit.llvm.function import Function
from shapevm.jit.object.parts import digest
from shapevm.jit.spec import KernelSpec


def parts(f: Function) -> set[bytes]:
    """Return what stands for the parts of a function, and for theirs."""
    return {digest(part) for part in f.parts.values()}.union(*(parts(part) for part in f.parts.values()))


def parts_of(spec: KernelSpec, target: str) -> set[bytes]:
    """Return the parts of a generic kernel."""
    f, _ = compiler._generate(spec, None, compiler.target_for(spec, target), None)
    return parts(f)
