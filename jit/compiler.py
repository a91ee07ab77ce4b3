"""The compiler of kernels: (spec, sizes or none, target, schedule) -> CodeObject.

One path for every tier and family: a family's generator writes LLVM text, LLVM's back end turns it into an
object, `link` into a blob. No mid-level pass runs (a ModulePassManager costs 10-40 ms and leaks 88 KB per
run), so the generators write final code. Each kernel gets its own LLVM context, freed with it: the global
context would keep every constant of every kernel forever.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from time import perf_counter

import llvmlite.binding as llvm

from ..vm.host import float_mode
from ..vm.program import KernelKey, MachineCode, SizeRange, Work
from .families.table import bounds, family_of
from .llvm.abi import PARAMS, CodeObject, Generated, Timings
from .llvm.constant_pool import POOL, FromSize, Pool
from .llvm.function import Bounded, Function, Int, module_text
from .llvm.target import bases, find_target, host_target, target_machine
from .object.link import Blob, NumberError, Object
from .object.parts import Parts
from .spec import KernelSpec, Size, Terms, spec_hash

ENTRY = "kernel"
PATCHED = "x86_64"  # prefix of the triples of targets whose instructions hold 32-bit numbers


def _generate(
    spec: KernelSpec, dims: KernelKey, target: str, schedule: str | None, is_patched: bool = True
) -> tuple[Function, Generated]:
    row = find_target(target)
    is_patched = is_patched and dims is None and row.triple.startswith(PATCHED)
    registers = row.n_vector_registers * row.vector_bytes
    f = Function(ENTRY, PARAMS, registers, row.extension, row.dot, row.pairs, row.quad_cost, row.saturates)
    f.pool = Pool(is_patched)
    sizes = _load_dims(f, (None,) * spec.n_dims if dims is None else dims)
    return f, family_of(spec).emit(f, spec.numbered() if dims is None else spec, sizes, schedule)


def _module(text: str, target: str) -> str:
    row = find_target(target)
    return f'target triple = "{row.triple}"\n{text}attributes #0 = {{ {row.attributes} }}\n'


def _shown(f: Function, target: str) -> str:
    """Return the whole module's text, with the values of its constant pool."""
    pool = (f"; {POOL}[{i}] = {made} = {value}\n" for i, (made, value) in enumerate(f.pool or ()))
    return "".join(pool) + _module(f.whole_text(), target)


def target_for(spec: KernelSpec, target: str) -> str:
    """Return the target that `spec` is compiled for when `target` is requested: its base if that suffices."""
    used = ("", *family_of(spec).extensions(spec))
    return next(name for name in bases(target) if find_target(name).extension in used)


def kernel_text(
    spec: KernelSpec, dims: KernelKey, target: str, schedule: str | None = None
) -> tuple[str, Generated]:
    """Return the LLVM text of a kernel's module, including parts, and its generator's description.

    `dims`: the values or ranges of the spec's Dims (an exact kernel, a bucket's), or None (generic); other
    sizes are loaded at run time.
    """
    f, generated = _generate(spec, dims, target, schedule)
    return _shown(f, target), generated


_PARTS = Parts()


def _new(f: Function, known: Container[str]) -> list[Function]:
    """Return the functions to compile for `f`: parts that are not known yet, callers last."""
    found = {
        part.name: part
        for child in f.parts.values()
        if child.name not in known
        for part in _new(child, known)
    }
    return [*found.values(), f]


def _link(
    elf: bytes, functions: Sequence[Function], target: str, known: Mapping[str, Blob], cache: Path | None,
    is_generic: bool,
) -> Blob:  # fmt: skip
    """Return the code of the last of `functions`, from their object; remember shared parts."""
    object, blobs = Object(elf), dict(known)
    for f in functions:
        parts = {name: blobs[name] for name in f.parts}
        blobs[f.name] = object.link(f.name, parts, len(f.pool or ()))
        if f is not functions[-1] or (is_generic and f.pool):
            _PARTS.add(f, target, blobs[f.name], cache)
        elif not is_generic:  # there are many exact kernels, which other processes find by their sizes
            _PARTS.add(f, target, blobs[f.name])
    return blobs[functions[-1].name]


def _load_dims(f: Function, key: Sequence[int | SizeRange | None]) -> list[Int]:
    sizes: list[Int] = []
    for i, known in enumerate(key):
        if isinstance(known, int):
            sizes.append(FromSize(known, f"n{i}"))
            continue
        value = f.load("i64", f.at(f.params[1], "i64", i), align=8)
        if known is not None:
            value = Bounded(value.type, value.name, known.min, known.max, known.multiple_of)
        sizes.append(value)
    return sizes


@float_mode()
def compile_kernel(
    spec: KernelSpec,
    dims: KernelKey,
    target: str | None = None,
    *,
    keep_ir: bool = False,
    schedule: str | None = None,
    cache: Path | None = None,
) -> CodeObject:
    """Compile `spec` for sizes `dims` (exact), for sizes and ranges (a bucket) or any sizes (None: generic).

    `target`: a name of `target.TARGETS`, None for the host's. `keep_ir` keeps the LLVM text in the code
    object. `cache`: the folder in which processes share parts of kernels. Safe to call from any thread.
    Raises ValueError for sizes that do not match the spec or break its bounds.
    """
    _check_dims(spec, dims)
    target = target_for(spec, target or host_target())
    limits = bounds(spec, dims)
    try:
        f, generated, code, timings = _made(spec, dims, target, schedule, cache)
    except NumberError:  # then no number is written into instructions
        f, generated, code, timings = _made(spec, dims, target, schedule, cache, is_patched=False)
    return CodeObject(
        spec_hash=spec_hash(spec),
        target=target,
        n_dims=spec.n_dims,
        buffers=spec.buffers,
        work=_plain_work(generated.work),
        bounds=limits,
        code=code,
        exact_dims=_exact(dims),
        ranges=_ranges(dims),
        schedule=" ".join((generated.schedule, *f.variants)),
        llvm_ir=_shown(f, target) if keep_ir else "",
        timings=timings,
    )


def _made(
    spec: KernelSpec, dims: KernelKey, target: str, schedule: str | None, cache: Path | None,
    is_patched: bool = True,
) -> tuple[Function, Generated, MachineCode, Timings]:  # fmt: skip
    """Return a kernel's function, its generator's description, its code with its numbers, and the seconds.
    Raises NumberError if numbers `is_patched` into instructions do not fit."""
    begin = perf_counter()
    f, generated = _generate(spec, dims, target, schedule, is_patched)
    blob, timings = _compiled(f, target, perf_counter() - begin, cache, dims is None)
    code = blob.with_pool([value for _, value in f.pool or ()])
    return f, generated, MachineCode(code, blob.entry, blob.alignment), timings


def _plain(size: Size) -> Size:
    return int(size) if isinstance(size, int) else size


def _plain_work(work: Work) -> Work:
    tiles = tuple((_plain(size), int(divisor)) for size, divisor in work.tiles)
    lines = tuple(row._replace(height=_plain(row.height)) for row in work.lines)
    return Work(tiles, _plain_terms(work.scratch), _plain_terms(work.cost), lines)


def _plain_terms(terms: Terms) -> Terms:
    return tuple((int(factor), tuple(map(_plain, sizes))) for factor, sizes in terms)


def _compiled(
    f: Function, target: str, writing: float, cache: Path | None, is_generic: bool = False
) -> tuple[Blob, Timings]:
    """Return the code of `f`, by LLVM unless the same text was compiled before, and the seconds of its steps
    after those of `writing`. Code of a generic kernel may be in the cache."""
    begin = perf_counter()
    known = _PARTS.known(f, target, cache, is_kept=is_generic and bool(f.pool))
    if f.name in known:
        return known[f.name], Timings(writing + perf_counter() - begin, 0.0, 0.0, 0.0)
    functions = _new(f, known)
    text = _module(module_text(functions), target)
    written = perf_counter()
    with llvm.create_context() as context, llvm.parse_assembly(text, context) as module:
        parsed = perf_counter()
        elf = target_machine(target).emit_object(module)
    emitted = perf_counter()
    blob = _link(elf, functions, target, known, cache, is_generic)
    timings = (writing + written - begin, parsed - written, emitted - parsed, perf_counter() - emitted)
    return blob, Timings(*timings)


def assembly(
    spec: KernelSpec, dims: KernelKey, target: str | None = None, *, schedule: str | None = None
) -> str:
    """Return the assembly text of the kernel that `compile_kernel` would make from the same arguments."""
    _check_dims(spec, dims)
    target = target or host_target()
    text, _ = kernel_text(spec, dims, target, schedule)
    with llvm.create_context() as context, llvm.parse_assembly(text, context) as module:
        return target_machine(target).emit_assembly(module)


def _exact(key: KernelKey) -> tuple[int, ...] | None:
    """Return the sizes of an exact kernel's key."""
    sizes = tuple(size for size in key or () if isinstance(size, int))
    return sizes if key is not None and len(sizes) == len(key) else None


def _ranges(key: KernelKey) -> tuple[SizeRange, ...] | None:
    """Return the ranges of a bucket's key."""
    if key is None or _exact(key) is not None:
        return None
    return tuple(SizeRange(size, size) if isinstance(size, int) else size for size in key)


def _check_dims(spec: KernelSpec, dims: KernelKey) -> None:
    if dims is None:
        return
    if len(dims) != spec.n_dims:
        raise ValueError(f"{spec.family} kernel: {len(dims)} sizes given, its spec has {spec.n_dims}")
    for i, value in enumerate(dims):
        if isinstance(value, SizeRange):
            _check_range(spec, i, value)
        elif value < 0:
            raise ValueError(f"{spec.family} kernel: size n{i} is {value}; sizes are >= 0")


def _check_range(spec: KernelSpec, i: int, r: SizeRange) -> None:
    if r.min < 0 or (r.max is not None and r.max < r.min) or r.multiple_of < 1:
        raise ValueError(
            f"{spec.family} kernel: the range of n{i} is {r}; it must go up from >= 0 in steps of >= 1"
        )
