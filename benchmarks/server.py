"""A server's capacity, and its latencies under open-loop load, beside queueing theory and other servers.

python benchmarks/server.py [MODEL.svm] [--seconds 10] [--tokens N] [--peer NAME=COMMAND]...

MODEL.svm is an encoder of texts, by default MiniLM. COMMAND starts a server with POST /v1/embeddings at
{port}, for example `--peer "sentence-transformers=python benchmarks/peer_server.py FOLDER {port}"` or
`--peer "infinity=infinity_emb v2 --model-id FOLDER --device cpu --port {port} --url-prefix /v1"`.

The capacity is measured with 1, 8 and 64 clients that never pause. Then as many clients together send
requests at 80 % of the greatest capacity, at random times that do not depend on the answers: a latency counts
from the time at which its request was due. The service time is that of one client that never pauses.

Theory: the same texts arrive at the same times at one queue that answers in order, does nothing else, and
takes for each text its share of 1 / capacity (the time that the text took alone, by the mean of these). The
least p99 is that of the best order of them in this queue, even of one that knows which texts will come.
`--tokens N` sends texts of N tokens only: their service times are all alike. The clients are one process that
sends bytes prepared before; it shares the server's cores, and its share of a core is shown, as are those of
the processes that the server has started (they compile kernels) and of all other programs of the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
from measure import median, percentile
from rich.console import Console
from rich.table import Table
from text_models import corpus, corpus_texts, minilm, tokenizer

import shapevm

CLIENTS, SHARE = (1, 8, 64), 0.8
SHAPEVM = f"{sys.executable} -m shapevm serve {{model}} --port {{port}}"
HEAD = b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@contextmanager
def server(command: str, model: Path) -> Iterator[tuple[int, int]]:
    """Run a server at a free port; give the port and its process once it is ready."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    command = command.format(model=model, port=port)
    process = subprocess.Popen(
        shlex.split(command), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        while True:
            assert process.poll() is None, f"the server ended: {command}"
            try:
                httpx2.get(f"http://127.0.0.1:{port}/health", timeout=60)
                break
            except httpx2.TransportError:
                time.sleep(0.05)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


class Clients:
    """Connections to a server: as many as requests wait, kept for the next ones."""

    def __init__(self, port: int) -> None:
        self._port, self._free = port, list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]()

    async def ask(self, request: bytes) -> None:
        """Send a request and read its answer, which must have status 200."""
        connection = self._free.pop() if self._free else None
        reader, writer = connection or await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert head.startswith(b"http/1.1 200"), head
        await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0]))
        self._free.append((reader, writer))

    def close(self) -> None:
        for _, writer in self._free:
            writer.close()


def requests(texts: Sequence[str]) -> list[bytes]:
    """Return each text as a request."""
    bodies = [json.dumps({"input": text, "encoding_format": "base64"}).encode() for text in texts]
    return [b"%sContent-Length: %d\r\n\r\n%s" % (HEAD, len(body), body) for body in bodies]


async def closed_loop(
    port: int, given: Sequence[bytes], n_clients: int, seconds: float
) -> list[tuple[bytes, float]]:
    """Return each request of clients that never pause, answered within `seconds`, and its milliseconds."""
    found, clients = [], Clients(port)

    async def work(index: int) -> None:
        source = random.Random(index)
        while (start := time.monotonic()) < end:
            await clients.ask(request := source.choice(given))
            if (now := time.monotonic()) < end:
                found.append((request, (now - start) * 1e3))

    end = time.monotonic() + seconds
    await asyncio.gather(*map(work, range(n_clients)))
    clients.close()
    return found


def arrivals(
    given: Sequence[bytes], n_clients: int, rate: float, seconds: float
) -> list[tuple[float, bytes]]:
    """Return when each of the clients' requests is due, and the request."""
    found = []
    for source in map(random.Random, range(n_clients)):
        due = 0.0
        while (due := due + source.expovariate(rate / n_clients)) < seconds:
            found.append((due, source.choice(given)))
    return sorted(found)


async def open_loop(port: int, due: Sequence[tuple[float, bytes]]) -> list[float]:
    """Return the milliseconds of requests, each from the time at which it was due to its answer."""
    found, tasks, clients = [], [], Clients(port)

    async def timed(request: bytes, at: float) -> None:
        await clients.ask(request)
        found.append((time.monotonic() - at) * 1e3)

    begun = time.monotonic()
    for at, request in due:
        await asyncio.sleep(max(0.0, begun + at - time.monotonic()))
        tasks.append(asyncio.create_task(timed(request, begun + at)))
    await asyncio.gather(*tasks)
    clients.close()
    return found


def theory(due: Sequence[tuple[float, bytes]], service: Mapping[bytes, float]) -> list[float]:
    """Return the milliseconds of the same requests in one queue, by their milliseconds of service."""
    found, free = [], 0.0
    for at, request in due:
        free = max(free, at * 1e3) + service[request]
        found.append(free - at * 1e3)
    return found


def n_late(due: Sequence[tuple[float, bytes]], service: Mapping[bytes, float], most: float) -> int:
    """Return how many requests of one queue take longer than so many milliseconds, in the order in which the
    fewest do: in that of their arrival, without those that must be late. Where a request would be late, the
    one whose absence lets it end first is left out, which is optimal (Kise, Ibaraki and Mine, 1978)."""
    found, free = 0, 0.0
    busy = list[tuple[float, float, float]]()  # arrival, milliseconds, start; since the queue was empty
    for at, request in due:
        arrived, taken = at * 1e3, service[request]
        busy = busy if arrived < free else []
        busy.append((arrived, taken, max(free, arrived)))
        free = busy[-1][2] + taken
        if free <= arrived + most:
            continue
        gains, gap = list[float](), float("inf")
        for came, takes, start in reversed(busy):
            gains.append(min(takes, gap))  # later ones begin sooner without it, but not before they come
            gap = min(gap, start - came)
        left_out = len(busy) - 1 - max(range(len(gains)), key=gains.__getitem__)
        rest, free, found = busy[left_out:], busy[left_out][2], found + 1
        del busy[left_out:]
        for came, takes, _ in rest[1:]:
            busy.append((came, takes, max(free, came)))
            free = busy[-1][2] + takes
    return found


def least_p99(due: Sequence[tuple[float, bytes]], service: Mapping[bytes, float]) -> float:
    """Return the milliseconds within which all requests but 1 % can be answered by one queue."""
    low, high = 0.0, max(theory(due, service))
    while high - low > 0.1:
        middle = (low + high) / 2
        is_enough = n_late(due, service, middle) <= len(due) / 100
        low, high = (low, middle) if is_enough else (middle, high)
    return high


def services(alone: Sequence[tuple[bytes, float]], given: Sequence[bytes], rate: float) -> dict[bytes, float]:
    """Return the milliseconds that each request takes of a queue with this capacity. A request that was not
    measured takes those of the one nearest in length."""
    times: dict[bytes, list[float]] = {}
    for request, milliseconds in alone:
        times.setdefault(request, []).append(milliseconds)
    own = {request: median(found) for request, found in times.items()}
    for request in given:
        near = min(times, key=lambda other: abs(len(other) - len(request)))
        own.setdefault(request, own[near])
    scale = 1e3 / rate / (sum(own[request] for request in given) / len(given))
    return {request: scale * milliseconds for request, milliseconds in own.items()}


def seconds_of(session: int) -> dict[str, float]:
    """Return the time, and seconds of processor time: of these clients, the first process of a session (the
    server), the rest of the session, and all other programs."""
    tick = os.sysconf("SC_CLK_TCK")
    found = {"clients": time.process_time(), "server": 0.0, "server's children": 0.0}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = status.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                name = "server" if int(status.parent.name) == session else "server's children"
                found[name] += sum(map(int, fields[11:13])) / tick
    user, nice, system, _, _, irq, softirq, steal = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    found["others"] = (user + nice + system + irq + softirq + steal) / tick - sum(found.values())
    return {"time": time.monotonic(), **found}


def shares(before: Mapping[str, float], after: Mapping[str, float]) -> str:
    """Return shares of a core between two times."""
    seconds, *spent = (after[name] - before[name] for name in after)
    return ", ".join(f"{name} {n / seconds:.0%}" for name, n in zip(list(after)[1:], spent, strict=True))


def measured(name: str, port: int, process: int, given: Sequence[bytes], seconds: float) -> Table:
    """Return a server's table."""
    asyncio.run(closed_loop(port, given, CLIENTS[-1], seconds / 2))  # kernels are compiled
    asyncio.run(closed_loop(port, given, 1, seconds / 2))
    begun = seconds_of(process)
    closed = {n: asyncio.run(closed_loop(port, given, n, seconds)) for n in CLIENTS}
    amid = seconds_of(process)
    most, alone = max(map(len, closed.values())) / seconds, [taken for _, taken in closed[1]]
    expected, service = services(closed[1], given, most), median(alone)
    table = Table(
        "clients", "requests/s", "at 80 %: ms, median", "p99", "by service time", "theory: median", "p99",
        "by service time", "least p99", "by service time",
    )  # fmt: skip
    for n in CLIENTS:
        due = arrivals(given, n, SHARE * most, seconds)
        row = [len(closed[n]) / seconds]
        for times in (asyncio.run(open_loop(port, due)), theory(due, expected)):
            p99 = percentile(times, 0.99)
            row += [median(times), p99, p99 / service]
        least = least_p99(due, expected)
        row += [least, least / service]
        table.add_row(str(n), *(f"{figure:.1f}" for figure in row))
    table.title = (
        f"{name}: capacity {most:.0f} requests/s, service time {service:.1f} ms (p99 "
        f"{percentile(alone, 0.99):.1f})\nshares of a core: {shares(begun, amid)}; at 80 %: "
        f"{shares(amid, seconds_of(process))}"
    )
    return table


def texts_of(n_tokens: int) -> list[str]:
    """Return 1,000 texts of the corpus: with its lengths, or of so many tokens each."""
    if not n_tokens:
        return corpus_texts(1000)
    words, found, source = corpus(), list[str](), random.Random(0)
    while len(found) < 1000:
        start = source.randrange(len(words) - n_tokens)
        encoded = tokenizer().encode(text := " ".join(words[start : start + n_tokens]))
        if len(encoded.ids) >= n_tokens:
            found.append(text[: encoded.offsets[n_tokens - 2][1]])
    return found


def main() -> None:
    """Print a table for each server."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--tokens", type=int, default=0, help="tokens of each text; 0: the corpus's lengths")
    parser.add_argument("--options", default="", help="further options of shapevm serve")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = given.model or Path(folder) / "minilm.svm"
        if not model.exists():
            shapevm.SentenceEncoder(minilm()).save(model)
        servers = [f"shapevm={SHAPEVM} {given.options}", *given.peer]
        texts = requests(texts_of(given.tokens))
        for name, _, command in (each.partition("=") for each in servers):
            with server(command, model) as (port, process):
                Console(width=100).print(measured(name, port, process, texts, given.seconds))


if __name__ == "__main__":
    main()
