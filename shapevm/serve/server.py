"""The process of a server: sockets, signals, and its orderly end."""

from __future__ import annotations

import gc
import signal
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from .app import application
from .logs import LOG
from .memory import trimming
from .models import Service

if TYPE_CHECKING:
    from .limits import Limits

_KEEP_ALIVE = 75  # seconds that an idle connection stays open: longer than load balancers keep theirs


@dataclass(frozen=True)
class Address:
    """Where a server listens: a host and port, or a Unix socket."""

    host: str = "127.0.0.1"
    port: int = 8000
    uds: Path | None = None


class _Server(uvicorn.Server):
    """A server that fails its health checks once it ends."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end, at a signal; a second Ctrl-C ends at once."""
        self._service.is_draining = True
        super().handle_exit(sig, frame)


def _config(service: Service, address: Address, limits: Limits) -> uvicorn.Config:
    return uvicorn.Config(
        application(service),
        host=address.host,
        port=address.port,
        uds=None if address.uds is None else str(address.uds),
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=limits.drain,
    )


def serve(service: Service, address: Address) -> None:
    """Serve until SIGTERM or Ctrl-C; then accept no more, let the running requests end for `Limits.drain`
    seconds, cancel the rest, and return. The service is closed."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # uvicorn raises the signals again when it has ended
    server = _Server(_config(service, address, service.limits), service)
    gc.collect()
    gc.freeze()  # what exists by now stays: a collection that goes through it would hold up requests
    LOG.info("serving %s", service.name)
    try:
        with trimming():
            server.run()
    finally:
        service.close()
    LOG.info("ended")
