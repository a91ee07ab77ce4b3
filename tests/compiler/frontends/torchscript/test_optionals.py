"""Arguments that may be None, beyond what `optionals` runs: names, sizes, defaults, what is not open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim
from torch.testing import assert_close

import shapevm
from shapevm.errors import GuardError


def masked(a: Tensor, mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
    if mask is not None:
        a = a.masked_fill(mask == 0, -1e9)
    return torch.softmax(a * scale, -1)


def compiled(**kwargs: Any) -> shapevm.Executable:
    args = (torch.randn(3, 4), torch.ones(3, 4))
    return shapevm.compile(torch.jit.script(masked), args, strategy="generic", **kwargs)


def test_one_program_for_both() -> None:
    exe = compiled()
    assert [row.name for row in exe.machine.inputs] == ["a", "mask.is_given", "mask"]
    for n in (3, 1, 7):
        a, mask = torch.randn(n, 5), (torch.randn(n, 5) > 0).float()
        for args in ((a, mask), (a, None), (a,)):
            assert_close(exe(*args), masked(*args))
        assert_close(exe(a, mask=mask), masked(a, mask))
        assert_close(exe(a=a.numpy(), mask=None), masked(a).numpy())
        flat = exe.run({"a": a, "mask.is_given": False, "mask": torch.zeros(0, 0)})
        assert_close(flat["output"], masked(a))


def test_sizes_are_checked_where_it_is_there() -> None:
    exe = compiled()
    with pytest.raises(GuardError, match="sizes s3 and s1 must be equal"):
        exe(torch.randn(3, 5), torch.ones(3, 4))
    with pytest.raises(shapevm.DtypeError, match='input "mask"'):
        exe(torch.randn(3, 4), torch.ones(3, 4, dtype=torch.int64))
    with pytest.raises(shapevm.ShapeError, match='input "mask"'):
        exe(torch.randn(3, 4), torch.ones(4))


def test_sizes_of_the_user() -> None:
    rows = Dim("rows", min=2, max=9)
    exe = compiled(dynamic_shapes={"a": {0: rows}, "mask": {0: rows}})
    for n in (2, 9):
        a, mask = torch.randn(n, 4), torch.ones(n, 4)
        assert_close(exe(a, mask), masked(a, mask))
        assert_close(exe(a), masked(a))
    with pytest.raises(shapevm.ShapeError, match="rows"):
        exe(torch.randn(10, 4))
    with pytest.raises(GuardError, match="axis 0 must have size rows"):
        exe(torch.randn(5, 4), torch.ones(4, 4))


def test_ranges_of_the_user_of_a_tensor_alone() -> None:
    def total(a: Tensor, b: Tensor | None) -> Tensor:
        return a.sum() if b is None else a.sum() + b.sum()

    shapes = {"a": {}, "b": {0: Dim("n", min=2, max=4)}}
    args = (torch.randn(3), torch.randn(3))
    exe = shapevm.compile(torch.jit.script(total), args, dynamic_shapes=shapes)
    for b in (None, torch.randn(2), torch.randn(4)):
        assert_close(exe(args[0], b), total(args[0], b))
    for n, bound in ((1, "2 or more"), (5, "4 or less")):
        with pytest.raises(GuardError, match=f'input "b": axis 0 must have size {bound}'):
            exe(args[0], torch.randn(n))


def test_a_tensor_that_is_none_in_the_example_is_another_program(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    exe = shapevm.compile(torch.jit.script(masked), (torch.randn(3, 4), None), strategy="generic")
    a, mask = torch.randn(5, 4), (torch.randn(5, 4) > 0).float()
    with caplog.at_level("INFO", "shapevm"):
        for args in ((a, mask), (a, None), (a[:2], mask[:2])):
            assert_close(exe(*args), masked(*args))
        assert_close(exe(a, mask=mask), masked(a, mask))
    assert caplog.text.count("compiled again: mask was None in the example") == 1
    assert_close(exe(a.numpy(), mask.numpy()), masked(a, mask).numpy())
    exe.save(tmp_path / "masked.svm")
    with pytest.raises(shapevm.ArgumentError, match="was compiled for None: .*shapevm.accelerate"):
        shapevm.load(tmp_path / "masked.svm")(a, mask)
    with pytest.raises(shapevm.ArgumentError, match="mask is 'mask'; the program was compiled for None"):
        exe(a, "mask")


def test_a_model_whose_weights_changed_is_not_compiled_again() -> None:
    class Biased(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4))

        def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
            return x * self.weight if bias is None else x * self.weight + bias

    scripted = torch.jit.script(Biased())
    exe = shapevm.compile(scripted, (torch.randn(3, 4),), strategy="generic")
    with torch.no_grad():
        scripted.weight.mul_(2)
    with pytest.raises(shapevm.ArgumentError):
        exe(torch.randn(3, 4), torch.randn(4))


def test_accelerated_programs_take_none_and_tensors_without_examples_of_both() -> None:
    a, mask = torch.randn(3, 4), (torch.randn(3, 4) > 0).float()
    quick = shapevm.accelerate(torch.jit.script(masked), strategy="generic")
    for args in ((a,), (a, mask), (a, None), (torch.cat([a, a]), torch.cat([mask, mask]))):
        assert_close(quick(*args), masked(*args))
    assert sum(len(forms.programs) for forms in quick._versions.values()) == 3


def test_what_cannot_be_told_by_calls_is_as_in_the_example() -> None:
    def by_rank(a: Tensor, axes: list[int] | None) -> Tensor:
        return a.sum() if axes is None else a.permute(axes)

    exe = shapevm.compile(torch.jit.script(by_rank), (torch.randn(3, 4), [1, 0]))
    assert_close(exe(torch.ones(2, 5), [1, 0]), torch.ones(5, 2))
    with pytest.raises(shapevm.ArgumentError, match="axes"):
        exe(torch.ones(2, 5), None)


def test_in_the_artifact(tmp_path: Any) -> None:
    exe = compiled()
    exe.save(tmp_path / "model.svm")
    with shapevm.load(tmp_path / "model.svm") as loaded:
        a, mask = torch.randn(5, 2), torch.ones(5, 2)
        assert_close(loaded(a, mask), exe(a, mask))
        assert_close(loaded(a), exe(a))


def with_examples(example: Any = None, **optional_examples: Any) -> shapevm.Executable:
    args = (torch.randn(3, 4),) if example is None else example
    return shapevm.compile(
        torch.jit.script(masked), args, optional_examples=optional_examples, strategy="generic"
    )


def test_an_example_of_what_is_none_in_the_arguments() -> None:
    a, mask = torch.randn(5, 2), torch.ones(5, 2)
    for example in ((a,), (a, None)):
        with with_examples(example, mask=mask) as exe:
            assert [row.name for row in exe.machine.inputs][:3] == ["a", "mask.is_given", "mask"]
            for args in ((a, mask), (a,), (a, None), (torch.randn(0, 1), torch.ones(0, 1))):
                assert_close(exe(*args), masked(*args))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mast", "optional_examples names 'mast', which is no argument of the program; .*mask"),
        ("scale", "optional_examples names 'scale', which is a float, never None; give it in args or kwargs"),
    ],
)
def test_examples_of_what_is_no_optional(name: str, message: str) -> None:
    with pytest.raises(shapevm.ArgumentError, match=message):
        with_examples(**{name: 1.0})


def test_examples_of_what_the_arguments_give() -> None:
    with pytest.raises(shapevm.ArgumentError, match="names 'mask', which the example gives, too"):
        with_examples((torch.randn(3, 4), torch.ones(3, 4)), mask=torch.ones(3, 4))


def test_examples_for_other_models() -> None:
    with pytest.raises(shapevm.ArgumentError, match="names mask, but only calls of TorchScript"):
        shapevm.compile(torch.nn.Linear(2, 2), (torch.ones(1, 2),), optional_examples={"mask": torch.ones(1)})
