"""Chat templates: the jinja2 text of a tokenizer_config.json, in jinja2's sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from ..vm.errors import ArgumentError

MISSING = "chat templates need the package jinja2: pip install 'shapevm[llm]'"
MAX_TEMPLATE, MAX_RESULT = 1 << 18, 1 << 22  # characters
MAX_STEPS = 1 << 16  # of a `range`
Message = Mapping[str, Any]


class ChatTemplate:
    """A template and the texts of special tokens that it may name (`bos_token`, `eos_token`).

    Raises ArgumentError if jinja2 is missing, and for a text that is no template.
    """

    def __init__(self, text: str, special: Mapping[str, str]) -> None:
        if len(text) > MAX_TEMPLATE:
            raise ArgumentError(
                f"the chat template has {len(text)} characters; at most {MAX_TEMPLATE} are read"
            )
        self.text, self.special = text, dict(special)
        try:
            self._template = _environment().from_string(text)
        except Exception as error:  # jinja2's, and Python's for deep nesting
            if isinstance(error, ArgumentError):
                raise
            raise ArgumentError(f"the chat template cannot be read: {_said(error)}") from None

    def render(self, messages: Sequence[Message], *, is_reply_next: bool = True, **more: Any) -> str:
        """Return the prompt of a conversation. `messages`: dicts with "role" and "content"; `is_reply_next`:
        end with the beginning of the assistant's message; `more`: further names of the template, such as
        `tools`.

        Raises ArgumentError for messages of another form and those that the template refuses.
        """
        for index, message in enumerate(messages):
            if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
                raise ArgumentError(
                    f"message {index} is {message!r:.80}; it must be a dict with a role and content"
                )
        parts, n = [], 0
        given = {**self.special, **more, "messages": [dict(each) for each in messages]}
        try:
            for part in self._template.generate(add_generation_prompt=is_reply_next, **given):
                parts.append(part)
                n += len(part)
                if n > MAX_RESULT:
                    raise ArgumentError(f"the chat template writes more than {MAX_RESULT} characters")
        except ArgumentError:
            raise
        except Exception as error:
            raise ArgumentError(f"the chat template refuses the messages: {_said(error)}") from None
        return "".join(parts)


def _environment() -> Any:
    """Return jinja2's sandbox with the functions that templates of Hugging Face use, and bounds."""
    try:
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ModuleNotFoundError:
        raise ArgumentError(MISSING) from None

    class Environment(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset({"*", "**", "%"})

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            """Compute products of small numbers only: texts and lists could fill the memory."""
            is_small = all(isinstance(x, int | float) and abs(x) < 1 << 31 for x in (left, right))
            if not is_small or (operator == "**" and abs(right) > 8):
                raise ValueError(f"{operator} of {left!r:.20} and {right!r:.20} is not allowed")
            return super().call_binop(context, operator, left, right)

    made = Environment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    made.filters["tojson"] = _as_json
    made.globals.update(
        raise_exception=_refuse, strftime_now=lambda form: datetime.now().strftime(form), range=_range
    )
    return made


def _range(*bounds: int) -> range:
    """Return Python's range. Raises ValueError for a long one."""
    found = range(*bounds)
    if len(found) > MAX_STEPS:
        raise ValueError(f"a range of {len(found)} is longer than {MAX_STEPS}")
    return found


def _as_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> None:
    raise ValueError(message)


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
