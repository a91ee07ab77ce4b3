"""explain: causes of misses, storms and their bucket tables; the commands about shapes."""

import itertools
import json
import os
import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from shapevm.vm.artifact import read as read_artifact
from shapevm.vm.program import Symbol

import shapevm
from shapevm.__main__ import main
from shapevm.calls.profiles import read
from shapevm.cli.shared import parse_bytes
from shapevm.reports.explain import suggest
from shapevm.specialise.buckets import cells, parse_buckets


class TwoSizes(torch.nn.Module):
    def forward(self, x):
        h = torch.softmax(x, -1) * 2 + x
        return h, h.sum(-1)


@pytest.fixture(scope="module")
def artifact_of_two(tmp_path_factory):
    path = tmp_path_factory.mktemp("explain") / "two.svm"
    n, m = (torch.export.Dim(name, min=1, max=192) for name in "nm")
    options = {"dynamic_shapes": ({0: n, 1: m},), "strategy": "generic"}
    with shapevm.compile(TwoSizes(), (torch.randn(3, 5),), **options) as exe:
        exe.save(path)
    return path


def rows(n):
    return np.random.default_rng(n).random((n, 8), "f")


@pytest.fixture
def run():
    def run(*args, code=0):
        result = CliRunner().invoke(main, [str(arg) for arg in args])
        assert result.exit_code == code, result.output
        return result.stdout or result.output

    return run


def test_causes_and_counts(artifact):
    with shapevm.load(artifact, strategy="jit") as exe:
        for n in (3, 5, 5, 5):
            exe(rows(n))
        data = json.loads(exe.explain().json())
    assert data["summary"].startswith("4 calls, 2 replays") and data["storms"] == []
    for site in data["sites"]:
        assert (site["state"], site["misses"], site["tiers"]) == ("polymorphic", 2, {"exact": 2})
        because = {tuple(e["dims"]): e["because"] for e in site["entries"]}
        assert because == {(3,): "n = 3 (axis 0 of x)", (5,): "n = 5 (axis 0 of x)"}
        took = {tuple(e["dims"]): e["compile_ms"] for e in site["entries"]}
        assert took[3,] is None and took[5,] > 0 and site["compile_ms"] == took[5,]
        assert site["code_bytes"] > 0 and site["saved_ms"] is None


def test_the_table_is_whole_in_a_pipe(artifact):
    """Every figure and every word of the kernels' names, in lines of at most 80."""
    command = [sys.executable, "-m", "shapevm", "explain", str(artifact), "--strategy", "jit"]
    env = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    sizes = [text for n in range(1, 8) for text in ("--sizes", f"n={n}")]
    done = subprocess.run([*command, *sizes], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    table = done.stdout.split("  k0 [")[0]
    assert max(map(len, table.splitlines())) <= 80 and "…" not in table
    with shapevm.load(artifact) as exe:
        for kernel in exe.machine.kernels:
            assert all(word in table for word in kernel.label.split())
            assert kernel.source in table
    assert re.search(r"\b49 +7 +\d+\.\d\d +\d{3,}", table), table


def test_every_miss_has_its_cause(artifact_of_two):
    """Along a stream of two sizes: as many misses as entries, and each for what was new when it came."""
    axes = {"n": "n = {} (axis 0 of x)", "m": "m = {} (axis 1 of x)"}
    seen, known, expected = {"n": set(), "m": set()}, set(), {}
    rng = np.random.default_rng(0)
    with shapevm.load(artifact_of_two, strategy="generic") as exe:
        for _ in range(200):
            sizes = dict(zip("nm", rng.integers(1, 24, 2).tolist(), strict=True))
            new = [axes[s].format(size) for s, size in sizes.items() if size not in seen[s]]
            if tuple(sizes.values()) not in known:
                together = [axes[s].format(size) for s, size in sizes.items()]
                expected[tuple(sizes.values())] = ", ".join(new) or (
                    "the first time together: " + ", ".join(together)
                )
            known.add(tuple(sizes.values()))
            for s, size in sizes.items():
                seen[s].add(size)
            exe(np.ones(tuple(sizes.values()), "f"))
        sites = [s for s in exe.explain().data["sites"] if len(s["entries"][0]["dims"]) == 2]
    assert sites
    for site in sites:
        assert site["misses"] == len(site["entries"]) == len(known) > 150
        assert {tuple(e["dims"]): e["because"] for e in site["entries"]} == expected
        n_together = sum(text.startswith("the first time") for text in expected.values())
        assert site["causes"] == {
            "n (axis 0 of x)": 23, "m (axis 1 of x)": 23, "together": n_together
        }  # fmt: skip


SIDE = 192  # of a square of sizes that are more than a program keeps entries for


def test_misses_are_accounted_for_beyond_the_entries_that_are_kept(artifact_of_two):
    with shapevm.load(artifact_of_two, strategy="generic") as exe:
        for n, m in itertools.product(range(1, SIDE + 1), repeat=2):
            exe.machine.call([np.ones((n, m), "f")])
        sites = [s for s in exe.explain().data["sites"] if len(s["entries"][0]["dims"]) == 2]
    for site in sites:
        n, m, together = (
            site["causes"][cause] for cause in ("n (axis 0 of x)", "m (axis 1 of x)", "together")
        )
        assert site["misses"] == SIDE**2 > len(site["entries"]) and min(n, m) >= SIDE
        assert max(n, m) + together <= site["misses"] <= n + m + together


def test_what_exact_code_saved_is_measured(artifact):
    with shapevm.load(artifact, strategy="jit") as exe:
        for _ in range(10):
            exe(rows(50))
        assert all(isinstance(site["saved_ms"], float) for site in exe.explain(measure=True).data["sites"])


def test_a_storm_names_the_dimension_and_a_table_that_ends_it(artifact, net):
    with shapevm.load(artifact, strategy="generic") as exe:
        for n in range(1, 61):
            exe(rows(n))
        found = exe.explain()
    (storm,) = found.data["storms"]
    assert (storm["symbol"], storm["inputs"], storm["sizes"]) == ("n", "axis 0 of x", 60)
    assert f"--buckets {storm['option']}" in found.text()
    symbol = Symbol("n", 1, 512)
    assert cells(parse_buckets([storm["option"]]), [symbol]) == cells(storm["buckets"], [symbol])
    with shapevm.compile(**net, options=shapevm.Options(buckets=storm["buckets"]), strategy="bucket") as exe:
        for n in range(1, 61):
            exe(rows(n))
        assert "generic" not in exe.stats().tier()
        assert all(exe.machine.site(k).outside == 0 for k in range(len(exe.machine.kernels)))


@pytest.mark.parametrize(
    "seen",
    [
        dict.fromkeys(range(1, 100), 1),
        {5: 900, 7: 1, 300: 2, 64: 500},
        {512: 1},
        {n: n for n in range(9, 40, 3)},
    ],
)
def test_suggested_tables_cover_what_was_seen(seen):
    symbol = Symbol("n", 1, 512)
    made = [cell["n"] for cell in cells({"n": suggest(symbol, Counter(seen))}, [symbol])]
    for size in seen:
        assert any(size == x if isinstance(x, int) else size in x for x in made)


def test_the_page_is_whole_and_escaped(artifact):
    with shapevm.load(artifact, strategy="generic") as exe:
        for n in range(1, 30):
            exe(rows(n))
        found = exe.explain()
    found.data["sites"][0]["label"] = "<script>alert(1)</script>"
    opened, scripts = [], []

    class Parser(HTMLParser):
        def handle_starttag(self, tag, attributes):
            assert tag not in ("link", "img")
            scripts.append(tag == "script")  # the page has one of its own
            opened.append(tag)

        def handle_endtag(self, tag):
            while opened.pop() != tag:
                assert tag in ("html", "head")

    Parser().feed(found.html())
    assert sum(scripts) == 1 and "&lt;script&gt;" in found.html() and "storm:" in found.html()


# Commands -------------------------------------------------------------------------------------------


def test_the_commands_from_recording_to_baking(run, artifact, tmp_path):
    profiles = []
    for n, count in ((4, 20), (9, 3), (4, 5)):
        np.save(tmp_path / f"{n}.npy", rows(n))
        profiles.append(tmp_path / f"{len(profiles)}.json")
        run(
            "run", artifact, "--input", f"x={tmp_path / f'{n}.npy'}", "--repeat", count,
            "--record", profiles[-1], "--metrics", tmp_path / "metrics.txt",
        )  # fmt: skip
        assert f'shapevm_calls_total{{model="net"}} {count}\n' in (tmp_path / "metrics.txt").read_text()
    assert "28 calls at 2 sizes" in run("merge", *profiles, "-o", tmp_path / "all.json")
    counts = {values: calls.count for values, calls in read(tmp_path / "all.json").sizes.items()}
    assert counts == {(4,): 25, (9,): 3}
    text = run(
        "bake", artifact, tmp_path / "all.json", "--budget", "1MB", "--no-measure", "-o", tmp_path / "b.svm"
    )
    assert (
        "expected hit rate 100.0% (exact 100.0%, buckets 0.0%)" in text and "of a budget of 1,000,000" in text
    )
    text = run("freeze", artifact, "--sizes", "n=11", "--profile", profiles[0], "-o", tmp_path / "f.svm")
    assert "kernels compiled" in text
    frozen = {o.exact_dims for k in read_artifact(tmp_path / "f.svm").kernels for o in k.objects}
    assert frozen == {None, (3,), (4,), (11,)}
    baked = {o.exact_dims for k in read_artifact(tmp_path / "b.svm").kernels for o in k.objects}
    assert {(4,), (9,)} <= baked


def test_explain_command(run, artifact, tmp_path):
    text = run("explain", artifact, "--sizes", "n=4", "--sizes", "n=70", "--strategy", "jit")
    assert "missed for n = 70 (axis 0 of x)" in text
    data = json.loads(run("explain", artifact, "--sizes", "n=4", "--json"))
    assert data["sites"][0]["entries"][0]["dims"] == [4]
    run("explain", artifact, "--sizes", "n=4", "--html", tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert "sizes must be given for n" in run("explain", artifact, "--sizes", "m=4", code=2)


@pytest.mark.failing_kernels
def test_stress_command(run, artifact):
    assert run("stress", artifact, "--seconds", "2").endswith("ok\n")


def test_budgets():
    assert [parse_bytes(t) for t in ("2MB", "1.5 kB", "64KiB", "7")] == [2_000_000, 1500, 65536, 7]
    with pytest.raises(Exception, match="must look like 2MB"):
        parse_bytes("2 pints")
