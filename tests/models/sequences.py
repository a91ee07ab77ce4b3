"""Small models of transformers, their weights random, with the inputs that they take."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers as T
from transformers.utils import logging

logging.set_verbosity_error()

VOCABULARY = 96
_ENCODER = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


def bert() -> torch.nn.Module:
    """Return an encoder with absolute positions."""
    return T.BertModel(T.BertConfig(vocab_size=VOCABULARY, max_position_embeddings=128, **_ENCODER))


def llama() -> torch.nn.Module:
    """Return a decoder with rotary positions and grouped heads."""
    return T.LlamaForCausalLM(
        T.LlamaConfig(vocab_size=VOCABULARY, num_key_value_heads=2, use_cache=False, **_ENCODER)
    )


def _gpt2() -> T.GPT2LMHeadModel:
    return T.GPT2LMHeadModel(
        T.GPT2Config(vocab_size=VOCABULARY, n_positions=128, n_embd=32, n_layer=2, n_head=4)
    )


class Decoder(torch.nn.Module):
    """A causal model without a cache."""

    def __init__(self) -> None:
        super().__init__()
        self.model = _gpt2()

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits


class CachedDecoder(torch.nn.Module):
    """A causal model with keys and values of what came before: it returns logits, then all of these."""

    def __init__(self) -> None:
        super().__init__()
        self.model = _gpt2()

    def forward(
        self, input_ids: torch.Tensor, past: Sequence[tuple[torch.Tensor, torch.Tensor]]
    ) -> tuple[torch.Tensor, list[tuple[torch.Tensor, torch.Tensor]]]:
        cache = T.DynamicCache()
        for i, (keys, values) in enumerate(past):
            cache.update(keys, values, i)
        found = self.model(input_ids=input_ids, past_key_values=cache, use_cache=True)
        return found.logits, [(layer.keys, layer.values) for layer in cache.layers]


def t5() -> torch.nn.Module:
    """Return an encoder and decoder with relative positions."""
    config = T.T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, use_cache=False
    )
    return T.T5ForConditionalGeneration(config)


def whisper() -> torch.nn.Module:
    """Return an encoder of spectra with a decoder of text."""
    return T.WhisperForConditionalGeneration(
        T.WhisperConfig(
            vocab_size=VOCABULARY,
            d_model=32,
            num_mel_bins=16,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            max_source_positions=30,
            max_target_positions=64,
            use_cache=False,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
        )  # fmt: skip
    )


def vit() -> torch.nn.Module:
    """Return an encoder of patches whose positions are resized to the image."""
    return T.ViTModel(T.ViTConfig(image_size=32, patch_size=8, **_ENCODER))


def mamba() -> torch.nn.Module:
    """Return a state space model."""
    config = T.MambaConfig(
        vocab_size=VOCABULARY, hidden_size=32, state_size=4, num_hidden_layers=2, use_cache=False
    )
    return T.MambaForCausalLM(config)


def wav2vec2() -> torch.nn.Module:
    """Return an encoder of sound."""
    return T.Wav2Vec2Model(
        T.Wav2Vec2Config(
            conv_dim=(16, 16, 16),
            conv_stride=(5, 2, 2),
            conv_kernel=(10, 3, 2),
            num_feat_extract_layers=3,
            num_conv_pos_embeddings=16,
            num_conv_pos_embedding_groups=4,
            **_ENCODER,
        )  # fmt: skip
    )


def clip() -> torch.nn.Module:
    """Return encoders of text and images side by side."""
    vision = _ENCODER | {"image_size": 32, "patch_size": 8}
    text = _ENCODER | {"vocab_size": VOCABULARY, "max_position_embeddings": 64}
    ends = {"bos_token_id": 0, "eos_token_id": 95, "pad_token_id": 1}
    return T.CLIPModel(T.CLIPConfig(text_config=text | ends, vision_config=vision, projection_dim=24))


def detr() -> torch.nn.Module:
    """Return a detector: a residual network, then an encoder and a decoder of queries."""
    backbone = T.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", out_features=["stage2"]
    )
    config = T.DetrConfig(
        backbone_config=backbone, d_model=32, num_queries=7, encoder_layers=1,
        decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64,
        decoder_ffn_dim=64,
    )  # fmt: skip
    return T.DetrForObjectDetection(config)


def tokens(batch: int, length: int) -> torch.Tensor:
    """Return random token ids."""
    return torch.randint(3, VOCABULARY, (batch, length))


def masked(batch: int, length: int) -> dict[str, torch.Tensor]:
    """Return token ids with a mask; of every second row the last third is padding."""
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[1::2, length - length // 3 :] = 0
    return {"input_ids": tokens(batch, length), "attention_mask": mask}


def with_past(batch: int, past: int, length: int) -> dict[str, Any]:
    """Return token ids with keys and values of two layers."""
    cache = [(torch.randn(batch, 4, past, 8), torch.randn(batch, 4, past, 8)) for _ in range(2)]
    return {"input_ids": tokens(batch, length), "past": cache}
