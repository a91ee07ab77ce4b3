"""One sentence with the fix for what is given in place of a model, of example inputs, of dynamic_shapes."""

import json
import logging

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch.export import Dim

import shapevm
from shapevm.__main__ import main
from shapevm.calls import checks


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x, scale=None):
        return self.linear(x)


X = torch.randn(5, 4)


def function_of_test(x):
    return x


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (Net, "the model is the class Net; give an instance: Net()"),
        (
            function_of_test,
            "the model is the function function_of_test; give a torch.nn.Module whose forward",
        ),
        (Net().state_dict(), "the model is a state dict of 2 entries; give the torch.nn.Module after"),
        ("net.onnx", "net.onnx does not exist"),
        ("net.safetensors", "net.safetensors holds weights alone: give the torch.nn.Module"),
        ("net.svm", "net.svm cannot be read: No such file or directory"),
        ("net.model", "net.model has the suffix '.model'; a model is a file of .pt2, .pt"),
        ("net", "model 'net' is neither a module nor a file of .pt2"),
        ("missing.pt2", "missing.pt2 does not exist"),
        ("missing.pt", "missing.pt does not exist"),
        (None, "the model is None; give a module"),
        (5, "the model is 5; give a module"),
    ],
)
def test_in_place_of_a_model(model, sentence):
    with pytest.raises(shapevm.Error) as caught:
        shapevm.compile(model, (X,))
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"args": X}, "args is a tensor; give a tuple of example inputs: args=(x,)"),
        ({"args": X.numpy()}, "args is a tensor; give a tuple"),
        ({"args": {"x": X}}, "args is a dict with x; give it as kwargs={...}"),
        ({"args": 5}, "args is of type int; give a tuple"),
        ({"args": (X,), "kwargs": (X,)}, "kwargs is of type tuple; give a dict of example inputs by name"),
        ({"args": (X.numpy(),)}, "example input x is a numpy array; give torch.from_numpy(x)"),
        ({}, "forward(x, scale) cannot be called with the example inputs: missing a required argument: 'x'"),
        ({"args": (X, X, X)}, "forward(x, scale) cannot be called with the example inputs: too many"),
        (
            {"args": (X,), "kwargs": {"y": X}},
            "forward(x, scale) cannot be called with the example inputs: got",
        ),
        (
            {"args": (X,), "dynamic_shapes": {"xx": {0: Dim("n")}}},
            "dynamic_shapes names 'xx', which is no input of forward; did you mean x?",
        ),
        (
            {"args": (X,), "dynamic_shapes": {"x": {}, "scale": None}},
            "dynamic_shapes names 'scale', which has no example; give one or leave it out",
        ),
        ({"args": (X,), "dynamic_shapes": ({}, {})}, "dynamic_shapes has 2 entries; give one for each of x"),
        ({"args": (X,), "dynamic_shapes": "n"}, "dynamic_shapes is 'n'; give a dict from the inputs' names"),
        (
            {"args": (X,), "dynamic_shapes": {"x": {2: Dim("n")}}},
            "dynamic_shapes names axis 2 of x, which has axes 0 to 1",
        ),
        (
            {"args": (X,), "dynamic_shapes": {"x": {0: "batch"}}},
            "dynamic_shapes says 'batch' of axis 0 of x; give torch.export.Dim(\"batch\", min=1, max=...)",
        ),
        (
            {"args": (X,), "dynamic_shapes": ([(1, 9), None],)},
            "dynamic_shapes says (1, 9) of axis 0 of x; give a",
        ),
        (
            {"args": (X,), "dynamic_shapes": {"x": [Dim("n", max=4), None]}},
            "axis 0 of x has size 5 in the example, but n is 0 to 4; give a smaller example or a wider Dim",
        ),
        (
            {"args": (X,), "dynamic_shapes": {"x": {0: Dim("n", min=6, max=9)}}},
            "axis 0 of x has size 5 in the example, but n is 6 to 9; give a larger example or a wider Dim",
        ),
    ],
)
def test_in_place_of_arguments(options, sentence):
    with pytest.raises(shapevm.ArgumentError) as caught:
        shapevm.compile(Net(), **options)
    assert str(caught.value).startswith(sentence) and "\n" not in str(caught.value)


def test_training_mode_is_said_where_it_matters(caplog):
    class Dropping(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.drop = torch.nn.Dropout(0.5)

        def forward(self, x):
            return self.drop(x)

    with caplog.at_level(logging.WARNING, "shapevm"):
        exe = shapevm.compile(Dropping(), (X,), strategy="generic")
        said = [record.getMessage() for record in caplog.records if record.name == "shapevm"]
        caplog.clear()
        assert torch.equal(exe(X), X)
        shapevm.compile(Dropping().eval(), (X,), strategy="generic")
        shapevm.compile(Net(), (X,), strategy="generic")  # nothing in it depends on the mode
    assert said == [
        "the module is in training mode, but compiled as in evaluation: drop (Dropout) does something else "
        "there; call model.eval() before you compare results"
    ]
    assert not [record for record in caplog.records if "training mode" in record.getMessage()]


def test_a_script_in_training_mode_is_named(caplog):
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(4))
    scripted, traced = torch.jit.script(model), torch.jit.trace(model, torch.ones(2, 4))
    frozen = torch.jit.freeze(torch.jit.script(model.eval()))
    with caplog.at_level(logging.WARNING, "shapevm"):
        for each in (traced, frozen, scripted):
            assert not [record for record in caplog.records if "training mode" in record.getMessage()]
            shapevm.compile(each, (torch.ones(2, 4),), strategy="generic")
    assert "compiled as in evaluation: 0 (BatchNorm1d) does something else there" in caplog.text


def run(*args, code):
    result = CliRunner().invoke(main, [str(arg) for arg in args])
    assert result.exit_code == code and "Traceback" not in result.output, result.output
    return result.output


@pytest.mark.parametrize(
    ("name", "begin", "kind"),
    [
        ("x.npy", b"\x93NUMPY", "a numpy array"),
        ("x.pt2", b"PK\x03\x04", "a zip archive"),
        ("x.json", b'{"format"', "JSON, such as a profile"),
        ("x.onnx", b"\x08\x07\x12", "perhaps an ONNX model"),
        ("x.txt", b"hello, world", "another kind of file; compile a model with shapevm compile"),
        ("x.svm.gz", b"\x1f\x8b\x08", "compressed by gzip; unpack it first"),
    ],
)
@pytest.mark.parametrize("command", ["inspect", "run", "dis", "profile", "explain", "prove"])
def test_another_kind_of_file(tmp_path, command, name, begin, kind):
    path = tmp_path / name
    path.write_bytes(begin + bytes(64))
    assert f"{name} is no .svm file: it is {kind}" in run(command, path, code=3)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("x.pt", b"", "x.pt is no program of TorchScript: give the file that torch.jit.save("),
        ("x.pt2", b"", "x.pt2 is no program of torch.export: give the file that torch.export.save("),
        ("x.pt", b"\x1f\x8b\x08", "x.pt is no program of TorchScript"),
        ("x.pt", b"PK\x03\x04half", "x.pt is damaged (a zip archive: File is not a zip file); copy it again"),
        ("x.pt2", b"PK\x03\x04half", "x.pt2 is damaged (a zip archive: File is not a zip file)"),
        ("x.svm", b"hello, world", "x.svm is no .svm file: it is another kind of file"),
    ],
)
def test_a_damaged_model(tmp_path, name, content, sentence):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(shapevm.Error) as caught:
        shapevm.compile(path, (X,))
    assert sentence in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("command", ["run", "profile", "prove"])
def test_inputs_that_are_missing_or_unknown_have_one_exit_code(artifact, tmp_path, command):
    """As for shapevm-run: 2."""
    np.savez(tmp_path / "y.npz", y=X.numpy())
    option = "--inputs" if command == "prove" else "--input"
    assert "input 'y' is unknown" in run(command, artifact, option, tmp_path / "y.npz", code=2)
    np.savez(tmp_path / "none.npz")
    assert "input 'x' is missing" in run(command, artifact, option, tmp_path / "none.npz", code=2)


@pytest.mark.parametrize("command", ["explain", "profile", "prove", "freeze", "tune", "bake"])
def test_profile_of_another_model(artifact, tmp_path, command):
    path = tmp_path / "prof.json"
    row = {"values": [3], "count": 1, "total_ns": 5, "least_ns": 5}
    data = {"format": "shapevm-profile", "version": 1, "program": "ab" * 32, "symbols": ["n"], "dropped": 0}
    path.write_text(json.dumps(data | {"sizes": [row]}))
    more = {
        "freeze": ["-o", tmp_path / "o.svm"],
        "bake": ["--budget", "1MB", "-o", tmp_path / "o.svm"],
    }.get(command, [])
    given = [path] if command == "bake" else ["--profile", path]
    text = run(command, artifact, *given, *more, code=1)
    assert "is of program abababababababab, the artifact is" in text and "record this program" in text


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ("m.onnx", "m.onnx does not exist"),
        ("m.foo", "m.foo has the suffix '.foo'; a model is a file of .pt2"),
        ("m.py", "m.py is Python code: on the command line name a function in it, FILE.py:NAME"),
    ],
)
def test_files_that_the_command_line_cannot_compile(tmp_path, model, sentence):
    assert sentence in run("compile", model, "-o", tmp_path / "o.svm", code=1)


PROGRAM = shapevm.compile(Net().eval(), (X,))
WRONG_KINDS = {
    "progress": (
        lambda: shapevm.compile(Net(), (X,), progress=3),
        "progress is 3; give a function of the stage",
    ),
    "no artifact": (lambda: shapevm.load(None), "the artifact is None; give a path, a URL or the artifact's"),
    "copy": (lambda: shapevm.load(b"", copy="yes"), "copy is 'yes'; it must be True, False or None"),
    "native_code": (lambda: shapevm.load(b"", native_code="yes"), "native_code is 'yes'; it must be True"),
    "digest": (lambda: shapevm.load(b"", digest=3), "digest 3 is no SHA-256: it must be 64 hexadecimal"),
    "trust": (lambda: shapevm.load("model.svm", trust=3), "trust is 3; give a path of an Ed25519 public key"),
    "one plug-in": (lambda: shapevm.load(b"", plugins="scale.so"), "plugins is 'scale.so'; give a list of"),
    "a plug-in": (lambda: shapevm.load(b"", plugins=[3]), "a plug-in is 3; give a path"),
    "inputs": (lambda: PROGRAM.run([X]), "inputs is of type list; give a dict of arrays by name"),
    "out": (lambda: PROGRAM.run({"x": X}, out=3), "out is of type int; give a dict of arrays by name"),
    "state": (lambda: PROGRAM.set_state(3), "the state is of type int; give a dict of arrays by name"),
    "save": (lambda: PROGRAM.save(None), "path is None; give a path"),
    "calls": (lambda: PROGRAM.profile((X,), calls="1"), "calls is '1'; give a whole number, 1 or more"),
    "label": (lambda: PROGRAM.metrics(model=3), "model is 3; give the text of a label"),
    "wait": (lambda: PROGRAM.wait_until_specialised("1"), "timeout is '1'; give a number of seconds, 0 or"),
    "record": (lambda: shapevm.record(3), "3 is no program; give what shapevm.compile and shapevm.load"),
    "collect": (lambda: shapevm.PrometheusCollector(3), "3 is no program; give what shapevm.compile and"),
    "threads": (lambda: shapevm.set_threads("4"), "threads: '4' is no number of threads; give 1 to 256"),
    "extern": (lambda: shapevm.extern(3), 'an extern is named 3; write "library::function"'),
    "extern's function": (lambda: shapevm.extern("a::b")(3), "extern a::b: 3 is no function"),
    "converter": (lambda: shapevm.converter("a"), "operator is 'a'; write \"namespace::name\""),
    "converter's function": (lambda: shapevm.converter("a::b")(3), "converter of a::b: 3 is no function"),
    "targets": (lambda: shapevm.Options(target=[]), "target is []; give one of x86-64-v4-amx"),
}


@pytest.mark.parametrize(("call", "sentence"), WRONG_KINDS.values(), ids=WRONG_KINDS)
def test_an_argument_of_another_kind(call, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    PROGRAM.save("model.svm")
    with pytest.raises(shapevm.ArgumentError) as caught:
        call()
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize("name", ["q.onnx", "folder/model.PT", "weights.safetensors"])
def test_an_artifact_is_not_written_under_another_formats_suffix(name):
    with pytest.raises(shapevm.ArgumentError, match=r"an artifact is written; give \w+\.svm$"):
        checks.check_suffix(name)
    for other in ("model.svm", "model", "model.v2", "a.onnx/model.bin"):
        checks.check_suffix(other)
