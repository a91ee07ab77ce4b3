"""Data classes of `vm.data_class` beside those of the standard library, of the same fields."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from shapevm.vm.data_class import made_quickly

ROOT = Path(__file__).parents[2]
#: vm/isa.py and vm/layout.py also run where no package exists; the signature of options is shown to users.
OTHERS = {"vm/data_class.py", "vm/isa.py", "vm/layout.py", "shapevm/options.py"}


class Base:
    name: str
    sizes: tuple[int, ...] = ()
    found: list[int] = dataclasses.field(default_factory=list)
    note: str = dataclasses.field(default="", compare=False, repr=False)


class Derived:
    width: float = 0.5


class Computed:
    left: int
    right: int
    total: int = dataclasses.field(init=False)
    seen: list[int] = dataclasses.field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", self.left + self.right)


class One:
    value: Any


class Empty:
    pass


class Own:
    value: int

    def __init__(self) -> None:
        object.__setattr__(self, "value", 7)

    def __repr__(self) -> str:
        return "own"

    def __eq__(self, other: object) -> bool:
        return True


def both(cls: type, base: type | None = None, **how: bool) -> list[type]:
    """Return the class of the standard library and ours with the fields of `cls`."""
    bases = both(base, **how) if base is not None else [object, object]
    made = []
    for make, parent in zip((dataclasses.dataclass, made_quickly), bases, strict=True):
        kept = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
        contents = {name: copy.copy(value) for name, value in kept.items()}  # a field is changed
        made.append(make(**how)(type(cls.__name__, (parent,), contents)))
    return made


def outcome(run: Any) -> Any:
    try:
        return run()
    except Exception as error:
        return type(error), str(error)


CALLS: list[tuple[type, type | None, tuple[Any, ...], dict[str, Any]]] = [
    (Base, None, ("a",), {}),
    (Base, None, ("a", (1, 2)), {"found": [3], "note": "x"}),
    (Base, None, (), {}),
    (Base, None, ("a",), {"other": 1}),
    (Base, None, ("a",), {"name": "b"}),
    (Derived, Base, ("a",), {"width": 2.0}),
    (Derived, Base, ("a", (), [1], "n", 3.0), {}),
    (Computed, None, (1, 2), {}),
    (Computed, None, (1, 2, 3), {}),
    (One, None, (float("nan"),), {}),
    (Empty, None, (), {}),
    (Own, None, (), {}),
]
WAYS = [
    {},
    {"frozen": True},
    {"eq": False},
    {"frozen": True, "eq": False},
    {"frozen": True, "kw_only": True},
    {"kw_only": True},
]


@pytest.mark.parametrize("how", WAYS, ids=lambda how: "-".join(how) or "plain")
@pytest.mark.parametrize(("cls", "base", "args", "kwargs"), CALLS)
def test_objects_are_those_of_the_standard_library(cls, base, args, kwargs, how):
    def facts(kind: type) -> list[Any]:
        made = kind(*args, **kwargs)
        same, other = kind(*args, **kwargs), outcome(lambda: dataclasses.replace(made))
        return [
            repr(made),
            dataclasses.asdict(made),
            made == same,
            made == 1,
            outcome(lambda: hash(made) == hash(same)),
            other if isinstance(other, tuple) else dataclasses.astuple(other),
            outcome(lambda: setattr(made, "value", 3)) if cls is One else None,
            outcome(lambda: setattr(made, "name", 3)),
            outcome(lambda: delattr(made, "name")),
            kind.__match_args__,
            dataclasses.is_dataclass(made),
        ]

    theirs, ours = (outcome(lambda kind=kind: facts(kind)) for kind in both(cls, base, **how))
    assert str(ours) == str(theirs)


def test_later_objects_are_made_as_the_first():
    _, ours = both(Base)
    first, second = ours("a"), ours("b", found=[1])
    assert (first.name, first.found, second.name, second.found) == ("a", [], "b", [1])
    first.found.append(2)
    assert ours("c").found == []


def test_a_cycle_is_shown_once():
    _, ours = both(One)
    made = ours(None)
    made.value = made
    assert repr(made) == "One(value=...)"


@made_quickly(frozen=True)
class Stored:
    """A class that pickle finds."""

    size: int
    names: tuple[str, ...] = ("a",)


def test_frozen_objects_are_pickled_and_copied():
    assert pickle.loads(pickle.dumps(Stored(3))) == copy.deepcopy(Stored(3)) == Stored(3, ("a",))


def test_the_package_makes_its_data_classes_so():
    files = [path for top in ("shapevm", "compiler", "jit", "vm") for path in (ROOT / top).rglob("*.py")]
    slow = re.compile(r"^from dataclasses import .*\bdataclass\b", re.MULTILINE)
    found = {str(path.relative_to(ROOT)) for path in files if slow.search(path.read_text())}
    assert len(files) > 300 and found <= OTHERS
