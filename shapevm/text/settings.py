"""The settings of a text model, which its artifact keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

Kind = Literal["encoder", "cross-encoder"]
KINDS: tuple[Kind, ...] = ("encoder", "cross-encoder")


@dataclass(frozen=True)
class Settings:
    """The properties of a text model besides its program and tokenizer.

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

    def data(self) -> dict[str, Any]:
        """Return the settings as JSON data, for `read`."""
        return asdict(self)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Settings:
        """Return the settings of decoded data (`vm.meta.TEXT`)."""
        return cls(**{each.name: data[each.name] for each in fields(cls)})
