"""The table of architectures: how each differs from a plain decoder, and its names of weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Part:
    """The name in a folder of a module's weights. Of modules that share a tensor, `place` gives the order of
    their rows."""

    name: str
    place: int = 0


#: Names of the outer modules, and of those in a layer, as Llama's folders have them.
OUTER = {"embedding": "model.embed_tokens", "layers": "model.layers", "norm": "model.norm", "head": "lm_head"}
INNER = {
    "before_attention": Part("input_layernorm"),
    "before_feed": Part("post_attention_layernorm"),
    "attention.query": Part("self_attn.q_proj"),
    "attention.key": Part("self_attn.k_proj"),
    "attention.value": Part("self_attn.v_proj"),
    "attention.out": Part("self_attn.o_proj"),
    "attention.query_norm": Part("self_attn.q_norm"),
    "attention.key_norm": Part("self_attn.k_norm"),
    "feed.gate": Part("mlp.gate_proj"),
    "feed.up": Part("mlp.up_proj"),
    "feed.down": Part("mlp.down_proj"),
}


def _fused(name: str) -> dict[str, Part]:
    """Return the parts of a tensor that holds queries, keys and values."""
    names = ("attention.query", "attention.key", "attention.value")
    return {each: Part(name, place) for place, each in enumerate(names)}


@dataclass(frozen=True)
class Architecture:
    """What an architecture is besides the numbers of its config.

    `norm`: "rms", "rms1" (its weight is stored less 1) or "layer". `biases`: of "qkv", "out", "feed" and
    "head". `traits`: of "gated" (the MLP), "qk_norm", "after_norms" (norms of results), "parallel" (attention
    and MLP read the same norm), "scaled" (embeddings times the root of the width), "positions" (a table of
    them, no rotation), "tied" (the head is the embedding unless the config says otherwise), "transposed"
    (weights of layers are stored as [in, out]), "windows" (every layer has the config's sliding window).
    `outer`, `inner`: names of weights that differ from `OUTER` and `INNER`. `defaults`: of
    the config's keys.
    """

    norm: str = "rms"
    biases: frozenset[str] = frozenset()
    traits: frozenset[str] = frozenset({"gated"})
    outer: Mapping[str, str] = field(default_factory=dict)
    inner: Mapping[str, Part] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)


_GEMMA3 = Architecture(
    norm="rms1",
    traits=frozenset({"gated", "qk_norm", "after_norms", "scaled", "tied"}),
    inner={
        "after_attention": Part("post_attention_layernorm"),
        "before_feed": Part("pre_feedforward_layernorm"),
        "after_feed": Part("post_feedforward_layernorm"),
    },
    defaults={
        "rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window_pattern": 6, "sliding_window": 4096,
        "query_pre_attn_scalar": 256, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
    },
)  # fmt: skip
_PHI = Architecture(
    norm="layer",
    biases=frozenset({"qkv", "out", "feed", "head"}),
    traits=frozenset({"parallel"}),
    outer={"norm": "model.final_layernorm"},
    inner={
        "attention.out": Part("self_attn.dense"),
        "feed.up": Part("mlp.fc1"),
        "feed.down": Part("mlp.fc2"),
    },
    defaults={"partial_rotary_factor": 0.5, "hidden_act": "gelu_new", "layer_norm_eps": 1e-5},
)
_PHI3 = Architecture(
    traits=frozenset({"gated", "windows"}),
    inner={
        **_fused("self_attn.qkv_proj"),
        "feed.gate": Part("mlp.gate_up_proj"),
        "feed.up": Part("mlp.gate_up_proj", 1),
    },
    defaults={"rms_norm_eps": 1e-5},
)
_GPT2 = Architecture(
    norm="layer",
    biases=frozenset({"qkv", "out", "feed"}),
    traits=frozenset({"positions", "tied", "transposed"}),
    outer={
        "embedding": "transformer.wte", "positions": "transformer.wpe", "layers": "transformer.h",
        "norm": "transformer.ln_f",
    },
    inner={
        **_fused("attn.c_attn"),
        "before_attention": Part("ln_1"),
        "before_feed": Part("ln_2"),
        "attention.out": Part("attn.c_proj"),
        "feed.up": Part("mlp.c_fc"),
        "feed.down": Part("mlp.c_proj"),
    },
    defaults={"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5},
)  # fmt: skip

#: By the name in a config's "architectures".
ARCHITECTURES: Mapping[str, Architecture] = {
    "LlamaForCausalLM": Architecture(),
    "MistralForCausalLM": Architecture(traits=frozenset({"gated", "windows"})),
    "Qwen2ForCausalLM": Architecture(biases=frozenset({"qkv"})),
    "Qwen3ForCausalLM": Architecture(traits=frozenset({"gated", "qk_norm"})),
    "Gemma3ForCausalLM": _GEMMA3,
    "PhiForCausalLM": _PHI,
    "Phi3ForCausalLM": _PHI3,
    "GPT2LMHeadModel": _GPT2,
}
