"""The server's metrics, and those of its program, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder

from .. import Executable, PrometheusCollector

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_TOKENS = tuple(1 << bits for bits in range(4, 16))


class Metrics:
    """Counters of requests and batches in a registry, with the program's own."""

    def __init__(self, exe: Executable, running: Callable[[], int]) -> None:
        """`running`: returns the number of requests that wait or run."""
        self._registry = registry = CollectorRegistry()
        registry.register(PrometheusCollector(exe))
        labels = ("route", "status")
        self._requests = Counter("shapevm_server_requests", "Answered requests.", labels, registry=registry)
        self._seconds = Histogram(
            "shapevm_server_seconds", "Seconds from a request to its answer.", ("route",), buckets=_SECONDS,
            registry=registry,
        )  # fmt: skip
        self._items = Histogram(
            "shapevm_server_batch_items", "Items of a batch.", buckets=_ITEMS, registry=registry
        )
        self._tokens = Histogram(
            "shapevm_server_batch_tokens", "Tokens of a batch.", buckets=_TOKENS, registry=registry
        )
        Gauge("shapevm_server_running", "Requests that wait or run.", registry=registry).set_function(running)

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count a request. `route`: the path of its row, not what the client sent."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def batch(self, items: int, tokens: int) -> None:
        """Count a batch."""
        self._items.observe(items)
        self._tokens.observe(tokens)

    def text(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics in the form that a client accepts, and its media type."""
        encode, media_type = choose_encoder(accept)
        return encode(self._registry), media_type
