"""A KV cache that is updated in place: what a step writes and holds, sessions, errors, the runner."""

from __future__ import annotations

import math
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from shapevm.jit.families.scatter.spec import Scatter
from shapevm.jit.spec_reader import from_json
from shapevm.vm._runtime import ffi, lib
from shapevm.vm.artifact import read
from shapevm.vm.load_options import CallLimits, LoadOptions
from shapevm.vm.machine import Machine
from shapevm.vm.program import Dim
from shapevm.vm.reference import Reference
from shapevm.vm.values import fill

import shapevm
from shapevm import nn
from shapevm.errors import IndexOutOfRange, LimitExceeded

from ...vm.kernels import runner
from .models import Llama

CONFIG: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "bos_token_id": None,
    "eos_token_id": None,
}  # fmt: skip
PROMPT, N_NEW = 7, 12
INPUTS = {"ids": ((1, "new"), "i64"), "positions": (("new",), "i64")}
DECODE = {"token": ((1,), "i64"), "position": ((1,), "i64")}


@pytest.fixture(scope="module")
def model() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**CONFIG)).eval()


def compiled(model: Any, folder: Path, length: int = 32) -> shapevm.Executable:
    save_file({name: x.contiguous() for name, x in model.state_dict().items()}, folder / "llama.safetensors")
    llama = nn.load(Llama(model.config, length), folder / "llama.safetensors")
    sizes = {"new": (1, length)}
    return nn.compile(llama, INPUTS, sizes, functions={"decode": DECODE}, strategy="generic")


@pytest.fixture(scope="module")
def exe(model: Any, tmp_path_factory: pytest.TempPathFactory) -> shapevm.Executable:
    return compiled(model, tmp_path_factory.mktemp("llama"))


def greedy(model: Any, prompt: np.ndarray[Any, Any], n_new: int = N_NEW) -> list[int]:
    ids = torch.from_numpy(prompt)
    with torch.no_grad():
        found = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=n_new, do_sample=False, pad_token_id=0
        )
    return list(map(int, found[0, ids.shape[1] :]))


def generate(session: Any, prompt: np.ndarray[Any, Any], n_new: int = N_NEW) -> list[int]:
    n = prompt.shape[1]
    found = [int(session(prompt, np.arange(n))["next"][0])]
    for position in range(n, n + n_new - 1):
        found.append(int(session.call("decode", np.array(found[-1:]), np.array([position]))[0]))
    return found


def prompts(n: int) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 97, (1, PROMPT)) for _ in range(n)]


def test_tokens_are_those_of_transformers(exe: shapevm.Executable, model: Any) -> None:
    for prompt in prompts(3):  # the cache holds what the prompt before left
        assert generate(exe, prompt) == greedy(model, prompt)


def written(exe: shapevm.Executable, inputs: list[Any]) -> tuple[int, int]:
    """Return the bytes that the kernels of a step write: into state, and into other memory."""
    program = read(exe.artifact)
    state, run = inputs[2:], runner(program)
    in_state = elsewhere = 0

    def count(index: int, dims: tuple[int, ...], buffers: list[Any]) -> None:
        nonlocal in_state, elsewhere
        spec = from_json(program.kernels[index].spec)
        for buffer, array in zip(spec.buffers, buffers, strict=True):
            if buffer.is_output and any(np.shares_memory(array, each) for each in state):
                assert isinstance(spec, Scatter) and np.shares_memory(array, buffers[0]), (
                    "it writes rows alone"
                )
                updates = [dims[size.index] if isinstance(size, Dim) else size for size in spec.updates]
                in_state += math.prod(updates) * array.itemsize
            elif buffer.is_output:
                elsewhere += array.nbytes
        run(index, dims, buffers)

    Reference(program, count).call(inputs, program.others[0])
    return in_state, elsewhere


def test_a_step_writes_rows_and_not_the_cache(model: Any, tmp_path: Path) -> None:
    """A step writes one row of each cache: keys and values of two layers, 2 heads of 8 f32. What it writes
    besides does not grow with the cache, of which a copy takes 512 bytes for each position."""
    written_by: dict[int, int] = {}
    for length in (64, 1024):
        exe = compiled(model, tmp_path, length)
        assert [row.name for row in read(exe.artifact).others[0].outputs] == ["output"]
        step = [np.array([5]), np.array([length // 2])]
        in_state, written_by[length] = written(exe, [*step, *exe.state().values()])
        assert in_state == 2 * 2 * 2 * 8 * 4
        before = exe.state()
        for _ in range(3):  # interpreted, planned, through the quick path
            exe.call("decode", *step)
        for name, values in exe.state().items():
            assert np.unique(np.nonzero(values != before[name])[2]).tolist() == [length // 2], name
    assert written_by[1024] <= written_by[64] < 5000


def test_a_step_allocates_no_cache(model: Any, tmp_path: Path) -> None:
    """The memory of a call stays under a limit that a copy of one layer's keys would break."""
    length = 4096
    exe = compiled(model, tmp_path, length)
    exe.save(tmp_path / "llama.svm")
    values = [np.array([5]), np.array([length - 1]), *exe.state().values()]
    limited = LoadOptions("generic", limits=CallLimits(memory_max=2 * length * 8 * 4))
    with Machine.open(tmp_path / "llama.svm", limited) as machine:
        for _ in range(3):
            assert machine.call(values, function=1)[0].shape == (1,)


def test_state_is_memory_of_a_call(model: Any, tmp_path: Path) -> None:
    compiled(model, tmp_path, 4096).save(tmp_path / "llama.svm")
    with pytest.raises(LimitExceeded, match="memory_max: the call holds"):
        shapevm.load(tmp_path / "llama.svm", memory=1 << 18)


def test_sessions_of_threads_do_not_disturb_each_other(exe: shapevm.Executable, model: Any) -> None:
    given = prompts(4)
    wanted = [greedy(model, prompt) for prompt in given]
    found: dict[int, list[list[int]]] = {}

    def work(i: int) -> None:
        session = exe.session()
        found[i] = [generate(session, given[i]) for _ in range(5)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert [found[i] for i in range(4)] == [[tokens] * 5 for tokens in wanted]


def test_a_session_is_copied_and_reset(exe: shapevm.Executable, model: Any) -> None:
    (prompt,) = prompts(1)
    wanted = greedy(model, prompt)
    first, other = exe.session(), exe.session()
    first(prompt, np.arange(PROMPT))
    other.set_state(first.state())  # a fork: both go on from the prompt
    for session in (first, other, first):
        found = [wanted[0]]
        for position in range(PROMPT, PROMPT + 5):
            found.append(int(session.call("decode", np.array(found[-1:]), np.array([position]))[0]))
        assert found == wanted[:6]
    first.reset_state()
    assert not any(values.any() for values in first.state().values())
    assert any(values.any() for values in other.state().values())


def test_positions_beyond_the_cache_are_refused(exe: shapevm.Executable) -> None:
    session = exe.session()
    with pytest.raises(IndexOutOfRange, match="index 32 is out of range for an axis of size 32"):
        session.call("decode", np.array([5]), np.array([32]))


def test_the_runner_keeps_the_cache_in_files(exe: shapevm.Executable, model: Any, tmp_path: Path) -> None:
    exe.save(tmp_path / "llama.svm")
    (prompt,) = prompts(1)
    wanted = greedy(model, prompt, 3)
    given = {"ids": prompt, "positions": np.arange(PROMPT)}
    np.savez(tmp_path / "0.npz", **given)
    for step in range(3):
        name = ["--function", "decode"] if step else []
        command = [shapevm.runner_path(), "llama.svm", *name, "--input", f"{step}.npz", "--output", "out.npz"]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
        out = dict(np.load(tmp_path / "out.npz"))
        token = out.pop("output" if step else "next")
        assert int(token[0]) == wanted[step]
        state = {key: value for key, value in out.items() if key.startswith("state.")}
        assert len(state) == 4
        np.savez(tmp_path / f"{step + 1}.npz", token=token, position=np.array([PROMPT + step]), **state)


class Rows(nn.Module):
    """Ways to update a buffer in place that work, or cannot."""

    def __init__(self) -> None:
        self.rows = nn.Buffer((8, 4), in_place=True)

    def forward(self, x: Any, at: Any) -> Any:
        self.rows.update(nn.index_copy(self.rows, 0, at, x))
        return self.rows * 2.0

    def old_value(self, x: Any, at: Any) -> Any:
        before = self.rows * 1.0
        self.rows.update(nn.index_copy(self.rows, 0, at, x))
        return before

    def whole(self, x: Any, at: Any) -> Any:
        self.rows.update(self.rows + 1.0)
        return x


ROWS = {"x": ("n", 4), "at": (("n",), "i64")}


@pytest.mark.parametrize("name", ["old_value", "whole"])
def test_what_cannot_be_in_place_is_refused(name: str) -> None:
    with pytest.raises(shapevm.UnsupportedOp, match="'rows' is updated in place, so it must be updated once"):
        nn.compile(Rows(), ROWS, functions={name: ROWS})


def test_rows_of_any_number() -> None:
    exe = nn.compile(Rows(), ROWS)
    wanted = np.zeros((8, 4), np.float32)
    for n in (0, 1, 3, 8, 3, 1, 0):
        at, x = np.random.default_rng(n).permutation(8)[:n], np.full((n, 4), n, np.float32)
        wanted[at] = x
        assert np.array_equal(exe(x, at), wanted * 2)
    assert np.array_equal(exe.state()["rows"], wanted)


def test_memory_that_cannot_be_written_is_refused() -> None:
    exe = nn.compile(Rows(), ROWS)
    x, at = np.ones((1, 4), np.float32), np.array([2])
    fixed = np.zeros((8, 4), np.float32)
    fixed.flags.writeable = False
    for _ in range(3):
        with pytest.raises(shapevm.ArgumentError, match='"state.rows" is changed in place; pass an array'):
            exe.machine.call([x, at, fixed])
    with pytest.raises(shapevm.ArgumentError, match='"state.rows" is changed in place; pass a contiguous'):
        exe.machine.call([x, at, np.zeros((4, 8), np.float32).T])


def test_constants_of_the_program_are_not_written() -> None:
    """What a C host gets from `initial_state` lies in the file's weights, which may be read-only; zeros are
    no constants."""
    model = Rows()
    model.rows.array[3] = -0.0
    exe = nn.compile(model, ROWS)
    assert np.signbit(exe.state()["rows"]).any(1).tolist() == [n == 3 for n in range(8)]
    program, error = exe.machine._handle.pointer, ffi.new("svm_error *")
    function = lib.svm_find_function(program, b"initial_state")
    values, x, at = ffi.new("svm_value[3]"), np.ones((1, 4), np.float32), np.array([2])
    fill(values[0], x, [], "x")
    fill(values[1], at, [], "at")
    outputs = ffi.new("svm_value[1]")
    assert not lib.svm_call(program, function, ffi.NULL, 0, ffi.NULL, values + 2, 1, error)
    assert lib.svm_call(program, 0, values, 3, ffi.NULL, outputs, 1, error)
    message = ffi.string(error.message).decode()
    assert (
        message == 'input "state.rows" is changed in place, but it is a constant of the program; pass a copy'
    )
