"""One artifact for several targets: each machine runs its best code, with the same bits."""

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from shapevm.jit.llvm.target import TARGETS, runs_here
from shapevm.vm.artifact import read
from shapevm.vm.errors import ArgumentError
from shapevm.vm.program import Program

import shapevm
from shapevm.cli import main
from shapevm.program.targets import merged, only_targets

V3, V4, ARM = "x86-64-v3", "x86-64-v4", "aarch64"
X = torch.randn(9, 24)


def made(target: object, **options: object) -> shapevm.Executable:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(24, 40), torch.nn.LayerNorm(40), torch.nn.GELU()).eval()
    shapes = ({0: torch.export.Dim("rows", min=1, max=64)},)
    given = shapevm.Options(target=target, **options)  # type: ignore[arg-type]
    return shapevm.compile(model, (X,), dynamic_shapes=shapes, strategy="generic", options=given)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Artifacts for one target each, and one for all."""
    folder = tmp_path_factory.mktemp("targets")
    sizes = [{"rows": 9}]
    for name in (V3, V4, ARM):
        made(name, sizes=sizes).save(folder / f"{name}.svm")
    made([ARM, V3, V4], sizes=sizes).save(folder / "fat.svm")
    return folder


def keys(program: Program) -> list[set[tuple[str, object]]]:
    return [{(o.target, o.key) for o in kernel.objects} for kernel in program.kernels]


def test_a_fat_artifact_has_the_code_of_all(folder: Path) -> None:
    fat = read(folder / "fat.svm")
    assert all(found == {(t, key) for t in (V3, V4, ARM) for key in (None, (9,))} for found in keys(fat))
    one = {t: read(folder / f"{t}.svm") for t in (V3, V4, ARM)}
    for index, kernel in enumerate(fat.kernels):
        for o in kernel.objects:
            assert o in one[o.target].kernels[index].objects


def test_it_runs_on_the_best_target_of_the_machine(folder: Path) -> None:
    with shapevm.load(folder / "fat.svm", strategy="bucket") as exe:
        (best,) = {kernel.target for kernel in exe.machine.kernels}
        assert best == next(name for name in TARGETS if name in (V4, V3, ARM) and runs_here(name))
        with shapevm.load(folder / f"{best}.svm", strategy="bucket") as plain:
            assert torch.equal(exe(X), plain(X)) and exe.stats().tier() == "exact"


def test_exact_code_is_for_the_code_that_runs() -> None:
    for strategy in ("jit", "generic"):
        with made([V3, ARM]) as exe:
            exe.set_strategy(strategy)
            expected = exe(X)
            assert {kernel.target for kernel in exe.machine.kernels} == {V3}
    with made(V3) as plain:
        assert torch.equal(plain(X), expected)


def test_strip_and_merge_are_inverse(folder: Path, tmp_path: Path) -> None:
    run = CliRunner().invoke
    for name in (V3, ARM):
        done = run(main, ["strip", str(folder / "fat.svm"), "--target", name, "-o", str(tmp_path / name)])
        assert done.exit_code == 0, done.output
        assert (tmp_path / name).read_bytes() == (folder / f"{name}.svm").read_bytes()
    parts = [str(folder / f"{name}.svm") for name in (V4, V3, ARM)]
    done = run(main, ["merge-targets", *parts, "-o", str(tmp_path / "all.svm")])
    assert done.exit_code == 0, done.output
    assert keys(read(tmp_path / "all.svm")) == keys(read(folder / "fat.svm"))


def test_a_target_keeps_the_code_of_its_bases(folder: Path) -> None:
    kept = only_targets(read(folder / "fat.svm"), ["x86-64-v4-amx"])
    assert all({target for target, _ in found} == {V4} for found in keys(kept))


def test_what_cannot_be_is_refused(folder: Path) -> None:
    with pytest.raises(ArgumentError, match="has code for x86-64-v3, not for aarch64: compile the model for"):
        only_targets(read(folder / f"{V3}.svm"), [ARM])
    with pytest.raises(ArgumentError, match="target 'z80' is unknown; known are"):
        only_targets(read(folder / f"{V3}.svm"), ["z80"])
    other = made(V3, weights="bf16")
    other.save(folder / "other.svm")
    with pytest.raises(ArgumentError, match="b is not the program of a: compile the same model"):
        merged([read(folder / f"{V4}.svm"), read(folder / "other.svm")], ["a", "b"])
    for wrong, message in (
        (["z80"], "target 'z80' is unknown"),
        ([], r"target is \[\]; give one of x86-64-v4-amx"),
        ([V3, V3], "; give one of .*, or a list of different ones"),
    ):
        with pytest.raises(ArgumentError, match=message):
            shapevm.Options(target=wrong)
