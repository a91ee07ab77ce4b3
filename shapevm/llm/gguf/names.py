"""From a GGUF file to what a Hugging Face folder holds: its config and the names of its tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...nn.quantised import Quantised
from ...vm.errors import ArgumentError
from .file import GgufFile

Values = np.ndarray[Any, Any] | Quantised
#: Changes a tensor of a file to the folder's; takes the number of heads of its rows.
Change = Callable[[Values, int], Values]


def _each(change: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]], values: Values) -> Values:
    if not isinstance(values, Quantised):
        return change(values)
    zeros = None if values.zeros is None else change(values.zeros)
    return Quantised(change(values.integers), change(values.scales), zeros)


def _halves(values: Values, n_heads: int) -> Values:
    """Return the rows of queries or keys of Llama, whose files have the halves of a head interleaved."""

    def change(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        pairs = x.reshape(n_heads, x.shape[0] // n_heads // 2, 2, *x.shape[1:])
        return pairs.swapaxes(1, 2).reshape(x.shape)

    return _each(change, values)


def _less_one(values: Values, n_heads: int) -> Values:
    array = values.values() if isinstance(values, Quantised) else values
    return array - np.float32(1)


def _transposed(values: Values, n_heads: int) -> Values:
    return _each(np.transpose, values)


FREQUENCIES = "rope_freqs.weight"  # divisors of the frequencies of rotary positions
OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
INNER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
#: Keys of a config by those of the metadata after the architecture.
KEYS = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.layer_norm_epsilon": "layer_norm_eps",
    "attention.sliding_window": "sliding_window",
    "rope.freq_base": "rope_theta",
    "final_logit_softcapping": "final_logit_softcapping",
}


@dataclass(frozen=True)
class Naming:
    """How a file of an architecture differs from a folder of `architecture`: names of layers (`layers`),
    tensors besides `OUTER` and `INNER`, and `changes` of tensors by the last part of their names."""

    architecture: str
    outer: Mapping[str, str] = field(default_factory=dict)
    inner: Mapping[str, str] = field(default_factory=dict)
    changes: Mapping[str, Change] = field(default_factory=dict)
    layers: str = "model.layers"


_GEMMA_NORMS = ("attn_norm", "attn_q_norm", "attn_k_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
#: By "general.architecture".
NAMINGS: Mapping[str, Naming] = {
    "llama": Naming("LlamaForCausalLM", changes={"attn_q": _halves, "attn_k": _halves}),
    "qwen2": Naming("Qwen2ForCausalLM"),
    "qwen3": Naming("Qwen3ForCausalLM"),
    "gemma3": Naming(
        "Gemma3ForCausalLM",
        inner={
            "post_attention_norm": "post_attention_layernorm",
            "ffn_norm": "pre_feedforward_layernorm",
            "post_ffw_norm": "post_feedforward_layernorm",
        },
        changes=dict.fromkeys((*_GEMMA_NORMS, "output_norm"), _less_one),
    ),
    "phi2": Naming(
        "PhiForCausalLM",
        outer={"output_norm": "model.final_layernorm"},
        inner={"attn_output": "self_attn.dense", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"},
    ),
    "phi3": Naming("Phi3ForCausalLM", inner={"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}),
    "gpt2": Naming(
        "GPT2LMHeadModel",
        outer={
            "token_embd": "transformer.wte",
            "position_embd": "transformer.wpe",
            "output_norm": "transformer.ln_f",
        },
        inner={
            "attn_norm": "ln_1",
            "ffn_norm": "ln_2",
            "attn_qkv": "attn.c_attn",
            "attn_output": "attn.c_proj",
            "ffn_up": "mlp.c_fc",
            "ffn_down": "mlp.c_proj",
        },
        changes=dict.fromkeys(("attn_qkv", "attn_output", "ffn_up", "ffn_down"), _transposed),
        layers="transformer.h",
    ),
}


def config_of(file: GgufFile) -> dict[str, Any]:
    """Return the content of the config.json of a file's model, for `read_config`, which checks it. Raises
    ArgumentError for an unknown architecture."""
    name, naming = _naming(file)
    found = {key: file.metadata.get(f"{name}.{other}") for other, key in KEYS.items()}
    config = {key: value for key, value in found.items() if value is not None}
    if name == "gemma3":
        config |= _scale_of_gemma(config)
    table = file.places.get("token_embd.weight")
    return {
        **config,
        **_rotation(file, name, config),
        "architectures": [naming.architecture],
        "vocab_size": table.shape[0] if table and table.shape else 0,
        "tie_word_embeddings": "output.weight" not in file.places,
    }


def _scale_of_gemma(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the number whose root divides scores: the size of a head, except in the model of 62 layers."""
    width, heads, size = (config.get(key) for key in ("hidden_size", "num_attention_heads", "head_dim"))
    is_largest = config.get("num_hidden_layers") == 62 and isinstance(width, int) and isinstance(heads, int)
    scalar = width // heads if is_largest and width and heads else size
    return {} if scalar is None else {"query_pre_attn_scalar": scalar}


def _rotation(file: GgufFile, name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of rotary positions: the part of a head that is turned, and scaling."""
    found: dict[str, Any] = {}
    width, heads = config.get("hidden_size"), config.get("num_attention_heads")
    turned, size = file.metadata.get(f"{name}.rope.dimension_count"), config.get("head_dim")
    if size is None and isinstance(width, int) and isinstance(heads, int) and heads:
        size = width // heads
    if isinstance(turned, int) and isinstance(size, int) and 0 < turned < size:
        found["partial_rotary_factor"] = turned / size
    kind = file.metadata.get(f"{name}.rope.scaling.type", "none")
    if kind != "none":
        found["rope_scaling"] = {
            "rope_type": kind,
            "factor": file.metadata.get(f"{name}.rope.scaling.factor"),
        }
    return found


def tensor_names(file: GgufFile) -> dict[str, str]:
    """Return the names of a file's tensors by those of a folder. Raises ArgumentError for an unknown
    architecture, and for a tensor that its folders do not have, such as long factors of rotations."""
    _, naming = _naming(file)
    outer, inner = {**OUTER, **naming.outer}, {**INNER, **naming.inner}
    names = {}
    for name in file.places:
        stem, _, kind = name.rpartition(".")
        block, _, rest = stem.partition(".")
        number, _, part = rest.partition(".")
        if block == "blk" and number.isdigit() and part in inner:
            names[f"{naming.layers}.{number}.{inner[part]}.{kind}"] = name
        elif stem in outer:
            names[f"{outer[stem]}.{kind}"] = name
        elif name != FREQUENCIES:
            raise ArgumentError(
                f'{file.path}: tensor "{name:.80}" is unknown for {naming.architecture}; models with it are '
                "not read"
            )
    return names


def tensor_of(file: GgufFile, name: str) -> Values:
    """Return a tensor, named as in the file, with the values that the folder's has."""
    architecture, naming = _naming(file)
    part, _, kind = name.rpartition(".")
    part = part.rpartition(".")[2]
    change, values = naming.changes.get(part), file.tensor(name)
    if change is None or (change is _transposed and kind == "bias"):
        return values
    heads = file.metadata.get(f"{architecture}.attention.head_count", 1)
    if part == "attn_k":
        heads = file.metadata.get(f"{architecture}.attention.head_count_kv", heads)
    if not isinstance(heads, int) or heads < 1 or (change is _halves and values.shape[0] % (2 * heads)):
        raise ArgumentError(
            f'{file.path}: tensor "{name:.80}" has {values.shape[0]} rows, not those of {heads!r:.40} heads; '
            "the file's counts of heads must be those of its model"
        )
    return change(values, heads)


def _naming(file: GgufFile) -> tuple[str, Naming]:
    name = file.metadata.get("general.architecture")
    if not isinstance(name, str) or name not in NAMINGS:
        raise ArgumentError(
            f"{file.path}: the architecture {name!r:.80} is unknown; known are {', '.join(NAMINGS)}"
        )
    return name, NAMINGS[name]
