"""A file names classes of records; none of their code runs for it unless this process made them known."""

import dataclasses
import sys
from collections import namedtuple
from types import ModuleType
from typing import Any

import pytest

from shapevm.calls.pytree import LEAF, form
from shapevm.calls.records import class_name

Point = namedtuple("Point", "x y")
RAN: list[str] = []


@dataclasses.dataclass(frozen=True)
class Plain:
    x: Any
    y: Any


@dataclasses.dataclass
class Acting:
    x: Any

    def __post_init__(self) -> None:
        RAN.append(self.x)


class Counting(namedtuple("Base", "x")):
    def __new__(cls, x: Any) -> Any:
        RAN.append(x)
        return super().__new__(cls, x)


class Lazy(ModuleType):
    def __getattr__(self, name: str) -> Any:
        RAN.append(name)
        raise AttributeError(name)


def made(cls: str, **fields: Any) -> Any:
    structure = {"object": cls, "fields": dict.fromkeys(fields, LEAF)}
    return form(structure).unflatten(list(fields.values()))


def test_records_of_loaded_modules_are_given_back() -> None:
    assert made(f"{__name__}:Point", x=1, y=2) == Point(1, 2)
    assert made(f"{__name__}:Plain", x=1, y=2) == Plain(1, 2)
    assert made(f"{__name__}:Plain", x=1) == {"x": 1} and made(f"{__name__}:Point", x=1) == {"x": 1}


def test_no_code_of_a_named_class_or_module_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lazy_module", Lazy("lazy_module"))
    RAN.clear()
    assert made(f"{__name__}:Acting", x="ran") == {"x": "ran"}
    assert made(f"{__name__}:Counting", x="ran") == ("ran",)
    for name in (
        "lazy_module:Thing",
        "subprocess:Popen",
        "os:system",
        "builtins:exec",
        "x",
        ":",
        "os:path.join",
    ):
        assert made(name, args="ran") == {"args": "ran"}
    assert RAN == []


def test_a_class_that_this_process_compiled_with_is_made_as_it_says() -> None:
    RAN.clear()
    assert made(class_name(Acting), x="ran") == Acting("ran") and RAN[0] == "ran"
