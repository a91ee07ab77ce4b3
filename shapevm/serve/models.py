"""The model that a server serves: a program, and what it does with texts."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import Executable, get_threads
from .admission import Admission
from .batches import Batcher, Rules
from .inference import VERSION, Inference, call
from .limits import Limits
from .metrics import Metrics
from .refusals import Refused

if TYPE_CHECKING:
    from .. import CrossEncoder, SentenceEncoder
    from ..llm import LanguageModel
    from ..vm.cancel import CancelFlag

    TextModel = SentenceEncoder | CrossEncoder


class Service:
    """A loaded model with its batchers and limits."""

    def __init__(
        self,
        exe: Executable,
        name: str,
        limits: Limits,
        text: TextModel | None = None,
        language: LanguageModel | None = None,
    ) -> None:
        """`text`, `language`: what the file does with texts; None if it is no such model."""
        self.name, self.limits, self.text, self.language = name, limits, text, language
        self.is_draining = False
        self.admission = Admission(limits)
        self.metrics = Metrics(exe, lambda: self.admission.running)
        self._exe = exe
        self.talkers = ThreadPoolExecutor(limits.max_requests, "shapevm-talker")
        threads = limits.workers or get_threads()
        self._calls = Batcher(partial(call, exe), Rules(1, 0.0, threads), self.metrics.batch)
        self.inference = Inference(exe, name, self._calls)
        self._texts = None
        if text is not None:
            rules = Rules(limits.batch_tokens, limits.max_wait / 1e3, threads)
            self._texts = Batcher(partial(_encode, text), rules, self.metrics.batch)

    @property
    def text_model(self) -> TextModel:
        """The model of texts. Raises Refused if there is none."""
        if self.text is None:
            raise Refused(
                f"{self.name!r} is no model of texts; it takes POST /v2/models/{self.name}/infer", 404
            )
        return self.text

    @property
    def text_batcher(self) -> Batcher:
        """The batcher of texts. Raises Refused if there is none."""
        self.text_model  # noqa: B018
        assert self._texts is not None
        return self._texts

    @property
    def language_model(self) -> LanguageModel:
        """The language model. Raises Refused if there is none."""
        if self.language is None:
            raise Refused(f"{self.name!r} is no language model; GET /info names the routes that it has", 404)
        return self.language

    def check_name(self, name: str | None, version: str | None = None) -> None:
        """Raise Refused unless a request names this model and its version, or none."""
        if name not in (None, self.name):
            raise Refused(f"model {name[:60]!r} is unknown; this server has {self.name!r}", 404)
        if version not in (None, VERSION):
            raise Refused(
                f"version {version[:20]!r} of {self.name!r} is unknown; there is version {VERSION!r}", 404
            )

    def check(self) -> None:
        """Raise an error if the program cannot be called: its weights are damaged, or its file was
        changed."""
        self._exe.machine.check_weights()

    def close(self) -> None:
        """End the batchers' threads, and free the program."""
        for batcher in filter(None, (self._calls, self._texts)):
            batcher.close()
        if self.language is not None:
            self.language.close()
        self.talkers.shutdown(cancel_futures=True)
        self._exe.close()


def _encode(
    text: TextModel, items: Sequence[tuple[Sequence[int], str | None]], cancel: CancelFlag | None
) -> list[np.ndarray[Any, Any]]:
    """Return one result of each text. items: tokens, and the name of a result whose rows are those of tokens;
    None: the model's own."""
    found = text.results([tokens for tokens, _ in items])
    return [
        found[text.RESULTS[0]][row] if name is None else found[name][row, : len(tokens)]
        for row, (tokens, name) in enumerate(items)
    ]
