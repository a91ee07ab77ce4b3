"""`shapevm serve` as a process: its options, its log, its memory, and its end by signals."""

import asyncio
import json
import mmap
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
import uvicorn
from shapevm.vm.artifact import to_bytes
from shapevm.vm.assembler import assemble

import shapevm
from shapevm.serve.limits import Limits
from shapevm.serve.models import Service
from shapevm.serve.server import serve

#: A program of a list.
LIST = 'input "k": list\noutput "y"\nfunction "main" (1 params, 1 results)\n  return (r0)\n'
INFER = "/v2/models/forever/infer"


def number(k):
    return {"inputs": [{"name": "k", "shape": [1], "datatype": "INT64", "data": [k]}]}


@pytest.fixture
def path(tmp_path, forever):
    (tmp_path / "forever.svm").write_bytes(to_bytes(assemble(forever)))
    return tmp_path / "forever.svm"


@contextmanager
def started(path, *options):
    """Run the command; give the process, a client of it, and its log."""
    log = path.parent / "log"
    command = [sys.executable, "-m", "shapevm", "serve", path, "--log", "json", *map(str, options)]
    with open(log, "w") as file:
        server = subprocess.Popen(command, stderr=file, stdout=file)
    try:
        uds = path.parent / "socket" if "--uds" in options else None
        url = "http://localhost" if uds else f"http://127.0.0.1:{_port(log, server)}"
        with httpx2.Client(
            base_url=url, transport=httpx2.HTTPTransport(uds=uds and str(uds)), timeout=60
        ) as client:
            _until_ready(client, server, log)
            yield server, client, log
    finally:
        server.kill()
        server.wait()


def _port(log, server):
    limit = time.monotonic() + 60
    while not (found := re.search(r"running on http://127.0.0.1:(\d+)", log.read_text())):
        assert server.poll() is None and time.monotonic() < limit, log.read_text()
        time.sleep(0.02)
    return found[1]


def _until_ready(client, server, log):
    limit = time.monotonic() + 60
    while True:
        assert server.poll() is None and time.monotonic() < limit, log.read_text()
        try:
            assert client.get("/v2/health/ready").status_code == 200
            return
        except httpx2.TransportError:
            time.sleep(0.02)


@pytest.mark.parametrize("number_", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_requests_end(path, number_):
    """Under load each request is answered or its connection refused, none is lost."""
    answers, refused, ending = [], [], threading.Event()

    def ask(client):
        while True:
            begun = not ending.is_set()
            try:
                answers.append(client.post(INFER, json=number(1)).status_code)
            except httpx2.ConnectError as error:
                refused.append(error)
                return
            except httpx2.TransportError as error:  # a connection that was idle as the server closed it
                assert not begun or ending.is_set(), error
                return

    with started(path, "--uds", path.parent / "socket") as (server, client, log):
        clients = ThreadPoolExecutor(4)
        asked = [clients.submit(ask, client) for _ in range(4)]
        while len(answers) < 50:
            time.sleep(0.01)
        ending.set()
        server.send_signal(number_)
        assert server.wait(60) == 0, log.read_text()
        for each in asked:
            each.result(60)
        clients.shutdown()
    assert set(answers) == {200}
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert lines[-1]["message"] == "ended" and not any("traceback" in line for line in lines)


def test_what_does_not_end_is_cancelled(path):
    with started(path, "--port", 0, "--drain", 1) as (server, client, log):
        clients = ThreadPoolExecutor(1)
        endless = clients.submit(client.post, INFER, json=number(0))
        while "shapevm_server_running 1.0" not in httpx2.get(client.base_url.join("/metrics")).text:
            time.sleep(0.01)
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0, log.read_text()
        assert endless.result(60).status_code == 503
        assert endless.result().json() == {"error": "the server ended before the request did"}
        clients.shutdown()


def test_a_socket_that_is_taken(path):
    with started(path, "--port", 0) as (server, client, log):
        command = [sys.executable, "-m", "shapevm", "serve", path, "--port", str(client.base_url.port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 3 and "address already in use" in done.stderr


@pytest.mark.parametrize(
    ("text", "options", "code", "part"),
    [
        (LIST, [], 5, "does not transport"),
        ("", ["--max-texts", "0"], 2, "is not in the range"),
        ("", ["--name", "a/b"], 2, "a/b"),
        ("", ["--digest", "0" * 64], 3, "SHA-256"),
    ],
)  # fmt: skip
def test_what_is_not_served(path, text, options, code, part):
    if text:
        path.write_bytes(to_bytes(assemble(text)))
    command = [sys.executable, "-m", "shapevm", "serve", path, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == code and part in done.stderr, done.stderr


def test_without_its_packages(path):
    code = "import sys; sys.modules['uvicorn'] = None; from shapevm.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "serve", path],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ},
    )
    assert done.returncode == 5 and "pip install 'shapevm[serve]'" in done.stderr


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
def test_gaps_between_what_stays_are_returned(path, monkeypatch):
    """Within what the server calls every 20 seconds."""
    configs = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda server: configs.append(server.config))
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    serve(Service(shapevm.load(path), "forever", Limits()), "127.0.0.1", 0, None)
    blocks = [bytearray(16 << 10) for _ in range(4096)]  # smaller than those that are mapped one by one
    kept, blocks = blocks[::8], None
    before = resident()
    assert configs[0].timeout_notify == 20
    asyncio.run(configs[0].callback_notify())
    assert resident() < before - (32 << 20) and len(kept) == 512
