"""Damaged ONNX models: `python -m tests.compiler.frontends.onnx.onnx_mutants [COUNT] [SEED] [FILE ..]`.

Each mutant changes bytes of a model's file, or fields of its message: attributes, sizes, types, names, edges,
data. It is imported, and its passes run, or it is refused in one sentence. Anything else is a failure, and is
printed at once: another exception, a sentence of several lines, more memory or time than the limits.
"""

from __future__ import annotations

import faulthandler
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from shapevm.compiler.frontends.onnx.importer import import_model
from shapevm.compiler.frontends.onnx.reader import read_model

import shapevm
from shapevm.build.build import run_passes

MEMORY = 8 << 30  # of the process
GROWTH = 512 << 10  # KiB by which one mutant may raise the most that the process has held
SECONDS = 20.0  # of the CPU, for one mutant
LETTERS = 2000  # of a refusal
LINE_EVERY = 2000  # mutants, where the progress is no bar
INTS = (-(2**63), -(2**31), -2, -1, 0, 1, 2, 3, 7, 255, 2**31 - 1, 2**31, 2**40, 2**63 - 1)
FLOATS = (0.0, -1.0, 1e-30, 1e30, float("inf"), float("nan"))


def fields(message: Any) -> list[tuple[Any, Any]]:
    """Return (message, field) of everything that is set within a message."""
    found = []
    for field, value in message.ListFields():
        found.append((message, field))
        if field.type == field.TYPE_MESSAGE:
            for inner in value if field.is_repeated else (value,):
                found += fields(inner)
    return found


def changed(field: Any, value: Any, r: random.Random) -> Any:
    """Return another value of a field's kind."""
    if field.type in (field.TYPE_STRING, field.TYPE_BYTES):
        text = r.choice(["", "x", "../x", "a\nb", "é", "Add", "0" * 300])
        if field.type == field.TYPE_STRING:
            return text
        data = bytearray(value)
        if data and r.random() < 0.7:
            data[r.randrange(len(data))] = r.randrange(256)
            return bytes(data[: r.randrange(len(data) + 1)]) if r.random() < 0.3 else bytes(data)
        return text.encode()
    if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        return r.choice(FLOATS)
    if field.type == field.TYPE_ENUM or field.name == "data_type":
        return r.randrange(30)
    found = r.choice(INTS)
    return found if field.type == field.TYPE_INT64 else max(-(2**31), min(found, 2**31 - 1))


def mutate(message: Any, r: random.Random) -> None:
    """Change one field."""
    owner, field = r.choice(fields(message))
    if not field.is_repeated:
        if field.type == field.TYPE_MESSAGE or r.random() < 0.2:
            owner.ClearField(field.name)
        else:
            setattr(owner, field.name, changed(field, getattr(owner, field.name), r))
        return
    values = getattr(owner, field.name)
    at = r.randrange(len(values))
    if r.random() < 0.3:
        del values[at]
    elif field.type == field.TYPE_MESSAGE:
        other = values[r.randrange(len(values))]
        values.add().CopyFrom(other)
    elif r.random() < 0.3:
        values.append(values[at])
    else:
        values[at] = changed(field, values[at], r)


def mutant(data: bytes, r: random.Random) -> bytes:
    """Return a damaged file."""
    if r.random() < 0.2:
        made = bytearray(data)
        for _ in range(r.choice([1, 2, 8])):
            made[r.randrange(len(made))] = r.randrange(256)
        return bytes(made[: r.randrange(len(made))] if r.random() < 0.2 else made)
    model = onnx.ModelProto()
    model.ParseFromString(data)
    for _ in range(r.choice([1, 1, 2, 4])):
        mutate(model, r)
    return model.SerializeToString()


def verdict(data: bytes) -> str:
    """Return how a file ends: "taken" or "refused". Raises any other error, and ValueError for a refusal that
    has several lines, or none, or is endless."""
    try:
        graph = import_model(read_model(data))
        run_passes(graph)
    except shapevm.Error as error:
        if "\n" in str(error).strip() or not 0 < len(str(error)) <= LETTERS:
            raise ValueError(f"a refusal is no sentence: {error}") from error
        return "refused"
    return "taken"


def run(
    files: Sequence[bytes], numbers: Iterable[int], seed: int, report: Callable[[str], None]
) -> Counter[str]:
    """Judge the mutants of these numbers; report those that fail."""
    ends: Counter[str] = Counter()
    for i in numbers:
        r = random.Random(f"{seed} {i}")
        try:
            data = mutant(r.choice(files), r)
        except (DecodeError, ValueError, TypeError):
            ends["no mutant"] += 1
            continue
        start, held = time.process_time(), peak()
        try:
            end = verdict(data)
        except Exception as error:
            end = "failed"
            report(f"seed {seed} mutant {i}: {type(error).__name__}: {error}")
        if (seconds := time.process_time() - start) > SECONDS:
            report(f"seed {seed} mutant {i}: {seconds:.1f} s")
            end = "failed"
        if (more := peak() - held) > GROWTH:
            report(f"seed {seed} mutant {i}: {more >> 10} MiB")
            end = "failed"
        ends[end] += 1
    return ends


def peak() -> int:
    """Return the most memory that this process has held, in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def shown(count: int) -> Iterator[int]:
    """Yield the numbers of mutants and show how many are done: a bar in a terminal, else lines."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import track

        yield from track(range(count), "mutants", count, console=Console(stderr=True))
        return
    start = time.monotonic()
    for i in range(count):
        yield i
        if (i + 1) % LINE_EVERY == 0:
            text = f"{i + 1} of {count}, {time.monotonic() - start:.0f} s, at most {peak() >> 10} MiB"
            print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Run the command."""
    from tests.compiler.frontends.onnx.hostile_models import MODELS

    count, seed = (int(sys.argv[i]) if len(sys.argv) > i else default for i, default in ((1, 1000), (2, 0)))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    files = [Path(name).read_bytes() for name in sys.argv[3:]] or [x.SerializeToString() for x in MODELS]
    faulthandler.enable()
    ends = run(files, shown(count), seed, lambda line: print(line, flush=True))
    print(f"{count} mutants of seed {seed}: " + ", ".join(f"{n} {end}" for end, n in ends.most_common()))
    sys.exit(ends["failed"] > 0)


if __name__ == "__main__":
    main()
