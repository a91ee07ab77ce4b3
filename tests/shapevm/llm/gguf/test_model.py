"""Language models of GGUF files against transformers with the same values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from shapevm.vm.artifact import read
from shapevm.vm.errors import ArgumentError

from shapevm import Options
from shapevm.cli import main
from shapevm.llm import LanguageModel, Sampling, from_pretrained, load

from ..folders import LLAMA3, write_model
from .files import PIECES, SENTENCEPIECE, write_gguf

FORMAT = gguf.GGMLQuantizationType
SIZES = {"intermediate_size": 64, "vocab_size": len(PIECES)}
OWN = {"layer_types": ["sliding_attention"] * 3, "query_pre_attn_scalar": 16}  # as files of Gemma 3 say
TEMPLATE = "{{ bos_token }}{% for each in messages %}<turn>{{ each['content'] }}{% endfor %}"


def _written(folder: Path, name: str, architecture: str, format: FORMAT, **more: Any) -> tuple[Path, Any]:
    own = OWN if name == "gemma3" else {}
    reference = write_model(folder / "reference", name, **SIZES, **own)
    path = folder / "small.gguf"
    tokenizer = {**SENTENCEPIECE, "chat_template": TEMPLATE}
    write_gguf(path, reference, architecture, format, tokenizer, **more)
    return path, reference


def _check(model: LanguageModel, reference: Any, error: float = 1e-4) -> None:
    """Compare the next tokens and their logits after some tokens."""
    tokens = model.encode("hello world, hello")
    with torch.no_grad():
        wanted = reference.generate(
            torch.tensor([tokens]), max_new_tokens=24, do_sample=False, eos_token_id=2
        )
        logits = reference(torch.tensor([tokens])).logits[0, -1]
    request = model.engine.submit(tokens, Sampling(24), keep_logits=True)
    made = list(request)
    assert made == wanted[0, len(tokens) :].tolist()[: len(made)] and len(made) > 1
    np.testing.assert_allclose(request.logits[0], logits, rtol=error, atol=error * float(logits.abs().max()))


CAP = {"gemma3.final_logit_softcapping": 3.0}
CASES = [
    ("llama", "llama", FORMAT.Q8_0), ("llama", "llama", FORMAT.Q4_0), ("llama", "llama", FORMAT.Q5_1),
    ("llama", "llama", FORMAT.F16), ("gemma3", "gemma3", FORMAT.Q8_0), ("gemma3", "gemma3", FORMAT.Q5_0),
    ("qwen2", "qwen2", FORMAT.Q4_1), ("qwen3", "qwen3", FORMAT.Q8_0), ("phi3", "phi3", FORMAT.Q8_0),
]  # fmt: skip


@pytest.mark.parametrize(("name", "architecture", "format"), CASES)
def test_tokens_are_those_of_transformers(
    tmp_path: Path, name: str, architecture: str, format: FORMAT
) -> None:
    path, reference = _written(tmp_path, name, architecture, format, **(CAP if name == "gemma3" else {}))
    with from_pretrained(path, cache_tokens=256) as model:
        assert model.name == "small"
        _check(model, reference)


def test_products_in_i16(tmp_path: Path) -> None:
    """A quantised table that is also a product's weight is stored once."""
    path, reference = _written(tmp_path, "gemma3", "gemma3", FORMAT.Q8_0, **CAP)
    with from_pretrained(path, cache_tokens=256, options=Options(precision="i16")) as model:
        _check(model, reference, 1e-3)
        model.save(tmp_path / "model.svm")
    names = [constant.name for constant in read(tmp_path / "model.svm").constants]
    assert "embedding.weight.panels" in names and "embedding.weight" not in names


def test_frequencies_are_divided(tmp_path: Path) -> None:
    """A file of Llama 3.2 has the scaling of its rotary positions as a tensor."""
    reference = write_model(tmp_path / "reference", "llama-3.2", **SIZES)
    plain = LLAMA3["rope_theta"] ** -(np.arange(0, 16, 2) / 16)
    divisors = plain / reference.model.rotary_emb.inv_freq.numpy()
    path = tmp_path / "small.gguf"
    given = {"rope_freqs.weight": divisors}
    write_gguf(path, reference, "llama", FORMAT.Q8_0, SENTENCEPIECE, given, **{"llama.rope.freq_base": 1e4})
    with from_pretrained(path, cache_tokens=256) as model:
        _check(model, reference)


def test_templates_and_ends(tmp_path: Path) -> None:
    path, _ = _written(tmp_path, "llama", "llama", FORMAT.Q8_0)
    with from_pretrained(path, cache_tokens=64) as model:
        assert model.defaults.stop_tokens == {2}
        assert model.encode_chat([{"role": "user", "content": "lo"}])[:2] == [1, 5]


def test_a_file_is_compiled_at_the_command_line(tmp_path: Path) -> None:
    path, _ = _written(tmp_path, "llama", "llama", FORMAT.Q8_0)
    found = CliRunner().invoke(main, ["compile", str(path), "-o", str(tmp_path / "small.svm")])
    assert found.exit_code == 0, found.output
    with from_pretrained(path) as model, load(tmp_path / "small.svm") as saved:
        wanted = model.generate("hello", max_new_tokens=8)
        assert saved.generate("hello", max_new_tokens=8) == wanted


def _with(**changes: Any) -> dict[str, Any]:
    return {**SENTENCEPIECE, **changes}


@pytest.mark.parametrize(
    ("tokenizer", "tensors", "message"),
    [
        ({"model": "llama"}, {}, "has no tokens"),
        (_with(model="mpt"), {}, "the tokenizer 'mpt' is unknown; known are llama, gpt2"),
        (_with(scores=[1.0]), {}, "scores must be a list of"),
        (_with(token_type=["x"] * len(PIECES)), {}, "token_type must be a list of"),
        (_with(tokens=[str(i) for i in range(999)], scores=[0.0] * 999, token_type=[1] * 999), {},
         "the tokenizer has 999 tokens; the model has"),
        (_with(tokens=["x" * 2000, *SENTENCEPIECE["tokens"][1:]], token_type=[1] * len(PIECES)), {},
         "token 0 has 2000 characters"),
        (SENTENCEPIECE, {"rope_freqs.weight": [1.0, 0.0, 1.0, 1.0]}, "must be 4 positive numbers"),
        (SENTENCEPIECE, {"rope_freqs.weight": [1.0]}, "must be 4 positive numbers"),
    ],
)  # fmt: skip
def test_other_files_are_refused(
    tmp_path: Path, tokenizer: dict[str, Any], tensors: dict[str, Any], message: str
) -> None:
    reference = write_model(tmp_path / "reference", "llama", **SIZES)
    write_gguf(tmp_path / "a.gguf", reference, "llama", FORMAT.Q8_0, tokenizer, tensors)
    with pytest.raises(ArgumentError, match=message):
        from_pretrained(tmp_path / "a.gguf")
