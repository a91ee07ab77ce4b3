"""The costs of a kernel's code: bytes, and nanoseconds at given sizes.

A kernel's time is its work (flops or bytes, as its code object counts it) times a factor for each tier, which
is measured by running samples on made-up data or else taken from FACTORS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..calls.profiles import Sizes
from ..vm.errors import ArgumentError
from ..vm.objects import serialise_object
from ..vm.program import KernelObject, Program
from ..vm.sizes import kernel_keys, launches
from ..vm.work import LAUNCH_NS, UNIT_NS
from .buckets import Cell

if TYPE_CHECKING:
    from ..jit.store import KernelStore

EXACT, BUCKET, GENERIC = "exact", "bucket", "generic"
FACTORS = {EXACT: 1.0, BUCKET: 1.08, GENERIC: 1.15}  # relative times, if nothing was measured


@dataclass
class KernelModel:
    """The costs of one kernel's code: bytes by tier, and nanoseconds = (launch + cost * unit) * factor."""

    cost: Callable[[Sizes], int]
    n_bytes: dict[str, int]
    factors: dict[str, float] = field(default_factory=lambda: dict(FACTORS))
    unit_ns: float = UNIT_NS

    def ns(self, tier: str, dims: Sizes) -> float:
        """Return the expected nanoseconds of a launch."""
        return (LAUNCH_NS + self.cost(dims) * self.unit_ns) * self.factors[tier]

    def fit(self, ns: Mapping[str, float], n_launches: int, work: int) -> None:
        """Set factors and unit from the nanoseconds measured by tier for `n_launches` launches of total
        `work`."""
        least = max(min(ns.values()), 1.0)  # exact code is not slower than other code: a lower time is noise
        self.factors = {EXACT: 1.0} | {tier: max(ns[tier], least) / least for tier in ns if tier != EXACT}
        self.unit_ns = max(least - LAUNCH_NS * n_launches, 0.0) / work if work else 0.0


def own_generic(objects: Sequence[KernelObject]) -> KernelObject:
    """Return the generic object for the best target that runs here. Raises ArgumentError if there is none."""
    from ..jit.llvm.target import TARGETS, runs_here

    order = list(TARGETS)
    found = [o for o in objects if o.key is None and runs_here(o.target)]
    if not found:
        raise ArgumentError(
            "bake: the artifact has no generic code for this CPU; bake it where it was compiled"
        )
    return min(found, key=lambda o: order.index(o.target))


def models_of(
    program: Program, store: KernelStore, samples: Sequence[Sizes], whole: Cell, measure: bool
) -> dict[int, KernelModel]:
    """Return the model of each kernel whose dims depend on sizes, from code for `samples` (tuples of sizes)
    and for the ranges of `whole`.
    """
    from ..jit.spec_reader import from_json
    from ..vm.work import work_of

    names = [s.name for s in program.symbols]
    at = [dict(launches(program, dict(zip(names, values, strict=True)))) for values in samples]
    models = {}
    for kernel, key in kernel_keys(program, whole, list(whole)):
        if kernel in models or kernel not in at[0]:
            continue
        spec, generic = from_json(program.kernels[kernel].spec), own_generic(program.kernels[kernel].objects)
        found = {tuple(sizes[kernel]): store.object(spec, tuple(sizes[kernel])) for sizes in at}
        bucket = store.object(spec, key)
        exact_bytes = max(len(serialise_object(o)) for o in found.values())
        n_bytes = {EXACT: exact_bytes, BUCKET: len(serialise_object(bucket)), GENERIC: 0}
        models[kernel] = KernelModel(work_of(generic), n_bytes)
        if measure:
            _fit(models[kernel], generic, bucket, found)
    return models


def _fit(
    model: KernelModel, generic: KernelObject, bucket: KernelObject, exact: Mapping[Sizes, KernelObject]
) -> None:
    """Measure code of all tiers at some sizes and set the model's factors and unit."""
    from ..jit.measure.objects import Scratch, measured_ns

    scratch = Scratch()
    total = dict.fromkeys((EXACT, BUCKET, GENERIC), 0.0)
    work = 0
    for dims, own in exact.items():
        for tier, o in (
            (EXACT, own),
            (BUCKET, bucket if _fits(bucket, dims) else generic),
            (GENERIC, generic),
        ):
            total[tier] += measured_ns(o, dims, scratch)
        work += model.cost(dims)
    total[BUCKET] = min(total[BUCKET], total[GENERIC])
    model.fit(total, len(exact), work)


def _fits(o: KernelObject, dims: Sizes) -> bool:
    return o.ranges is None or all(size in r for size, r in zip(dims, o.ranges, strict=True))
