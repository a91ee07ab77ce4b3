"""Settings: scope, then environment, then default; every wrong value is one sentence."""

import threading
from pathlib import Path

import pytest
import torch
from shapevm.vm.errors import ArgumentError

import shapevm
from shapevm.settings import TABLE, TARGETS, Settings, settings


def test_defaults(monkeypatch):
    for setting in TABLE:
        monkeypatch.delenv(setting.variable, raising=False)
        assert getattr(settings, setting.name) == setting.default
        assert setting.doc and "\n" not in setting.doc


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("strategy", "jit", "jit"), ("threads", "3", 3), ("hot_calls", "0", 0), ("cache", "0", False),
        ("cache", "1", True), ("verify", "1", True), ("target", "x86-64-v3", "x86-64-v3"),
        ("plans", " 7 ", 7),
        ("plans", "", 256), ("strategy", "", "auto"),
    ],
)  # fmt: skip
def test_the_environment(monkeypatch, name, text, value):
    monkeypatch.setenv(f"SHAPEVM_{name.upper()}", text)
    assert getattr(settings, name) == value


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("strategy", "fast", "SHAPEVM_STRATEGY='fast' must be one of auto, jit, bucket, generic"),
        ("threads", "many", "SHAPEVM_THREADS='many' must be a whole number from 0 to 256"),
        ("threads", "-1", "SHAPEVM_THREADS='-1' must be a whole number from 0 to 256"),
        ("plans", "1.5", "SHAPEVM_PLANS='1.5' must be a whole number from 0 to 2147483647"),
        ("cache", "yes", "SHAPEVM_CACHE='yes' must be 0 or 1 (False or True)"),
    ],
)
def test_wrong_environment(monkeypatch, name, text, message):
    monkeypatch.setenv(f"SHAPEVM_{name.upper()}", text)
    with pytest.raises(shapevm.ArgumentError) as caught:
        getattr(settings, name)
    assert str(caught.value) == message


def test_scopes_nest_and_end(monkeypatch):
    monkeypatch.setenv("SHAPEVM_PLANS", "9")
    with settings.scope(plans=5, verify=True):
        assert settings.plans == 5 and settings.verify
        with pytest.raises(KeyError), settings.scope(plans=6):
            assert settings.plans == 6 and settings.verify
            raise KeyError
        assert settings.plans == 5
    assert settings.plans == 9 and not settings.verify


def test_a_scope_is_its_threads_own():
    seen = []
    with settings.scope(plans=5):
        thread = threading.Thread(target=lambda: seen.append(settings.plans))
        thread.start()
        thread.join()
    assert seen == [256]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"plan": 5}, "no setting is named 'plan'; there are strategy, threads"),
        ({"strategy": "fast"}, "strategy='fast' must be one of auto, jit, bucket, generic"),
        ({"threads": "2"}, "threads='2' must be a whole number"),
        ({"threads": True}, "threads=True must be a whole number"),
        ({"cache": 1}, "cache=1 must be 0 or 1"),
        ({"plans": 5, "verify": None}, "verify=None must be 0 or 1"),
        (
            {"target": 5},
            "target=5 must be one of nothing, x86-64-v4-amx, x86-64-v4-bf16, x86-64-v4-vnni, x86-64-v4, "
            "x86-64-v3-vnni, x86-64-v3, aarch64-i8mm, aarch64-dotprod, aarch64",
        ),
    ],
)
def test_wrong_scopes(values, message):
    with pytest.raises(shapevm.ArgumentError) as caught, settings.scope(**values):
        pass
    assert message in str(caught.value)
    assert settings.plans == 256


def test_unknown_settings():
    with pytest.raises(AttributeError, match="no setting is named 'speed'; there are strategy, threads"):
        _ = settings.speed


def test_the_cache_path(monkeypatch, tmp_path):
    assert settings.cache_path() == Path(settings.cache_dir)
    with settings.scope(cache_dir=str(tmp_path)):
        assert settings.cache_path() == tmp_path
    with settings.scope(cache=False):
        assert settings.cache_path() is None
    monkeypatch.setenv("HOME", "/home/somebody")
    with settings.scope(cache_dir="~/kernels"):
        assert settings.cache_path() == Path("/home/somebody/kernels")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with settings.scope(cache_dir=""):
        assert settings.cache_path() == tmp_path / "shapevm" / "kernels"


def test_threads_are_set_when_a_program_is_loaded(artifact):
    before = shapevm.get_threads()
    try:
        with settings.scope(threads=3), shapevm.load(artifact):
            assert shapevm.get_threads() == 3
            shapevm.set_threads(2)
            shapevm.load(artifact).close()
            assert shapevm.get_threads() == 2  # the setting has not changed: what was called for counts
        with settings.scope(threads=1):
            shapevm.load(artifact).close()
            assert shapevm.get_threads() == 1
    finally:
        shapevm.set_threads(before)


def test_verification_between_passes(net):
    with settings.scope(verify=True):
        shapevm.compile(**net).close()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SHAPEVM_PLANS", "9" * 30),
        ("SHAPEVM_PLANS", "9" * 6000),
        ("SHAPEVM_CODE_MIB", str(1 << 44)),
        ("SHAPEVM_HOT_CALLS", str(1 << 31)),
        ("SHAPEVM_THREADS", "257"),
        ("SHAPEVM_THREADS", "-1"),
        ("SHAPEVM_MEMORY_MIB", "1e3"),
        ("SHAPEVM_FUEL", str(1 << 63)),
        ("SHAPEVM_TIMEOUT_MS", "²"),
        ("SHAPEVM_CACHE", "yes"),
        ("SHAPEVM_STRATEGY", "fast" * 100),
    ],
)
def test_wrong_values_in_the_environment_get_a_sentence(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    with pytest.raises(ArgumentError, match=f"^{variable}=.* must be ") as caught:
        getattr(settings, variable.removeprefix("SHAPEVM_").lower())
    assert len(str(caught.value)) < 250


def test_unknown_variables_are_reported_once(monkeypatch, caplog):
    monkeypatch.setenv("SHAPEVM_STRATGY", "jit")
    monkeypatch.setenv("SHAPEVM_QQQ", "1")
    fresh = Settings()
    with caplog.at_level("WARNING", logger="shapevm"):
        assert fresh.strategy in ("auto", "jit", "bucket", "generic") and fresh.plans >= 0
    assert sorted(record.getMessage() for record in caplog.records) == [
        "SHAPEVM_QQQ in the environment is no setting; `shapevm settings` lists them",
        "SHAPEVM_STRATGY in the environment is no setting; did you mean SHAPEVM_STRATEGY?",
    ]


@pytest.mark.parametrize(("name", "value"), [("STRATEGY", "fast"), ("PLANS", "x"), ("TARGET", "x86-65")])
def test_unknown_names_are_refused_where_they_are_used(tmp_path, monkeypatch, name, value):
    program = tmp_path / "m.svm"
    shapevm.compile(torch.nn.Linear(2, 2), (torch.ones(1, 2),), strategy="generic").save(program)
    monkeypatch.setenv(f"SHAPEVM_{name}", value)
    with pytest.raises(ArgumentError, match=value):
        shapevm.load(program)


def test_the_targets_are_those_of_the_compiler():
    from shapevm.jit.llvm import target

    assert tuple(target.TARGETS) == TARGETS
