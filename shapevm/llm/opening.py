"""Language models of folders of Hugging Face, GGUF files, and files that `LanguageModel.save` wrote."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..program.limits import check_strategy
from ..program.opening import open_executable
from ..text.artifact import TOKENIZER
from ..vm.errors import ArgumentError
from .artifact import Contents, arguments_of, language_of, limits_of
from .engine import Engine
from .language_model import LanguageModel
from .pages import room_of
from .sampling import Sampling

if TYPE_CHECKING:
    from ..build.options import Options
    from ..program.executable import Executable
    from ..vm.codes import Strategy

Array = np.ndarray[Any, Any]
CACHE_TOKENS = 4096


def from_pretrained(
    path: str | os.PathLike[str],
    *,
    cache_tokens: int | None = None,
    cache: str | None = None,
    options: Options | None = None,
) -> LanguageModel:
    """Open a language model with its tokenizer and chat template: compile a Hugging Face folder or a GGUF
    file, or load a file that `save` wrote.

    Args:
        path: The folder: config.json, safetensors files, tokenizer.json; perhaps tokenizer_config.json,
            chat_template.jinja and generation_config.json. Or a file; weights of GGUF stay quantised.
        cache_tokens: The tokens of all sequences together whose keys and values are kept; None: 4096, or
            those of the file.
        cache: How they are kept: "f32" (None), "bf16" in half of the memory, or "int8" in about a quarter,
            with a scale for each token and head.
        options: Of the compilation, such as weights in int8.

    Raises:
        FileError: for a file that is missing or unreadable.
        ArgumentError: for a model that is unknown, or files that are no model's.
        ArtifactError: for a file that is no artifact, or holds no language model.
    """
    if not Path(path).is_dir() and Path(path).suffix == ".svm":
        if (cache_tokens, cache, options) != (None, None, None):
            raise ArgumentError("cache_tokens, cache and options are those of a compilation: give a folder")
        return load(path)
    from .folder import compiled

    room = room_of(CACHE_TOKENS if cache_tokens is None else cache_tokens, cache or "f32")
    exe, contents = compiled(path, room, options)
    return model_of(exe, contents)


def load(path: str | os.PathLike[str], *, strategy: Strategy | None = None) -> LanguageModel:
    """Load a language model from a file that `LanguageModel.save` wrote. `strategy`: as `shapevm.load` takes
    it.

    Raises ArtifactError for a file that is no artifact, or holds no language model, and the errors of
    `shapevm.load`.
    """
    return loaded(open_executable(path, check_strategy(strategy)))


def loaded(exe: Executable) -> LanguageModel:
    """Return the language model of a loaded artifact. Raises ArtifactError if it holds none."""
    try:
        return model_of(exe, language_of(exe.machine.meta, exe.constants(TOKENIZER), exe.name))
    except BaseException:
        exe.close()
        raise


def model_of(exe: Executable, contents: Contents) -> LanguageModel:
    """Return the language model of a program and its contents."""
    limits = limits_of(exe, contents.length)
    return LanguageModel(exe, Engine(Calls(exe), limits), contents)


class Calls:
    """What an engine calls: a program, or a session of it, whose cache it uses."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def compute(self, inputs: dict[str, Array]) -> tuple[Array, Array]:
        """Return the logits and the greatest ones' tokens of a call."""
        found = self._run(**inputs)
        return found["logits"], found["next"]

    def draw(self, logits: Array, how: Sampling, tokens: Sequence[int], mask: Array | None) -> int:
        """Return the token after `tokens`, given its logits and which may come."""
        found = self._run.call("sample", **arguments_of(logits, how, tokens, mask))
        return int(found["token"][0])
