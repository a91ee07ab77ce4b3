"""Mutants of small sources, text in, text out; and that they are noticed."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import shapevm.jit.spec
import shapevm.jit.text

from . import c_source, python_source
from .__main__ import candidates
from .child import ChangedSource, Replaced
from .coverage_map import CoverageMap

PYTHON = '''
"""A docstring of 1 line."""
def size(a: int, b: "1 + 2" = 3) -> bool:
    """Add 1."""
    if not a or b < 2:
        raise ValueError(f"{a + 1}")
    _LOG.warning("%d", 1)
    a.append(b % 2)
    return a is not None and (a) * (b)
'''
C = """
/* a < b */
#define ONE 1
int size(int *a, int b) {
  const char *text = "a < b"; // 1 + 2
  if (a[0] < b && b) return b << 2;
  free(a);
  return -b - 10;
}
"""


def changes(language: ModuleType, text: str) -> list[str]:
    """Return what each mutant of a source changes, in the order of the lines."""
    source = text.encode()
    found = sorted(language.mutants_of(Path("file"), source), key=lambda mutant: mutant.begin)
    for mutant in found:
        assert mutant.apply(source) != source
    return [str(mutant) for mutant in found]


def test_python() -> None:
    assert changes(python_source, PYTHON) == [
        "file:3: 3 -> 4",
        "file:5: not a or b < 2 -> (not (not a or b < 2))",
        "file:5: not a -> (a)",
        "file:5: or -> and",
        "file:5: < -> <=",
        "file:5: 2 -> 3",
        'file:6: raise ValueError(f"{a + 1}") -> pass',
        "file:8: a.append(b % 2) -> pass",
        "file:8: % -> *",
        "file:8: 2 -> 3",
        "file:9: is not -> is",
        "file:9: and -> or",
        "file:9: * -> +",
    ]


def test_c() -> None:
    assert changes(c_source, C) == [
        "file:6: (a[0] < b && b) -> (!(a[0] < b && b))",
        "file:6: 0 -> 1",
        "file:6: < -> <=",
        "file:6: && -> ||",
        "file:6: << -> >>",
        "file:6: 2 -> 3",
        "file:7: free(a); -> ;",
        "file:8: - -> +",
        "file:8: 10 -> 11",
    ]


def test_every_mutant_of_the_project_can_be_made() -> None:
    found = candidates()
    assert {mutant.path.suffix for mutant in found} == {".py", ".c"}
    sources = {mutant.path: mutant.path for mutant in found}
    root = Path(__file__).parents[2]
    contents = {path: (root / path).read_bytes() for path in sources}
    assert all(mutant.apply(contents[mutant.path]) != contents[mutant.path] for mutant in found)


def test_a_module_comes_from_the_changed_source() -> None:
    changed = Replaced({str(Path(shapevm.jit.text.__file__).resolve()): b"changed = True"}, {})
    spec = changed.find_spec("shapevm.jit.text", shapevm.jit.__path__)
    assert spec is not None and isinstance(spec.loader, ChangedSource)
    assert spec.loader.get_code(spec.name).co_names == ("changed",)
    other = changed.find_spec("shapevm.jit.spec", shapevm.jit.__path__)
    assert other is not None and not isinstance(other.loader, ChangedSource)


def test_the_fastest_case_of_each_function_comes_first() -> None:
    known = CoverageMap({"a[1]": 1.0, "a[2]": 2.0, "b": 5.0, "c[x]": 30.0, "d": 4.0}, {})
    tests = known.cheapest(["c[x]", "a[2]", "b", "a[1]", "d"], 12.0)
    assert tests == {"a[1]": 1.0, "d": 4.0, "b": 5.0} and list(tests) == ["a[1]", "d", "b"]
    assert list(known.cheapest(["a[2]", "b", "a[1]"], 12.0)) == ["a[1]", "b", "a[2]"]
