"""The other forms of `tests/again.py` find what they are for, and a few drawn tests pass in all of them."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import shapevm

from .again import FORMS, Call, Closed, problems

FOLDER = Path(__file__).parent
#: Files whose tests compile small programs.
FILES = sorted(map(str, (FOLDER / "compiler" / "ops").glob("test_*.py")))


class Model(torch.nn.Module):
    def forward(self, x, *, scale):
        return {"y": torch.softmax(x * scale, -1), "n": x.shape[0]}


def call(compile):
    dim = torch.export.Dim("n", min=0)
    x, scale = torch.randn(5, 3), torch.ones(3)
    shapes = {"x": {0: dim}, "scale": None}
    return Call(compile, Model().eval(), (x,), {"scale": scale}, shapes)


@pytest.mark.parametrize("form", FORMS)
def test_a_right_program_is_right_in_every_form(form):
    from collections import Counter

    compared = Counter()
    assert problems(call(shapevm.compile), form, compared) == []
    assert compared[form]


class Wrong:
    """An executable whose results are off by one."""

    def __init__(self, exe):
        self.exe = exe

    def __getattr__(self, name):
        return getattr(self.exe, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.exe.close()

    def __call__(self, *args, **kwargs):
        return torch.utils._pytree.tree_map(lambda x: x + 1, self.exe(*args, **kwargs))


@pytest.mark.parametrize("form", FORMS)
def test_a_wrong_program_is_found_in_every_form(form):
    found = problems(call(lambda *a, **k: Wrong(shapevm.compile(*a, **k))), form)
    assert found and all(text.startswith(f"{form} ") for text in found)


@pytest.mark.parametrize("form", FORMS)
def test_a_form_that_is_refused_is_found(form):
    def refuses(*args, **kwargs):
        raise shapevm.ShapeError("it cannot be")

    assert "it cannot be" in problems(call(refuses), form)[0]


def test_a_closed_module_has_its_tensors_as_buffers():
    closed = Closed(Model(), (torch.ones(2, 3),), {"scale": torch.ones(3)})
    assert len(list(closed.buffers())) == 2 and closed()["n"] == 2


def test_drawn_tests_pass_in_all_forms(pytestconfig):
    """Other tests in every run: `--seed` repeats them."""
    draw = random.Random(pytestconfig.option.seed)
    listed = _pytest("--collect-only", draw.choice(FILES)).splitlines()
    tests = draw.sample(names := [line for line in listed if "::" in line], min(4, len(names)))
    assert tests
    _pytest("--again", "all", *tests)


def _pytest(*options):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=FOLDER.parent)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    return done.stdout
