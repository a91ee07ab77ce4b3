"""Many requests of random lengths to one small language model, whose cache is too small for them all.

python -m tests.stress.language --requests 10000

Some are cancelled at a random token, some are refused, some follow a grammar. Each other one must have the
tokens that it has alone, and a cancelled one the first of them; at the end no page may be held, and the
process may not have grown since half of them.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shapevm.vm.errors import ArgumentError
from shapevm.vm.heap import trim

from shapevm.llm import Generation, LanguageModel, Sampling, from_pretrained

from ..shapevm.llm.folders import write_model

CACHE, LONGEST, N_TOGETHER, N_KINDS = 160, 200, 24, 150
GRAMMAR = 'start: ("ab" | "ba")~3 "."'
GROWTH_MIB = 8.0  # of the process, which a heap in pieces may take


@dataclass(frozen=True)
class Kind:
    """A request, and its tokens alone; None: it is refused."""

    prompt: list[int]
    how: Sampling
    grammar: str | None
    tokens: list[int] | None


def tokens_of(made: Generation, most: int | None = None) -> list[int]:
    """Return a request's tokens; those after `most` are cancelled."""
    found: list[int] = []
    for token in made._request:
        found.append(token)
        if most is not None and len(found) >= most:
            made.cancel()
            break
    return found


def kinds(model: LanguageModel, rng: random.Random) -> list[Kind]:
    """Return different requests; many share their beginnings."""
    begin = [rng.randrange(98) for _ in range(LONGEST)]
    made = []
    for number in range(N_KINDS):
        n = rng.randint(1, LONGEST if number % 15 == 0 else CACHE // 2)
        prompt = [*begin[: rng.randint(0, n)], *(rng.randrange(98) for _ in range(n))][:n]
        how = Sampling(rng.randint(1, 40), rng.choice((0.0, 0.8)), seed=number, stop_tokens=frozenset())
        grammar = GRAMMAR if number % 10 == 0 else None
        try:
            tokens = tokens_of(model.submit(prompt, how, grammar=grammar))
        except ArgumentError:
            tokens = None
        made.append(Kind(prompt, how, grammar, tokens))
    return made


def resident_mib() -> float:
    """Return the memory of the process, without what the C library keeps free."""
    trim()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def soak(n_requests: int, seed: int = 0) -> dict[str, Any]:
    """Send requests, and return what became of them. Raises AssertionError for a lost token or page."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="shapevm-") as folder:
        write_model(Path(folder), "llama", vocab_size=98)
        with from_pretrained(folder, cache_tokens=CACHE) as model:
            return _soak(model, kinds(model, rng), n_requests, rng)


def _soak(model: LanguageModel, known: list[Kind], n_requests: int, rng: random.Random) -> dict[str, Any]:
    begun: list[tuple[Kind, Generation, int | None]] = []
    counts: Counter[str] = Counter()
    start, tenth, sizes = time.monotonic(), max(n_requests // 10, 1), list[float]()
    for number in range(n_requests):
        kind = rng.choice(known)
        try:
            made = model.submit(kind.prompt, kind.how, grammar=kind.grammar)
        except ArgumentError:
            assert kind.tokens is None, kind
            counts["refused"] += 1
        else:
            begun.append((kind, made, rng.randint(0, 20) if rng.random() < 0.2 else None))
        if len(begun) >= N_TOGETHER:
            _end(*begun.pop(rng.randrange(len(begun))), counts)
        if number % tenth == 0:
            sizes.append(resident_mib())
    for each in begun:
        _end(*each, counts)
    pool = model.engine._scheduler.pool
    assert not model.engine.n_unfinished and pool.n_available == pool.n_pages
    seconds, shown = round(time.monotonic() - start, 1), [round(each, 1) for each in sizes]
    return {
        **counts,
        "seconds": seconds,
        "mib": shown,
        "growth_mib": round(shown[-1] - shown[len(shown) // 2], 1),
    }


def _end(kind: Kind, made: Generation, most: int | None, counts: Counter[str]) -> None:
    """Read a request to its end, or cancel it, and compare its tokens."""
    assert kind.tokens is not None, kind
    if most == 0:
        made.cancel()
    found = tokens_of(made, most)
    is_whole = most is None or most > len(kind.tokens)
    assert found == kind.tokens[: len(kind.tokens) if is_whole else len(found)], (kind, found)
    counts["whole" if is_whole else "cancelled"] += 1


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    found = soak(given.requests, given.seed)
    print(found)
    assert found["growth_mib"] < GROWTH_MIB, found


if __name__ == "__main__":
    main()
