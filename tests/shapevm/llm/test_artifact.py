"""Language models saved as one file."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shapevm.vm import artifact
from shapevm.vm.errors import ArgumentError, ArtifactError, FileError
from shapevm.vm.program import Constant

import shapevm
from shapevm import Options, llm
from shapevm.cli import main
from shapevm.llm import LanguageModel, from_pretrained

from .folders import write_model

MESSAGES = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models") / "little"
    write_model(made, "llama")
    return made


@pytest.fixture(scope="module")
def saved(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LanguageModel, Path]]:
    """Return a model of a folder, and the file that it wrote."""
    path = tmp_path_factory.mktemp("saved") / "model.svm"
    with from_pretrained(folder, cache_tokens=512) as model:
        model.save(path)
        yield model, path


def texts_of(model: LanguageModel) -> list[Any]:
    how = {"max_new_tokens": 12, "temperature": 1.2, "top_k": 30, "seed": 3}
    return [
        model.generate(["abc", "hello world"], max_new_tokens=12),
        model.generate("abc", **how),
        "".join(model.chat(MESSAGES, max_new_tokens=6)),
        model.encode_chat(MESSAGES),
    ]


def test_a_file_generates_what_its_folder_does(saved: tuple[LanguageModel, Path]) -> None:
    model, path = saved
    for open_it in (llm.load, from_pretrained):
        with open_it(path) as loaded:
            assert texts_of(loaded) == texts_of(model)
            assert loaded.defaults == model.defaults and loaded.defaults.stop_tokens == {1}
            assert (loaded.name, loaded.max_length) == ("little", 256)
            assert loaded.engine.limits == model.engine.limits


def test_a_loaded_model_is_saved_again(saved: tuple[LanguageModel, Path], tmp_path: Path) -> None:
    _, path = saved
    with llm.load(path) as loaded:
        loaded.save(tmp_path / "again.svm")
    assert (tmp_path / "again.svm").read_bytes() == path.read_bytes()


def test_the_cache_takes_no_room_in_the_file(folder: Path, tmp_path: Path) -> None:
    sizes = []
    for n in (64, 1 << 16):  # the cache of the second has 25 MB
        with from_pretrained(folder, cache_tokens=n) as model:
            model.save(tmp_path / "model.svm")
        sizes.append((tmp_path / "model.svm").stat().st_size)
        with llm.load(tmp_path / "model.svm") as loaded:
            assert loaded.engine.limits.n_pages == n // 16
    assert abs(sizes[1] - sizes[0]) < 4096


def test_quantised_weights_are_saved(folder: Path, tmp_path: Path) -> None:
    with from_pretrained(folder, cache_tokens=64, options=Options(weights="int8")) as model:
        model.save(tmp_path / "model.svm")
        text = model.generate("abc", max_new_tokens=8)
    with llm.load(tmp_path / "model.svm") as loaded:
        assert loaded.generate("abc", max_new_tokens=8) == text


def test_a_folder_is_compiled_by_the_command(folder: Path, saved: Any, tmp_path: Path) -> None:
    from click.testing import CliRunner

    done = CliRunner().invoke(main, ["compile", str(folder), "-o", str(tmp_path / "model.svm")])
    assert done.exit_code == 0, done.output
    with llm.load(tmp_path / "model.svm") as loaded:
        assert texts_of(loaded) == texts_of(saved[0])
        assert loaded.engine.limits.n_pages == 256


def test_a_file_is_loaded_without_the_compiler(saved: tuple[LanguageModel, Path]) -> None:
    code = (
        "import sys\nfrom shapevm import llm\n"
        f"model = llm.load({str(saved[1])!r}, strategy='generic')\n"
        "print(model.generate('abc', max_new_tokens=4))\n"
        "assert not {'sympy', 'torch', 'llvmlite', 'transformers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == saved[0].generate("abc", max_new_tokens=4) + "\n"


def test_what_is_no_language_model_is_refused(saved: tuple[LanguageModel, Path], tmp_path: Path) -> None:
    model, path = saved
    model.exe.save(tmp_path / "program.svm")
    with pytest.raises(ArtifactError, match="program holds no language model: save one with LanguageModel"):
        llm.load(tmp_path / "program.svm")
    with pytest.raises(ArgumentError, match="cache_tokens, cache and options are those of a compilation"):
        from_pretrained(path, cache_tokens=64)
    with pytest.raises(FileError, match="cannot be written"):
        model.save(tmp_path / "missing" / "model.svm")
    with pytest.raises(ArgumentError, match="suffix"):
        model.save(tmp_path / "model.onnx")


SECTIONS: list[tuple[dict[str, Any], str]] = [
    ({"name": 3}, "section META: language.name is 3; it must be a string"),
    ({"name": "a\nb"}, "language.name is"),
    ({"length": 0}, "language.length is 0; it must be a whole number from 1"),
    ({"length": 2.0}, "language.length is 2.0"),
    ({"stop_tokens": [-1]}, r"language.stop_tokens\[0\] is -1"),
    ({"stop_tokens": [0] * 300}, "language.stop_tokens is"),
    ({"template": None}, "language.template is None"),
    ({"template": "{% for %}"}, "the chat template cannot be read"),
    ({"template": "x" * ((1 << 18) + 1)}, "language.template is"),
    ({"special": {"bos_token": 1}}, "language.special.bos_token is 1"),
    ({"special": {str(i): "" for i in range(20)}}, "language.special is"),
    ({"sampling": {"temperature": "hot"}}, "language.sampling.temperature is 'hot'"),
    ({"sampling": {"temperature": -1}}, "temperature is -1; it must be a number from 0"),
    ({"sampling": {"heat": 1}}, "its sampling has 'heat', which is unknown"),
    ({"sampling": {"stop_tokens": 1}}, "its sampling has 'stop_tokens', which is unknown"),
    ({"more": 1}, "section META: language has the key 'more'"),
]


@pytest.mark.parametrize("changes, message", SECTIONS)
def test_invalid_sections_are_refused(
    saved: tuple[LanguageModel, Path], tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    program = artifact.read(saved[1])
    meta = {**program.meta, "language": {**program.meta["language"], **changes}}
    artifact.write(replace(program, meta=meta), tmp_path / "model.svm")
    with pytest.raises(ArtifactError, match=message):
        llm.load(tmp_path / "model.svm")


def test_each_key_of_the_section_is_required(saved: tuple[LanguageModel, Path], tmp_path: Path) -> None:
    program = artifact.read(saved[1])
    for key in program.meta["language"]:
        section = {k: v for k, v in program.meta["language"].items() if k != key}
        artifact.write(replace(program, meta={**program.meta, "language": section}), tmp_path / "model.svm")
        with pytest.raises(ArtifactError, match=f"language.*{key}"):
            llm.load(tmp_path / "model.svm")


def test_invalid_tokenizers_are_refused(saved: tuple[LanguageModel, Path], tmp_path: Path) -> None:
    program = artifact.read(saved[1])
    others = [each for each in program.constants if each.name != "tokenizer.json"]
    for data, message in (
        (None, "has 0 tokenizers; it must have one"),
        (b"\xff", "its tokenizer is no UTF-8"),
        (b"{}", "the tokenizer cannot be read"),
    ):
        made = [] if data is None else [Constant.tensor(np.frombuffer(data, "u1"), "u8", "tokenizer.json")]
        artifact.write(replace(program, constants=(*others, *made)), tmp_path / "model.svm")
        with pytest.raises(ArtifactError, match=message):
            llm.load(tmp_path / "model.svm")


def test_a_section_in_another_program_is_refused(saved: tuple[LanguageModel, Path], tmp_path: Path) -> None:
    from shapevm import nn

    class Plain(nn.Module):
        def forward(self, ids: Any) -> Any:
            return ids + 1

    program = artifact.read(saved[1])
    nn.compile(Plain(), {"ids": (("tokens",), "i64")}).save(tmp_path / "plain.svm")
    plain = artifact.read(tmp_path / "plain.svm")
    kept = [each for each in program.constants if each.name == "tokenizer.json"]
    made = replace(
        plain,
        constants=(*plain.constants, *kept),
        meta={**plain.meta, "language": program.meta["language"]},
    )
    artifact.write(made, tmp_path / "model.svm")
    with pytest.raises(ArtifactError, match="a language model takes ids, positions, slots"):
        llm.load(tmp_path / "model.svm")
    assert shapevm.load(tmp_path / "model.svm")(np.zeros(1, np.int64)) == 1
