"""Configs and names of a folder for GGUF files: names against those of the package `gguf`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gguf
import numpy as np
import pytest

from shapevm.errors import ArgumentError
from shapevm.llm.config import read_config
from shapevm.llm.gguf.blocks import FORMATS
from shapevm.llm.gguf.file import GgufFile, Place
from shapevm.llm.gguf.names import INNER, NAMINGS, OUTER, config_of, tensor_names, tensor_of


def file_of(architecture: str, tensors: Mapping[str, np.ndarray[Any, Any]], **metadata: Any) -> GgufFile:
    """Return a file of f32 tensors."""
    places, at = {}, 0
    for name, array in tensors.items():
        places[name] = Place(FORMATS[0], array.shape, at)
        at += array.nbytes
    parts = [array.astype("<f4").reshape(-1).view(np.uint8) for array in tensors.values()]
    given = {f"{architecture}.{key.replace('__', '.')}": value for key, value in metadata.items()}
    data = np.concatenate(parts) if parts else np.zeros(0, np.uint8)
    return GgufFile("a.gguf", {"general.architecture": architecture, **given}, places, data)


SIZES = {
    "embedding_length": 64, "block_count": 2, "feed_forward_length": 96, "attention__head_count": 4,
    "attention__head_count_kv": 2, "context_length": 128,
}  # fmt: skip
KINDS = {kind: number for number, kind in gguf.MODEL_ARCH_NAMES.items()}


@pytest.mark.parametrize("architecture", NAMINGS)
def test_names_are_those_of_the_package(architecture: str) -> None:
    own = gguf.get_tensor_name_map(KINDS[architecture], 2)
    naming = NAMINGS[architecture]
    parts = {**OUTER, **naming.outer}, {**INNER, **naming.inner}
    names = [*parts[0], *(f"blk.1.{part}" for part in parts[1])]
    file = file_of(architecture, {f"{name}.weight": np.zeros((1, 1)) for name in names})
    known = 0
    for name, found in tensor_names(file).items():
        expected = own.get_name(name, try_suffixes=(".weight",))
        known += expected is not None
        assert expected in (None, found), name
    assert known > 8


@pytest.mark.parametrize("architecture", NAMINGS)
def test_configs_are_read(architecture: str) -> None:
    tensors = {"token_embd.weight": np.zeros((50, 64)), "output.weight": np.zeros((50, 64))}
    config = read_config(config_of(file_of(architecture, tensors, **SIZES)), "a.gguf")
    attention = config.attention
    assert (config.width, config.vocabulary, config.n_layers, config.inner) == (64, 50, 2, 96)
    assert (attention.n_heads, attention.n_keys, config.length) == (4, 2, 128)
    assert "tied" not in config.traits


def test_part_of_a_head_is_turned() -> None:
    config = config_of(file_of("phi2", {}, **SIZES, rope__dimension_count=4))
    assert config["partial_rotary_factor"] == 0.25


@pytest.mark.parametrize(("part", "heads"), [("attn_q", 4), ("attn_k", 2)])
def test_rows_of_llama(part: str, heads: int) -> None:
    """The files' order of rows is that of llama.cpp's converter."""
    folder = np.arange(heads * 16 * 3, dtype=np.float32).reshape(heads * 16, 3)
    written = folder.reshape(heads, 2, 8, 3).swapaxes(1, 2).reshape(folder.shape)
    name = f"blk.0.{part}.weight"
    np.testing.assert_array_equal(tensor_of(file_of("llama", {name: written}, **SIZES), name), folder)


def test_norms_of_gemma_and_weights_of_gpt2() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    gemma, name = file_of("gemma3", {"blk.0.attn_norm.weight": x[0]}), "blk.0.attn_norm.weight"
    np.testing.assert_array_equal(tensor_of(gemma, name), x[0] - 1)
    gpt2 = file_of("gpt2", {"blk.0.ffn_up.weight": x, "blk.0.ffn_up.bias": x[0]})
    np.testing.assert_array_equal(tensor_of(gpt2, "blk.0.ffn_up.weight"), x.T)
    np.testing.assert_array_equal(tensor_of(gpt2, "blk.0.ffn_up.bias"), x[0])


@pytest.mark.parametrize(
    ("architecture", "name", "sizes", "message"),
    [
        ("mamba", "x.weight", {}, "the architecture 'mamba' is unknown"),
        (
            "llama",
            "rope_factors_long.weight",
            {},
            'tensor "rope_factors_long.weight" is unknown for LlamaForCausalLM',
        ),
        ("llama", "blk.0.attn_q.weight", {"attention__head_count": [4]}, "has 2 rows, not those of"),
        ("llama", "blk.0.attn_q.weight", {"attention__head_count": 0}, "has 2 rows, not those of"),
        ("llama", "blk.0.attn_q.weight", {"attention__head_count": 3}, "has 2 rows, not those of"),
    ],
)
def test_other_files_are_refused(architecture: str, name: str, sizes: Any, message: str) -> None:
    file = file_of(architecture, {name: np.zeros((2, 3))}, **sizes)
    with pytest.raises(ArgumentError, match=message):
        tensor_of(file, tensor_names(file)[f"{name}"] if name == "rope_factors_long.weight" else name)
