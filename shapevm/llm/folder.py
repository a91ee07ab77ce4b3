"""From a folder of Hugging Face to a compiled decoder, its tokenizer and chat template."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import nn
from ..text.tokens import Tokenizer
from ..vm.errors import ArgumentError, FileError
from ..vm.schema import Refused, parse
from .architectures import ARCHITECTURES
from .artifact import INPUTS, Contents, inputs_of_sample
from .config import read_config
from .gguf.model import gguf_model
from .models import Decoder
from .pages import Room
from .sampling import Sampling
from .template import ChatTemplate
from .weights import folder_tensors, load_weights

if TYPE_CHECKING:
    from ..build.options import Options
    from ..program.executable import Executable

_SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")


def is_gguf(path: Path) -> bool:
    """Return whether a path is that of a GGUF file, by its name."""
    return path.suffix == ".gguf" and not path.is_dir()


def is_language_model(folder: Path) -> bool:
    """Return whether a folder holds a language model of a known architecture, and no sentence encoder made of
    one; or whether it is a GGUF file. Raises FileError and ArgumentError for a config.json that is none."""
    if is_gguf(folder):
        return True
    if (folder / "modules.json").is_file():
        return False
    names = read_json(folder / "config.json", {}).get("architectures")
    return isinstance(names, list) and any(str(name) in ARCHITECTURES for name in names)


def read_decoder(path: str | os.PathLike[str], room: Room) -> Decoder:
    """Return the decoder of a folder, with its weights in f32 and a cache in `room`.

    Raises FileError for a file that is missing, ArgumentError for a model that is unknown or does not fit.
    """
    folder = Path(path)
    decoder = Decoder(read_config(read_json(folder / "config.json"), f"{folder}/config.json"), room)
    load_weights(decoder, folder_tensors(folder), str(folder))
    return decoder


def compiled(
    path: str | os.PathLike[str], room: Room, options: Options | None = None
) -> tuple[Executable, Contents]:
    """Compile the language model of a folder or a GGUF file; return its program and what these say besides.
    `options`: of the compilation, such as weights in int8. Raises as `read_decoder` and `read_gguf` do."""
    place = Path(path)
    decoder, contents = (gguf_model if is_gguf(place) else folder_model)(place, room)
    decoder.stop_at(contents.defaults.stop_tokens)
    config = decoder.config
    functions = {"sample": inputs_of_sample(config.vocabulary), "ends": {"token": ((1,), "i64")}}
    sizes = {"seen": (0, config.length)}
    return nn.compile(decoder, INPUTS, sizes, functions=functions, options=options), contents


def folder_model(folder: Path, room: Room) -> tuple[Decoder, Contents]:
    """Return the decoder of a folder, and what the folder says besides. Raises as `read_decoder` does."""
    said = read_json(folder / "tokenizer_config.json", {})
    tokenizer = Tokenizer(read_text(folder / "tokenizer.json"))
    special = {name: text for name in _SPECIAL if (text := _text_of(said.get(name)))}
    found = _template(folder, said)
    template = None if found is None else ChatTemplate(found, special)
    defaults = Sampling(stop_tokens=_stop_tokens(folder))
    decoder = read_decoder(folder, room)
    return decoder, Contents(folder.resolve().name, decoder.config.length, tokenizer, template, defaults)


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


def _text_of(token: Any) -> str:
    """Return a special token's text: a string, or an object with a "content"."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else ""


def _template(folder: Path, said: Mapping[str, Any]) -> str | None:
    """Return the text of the chat template: a file's, the config's, or its default one of several."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return read_text(file)
    found = said.get("chat_template")
    if isinstance(found, list):
        named = {each.get("name"): each.get("template") for each in found if isinstance(each, dict)}
        found = named.get("default")
    return found if isinstance(found, str) else None


def _stop_tokens(folder: Path) -> frozenset[int]:
    """Return the tokens that end a text: "eos_token_id" of generation_config.json, or else of config.json."""
    for name in ("generation_config.json", "config.json"):
        found = read_json(folder / name, {}).get("eos_token_id")
        ids = found if isinstance(found, list) else [found]
        if found is not None and all(type(each) is int for each in ids):
            return frozenset(ids)
    return frozenset()
