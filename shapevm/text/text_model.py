"""What sentence encoders and cross-encoders share: texts to tokens, tokens to batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..program.executable import Executable
from ..vm.errors import ArgumentError
from .opening import IDS, MASK, TYPES, opened
from .settings import Kind
from .tokens import Span, Text, Tokens, is_pair

if TYPE_CHECKING:
    from ..build.options import Options
    from ..vm.codes import Strategy

Array = np.ndarray[Any, Any]
TOKENS = "token_embeddings"  # the result with the state of each token
CHUNK = 16  # texts that are tokenized at a time
MAX_TOKENS = 512  # of a batch: longer ones are 2 % faster, and take memory


class TextModel:
    """A program over token ids with its tokenizer.

    `max_tokens`: places of a batch; `threads`: batches that run at once, None: one for each thread that runs
    kernels (`shapevm.set_threads`). Threads may share a model. `RESULTS`: the names of results, [texts,
    width], that a program has; `run` returns the first.
    """

    KIND: ClassVar[Kind]
    RESULTS: ClassVar[tuple[str, ...]]
    _how: Mapping[str, bool] = {}  # further arguments of the function that opens a folder

    def __init__(
        self,
        model: str | os.PathLike[str] | Executable,
        *,
        options: Options | None = None,
        strategy: Strategy | None = None,
    ) -> None:
        self._opened = opened(model, self.KIND, options, strategy, **self._how)
        self.max_tokens = MAX_TOKENS
        self.threads: int | None = None
        self._names = [value.name for value in self.executable.inputs]
        shapes = {value.name: value.shape or () for value in self.executable.outputs}
        if any(len(shapes.get(name, ())) != 2 for name in self.RESULTS):
            raise ArgumentError(
                f"the program returns {', '.join(shapes)}; this class needs {', '.join(self.RESULTS)}"
            )
        self._width = int(shapes[self.RESULTS[0]][1])

    @property
    def executable(self) -> Executable:
        """The program."""
        return self._opened.executable

    @property
    def kind(self) -> Kind:
        """Whether this is an encoder or a cross-encoder."""
        return self._opened.settings.kind

    @property
    def name(self) -> str:
        """The model's name."""
        return self._opened.settings.name

    @property
    def max_length(self) -> int:
        """The most tokens of a text, those that the tokenizer adds included: the rest is cut off."""
        return self._opened.settings.max_length

    @property
    def max_seq_length(self) -> int:
        """The same; it can be lowered, and raised up to the program's bound."""
        return self.max_length

    @max_seq_length.setter
    def max_seq_length(self, value: int) -> None:
        symbols = {symbol.name: symbol.max for symbol in self.executable.machine.symbols}
        most = symbols.get("length") or self.max_length
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise ArgumentError(f"max_seq_length is {value!r}; it must be a whole number from 1 to {most}")
        settings = replace(self._opened.settings, max_length=value)
        self._opened = replace(self._opened, settings=settings)

    @property
    def prompts(self) -> Mapping[str, str]:
        """Texts that are put before a text, by name."""
        return self._opened.settings.prompts

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program, its weights, the tokenizer and the settings to one file, which this class opens
        with numpy and tokenizers alone. Raises FileError if that fails."""
        self._opened.save(path)

    def prompt_of(self, prompt: str | None, prompt_name: str | None) -> str:
        """Return the text that is put before texts: `prompt`, or the one of that name, or the default one.

        Raises ArgumentError for an unknown name.
        """
        if prompt is not None:
            return prompt
        name = prompt_name or self._opened.settings.default_prompt
        if prompt_name is not None and name not in self.prompts:
            known = ", ".join(self.prompts) or "none"
            raise ArgumentError(f"prompt_name {prompt_name!r} is unknown; known are {known}")
        return self.prompts.get(name, "")

    def tokenize(self, texts: Sequence[Text], *, prompt: str | None = None) -> list[Tokens]:
        """Return the token ids of each text, or pair of texts, with those that the tokenizer adds, cut to
        `max_length`. `prompt` is put before each text, or before the first of a pair.

        Raises ArgumentError, which names the text, for one that is neither.
        """
        if prompt:
            texts = [_prompted(text, prompt) for text in texts]
        return self._opened.tokenizer.encode(texts, self.max_length)

    def spans(self, texts: Sequence[str], *, with_special: bool = True) -> list[list[Span]]:
        """Return all tokens of each text with their places in it; `with_special`: and those that the
        tokenizer adds."""
        return self._opened.tokenizer.spans(texts, with_special)

    def check_token_embeddings(self) -> None:
        """Raise ArgumentError unless the program returns the state of each token."""
        if TOKENS not in [value.name for value in self.executable.outputs]:
            raise ArgumentError(
                "the program returns no token embeddings: compile it with SentenceEncoder(folder, "
                "token_embeddings=True)"
            )

    def run(self, tokens: Sequence[Sequence[int]]) -> Array:
        """Return the first result of each text, f32[texts, width], in one call: see `results`."""
        none = np.zeros((0, self._width), np.float32)
        return self.results(tokens)[self.RESULTS[0]] if len(tokens) else none

    def results(self, tokens: Sequence[Sequence[int]]) -> dict[str, Array]:
        """Return the results of one text or more in one call, f32[texts, ..]; those of tokens are f32[texts,
        longest, width]. `tokens`: as `tokenize` returns them, or lists of token ids.

        Raises ArgumentError, which names the text, for one that has too many tokens or an unknown id.
        """
        self._check(tokens)
        shape = len(tokens), max(1, *map(len, tokens))
        inputs = {name: np.zeros(shape, np.int64) for name in self._names}
        inputs[IDS][:] = self._opened.settings.pad
        for row, ids in enumerate(tokens):
            for name, values in self._item(ids).items():
                inputs[name][row, : len(ids)] = values
            inputs[MASK][row, : len(ids)] = 1
        return {name: np.asarray(found, np.float32) for name, found in self.executable.run(inputs).items()}

    def _check(self, tokens: Sequence[Sequence[int]]) -> None:
        n, most = self._opened.settings.vocabulary, self.max_length
        for index, ids in enumerate(tokens):
            if len(ids) > most:
                raise ArgumentError(f"text {index} has {len(ids)} tokens; it may have at most {most}")
            for one in ids:
                if isinstance(one, bool) or not isinstance(one, int | np.integer) or not 0 <= one < n:
                    raise ArgumentError(f"text {index} has the token {one!r}; token ids are 0 to {n - 1}")

    def _item(self, tokens: Sequence[int]) -> dict[str, Array]:
        """Return the inputs of a text except the mask."""
        found = {IDS: np.asarray(tokens, np.int64)}
        if TYPES in self._names:
            found[TYPES] = np.asarray(getattr(tokens, "types", None) or [0] * len(tokens), np.int64)
        return found

    def _mapped(
        self, texts: Sequence[Text], prompt: str, max_rows: int | None, progress: bool | None
    ) -> Iterator[Any]:
        """Return an iterator over the results of texts, in their order."""
        items = Items(texts, lambda part: map(self._item, self.tokenize(part, prompt=prompt)))
        return self.executable.map(
            items,
            max_tokens=self.max_tokens,
            max_rows=max_rows,
            threads=self.threads,
            padding={IDS: self._opened.settings.pad},
            progress=bool(progress),
        )

    def _collected(self, results: Iterator[Any], n: int, name: str) -> Array:
        """Return one result of each of n texts, f32[n, width]."""
        made = np.zeros((n, self._width), np.float32)
        for row, result in zip(made, results, strict=True):
            row[:] = result[name]
        return made


class Items:
    """The items of `Executable.map` for texts, which are tokenized a few at a time."""

    def __init__(self, texts: Sequence[Text], tokenize: Callable[[Sequence[Text]], Iterator[Any]]) -> None:
        self._texts, self._tokenize = texts, tokenize

    def __len__(self) -> int:
        return len(self._texts)

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self._texts), CHUNK):
            yield from self._tokenize(self._texts[start : start + CHUNK])


def _prompted(text: Text, prompt: str) -> Text:
    if isinstance(text, str):
        return prompt + text
    return (prompt + text[0], text[1]) if is_pair(text) else text


def check_device(device: Any) -> None:
    """Raise ArgumentError for a device that is no CPU."""
    if device is not None and str(device) != "cpu":
        raise ArgumentError(f"device is {device!r}; programs run on the CPU: give 'cpu' or None")


def converted(results: Array, to_numpy: bool, to_tensor: bool) -> Any:
    """Return the results of texts as sentence-transformers' arguments `convert_to_numpy` and
    `convert_to_tensor` ask for: an array, one tensor of PyTorch, or a list of tensors."""
    if to_tensor:
        return as_tensor(results)
    return results if to_numpy else list(as_tensor(results))


def as_tensor(array: Array) -> Any:
    """Return an array as a tensor of PyTorch. Raises ArgumentError if torch is not installed."""
    try:
        import torch
    except ModuleNotFoundError:
        raise ArgumentError(
            "tensors need torch: install it, or take numpy arrays (convert_to_numpy)"
        ) from None
    return torch.from_numpy(array)
