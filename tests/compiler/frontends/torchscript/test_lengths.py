"""Lists among the arguments: what is given by name, and through the runner, is checked element by element."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import shapevm


def added(a: torch.Tensor, ts: list[torch.Tensor], ks: list[int]) -> torch.Tensor:
    for t in ts:
        a = a + t.sum()
    for k in ks:
        a = a + k
    return a


def compiled(ts: list[torch.Tensor], function: Any = added) -> shapevm.Executable:
    return shapevm.compile(torch.jit.script(function), (torch.ones(2), ts, [1]), strategy="generic")


ROW, MATRIX = np.ones(3, np.float32), np.ones((2, 3), np.float32)
REFUSED = [
    ([ROW, MATRIX], [1], 'input "ts": element 1 has rank 2; it must have rank 1'),
    ([ROW.astype("f8")], [1], 'input "ts": element 0 is f64; it must be f32: convert it first'),
    ([], ["a"], 'input "ks": element 0 is a str; it must be an int'),
    ([], [1, 1.5], 'input "ks": element 1 is a float; it must be an int'),
]


def test_elements_that_are_given_by_name_are_checked() -> None:
    with compiled([torch.ones(3)]) as exe:
        for ts, ks, message in [*REFUSED, ([1], [1], 'input "ts": element 0 is an int; it must be a tensor')]:
            with pytest.raises(shapevm.Error, match=message):
                exe.run({"a": np.ones(2, np.float32), "ts": ts, "ks": ks})
        with pytest.raises(shapevm.ArgumentError, match=r"ts\[1\] is of f32 and rank 2"):
            exe(torch.ones(2), [torch.ones(3), torch.ones(2, 3)], [1])


def test_elements_are_checked_in_the_runner(tmp_path: Path) -> None:
    with compiled([torch.ones(3)]) as exe:
        exe.save(tmp_path / "model.svm")
    np.save(tmp_path / "a.npy", np.ones(2, np.float32))
    for ts, ks, message in REFUSED:
        np.savez(tmp_path / "ts.npz", *ts)
        command = [str(Path(sys.executable).parent / "shapevm-run"), str(tmp_path / "model.svm")]
        given = [f"a={tmp_path}/a.npy", f"ts={tmp_path}/ts.npz", f"ks={str(ks).replace(chr(39), chr(34))}"]
        for each in given:
            command += ["--input", each]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode and message in done.stderr


@pytest.mark.parametrize(
    "ts, why",
    [
        ([], "the example is an empty list, which has no dtype and rank; compile with a tensor in it"),
        (
            [torch.ones(2), torch.arange(2)],
            "its tensors in the example are of f32 and rank 1, i64 and rank 1",
        ),
    ],
)
def test_a_list_of_the_examples_length_says_why(ts: list[torch.Tensor], why: str) -> None:
    with compiled(ts) as exe, pytest.raises(shapevm.ArgumentError, match=why):
        exe(torch.ones(2), [torch.ones(2)], [1])


def test_a_list_of_tuples_of_several_ranks_says_why() -> None:
    def total(pairs: list[tuple[torch.Tensor, int]]) -> float:
        found = 0.0
        for t, n in pairs:
            found += float(t.sum()) * n
        return found

    example = ([(torch.ones(2), 1), (torch.ones(2, 2), 2)],)
    why = (
        r"pairs is a list of 1; it must be a list of 2, because the example does not tell one dtype and rank"
    )
    with (
        shapevm.compile(torch.jit.script(total), example, strategy="generic") as exe,
        pytest.raises(shapevm.ArgumentError, match=why),
    ):
        exe(example[0][:1])


def test_a_list_whose_tensors_change_and_move_says_why() -> None:
    def changed(a: torch.Tensor, ts: list[torch.Tensor], ks: list[int]) -> torch.Tensor:
        for t in ts:
            t += a
        ts.append(a)
        return ts[0] + len(ks)

    with (
        compiled([torch.ones(2), torch.ones(2)], changed) as exe,
        pytest.raises(shapevm.ArgumentError, match="because the program changes its tensors in place"),
    ):
        exe(torch.ones(2), [torch.ones(2)], [1])


def added_to(a: torch.Tensor, ts: list[torch.Tensor], ks: list[int]) -> int:
    for t in ts:
        t += a
    return len(ks)


def test_tensors_of_a_list_are_changed_by_name_and_in_numpy() -> None:
    with compiled([torch.ones(2)], added_to) as exe:
        arrays = [np.zeros(2, np.float32), np.ones(2, np.float32)]
        exe(np.ones(2, np.float32), arrays, [1])
        assert [x.tolist() for x in arrays] == [[1, 1], [2, 2]]
        found = exe.run({"a": np.ones(2, np.float32), "ts": arrays, "ks": [1]})
        assert found["output"] == 1 and [x.tolist() for x in arrays] == [[2, 2], [3, 3]]


def test_tensors_of_a_list_that_cannot_be_changed() -> None:
    a, x = torch.ones(2), torch.ones(4)
    fixed = np.ones(2, np.float32)
    fixed.flags.writeable = False
    with compiled([torch.ones(2)], added_to) as exe:
        for ts, message in (
            ([a], 'input "ts" shares memory with input "a"|input "a" shares memory with input "ts"'),
            ([x[:2], x[2:], x[1:3]], 'two elements of input "ts" share memory'),
            ([x[:2], x[:2]], 'two elements of input "ts" share memory'),
            ([fixed], r'input "ts\[0\]" is changed by the program, but the array given cannot be written'),
        ):
            with pytest.raises(shapevm.ArgumentError, match=message):
                exe(a, ts, [])
        exe(a, [x[:2], x[2:]], [])
    assert x.tolist() == [2, 2, 2, 2]
