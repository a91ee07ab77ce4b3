"""`SentenceEncoder`: texts to embeddings, with the methods of sentence-transformers' class."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..program.executable import Executable
from ..vm.errors import ArgumentError
from . import similarity
from .text_model import TOKENS, Array, TextModel, as_tensor, check_device, converted

if TYPE_CHECKING:
    from ..build.options import Options
    from ..vm.codes import Strategy

EMBEDDING = "sentence_embedding"
QUERY, DOCUMENT = ("query",), ("document", "passage", "corpus")  # names of prompts


class SentenceEncoder(TextModel):
    """A sentence encoder: `SentenceEncoder(folder).encode(texts)` returns an embedding of each text, with the
    bits that it has alone.

    Args:
        model: A folder with the model's files (config.json, model.safetensors, tokenizer.json and, of
            sentence-transformers, modules.json), which is compiled with torch and transformers; or a file
            that `save` wrote, or an executable of it, which need neither.
        options: Options of the compilation of a folder.
        strategy: As `shapevm.compile` takes it.
        token_embeddings: Compile a folder so that `encode` can also return the state of each token.

    Raises:
        ArgumentError: The folder holds parts that are unknown, or a package is missing.
        FileError: A file is missing or cannot be read.
        ArtifactError: The file is no artifact, or holds no sentence encoder.
    """

    KIND, RESULTS = "encoder", (EMBEDDING,)

    def __init__(
        self,
        model: str | os.PathLike[str] | Executable,
        *,
        options: Options | None = None,
        strategy: Strategy | None = None,
        token_embeddings: bool = False,
    ) -> None:
        self._how = {"with_tokens": token_embeddings}
        super().__init__(model, options=options, strategy=strategy)
        self.truncate_dim: int | None = None

    def encode(
        self,
        sentences: str | Sequence[str],
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        output_value: Literal["sentence_embedding", "token_embeddings"] = "sentence_embedding",
        precision: similarity.Precision = "float32",
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        device: Any = None,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
    ) -> Any:
        """Return the embeddings of texts, f32[texts, width], or of one text, f32[width].

        Args:
            sentences: A text, or a list of texts.
            prompt_name: The name of the prompt, in `prompts`, to put before each text.
            prompt: The prompt itself.
            batch_size: The most texts of a batch; None: batches are bounded by `max_tokens` alone.
            show_progress_bar: True: show a bar on standard error.
            output_value: "token_embeddings": a list with the states of the tokens of each text, f32[tokens,
                hidden size] (see `SentenceEncoder(token_embeddings=True)`).
            precision: "int8" and "uint8" cut the range of each column among these texts into 255 steps;
                "binary" and "ubinary" keep a bit of each number, eight to a byte.
            convert_to_numpy: False: a list of tensors of PyTorch.
            convert_to_tensor: True: one tensor of PyTorch.
            device: None or "cpu".
            normalize_embeddings: Whether embeddings get length 1.
            truncate_dim: How many numbers of each embedding are kept; None: `truncate_dim` of this object.

        Raises:
            ArgumentError: An invalid argument, or a text that is none (the message names it).
        """
        check_device(device)
        similarity.check_precision(precision)
        texts = [sentences] if isinstance(sentences, str) else list(sentences)
        _check_texts(texts)
        if output_value not in (EMBEDDING, TOKENS):
            raise ArgumentError(f"output_value is {output_value!r}; it must be {EMBEDDING!r} or {TOKENS!r}")
        if output_value == TOKENS:
            self.check_token_embeddings()
        results = self._mapped(texts, self.prompt_of(prompt, prompt_name), batch_size, show_progress_bar)
        if output_value != EMBEDDING:
            found: Any = [result[output_value] for result in results]
            found = found if convert_to_numpy and not convert_to_tensor else list(map(as_tensor, found))
            return found[0] if isinstance(sentences, str) else found
        n_kept = truncate_dim or self.truncate_dim
        made = self._collected(results, len(texts), EMBEDDING)
        made = np.ascontiguousarray(made[:, :n_kept])
        made = similarity.normalized(made) if normalize_embeddings else made
        made = similarity.quantised(made, precision)
        found = converted(made, convert_to_numpy, convert_to_tensor)
        return found[0] if isinstance(sentences, str) else found

    def encode_query(self, sentences: str | Sequence[str], **given: Any) -> Any:
        """Return the embeddings of queries: `encode` with the prompt "query", if the model has one."""
        return self._encode_as(QUERY, sentences, given)

    def encode_document(self, sentences: str | Sequence[str], **given: Any) -> Any:
        """Return the embeddings of documents: `encode` with the prompt "document", "passage" or "corpus", if
        the model has one."""
        return self._encode_as(DOCUMENT, sentences, given)

    def _encode_as(self, names: Sequence[str], sentences: str | Sequence[str], given: dict[str, Any]) -> Any:
        if given.get("prompt") is None and given.get("prompt_name") is None:
            given["prompt_name"] = next((name for name in names if name in self.prompts), None)
        return self.encode(sentences, **given)

    @property
    def similarity_fn_name(self) -> str:
        """The name of the scores of `similarity`: cosine, dot, euclidean or manhattan."""
        return self._opened.settings.similarity

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Array:
        """Return the scores of each embedding of the first with each of the second: f32[n, m]."""
        return similarity.similarity(self.similarity_fn_name, embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Array:
        """Return the score of each embedding of the first with the same one of the second: f32[n]."""
        return similarity.similarity_pairwise(self.similarity_fn_name, embeddings1, embeddings2)

    def get_sentence_embedding_dimension(self) -> int:
        """Return how many numbers an embedding has."""
        return min(self._width, self.truncate_dim or self._width)

    get_embedding_dimension = get_sentence_embedding_dimension


def _check_texts(texts: Sequence[Any]) -> None:
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise ArgumentError(f"text {index} is {text!r:.60}; an encoder takes texts")
