"""Counters as OpenMetrics text: the runtime's, and those of compilation."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .executable import Executable

_END = "# EOF\n"


def metrics_text(exe: Executable) -> str:
    """Return a program's counters, as `shapevm-run --metrics` writes them, and what was compiled for it."""
    exe.machine.check_open()
    stats = exe.store.stats if exe.store is not None else None
    rows: tuple[tuple[str, str, float], ...] = (
        ("kernels_compiled", "Kernels compiled in this process.", stats.compiled if stats else 0),
        ("kernels_from_cache", "Kernels found in the disk cache.", stats.from_cache if stats else 0),
        (
            "cache_failures",
            "Reads and writes of the kernel cache that failed.",
            exe.store.cache_failures if exe.store is not None else 0,
        ),
        ("compile_seconds", "Seconds spent compiling.", stats.total_seconds if stats else 0.0),
    )
    text = exe.machine.metrics().removesuffix(_END)
    for name, help_text, value in rows:
        text += f"# TYPE shapevm_{name} counter\n# HELP shapevm_{name} {help_text}\n"
        text += f"shapevm_{name}_total {value}\n"
    return text + _END
