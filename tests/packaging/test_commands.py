"""The shell blocks of pages run as they stand there, in a folder that has the files which they name."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import shapevm
from shapevm import llm
from shapevm.calls import profiles

from ..shapevm.llm.folders import write_model
from .pages import ROOT

MODEL = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x * 2, -1)

def arguments():
    batch, length = torch.export.Dim("batch", min=1, max=64), torch.export.Dim("length", min=1, max=2048)
    return {"model": Model(), "args": (torch.ones(3, 5),), "dynamic_shapes": ({0: batch, 1: length},)}
"""
#: What takes less time here than on the page.
SHORTER = {"--seconds 60": "--seconds 1", "--shapes 1000000": "--shapes 200"}


def scripts(page: str) -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", (ROOT / "docs" / f"{page}.md").read_text(), re.M | re.S)


def run(script: str, folder: Path) -> str:
    for long, short in SHORTER.items():
        script = script.replace(long, short)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=folder, env={**os.environ, "PATH": path},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, its artifact, an input and recorded sizes."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "model.py").write_text(MODEL)
    names: dict[str, object] = {}
    exec(MODEL, names)
    given = names["arguments"]()  # type: ignore[operator]
    program = torch.export.export(given["model"], given["args"], dynamic_shapes=given["dynamic_shapes"])
    torch.export.save(program, folder / "model.pt2")
    x = np.ones((3, 5), "f")
    np.save(folder / "x.npy", x)
    with shapevm.compile(**given) as exe:
        exe.save(folder / "model.svm")
        with shapevm.record() as recording:
            exe(x)
    for day in ("monday", "tuesday"):
        recording.save(folder / f"{day}.json")
    return folder


@pytest.mark.parametrize("page", ["assembly", "graph-text", "seeing", "specialisation"])
def test_blocks_run(page: str, made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    found = scripts(page)
    assert found
    for script in found:
        run(script, tmp_path)
    written = {path.name for path in tmp_path.iterdir()}
    if page == "assembly":
        assert (tmp_path / "again.svm").read_bytes() == (tmp_path / "model.svm").read_bytes()
    if page == "graph-text":
        assert (tmp_path / "model.svm").read_bytes() == compiled_again(tmp_path).read_bytes()
    if page == "seeing":
        assert json.loads((tmp_path / "profile.json").read_text())["kernels"]
        assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    if page == "specialisation":
        assert {"prof.json", "baked.svm", "frozen.svm"} <= written


@pytest.mark.parametrize("page", ["first-model", "quantise"])
def test_a_page_prints_what_it_shows(page: str, tmp_path: Path) -> None:
    """Its Python blocks as one program, then its commands."""
    text = (ROOT / "docs" / f"{page}.md").read_text()
    python, shown = (re.findall(rf"^```{kind}\n(.*?)^```$", text, re.M | re.S) for kind in ("python", "text"))
    (tmp_path / "page.py").write_text("\n".join(python))
    assert run("python page.py", tmp_path) == "".join(shown)
    for script in scripts(page):
        assert run(script, tmp_path)


def test_commands_of_the_page_on_language_models(tmp_path: Path) -> None:
    write_model(tmp_path / "model-folder", "qwen3")
    with llm.from_pretrained(tmp_path / "model-folder") as model:
        model.save(tmp_path / "model.svm")
    (tmp_path / "questions.txt").write_text("Who?\n")
    np.save(tmp_path / "prompt.npy", np.arange(3, 9))
    chats, runner = scripts("llm")
    at_terminal, from_file = chats.splitlines()
    assert run(f"{at_terminal} </dev/null", tmp_path) == ""
    assert run(from_file, tmp_path).endswith("\n")
    assert run(runner, tmp_path).split()


def test_commands_of_the_page_on_installing() -> None:
    """Those of pip are not run here: see `make wheel`, and the extras below."""
    for script in scripts("install"):
        lines = script.splitlines()
        if any(line.startswith("pip ") for line in lines):
            assert all(line.startswith("pip install ") for line in lines)
        else:
            assert shapevm.__version__ in run(script, ROOT / "docs")


def compiled_again(folder: Path) -> Path:
    """Return what compiling model.pt2 itself gives."""
    run("shapevm compile model.pt2 -o direct.svm", folder)
    return folder / "direct.svm"


def test_the_plug_in_of_its_page_is_called(tmp_path: Path) -> None:
    """Its Python blocks, then its C in `shapevm-run`, which gives the same."""
    page = (ROOT / "docs" / "plug-ins.md").read_text()
    python = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    *declaring, converting = python
    use = """
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.mylib.scale(x, 2.5)

x = torch.arange(5.0)
sizes = {"x": {0: torch.export.Dim("n", max=64)}}
shapevm.compile(Model(), (x,), dynamic_shapes=sizes).save("model.svm")
np.save("x.npy", x.numpy())
np.save("here.npy", shapevm.load("model.svm")(x.numpy()))
"""
    convert = "\nassert not shapevm.compile(Model(), (x,), dynamic_shapes=sizes).machine.externs\n"
    (tmp_path / "page.py").write_text("\n".join([*declaring, use, converting, convert]))
    shutil.copy(ROOT / "examples" / "plugin" / "scale.c", tmp_path)
    run("python page.py", tmp_path)
    (script,) = scripts("plug-ins")
    run(script, tmp_path)
    there = np.load(tmp_path / "y.npy")
    assert there.tolist() == [0.0, 2.5, 5.0, 7.5, 10.0] == np.load(tmp_path / "here.npy").tolist()


def test_the_profile_of_its_page_is_read(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "profile.md").read_text()
    (text,) = re.findall(r"^```json\n(.*?)^```$", page, re.M | re.S)
    (tmp_path / "prof.json").write_text(text)
    profile = profiles.read(tmp_path / "prof.json")
    assert profile.symbols == ("batch", "length") and profile.n_calls == 120


def test_pip_lines_name_extras_that_exist() -> None:
    table = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2]
    extras = set(re.findall(r"^(\w+) = \[", table.partition("\n[project")[0], re.M))
    pages = "".join(page.read_text() for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
    named = {extra for group in re.findall(r"shapevm\[([\w,]+)\]", pages) for extra in group.split(",")}
    assert named and named <= extras
