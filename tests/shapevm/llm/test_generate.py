"""`shapevm-run --generate`: the tokens of Python's engine, bit for bit."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shapevm.llm import LanguageModel, Sampling, from_pretrained
from shapevm.runner import runner_path

from .folders import write_model

HOW: list[dict[str, Any]] = [
    {},
    {"temperature": 1.0},
    {"temperature": 1.7, "top_k": 20, "seed": 9},
    {"temperature": 0.8, "top_p": 0.7, "min_p": 0.02, "seed": (1 << 64) - 1},
    {"repetition_penalty": 1.3},
    {"temperature": 1.2, "repetition_penalty": 1.5, "top_p": 0.95, "seed": 4},
]


@pytest.fixture(scope="module", params=["llama", "gpt2", "gemma3"])
def saved(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LanguageModel, Path]]:
    """Return a model, and its file."""
    folder = tmp_path_factory.mktemp("models")
    write_model(folder, request.param)
    with from_pretrained(folder, cache_tokens=300) as model:
        model.save(folder / "model.svm")
        yield model, folder / "model.svm"


def run(path: Path, prompt: Any, *options: Any) -> subprocess.CompletedProcess[str]:
    np.save(path.with_name("prompt.npy"), prompt)
    command = [
        str(runner_path()),
        str(path),
        "--tokens",
        str(path.with_name("prompt.npy")),
        *map(str, options),
    ]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("n_prompt, n_new", [(1, 40), (17, 30), (250, 40), (256, 5), (3, 0)])
def test_tokens_are_those_of_the_engine(
    saved: tuple[LanguageModel, Path], how: dict[str, Any], n_prompt: int, n_new: int
) -> None:
    model, path = saved
    prompt = np.random.default_rng(n_prompt).integers(3, 96, n_prompt)
    sampling = Sampling(max_new_tokens=n_new, stop_tokens=model.defaults.stop_tokens, **how)
    wanted = list(model.engine.submit(prompt.tolist(), sampling))
    options = [x for name, value in how.items() for x in (f"--{name.replace('_', '-')}", value)]
    done = run(path, prompt, "--generate", n_new, *options)
    assert done.returncode == 0, done.stderr
    assert list(map(int, done.stdout.split())) == wanted
    threads = run(path, prompt, "--generate", n_new, *options, "--threads", 2, "--strategy", "generic")
    assert threads.stdout == done.stdout


def test_a_stop_token_ends_the_text(saved: tuple[LanguageModel, Path], tmp_path: Path) -> None:
    model, path = saved
    for seed in range(200):
        sampling = Sampling(60, temperature=2.0, seed=seed, stop_tokens=model.defaults.stop_tokens)
        wanted = list(model.engine.submit([5], sampling))
        if len(wanted) < 60:
            break
    done = run(
        path, [5], "--generate", 60, "--temperature", 2, "--seed", seed, "--output", tmp_path / "out.npy"
    )
    assert done.returncode == 0 and not done.stdout, done.stderr
    made = np.load(tmp_path / "out.npy")
    assert made.dtype == np.int64 and 0 < len(wanted) < 60 and made.tolist() == wanted


REFUSALS: list[tuple[list[Any], Any, int, str]] = [
    (["--generate", 4], np.zeros(0, np.int64), 2, "the tokens must be one array i64"),
    (["--generate", 4], np.zeros(257, np.int64), 2, "the tokens must be one array i64"),
    (["--generate", 4], np.zeros((1, 3), np.int64), 2, "the tokens must be one array i64"),
    (["--generate", 4], np.zeros(3, np.int32), 2, "the tokens must be one array i64"),
    (["--generate", 4], [96], 5, "index"),
    (["--generate", 4], [-1], 5, "index"),
    (["--generate", -1], [3], 2, "--generate takes a whole number from 0 to 16777216, not: -1"),
    (["--generate", 4, "--top-p", 1.5], [3], 2, "--top-p takes a number from 0 to 1, not: 1.5"),
    (["--generate", 4, "--temperature", "nan"], [3], 2, "--temperature takes a number from 0 to 10000, not"),
    (
        ["--generate", 4, "--seed", 1 << 64],
        [3],
        2,
        "--seed takes a whole number from 0 to 18446744073709551615",
    ),
    (["--generate", 4, "--seed", -1], [3], 2, "--seed takes a whole number from 0 to 1844674407370955161"),
    (["--generate", 4, "--seed", "3x"], [3], 2, "--seed takes a whole number from 0 to 1844674407370955161"),
    (["--generate", 4, "--function", "ends"], [3], 2, "--generate takes --tokens, and neither --input"),
    ([], [3], 2, "--generate N and --tokens FILE.npy are given together"),
]


@pytest.mark.parametrize("options, prompt, code, message", REFUSALS)
def test_refusals(
    saved: tuple[LanguageModel, Path], options: list[Any], prompt: Any, code: int, message: str
) -> None:
    done = run(saved[1], prompt, *options)
    assert done.returncode == code and message in done.stderr, done.stderr


def test_a_small_cache_and_other_programs_are_refused(tmp_path: Path) -> None:
    import shapevm
    from shapevm import nn

    write_model(tmp_path, "llama")
    with from_pretrained(tmp_path, cache_tokens=32) as model:
        model.save(tmp_path / "model.svm")
    done = run(tmp_path / "model.svm", [3] * 30, "--generate", 4)
    assert done.returncode == 2 and "the cache is too small for these tokens" in done.stderr
    assert len(run(tmp_path / "model.svm", [3] * 30, "--generate", 2).stdout.split()) == 2

    class Plain(nn.Module):
        def forward(self, x: Any) -> Any:
            return x + 1.0

    exe: shapevm.Executable = nn.compile(Plain(), {"x": ("n",)})
    exe.save(tmp_path / "plain.svm")
    done = run(tmp_path / "plain.svm", [3], "--generate", 4)
    assert done.returncode == 2 and "is no language model: it has no function: sample" in done.stderr
