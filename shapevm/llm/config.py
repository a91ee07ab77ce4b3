"""From a folder's config.json to the sizes of a model. The file is untrusted: every value is checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..vm.errors import ArgumentError
from ..vm.schema import BOOLEAN, Integer, ListOf, Number, Object, Refused, Schema, Text
from .architectures import ARCHITECTURES, Architecture
from .rotary import ROPE, Rotary, rotary

MAX_LAYERS, MAX_SIZE = 512, 1 << 24
ACTIVATIONS: Mapping[str, tuple[str, Mapping[str, str]]] = {  # the function of shapevm.nn, and its arguments
    "silu": ("silu", {}), "swish": ("silu", {}), "gelu": ("gelu", {}), "relu": ("relu", {}),
    "gelu_new": ("gelu", {"approximate": "tanh"}), "gelu_pytorch_tanh": ("gelu", {"approximate": "tanh"}),
    "gelu_fast": ("gelu", {"approximate": "tanh"}),
}  # fmt: skip
FULL, SLIDING = "full_attention", "sliding_attention"  # kinds of layers
#: Other names of keys: GPT-2's, and those that some architectures prefer.
NAMES = {
    "n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads",
    "n_inner": "intermediate_size", "n_positions": "max_position_embeddings",
    "activation_function": "hidden_act", "hidden_activation": "hidden_act",
    "layer_norm_epsilon": "rms_norm_eps", "layer_norm_eps": "rms_norm_eps",
}  # fmt: skip
_SIZE, _FLAG = Integer(1, MAX_SIZE), BOOLEAN
_KIND = Text(among=(FULL, SLIDING))
REQUIRED: Mapping[str, Schema] = {
    "vocab_size": _SIZE, "hidden_size": _SIZE, "num_hidden_layers": Integer(1, MAX_LAYERS),
    "num_attention_heads": Integer(1, 1 << 12),
}  # fmt: skip
OPTIONAL: Mapping[str, Schema] = {
    "num_key_value_heads": Integer(1, 1 << 12), "head_dim": Integer(1, 1 << 12), "intermediate_size": _SIZE,
    "max_position_embeddings": _SIZE, "hidden_act": Text(among=tuple(ACTIVATIONS)),
    "rms_norm_eps": Number(), "rope_theta": Number(), "rope_local_base_freq": Number(),
    "partial_rotary_factor": Number(), "query_pre_attn_scalar": Number(), "final_logit_softcapping": Number(),
    "attn_logit_softcapping": Number(), "sliding_window": _SIZE, "sliding_window_pattern": _SIZE,
    "max_window_layers": Integer(0, MAX_LAYERS), "use_sliding_window": _FLAG, "tie_word_embeddings": _FLAG,
    "attention_bias": _FLAG, "mlp_bias": _FLAG, "qk_layernorm": _FLAG,
    "layer_types": ListOf(_KIND, most=MAX_LAYERS), "rope_scaling": ROPE, "rope_parameters": ROPE,
}  # fmt: skip


@dataclass(frozen=True)
class Attention:
    """Heads of `size`, of which `n_keys` have keys and values; for each layer its `windows` (positions seen,
    0: all) and its `rotaries` (None: positions are not rotated)."""

    n_heads: int
    n_keys: int
    size: int
    scale: float
    soft_cap: float
    windows: tuple[int, ...]
    rotaries: tuple[Rotary | None, ...]


@dataclass(frozen=True)
class Config:
    """The sizes of a model of `architecture`. `inner`: of the MLP; `length`: the most positions; `biases` and
    `traits`: those of the architecture and of the config; `soft_cap`: of the logits, 0 for none."""

    architecture: str
    vocabulary: int
    width: int
    inner: int
    length: int
    activation: str
    eps: float
    biases: frozenset[str]
    traits: frozenset[str]
    attention: Attention
    soft_cap: float

    @property
    def kind(self) -> Architecture:
        """The row of the architecture."""
        return ARCHITECTURES[self.architecture]

    @property
    def n_layers(self) -> int:
        """The number of layers."""
        return len(self.attention.windows)


def read_config(data: Any, where: str) -> Config:
    """Return the config of a config.json's content. Raises ArgumentError, which names `where`, for a model
    that is unknown and for values that are no model's."""
    try:
        return _config(data)
    except Refused as error:
        raise ArgumentError(f"{where}: {error}") from None


def _config(data: Any) -> Config:
    if not isinstance(data, Mapping):
        raise Refused(f"it holds a {type(data).__name__}; it must hold an object")
    names = data.get("architectures")
    name = names[0] if isinstance(names, list) and names else names
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise Refused(f"the architecture {name!r:.80} is unknown; known are {', '.join(ARCHITECTURES)}")
    kind = ARCHITECTURES[name]
    given = {k: v for k, v in data.items() if v is not None}
    plain = {NAMES.get(k, k): v for k, v in {**kind.defaults, **given}.items()}
    known = {**REQUIRED, **OPTIONAL}
    said = Object(REQUIRED, OPTIONAL).read({k: v for k, v in plain.items() if k in known}, ())
    if said.get("qk_layernorm"):
        raise Refused("qk_layernorm is true; norms of Phi's queries and keys are not known")
    eps = said.get("rms_norm_eps", 1e-6)
    if not 0 <= eps < 1:
        raise Refused(f"the epsilon of its norms is {eps}; it must be at least 0 and below 1")
    return Config(
        architecture=name,
        vocabulary=said["vocab_size"],
        width=said["hidden_size"],
        inner=said.get("intermediate_size", 4 * said["hidden_size"]),
        length=said.get("max_position_embeddings", 2048),
        activation=said.get("hidden_act", "silu"),
        eps=eps,
        biases=kind.biases | _flagged(said, {"attention_bias": ("qkv", "out"), "mlp_bias": ("feed",)}),
        traits=_traits(kind, said),
        attention=_attention(kind, said),
        soft_cap=said.get("final_logit_softcapping", 0.0),
    )


def _flagged(said: Mapping[str, Any], rows: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    return frozenset(name for flag, names in rows.items() if said.get(flag) for name in names)


def _traits(kind: Architecture, said: Mapping[str, Any]) -> frozenset[str]:
    is_tied = said.get("tie_word_embeddings", "tied" in kind.traits)
    return (kind.traits - {"tied"}) | ({"tied"} if is_tied else set())


def _attention(kind: Architecture, said: Mapping[str, Any]) -> Attention:
    width, n_heads = said["hidden_size"], said["num_attention_heads"]
    n_keys = said.get("num_key_value_heads", n_heads)
    if n_heads % n_keys:
        raise Refused(f"num_attention_heads is {n_heads}; it must be a multiple of {n_keys}, those of keys")
    if "head_dim" not in said and width % n_heads:
        raise Refused(
            f"hidden_size is {width}; without head_dim it must be a multiple of {n_heads}, the heads"
        )
    size = said.get("head_dim", width // n_heads)
    scalar = said.get("query_pre_attn_scalar", size)
    if scalar <= 0:
        raise Refused(f"query_pre_attn_scalar is {scalar}; it must be above 0")
    kinds = _kinds(kind, said)
    window = said.get("sliding_window", 0)
    has_rotation = "positions" not in kind.traits
    return Attention(
        n_heads=n_heads,
        n_keys=n_keys,
        size=size,
        scale=1 / math.sqrt(scalar),
        soft_cap=said.get("attn_logit_softcapping", 0.0),
        windows=tuple(window if each == SLIDING else 0 for each in kinds),
        rotaries=tuple(rotary(said, each, size) if has_rotation else None for each in kinds),
    )


def _kinds(kind: Architecture, said: Mapping[str, Any]) -> list[str]:
    """Return which attention each layer has."""
    n = said["num_hidden_layers"]
    if "layer_types" in said:
        if len(said["layer_types"]) != n:
            raise Refused(f"layer_types has {len(said['layer_types'])} entries; there are {n} layers")
        return list(said["layer_types"])
    if "sliding_window_pattern" in said:
        period = said["sliding_window_pattern"]
        return [SLIDING if (i + 1) % period else FULL for i in range(n)]
    if "windows" in kind.traits:
        return [SLIDING if "sliding_window" in said else FULL] * n
    first = said.get("max_window_layers", n) if said.get("use_sliding_window") else n
    return [SLIDING if i >= first else FULL for i in range(n)]
