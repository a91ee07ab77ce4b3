"""GGUF files with random weights of the shapes of known models: `python llm_files.py smollm-135m FILE`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NamedTuple

import gguf
import numpy as np

Format = gguf.GGMLQuantizationType


class Shape(NamedTuple):
    """Sizes of a Llama; the formats of its layers' matrices and of its table."""

    layers: int
    width: int
    inner: int
    heads: int
    key_heads: int
    vocabulary: int
    format: Format
    table: Format


SHAPES = {
    "smollm-135m": Shape(30, 576, 1536, 9, 3, 49152, Format.Q4_0, Format.Q8_0),
    "llama-3.2-1b": Shape(16, 2048, 8192, 32, 8, 128256, Format.Q4_K, Format.Q6_K),
}
#: Where blocks have their scales in f16.
SCALES = {Format.Q4_0: [0], Format.Q8_0: [0], Format.Q4_K: [0, 2], Format.Q6_K: [208]}
SMALL = {Format.Q4_0: 2e-3, Format.Q8_0: 2e-4, Format.Q4_K: 1e-4, Format.Q6_K: 2e-5}


def blocks(rng: np.random.Generator, rows: int, columns: int, format: Format) -> np.ndarray:
    """Return random blocks."""
    elements, n_bytes = gguf.GGML_QUANT_SIZES[format]
    made = rng.integers(0, 256, (rows * columns // elements, n_bytes), np.uint8)
    for at in SCALES[format]:
        made[:, at : at + 2] = np.array([SMALL[format]], "<f2").view(np.uint8)
    return made.reshape(rows, -1)


def matrices(shape: Shape) -> Iterator[tuple[str, int, int]]:
    """Yield the names of a layer's matrices, their rows and columns."""
    keys = shape.width // shape.heads * shape.key_heads
    yield from [("attn_q", shape.width, shape.width), ("attn_output", shape.width, shape.width)]
    yield from [("attn_k", keys, shape.width), ("attn_v", keys, shape.width)]
    yield from [("ffn_gate", shape.inner, shape.width), ("ffn_up", shape.inner, shape.width)]
    yield "ffn_down", shape.width, shape.inner


def write(name: str, path: str) -> None:
    """Write a file."""
    shape, rng = SHAPES[name], np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(shape.layers)
    writer.add_context_length(8192)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.key_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    bytes_of = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = ["<unk>", "<s>", "</s>", *bytes_of, *(f"t{i}" for i in range(shape.vocabulary - 259))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * (shape.vocabulary - 259)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_tensor(
        "token_embd.weight", blocks(rng, shape.vocabulary, shape.width, shape.table), raw_dtype=shape.table
    )
    writer.add_tensor("output_norm.weight", np.ones(shape.width, np.float32))
    for layer in range(shape.layers):
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{norm}.weight", np.ones(shape.width, np.float32))
        for part, rows, columns in matrices(shape):
            made = blocks(rng, rows, columns, shape.format)
            writer.add_tensor(f"blk.{layer}.{part}.weight", made, raw_dtype=shape.format)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    write(*sys.argv[1:])
