"""From a folder of Hugging Face to a compiled decoder and its engine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import nn
from ..vm.errors import ArgumentError, FileError
from ..vm.schema import Refused, parse
from .config import read_config
from .engine import Limits
from .models import INPUTS, Decoder
from .pages import PAGE
from .weights import folder_tensors, load_weights

if TYPE_CHECKING:
    from ..build.options import Options
    from ..program.executable import Executable


def read_decoder(path: str | os.PathLike[str], cache_tokens: int = 4096) -> Decoder:
    """Return the decoder of a folder, with its weights in f32 and a cache of `cache_tokens` positions.

    Raises FileError for a file that is missing, ArgumentError for a model that is unknown or does not fit.
    """
    folder = Path(path)
    if isinstance(cache_tokens, bool) or not isinstance(cache_tokens, int) or not 1 <= cache_tokens < 1 << 24:
        raise ArgumentError(f"cache_tokens is {cache_tokens!r}; it must be a whole number from 1 to 16777215")
    decoder = Decoder(
        read_config(read_json(folder / "config.json"), f"{folder}/config.json"), -(-cache_tokens // PAGE)
    )
    load_weights(decoder, folder_tensors(folder), str(folder))
    return decoder


def compiled(
    path: str | os.PathLike[str], *, cache_tokens: int = 4096, options: Options | None = None
) -> tuple[Executable, Limits]:
    """Compile the decoder of a folder; return its program and an engine's limits. `options`: of the
    compilation, such as weights in int8. Raises as `read_decoder` does."""
    decoder = read_decoder(path, cache_tokens)
    config, n_pages = decoder.config, -(-cache_tokens // PAGE)
    exe = nn.compile(decoder, INPUTS, options=options)
    return exe, Limits(n_pages, config.length, config.vocabulary)


def compute_of(exe: Executable) -> Any:
    """Return what an engine calls: a session of the program, with its own cache."""
    session = exe.session()

    def compute(inputs: dict[str, Any]) -> tuple[Any, Any]:
        found = session(**inputs)
        return found["logits"], found["next"]

    return compute


def read_text(path: Path) -> str:
    """Return the content of a file in UTF-8. Raises FileError, and ArgumentError for other bytes."""
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ArgumentError(f"{path} is no text in UTF-8; download it again") from None


def read_json(path: Path, default: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the object of a JSON file, `default` if there is no such file. Raises FileError and
    ArgumentError."""
    if default is not None and not path.exists():
        return default
    try:
        found = parse(read_text(path).encode())
    except Refused as error:
        raise ArgumentError(f"{path}: {error}") from None
    if not isinstance(found, dict):
        raise ArgumentError(f"{path} holds a {type(found).__name__}; it must hold an object")
    return found
