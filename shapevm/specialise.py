"""Background specialisation: a thread of its own answers a program's requests for exact kernels."""

from __future__ import annotations

import importlib.util
import threading
from typing import TYPE_CHECKING

from .settings import settings
from .vm.errors import ArgumentError

if TYPE_CHECKING:
    from .jit.spec import KernelSpec
    from .jit.store import KernelStore
    from .vm.machine import Machine


def has_compiler() -> bool:
    """Return True where exact kernels can be compiled here: llvmlite is installed."""
    return importlib.util.find_spec("llvmlite") is not None


def open_store(target: str | None = None) -> KernelStore:
    """Return a store of compiled kernels with the cache that the settings say."""
    from .jit.cache import DiskCache
    from .jit.store import KernelStore

    path = settings.cache_path()
    cache = DiskCache(path, settings.cache_mib << 20) if path is not None else None
    return KernelStore(cache, target or settings.target or None)


class Specialiser:
    """Compiles what `machine` asks for, in order, on a thread of its own until it is closed."""

    def __init__(self, machine: Machine, store: KernelStore) -> None:
        self.machine = machine
        self.store = store
        self._specs = {i: kernel.spec for i, kernel in enumerate(machine.kernels)}
        machine.attach_compiler(True)
        self._thread = threading.Thread(target=self._serve, name="shapevm-compiler", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        """Answer requests until no compiler is attached any more."""
        while True:
            try:
                request = self.machine.wait_request(timeout=60.0)
            except ArgumentError:
                return
            if request is not None:
                self._answer(request.kernel, request.dims)

    def _answer(self, kernel: int, dims: tuple[int, ...]) -> None:
        from .jit.spec import from_json

        try:
            record = self.store.record(from_json(self._specs[kernel]), dims)
            self.machine.install(kernel, record)
        except Exception as error:  # noqa: BLE001 (whatever it is, waiting callers must hear of it)
            self.machine.compile_failed(kernel, dims, f"{type(error).__name__}: {error}")

    def close(self) -> None:
        """End the thread; requests that are waiting are dropped."""
        self.machine.attach_compiler(False)
        if threading.current_thread() is not self._thread:
            self._thread.join()
