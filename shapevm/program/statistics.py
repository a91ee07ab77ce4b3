"""What an executable has done so far."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..vm.reports import EntryStats


@dataclass(frozen=True)
class Stats:
    """What an Executable has done so far. `entries`: (kernel index, entry) for every kernel and every shape
    it ran at.

    `calls`: all calls; `replays`: those that replayed a plan; `torch_calls`: calls of PyTorch's kernels and
    other host functions; `plans`: shapes that have a plan now. `compiled`, `from_cache`: kernels compiled,
    and found in the disk cache: exact ones since loading, and those of `shapevm.compile`. `compile_failures`:
    kernels that could not be compiled; `cache_failures`: reads and writes of the kernel cache that failed.
    `code_bytes`: exact code mapped since loading; `arena_bytes`: memory of intermediates that is kept for the
    next call.
    """

    calls: int
    replays: int
    torch_calls: int
    plans: int
    compiled: int
    from_cache: int
    compile_failures: int
    cache_failures: int
    code_bytes: int
    arena_bytes: int
    entries: tuple[tuple[int, EntryStats], ...]

    def since(self, before: Stats) -> Stats:
        """Return the statistics since `before`: differences of counters, and entries that ran since."""
        hits = {
            (kernel, entry.dims): entry.hits for kernel, entry in before.entries
        }  # an entry's first run is no hit
        ran = tuple((k, entry) for k, entry in self.entries if entry.hits > hits.get((k, entry.dims), -1))
        counters = {name: getattr(self, name) - getattr(before, name) for name in _COUNTERS}
        return replace(self, entries=ran, **counters)

    def tier(self) -> str:
        """Return the tier of the entries: "exact", "bucket", "generic", or how many of each ("exact 3,
        generic 2"), or "none" where no kernel has run.
        Kernels whose sizes are all fixed do not count: their only code is exact."""
        if not self.entries:
            return "none"
        tiers = [entry.tier for _, entry in self.entries if entry.dims]
        counts = {tier: tiers.count(tier) for tier in ("exact", "bucket", "generic")}
        found = [tier for tier, n in counts.items() if n]
        if len(found) < 2:
            return found[0] if found else "exact"
        return ", ".join(f"{tier} {counts[tier]}" for tier in found)


_COUNTERS = (
    "calls", "replays", "torch_calls", "compiled", "from_cache", "compile_failures", "cache_failures",
)  # fmt: skip
