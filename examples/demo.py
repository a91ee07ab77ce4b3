"""Encode sentences of any length with a real encoder, in Python and in the standalone runner.

python examples/demo.py                      the built-in sentences
python examples/demo.py "One." "Another."    these as well
cat lines.txt | python examples/demo.py      and these
"""

from __future__ import annotations

import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from encoder import SentenceEncoder, dynamic_shapes, example_inputs, tokenizer
from rich.console import Console

import shapevm
from shapevm.reports.tables import table_text

SENTENCES = [
    "A cat sits on the mat.",
    "Rain.",
    "The quick brown fox jumps over the lazy dog, and the dog does not mind.",
    "A kitten is lying on a rug.",
    "It is pouring outside.",
    "How do I reset my password?",
    "I cannot log in because I forgot my password; which page lets me choose a new one?",
    "Shapes that change on every call make most compilers stall, grow without bound or answer wrongly; "
    "this program was compiled once, answers any length at once, and gets faster for lengths it meets often.",
    "The stock market fell sharply on Tuesday after the central bank raised interest rates by half a point.",
    "Shares dropped when borrowing costs went up.",
    "She poured the batter into a hot pan, waited until bubbles rose to the surface, turned the pancake "
    "with a flick of the wrist, counted to thirty, slid it onto the warm plate beside the stove where eleven "
    "others were already waiting under a cloth, and then, because nobody was looking, ate the smallest of "
    "them with a spoon of plum jam before she called the children, who came at once, and their friends, who "
    "came even faster, and the neighbour, who said that he had only been passing by but had, as it happened, "
    "brought his own fork.",
    "Breakfast was ready.",
]


def sentences_from_user() -> list[str]:
    """Return the sentences of the command line and, when lines are piped in, of standard input."""
    lines: list[str] = []
    if sys.stdin is not None and not sys.stdin.isatty() and select.select([sys.stdin], [], [], 0.2)[0]:
        lines = [line.strip() for line in sys.stdin]
    return [text for text in [*sys.argv[1:], *lines] if text]


def converse(
    console: Console, embed: Callable[[str], np.ndarray], texts: list[str], vectors: np.ndarray
) -> None:
    """Print the nearest sentence to each line typed at the terminal, until an empty line."""
    while text := console.input("\ntype a sentence (nothing to end): ").strip():
        vector, ms = timed(embed, text)
        best = int(np.argmax(vectors @ vector))
        console.print(f"{ms:.2f} ms; nearest ({vectors[best] @ vector:.3f}): {texts[best]}")


def nearest_pairs(console: Console, texts: list[str], vectors: np.ndarray) -> None:
    """Print the closest pairs; vectors: f32[n, 384], unit length."""
    similarity = vectors @ vectors.T
    pairs = sorted(((similarity[i, j], i, j) for i in range(len(texts)) for j in range(i)), reverse=True)
    rows = [(_short(texts[j]), _short(texts[i]), f"{value:.3f}") for value, i, j in pairs[:5]]
    print(table_text(("one", "other", "similarity"), rows, 2, "Nearest pairs"))


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def timed(run: Callable[..., Any], *args: Any) -> tuple[Any, float]:
    """Return (result, milliseconds) of one call."""
    start = time.perf_counter()
    result = run(*args)
    return result, (time.perf_counter() - start) * 1e3


def main() -> None:
    """Run the demo."""
    console = Console()
    torch.set_num_threads(1)
    shapevm.set_threads(1)
    console.print("[bold]Loading all-MiniLM-L6-v2 (22.7 million weights)[/]")
    model, tokens = SentenceEncoder().eval(), tokenizer()
    with console.status("compiling: batch 1 to 32, length 1 to 512"):
        exe, ms = timed(
            lambda: shapevm.compile(model, kwargs=example_inputs(), dynamic_shapes=dynamic_shapes())
        )
    console.print(f"compiled once for every shape in {ms / 1e3:.1f} s: {exe.summary()}")

    texts = SENTENCES + sentences_from_user()
    inputs = [encode(tokens, text) for text in texts]
    vectors = run_all(console, exe, model, inputs)
    nearest_pairs(console, texts, vectors)
    run_standalone(console, exe, inputs[7], vectors[7])
    if sys.stdin is not None and sys.stdin.isatty():
        converse(console, lambda text: exe(**encode(tokens, text)).numpy()[0], texts, vectors)


def encode(tokens: Any, text: str) -> dict[str, torch.Tensor]:
    """Return the model's inputs for one sentence: i64[1, length] each, length at most 512."""
    item = tokens(text, return_tensors="pt", truncation=True, max_length=512)
    return {name: item[name] for name in ("input_ids", "attention_mask")}


def run_all(
    console: Console, exe: shapevm.Executable, model: torch.nn.Module, inputs: list[dict[str, torch.Tensor]]
) -> np.ndarray:
    """Embed every sentence; print what each length cost; return the vectors."""
    rows: list[tuple[str, ...]] = []
    titles = (
        "length and tier",
        "first call",
        "warm call",
        "eager",
        "times faster",
        "compiled",
        "from cache",
        "difference",
    )
    for item in sorted(inputs, key=lambda item: item["input_ids"].shape[1]):
        before = exe.stats()
        _, first = timed(lambda item=item: exe(**item))
        for _ in range(3):
            exe(**item)
        exe.wait_until_specialised()
        after = exe.stats()
        with torch.inference_mode():
            expected = model(**item)
            ours, theirs = paired(lambda item=item: exe(**item), lambda item=item: model(**item))
        difference = float((exe(**item) - expected).abs().max())
        ran = after.since(before)
        counts = [str(ran.compiled), str(ran.from_cache), f"{difference:.1e}"]
        times = [f"{first:.2f}", f"{ours:.2f}", f"{theirs:.2f}", f"{theirs / ours:.2f}"]
        rows.append((f"{item['input_ids'].shape[1]}, {ran.tier()}", *times, *counts))
    vectors = [exe(**item).numpy()[0] for item in inputs]
    print(table_text(titles, rows, title="One program, every length (one core, milliseconds)"))
    return np.stack(vectors)


def paired(a: Callable[[], Any], b: Callable[[], Any], rounds: int = 9) -> tuple[float, float]:
    """Return the median milliseconds of both, measured in turn."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for run, kept in zip((a, b), times, strict=True):
            kept.append(timed(run)[1])
    return statistics.median(times[0]), statistics.median(times[1])


def run_standalone(
    console: Console, exe: shapevm.Executable, item: dict[str, torch.Tensor], expected: np.ndarray
) -> None:
    """Save the artifact and run it with the C program, which needs neither Python nor PyTorch nor LLVM."""
    with tempfile.TemporaryDirectory() as folder:
        artifact, output = Path(folder, "minilm.svm"), Path(folder, "out.npz")
        exe.save(artifact)
        command = [str(shapevm.runner_path()), str(artifact), "--output", str(output)]
        command += ["--repeat", "5", "--threads", "1"]
        for name, tensor in item.items():
            np.save(Path(folder, f"{name}.npy"), tensor.numpy())
            command += ["--input", f"{name}={Path(folder, name)}.npy"]
        console.print(
            "\n[bold]The same program in C:[/] shapevm-run minilm.svm --input input_ids=input_ids.npy ..."
        )
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        console.print(printed.strip(), highlight=False)
        (result,) = np.load(output).values()
        same = np.array_equal(result[0].view(np.uint32), expected.view(np.uint32))
        megabytes, kilobytes = artifact.stat().st_size / 1e6, shapevm.runner_path().stat().st_size / 1e3
        sizes = f"artifact {megabytes:.1f} MB, runner {kilobytes:.0f} KB"
        console.print(f"{sizes}; bits equal to Python's: [bold]{'yes' if same else 'NO'}[/]")
        if not same:
            raise SystemExit("the runner's result differs from Python's")


if __name__ == "__main__":
    main()
