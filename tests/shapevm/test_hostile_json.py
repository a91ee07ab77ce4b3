"""Every field of every JSON text that shapevm reads, with values of other kinds in its place: 100,000 mutants
in a full run. Each is taken, with harmless meaning, or refused with one sentence of shapevm's own errors; no
text of one is ever compiled by Python, or names what Python opens, imports or starts."""

from __future__ import annotations

import copy
import json
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from shapevm.compiler.ir.text import parse as parse_graph
from shapevm.jit.families.matmul.tile_choice import TileChoice
from shapevm.jit.spec import SpecText, family_name
from shapevm.jit.spec_reader import from_json as spec_from_json
from shapevm.jit.tuning import TuningDatabase
from shapevm.vm import artifact, writer
from shapevm.vm.errors import Error

import shapevm
from shapevm.calls.profiles import from_json as profile_from_json
from shapevm.reports.inspect import inspect_text
from shapevm.specialise.profitability import _family, _points

MARK = "mark_of_a_mutant"  # what every text of a mutant holds
CHUNKS, ALL, SOME = 20, 100_000, 2_000  # mutants with --drawn=1, and else
CODE = f"int: return None\n except KeyError: pass\n{MARK}()\ndef run(args):\n try:\n  if 0"
TEXTS = (
    CODE, MARK, f"'] + [{MARK}] + ['", f"__import__('{MARK}')", f"os:{MARK}", f"{MARK}\n", f"{{{MARK}}}",
)  # fmt: skip
NAMES = ("os:system", "subprocess:Popen", f"os:{MARK}")
TAGS = ("many", "pairs", "list", "tuple", "dict", "optional", "constant", "object", "namedtuple")
CONTENTS = (*TEXTS, "int", ["f32", 1], ["int", "int"], {"a": "*"}, ["*"], 3)


def deep(kind: str) -> Any:
    """Return a value that nests deeper than any reader follows."""
    found: Any = "*"
    for _ in range(130):
        found = {kind: [found]} if kind != "optional" else {kind: found}
    return found


VALUES: tuple[Callable[[random.Random], Any], ...] = (
    lambda rng: rng.choice(TEXTS),
    lambda rng: rng.choice((None, True, False, "", "*", [], {}, [[]], {"": {}}, "\ud800", "\0")),
    lambda rng: rng.choice((0, -1, 1, 2**31, 2**63, -(2**63), 2**64, 10**400, 1.5, -0.0, 1e308)),
    lambda rng: rng.choice((float("nan"), float("inf"))),
    lambda rng: deep(rng.choice(("list", "tuple", "many", "optional", "dict"))),
    lambda rng: [rng.choice(TEXTS)] * rng.choice((1, 2, 3000)),
    lambda rng: {rng.choice(TEXTS): "*", "many": rng.choice(TEXTS)},
    lambda rng: {rng.choice(TAGS): copied(rng.choice(CONTENTS))},
    lambda rng: {"object": rng.choice(NAMES), "fields": {rng.choice(TEXTS): "*"}},
)  # fmt: skip


def places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (container, key) of every value in JSON data."""
    left = [data]
    while left:
        holder = left.pop()
        for key, value in holder.items() if isinstance(holder, dict) else enumerate(holder):
            yield holder, key
            if isinstance(value, dict | list):
                left.append(value)


def copied(data: Any) -> Any:
    """Return a copy of JSON data, which may nest deeply."""
    return json.loads(json.dumps(data))


def mutant(rng: random.Random, data: Any) -> Any:
    """Return JSON data with one to three changes: of values, keys and lengths."""
    data = {"whole": copied(data)}
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        holder, key = rng.choice(list(places(data)))
        how = rng.random()
        if how < 0.7 or holder is data:
            holder[key] = rng.choice(VALUES)(rng)
        elif how < 0.8:
            del holder[key]
        elif isinstance(holder, list):
            holder.insert(key, copied(rng.choice(holder)))
        elif how < 0.9:
            holder[rng.choice((*TEXTS, "why", "absent", "int_keys", "state"))] = rng.choice(VALUES)(rng)
        else:
            holder[rng.choice(TEXTS)] = holder.pop(key)
    return data["whole"]


class Nested(torch.nn.Module):
    """Arguments and results of several kinds."""

    def forward(self, x: dict[str, Any], y: Any = None) -> Any:
        """Return a dict of a tuple and a list."""
        return {"a": (x["p"][0] + 1, x["p"][1]), "b": [x["q"] * 2]}


class Optional(torch.nn.Module):
    """What only TorchScript has: optionals, lists and dicts of any length."""

    def forward(
        self, x: torch.Tensor, y: torch.Tensor | None, n: list[int], d: dict[str, int]
    ) -> torch.Tensor:
        """Return a tensor."""
        for each in n:
            x = x + each
        return x if y is None else x + y + len(d)


class Counter(torch.nn.Module):
    """A model with state."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x and what was given so far."""
        self.count.add_(x)
        return x + self.count


X = torch.arange(2.0)


class Seeds:
    """Artifacts with the arguments of a call, and all other texts with what reads them."""

    def __init__(self, folder: Path) -> None:
        script = torch.jit.script(Optional())
        models = ((Nested(), ({"p": (X, X), "q": X},)), (script, (X, X, [1], {"a": 1})), (Counter(), (X,)))
        self.folder = folder
        self.programs, specs = [], set()
        for model, args in models:
            with shapevm.compile(model, args, strategy="generic") as exe:
                self.programs.append((artifact.read(exe.artifact), args))
            specs |= {kernel.spec for program, _ in self.programs for kernel in program.kernels}
        sizes = [{"values": [1, 2], "count": 1, "total_ns": 1, "least_ns": 1}]
        profile = {
            "format": "shapevm-profile",
            "version": 1,
            "program": "a",
            "symbols": ["n", "m"],
            "dropped": 0,
        }
        row = {"name": "w", "shape": [2, 3], "format": "f32", "bytes": 24, "error": 0.5, "reason": ""}
        self.weights = [row]
        tuning = {"format": "shapevm-tuning-1", "schedules": {"a": "b"}}
        measured = {"few": {"own": "8x2", "turns": [{"8x2": 1.5}]}}
        self.texts: list[tuple[Any, Callable[[str], Any]]] = [
            (profile | {"sizes": sizes}, profile_from_json),
            (tuning, self.read_tuning),
            ({"tiles": {"few": "8x2"}, "measured": measured}, lambda text: TileChoice.parse(text.encode())),
            ([[1, 2.5, 3.5]], lambda text: _points(text.encode())),
            ({"ratios": {"a": 0.5}, "compile_ns": 1e7}, lambda text: _family(text.encode())),
            ({"inputs": "{}", "state": ["a"]}, lambda text: parse_graph(f'graph "f"\nstructure {text}\n')),
            *((json.loads(spec), self.read_spec) for spec in sorted(specs)),
        ]

    def read_tuning(self, text: str) -> None:
        """Read a tuning database."""
        path = self.folder / "tuning.json"
        path.write_bytes(text.encode(errors="surrogatepass"))
        TuningDatabase(path)._read()

    def read_spec(self, text: str) -> None:
        """Read a kernel's spec, both ways."""
        with suppress(ValueError):
            family_name(SpecText(text))
        spec_from_json(text)

    def read_artifact(self, rng: random.Random) -> None:
        """Load a program with a changed META, inspect it and call it."""
        program, args = rng.choice(self.programs)
        meta = copy.deepcopy(dict(program.meta)) | {"weights": self.weights}
        texts = meta["structure"]
        for name in ("inputs", "outputs"):
            texts[name] = json.loads(texts[name])
        if rng.random() < 0.8:
            name = rng.choice(("inputs", "outputs"))
            texts[name] = mutant(rng, texts[name])
        meta = meta if rng.random() < 0.7 else mutant(rng, meta)
        found = meta.get("structure") if isinstance(meta, dict) else None
        for name in ("inputs", "outputs"):
            if isinstance(found, dict) and name in found and rng.random() < 0.98:
                found[name] = json.dumps(found[name])
        path = self.folder / "mutant.svm"
        path.write_bytes(_with_meta(program, json.dumps(meta)))
        if rng.random() < 0.1:
            inspect_text(path)
        native = None if rng.random() < 0.9 else False
        with shapevm.load(path, native_code=native, strategy="generic") as exe:
            exe(*args)


def _with_meta(program: artifact.Program, text: str) -> bytes:
    """Return an artifact with this text as its META, all hashes right."""
    with patch.object(writer, "json", SimpleNamespace(dumps=lambda meta, **_: meta["text"])):
        return artifact.to_bytes(replace(program, meta={"text": text}))


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Seeds:
    return Seeds(tmp_path_factory.mktemp("mutants"))


EVENTS = ("compile", "exec", "open", "import", "os.system", "os.exec", "subprocess.Popen")


class Watch:
    """Notes what Python compiles, opens, imports or starts that a mutant's text names."""

    def __init__(self) -> None:
        self.on, self.found = False, []

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if self.on and event in EVENTS and MARK in repr(args[:1]):
            self.found.append((event, repr(args)[:200]))


WATCH = Watch()
sys.addaudithook(WATCH)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_mutants_are_taken_or_refused(chunk: int, seeds: Seeds, request: pytest.FixtureRequest) -> None:
    seed = request.config.option.seed * CHUNKS + chunk
    n = (ALL if request.config.option.drawn >= 1 else SOME) // CHUNKS
    rng, taken = random.Random(seed), 0
    WATCH.on, WATCH.found = True, []
    try:
        for _ in range(n):
            state = rng.getstate()
            try:
                if rng.random() < 0.5:
                    seeds.read_artifact(rng)
                else:
                    data, read = rng.choice(seeds.texts)
                    read(json.dumps(mutant(rng, data)))
                taken += 1
            except Error as error:
                assert "\n" not in str(error) and 10 < len(str(error)) < 1000, (state, error)
    finally:
        WATCH.on = False
    assert not WATCH.found, WATCH.found
    assert 0 < taken < n
