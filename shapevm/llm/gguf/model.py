"""The language model in a GGUF file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from ...nn.quantised import Quantised
from ...text.tokens import Tokenizer
from ...vm.errors import ArgumentError
from ..artifact import Contents
from ..config import Config, read_config
from ..models import Decoder
from ..pages import Room
from ..rotary import Rotary
from ..sampling import Sampling
from ..template import ChatTemplate
from ..weights import Values, load_weights
from .file import GgufFile, read_gguf
from .names import FREQUENCIES, config_of, tensor_names, tensor_of
from .tokenizer import stop_tokens, tokenizer_of, vocabulary_of

TEMPLATE = "tokenizer.chat_template"
#: Names of special tokens in chat templates, and in the metadata.
_SPECIAL = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}


def gguf_model(path: Path, room: Room) -> tuple[Decoder, Contents]:
    """Return the decoder of a file, whose weights stay as they are, with a cache in `room`, and what the file
    says besides.

    Raises ArgumentError for a file that is no whole GGUF file, and for a model or tokenizer that is unknown.
    """
    file = read_gguf(path)
    vocabulary = vocabulary_of(file)
    config = _with_divisors(file, read_config(config_of(file), file.path))
    if len(vocabulary.tokens) > config.vocabulary:
        raise ArgumentError(
            f"{file.path}: the tokenizer has {len(vocabulary.tokens)} tokens; the model has "
            f"{config.vocabulary}"
        )
    tokenizer, defaults = Tokenizer(tokenizer_of(vocabulary)), Sampling(stop_tokens=stop_tokens(vocabulary))
    texts = {name: vocabulary.text(own) for name, own in _SPECIAL.items()}
    special = {name: text for name, text in texts.items() if text is not None}
    found = file.metadata.get(TEMPLATE)
    template = ChatTemplate(found, special) if isinstance(found, str) else None
    decoder = Decoder(config, room)
    load_weights(decoder, _weights(file), file.path)
    return decoder, Contents(path.resolve().stem, config.length, tokenizer, template, defaults)


def _weights(file: GgufFile) -> Iterator[tuple[str, Values]]:
    for name, own in tensor_names(file).items():
        values = tensor_of(file, own)
        yield name, values if isinstance(values, Quantised) else np.asarray(values, np.float32)


def _with_divisors(file: GgufFile, config: Config) -> Config:
    """Return the config with the file's divisors of frequencies: the scaling of Llama 3."""
    if FREQUENCIES not in file.places:
        return config
    found = file.tensor(FREQUENCIES)
    divisors = found.values() if isinstance(found, Quantised) else np.asarray(found, np.float32)

    def divided(rotary: Rotary | None) -> Rotary | None:
        if rotary is None:
            return None
        if divisors.shape != (rotary.size // 2,) or not (np.isfinite(divisors) & (divisors > 0)).all():
            raise ArgumentError(
                f"{file.path}: {FREQUENCIES} must be {rotary.size // 2} positive numbers, one a frequency"
            )
        return replace(rotary, scaling="divided", factors=tuple(map(float, divisors)))

    attention = config.attention
    return replace(config, attention=replace(attention, rotaries=tuple(map(divided, attention.rotaries))))
