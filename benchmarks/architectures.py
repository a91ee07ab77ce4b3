"""Transformers of real widths with random weights, a few layers of each, one core, beside other runtimes.

python benchmarks/architectures.py [NAME ...]    # some of them
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import transformers as t
from measure import Figure, interleaved, median, ratio
from peers import Item, check, contestants, missing

import shapevm

LAYERS = 2
VOCABULARY = 32_000  # of those whose own is larger: rows of a table that are not read cost no time
LENGTHS = (32, 128)  # tokens
BATCHES = (1, 4)  # images
ROUNDS = 15
SIDE = 224
FRAMES = 3000  # of a mel spectrogram

BASE = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": VOCABULARY}
Sizes = dict[str, dict[int, Any]]


class First(torch.nn.Module):
    """The first result of a model of token ids."""

    def __init__(self, model: torch.nn.Module, takes_mask: bool) -> None:
        super().__init__()
        self.model, self.takes_mask = model, takes_mask

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """input_ids, attention_mask: i64[1, length]."""
        if not self.takes_mask:
            return self.model(input_ids=input_ids, use_cache=False)[0]
        return self.model(input_ids=input_ids, attention_mask=attention_mask)[0]


class FirstOfImage(torch.nn.Module):
    """The first result of a model of images or spectrograms."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: f32[batch, ...]."""
        return self.model(x)[0]


@dataclass(frozen=True)
class Architecture:
    """`make()`: the model; `kind`: what it takes: tokens with a mask, tokens alone ("causal"), an image, or a
    spectrogram."""

    make: Callable[[], torch.nn.Module]
    kind: str = "tokens"

    def module(self) -> torch.nn.Module:
        """Return the model with one result."""
        torch.manual_seed(0)
        model = self.make().eval()
        if self.kind in ("image", "sound"):
            return FirstOfImage(model).eval()
        return First(model, self.kind == "tokens").eval()

    def items(self) -> list[Item]:
        """Return inputs of two sizes."""
        if self.kind == "image":
            return [{"x": torch.randn(n, 3, SIDE, SIDE)} for n in BATCHES]
        if self.kind == "sound":
            return [{"x": torch.randn(n, 80, FRAMES)} for n in (1, 2)]
        ids = [torch.randint(1000, VOCABULARY - 2000, (1, length)) for length in LENGTHS]
        return [{"input_ids": each, "attention_mask": torch.ones_like(each)} for each in ids]

    def shapes(self) -> Sizes:
        """Return what changes."""
        if self.kind in ("image", "sound"):
            return {"x": {0: torch.export.Dim("batch", min=1, max=8)}}
        length = torch.export.Dim("length", min=2, max=512)
        return {"input_ids": {1: length}, "attention_mask": {1: length}}


def _albert() -> torch.nn.Module:
    return t.AlbertModel(t.AlbertConfig(**BASE, num_hidden_layers=LAYERS))


def _deberta() -> torch.nn.Module:
    relative = {"relative_attention": True, "position_buckets": 256, "norm_rel_ebd": "layer_norm"}
    kinds = {"share_att_key": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False}
    return t.DebertaV2Model(t.DebertaV2Config(**BASE, num_hidden_layers=LAYERS, **relative, **kinds))


def _clip(vision: bool) -> torch.nn.Module:
    if vision:
        return t.CLIPVisionModel(t.CLIPVisionConfig(num_hidden_layers=LAYERS))
    return t.CLIPTextModel(t.CLIPTextConfig(num_hidden_layers=LAYERS, max_position_embeddings=512))


def _whisper() -> torch.nn.Module:
    heads = {"encoder_attention_heads": 6, "encoder_ffn_dim": 1536}
    return t.WhisperModel(
        t.WhisperConfig(d_model=384, encoder_layers=LAYERS, decoder_layers=1, **heads)
    ).encoder


def _llama() -> torch.nn.Module:
    sizes = {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
    }
    return t.LlamaModel(t.LlamaConfig(vocab_size=VOCABULARY, num_hidden_layers=LAYERS, **sizes))


def _qwen() -> torch.nn.Module:
    sizes = {"hidden_size": 896, "intermediate_size": 4864, "num_attention_heads": 14}
    few = {"num_key_value_heads": 2, "vocab_size": VOCABULARY}
    return t.Qwen2Model(t.Qwen2Config(num_hidden_layers=LAYERS, **sizes, **few))


def _deit() -> torch.nn.Module:
    sizes = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536}
    return t.ViTModel(t.ViTConfig(num_hidden_layers=LAYERS, **sizes), add_pooling_layer=False)


ARCHITECTURES = {
    "BERT-base": Architecture(lambda: t.BertModel(t.BertConfig(num_hidden_layers=LAYERS))),
    "RoBERTa-base": Architecture(
        lambda: t.RobertaModel(t.RobertaConfig(**BASE, num_hidden_layers=LAYERS, max_position_embeddings=514))
    ),
    "XLM-R-base": Architecture(
        lambda: t.XLMRobertaModel(
            t.XLMRobertaConfig(**BASE, num_hidden_layers=LAYERS, max_position_embeddings=514)
        )
    ),
    "DistilBERT": Architecture(lambda: t.DistilBertModel(t.DistilBertConfig(n_layers=LAYERS))),
    "ALBERT-base": Architecture(_albert),
    "ELECTRA-small": Architecture(lambda: t.ElectraModel(t.ElectraConfig(num_hidden_layers=2 * LAYERS))),
    "MPNet-base": Architecture(lambda: t.MPNetModel(t.MPNetConfig(num_hidden_layers=LAYERS))),
    "DeBERTa-v3-small": Architecture(_deberta),
    "T5-small, encoder": Architecture(lambda: t.T5EncoderModel(t.T5Config(num_layers=LAYERS))),
    "GPT-2": Architecture(lambda: t.GPT2Model(t.GPT2Config(n_layer=LAYERS)), "causal"),
    "Llama, 135M's widths": Architecture(_llama, "causal"),
    "Qwen2, 0.5B's widths": Architecture(_qwen, "causal"),
    "DeiT-small": Architecture(_deit, "image"),
    "CLIP, text": Architecture(partial(_clip, vision=False)),
    "CLIP, vision": Architecture(partial(_clip, vision=True), "image"),
    "Whisper-tiny, encoder": Architecture(_whisper, "sound"),
}


def compared(name: str, architecture: Architecture) -> Iterator[tuple[Figure, float]]:
    """Yield the figure of each size, and how many times faster than the best of the others it is."""
    model, items = architecture.module(), architecture.items()
    example, shapes = items[-1], architecture.shapes()
    exe = shapevm.compile(model, kwargs=example, dynamic_shapes=shapes, strategy="jit")
    with contestants(model, exe, example, shapes, cold=True) as runners:
        for item in items:
            check(runners, item)
            times = interleaved({label: partial(run, item) for label, run in runners.items()}, ROUNDS)
            best = min((label for label in times if label != "shapevm"), key=lambda x: median(times[x]))
            gain = ratio(times, best, "shapevm")
            text = ", ".join(f"{label} {median(found) * 1e3:.2f}" for label, found in times.items())
            sizes = " x ".join(map(str, next(iter(item.values())).shape))
            yield Figure(f"{name}, {sizes} (ms)", f"{text}: {gain:.2f}x the best", "at least 1.05x"), gain


def architectures(names: list[str]) -> list[Figure]:
    """All of them, and their mean."""
    found = []
    for name in names:
        found += compared(name, ARCHITECTURES[name])
    gains = [gain for _, gain in found]
    mean = math.exp(sum(map(math.log, gains)) / len(gains))
    goal = "1.35x; 1.05x"
    of_all = Figure("transformers: geometric mean; least", f"{mean:.2f}x; {min(gains):.2f}x", goal)
    return [*(figure for figure, _ in found), of_all]


def figures() -> list[Figure]:
    """Return all figures, one core."""
    torch.set_num_threads(1)
    shapevm.set_threads(1)
    with torch.inference_mode():
        return [*architectures(list(ARCHITECTURES)), *missing()]


def main() -> None:
    """Print those that are named, all without a name."""
    torch.set_num_threads(1)
    shapevm.set_threads(1)
    with torch.inference_mode():
        for name in sys.argv[1:] or ARCHITECTURES:
            for figure, _ in compared(name, ARCHITECTURES[name]):
                print(f"{figure.what}: {figure.figure}", flush=True)


if __name__ == "__main__":
    main()
