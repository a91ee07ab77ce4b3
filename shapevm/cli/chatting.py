"""The command that converses with a language model."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..build.progress import waiting
from ..vm.errors import ArgumentError
from ..vm.literals import printable, printable_lines
from .shared import NOT_LOADED, failing, is_json, is_quiet, model_or_folder, say

if TYPE_CHECKING:
    from rich.console import Console

    from ..llm import Generation, LanguageModel, Sampling

Messages = list[dict[str, str]]
#: Options: the field of `Sampling`, its kind, and what it means.
_OPTIONS = (
    ("max-tokens", "max_new_tokens", click.IntRange(min=0), "the most tokens of an answer"),
    ("temperature", "temperature", click.FloatRange(min=0), "0: always the most probable token"),
    ("top-k", "top_k", click.IntRange(min=0), "how many of the most probable tokens remain; 0: all"),
    ("top-p", "top_p", click.FloatRange(0, 1), "the share of probability that remains"),
    ("min-p", "min_p", click.FloatRange(0, 1), "the least probability, as a share of the greatest"),
    ("repetition-penalty", "repetition_penalty", click.FloatRange(min=1e-4), "over 1: less repetition"),
    ("seed", "seed", click.IntRange(min=0), "of the random numbers"),
)


def _sampling_options(command: Any) -> Any:
    for name, field, kind, meaning in reversed(_OPTIONS):
        command = click.option(f"--{name}", field, type=kind, help=f"{meaning}; default: the model's")(
            command
        )
    return command


@click.command("chat")
@click.argument("model", type=click.Path(path_type=Path), callback=model_or_folder)
@click.option("--system", help="the system prompt, which the conversation begins with")
@_sampling_options
def chat_command(model: Path, system: str | None, **given: Any) -> None:
    """Converse with a language model.

    MODEL is a file that `compile` wrote, a folder of Hugging Face, or a GGUF file. Each line of standard
    input is a message; Ctrl-D ends the conversation, and Ctrl-C an answer. Where input or output is no
    terminal, only the answers are printed.
    """
    with failing(NOT_LOADED), waiting("shapevm chat: open the model", is_quiet()):
        from ..llm import from_pretrained

        opened = from_pretrained(model)
    with opened:
        if opened.contents.template is None:
            raise ArgumentError(f"{opened.name!r} has no chat template, so it does not converse")
        how = replace(
            opened.defaults, **{field: value for field, value in given.items() if value is not None}
        )
        said: Messages = [] if system is None else [{"role": "system", "content": system}]
        is_terminal = sys.stdin.isatty() and sys.stdout.isatty() and not is_json()
        if is_terminal:
            _converse(opened, how, said)
        else:
            _answer_lines(opened, how, said)
        if is_json():
            say("", messages=said)


def _answer_lines(model: LanguageModel, how: Sampling, said: Messages) -> None:
    """Answer each line of standard input, and print the answers."""
    for line in sys.stdin.buffer:
        message = line.decode(errors="replace").strip()
        if not message:
            continue
        said.append({"role": "user", "content": message})
        said.append({"role": "assistant", "content": ""})
        for text in model.submit(model.encode_chat(said[:-1]), how).texts():
            said[-1]["content"] += text
            if not is_json():
                click.echo(text, nl=False)
                sys.stdout.flush()
        if not is_json():
            click.echo()


def _converse(model: LanguageModel, how: Sampling, said: Messages) -> None:
    """Talk to somebody at a terminal."""
    from rich.console import Console

    console = Console(highlight=False)
    console.print(
        f"{printable(model.name)} - Ctrl-C ends an answer, Ctrl-D the conversation", style="dim", markup=False
    )
    while True:
        try:
            line = console.input("[bold]> [/bold]").encode(errors="replace").decode()
        except EOFError:
            console.print()
            return
        if line.strip():
            _answer(console, model, how, said, line.strip())


def _answer(console: Console, model: LanguageModel, how: Sampling, said: Messages, line: str) -> None:
    """Print the answer to a message; Ctrl-C ends it. A message that is refused is forgotten."""
    message = {"role": "user", "content": line}
    start, text = time.monotonic(), ""
    try:
        made = model.submit(model.encode_chat([*said, message]), how)
    except ArgumentError as error:
        console.print(printable(str(error)), style="red", markup=False)
        return
    with _cancelling(made) as is_ended:
        for piece in made.texts():
            if is_ended():
                break
            text += piece
            console.print(printable_lines(piece), end="", style="cyan", markup=False, soft_wrap=True)
    rate = made.n_tokens / max(time.monotonic() - start, 1e-9)
    end = ", cut there" if made.reason == "length" else ""
    console.print(f"\n{made.n_tokens} tokens{end}, {rate:.1f} tokens a second", style="dim")
    said += [message, {"role": "assistant", "content": text}]


@contextmanager
def _cancelling(made: Generation) -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C cancel an answer within the block, which gets whether it did. An exception could come while
    the console prints, which would print nothing more."""
    pressed: list[bool] = []

    def end(*_: object) -> None:
        if not pressed:
            pressed.append(True)
            made.cancel()

    before = signal.signal(signal.SIGINT, end)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


COMMANDS = (chat_command,)
