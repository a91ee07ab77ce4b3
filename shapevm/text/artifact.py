"""Text models in artifacts: settings in META, the tokenizer in a constant that no instruction reads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..vm.errors import ArgumentError, ArtifactError
from ..vm.program import Constant
from .settings import Settings
from .tokens import Tokenizer

if TYPE_CHECKING:
    from ..vm.program import Program

TOKENIZER = "tokenizer.json"  # the constant's name
MAX_BYTES = 1 << 26  # of a tokenizer


def with_text(program: Program, settings: Settings, tokenizer: Tokenizer) -> Program:
    """Return a program that holds a text model. Raises ArgumentError for a tokenizer that is too large."""
    data = np.frombuffer(tokenizer.json.encode(), np.uint8)
    if len(data) > MAX_BYTES:
        raise ArgumentError(f"the tokenizer has {len(data)} bytes; at most {MAX_BYTES} are kept")
    kept = tuple(constant for constant in program.constants if constant.name != TOKENIZER)
    constants = (*kept, Constant.tensor(data, "u8", TOKENIZER))
    return replace(program, constants=constants, meta={**program.meta, "text": settings.data()})


def text_of(program: Program, name: str) -> tuple[Settings, Tokenizer]:
    """Return the settings and the tokenizer of a program. Raises ArtifactError, with the program's name, if
    it has none, or invalid ones."""
    if "text" not in program.meta:
        raise ArtifactError(
            f"{name} holds no text model: save one with SentenceEncoder or CrossEncoder, or with "
            "`shapevm compile FOLDER`"
        )
    found = [c.value for c in program.constants if c.name == TOKENIZER and c.dtype == "u8"]
    if len(found) != 1 or found[0].ndim != 1 or found[0].size > MAX_BYTES:
        raise ArtifactError(
            f"{name} has {len(found)} tokenizers; it must have one, of at most {MAX_BYTES} bytes"
        )
    try:
        text = found[0].tobytes().decode()
    except UnicodeDecodeError:
        raise ArtifactError(f"{name}: its tokenizer is no UTF-8") from None
    return Settings.read(program.meta["text"]), Tokenizer(text)
