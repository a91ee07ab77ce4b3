"""No circle of files: each can be read after those that it needs."""

from __future__ import annotations

from .circles import c_leads, circles, python_leads


def test_no_files_form_a_circle() -> None:
    python, c = python_leads(), c_leads()
    assert len(python) > 400 and len(c) > 50
    found = circles(python) + circles(c)
    assert not found, "\n".join(f"a circle of {len(each)} files: {', '.join(sorted(each))}" for each in found)


def test_what_leads_where() -> None:
    python, c = python_leads(), c_leads()
    assert "vm/errors.py" in python["shapevm/program/executable.py"]  # of another package
    assert "shapevm/reports/explain.py" in python["shapevm/program/reported.py"]  # within a function
    assert "shapevm/calls/columns.py" in python["shapevm/calls/pytree.py"]  # from . import columns
    assert {"runtime_c/run/frames", "runtime_c/run/tensor"} <= c["runtime_c/run/interpreter"]


def test_what_a_circle_is() -> None:
    leads = {"a": "b", "b": "c", "c": "a", "d": "a", "e": "f", "f": "e", "g": ""}
    assert circles(leads) == [{"a", "b", "c"}, {"e", "f"}]
