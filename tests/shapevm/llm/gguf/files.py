"""GGUF files of small models, written by the package `gguf`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

SPACE = "\u2581"
WORDS = ("ll", "he", "lo", "ld", "wo", "rld", "hell", "llo", "hello", "world", SPACE + "w", SPACE + "world")
#: Tokens of SentencePiece by id, with their kinds and scores.
PIECES: list[tuple[str, int, float]] = [
    ("<unk>", 2, 0.0), ("<s>", 3, 0.0), ("</s>", 3, 0.0),
    ("\n\n", 4, 0.0), ("  ", 4, 0.0), ("<turn>", 3, 0.0),
    *((f"<0x{byte:02X}>", 6, 0.0) for byte in range(256)),
    *((letter, 1, -100.0 - i) for i, letter in enumerate(SPACE + "abcdefghijklmnopqrstuvwxyz.,!\u00e4")),
    *((word, 1, -1.0 - i) for i, word in enumerate(WORDS)),
]  # fmt: skip
SENTENCEPIECE = {
    "model": "llama", "tokens": [each[0] for each in PIECES], "token_type": [each[1] for each in PIECES],
    "scores": [each[2] for each in PIECES], "bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0,
    "padding_token_id": 0,
}  # fmt: skip
#: Keys of a config in the metadata, after the architecture.
_SIZES = {
    "hidden_size": "embedding_length", "num_hidden_layers": "block_count",
    "intermediate_size": "feed_forward_length", "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv", "max_position_embeddings": "context_length",
    "head_dim": "attention.key_length", "sliding_window": "attention.sliding_window",
}  # fmt: skip
_ARCHITECTURES = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}


def add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    """Add an entry of metadata."""
    if isinstance(value, list):
        writer.add_array(key, value)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_string(key, value)


def write_gguf(
    path: Path, model: Any, architecture: str, format: gguf.GGMLQuantizationType,
    tokenizer: Mapping[str, Any], tensors: Mapping[str, Any] | None = None, **metadata: Any,
) -> None:  # fmt: skip
    """Write transformers' model with its matrices in a format; set the model's weights to those values.
    `tensors`: further ones by their names in the file."""
    writer = gguf.GGUFWriter(path, architecture)
    config = json.loads(model.config.to_json_string(use_diff=False))
    sizes = {f"{architecture}.{own}": config[key] for key, own in _SIZES.items() if config.get(key)}
    given = {**sizes, f"{architecture}.attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"])}
    own = {f"tokenizer.ggml.{key}": value for key, value in tokenizer.items() if key != "chat_template"}
    if "chat_template" in tokenizer:
        own["tokenizer.chat_template"] = tokenizer["chat_template"]
    for key, value in {**given, **own, **metadata}.items():
        add(writer, key, value)
    names = gguf.get_tensor_name_map(_ARCHITECTURES[architecture], config["num_hidden_layers"])
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    for name, parameter in model.named_parameters():
        found = names.get_name(name, try_suffixes=(".weight", ".bias"))
        values = parameter.detach().numpy()
        plain = values + 1 if architecture == "gemma3" and values.ndim == 1 else values
        part = name.split(".")[-2]
        if architecture == "llama" and part in heads:
            plain = plain.reshape(heads[part], 2, -1, *plain.shape[1:]).swapaxes(1, 2).reshape(plain.shape)
        if values.ndim == 1:
            writer.add_tensor(found, plain)
            continue
        packed = gguf.quants.quantize(plain, format)
        writer.add_tensor(found, packed, raw_dtype=format)
        with torch.no_grad():  # rows change places, so that their blocks are the same
            parameter.copy_(
                torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(values, format), format))
            )
    for name, values in (tensors or {}).items():
        writer.add_tensor(name, np.asarray(values, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
