"""Graphs and programs as text files: what is written is read back, whole; everything else is refused."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from shapevm.compiler.ir.errors import TextError
from shapevm.vm.errors import ArgumentError, ArtifactError, FileError

import shapevm
from shapevm.build.compile import compiled_graph
from shapevm.build.options import Options
from shapevm.build.text_files import arrays_path, read_graph, write_files

GRAPH = """\
graph "weighted"
  symbol n min=0 max=64 multiple_of=1
  input %x: f32[n, 4]
  %w: f32[4] = constant() {array=float32[4](1.0, -2.0, 0.5, 3.0), dtype="f32", name="w"}
  %e: f32[n, 4] = expand(%w) {shape=[n, 4]}
  %y: f32[n, 4] = mul(%x, %e)
  output %y as "y"
"""


class Counted(torch.nn.Module):
    """A large weight, and state."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 5)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        return self.linear(x) * self.calls


def write(folder: Path, text: str) -> Path:
    path = folder / "graph.svmir"
    path.write_text(text)
    return path


def test_a_graph_is_compiled_from_its_text(tmp_path):
    exe = shapevm.compile(str(write(tmp_path, GRAPH)), strategy="generic")
    x = np.random.default_rng(0).random((7, 4), "f")
    with exe:
        (y,) = exe(x)
        np.testing.assert_array_equal(y, x * np.float32([1, -2, 0.5, 3]))
        with pytest.raises(shapevm.ShapeError, match="n is 65; it must be at most 64"):
            exe(np.zeros((65, 4), "f"))


def test_a_model_and_its_graph_make_the_same_artifact(tmp_path):
    """Weights lie beside the text, and state stands in it."""
    torch.manual_seed(0)
    arguments = {
        "model": Counted(),
        "args": (torch.zeros(3, 8),),
        "dynamic_shapes": {"x": {0: torch.export.Dim("n", min=2, max=9)}},
    }
    text, arrays = compiled_graph(arguments, Options(), lambda *_: None)
    path = tmp_path / "graph.svmir"
    assert write_files(path, text, arrays) == [path, arrays_path(path)]
    assert 'state "state.calls" f32 float32[1](0.0)' in text and [
        array.shape for array in arrays.values()
    ] == [(5, 8)]
    with shapevm.compile(**arguments) as model, shapevm.compile(path) as graph:
        model.save(tmp_path / "model.svm")
        graph.save(tmp_path / "graph.svm")
    assert (tmp_path / "model.svm").read_bytes() == (tmp_path / "graph.svm").read_bytes()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("mul(%x", "mul(%z", "line 6: %z is not defined before its use"),
        ("mul(%x, %e)", "multiply(%x, %e)", "operator 'multiply' is not declared"),
        ("mul(%x, %e)", "mul(%x)", "mul: 1 arguments given; it takes 2"),
        ("mul(%x, %e)", "while(%x)", "while has 0 regions"),
        ("{shape=[n, 4]}", "{size=[n, 4]}", "expand has the attributes size; its schema has shape"),
        ("{shape=[n, 4]}", "{shape=none}", "these are not expand's arguments and attributes"),
        ("{shape=[n, 4]}", "{shape=[n, none]}", "these are not expand's arguments and attributes"),
        ("%y: f32[n, 4]", "%y: f64[n, 4]", r"value 0 has type f64\[n, 4\]; its operator gives f32\[n, 4\]"),
        ("min=0 max=64", "min=5 max=3", "size 'n' has min 5 over max 3"),
        ("mul(%x, %e)", "kernel(%x)", "the graph has kernel nodes.*give the graph before its passes"),
        ('array=float32[4](1.0, -2.0, 0.5, 3.0)', "array=float32[99]@00", "constant 00 is not given"),
    ],
)  # fmt: skip
def test_a_graph_that_is_none_is_refused(tmp_path, old, new, message):
    assert old in GRAPH
    with pytest.raises(TextError, match=rf"graph\.svmir: .*{message}"):
        read_graph(write(tmp_path, GRAPH.replace(old, new)))


def test_what_the_text_says_is_not_given_twice(tmp_path):
    path = write(tmp_path, GRAPH)
    for given in ({"args": (1,)}, {"inputs": {"x": "f32"}}, {"dynamic_shapes": {"x": {}}}):
        with pytest.raises(ArgumentError, match=f"{next(iter(given))} is given beside .*: leave it out"):
            shapevm.compile(path, **given)


def test_files_that_cannot_be_read(tmp_path):
    path = write(tmp_path, GRAPH)
    with pytest.raises(FileError, match="does not exist"):
        shapevm.compile(tmp_path / "none.svmir")
    arrays_path(path).write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(FileError, match="cannot be read as a numpy file"):
        read_graph(path)
    np.savez(arrays_path(path), **{"0123456789abcdef": np.zeros(99)})
    with pytest.raises(ArtifactError, match="array '0123456789abcdef' does not have that hash"):
        read_graph(path)
    path.write_bytes(b"graph \xff")
    with pytest.raises(FileError, match="is no text: byte 6 is not UTF-8"):
        read_graph(path)
    assert re.search("svmasm", str(pytest.raises(ArgumentError, shapevm.compile, "a.svmasm").value))
