"""sentence-transformers: `SentenceTransformer(modules=[ShapevmModule("model.svm")])` computes with shapevm.
Needs the package sentence-transformers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from sentence_transformers.base.modules import InputModule

from .. import SentenceEncoder

FILE = "model.svm"  # in the folder that `save` writes


class ShapevmModule(InputModule):
    """A sentence encoder, or its file or folder, as the only module of a `SentenceTransformer`: from texts to
    embeddings."""

    def __init__(self, model: str | os.PathLike[str] | SentenceEncoder) -> None:
        super().__init__()
        self.encoder = model if isinstance(model, SentenceEncoder) else SentenceEncoder(model)

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **given: Any) -> dict[str, Any]:
        """Return padded token ids and their mask."""
        tokens = [torch.tensor(each) for each in self.encoder.tokenize(list(inputs), prompt=prompt)]
        pad = torch.nn.utils.rnn.pad_sequence
        mask = pad([torch.ones_like(each) for each in tokens], batch_first=True)
        return {"input_ids": pad(tokens, batch_first=True), "attention_mask": mask}

    def tokenize(self, texts: list[str], **given: Any) -> dict[str, Any]:
        """Return the same, under the older name."""
        return self.preprocess(texts, **given)

    def forward(self, features: dict[str, Any], **given: Any) -> dict[str, Any]:
        """Add the embeddings, f32[texts, width]."""
        inputs = {name: features[name] for name in ("input_ids", "attention_mask")}
        return {**features, **self.encoder.executable.run(inputs)}

    @property
    def max_seq_length(self) -> int:
        """The most tokens of a text."""
        return self.encoder.max_seq_length

    @max_seq_length.setter
    def max_seq_length(self, value: int) -> None:
        self.encoder.max_seq_length = value

    def get_embedding_dimension(self) -> int:
        """Return how many numbers an embedding has."""
        return self.encoder.get_sentence_embedding_dimension()

    get_sentence_embedding_dimension = get_embedding_dimension

    def save(self, output_path: str, *args: Any, **given: Any) -> None:
        """Write the encoder's file into a folder."""
        self.encoder.save(Path(output_path) / FILE)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **given: Any) -> ShapevmModule:
        """Return the module of a folder that `save` wrote."""
        return cls(Path(model_name_or_path) / subfolder / FILE)
