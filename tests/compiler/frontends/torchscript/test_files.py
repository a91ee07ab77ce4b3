"""A file of torch.jit.save compiles to what the module that torch.jit.load gives compiles to, bit by bit, and
nothing of the file runs while it is read."""

from __future__ import annotations

import copy
import enum
import io
import pickle
import zipfile
from pathlib import Path
from typing import Any, Optional

import pytest
import torch
from shapevm.compiler.frontends.torchscript import source
from shapevm.vm.layout import MAGIC
from torch import Tensor, nn

import shapevm
from shapevm.errors import ArchiveError

from .programs import PROGRAMS
from .test_modules import Chosen, Counter, Stack
from .test_programs import appended_and_changed


def artifact(model: Any, args: tuple[Any, ...], path: Path) -> bytes:
    """Return the artifact that a model compiles to."""
    with shapevm.compile(model, args=copy.deepcopy(args), strategy="generic") as exe:
        exe.save(path)
    return path.read_bytes()


def assert_same(program: Any, args: tuple[Any, ...], folder: Path) -> None:
    """Save a program: what its file compiles to is, byte by byte, what torch's reading of it compiles to."""
    torch.jit.save(program, str(folder / "model.pt"))
    wanted = artifact(torch.jit.load(folder / "model.pt"), args, folder / "wanted.svm")
    assert wanted.startswith(MAGIC)
    assert artifact(folder / "model.pt", args, folder / "found.svm") == wanted


@pytest.mark.drawn
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, tmp_path: Path) -> None:
    function, sets = PROGRAMS[name]
    program = torch.jit.script(function)
    left_out = len(program.schema.arguments) - len(sets[0])  # saved functions have no defaults
    assert_same(program, (*sets[0], *[None] * left_out), tmp_path)


class Colour(enum.Enum):
    """What TorchScript has as an Enum."""

    RED = 1
    BLUE = 2


class Everything(nn.Module):
    """Attributes of all kinds, weights that are shared, views, a scripted child that is there twice."""

    def __init__(self) -> None:
        super().__init__()
        self.none = torch.jit.Attribute(None, Optional[int])  # noqa: UP045 (as TorchScript reads it)
        self.empty = torch.jit.Attribute([], list[int])
        self.table, self.pairs = {"a": [1, 2], "b": [3]}, [(1, 2.0)]
        self.flags, self.names, self.scales = [True, False], ["a"], [0.5, 1.5]
        self.parts, self.both = [torch.ones(2), torch.zeros(1)], (7, torch.full((2,), 3.0))
        self.colour, self.device, self.dtype, self.large = (
            Colour.RED,
            torch.device("cpu"),
            torch.float32,
            1 << 40,
        )
        self.one = nn.Linear(2, 2)
        self.other = nn.Linear(2, 2)
        self.other.weight, self.again = self.one.weight, self.one
        self.register_buffer("view", torch.arange(12.0).reshape(3, 4).t()[:2, 1:])
        self.register_buffer("rounded", torch.ones(2, dtype=torch.bfloat16))
        self.register_buffer("nothing", torch.zeros(0, 2))

    def forward(self, x: Tensor, n: int = -3, names: list[str] | None = None) -> Tensor:
        if self.device.type == "cpu" and self.none is None:
            x = x * self.table["a"][1] + self.pairs[0][1] + len(self.empty) + self.scales[1] + self.large
        if self.flags[0] and self.names[0] == "a" and names is None:
            x = x + self.parts[0] + self.both[1] * self.both[0] + self.view.sum(1)
            x = x + self.rounded.to(self.dtype)
        return self.other(self.one(x)) + self.again(x) + n + self.nothing.size(0)


MODULES = {
    "everything": (Everything, (torch.randn(3, 2),)),
    "stack": (Stack, (torch.randn(2, 4),)),
    "counter": (Counter, (torch.randn(2, 3),)),
    "chosen": (Chosen, (torch.randn(2, 3), "tanh")),
    "lstm": (lambda: nn.Sequential(nn.LSTM(3, 4, bidirectional=True)), (torch.randn(2, 2, 3),)),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, args = MODULES[name]
    assert_same(torch.jit.script(module().eval()), args, tmp_path)


@pytest.mark.parametrize("name", ["stack", "lstm"])
def test_traced_modules(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, args = MODULES[name]
    assert_same(torch.jit.trace(module().eval(), args), args, tmp_path)


def test_nothing_of_the_file_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch gets another file, and Python's pickle is not used."""
    torch.jit.save(torch.jit.script(Everything().eval()), str(tmp_path / "model.pt"))
    load, given = torch._C.import_ir_module, []

    def noted(unit: Any, file: str, *args: Any) -> Any:
        given.append(Path(file).read_bytes())
        return load(unit, file, *args)

    def refused(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("pickle runs")

    monkeypatch.setattr(torch._C, "import_ir_module", noted)
    monkeypatch.setattr(torch.jit, "load", refused)
    monkeypatch.setattr(torch, "load", refused)
    monkeypatch.setattr(pickle, "Unpickler", refused)
    monkeypatch.setattr(pickle, "loads", refused)
    source.load_script(tmp_path / "model.pt")
    (found,) = given
    theirs, ours = (_members(data) for data in ((tmp_path / "model.pt").read_bytes(), found))
    assert set(ours) <= set(theirs) | {"version"} and ours["data.pkl"] != theirs["data.pkl"]
    # The folder may be linear/___torch_mangle_7: torch numbers classes that this process has scripted before.
    folder = "code/__torch__/torch/nn/modules/linear"
    linear = [data for name, data in ours.items() if name.startswith(folder) and name.endswith(".py")]
    assert linear and all(data in theirs.values() for data in linear)


def _members(archive: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        return {name.partition("/")[2]: file.read(name) for name in file.namelist()}


def _write(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as file:
        for name, data in members.items():
            file.writestr(f"model/{name}", data)


CODE = "code/__torch__.py"
CHANGES = {
    b"n: int=-3": (b"n: int=ops.aten.size([1])", "a default value of .* is computed"),
    b"n: int=-3,": (b"n: int=-3, k: int=int(torch.rand([1])),", "a default value of .* is computed"),
    b"  RED = 1": (b"  RED = f(1)", "a default value of .*Colour is computed"),
    b"  def forward(": (
        b"  def __setstate__(self: __torch__.Everything, state: int) -> NoneType:\n    return None\n"
        b"  def forward(",
        "would run its __setstate__",
    ),
    b"self.large": (b"self." + b"larger" * 1000, "torch refuses the code or the values of .*larger"),
    b"torch.mul(": (b"torch.no_such_operator(", "torch refuses the code or the values"),
    b"large : int": (b"larger : int", "torch refuses the code or the values"),
}


@pytest.mark.parametrize("text", CHANGES)
def test_code_that_would_run_or_is_wrong_is_refused(text: bytes, tmp_path: Path) -> None:
    torch.jit.save(torch.jit.script(Everything().eval()), str(tmp_path / "model.pt"))
    members = _members((tmp_path / "model.pt").read_bytes())
    code = next(name for name, data in members.items() if name.endswith(".py") and text in data)
    replacement, sentence = CHANGES[text]
    members[code] = members[code].replace(text, replacement)
    _write(tmp_path / "model.pt", members)
    with pytest.raises(ArchiveError, match=sentence) as caught:
        shapevm.compile(str(tmp_path / "model.pt"), args=(torch.randn(3, 2),))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1000


def test_lines_are_the_models_own(tmp_path: Path) -> None:
    """Errors name the file and the line that the program was written in."""
    torch.jit.save(torch.jit.script(appended_and_changed), str(tmp_path / "model.pt"))
    with pytest.raises(shapevm.UnsupportedOp, match=r"\(test_programs.py:\d+\)"):
        shapevm.compile(tmp_path / "model.pt", args=(torch.ones(3),))


def test_sizes_of_the_example_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    def attended(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5)

    x = torch.ones(2, 3, 4)
    exe = shapevm.compile(torch.jit.trace(attended, x, check_trace=False), args=(x,))
    assert exe(torch.ones(5, 2, 4)).shape == (5, 2, 4)
    assert "sizes are as in the example: s2 = 4; random numbers here are PyTorch's" in caplog.text


def test_examples_of_a_wrong_kind_are_one_sentence() -> None:
    def twice(x: torch.Tensor, flag: bool) -> torch.Tensor:
        return x * 2 if flag else x

    script = torch.jit.script(twice)
    with pytest.raises(
        shapevm.UnsupportedOp, match="argument x of the example is a list; the program takes Tensor"
    ):
        shapevm.compile(script, args=([1.0], True))
    with pytest.raises(
        shapevm.UnsupportedOp, match="argument flag of the example is None; the program takes bool"
    ):
        shapevm.compile(script, args=(torch.ones(2), None))


def test_arguments_of_a_trace_that_share_a_name() -> None:
    layer = torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()

    class Masked(torch.nn.Module):
        def forward(self, *given: torch.Tensor) -> torch.Tensor:
            return layer(given[0], src_mask=given[1], src_key_padding_mask=given[2])

    args = (torch.randn(2, 3, 4), torch.zeros(3, 3).bool(), torch.zeros(2, 3).bool())
    module = Masked()
    module.layer = layer
    with torch.no_grad():
        script = torch.jit.trace(module, args, check_trace=False)
        torch.testing.assert_close(shapevm.compile(script, args=args)(*args), script(*args))


def test_a_scripted_recurrent_layer() -> None:
    layer = torch.nn.GRU(3, 4)
    exe = shapevm.compile(torch.jit.script(layer), args=(torch.randn(5, 2, 3),))
    x = torch.randn(7, 1, 3)
    with torch.no_grad():
        torch.testing.assert_close(exe(x), layer(x))
    with pytest.raises(shapevm.UnsupportedOp, match="has no method forward; its methods are __len__"):
        shapevm.compile(torch.jit.script(torch.nn.ModuleList()), args=(x,))
