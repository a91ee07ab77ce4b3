"""Small text models with random weights, in folders as Hugging Face and sentence-transformers write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from tokenizers import models, normalizers, pre_tokenizers, processors

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
WORDS = [
    "the", "a", "of", "cat", "dog", "sat", "ran", "on", "mat", "hill", "query", "passage", ":", "red", "blue",
    "green", "one", "two", "three",
]  # fmt: skip
SMALL = {
    "vocab_size": 48, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 48, "max_position_embeddings": 70, "pad_token_id": 0,
}  # fmt: skip
#: By family: the class of its config and what differs from `SMALL`.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertConfig", {}),
    "roberta": ("RobertaConfig", {"pad_token_id": 1, "type_vocab_size": 1}),
    "xlm-roberta": ("XLMRobertaConfig", {"pad_token_id": 1, "type_vocab_size": 1}),
    "mpnet": ("MPNetConfig", {"pad_token_id": 1}),
    "distilbert": ("DistilBertConfig", {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 48}),
    "modernbert": (
        "ModernBertConfig",
        {"local_attention": 8, "global_attn_every_n_layers": 2, "cls_token_id": 2, "sep_token_id": 3},
    ),
}
POOLING = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}


def tokenizer(pad: int, has_types: bool) -> transformers.PreTrainedTokenizerFast:
    """Return a tokenizer of words, with the id `pad` for padding; `has_types`: it returns token_type_ids."""
    first = SPECIAL if pad == 0 else ["[UNK]", "[PAD]", *SPECIAL[2:]]
    vocabulary = {word: index for index, word in enumerate([*first, *WORDS])}
    made = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    names = ["input_ids", *(["token_type_ids"] if has_types else []), "attention_mask"]
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, model_input_names=names, **special)


def write_json(path: Path, data: Any) -> None:
    """Write JSON, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


def write_model(folder: Path, family: str, head: str = "AutoModel", **more: Any) -> Path:
    """Write a transformer with random weights and its tokenizer. `head`: a class of transformers."""
    named, own = FAMILIES[family]
    config = getattr(transformers, named)(**{**SMALL, **own, **more})
    torch.manual_seed(3)
    getattr(transformers, head).from_config(config).save_pretrained(folder)
    tokenizer(config.pad_token_id, family == "bert").save_pretrained(folder)
    return folder


def write_encoder(folder: Path, family: str = "bert", pooling: Any = POOLING, **said: Any) -> Path:
    """Write a sentence encoder with a pooling and a normalisation. `said`: its prompts and the like."""
    write_model(folder, family)
    names = ["Transformer", "Pooling", "Normalize"]
    places = ["", "1_Pooling", "2_Normalize"]
    rows = [
        {"idx": i, "name": str(i), "path": place, "type": f"sentence_transformers.models.{name}"}
        for i, (name, place) in enumerate(zip(names, places, strict=True))
    ]
    write_json(folder / "modules.json", rows)
    write_json(folder / "1_Pooling" / "config.json", pooling)
    (folder / "2_Normalize").mkdir()
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 24, "do_lower_case": False})
    write_json(folder / "config_sentence_transformers.json", said)
    return folder


def texts(count: int = 30) -> list[str]:
    """Return texts of 0 to 40 words."""
    generator = torch.Generator().manual_seed(5)
    lengths = torch.randint(0, 40, (count,), generator=generator).tolist()
    return [
        " ".join(WORDS[i] for i in torch.randint(0, len(WORDS), (n,), generator=generator).tolist())
        for n in lengths
    ]
