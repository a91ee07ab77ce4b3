"""Models written with shapevm.nn give what torch's and transformers' give with the same parameters."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import shapevm
from shapevm import nn

from .models import Bert, Encoder, Llama, Mlp


def saved(model: torch.nn.Module, path: Path) -> Path:
    """Write a model's parameters to a safetensors file."""
    save_file({name: x.contiguous() for name, x in model.state_dict().items()}, path)
    return path


def close(found: Any, wanted: torch.Tensor) -> None:
    """Assert equality to the rounding of f32 sums."""
    torch.testing.assert_close(torch.from_numpy(np.asarray(found)), wanted, rtol=1e-4, atol=1e-4)


class TorchMlp(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(6, 16), torch.nn.Linear(16, 3, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.nn.functional.gelu(self.up(x)))


@torch.no_grad()
def test_mlp_at_any_batch_and_in_the_runner(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = TorchMlp()
    mlp = nn.load(Mlp(), saved(model, tmp_path / "mlp.safetensors"))
    exe = nn.compile(mlp, {"x": ("batch", 6)}, strategy="generic")
    for batch in (0, 1, 7, 64):
        x = torch.randn(batch, 6)
        close(exe(x.numpy()), model(x))
    exe.save(tmp_path / "mlp.svm")
    x = np.ones((5, 6), np.float32)
    np.save(tmp_path / "x.npy", x)
    subprocess.run(
        [shapevm.runner_path(), "mlp.svm", "--input", "x=x.npy", "--output", "y.npy"],
        cwd=tmp_path,
        check=True,
    )
    assert np.array_equal(np.load(tmp_path / "y.npy"), exe(x))


def test_parameters_in_bf16(tmp_path: Path) -> None:
    layer = torch.nn.Linear(6, 3, dtype=torch.bfloat16)
    found = nn.load(nn.Linear(6, 3, dtype="bf16"), saved(layer, tmp_path / "w.safetensors"))
    exe = nn.compile(found, {"x": (("n", 6), "bf16")}, strategy="generic")
    x = torch.randn(5, 6).bfloat16()
    torch.testing.assert_close(exe(x), layer(x).detach())


class TorchEncoder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(50, 16)
        self.layers = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(16, 4, 64, 0.0, "gelu", batch_first=True) for _ in range(2)
        )

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=~mask)
        return x


def test_encoder_with_padding(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = TorchEncoder()  # in training: in evaluation torch takes a path that writes 0 for padding
    encoder = nn.load(Encoder(16, 4, 2, 50), saved(model, tmp_path / "encoder.safetensors"))
    rows = ("batch", "length")
    exe = nn.compile(encoder, {"ids": (rows, "i64"), "mask": (rows, "bool")}, {"length": (1, 64)})
    for batch, length in ((1, 1), (3, 13)):
        ids, mask = torch.randint(50, (batch, length)), torch.ones(batch, length, dtype=torch.bool)
        mask[-1, length // 2 + 1 :] = False
        close(exe(ids.numpy(), mask.numpy()), model(ids, mask).detach())


@torch.no_grad()
def test_bert_is_that_of_transformers(tmp_path: Path) -> None:
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=61, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40,
        max_position_embeddings=48,
    )  # fmt: skip
    model = BertModel(config, add_pooling_layer=False).eval()
    bert = nn.load(Bert(config), saved(model, tmp_path / "bert.safetensors"))
    rows = ("batch", "length")
    sizes = {"batch": (1, None), "length": (1, 48)}
    exe = nn.compile(bert, {"ids": (rows, "i64"), "mask": (rows, "bool")}, sizes, strategy="generic")
    for batch, length in ((1, 1), (3, 13), (2, 48)):
        ids, mask = torch.randint(61, (batch, length)), torch.ones(batch, length, dtype=torch.bool)
        mask[-1, length // 2 + 1 :] = False
        close(exe(ids.numpy(), mask.numpy()), model(ids, mask).last_hidden_state)


@pytest.mark.parametrize("n_keys", [2, 4])
@torch.no_grad()
def test_llama_continues_as_transformers_does(tmp_path: Path, n_keys: int) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=n_keys, rms_norm_eps=1e-6, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    prompt, n_new = torch.randint(97, (1, 7)), 12
    wanted = model.generate(prompt, max_new_tokens=n_new, do_sample=False, pad_token_id=0)[0, 7:].tolist()

    llama = nn.load(Llama(config, 32), saved(model, tmp_path / "llama.safetensors"))
    inputs = {"ids": ((1, "new"), "i64"), "positions": (("new",), "i64")}
    exe = nn.compile(llama, inputs, {"new": (1, 32)}, strategy="generic")
    results = exe(prompt.numpy(), np.arange(7))
    close(results["logits"], model(prompt).logits)
    found = [int(results["next"][0])]
    for position in range(7, 6 + n_new):
        results = exe(np.array([[found[-1]]]), np.array([position]))
        found.append(int(results["next"][0]))
    assert found == wanted
