"""The commands and programs of docs/tour.md print what the page says they print."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import click.testing
import pytest

from shapevm.__main__ import main

PAGE = (Path(__file__).parents[2] / "docs" / "tour.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.S | re.M)


def commands(block: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with what the page says it prints."""
    parts = re.split(r"^\$ (.*)\n", block, flags=re.M)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def pattern(expected: str) -> str:
    """A regular expression of a page's output: `...` stands for any lines, in a line for any characters."""
    lines = [
        r"(?:.*\n)*" if line.strip() == "..." else re.escape(line).replace(r"\.\.\.", ".*") + r" *\n"
        for line in expected.rstrip("\n").splitlines()
    ]
    return "".join(lines) + r"\n*"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tour")
    (folder / "tour.py").write_text(next(text for language, text in BLOCKS if language == "python"))
    return folder


@pytest.mark.parametrize("block", [text for language, text in BLOCKS if language == "console"])
def test_commands_print_what_the_page_says(block, folder, monkeypatch):
    monkeypatch.chdir(folder)
    for command, expected in commands(block):
        name, *arguments = shlex.split(command)
        assert name == "shapevm"
        result = click.testing.CliRunner().invoke(main, arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        assert re.fullmatch(pattern(expected), result.stdout), result.stdout


def test_the_program_prints_what_the_page_says(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    programs = [text for language, text in BLOCKS if language == "python"]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec("\n".join(programs), {"__name__": "page"})
    (expected,) = [text for language, text in BLOCKS if language == "output"]
    assert re.fullmatch(pattern(expected), printed.getvalue()), printed.getvalue()
