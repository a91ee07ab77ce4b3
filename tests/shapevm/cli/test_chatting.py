"""`shapevm chat`: a conversation in a pipe and at a terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from shapevm.__main__ import main
from shapevm.cli.chatting import _answer
from shapevm.llm import LanguageModel, Sampling, from_pretrained, load

from ..llm.folders import write_model

FOUR = {"max_new_tokens": 4}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LanguageModel, Path]]:
    """Return a model, and its file."""
    folder = tmp_path_factory.mktemp("models") / "little"
    write_model(folder, "llama")
    with from_pretrained(folder, cache_tokens=512) as model:
        model.save(folder / "model.svm")
        yield model, folder / "model.svm"


def run(*arguments: Any, said: str | bytes = "", code: int = 0) -> Any:
    done = CliRunner().invoke(main, ["chat", *map(str, arguments)], input=said, catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done


def answers(model: LanguageModel, lines: list[str], system: str | None = None, **how: Any) -> list[str]:
    said = [] if system is None else [{"role": "system", "content": system}]
    made = []
    for line in lines:
        said.append({"role": "user", "content": line})
        made.append("".join(model.chat(said, **how)))
        said.append({"role": "assistant", "content": made[-1]})
    return made


def test_each_line_of_a_pipe_is_answered(saved: tuple[LanguageModel, Path]) -> None:
    model, path = saved
    wanted = answers(model, ["hello", "again"], **FOUR)
    assert run(path, "--max-tokens", 4, said="hello\n\n again \n").stdout == "".join(f"{x}\n" for x in wanted)
    assert run(path.parent, "--max-tokens", 4, said="hello").stdout == f"{wanted[0]}\n"
    assert run(path).stdout == ""


def test_options_reach_the_sampling(saved: tuple[LanguageModel, Path]) -> None:
    model, path = saved
    how: dict[str, Any] = {"temperature": 1.5, "top_p": 0.9, "top_k": 40, "seed": 7}
    given = [x for name, value in how.items() for x in (f"--{name.replace('_', '-')}", value)]
    (wanted,) = answers(model, ["hi"], "be kind", **FOUR, **how)
    found = run(path, "--max-tokens", 4, "--system", "be kind", *given, said="hi")
    assert found.stdout == f"{wanted}\n"
    assert "Invalid value for '--top-p'" in run(path, "--top-p", 2, code=2).stderr


def test_a_conversation_as_data(saved: tuple[LanguageModel, Path]) -> None:
    model, path = saved
    (wanted,) = answers(model, ["hi"], **FOUR)
    found = json.loads(run(path, "--max-tokens", 4, "--json", said="hi").stdout)
    assert found == {
        "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": wanted}]
    }


def test_what_cannot_converse_is_refused(saved: tuple[LanguageModel, Path], tmp_path: Path) -> None:
    model, path = saved
    assert "cannot be read" in run(tmp_path, code=3).stderr
    model.exe.save(tmp_path / "program.svm")
    assert "holds no language model" in run(tmp_path / "program.svm", code=3).stderr
    assert "No such file" in run(tmp_path / "missing.svm", code=3).stderr
    write_model(tmp_path / "plain", "gpt2")
    (tmp_path / "plain" / "chat_template.jinja").unlink(missing_ok=True)
    (tmp_path / "plain" / "tokenizer_config.json").write_text("{}")
    assert "'plain' has no chat template" in run(tmp_path / "plain", code=1).stderr
    assert "the prompt has" in run(path, said="x" * 300, code=1).stderr
    run(path, "--max-tokens", 1, said=b"\xff\xfe\n")  # no UTF-8


class Terminal:
    """A conversation at a terminal."""

    def __init__(self, *arguments: Any) -> None:
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "shapevm", "chat", *map(str, arguments)]
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        self.file, self.text = ours, ""  # read, and not looked at yet

    def until(self, part: str, seconds: float = 60.0) -> str:
        """Read until `part` is there; return all before it."""
        end = time.monotonic() + seconds
        while part not in self.text:
            self.read(end - time.monotonic())
        found, _, self.text = self.text.partition(part)
        return found

    def read(self, seconds: float = 60.0) -> None:
        """Read what comes next, unless something is there that was not looked at."""
        assert select.select([self.file], [], [], max(seconds, 0))[0], self.text
        self.text += os.read(self.file, 1 << 16).decode(errors="replace")

    def end(self) -> None:
        """Press Ctrl-C at the prompt: again if Python was about to read, and did not look at it."""
        self.process.send_signal(signal.SIGINT)
        try:
            self.until("ended by Ctrl-C", 10)
        except AssertionError:
            self.process.send_signal(signal.SIGINT)
            self.until("ended by Ctrl-C")

    def write(self, text: str) -> None:
        os.write(self.file, text.encode())


def test_a_terminal(saved: tuple[LanguageModel, Path]) -> None:
    model, path = saved
    terminal = Terminal(path, "--max-tokens", 4)
    assert "little - Ctrl-C ends an answer" in terminal.until("> ")
    for _ in range(2):
        terminal.write("hello\n")
        assert "4 tokens, cut there" in terminal.until("tokens a second")
        terminal.until("> ")
    terminal.write("x" * 300 + "\n")  # refused, and forgotten
    terminal.until("it must have 1 to 256")
    terminal.until("> ")
    terminal.write("\x04")
    assert terminal.process.wait(60) == 0


def test_ctrl_c_ends_an_answer_and_then_the_command(tmp_path: Path) -> None:
    write_model(tmp_path, "llama", max_position_embeddings=1 << 15, eos_token_id=None)
    with from_pretrained(tmp_path, cache_tokens=1 << 15) as model:
        model.save(tmp_path / "model.svm")
    terminal = Terminal(tmp_path / "model.svm", "--max-tokens", 1 << 14)
    terminal.until("> ")
    for _ in range(3):
        terminal.write("a\n")
        terminal.until("a\r\n")  # the echo
        terminal.read()  # of the answer, which has begun
        terminal.process.send_signal(signal.SIGINT)
        assert "cut there" not in terminal.until("tokens a second")
        terminal.until("> ")
    terminal.end()
    assert terminal.process.wait(60) == 130


class Answer:
    """An answer of many pieces, until it is cancelled."""

    reason, n_tokens, is_cancelled = "stop", 0, False

    def texts(self) -> Iterator[str]:
        while not self.is_cancelled and self.n_tokens < 1000:
            self.n_tokens += 1
            yield "piece "

    def cancel(self) -> None:
        self.is_cancelled = True


def test_ctrl_c_while_the_console_begins_to_print(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO())
    entered = console._enter_buffer

    def interrupted() -> None:
        entered()
        if made.n_tokens == 3 and not pressed:
            pressed.append(True)
            signal.raise_signal(signal.SIGINT)

    made, said, pressed = Answer(), list[dict[str, str]](), list[bool]()
    monkeypatch.setattr(console, "_enter_buffer", interrupted)
    model: Any = SimpleNamespace(encode_chat=lambda said: [1], submit=lambda tokens, how: made)
    _answer(console, model, Sampling(), said, "hi")
    assert console.file.getvalue().startswith("piece piece piece \n3 tokens, ")
    assert said[1]["content"] == "piece " * 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_cache_of_a_compiled_folder(saved: tuple[LanguageModel, Path], tmp_path: Path) -> None:
    def compiled(*arguments: Any) -> Any:
        given = ["compile", *map(str, arguments), "-o", str(tmp_path / "own.svm")]
        return CliRunner().invoke(main, given, catch_exceptions=False)

    model, path = saved
    assert compiled(path.parent, "--cache-tokens", 100).exit_code == 0
    with load(tmp_path / "own.svm") as own:
        assert own.engine.limits.n_pages == 7  # of 16 tokens
        assert own.generate("abc", max_new_tokens=9) == model.generate("abc", max_new_tokens=9)
    assert compiled(path.parent, "--cache-tokens", 0).exit_code == 2
    assert compiled(path.parent, "--cache-tokens", 100, "--cache", "int8").exit_code == 0
    said = CliRunner().invoke(main, ["inspect", str(tmp_path / "own.svm")], catch_exceptions=False).stdout
    assert "cache: 112 tokens of 144 bytes, in i8, with a scale for each token and head" in said
    for option in (("--cache-tokens", 100), ("--cache", "int8")):
        done = compiled(path, *option)
        assert done.exit_code == 2 and "--cache-tokens and --cache are of language models" in done.stderr
