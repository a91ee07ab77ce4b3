"""What launches have to do, counted by hand, and what the machine can do."""

import sys
from pathlib import Path

import pytest
from shapevm.jit.families.table import FAMILIES
from shapevm.jit.measure.roofline import MachineLimits, machine_limits, operations, traffic
from shapevm.jit.text import parse_spec

MATMUL = """matmul n_dims=1 batch=[] m=n0 n=3 k=4 a=0 a_index=[i0,i2] b=1 b_index=[] b_layout="panels"
  b0 f32[n0,4]
  b1 f32[1,4,32]
  b2 f32[3]
  b3 f32[n0,3] output
  v0 = acc f32
  v1 = load f32 b2[i1]
  v2 = add f32 v0 v1
  v3 = store f32 v2 b3[i0,i1]
"""
GATHER = """nest n_dims=1 domain=[n0,8]
  b0 i64[n0]
  b1 f32[1000,8]
  b2 f32[n0,8] output
  v0 = load i64 b0[i0]
  v1 = load f32 b1[v0,i1]
  v2 = mul f32 v1 v1
  v3 = store f32 v2 b2[i0,i1]
"""


def test_matmul():
    spec = parse_spec(MATMUL)
    assert operations(spec, (5,)) == 5 * 3 * (2 * 4 + 1)
    assert traffic(spec, (5,)) == 4 * (5 * 4 + 4 * 32 + 3 + 5 * 3)
    assert operations(spec, (0,)) == 0


def test_gather_moves_the_rows_that_it_reads():
    spec = parse_spec(GATHER)
    assert operations(spec, (2,)) == 2 * 8
    assert traffic(spec, (2,)) == 2 * 8 + 2 * 8 * 4 + 2 * 8 * 4
    assert traffic(spec, (5000,)) == 5000 * 8 + 1000 * 8 * 4 + 5000 * 8 * 4  # no more than the table


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda f: f.spec.family)
def test_every_family_has_facts(family):
    for example in family.examples:
        spec = parse_spec(example.text)
        assert operations(spec, example.dims) >= 0 and traffic(spec, example.dims) > 0


def test_limits():
    limits = MachineLimits(1, flops=100.0, bytes=10.0)
    assert limits.seconds(200, 1) == 2.0 and limits.bound(200, 1) == "arithmetic"
    assert limits.seconds(1, 50) == 5.0 and limits.bound(1, 50) == "memory"
    found = machine_limits(1)
    assert found.threads == 1 and 1e9 < found.flops < 1e13 and 1e8 < found.bytes < 1e13


def test_the_benchmark_takes_an_artifact(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[3] / "benchmarks"), *sys.path])
    from roofline import artifact_of

    assert artifact_of("folder/model.svm", tmp_path) == Path("folder/model.svm")
