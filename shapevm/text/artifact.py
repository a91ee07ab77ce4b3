"""Text models in artifacts: settings in META, the tokenizer in a constant that no instruction reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import numpy as np

from ..vm.errors import ArgumentError, ArtifactError
from ..vm.program import Constant
from .settings import Settings
from .tokens import Tokenizer

if TYPE_CHECKING:
    from ..program.executable import Executable
    from ..vm.program import Program

TOKENIZER = "tokenizer.json"  # the constant's name
MAX_BYTES = 1 << 26  # of a tokenizer


def with_tokenizer(program: Program, tokenizer: Tokenizer) -> Program:
    """Return a program that holds a tokenizer. Raises ArgumentError for one that is too large."""
    data = np.frombuffer(tokenizer.json.encode(), np.uint8)
    if len(data) > MAX_BYTES:
        raise ArgumentError(f"the tokenizer has {len(data)} bytes; at most {MAX_BYTES} are kept")
    kept = tuple(constant for constant in program.constants if constant.name != TOKENIZER)
    return replace(program, constants=(*kept, Constant.tensor(data, "u8", TOKENIZER)))


def tokenizer_json(constants: Iterable[Constant], name: str) -> str:
    """Return the JSON of the tokenizer among a program's constants. Raises ArtifactError, with the program's
    name, if there is none, or no text."""
    found = [c.value for c in constants if c.name == TOKENIZER and c.dtype == "u8"]
    if len(found) != 1 or found[0].ndim != 1 or found[0].size > MAX_BYTES:
        raise ArtifactError(
            f"{name} has {len(found)} tokenizers; it must have one, of at most {MAX_BYTES} bytes"
        )
    try:
        return found[0].tobytes().decode()
    except UnicodeDecodeError:
        raise ArtifactError(f"{name}: its tokenizer is no UTF-8") from None


def with_text(program: Program, settings: Settings, tokenizer: Tokenizer) -> Program:
    """Return a program that holds a text model. Raises ArgumentError for a tokenizer that is too large."""
    made = with_tokenizer(program, tokenizer)
    return replace(made, meta={**program.meta, "text": asdict(settings)})


def text_of(exe: Executable) -> tuple[Settings, Tokenizer]:
    """Return the settings and the tokenizer of a program. Raises ArtifactError, with the program's name, if
    it has none, or invalid ones."""
    meta = exe.machine.meta
    if "text" not in meta:
        raise ArtifactError(
            f"{exe.name} holds no text model: save one with SentenceEncoder or CrossEncoder, or with "
            "`shapevm compile FOLDER`"
        )
    json = tokenizer_json(exe.constants(TOKENIZER), exe.name)
    return Settings(**meta["text"]), Tokenizer(json)
