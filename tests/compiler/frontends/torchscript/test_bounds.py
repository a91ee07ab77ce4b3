"""What a program may make the importer do is bounded: each of these would else run for ever, or fill the
memory."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from shapevm.compiler.frontends.torchscript import bounds
from torch import Tensor

import shapevm
from shapevm.errors import ArchiveError


def doubled_text(a: Tensor) -> Tensor:
    text = "ab"
    for _ in range(60):
        text = text + text
    return a + len(text)


def replaced_text(a: Tensor) -> Tensor:
    text = "aaaaaaaaaaaaaaaa"
    for _ in range(60):
        text = text.replace("a", text)
    return a + len(text)


def doubled_list(a: Tensor) -> Tensor:
    items = [0, 1]
    for _ in range(60):
        items = items + items
    return a + len(items)


def extended_list(a: Tensor) -> Tensor:
    items = [0, 1]
    for _ in range(60):
        items.extend(items)
    return a + len(items)


def repeated_list(a: Tensor) -> Tensor:
    return a + len([1] * (1 << 40))


@pytest.mark.parametrize(
    "function", [doubled_text, replaced_text, doubled_list, extended_list, repeated_list]
)
def test_constants_are_not_too_long(function: Any) -> None:
    with pytest.raises(shapevm.UnsupportedOp, match="characters or elements is computed; at most 1,048,576"):
        shapevm.compile(torch.jit.script(function), args=(torch.ones(2),))


def test_steps_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def nested(a: Tensor) -> Tensor:
        k = 0
        for i in range(64):
            for j in range(64):
                for _ in range(64):
                    for _ in range(64):
                        k += i * j
        return a + k

    monkeypatch.setattr(bounds, "MAX_STEPS", 20_000)
    with pytest.raises(shapevm.UnsupportedOp, match="takes more than 20,000 steps"):
        shapevm.compile(torch.jit.script(nested), args=(torch.ones(2),))


def test_ints_have_64_bits() -> None:
    """As at run time: the low ones of what 64 bits do not hold."""

    def large(a: Tensor) -> tuple[Tensor, int]:
        k = 3
        for _ in range(60):
            k = k * k
        return a * 1, k

    script = torch.jit.script(large)
    assert shapevm.compile(script, args=(torch.ones(2),))(torch.ones(2))[1] == script(torch.ones(2))[1]


class One(torch.nn.Module):
    """A module whose saved code is replaced."""

    def forward(self, x: Tensor) -> Tensor:
        """Add one."""
        return torch.add(x, 1)


@pytest.mark.parametrize(
    ("levels", "calls", "sentence"),
    [(60, 2, r"\.forward has 1,000,000,000,000,000 operators when its calls are inlined"),
     (300, 1, "is called in more than 200 calls within each other")],
)  # fmt: skip
def test_calls_of_a_file_are_counted(levels: int, calls: int, sentence: str, tmp_path: Path) -> None:
    """Functions that call the one before twice: inlined, that doubles with each of them."""
    torch.jit.save(torch.jit.script(One()), tmp_path / "one.pt")
    with zipfile.ZipFile(tmp_path / "one.pt") as file:
        members = {name: file.read(name) for name in file.namelist() if not name.endswith("debug_pkl")}
    code = next(name for name in members if name.endswith(".py"))
    head, _, tail = members[code].decode().partition("  def forward(")
    owner = head.partition("class ")[2].partition("(")[0]
    qualified = code.partition("code/")[2].removesuffix(".py").replace("/", ".") + f".{owner}"
    for i in range(levels):
        before = "x" if i == 0 else f"(self).f{i - 1}(x, )"
        body = f"torch.add({before}, {before if calls == 2 else 1})"
        head += f"  def f{i}(self: {qualified},\n    x: Tensor) -> Tensor:\n    return {body}\n"
    tail = tail.replace("(x, 1)", f"((self).f{levels - 1}(x, ), 1)")
    members[code] = f"{head}  def forward({tail}".encode()
    with zipfile.ZipFile(tmp_path / "many.pt", "w") as file:
        for name, data in members.items():
            file.writestr(name, data)
    with pytest.raises(ArchiveError, match=sentence):
        shapevm.compile(tmp_path / "many.pt", args=(torch.ones(2),))
