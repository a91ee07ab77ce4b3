"""The settings of a text model, which its artifact keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["encoder", "cross-encoder"]
#: By kind: the class that opens it, for messages.
KINDS: Mapping[Kind, str] = {"encoder": "SentenceEncoder", "cross-encoder": "CrossEncoder"}


@dataclass(frozen=True)
class Settings:
    """The properties of a text model besides its program and tokenizer, each a field of `vm.meta.TEXT`.

    `max_length`: the most tokens of a text, those that the tokenizer adds included. `vocabulary`: the number
    of token ids. `pad`: the id that fills a batch. `prompts`: texts put before a text, by name, and
    `default_prompt` the one that is used if none is named ("": none). `similarity`: a name in
    `similarity.SCORES`.
    """

    kind: Kind
    name: str
    max_length: int
    vocabulary: int
    pad: int = 0
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str = ""
    similarity: str = "cosine"
