"""config.json to the sizes of a model; the file is untrusted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shapevm.errors import ArgumentError
from shapevm.llm.config import Config, read_config

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48, "rms_norm_eps": 1e-5,
}  # fmt: skip
SCALED = {
    "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip


def _read(**more: Any) -> Config:
    return read_config({**LLAMA, **more}, "config.json")


def _gemma(**more: Any) -> Config:
    return _read(architectures=["Gemma3ForCausalLM"], sliding_window=512, **more)


def test_both_forms_of_gemmas_rotary_positions_and_windows_are_read() -> None:
    old = _gemma(rope_theta=1e6, rope_local_base_freq=1e4, sliding_window_pattern=2)
    kinds = ["sliding_attention", "full_attention"]
    rope = {"sliding_attention": {"rope_theta": 1e4}, "full_attention": {"rope_theta": 1e6}}
    assert old == _gemma(rope_parameters=rope, layer_types=kinds * 2) == _gemma(sliding_window_pattern=2)
    assert old.attention.windows == (512, 0, 512, 0)
    assert [each.base for each in old.attention.rotaries if each] == [1e4, 1e6, 1e4, 1e6]


def test_a_scaling_of_the_whole_model_is_not_that_of_gemmas_windows() -> None:
    scaled = _gemma(rope_scaling={"rope_type": "linear", "factor": 8.0}).attention
    assert [each.scaling for each in scaled.rotaries if each] == ["default"] * 4
    full = _gemma(rope_scaling={"type": "linear", "factor": 8.0}, sliding_window_pattern=1).attention
    assert full.rotaries[0] is not None and full.rotaries[0].factors == (8.0,)


def test_llama_3s_frequencies_are_those_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rotary = _read(rope_scaling=SCALED, rope_theta=5e5, head_dim=64).attention.rotaries[0]
    rope = {**SCALED, "rope_theta": 5e5}
    config = transformers.LlamaConfig(hidden_size=256, num_attention_heads=4, rope_parameters=rope)
    wanted, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    assert rotary is not None
    np.testing.assert_allclose(rotary.frequencies(), wanted.numpy(), rtol=1e-6)


def test_qwens_window_begins_at_a_layer_and_needs_its_flag() -> None:
    qwen = {"architectures": ["Qwen2ForCausalLM"], "sliding_window": 9, "max_window_layers": 3}
    assert _read(**qwen, use_sliding_window=True).attention.windows == (0, 0, 0, 9)
    assert _read(**qwen, use_sliding_window=False).attention.windows == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"architectures": ["BertModel"]},
            "the architecture 'BertModel' is unknown; known are LlamaForCausalLM",
        ),
        ({"architectures": []}, "the architecture .* is unknown"),
        ({"architectures": [[]]}, "the architecture .* is unknown"),
        ({"vocab_size": None}, "it must be an object with vocab_size, hidden_size"),
        (
            {"vocab_size": 1 << 40},
            "vocab_size is 1099511627776; it must be a whole number from 1 to 16777216",
        ),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"hidden_size": "32"}, "hidden_size is '32'"),
        ({"hidden_size": 34}, "without head_dim it must be a multiple of 4"),
        ({"num_key_value_heads": 3}, "num_attention_heads is 4; it must be a multiple of 3"),
        (
            {"num_hidden_layers": 10**6},
            "num_hidden_layers is 1000000; it must be a whole number from 1 to 512",
        ),
        ({"hidden_act": "mish"}, "hidden_act is 'mish'; it must be .*silu"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"),
        ({"rms_norm_eps": 2}, "the epsilon of its norms is 2; it must be at least 0 and below 1"),
        ({"layer_types": ["full_attention"]}, "layer_types has 1 entries; there are 4 layers"),
        ({"layer_types": ["chunked"] * 4}, "layer_types"),
        (
            {"rope_scaling": {"type": "yarn", "factor": 4.0}},
            "the scaling 'yarn' of rotary positions is unknown",
        ),
        ({"rope_scaling": {"type": "linear"}}, "the scaling linear of rotary positions has the factors"),
        ({"rope_scaling": {"type": ["linear"]}}, "rope_scaling"),
        ({"rope_scaling": {"full_attention": 3}}, "have no settings for layers of full_attention"),
        ({"rope_scaling": {**SCALED, "factor": "8"}}, "factor is '8'; it must be a number"),
        ({"rope_theta": 0}, "rotary positions have base 0.0"),
        ({"partial_rotary_factor": 0.4}, "rotate 3 of 8 numbers of a head"),
        ({"architectures": ["PhiForCausalLM"], "qk_layernorm": True}, "qk_layernorm is true"),
    ],
)
def test_other_configs_are_refused_in_one_sentence(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=f"config.json: .*{said}"):
        _read(**more)


@pytest.mark.parametrize("data", [None, [], "x", 3])
def test_other_json_is_refused(data: Any) -> None:
    with pytest.raises(ArgumentError, match="it must hold an object"):
        read_config(data, "config.json")
