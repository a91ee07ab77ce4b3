"""Small models of families that `tests/models` does not have (`transformers`)."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers as T

_TEXT = {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
_WIDE = _TEXT | {"intermediate_size": 32}
_DECODER = _WIDE | {"num_key_value_heads": 1, "use_cache": False}
_VISION = {"image_size": 16, "patch_size": 4, "hidden_size": 16, "num_hidden_layers": 1}
_VISION |= {"num_attention_heads": 2, "intermediate_size": 32}


class _First(torch.nn.Module):
    """A model that returns the tensors of what `model` returns."""

    def __init__(self, model: Any, **more: Any) -> None:
        super().__init__()
        self.model, self.more = model, more

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.model(*args, **self.more)[0]


def _make(name: str, config: str, options: dict[str, Any], args: Any, **more: Any) -> Any:
    def make() -> tuple[Any, tuple[torch.Tensor, ...], dict[str, Any]]:
        model = getattr(T, name)(getattr(T, config)(**options))
        return _First(model, return_dict=False, **more), args(), {}

    return make


def _tokens() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(5, 64, (2, 7)), torch.tensor([[1] * 7, [1] * 5 + [0] * 2])


def _image(side: int = 16) -> Any:
    return lambda: (torch.randn(2, 3, side, side),)


def _text(name: str, **options: Any) -> Any:
    return _make(f"{name}Model", f"{name}Config", _WIDE | options, _tokens)


def _decoder(name: str, **options: Any) -> Any:
    return _make(f"{name}ForCausalLM", f"{name}Config", _DECODER | options, _tokens)


def _vision(name: str, side: int = 16, **options: Any) -> Any:
    return _make(f"{name}Model", f"{name}Config", options, _image(side))


def _sound(length: int = 400) -> tuple[torch.Tensor]:
    return (torch.randn(2, length),)


_SPEECH = _WIDE | {
    "conv_dim": (8, 8),
    "conv_kernel": (10, 4),
    "conv_stride": (5, 4),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
}

PROGRAMS = {
    "Roberta": _text("Roberta"),
    "Albert": _text("Albert", embedding_size=8),
    "Electra": _text("Electra", embedding_size=8),
    "DistilBert": _make(
        "DistilBertModel",
        "DistilBertConfig",
        {"vocab_size": 64, "dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32},
        _tokens,
    ),
    "MPNet": _text("MPNet"),
    "Deberta": _text("Deberta", relative_attention=True, pos_att_type=["c2p", "p2c"]),
    "DebertaV2": _text("DebertaV2", relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=4),
    "ModernBert": _text(
        "ModernBert", pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2
    ),
    "ConvBert": _text("ConvBert", embedding_size=16, conv_kernel_size=3),
    "RoFormer": _text("RoFormer"),
    "FNet": _make("FNetModel", "FNetConfig", _WIDE, lambda: _tokens()[:1]),
    "SqueezeBert": _text("SqueezeBert", embedding_size=16, q_groups=2, k_groups=2, v_groups=2),
    "XLMRoberta for labels": _make("XLMRobertaForSequenceClassification", "XLMRobertaConfig", _WIDE, _tokens),
    "Bert for answers": _make("BertForQuestionAnswering", "BertConfig", _WIDE, _tokens),
    "Mistral": _decoder("Mistral", sliding_window=4),
    "Qwen2": _decoder("Qwen2"),
    "Qwen3": _decoder("Qwen3", head_dim=8),
    "Gemma": _decoder("Gemma", head_dim=8),
    "Gemma2": _decoder("Gemma2", head_dim=8, sliding_window=4),
    "Phi3": _decoder("Phi3", pad_token_id=0),
    "OLMo2": _decoder("Olmo2"),
    "Granite": _decoder("Granite"),
    "StableLm": _decoder("StableLm"),
    "GPTNeoX": _decoder("GPTNeoX"),
    "Bloom": _make(
        "BloomForCausalLM",
        "BloomConfig",
        {"vocab_size": 64, "hidden_size": 16, "n_layer": 1, "n_head": 2, "use_cache": False},
        lambda: _tokens()[:1],
    ),
    "OPT": _make(
        "OPTForCausalLM",
        "OPTConfig",
        _TEXT | {"ffn_dim": 32, "word_embed_proj_dim": 16, "use_cache": False, "max_position_embeddings": 64},
        _tokens,
    ),
    "DeiT": _vision("DeiT", **_VISION),
    "Beit": _vision("Beit", **_VISION),
    "Dinov2": _vision("Dinov2", **{k: v for k, v in _VISION.items() if k != "intermediate_size"}),
    "ConvNext": _vision("ConvNext", 32, hidden_sizes=[8, 16], depths=[1, 1], num_stages=2),
    "ResNet": _vision("ResNet", 32, embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1]),
    "RegNet": _vision("RegNet", 32, embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], groups_width=4),
    "PoolFormer": _vision("PoolFormer", 32, hidden_sizes=[8, 8, 8, 16], depths=[1, 1, 1, 1], mlp_ratio=2.0),
    "Segformer": _vision(
        "Segformer",
        32,
        hidden_sizes=[8, 8, 8, 16],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 1, 2, 2],
    ),
    "Swinv2": _vision(
        "Swinv2", 32, image_size=32, patch_size=2, embed_dim=8, depths=[1, 1], num_heads=[2, 2], window_size=4
    ),
    "MobileNetV2": _vision("MobileNetV2", 32, image_size=32, depth_multiplier=0.25),
    "Siglip": _make("SiglipVisionModel", "SiglipVisionConfig", _VISION, _image()),
    "Hubert": _make("HubertModel", "HubertConfig", _SPEECH, _sound),
    "WavLM": _make("WavLMModel", "WavLMConfig", _SPEECH, _sound),
    "Data2VecAudio": _make(
        "Data2VecAudioModel", "Data2VecAudioConfig", _SPEECH | {"conv_pos_kernel_size": 3}, _sound
    ),
    "AST": _make(
        "ASTModel",
        "ASTConfig",
        {
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 32,
            "max_length": 32,
            "num_mel_bins": 16,
            "patch_size": 8,
            "frequency_stride": 8,
            "time_stride": 8,
        },
        lambda: (torch.randn(2, 32, 16),),
    ),
    "PatchTST": _make(
        "PatchTSTModel",
        "PatchTSTConfig",
        {"context_length": 16, "patch_length": 4, "patch_stride": 4, "num_input_channels": 2, "d_model": 16}
        | {"num_attention_heads": 2, "num_hidden_layers": 1, "ffn_dim": 32},
        lambda: (torch.randn(2, 16, 2),),
    ),
}
