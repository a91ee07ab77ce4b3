"""A BERT of Hugging Face as a file of llama.cpp (GGUF), in f32."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def gguf_file(folder: Path, scratch: Path) -> Path:
    """Write the file, if it is not there, and return its path."""
    path = scratch / f"{folder.name}.gguf"
    if not path.exists():
        _write(folder, path)
    return path


def _write(folder: Path, path: Path) -> None:
    import gguf
    from safetensors.numpy import load_file

    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(str(path), "bert")
    _write_sizes(writer, config)
    _write_vocabulary(writer, folder)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, config["num_hidden_layers"])
    for name, array in load_file(folder / "model.safetensors").items():
        name = name.removeprefix("bert.")
        if "position_ids" not in name and "pooler" not in name:
            writer.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")), array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_sizes(writer: Any, config: dict[str, Any]) -> None:
    import gguf

    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)


def _write_vocabulary(writer: Any, folder: Path) -> None:
    """Write the word pieces: llama.cpp marks the beginning of a word, not its continuation."""
    import gguf

    words = (folder / "vocab.txt").read_text().splitlines()
    special = {word: index for index, word in enumerate(words) if word[:1] == "[" and word[-1:] == "]"}
    pieces = [
        word if word in special else word[2:] if word.startswith("##") else "\u2581" + word for word in words
    ]
    kinds = [gguf.TokenType.CONTROL if word in special else gguf.TokenType.NORMAL for word in words]
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(pieces)
    writer.add_token_types(kinds)
    writer.add_token_type_count(2)
    for add, word in (
        (writer.add_bos_token_id, "[CLS]"),
        (writer.add_eos_token_id, "[SEP]"),
        (writer.add_sep_token_id, "[SEP]"),
        (writer.add_unk_token_id, "[UNK]"),
        (writer.add_pad_token_id, "[PAD]"),
        (writer.add_mask_token_id, "[MASK]"),
    ):
        add(special[word])
