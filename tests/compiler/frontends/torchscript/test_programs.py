"""Each program equals TorchScript, for every argument set, with one compilation."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import shapevm

from . import (  # noqa: F401 (they add their programs to the table)
    attributes,
    borrowed,
    collated,
    dicts,
    everyday,
    in_place,
    joined,
    language,
    layers,
    lengths,
    methods,
    nested,
    numerics,
    objects,
    optionals,
    ragged,
    resizing,
    sharing,
    signals,
    strangers,
    strings,
    structures,
    texts,
    trees,
    unfamiliar,
    values,
    windows,
)
from .programs import PROGRAMS


@pytest.fixture(autouse=True)
def verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verify the graph between all passes."""
    monkeypatch.setenv("SHAPEVM_VERIFY", "1")


def outcome(function: Any, args: tuple[Any, ...]) -> tuple[Any, Exception | None]:
    """Return what a call gives, and its arguments after it, or the error that it raises."""
    given = copy.deepcopy(args)
    try:
        return (function(*given), _tensors(given)), None
    except Exception as error:  # TorchScript has an error type of its own
        return None, error


def test_memory_that_may_be_shared_is_not_read_after_a_change() -> None:
    def shared(a: torch.Tensor, flag: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        b = a * 1
        c = b
        if bool(flag):
            c = b * 2
        d = c
        if bool(flag.sum() > 1):
            d = c * 2
        d += 1
        return b, d

    with pytest.raises(shapevm.UnsupportedOp, match=r"may share memory with one that was changed in place"):
        shapevm.compile(torch.jit.script(shared), args=(torch.randn(3), torch.tensor(True)))


def appended_and_changed(a: torch.Tensor) -> torch.Tensor:
    parts: list[torch.Tensor] = []
    h = a * 1
    for _ in range(a.size(0)):
        h += 1
        parts.append(h)
    return torch.stack(parts)


def changed_in_the_next_turn(a: torch.Tensor) -> torch.Tensor:
    parts: list[torch.Tensor] = []
    h = a * 1
    for _ in range(a.size(0)):
        h += 1
        h = h * 2
        parts.append(h)
    return torch.stack(parts)


@pytest.mark.parametrize("function", [appended_and_changed, changed_in_the_next_turn])
def test_a_list_whose_tensors_were_changed_in_place_is_not_read(function: Any) -> None:
    with pytest.raises(shapevm.UnsupportedOp, match="may share memory with one that was changed in place"):
        shapevm.compile(torch.jit.script(function), args=(torch.randn(3),))


def twice_in_a_list(a: torch.Tensor) -> torch.Tensor:
    rows = [a * i for i in range(a.size(0))]
    rows.append(rows[0])
    rows[-1] += 1
    return rows[0]


def put_at_another_place(a: torch.Tensor) -> torch.Tensor:
    rows = [a * i for i in range(a.size(0))]
    rows[1] = rows[0]
    rows[0] += 1
    return rows[1]


def the_same_in_every_turn(a: torch.Tensor) -> torch.Tensor:
    rows: list[torch.Tensor] = []
    h = a * 1
    for _ in range(a.size(0)):
        rows.append(h)
    rows[0] += 1
    return rows[1]


def twice_in_a_list_in_a_list(a: torch.Tensor) -> torch.Tensor:
    rows = [[a * i, a + i] for i in range(a.size(0))]
    for row in rows:
        row[1] = row[0]
        row[1].mul_(2)
    return rows[0][0]


def joined_with_itself(a: torch.Tensor) -> torch.Tensor:
    rows = [a * i for i in range(a.size(0))]
    both = rows + rows
    both[0] += 1
    return both[a.size(0)]


@pytest.mark.parametrize(
    "function",
    [
        twice_in_a_list,
        put_at_another_place,
        the_same_in_every_turn,
        twice_in_a_list_in_a_list,
        joined_with_itself,
    ],
)
def test_a_tensor_that_may_be_in_a_list_twice_is_not_changed(function: Any) -> None:
    with pytest.raises(shapevm.UnsupportedOp, match="changed in place that may be in a list twice"):
        shapevm.compile(torch.jit.script(function), args=(torch.randn(3),))


def test_a_looked_up_tensor_that_is_changed_in_place_is_not_read_from_the_dict() -> None:
    def changed(a: torch.Tensor) -> torch.Tensor:
        rows = {1: a * 1, 2: a * 2}
        found = rows[int(a[0].item())]
        found += 1
        return rows[1]

    with pytest.raises(shapevm.UnsupportedOp, match="may share memory with one that was changed in place"):
        shapevm.compile(torch.jit.script(changed), args=(torch.ones(3),))


def test_a_string_with_a_tensor_in_it_is_no_output() -> None:
    def shown(a: torch.Tensor) -> str:
        return f"a is {a}"

    with pytest.raises(shapevm.UnsupportedOp, match="a string with a tensor or an optional in it"):
        shapevm.compile(torch.jit.script(shown), args=(torch.ones(3),))


def _tensors(x: Any) -> Any:
    """Return the tensors in an argument, which alone a call changes of the caller's."""
    if isinstance(x, dict):
        return _tensors(list(x.values()))
    if isinstance(x, list | tuple):
        return [each for part in x for each in _tensors(part)]
    return [x] if isinstance(x, torch.Tensor) else []


def assert_same(found: Any, wanted: Any) -> None:
    """Assert that results are equal: strings exactly, numbers up to rounding."""
    if isinstance(wanted, str):
        assert found == wanted
    elif isinstance(wanted, dict):
        assert list(found) == list(wanted)
        assert_same(list(found.values()), list(wanted.values()))
    elif isinstance(wanted, list | tuple):
        assert len(found) == len(wanted) and isinstance(found, list) is isinstance(wanted, list)
        for one, other in zip(found, wanted, strict=True):
            assert_same(one, other)
    else:
        assert_close(found, wanted, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_there_are_enough_programs() -> None:
    assert len(PROGRAMS) >= 200
    assert not [name for name, (_, sets) in PROGRAMS.items() if len(sets) < 3]


@pytest.mark.drawn(least=0.2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_torchscript(name: str, tmp_path: Path) -> None:
    """Each argument set gives what TorchScript gives, or an error where it gives one; in the runner too, with
    the same bits."""
    function, sets = PROGRAMS[name]
    scripted = torch.jit.script(function)
    with shapevm.compile(scripted, args=copy.deepcopy(sets[0]), strategy="generic") as exe:
        assert not [each for each in exe.machine.externs if "::" in each], "PyTorch runs a part of it"
        exe.save(tmp_path / "model.svm")
        for args in sets:
            wanted, refused = outcome(scripted, args)
            found, error = outcome(exe, args)
            assert_runner_agrees(exe, tmp_path, args)
            if refused is not None:
                assert isinstance(error, shapevm.Error), f"{args}: {found} instead of {refused}"
                continue
            assert error is None, f"{args}: {error}"
            assert_same(found, wanted)


def assert_runner_agrees(exe: shapevm.Executable, folder: Path, args: tuple[Any, ...]) -> None:
    """Run the artifact in `folder` in the runner: its outputs have the bits that they have here, and what
    fails here fails there with the same message."""
    try:
        inputs = exe.flat(copy.deepcopy(args), {})
    except shapevm.ArgumentError:
        return  # the arguments have another structure, of which the runner knows nothing
    given = dict(zip([row.name for row in exe.machine.inputs], inputs, strict=False))  # behind them: state
    command = [
        str(Path(sys.executable).parent / "shapevm-run"),
        str(folder / "model.svm"),
        "--strategy",
        "generic",
    ]
    for i, (name, value) in enumerate(given.items()):
        command += ["--input", f"{name}={_shown(value, folder / f'{i}.npy')}"]
    done = subprocess.run([*command, "--output", str(folder / "y.npz")], capture_output=True, text=True)
    found, error = outcome(exe.run, (given,))
    if error is not None:
        message = str(error).splitlines()[0].split(" (")[0]
        assert done.returncode and message in done.stderr, f"{args}: {done.stderr} instead of {error}"
        return
    assert not done.returncode, f"{args}: {done.stderr}"
    results, _ = found
    with np.load(folder / "y.npz") as found:
        wanted = {name: np.asarray(leaf) for path, x in results.items() for name, leaf in _leaves(path, x)}
        assert set(wanted) <= set(found.files)
        others = set(found.files) - set(wanted)
        assert all(name.startswith(("changed.", "state.")) for name in others)
        for name, array in wanted.items():
            assert found[name].tobytes() == array.tobytes() and found[name].shape == array.shape, name


def _shown(value: Any, path: Path) -> str:
    if isinstance(value, list) and any(isinstance(item, torch.Tensor) for item in value):
        np.savez(path.with_suffix(".npz"), *map(np.asarray, value))
        return str(path.with_suffix(".npz"))
    if isinstance(value, list):
        return json.dumps(value)
    if isinstance(value, bool | int | float | str):
        return str(value).lower() if isinstance(value, bool) else str(value)
    np.save(path, np.asarray(value))
    return str(path)


def _leaves(path: str, x: Any) -> list[tuple[str, Any]]:
    if isinstance(x, list | tuple):
        return [pair for i, item in enumerate(x) for pair in _leaves(f"{path}.{i}", item)]
    return [(path, x)]
