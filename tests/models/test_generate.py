"""transformers' `generate` with models that torch.compile compiles here: eager's tokens, no graph break,
and nothing runs in PyTorch."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch
import transformers as T
from torch._dynamo.utils import counters
from transformers.utils import logging

from .zoo import programs_alone

logging.set_verbosity_error()

VOCABULARY, HEADS, NEW_TOKENS, LENGTHS = 64, 4, 5, (5, 7, 11)
_TOKENS = {"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_BLOOM = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": HEADS, **_TOKENS}
_PLAIN = {"intermediate_size": 48, "max_position_embeddings": 64, **_BLOOM}
_GROUPED = {"num_key_value_heads": 2, **_PLAIN}
_GEMMA = {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 40, **_GROUPED}
_GPT2 = {"n_positions": 64, "n_embd": 32, "n_layer": 1, "n_head": HEADS, **_TOKENS}
_OPT = {"ffn_dim": 48, "word_embed_proj_dim": 32, "max_position_embeddings": 64, **_BLOOM}
_T5 = {"d_kv": 8, "d_ff": 48, "num_layers": 1, "num_heads": HEADS, "decoder_start_token_id": 0}
_BART = {
    "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": HEADS, "encoder_ffn_dim": 48,
    "decoder_attention_heads": HEADS, "decoder_ffn_dim": 48, "max_position_embeddings": 64,
    "decoder_start_token_id": 1, "forced_eos_token_id": None, "d_model": 32, **_TOKENS,
}  # fmt: skip
MODELS: dict[str, Callable[[], Any]] = {
    "llama": lambda: T.LlamaForCausalLM(T.LlamaConfig(**_GROUPED)),
    "qwen2": lambda: T.Qwen2ForCausalLM(T.Qwen2Config(**_GROUPED)),
    "qwen3": lambda: T.Qwen3ForCausalLM(T.Qwen3Config(head_dim=8, **_GROUPED)),
    "mistral": lambda: T.MistralForCausalLM(T.MistralConfig(sliding_window=40, **_GROUPED)),
    "gemma2": lambda: T.Gemma2ForCausalLM(T.Gemma2Config(**_GEMMA)),
    "gemma3": lambda: T.Gemma3ForCausalLM(T.Gemma3TextConfig(layer_types=["sliding_attention"], **_GEMMA)),
    "phi": lambda: T.PhiForCausalLM(T.PhiConfig(**_PLAIN)),
    "phi3": lambda: T.Phi3ForCausalLM(T.Phi3Config(**_GROUPED)),
    "gpt2": lambda: T.GPT2LMHeadModel(T.GPT2Config(**_GPT2)),
    "gpt_neox": lambda: T.GPTNeoXForCausalLM(T.GPTNeoXConfig(**_PLAIN)),
    "opt": lambda: T.OPTForCausalLM(T.OPTConfig(**_OPT)),
    "falcon": lambda: T.FalconForCausalLM(T.FalconConfig(**_BLOOM)),
    "bloom": lambda: T.BloomForCausalLM(T.BloomConfig(**_BLOOM)),
    "t5": lambda: T.T5ForConditionalGeneration(T.T5Config(d_model=32, **_T5, **_TOKENS)),
    "bart": lambda: T.BartForConditionalGeneration(T.BartConfig(**_BART)),
    "marian": lambda: T.MarianMTModel(T.MarianConfig(**_BART)),
    "pegasus": lambda: T.PegasusForConditionalGeneration(T.PegasusConfig(**_BART)),
}


def model_of(name: str) -> Any:
    """Return a model whose tokens differ from step to step."""
    torch.manual_seed(0)
    model = MODELS.get(name, MODELS["llama"])().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(8 if weight.dim() > 1 else 1)
    return model


def compile_parts(model: Any) -> None:
    """Compile what `generate` calls."""
    parts = [model, model.get_encoder()] if model.config.is_encoder_decoder else [model]
    for part in parts:
        part.compile(backend="shapevm", dynamic=True, options={"strategy": "generic"})


def prompts(batch: int, length: int) -> dict[str, torch.Tensor]:
    """Return prompts, the first of them shorter than the others."""
    ids = torch.randint(3, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(length))
    mask = torch.ones_like(ids)
    ids[0, :2] = mask[0, :2] = 0
    return {"input_ids": ids, "attention_mask": mask}


def generated(model: Any, length: int, how: Mapping[str, Any]) -> torch.Tensor:
    torch.manual_seed(length)
    options = {"max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS, "do_sample": False} | how
    return model.generate(**prompts(3, length), **options)


#: Other ways to generate, with the model "llama".
WAYS: dict[str, dict[str, Any]] = {
    "beams": {"num_beams": 3},
    "beams in a static cache": {"num_beams": 2, "cache_implementation": "static"},
    "sampled": {"do_sample": True, "top_k": 5},
    "without repetition": {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
    "without a cache": {"use_cache": False},
}


@pytest.mark.drawn
@pytest.mark.parametrize("name", [*MODELS, *WAYS])
def test_tokens_are_eagers(name: str, request: pytest.FixtureRequest) -> None:
    """A model's cache grows or is static: `--seed` draws which."""
    drawn = random.Random(f"{request.config.option.seed} {name}").choice(["dynamic", "static"])
    model, how = model_of(name), WAYS.get(name, {"cache_implementation": drawn})
    expected = [generated(model, length, how) for length in LENGTHS]
    compile_parts(model)
    n_programs = []
    counters.clear()
    with programs_alone() as programs:
        for length, tokens in zip(LENGTHS, expected, strict=True):
            assert torch.equal(generated(model, length, how), tokens), how
            n_programs.append(len(programs))
    assert 1 <= n_programs[0] <= 4 and n_programs[2] == n_programs[1], how
    assert {exe.machine.externs for exe in programs} == {()} and not counters["graph_break"], how


def test_a_warm_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one process compiled, or one before `torch._dynamo.reset()`, is read again: the same tokens."""
    monkeypatch.setenv("SHAPEVM_CACHE_DIR", str(tmp_path))
    model = model_of("llama")
    expected, n_compiled = generated(model, 6, {}), []
    compile_parts(model)
    for _ in range(2):
        with programs_alone() as programs:
            assert torch.equal(generated(model, 6, {}), expected)
        n_compiled.append(sum(exe.stats().compiled for exe in programs))
    assert n_compiled[0] > 0 and n_compiled[1] == 0
