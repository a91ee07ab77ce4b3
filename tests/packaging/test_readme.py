"""What README.md and docs/usage.md show works as it stands there; links on all pages lead somewhere."""

import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import shapevm
from shapevm.__main__ import main

ROOT = Path(__file__).parents[2]
PAGES = [page for folder in (".", "docs", "benchmarks/log") for page in sorted((ROOT / folder).glob("*.md"))]
RUN = [ROOT / "README.md", ROOT / "docs" / "usage.md"]
MAX_LINES = 120  # of README.md
SMALL_ENCODER = """
import torch

class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(3000, 16)
        self.linear = torch.nn.Linear(16, 384)

    def forward(self, input_ids, attention_mask):
        mask = attention_mask.unsqueeze(-1).to(torch.float32)
        return torch.tanh((self.linear(self.embed(input_ids)) * mask).sum(1) / mask.sum(1))

def arguments():
    batch, length = torch.export.Dim("batch", min=1, max=32), torch.export.Dim("length", min=1, max=512)
    ids, axes = torch.ones(3, 19, dtype=torch.int64), {0: batch, 1: length}
    return {"model": Encoder(), "args": (ids, ids), "dynamic_shapes": (axes, axes)}
"""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.S | re.M)
    return [text for name, text in fenced if name == language]


def commands(page: Path) -> list[list[str]]:
    """The lines of a page's blocks that run shapevm, as words; with less time and fewer shapes than there."""
    text = "".join(blocks(page, "sh")).replace("--seconds 60", "--seconds 1")
    lines = text.replace("--shapes 1000000", "--shapes 200").splitlines()
    return [shlex.split(line, comments=True) for line in lines if re.match(r"shapevm\b", line)]


def run(command: list[str], folder: Path, **environment: str) -> str:
    environment = {**os.environ, **environment}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_programs_run(page, tmp_path):
    printed = run([sys.executable, "-c", "\n".join(blocks(page, "python"))], tmp_path)
    assert printed.strip()
    assert (tmp_path / "model.svm").exists()


def run_commands(page: Path, folder: Path, **environment: str) -> None:
    """Run a page's commands in order in a folder, which has an `examples/encoder.py`."""
    ids = np.full((1, 5), 2000)
    np.save(folder / "ids.npy", ids)
    np.save(folder / "mask.npy", np.ones_like(ids))
    scripts = Path(sys.executable).parent
    for name, *arguments in commands(page):
        assert run([str(scripts / name), *arguments], folder, **environment).strip()
    assert np.load(folder / "out.npz")["output"].shape == (1, 384)


def test_commands_of_the_readme_run_on_the_real_model(tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    run_commands(ROOT / "README.md", tmp_path)


def test_commands_of_the_usage_page_run(tmp_path):
    """On a small model of the encoder's inputs, for one target on every machine."""
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "encoder.py").write_text(SMALL_ENCODER)
    run_commands(ROOT / "docs" / "usage.md", tmp_path, SHAPEVM_TARGET="x86-64-v3")


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= MAX_LINES


def slug(heading: str) -> str:
    """The anchor that renderers of Markdown give a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    for target, anchor in re.findall(r"\]\((?!http)([^)#\s]*)(?:#([^)\s]*))?\)", prose):
        there = page.parent / target if target else page
        assert there.exists(), f"{name_of(page)}: {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", there.read_text(), re.M)
            assert anchor in map(slug, headings), f"{name_of(page)}: {target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_pages_name_exist(page):
    """A path in backticks that begins with one of our folders is that of a file or folder."""
    folders = "shapevm|compiler|jit|vm|runtime_c|tests|benchmarks|examples|docs"
    for path in re.findall(rf"`((?:{folders})/[\w./-]*)`", page.read_text()):
        assert (ROOT / path).exists(), f"{name_of(page)}: {path}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_make_targets_exist(page):
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"(?:^|`)make (\w+)", page.read_text(), re.M):
        assert re.search(rf"^{target}:", makefile, re.M), f"{name_of(page)}: make {target}"


def named_commands(page):
    """The commands in the prose of a page, as words."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.S | re.M)
    found = re.findall(r"`((?:python|shapevm|shapevm-run)\s[^`]*)`", prose)
    return [text.split() for text in found]


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name != "log"], ids=name_of)
def test_commands_in_prose_exist(page):
    """A command of shapevm with its flags, a flag of shapevm-run, a module or file that Python runs."""
    runner = run([shapevm.runner_path(), "--help"], ROOT)
    for name, *words in named_commands(page):
        if name == "python":
            place = words[1].replace(".", "/").removeprefix("shapevm/") if words[0] == "-m" else words[0]
            there = [ROOT / place, ROOT / f"{place}.py"]
            assert words[0] == "-c" or "NAME" in place or any(path.exists() for path in there), words
            continue
        flags = {word.partition("=")[0] for word in words if word.startswith("--")} - {"--help", "--version"}
        known = runner.split() if name == "shapevm-run" else []
        if name == "shapevm" and not words[0].startswith("-"):
            assert words[0] in [*main.commands, "COMMAND"], words
            options = main.commands[words[0]].params if words[0] in main.commands else []
            known = [flag for option in options for flag in option.opts]
        assert flags <= {word.strip("[],=|") for word in known}, (words, flags)


def test_every_command_is_described():
    pages = "".join((ROOT / name).read_text() for name in ("docs/usage.md", "SECURITY.md"))
    missing = [name for name in main.commands if f"shapevm {name}" not in pages]
    assert not missing


@pytest.mark.parametrize("function", [shapevm.compile, shapevm.load], ids=lambda f: f.__name__)
def test_every_argument_has_a_row(function):
    """In the table of usage.md that is headed by the function's name."""
    usage = (ROOT / "docs" / "usage.md").read_text()
    table = usage.partition(f"| argument of `shapevm.{function.__name__}` |")[2].partition("\n\n")[0]
    described = set(re.findall(r"\w+", "".join(re.findall(r"^\| (`[^|]*) \|", table, re.M))))
    given = set(inspect.signature(function).parameters) - {"path"}
    assert given == described
