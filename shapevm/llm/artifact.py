"""Language models in artifacts: settings in META, the tokenizer in a constant that no instruction reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..text.artifact import tokenizer_json, with_tokenizer
from ..text.tokens import Tokenizer
from ..vm.errors import ArgumentError, ArtifactError
from .engine import Limits
from .pages import PAGE
from .sampling import Sampling
from .template import ChatTemplate

if TYPE_CHECKING:
    from ..program.executable import Executable
    from ..vm.program import Constant, Program

Array = np.ndarray[Any, Any]
#: The inputs of `Decoder.forward`: shapes and dtypes.
INPUTS: dict[str, tuple[tuple[str, ...], str]] = {
    "ids": (("tokens",), "i64"),
    "positions": (("tokens",), "i64"),
    "slots": (("tokens",), "i64"),
    "offsets": (("sequences + 1",), "i64"),
    "lengths": (("sequences",), "i64"),
    "table": (("sequences", "pages"), "i32"),
    "last": (("sequences",), "i64"),
}
#: The fields of `Sampling` in the section's "sampling".
_KEPT = [each.name for each in fields(Sampling) if each.name not in ("seed", "stop_tokens")]


def inputs_of_sample(vocabulary: int) -> dict[str, Any]:
    """Return the inputs of `Decoder.sample`: shapes and dtypes. `arguments_of` says what they hold."""
    return {
        "logits": ((1, vocabulary), "f32"),
        "tokens": (("seen",), "i64"),
        "numbers": ((4,), "f64"),
        "integers": ((3,), "i64"),
        "mask": ((1, vocabulary), "bool"),
    }


def arguments_of(
    logits: Array, how: Sampling, tokens: Sequence[int], mask: Array | None = None
) -> dict[str, Array]:
    """Return the arguments of `Decoder.sample` for the token after `tokens`, given its logits and which
    tokens may come, bool[1, vocabulary]; None: all."""
    numbers = (how.temperature, how.top_p, how.min_p, how.repetition_penalty)
    seed = how.seed - (1 << 64) if how.seed >> 63 else how.seed
    return {
        "logits": logits[None],
        "tokens": np.asarray(tokens, np.int64),
        "numbers": np.array(numbers, np.float64),
        "integers": np.array([how.top_k, seed, len(tokens)], np.int64),
        "mask": np.ones((1, len(logits)), np.bool_) if mask is None else mask,
    }


@dataclass(frozen=True)
class Contents:
    """What a language model is besides its program.

    `length`: the most tokens of a sequence. `template`: of conversations; None for a model that has none.
    `defaults`: the model's stop tokens, and the sampling of a text.
    """

    name: str
    length: int
    tokenizer: Tokenizer
    template: ChatTemplate | None
    defaults: Sampling


def with_language(program: Program, contents: Contents) -> Program:
    """Return a program that holds a language model. Raises ArgumentError for a tokenizer that is too
    large."""
    template, how = contents.template, contents.defaults
    section = {
        "name": contents.name,
        "length": contents.length,
        "stop_tokens": sorted(how.stop_tokens),
        "template": "" if template is None else template.text,
        "special": {} if template is None else template.special,
        "sampling": {each: getattr(how, each) for each in _KEPT},
    }
    return replace(with_tokenizer(program, contents.tokenizer), meta={**program.meta, "language": section})


def language_of(meta: Mapping[str, Any], constants: Iterable[Constant], name: str) -> Contents:
    """Return the contents of a program with this META and these constants. Raises ArtifactError, with the
    program's name, if it holds no language model, or an invalid one."""
    said = meta.get("language")
    if said is None:
        raise ArtifactError(
            f"{name} holds no language model: save one with LanguageModel.save, or with "
            "`shapevm compile FOLDER`"
        )
    tokenizer = Tokenizer(tokenizer_json(constants, name))
    defaults = _sampling(said, name)
    try:
        template = ChatTemplate(said["template"], said["special"]) if said["template"] else None
    except ArgumentError as error:
        raise ArtifactError(f"{name}: {error}") from None
    return Contents(said["name"], said["length"], tokenizer, template, defaults)


def _sampling(said: Mapping[str, Any], name: str) -> Sampling:
    unknown = [each for each in said["sampling"] if each not in _KEPT]
    if unknown:
        raise ArtifactError(f"{name}: its sampling has {unknown[0]!r}, which is unknown")
    try:
        return Sampling(**said["sampling"], stop_tokens=frozenset(said["stop_tokens"]))
    except ArgumentError as error:
        raise ArtifactError(f"{name}: {error}") from None


def limits_of(exe: Executable, length: int) -> Limits:
    """Return the limits of the engine that runs a program: the pages are those of its cache. Raises
    ArtifactError for a program with other inputs or results than a `Decoder` has."""
    for row in exe.inputs:
        shape, dtype = INPUTS.get(row.name, ((), ""))
        if row.dtype != dtype or len(row.shape or ()) != len(shape):
            raise ArtifactError(f"{exe.name} takes {row}; a language model takes {', '.join(INPUTS)}")
    results = {row.name: row for row in exe.outputs}
    logits, best = results.get("logits"), results.get("next")
    sizes = () if logits is None or logits.dtype != "f32" else logits.shape or ()
    is_whole = len(exe.inputs) == len(INPUTS) and best is not None and best.dtype == "i64"
    if not is_whole or len(sizes) != 2 or not isinstance(sizes[1], int):
        raise ArtifactError(
            f"{exe.name} takes {', '.join(row.name for row in exe.inputs)} and returns {', '.join(results)}; "
            f"a language model takes {', '.join(INPUTS)} and returns f32 logits and the next tokens"
        )
    if "sample" not in exe.functions:
        raise ArtifactError(f'{exe.name} has no function "sample", which draws a language model\'s tokens')
    return Limits(_n_pages(exe), length, sizes[1])


def _n_pages(exe: Executable) -> int:
    rows = exe.machine.inputs[len(exe.inputs) :]
    sizes = [row.axes[0].offset for row in rows if row.axes and row.axes[0].symbol is None]
    if not rows or len(sizes) < len(rows) or min(sizes) < PAGE:
        raise ArtifactError(f"{exe.name} keeps no pages of keys and values; a language model does")
    return min(sizes) // PAGE
