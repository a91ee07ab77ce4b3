"""Programs compiled for this machine get the code that others need when they are saved, not before."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from shapevm.jit.llvm.target import find_target, host_target
from shapevm.vm.artifact import read
from shapevm.vm.program import Program

import shapevm

X = torch.randn(5, 24)
#: f32 products may have code of their own on AMX; on other machines all run the same.
HAS_OWN_CODE = find_target(host_target()).extension == "amx"


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(24, 48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).softmax(-1)


def made(**options: Any) -> shapevm.Executable:
    shapes = ({0: torch.export.Dim("rows", min=1, max=64)},)
    return shapevm.compile(
        Model().eval(),
        (X,),
        dynamic_shapes=shapes,
        strategy="generic",
        options=shapevm.Options(precision="bf16x6", **options),
    )


def targets(program: Program) -> list[list[str]]:
    return [[o.target for o in kernel.objects] for kernel in program.kernels]


@pytest.fixture(autouse=True)
def without_cache() -> Any:
    with shapevm.settings.scope(cache=False):
        yield


def saved(exe: shapevm.Executable, path: Path) -> bytes:
    exe.save(path)
    return path.read_bytes()


@pytest.mark.parametrize("options", [{}, {"sizes": [{"rows": 7}]}])
def test_saving_completes_the_artifact(tmp_path: Path, options: dict[str, Any]) -> None:
    exe, whole = made(**options), made(target=host_target(), **options)
    results = exe(X)
    before = targets(exe.program())
    expected = saved(whole, tmp_path / "whole.svm")
    assert saved(exe, tmp_path / "first.svm") == saved(exe, tmp_path / "again.svm") == expected
    assert targets(exe.program()) == targets(read(tmp_path / "whole.svm"))
    assert (targets(exe.program()) != before) == HAS_OWN_CODE
    assert torch.equal(exe(X), results) and torch.equal(shapevm.load(tmp_path / "first.svm")(X), results)


@pytest.mark.parametrize("leave", ["artifact", "pickle", "freeze", "copy"])
def test_whatever_leaves_the_process_is_complete(tmp_path: Path, leave: str) -> None:
    exe = made()
    expected = saved(made(target=host_target()), tmp_path / "whole.svm")
    found = {
        "artifact": lambda: Path(exe.artifact).read_bytes(),
        "pickle": lambda: saved(pickle.loads(pickle.dumps(exe)), tmp_path / "p.svm"),
        "freeze": lambda: (exe.freeze(), saved(exe, tmp_path / "f.svm"))[1],
        "copy": lambda: saved(exe.__copy__(), tmp_path / "c.svm"),
    }[leave]()
    assert found == expected


@pytest.mark.skipif(not HAS_OWN_CODE, reason="this machine's code for f32 products is its base's")
def test_torch_compile_needs_no_code_for_others() -> None:
    from shapevm.calls.opened import opened_programs

    before = set(opened_programs())
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(Model().eval(), backend="shapevm", dynamic=True, options={"precision": "bf16x6"})(X)
    (exe,) = set(opened_programs()) - before
    assert [host_target()] in targets(exe.program()) and all(len(row) == 1 for row in targets(exe.program()))
