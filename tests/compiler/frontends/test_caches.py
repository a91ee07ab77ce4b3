"""Models that take or return caches of transformers compile as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.export import Dim
from transformers import DynamicCache, EncoderDecoderCache

import shapevm

from ...models import sequences

AXES = {0: Dim("batch", min=1, max=8), 1: Dim("length", min=1, max=60)}


def with_cache(model: Any) -> Any:
    for part in (model, getattr(model, "decoder", model)):
        part.config.use_cache = True
    return model.eval()


def tensors_of(cache: Any) -> list[torch.Tensor]:
    if isinstance(cache, EncoderDecoderCache):
        return tensors_of(cache.self_attention_cache) + tensors_of(cache.cross_attention_cache)
    return [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]


@pytest.mark.parametrize(("make", "names"), [
    (sequences.llama, ["input_ids"]), (sequences.t5, ["input_ids", "decoder_input_ids"]),
])  # fmt: skip
def test_a_cache_is_returned(make: Any, names: list[str], tmp_path: Path) -> None:
    """As a cache where transformers is loaded, by the names of its tensors elsewhere."""
    torch.manual_seed(0)
    model = with_cache(make())
    example = {name: sequences.tokens(2, 5) for name in names}
    shapes = dict.fromkeys(names, AXES)
    given = {name: sequences.tokens(3, 9) for name in names}
    with torch.no_grad():
        wanted = model(**given)
    with shapevm.compile(model, kwargs=example, dynamic_shapes=shapes, strategy="generic") as exe:
        found = exe(**given)
        exe.save(tmp_path / "model.svm")
    assert type(found.past_key_values) is type(wanted.past_key_values)
    assert found.past_key_values.get_seq_length() == 9
    ours, theirs = tensors_of(found.past_key_values), tensors_of(wanted.past_key_values)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    np.savez(tmp_path / "given.npz", **{name: ids.numpy() for name, ids in given.items()})
    program = (
        "import sys, numpy as np, shapevm\n"
        f"exe = shapevm.load({str(tmp_path / 'model.svm')!r}, strategy='generic')\n"
        f"found = exe(**np.load({str(tmp_path / 'given.npz')!r}))\n"
        f"print(len(found['past_key_values']), 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == [str(len(theirs)), "False"], done.stderr


def test_a_cache_is_taken() -> None:
    torch.manual_seed(0)
    model = with_cache(sequences.llama())

    def given() -> dict[str, Any]:
        cache, ids = DynamicCache(config=model.config), sequences.tokens(2, 6)
        with torch.no_grad():
            model(ids[:, :5], past_key_values=cache)
        return {"input_ids": ids[:, 5:].contiguous(), "past_key_values": cache}

    with shapevm.compile(model, kwargs=given(), strategy="generic") as exe:
        step = given()
        found = exe(**step)
        with torch.no_grad():
            wanted = model(**step)
    torch.testing.assert_close(found.logits, wanted.logits, rtol=1e-4, atol=1e-5)
    assert found.past_key_values.get_seq_length() == 6
