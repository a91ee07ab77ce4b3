"""Chat templates against transformers', and hostile ones."""

from __future__ import annotations

from typing import Any

import pytest

from shapevm.errors import ArgumentError
from shapevm.llm.template import MAX_RESULT, ChatTemplate

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] | trim + '<|im_end|>\\n' }}"
    "{% endfor %}\n{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "<start_of_turn>{{ m['role'] }}\n{{ m['content'] }}"
    "<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
TOOLS = (
    "{% for t in tools %}{{ t | tojson }}{% if loop.last %}{% break %}{% endif %}{% endfor %}"
    "{{ messages[0].content }}"
)
TALK = [{"role": "user", "content": " Grüße <b> "}, {"role": "assistant", "content": "ja"}]


@pytest.mark.parametrize("text", [CHATML, GEMMA, TOOLS])
@pytest.mark.parametrize("is_reply_next", [True, False])
def test_prompts_are_those_of_transformers(text: str, is_reply_next: bool) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    tools = [{"name": "größe", "parameters": {"x": [1, None]}}]
    wanted, _ = render_jinja_template(
        [TALK], tools=tools, chat_template=text, add_generation_prompt=is_reply_next, bos_token="<bos>"
    )
    template = ChatTemplate(text, {"bos_token": "<bos>"})
    assert template.render(TALK, is_reply_next=is_reply_next, tools=tools) == wanted[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{% for %}", "the chat template cannot be read"),
        ("{{ (" * 900, "the chat template cannot be read"),
        (" " * (1 << 19), "the chat template has 524288 characters"),
    ],
)
def test_other_texts_are_no_templates(text: str, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        ChatTemplate(text, {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GEMMA, "refuses the messages: roles must alternate"),
        ("{{ messages.__class__.__mro__ }}{{ ''.__class__.__subclasses__() }}", "unsafe"),
        ("{{ messages.append(1) }}", "is not safely callable|unsafe"),
        ("{{ 'a' * 1000000000 }}", r"\* of 'a' and 1000000000 is not allowed"),
        ("{{ 9 ** 9 ** 9 }}", r"\*\* of 9 and 9 is not allowed"),
        ("{{ '%1000000000d' % 1 }}", "% of .* is not allowed"),
        ("{% for i in range(1000000000) %}{% endfor %}", "a range of 1000000000 is longer"),
        ("{% for i in range(9999) %}{{ messages }}" + "x" * 999 + "{% endfor %}", f"more than {MAX_RESULT}"),
        ("{{ unknown.attribute }}", "refuses the messages: 'unknown' is undefined"),
    ],
)
def test_hostile_templates_are_refused_in_one_sentence(text: str, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        ChatTemplate(text, {"bos_token": ""}).render([TALK[0], TALK[0]])


@pytest.mark.parametrize("message", [3, {}, {"role": 3}, None])
def test_messages_of_another_form_are_named(message: Any) -> None:
    with pytest.raises(ArgumentError, match="message 1 is .*; it must be a dict with a role and content"):
        ChatTemplate(CHATML, {}).render([TALK[0], message])
