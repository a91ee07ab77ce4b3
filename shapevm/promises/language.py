"""Language models: a request has the same logits alone, in company, in parts, and from shared pages."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..llm import from_pretrained
from ..llm.artifact import language_of, limits_of
from ..llm.pages import PAGE, Pool
from ..llm.scheduler import Scheduler, inputs_of
from ..llm.scheduler import Sequence as Running
from ..program.opening import open_executable
from ..vm.artifact import read
from ..vm.errors import ArgumentError
from .prove import Prover
from .report import Report

if TYPE_CHECKING:
    from ..llm import Limits
    from ..program.executable import Executable

N_REQUESTS, N_NEW, LONGEST = 8, 4, 3 * PAGE + 1
Logits = list[np.ndarray[Any, Any]]  # of each new token, f32[vocabulary]
Prompt = Sequence[int]


@dataclass(frozen=True)
class Model:
    """A program, its sessions' calls and the limits of its engine."""

    exe: Executable
    limits: Limits

    def run(self, prompts: Sequence[Prompt], most: int, pool: Pool | None = None, session: Any = None) -> Any:
        """Return the logits of `N_NEW` most probable tokens behind each prompt, which run together, `most`
        tokens a call. `pool`, `session`: the pages that earlier requests left."""
        session = session or self.exe.session()
        scheduler = Scheduler(pool or Pool(self.limits.n_pages), most, self.limits.max_sequences)
        for number, prompt in enumerate(prompts):
            scheduler.add(Running(number, list(prompt)), len(prompt) + N_NEW)
        found: list[Logits] = [[] for _ in prompts]
        while plan := scheduler.plan():
            result = session(**inputs_of(plan))
            scheduler.done(plan)
            for row, (each, _) in enumerate(plan):
                if each.n_left:
                    continue
                found[each.number].append(result["logits"][row].copy())
                if len(found[each.number]) == N_NEW:
                    scheduler.remove(each)
                else:
                    each.tokens.append(int(result["next"][row]))
        return found


def prove_language(path: Path, seconds: float = 0, seed: int = 0) -> Report:
    """Test the guarantees on a language model, whose source is compiled first, for `seconds`, at least one
    round of `N_REQUESTS` prompts.

    Raises the errors of `from_pretrained`, and ArgumentError for a model without room for `N_NEW` tokens.
    """
    if path.is_dir() or path.suffix == ".gguf":
        with tempfile.TemporaryDirectory(prefix="shapevm-") as folder:
            with from_pretrained(path) as opened:
                opened.save(Path(folder, "model.svm"))
            return prove_language(Path(folder, "model.svm"), seconds, seed)
    program = read(path)
    contents = language_of(program.meta, program.constants, str(path))
    with open_executable(path, "generic") as exe:
        model = Model(exe, limits_of(exe, contents.length))
        prover = Prover(program, exe, [], seed)
        prover.report.along = {}
        end, rng = time.monotonic() + seconds, random.Random(seed)
        while not prover.report.sizes or time.monotonic() < end:
            _round(prover, model, _prompts(model.limits, rng))
        return prover.report


def _prompts(limits: Limits, rng: random.Random) -> list[list[int]]:
    """Return prompts of different lengths; the first ones share their beginning."""
    longest = min(LONGEST, limits.length - N_NEW, limits.n_pages * PAGE - N_NEW)
    if longest < 1:
        raise ArgumentError(f"the model takes {limits.length} tokens; it must take more than {N_NEW}")
    lengths = [longest, *(rng.randint(1, longest) for _ in range(N_REQUESTS - 1))]
    made = [[rng.randrange(limits.vocabulary) for _ in range(n)] for n in lengths]
    made[1][: len(made[0])] = made[0][: len(made[1])]
    return made


def _round(prover: Prover, model: Model, prompts: Sequence[Prompt]) -> None:
    """Test all relations on some prompts."""
    alone = [model.run([prompt], model.limits.max_tokens)[0] for prompt in prompts]
    prover.report.sizes.append({"requests": len(prompts), "tokens": sum(map(len, prompts))})
    together = f"among {len(prompts)} requests"
    for most in (model.limits.max_tokens, len(prompts), 2 * PAGE + 3):
        _compare(prover, together, f"{most} tokens a call", model.run(prompts, most), alone)
    for size in range(1, len(prompts[0])):
        _compare(prover, "in parts", f"of {size} tokens", model.run(prompts[:1], size), alone[:1])
    pool, session = Pool(model.limits.n_pages), model.exe.session()
    for where in ("first", "shared pages", "again"):
        found = model.run(prompts[:2], model.limits.max_tokens, pool, session)
        _compare(prover, "from shared pages", where, found, alone[:2])
    given = inputs_of(_whole(prompts, model.limits))
    case = prover.case([given[row.name] for row in prover.inputs])
    _compare(prover, together, "in one call", [[row] for row in case.results[0]], [[x[0]] for x in alone])
    prover.threads(case, (1, 2))
    prover.tiers(case)
    prover.saved(case)


def _whole(prompts: Sequence[Prompt], limits: Limits) -> Any:
    """Return the plan of a call that takes as many whole prompts as the cache holds."""
    pool, plan = Pool(limits.n_pages), []
    for number, prompt in enumerate(prompts):
        pages = pool.take(-(-len(prompt) // PAGE))
        if pages is None:
            break
        plan.append((Running(number, list(prompt), pages=pages), len(prompt)))
    return plan


def _compare(
    prover: Prover, relation: str, where: str, found: Sequence[Logits], wanted: Sequence[Logits]
) -> None:
    for number, (one, other) in enumerate(zip(found, wanted, strict=False)):
        for step, (x, y) in enumerate(zip(one, other, strict=True)):
            prover.report.compare(relation, f"request {number}, {where}", f"logits of token {step}", x, y)
