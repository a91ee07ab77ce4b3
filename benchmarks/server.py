"""A server's capacity, and its latencies under open-loop load, beside other servers.

python benchmarks/server.py [MODEL.svm] [--seconds 10] [--peer NAME=COMMAND]...

MODEL.svm is an encoder of texts, by default MiniLM. COMMAND starts a server with POST /v1/embeddings at
{port}, for example `--peer "sentence-transformers=python benchmarks/peer_server.py FOLDER {port}"` or
`--peer "infinity=infinity_emb v2 --model-id FOLDER --device cpu --port {port} --url-prefix /v1"`.

The capacity is measured with 1, 8 and 64 clients that never pause. Then as many clients together send
requests at 80 % of the greatest capacity, at random times that do not depend on the answers: a latency counts
from the time at which its request was due. The service time is that of one client that never pauses.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
from measure import median, percentile
from rich.console import Console
from rich.table import Table
from text_models import corpus_texts, minilm

import shapevm

CLIENTS, SHARE = (1, 8, 64), 0.8
SHAPEVM = f"{sys.executable} -m shapevm serve {{model}} --port {{port}}"


@contextmanager
def server(command: str, model: Path) -> Iterator[str]:
    """Run a server at a free port; give its URL once it is ready."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = command.format(model=model, port=port)
    process = subprocess.Popen(
        shlex.split(command), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
    )
    url = f"http://127.0.0.1:{port}"
    try:
        while True:
            assert process.poll() is None, f"the server ended: {command}"
            try:
                httpx2.get(f"{url}/health", timeout=60)
                break
            except httpx2.TransportError:
                time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait()


async def ask(client: httpx2.AsyncClient, text: str) -> None:
    given = {"input": text, "encoding_format": "base64"}
    answer = await client.post("/v1/embeddings", json=given)
    assert answer.status_code == 200, answer.text


def client(url: str) -> httpx2.AsyncClient:
    """Return a client with a connection for each request that waits, kept for the next ones."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    return httpx2.AsyncClient(base_url=url, timeout=60, limits=limits, verify=False)


async def closed_loop(url: str, n_clients: int, seconds: float) -> list[float]:
    """Return the milliseconds of the requests of clients that never pause, answered in so many seconds."""
    given, found = corpus_texts(1000), []

    async def work(index: int) -> None:
        source = random.Random(index)
        while (start := time.monotonic()) < end:
            await ask(shared, source.choice(given))
            if (now := time.monotonic()) < end:
                found.append((now - start) * 1e3)

    async with client(url) as shared:
        end = time.monotonic() + seconds
        await asyncio.gather(*map(work, range(n_clients)))
    return found


async def open_loop(url: str, n_clients: int, rate: float, seconds: float) -> list[float]:
    """Return the milliseconds of requests that clients send at a rate in all."""
    given, found = corpus_texts(1000), []

    async def timed(text: str, due: float) -> None:
        await ask(shared, text)
        found.append((time.monotonic() - due) * 1e3)

    async def work(index: int) -> None:
        source, tasks, due = random.Random(index), [], begun
        while (due := due + source.expovariate(rate / n_clients)) < begun + seconds:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            tasks.append(asyncio.create_task(timed(source.choice(given), due)))
        await asyncio.gather(*tasks)

    async with client(url) as shared:
        begun = time.monotonic()
        await asyncio.gather(*map(work, range(n_clients)))
    return found


def measured(name: str, url: str, seconds: float) -> Table:
    """Return a server's table."""
    asyncio.run(closed_loop(url, CLIENTS[-1], seconds / 2))  # kernels are compiled
    closed = {n: asyncio.run(closed_loop(url, n, seconds)) for n in CLIENTS}
    most, service = max(map(len, closed.values())) / seconds, median(closed[1])
    table = Table(
        "clients", "requests/s", "at 80 %: ms, median", "p99", "p99 by service time",
        title=f"{name}: capacity {most:.0f} requests/s, service time {service:.1f} ms (p99 "
        f"{percentile(closed[1], 0.99):.1f})",
    )  # fmt: skip
    for n in CLIENTS:
        times = asyncio.run(open_loop(url, n, SHARE * most, seconds))
        p99 = percentile(times, 0.99)
        row = len(closed[n]) / seconds, median(times), p99
        table.add_row(str(n), *(f"{figure:.1f}" for figure in row), f"{p99 / service:.1f}")
    return table


def main() -> None:
    """Print a table for each server."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--options", default="", help="further options of shapevm serve")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = given.model or Path(folder) / "minilm.svm"
        if not model.exists():
            shapevm.SentenceEncoder(minilm()).save(model)
        servers = [f"shapevm={SHAPEVM} {given.options}", *given.peer]
        for name, _, command in (each.partition("=") for each in servers):
            with server(command, model) as url:
                Console(width=80).print(measured(name, url, given.seconds))


if __name__ == "__main__":
    main()
