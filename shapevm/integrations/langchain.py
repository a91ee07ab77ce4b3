"""LangChain: `ShapevmEmbeddings("model.svm")` is an `Embeddings`. Needs the package langchain-core."""

from __future__ import annotations

import os
from collections.abc import Sequence

from langchain_core.embeddings import Embeddings

from .. import SentenceEncoder


class ShapevmEmbeddings(Embeddings):
    """Embeddings of LangChain from a sentence encoder, or from its file or folder."""

    def __init__(self, model: str | os.PathLike[str] | SentenceEncoder) -> None:
        self.encoder = model if isinstance(model, SentenceEncoder) else SentenceEncoder(model)

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the embedding of each document."""
        found: list[list[float]] = self.encoder.encode_document(texts).tolist()
        return found

    def embed_query(self, text: str) -> list[float]:
        """Return the embedding of a query."""
        found: list[float] = self.encoder.encode_query(text).tolist()
        return found
