"""The comparison of kernels' LLVM text finds what differs, and its list has every family and variant."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from shapevm.jit.families.table import FAMILIES
from shapevm.jit.text import parse_spec

from .families.test_variants import CASES
from .kernel_text import ROOT, Case, cases, digests_of


def test_the_list_has_every_family_and_variant() -> None:
    listed = {case["spec"] for case in cases()}
    assert {parse_spec(text).family for text in listed} == set(FAMILIES)
    assert {spec for spec, *_ in CASES.values()} <= {parse_spec(text) for text in listed}


def test_a_changed_constant_differs(tmp_path: Path) -> None:
    changed = tmp_path / "source"
    for folder in ("jit", "vm", "shapevm"):
        shutil.copytree(ROOT / folder, changed / folder, ignore=shutil.ignore_patterns("__pycache__"))
    source = changed / "jit/families/matmul/strides.py"
    text = source.read_text()
    assert "UNROLL = 4 " in text
    source.write_text(text.replace("UNROLL = 4 ", "UNROLL = 2 "))
    families = {"matmul": True, "sort": False}  # whether they have micro-kernels
    listed = [
        Case(spec=e.text, dims=list(e.dims), key="exact", target="x86-64-v4", schedule=None)
        for e in (FAMILIES[name].examples[0] for name in families)
    ]
    wanted = tmp_path / "cases.json"
    wanted.write_text(json.dumps(listed))
    before, after = (
        digests_of(root, wanted, tmp_path / name) for root, name in ((ROOT, "before"), (changed, "after"))
    )
    assert [a != b for a, b in zip(before, after, strict=True)] == list(families.values())
