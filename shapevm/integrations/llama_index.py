"""LlamaIndex: `ShapevmEmbedding("model.svm")` is a `BaseEmbedding`. Needs the package llama-index-core."""

from __future__ import annotations

import os
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr

from .. import SentenceEncoder


class ShapevmEmbedding(BaseEmbedding):
    """An embedding model of LlamaIndex from a sentence encoder, or from its file or folder."""

    _encoder: SentenceEncoder = PrivateAttr()

    def __init__(self, model: str | os.PathLike[str] | SentenceEncoder, **given: Any) -> None:
        encoder = model if isinstance(model, SentenceEncoder) else SentenceEncoder(model)
        super().__init__(**{"model_name": encoder.name, **given})
        self._encoder = encoder

    @classmethod
    def class_name(cls) -> str:
        """Return the name by which LlamaIndex writes this class."""
        return "ShapevmEmbedding"

    def _get_query_embedding(self, query: str) -> list[float]:
        found: list[float] = self._encoder.encode_query(query).tolist()
        return found

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        found: list[list[float]] = self._encoder.encode_document(texts).tolist()
        return found
