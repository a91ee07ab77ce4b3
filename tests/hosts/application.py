"""What hosts run: a WSGI application, and programs of this module's name.

`/ROWS` calls the artifact MODEL on that many rows and answers who did it, the result's hash and what was
compiled. `python application.py gevent|eventlet|billiard` prints such answers, one a
line, until a signal ends it.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import count, takewhile
from typing import Any

FORM = sys.argv[1] if __name__ == "__main__" else ""
if FORM == "gevent":
    from gevent import monkey

    monkey.patch_all()
elif FORM == "eventlet":
    import eventlet

    eventlet.monkey_patch()

import numpy as np  # noqa: E402

import shapevm  # noqa: E402
from shapevm.specialise import kernel_requests, profitability, worker  # noqa: E402

profitability.START_SECONDS = profitability.ASK_NS = 0  # type: ignore[assignment]
profitability.Gains.pays_after = lambda self, kernel, dims: 2  # type: ignore[method-assign]
profitability.KernelGain.declined_from = 0  # type: ignore[assignment]
# At the lowest priority the process that compiles gets no time while the tests keep the machine busy.
worker._PROGRAM = worker._PROGRAM.replace("if {is_background}:", "if False:")

EXE = shapevm.load(os.environ["MODEL"], strategy=os.environ["STRATEGY"])
EXE(np.ones((5, 64), np.float32))  # in the parent of workers
# uWSGI forks while this thread has released the GIL: no other may have it.
assert EXE.specialisation.wait(120)
BEATS = [time.monotonic()]


def rows(n: int) -> np.ndarray:
    """Return an input of so many rows."""
    return np.sin(np.arange(n * 64, dtype=np.float32)).reshape(n, 64)


def digest(result: Any) -> str:
    """Return the hash of a result's bits."""
    return hashlib.sha256(np.asarray(result).tobytes()).hexdigest()


def answer(n: int) -> dict[str, Any]:
    """Call the artifact on n rows, more than once under `auto`, which compiles what comes again."""
    x = rows(n)
    known = [digest(EXE(x)) for _ in range(4)]
    stats = EXE.stats()
    return {
        "n": n, "pid": os.getpid(), "digests": sorted(set(known)), "helper": kernel_requests.PROCESS.pid,
        "exact": stats.compiled + stats.from_cache, "failures": stats.compile_failures,
    }  # fmt: skip


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer a request, and keep this worker from the next ones meanwhile, so that the other gets some."""
    signal.sigtimedwait([], 0.05)  # sleeps also where time.sleep would run another coroutine
    body = json.dumps(answer(int(environ["PATH_INFO"].strip("/")))).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]


def _beat() -> None:
    while True:
        BEATS.append(time.monotonic())
        time.sleep(0.02)


def _in_coroutines() -> Iterator[dict[str, Any]]:
    threading.Thread(target=_beat, daemon=True).start()  # a coroutine, as threads are here
    for n in count(20):
        yield answer(n) | {"gap": max(np.diff(BEATS), default=0.0), "beats": len(BEATS)}
        time.sleep(0.1)


def _in_processes() -> Iterator[dict[str, Any]]:
    import billiard

    ended: list[int] = []
    with billiard.get_context("fork").Pool(2) as pool:
        # An exception anywhere within billiard might leave its locks taken: the pool ends between two maps.
        signal.signal(signal.SIGINT, lambda number, _: ended.append(number))
        for n in takewhile(lambda _: not ended, count(20, 4)):
            yield from pool.map(answer, range(n, n + 4), chunksize=1)
        pool.close()
        pool.join()


def main() -> None:
    """Answer for ever new sizes, in coroutines or by a pool's processes, until the program is ended."""
    with suppress(KeyboardInterrupt):
        for found in _in_processes() if FORM == "billiard" else _in_coroutines():
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
