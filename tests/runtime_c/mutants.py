"""Structure-aware mutants: artifacts, arrays, profiles and kernel specs in which single values were changed
and everything else, hashes too, was made right again. Each must be taken or refused with a sentence.

    python -m tests.runtime_c.mutants [N [SEED]] [--fuzz build/fuzz/fuzz]

Half of the N are artifacts and a quarter arrays, read by the C fuzzer (`make fuzz` builds it with
AddressSanitizer and UBSan) with limits of fuel, memory and time; then profiles, which Python reads, and
kernel specs, which are compiled and run, some in an artifact, between pages that may not be touched
(`tests.jit.lies`). No machine code is changed: an artifact's native code is trusted or not run at all.
"""

from __future__ import annotations

import argparse
import faulthandler
import io
import itertools
import json
import random
import re
import struct
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from shapevm.vm import artifact
from shapevm.vm.errors import Error, InternalError
from shapevm.vm.program import Function, KernelObject, Program

import shapevm
from shapevm.calls.profiles import from_json as profile_from_json

from ..jit import lies

ARTIFACT, ARRAYS = 0, 1
INTERESTING = (0, 1, 2, 3, 7, 64, 255, 256, 65535, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32,
               (1 << 62), (1 << 63) - 1, -1, -2, -(1 << 31), -(1 << 63))  # fmt: skip
TEXTS = ("", "x", "ä" * 40, "a" * 5000, '"', "\0", "%s%n", "s0", "../x")
TEXT_SECONDS = 20  # what reading a text may take


# Values -------------------------------------------------------------------------------------------


class Mutator:
    """Changes single values of nested data."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def number(self, old: int) -> int:
        """Return another number, near the old one or one at which something happens."""
        near = (old + 1, old - 1, old * 2, -old, old ^ 1 << self.rng.randrange(63))
        return self.rng.choice((*near, *INTERESTING))

    def leaf(self, old: Any) -> Any:
        """Return another value, mostly of the same type."""
        if self.rng.random() < 0.03:
            return self.rng.choice((None, 0, -1, "", True, (), 1.5))
        if isinstance(old, bool):
            return not old
        if isinstance(old, int):
            return self.number(old)
        if isinstance(old, float):
            return self.rng.choice((0.0, -0.0, float("nan"), float("inf"), 1e308, old * 2))
        if isinstance(old, str):
            return self.rng.choice((*TEXTS, old[:-1], old + "x"))
        return self.number(0) if old is None else old

    def change(self, data: Any) -> Any:
        """Return `data` with one change somewhere: dataclasses, tuples, lists and dicts are walked."""
        if isinstance(data, (tuple, list)) and (not data or self.rng.random() < 0.15):
            return type(data)(self.items(list(data)))
        if isinstance(data, (tuple, list)):
            i = self.rng.randrange(len(data))
            return type(data)((*data[:i], self.change(data[i]), *data[i + 1 :]))
        if isinstance(data, dict) and data:
            name = self.rng.choice(list(data))
            if self.rng.random() < 0.1:
                return {k: v for k, v in data.items() if k != name}
            return {**data, name: self.change(data[name])}
        if is_dataclass(data) and not isinstance(data, type) and not isinstance(data, KernelObject):
            names = [f.name for f in fields(data) if f.init and f.name != "objects"]
            name = self.rng.choice(names)
            return replace(data, **{name: self.change(getattr(data, name))})  # type: ignore[type-var]
        return data if isinstance(data, (np.ndarray, KernelObject)) else self.leaf(data)

    def items(self, data: list[Any]) -> list[Any]:
        """Drop, repeat, swap or copy items."""
        if not data:
            return data
        i, j = self.rng.randrange(len(data)), self.rng.randrange(len(data))
        how = self.rng.randrange(4)
        if how == 0:
            return data[:i] + data[i + 1 :]
        if how == 1:
            return data[:i] + [data[i]] * self.rng.choice((2, 3, 70)) + data[i + 1 :]
        if how == 2:
            data[i], data[j] = data[j], data[i]
        else:
            data[i] = data[j]
        return data


# Artifacts ----------------------------------------------------------------------------------------


def _code(mutator: Mutator, program: Program) -> Program:
    """Change one word of one function, or copy words within it."""
    rng, k = mutator.rng, mutator.rng.randrange(len(program.functions))
    f: Function = program.functions[k]
    code = list(f.code)
    if code and rng.random() < 0.8:
        i = rng.randrange(len(code))
        word = rng.choice((code[i] + 1, code[i] - 1, rng.randrange(8), rng.choice(code), rng.randrange(70)))
        code[i] = word % (1 << 32)
    elif code:
        i, j, n = rng.randrange(len(code)), rng.randrange(len(code)), rng.randrange(1, 9)
        code[i:i] = code[j : j + n]
    functions = (*program.functions[:k], replace(f, code=tuple(code)), *program.functions[k + 1 :])
    return replace(program, functions=functions)


def artifact_mutants(seeds: Sequence[Program], seed: int) -> Iterator[bytes]:
    """Yield artifacts with one to four changes; what the writer cannot write is not counted."""
    mutator = Mutator(seed)
    while True:
        program = mutator.rng.choice(seeds)
        try:
            for _ in range(mutator.rng.choice((1, 1, 2, 4))):
                is_code = mutator.rng.random() < 0.5 and program.functions
                program = _code(mutator, program) if is_code else mutator.change(program)
            yield artifact.to_bytes(program)
        except (ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError, struct.error):
            continue


# Arrays -------------------------------------------------------------------------------------------


def _npy(rng: random.Random) -> bytes:
    """Return an .npy file whose header says something else than its data, mostly."""
    buffer = io.BytesIO()
    dtype = rng.choice(("f4", "f8", "i8", "u1", "?", "f2", "u2", "c8", "U3"))
    shape = tuple(rng.choice((0, 1, 2, 3, 5)) for _ in range(rng.randrange(5)))
    array = np.zeros(shape, dtype)
    np.save(buffer, np.asfortranarray(array) if rng.random() < 0.3 else array)
    data = bytearray(buffer.getvalue())
    for _ in range(rng.randrange(4)):
        end = min(len(data), 128)
        numbers = [m.span() for m in re.finditer(rb"\d+", bytes(data[:end]))]
        if numbers and rng.random() < 0.6:
            a, b = rng.choice(numbers)
            data[a:b] = str(rng.choice(INTERESTING)).encode()
        else:
            data[rng.randrange(end)] = rng.randrange(256)
    end = rng.randrange(len(data) + 1) if rng.random() < 0.15 else len(data)
    return bytes(data[:end])


def array_mutants(seed: int) -> Iterator[bytes]:
    """Yield .npy and .npz files with right checksums and fields that do not fit."""
    rng = random.Random(seed)
    while True:
        if rng.random() < 0.3:
            yield _npy(rng)
            continue
        buffer = io.BytesIO()
        names = ("x.npy", "y.npy", "x", "a" * 300 + ".npy", ".npy", "ä.npy")
        with zipfile.ZipFile(buffer, "w") as file:
            for name in rng.sample(names, rng.randrange(1, 4)):
                info = zipfile.ZipInfo(name)
                info.compress_type = rng.choice((zipfile.ZIP_STORED,) * 9 + (zipfile.ZIP_DEFLATED,))
                with file.open(info, "w", force_zip64=rng.random() < 0.2) as member:
                    member.write(_npy(rng))
        data = bytearray(buffer.getvalue())
        central = data.rfind(b"PK\x01\x02")
        for _ in range(rng.randrange(4)):
            at = rng.choice((central + rng.randrange(46), len(data) - 1 - rng.randrange(22)))
            size = rng.choice((1, 2, 4))
            value = rng.choice((*INTERESTING, len(data), central)) % (1 << 8 * size)
            data[at : at + size] = value.to_bytes(size, "little")
        yield bytes(data)


# JSON ---------------------------------------------------------------------------------------------


def json_mutants(texts: Sequence[str], seed: int) -> Iterator[str]:
    """Yield JSON texts with one to three values changed."""
    mutator = Mutator(seed)
    seeds = [json.loads(text) for text in texts]
    while True:
        data = mutator.rng.choice(seeds)
        for _ in range(mutator.rng.choice((1, 1, 2, 3))):
            data = mutator.change(data)
        yield json.dumps(data)


def read_profile(text: str) -> None:
    """Read a profile."""
    profile_from_json(text)


def try_texts(mutants: Iterator[str], n: int, read: Callable[[str], None]) -> tuple[Counter[str], list[str]]:
    """Read n texts; return how they ended and what was wrong."""
    seen: Counter[str] = Counter()
    wrong = []
    for text in itertools.islice(mutants, n):
        start = time.monotonic()
        faulthandler.dump_traceback_later(TEXT_SECONDS, exit=True)
        try:
            read(text)
            seen["taken"] += 1
        except Error as error:
            seen[error.name] += 1
            if isinstance(error, InternalError) or len(str(error)) < 10:
                wrong.append(f"{error!r}: {text[:500]}")
        except Exception as error:
            seen["wrong"] += 1
            wrong.append(f"{type(error).__name__}: {error}: {text[:500]}")
        faulthandler.cancel_dump_traceback_later()
        if time.monotonic() - start > TEXT_SECONDS / 2:
            wrong.append(f"it takes {time.monotonic() - start:.0f} s: {text[:500]}")
    return seen, wrong


# Running ------------------------------------------------------------------------------------------


class Moves(torch.nn.Module):
    """A kernel of each family that the other models lack."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Sort, scan, scatter, search, concatenate and attend."""
        q = x.reshape(1, -1, 4, 2).transpose(1, 2)
        ranked, index = x.sort(-1)
        return (
            torch.nn.functional.scaled_dot_product_attention(q, q, q),
            ranked.cumsum(-1),
            torch.zeros_like(x).scatter_add(1, index, x),
            torch.searchsorted(ranked, x.contiguous()),
            torch.cat([x, index.float()], -1),
        )


class Lines(torch.nn.Module):
    """Kernels that take images line by line, of which the sides are those of two vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(1, 16, 1), torch.nn.ReLU(), torch.nn.Conv2d(16, 16, 3, 1, 1, groups=16),
            torch.nn.ReLU(), torch.nn.Conv2d(16, 4, 1),
        )  # fmt: skip

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Return the mean of the results."""
        return self.layers(a * b).mean((2, 3))


def images() -> Program:
    """Return a program of Lines, for sizes up to those of no machine."""
    args = torch.randn(1, 1, 4, 1), torch.randn(1, 1, 1, 5)
    sides = {"a": {2: torch.export.Dim.AUTO}, "b": {3: torch.export.Dim.AUTO}}
    with shapevm.compile(Lines().eval(), args, dynamic_shapes=sides, strategy="generic") as exe:
        return artifact.read(exe.artifact)


def quantised() -> Program:
    """Return a product by a weight in groups of small integers."""
    model, rows = torch.nn.Linear(64, 160).eval(), torch.export.Dim("rows", min=1, max=64)
    options = shapevm.Options(weights="int4", target="x86-64-v4-vnni", max_error=1.0)
    sizes = ({0: rows},)
    with shapevm.compile(
        model, (torch.randn(3, 64),), dynamic_shapes=sizes, options=options, strategy="generic"
    ) as exe:
        return artifact.read(exe.artifact)


def seeds() -> list[Program]:
    """Return the programs that are mutated: those of the runtime's tests and compiled models."""
    sys.path.insert(0, str(Path(__file__).parent))
    import artifacts

    rows = torch.export.Dim("rows", min=1, max=64)
    models = (
        (Moves(), (4, 8)),
        (torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16)), (4, 8)),
        (torch.nn.MultiheadAttention(8, 2, batch_first=True), None),
        (torch.nn.Sequential(torch.nn.Conv1d(2, 4, 3), torch.nn.Softmax(-1)), (2, 2, 9)),
    )
    found = [artifacts.chain(2, (8,)), *map(artifacts.with_code, (artifacts.LOOKUP, artifacts.DATA))]
    for model, shape in models:
        x = torch.randn(shape or (1, 3, 8))
        args, dims = ((x,), ({0: rows},)) if shape else ((x, x, x), None)
        with shapevm.compile(model.eval(), args, dynamic_shapes=dims, strategy="generic") as exe:
            found.append(artifact.read(exe.artifact))
    return [*found, images(), quantised()]


def profile_text() -> str:
    """Return a profile."""
    rows = [{"values": [n, 2 * n], "count": n, "total_ns": 1000 * n, "least_ns": 900} for n in range(1, 9)]
    data = {"format": "shapevm-profile", "version": 1, "program": "ab" * 32, "symbols": ["n", "m"]}
    return json.dumps({**data, "dropped": 0, "sizes": rows})


def stream(fuzz: Path, mutants: Sequence[tuple[int, Iterator[bytes]]], counts: Sequence[int]) -> str:
    """Send mutants to the C fuzzer; return what it says. Raises RuntimeError when it stops."""
    done = 0
    with subprocess.Popen([str(fuzz), "--stream"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            for (kind, made), n in zip(mutants, counts, strict=True):
                for data in itertools.islice(made, n):
                    process.stdin.write(struct.pack("<IIQ", kind, 0, len(data)) + data)
                    done += 1
                    if done % 10_000 == 0:
                        print(f"{done} mutants sent", file=sys.stderr, flush=True)
            process.stdin.close()
        except BrokenPipeError:
            pass  # the fuzzer has stopped and says at which
        said = process.stdout.read().decode()
    if process.returncode:
        raise RuntimeError(f"the fuzzer ended with {process.returncode}: {said}")
    return said


def run(n: int, seed: int, fuzz: Path) -> tuple[str, list[str]]:
    """Run n mutants of all kinds; return a report and what was wrong."""
    programs = seeds()
    counts = (n // 2, n // 4)
    kinds = ((ARTIFACT, artifact_mutants(programs, seed)), (ARRAYS, array_mutants(seed)))
    lines, wrong = [stream(fuzz, kinds, counts).rstrip()], []
    rest = (n - sum(counts)) // 2
    profiles = try_texts(json_mutants([profile_text()], seed), rest, read_profile)
    for name, (seen, found) in (("profiles", profiles), ("specs", lies.try_all(lies.draw(rest, seed), seed))):
        wrong += found
        lines.append(f"{name}: " + ", ".join(f"{k} {name}" for name, k in seen.most_common()))
    return "\n".join(lines), wrong


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("n", type=int, nargs="?", default=200_000)
    parser.add_argument("seed", type=int, nargs="?", default=0)
    parser.add_argument("--fuzz", type=Path, default=Path("build/fuzz/fuzz"))
    options = parser.parse_args()
    report, wrong = run(options.n, options.seed, options.fuzz)
    print(report)
    print(f"{options.n} mutants, {len(wrong)} without a clean end")
    for line in wrong[:20]:
        print(f"  {line}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
