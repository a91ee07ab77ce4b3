"""Counters as OpenMetrics text: the runtime's, and those of compilation; and a collector for
`prometheus_client`.

    from prometheus_client import REGISTRY
    REGISTRY.register(shapevm.PrometheusCollector(exe))
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .argument_check import check_programs
from .vm.errors import ArgumentError

if TYPE_CHECKING:
    from .executable import Executable

_END = "# EOF\n"


def metrics_text(exe: Executable, model: str) -> str:
    """Return a program's counters, as `shapevm-run --metrics` writes them, and what was compiled for it."""
    exe.machine.time_calls()
    store = exe.specialisation.opened_store
    stats = store.stats if store is not None else None
    rows: tuple[tuple[str, str, float], ...] = (
        ("kernels_compiled", "Kernels compiled in this process.", stats.compiled if stats else 0),
        ("kernels_from_cache", "Kernels found in the disk cache.", stats.from_cache if stats else 0),
        (
            "cache_failures",
            "Reads and writes of the kernel cache that failed.",
            store.cache_failures if store is not None else 0,
        ),
        ("compile_seconds", "Seconds spent compiling.", stats.total_seconds if stats else 0.0),
    )
    text, label = exe.machine.metrics(model).removesuffix(_END), _quoted(model)
    for name, help_text, value in rows:
        text += f"# TYPE shapevm_{name} counter\n# HELP shapevm_{name} {help_text}\n"
        text += f"shapevm_{name}_total{{model={label}}} {value}\n"
    return text + _END


def _quoted(text: str) -> str:
    escaped = text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'"{escaped}"'


class PrometheusCollector:
    """Collects the metrics of some programs, or of all that are open, for `prometheus_client` (package
    `shapevm[metrics]`): register it with a registry. Programs of one name get the labels NAME, NAME-2, ...

    Raises ArgumentError where prometheus_client is not installed, and for what is no program.
    """

    def __init__(self, *executables: Executable) -> None:
        try:
            from prometheus_client.openmetrics.parser import text_string_to_metric_families
        except ImportError:
            raise ArgumentError(
                "prometheus_client is not installed: pip install 'shapevm[metrics]'"
            ) from None
        check_programs(executables)
        self._parse = text_string_to_metric_families
        self._only = executables
        for exe in executables:
            exe.machine.time_calls()

    def collect(self) -> Iterator[Any]:
        """Yield the families of metrics, each with the samples of all programs."""
        from .executable import OPEN

        families: dict[str, Any] = {}
        used: Counter[str] = Counter()
        for exe in self._only or sorted(OPEN, key=lambda exe: exe.name):
            if not exe.machine.is_open:
                continue
            used[exe.name] += 1
            model = exe.name if used[exe.name] == 1 else f"{exe.name}-{used[exe.name]}"
            for family in self._parse(exe.metrics(model)):
                if family.name in families:
                    families[family.name].samples += family.samples
                else:
                    families[family.name] = family
        yield from families.values()
