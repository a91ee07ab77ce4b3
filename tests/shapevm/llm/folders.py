"""Small language models with random weights, in folders as Hugging Face writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from tokenizers import decoders, pre_tokenizers

SMALL = {
    "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 256,
    "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32, "rope_theta": 10000.0,
}  # fmt: skip
#: By a name of ours: the architecture, and what differs from `SMALL`.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama-3.2": ("Llama", {"rope_parameters": LLAMA3, "tie_word_embeddings": True, "head_dim": 16}),
    "llama-biases": ("Llama", {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": 4}),
    "mistral": ("Mistral", {"sliding_window": 7}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen2-windows": ("Qwen2", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
    "gemma3": (
        "Gemma3Text",
        {"head_dim": 16, "query_pre_attn_scalar": 24, "sliding_window": 5, "num_key_value_heads": 1,
         "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
         "final_logit_softcapping": 3.0},
    ),
    "phi": ("Phi", {"num_key_value_heads": 4}),
    "phi3": ("Phi3", {"sliding_window": 9}),
    "gpt2": (
        "GPT2",
        {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 256, "n_inner": 48,
         "num_key_value_heads": 4},
    ),
}  # fmt: skip
TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def tokenizer(n: int = 96) -> transformers.PreTrainedTokenizerFast:
    """Return a tokenizer of printable characters, at most 98, which has `n` ids."""
    letters = [chr(code) for code in range(33, 127)]
    words = ["<s>", "</s>", "Ġ", "Ċ", *letters][:n]
    model = tokenizers.models.BPE({word: i for i, word in enumerate(words)}, [], unk_token="<s>")
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>")
    fast.chat_template = TEMPLATE
    return fast


def write_model(folder: Path, name: str, dtype: torch.dtype = torch.float32, **more: Any) -> Any:
    """Write a model with random weights and its tokenizer; return transformers' model."""
    architecture, own = MODELS[name]
    config = getattr(transformers, f"{architecture}Config")(**{**SMALL, **own, **more})
    torch.manual_seed(5)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for each in model.parameters():  # biases and norms are constant at first
            each.add_(torch.randn_like(each) * 0.05)
    model.to(dtype).save_pretrained(folder, max_shard_size="40KB")
    tokenizer(config.vocab_size).save_pretrained(folder)
    return model.float()
