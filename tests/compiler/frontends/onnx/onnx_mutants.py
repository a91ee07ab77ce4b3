"""Damaged ONNX models: `python -m tests.compiler.frontends.onnx.onnx_mutants [COUNT] [SEED] [FILE ..]`.

Each mutant changes bytes of a model's file, or fields of its message: attributes, sizes, types, names, edges,
data. It is imported, and its passes run, or it is refused in one sentence. Anything else is a failure.
"""

from __future__ import annotations

import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from shapevm.compiler.frontends.onnx.importer import import_model
from shapevm.compiler.frontends.onnx.reader import read_model

import shapevm
from shapevm.build.build import run_passes

MEMORY = 8 << 30  # of the process
SECONDS = 20.0  # of the CPU, for one mutant
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
    """Return how a file ends: "taken" or "refused". Raises any other error, and ValueError for a refusal of
    several sentences or lines."""
    try:
        graph = import_model(read_model(data))
        run_passes(graph)
    except shapevm.Error as error:
        if "\n" in str(error).strip():
            raise ValueError(f"a refusal has several lines: {error}") from error
        return "refused"
    return "taken"


def run(files: Sequence[bytes], count: int, seed: int, report: Callable[[str], None]) -> Counter[str]:
    """Judge mutants; report those that fail."""
    ends: Counter[str] = Counter()
    for i in range(count):
        r = random.Random(f"{seed} {i}")
        try:
            data = mutant(r.choice(files), r)
        except (DecodeError, ValueError, TypeError):
            ends["no mutant"] += 1
            continue
        start = time.process_time()
        try:
            end = verdict(data)
        except Exception as error:
            end = "failed"
            report(f"seed {seed} mutant {i}: {type(error).__name__}: {error}")
        if (seconds := time.process_time() - start) > SECONDS:
            report(f"seed {seed} mutant {i}: {seconds:.1f} s")
            end = "failed"
        ends[end] += 1
    return ends


def main() -> None:
    """Run the command."""
    from tests.compiler.frontends.onnx.hostile_models import MODELS

    count, seed = (int(sys.argv[i]) if len(sys.argv) > i else default for i, default in ((1, 1000), (2, 0)))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    files = [Path(name).read_bytes() for name in sys.argv[3:]] or [x.SerializeToString() for x in MODELS]
    ends = run(files, count, seed, lambda line: print(line, flush=True))
    print(dict(ends))
    sys.exit(ends["failed"] > 0)


if __name__ == "__main__":
    main()
