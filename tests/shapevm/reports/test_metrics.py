"""Metrics: a label for the model, latencies, and a collector that prometheus_client takes."""

import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

import shapevm
import shapevm.program.torch_profiler
from tests.locales import comma_locale


def rows(n):
    return np.random.default_rng(n).random((n, 8), "f")


def samples(text):
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))


def test_every_sample_has_the_model(artifact):
    with shapevm.load(artifact, strategy="generic") as exe:
        exe(rows(3))
        assert all('{model="net"' in name for name in samples(exe.metrics()))
        evil = 'a"b\\c\nd'
        text = exe.metrics(evil)
        assert 'shapevm_calls_total{model="a\\"b\\\\c\\nd"} 1\n' in text
        assert 'shapevm_kernels_compiled_total{model="a\\"b\\\\c\\nd"}' in text


IN_A_LOCALE = """
import json, locale, sys
import numpy as np, shapevm
from prometheus_client.openmetrics.parser import text_string_to_metric_families

locale.setlocale(locale.LC_ALL, "")
assert locale.localeconv()["decimal_point"] == ","
exe = shapevm.load(sys.argv[1], strategy="generic")
exe.metrics()
exe(np.ones((3, 8), "f"))
print(len(list(text_string_to_metric_families(exe.metrics()))))
profile = exe.profile((np.ones((3, 8), "f"),), calls=2)
print(len(profile.to_json()), len(profile.timeline))
"""


def test_numbers_have_a_point_in_every_locale(artifact, tmp_path):
    environment = {**os.environ, **comma_locale(tmp_path)}
    command = [sys.executable, "-c", IN_A_LOCALE, artifact]
    subprocess.run(command, env=environment, check=True)


def test_a_compiled_program_has_a_name(build):
    assert build(lambda self, x: x + 1, torch.ones(2)).name == "compiled"


def test_latencies_count_from_the_first_reading(artifact):
    with shapevm.load(artifact, strategy="generic") as exe:
        exe(rows(3))
        assert samples(exe.metrics())['shapevm_call_seconds_count{model="net"}'] == "0"
        for _ in range(5):
            exe(rows(3))
        values = samples(exe.metrics())
    assert values['shapevm_call_seconds_count{model="net"}'] == "5"
    assert 0 < float(values['shapevm_call_seconds_sum{model="net"}']) < 60
    counts = [int(v) for name, v in values.items() if name.startswith("shapevm_call_seconds_bucket")]
    assert counts == sorted(counts) and counts[-1] == 5 and len(counts) == 21
    assert 'shapevm_call_seconds_bucket{model="net",le="+Inf"}' in values


def test_recording_and_timing_are_apart(artifact):
    with shapevm.load(artifact, strategy="generic") as exe:
        exe.metrics()
        with shapevm.record(exe) as recording:
            exe(rows(3))
        exe(rows(3))
        assert recording.profiles[0].n_calls == 1
        assert samples(exe.metrics())['shapevm_call_seconds_count{model="net"}'] == "2"
        exe.machine.time_calls(False)
        exe(rows(3))
        assert samples(exe.machine.metrics("net"))['shapevm_call_seconds_count{model="net"}'] == "2"


def test_the_runner_names_the_model(artifact, tmp_path):
    np.save(tmp_path / "x.npy", rows(3))
    command = [shapevm.runner_path(), artifact, "--input", f"x={tmp_path / 'x.npy'}", "--repeat", "4"]
    subprocess.run([*command, "--metrics", tmp_path / "m.txt"], check=True, capture_output=True)
    values = samples((tmp_path / "m.txt").read_text())
    assert values['shapevm_calls_total{model="net"}'] == "4"
    assert values['shapevm_call_seconds_count{model="net"}'] == "4"


def test_collector(artifact):
    client = pytest.importorskip("prometheus_client", reason="prometheus_client is not installed")
    registry = client.CollectorRegistry()
    with shapevm.load(artifact, strategy="generic") as one, shapevm.load(artifact, strategy="generic") as two:
        registry.register(shapevm.PrometheusCollector(one, two))
        for exe, n in ((one, 2), (two, 3)):
            for _ in range(n):
                exe(rows(4))
        value = registry.get_sample_value
        assert value("shapevm_calls_total", {"model": "net"}) == 2
        assert value("shapevm_calls_total", {"model": "net-2"}) == 3
        assert value("shapevm_call_seconds_count", {"model": "net-2"}) == 3
        text = client.generate_latest(registry).decode()
        types = [line for line in text.splitlines() if line.startswith("# TYPE shapevm_calls")]
        assert len(types) == 1 and "# TYPE shapevm_call_seconds histogram" in text
        two.close()
        assert value("shapevm_calls_total", {"model": "net-2"}) is None


def test_threads_count_every_call(artifact):
    with shapevm.load(artifact, strategy="generic") as exe:
        exe.metrics()
        threads = [threading.Thread(target=lambda: [exe(rows(2)) for _ in range(50)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert samples(exe.metrics())['shapevm_call_seconds_count{model="net"}'] == "200"


# torch.profiler -------------------------------------------------------------------------------------


def test_torch_profiler_sees_calls_and_kernels(artifact, tmp_path):
    with shapevm.load(artifact, strategy="generic") as exe:
        x = torch.from_numpy(rows(5))
        expected = exe(x)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            seen = [exe(x) for _ in range(3)]
        after = exe(x)
        labels = [f"k{index} {kernel.label}" for index, kernel in enumerate(exe.machine.kernels)]
    for result in (*seen, after):
        assert all(torch.equal(result[name], expected[name]) for name in expected)
    counts = {row.key: row.count for row in profiler.key_averages()}
    assert counts["shapevm: net"] == 3 and all(counts[label] == 3 for label in labels)
    profiler.export_chrome_trace(str(tmp_path / "t.json"))
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert sum(event.get("name") == labels[0] for event in events) == 3


def test_torch_profiler_sees_graphs_of_torch_compile():
    compiled = torch.compile(torch.nn.Linear(4, 3).eval(), backend="shapevm")
    x = torch.ones(2, 4)
    with torch.no_grad():
        expected = compiled(x)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            assert torch.equal(compiled(x), expected)
    counts = {row.key: row.count for row in profiler.key_averages()}
    assert counts["shapevm: compiled"] == 1 and any(name.startswith("k0 matmul") for name in counts)


def test_an_error_under_the_profiler(artifact):
    with shapevm.load(artifact, strategy="generic") as exe:
        with torch.profiler.profile() as profiler, pytest.raises(shapevm.ShapeError):
            exe(torch.zeros(3, 9))
        assert not torch.autograd.profiler._is_profiler_enabled
        assert "shapevm: net" in {row.key for row in profiler.key_averages()}


def test_observers_are_told_of_each_launch(artifact):
    seen = []
    with shapevm.load(artifact, strategy="generic") as exe:
        exe.machine.call_observed([rows(3)], lambda kernel, is_end: seen.append((kernel, is_end)))
        n = len(exe.machine.kernels)
        assert seen == [(kernel, is_end) for kernel in range(n) for is_end in (False, True)]

        def fails(kernel, is_end):
            raise KeyError("from the observer")

        with pytest.raises(KeyError, match="from the observer"):
            exe.machine.call_observed([rows(3)], fails)
        assert exe(rows(3)) is not None
