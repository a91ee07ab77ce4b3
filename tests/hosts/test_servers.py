"""shapevm in the workers of real servers and pools: right results at new sizes, kernels compiled, an end that
leaves no process.

`make hosts` installs them into an environment of their own and names its Python in HOSTS_PYTHON; without it
they are skipped.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shapevm
from tests.stress.orphans import MARK, orphans

PYTHON = os.environ.get("HOSTS_PYTHON", "")
APPLICATION = Path(__file__).with_name("application.py")
SECONDS = 60  # that a busy machine may take for what takes one
WAYS = [("jit", signal.SIGTERM), ("auto", signal.SIGINT)]
THREADS = 4
SIZES = [*range(10, 26), *range(10, 26)]
ROUNDS = 20  # of these at least, however long the machine was busy with other things
GUNICORN = ["-m", "gunicorn", "-b", "unix:server", "-w", "2", "--graceful-timeout", "5", "application"]
UWSGI = [
    "--http-socket", "server", "--processes", "2", "--wsgi-file", str(APPLICATION), "--master",
    "--need-app", "--die-on-term", "--py-call-osafterfork",  # docs/serve.md says why
]  # fmt: skip
SERVERS = {
    "gunicorn sync": [*GUNICORN, "-k", "sync"],
    "gunicorn preloaded": [*GUNICORN, "-k", "sync", "--preload"],
    "gunicorn gthread": [*GUNICORN, "-k", "gthread", "--threads", str(THREADS)],
    "gunicorn gevent": [*GUNICORN, "-k", "gevent"],
    "uwsgi": UWSGI,  # forks in C, after loading
    "uwsgi threads": [*UWSGI, "--enable-threads", "--threads", str(THREADS)],
    "uwsgi lazy": [*UWSGI, "--enable-threads", "--lazy-apps"],
}

pytestmark = pytest.mark.skipif(not PYTHON, reason="needs servers: make hosts")


@pytest.fixture(scope="module")
def expected(path: Path) -> Any:
    exe = shapevm.load(path, strategy="generic")

    def hashed(n: int) -> str:
        x = np.sin(np.arange(n * 64, dtype=np.float32)).reshape(n, 64)
        return sha256(np.asarray(exe(x)).tobytes()).hexdigest()

    return hashed


@contextmanager
def started(command: list[str], path: Path, strategy: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a host in a folder of its own; kill what it leaves."""
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    own = {"MODEL": str(path), "STRATEGY": strategy, "PYTHONPATH": str(APPLICATION.parent), MARK: mark}
    own |= {"SHAPEVM_CACHE_DIR": str(folder / "cache"), "SHAPEVM_COMPILE_BUDGET": "1000"}
    with open(folder / "log", "w") as log:
        host = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **own}, stdout=subprocess.PIPE, stderr=log, text=True
        )
    host.mark = mark  # type: ignore[attr-defined]
    limit = threading.Timer(4 * SECONDS, host.kill)
    limit.start()
    try:
        yield host
    finally:
        limit.cancel()
        host.kill()
        for pid in orphans(mark):
            os.kill(pid, signal.SIGKILL)
        host.communicate()


def ask(folder: Path, n: int) -> dict[str, Any]:
    """Ask a server for n rows. Raises OSError where it does not answer."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(SECONDS)
        link.connect(str(folder / "server"))
        link.sendall(b"GET /%d HTTP/1.0\r\n\r\n" % n)
        text = b"".join(iter(lambda: link.recv(1 << 16), b""))
    head, _, body = text.partition(b"\r\n\r\n")
    assert b" 200 " in head.split(b"\r\n")[0], (folder / "log").read_text()
    return json.loads(body)


def ask_first(host: subprocess.Popen[str], folder: Path) -> None:
    """Wait until a server answers."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and host.poll() is None:
        try:
            ask(folder, 3)
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError((folder / "log").read_text())


def check(answers: list[dict[str, Any]], expected: Any, strategy: str) -> None:
    assert [each["digests"] for each in answers] == [[expected(each["n"])] for each in answers]
    assert not any(each["failures"] for each in answers)
    assert has_compiled(answers, strategy)


def pids(answers: list[dict[str, Any]]) -> set[int]:
    return {each["pid"] for each in answers}


def has_compiled(answers: list[dict[str, Any]], strategy: str) -> bool:
    """Whether what should has exact code, or a process that compiles it."""
    if strategy == "jit":
        return all(each["exact"] for each in answers)
    return any(each["helper"] for each in answers) and any(each["exact"] for each in answers)


def end(host: subprocess.Popen[str], number: signal.Signals, folder: Path) -> None:
    """End a host by a signal: it and all of its processes go."""
    host.send_signal(number)
    host.wait(SECONDS)
    limit = time.monotonic() + SECONDS  # billiard's workers wait 30 s for a parent that is gone
    while (left := orphans(host.mark)) and time.monotonic() < limit:  # type: ignore[attr-defined]
        time.sleep(0.1)
    assert not left, [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in left]
    log = (folder / "log").read_text()
    assert not any(word in log for word in ("Fatal", "core dumped", "Segmentation")), log


@pytest.mark.parametrize(("strategy", "number"), WAYS, ids=lambda value: getattr(value, "name", value))
@pytest.mark.parametrize("server", SERVERS)
def test_a_server(
    server: str, strategy: str, number: signal.Signals, path: Path, expected: Any, tmp_path: Path
) -> None:
    command = [str(Path(PYTHON).parent / "uwsgi") if "uwsgi" in server else PYTHON, *SERVERS[server]]
    with started(command, path, strategy, tmp_path) as host:
        ask_first(host, tmp_path)
        with ThreadPoolExecutor(2 * THREADS) as clients:  # more than the threads of a worker
            found = list(clients.map(lambda n: ask(tmp_path, n), SIZES))
            limit = time.monotonic() + 2 * SECONDS
            while not (has_compiled(found, strategy) and len(pids(found)) == 2):
                if time.monotonic() > limit and len(found) > ROUNDS * len(SIZES):
                    break
                time.sleep(0.1)
                found += clients.map(lambda n: ask(tmp_path, n), SIZES)
        check(found, expected, strategy)
        assert len(pids(found)) == 2
        end(host, number, tmp_path)


@pytest.mark.parametrize(("strategy", "number"), WAYS, ids=lambda value: getattr(value, "name", value))
@pytest.mark.parametrize("form", ["gevent", "eventlet", "billiard"])
def test_a_program(
    form: str, strategy: str, number: signal.Signals, path: Path, expected: Any, tmp_path: Path
) -> None:
    with started([PYTHON, str(APPLICATION), form], path, strategy, tmp_path) as host:
        assert host.stdout is not None
        found: list[dict[str, Any]] = []
        while len(found) < 10 or not has_compiled(found, strategy):
            line = host.stdout.readline()
            assert line, (tmp_path / "log").read_text()
            found.append(json.loads(line))
        check(found, expected, strategy)
        if form == "billiard":
            assert len({each["pid"] for each in found} | {host.pid}) == 3
        else:  # a thread that blocks in C would stop them for 30 s
            assert found[-1]["beats"] > 20 and found[-1]["gap"] < 10
        end(host, number, tmp_path)
