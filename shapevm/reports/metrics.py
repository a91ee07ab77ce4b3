"""Counters as OpenMetrics text: the runtime's, and those of compilation; and a collector for
`prometheus_client`.

    from prometheus_client import REGISTRY
    REGISTRY.register(shapevm.PrometheusCollector(exe))
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..calls.checks import check_programs
from ..calls.opened import Opened, opened_programs
from ..vm.errors import ArgumentError
from ..vm.handle import ProgramClosed

if TYPE_CHECKING:
    from .subject import Subject

_END = "# EOF\n"


def metrics_text(exe: Subject, model: str) -> str:
    """Return a program's counters, in the form of `shapevm-run --metrics`, and its compilation counters."""
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

    Raises ArgumentError if prometheus_client is not installed, or if an argument is not a program.
    """

    def __init__(self, *executables: Opened) -> None:
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
        families: dict[str, Any] = {}
        used: Counter[str] = Counter()
        for exe in self._only or sorted(opened_programs(), key=lambda exe: exe.name):
            n = used[exe.name] + 1
            try:
                text = exe.metrics(exe.name if n == 1 else f"{exe.name}-{n}")
            except ProgramClosed:
                continue
            used[exe.name] = n
            for family in self._parse(text):
                if family.name in families:
                    families[family.name].samples += family.samples
                else:
                    families[family.name] = family
        yield from families.values()
