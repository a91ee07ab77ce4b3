"""Chroma: `ShapevmEmbeddingFunction("model.svm")` is an `EmbeddingFunction`. Needs the package chromadb."""

from __future__ import annotations

import os
from typing import Any

from chromadb.api.types import Documents, EmbeddingFunction, Embeddings
from chromadb.utils.embedding_functions import register_embedding_function

from .. import SentenceEncoder


@register_embedding_function
class ShapevmEmbeddingFunction(EmbeddingFunction[Documents]):
    """An embedding function of Chroma from the file or folder of a sentence encoder, which a collection's
    configuration names."""

    def __init__(self, model: str | os.PathLike[str]) -> None:
        self._model = os.fspath(model)
        self.encoder = SentenceEncoder(model)

    def __call__(self, input: Documents) -> Embeddings:
        """Return the embedding of each document."""
        return list(self.encoder.encode_document(list(input)))

    def embed_query(self, input: Documents) -> Embeddings:
        """Return the embedding of each query."""
        return list(self.encoder.encode_query(list(input)))

    @staticmethod
    def name() -> str:
        """Return the name by which collections find this class."""
        return "shapevm"

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of `build_from_config`."""
        return {"model": self._model}

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> EmbeddingFunction[Documents]:
        """Return the function of a collection's configuration."""
        return ShapevmEmbeddingFunction(config["model"])

    def default_space(self) -> Any:
        """Return the distance of collections: the cosine's."""
        return "cosine"
