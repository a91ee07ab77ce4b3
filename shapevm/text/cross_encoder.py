"""`CrossEncoder`: pairs of texts to scores, with the methods of sentence-transformers' class."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..vm.errors import ArgumentError
from .text_model import Array, TextModel, as_tensor, check_device, converted
from .tokens import is_pair

LOGITS, SCORES = "logits", "scores"
Pair = tuple[str, str] | list[str]


class CrossEncoder(TextModel):
    """A model that scores pairs of texts: `CrossEncoder(folder).predict(pairs)`.

    Args:
        model: A folder with the model's files (config.json, model.safetensors, tokenizer.json), which is
            compiled with torch and transformers; or a file that `save` wrote, or an executable of it.
        options: Options of the compilation of a folder.
        strategy: As `shapevm.compile` takes it.

    Raises:
        ArgumentError, FileError, ArtifactError: As `SentenceEncoder` does.
    """

    KIND, RESULTS = "cross-encoder", (SCORES, LOGITS)

    @property
    def num_labels(self) -> int:
        """The number of scores of a pair."""
        return self._width

    def predict(
        self,
        sentences: Pair | Sequence[Pair],
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        activation_fn: Callable[[Any], Any] | None = None,
        apply_softmax: bool = False,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        device: Any = None,
    ) -> Any:
        """Return the scores of pairs: f32[pairs] for a model of one label, else f32[pairs, labels]; of one
        pair, without the first axis.

        Args:
            sentences: A pair of texts, or a list of pairs.
            prompt_name: The name of the prompt, in `prompts`, to put before the first text of each pair.
            prompt: The prompt itself.
            batch_size: The most pairs of a batch; None: batches are bounded by `max_tokens` alone.
            show_progress_bar: True: show a bar on standard error.
            activation_fn: A function of the logits, in place of the model's: a module of PyTorch takes and
                returns a tensor, another function a numpy array.
            apply_softmax: Whether the scores of several labels become shares of 1.
            convert_to_numpy: False: a list of tensors of PyTorch.
            convert_to_tensor: True: one tensor of PyTorch.
            device: None or "cpu".

        Raises:
            ArgumentError: An invalid argument, or an item that is no pair of texts (the message names it).
        """
        check_device(device)
        is_one = is_pair(sentences)
        pairs: list[Any] = [sentences] if is_one else list(sentences)
        for index, pair in enumerate(pairs):
            if not is_pair(pair):
                raise ArgumentError(f"pair {index} is {pair!r:.60}; a cross-encoder takes pairs of texts")
        results = self._mapped(pairs, self.prompt_of(prompt, prompt_name), batch_size, show_progress_bar)
        made = self._collected(results, len(pairs), SCORES if activation_fn is None else LOGITS)
        made = made if activation_fn is None else _activated(activation_fn, made)
        made = made[:, 0] if self.num_labels == 1 else _softmax(made) if apply_softmax else made
        found = converted(made, convert_to_numpy, convert_to_tensor)
        return found[0] if is_one else found

    def rank(
        self,
        query: str,
        documents: Sequence[str],
        top_k: int | None = None,
        return_documents: bool = False,
        **given: Any,
    ) -> list[dict[str, Any]]:
        """Return documents by falling score: dicts with "corpus_id" (the document's index), "score" and, if
        `return_documents`, "text". `top_k`: how many; `given`: further arguments of `predict`.

        Raises ArgumentError for a model of several labels, and as `predict` does.
        """
        if self.num_labels != 1:
            raise ArgumentError(f"the model has {self.num_labels} labels, so it does not rank; use predict")
        documents = list(documents)
        scores = self.predict([(query, document) for document in documents], **given)
        found: list[dict[str, Any]] = []
        for index in sorted(range(len(documents)), key=lambda i: -float(scores[i]))[:top_k]:
            text = {"text": documents[index]} if return_documents else {}
            found.append({"corpus_id": index, "score": float(scores[index]), **text})
        return found


def _activated(function: Callable[[Any], Any], logits: Array) -> Array:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(function, torch.nn.Module):
        return np.asarray(function(as_tensor(logits)).detach())
    return np.asarray(function(logits))


def _softmax(logits: Array) -> Array:
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(-1, keepdims=True))
