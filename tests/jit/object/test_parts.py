"""Compiled parts on disk: another process's are linked, and the code is the same."""

from pathlib import Path

import pytest
from shapevm.jit import compiler
from shapevm.jit.compiler import compile_kernel
from shapevm.jit.llvm.function import Function
from shapevm.jit.llvm.target import host_target
from shapevm.jit.object import parts
from shapevm.jit.object.cache import DiskCache
from shapevm.jit.object.link import Blob
from shapevm.jit.object.parts import Parts
from shapevm.jit.object.shared_cache import LayeredCache, local_folder

from ..families.attention.test_attention import attention

SPEC = attention(64, 64, mask="padding")


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The names of the functions of each run of LLVM, in a process that knows no parts."""
    found: list[list[str]] = []
    text = compiler.module_text
    monkeypatch.setattr(compiler, "_PARTS", Parts())
    monkeypatch.setattr(compiler, "module_text", lambda fs: found.append([f.name for f in fs]) or text(fs))
    return found


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_PARTS", Parts())


def test_parts_of_another_process_are_linked(
    compiled: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compile_kernel(SPEC, None, cache=tmp_path)
    forget(monkeypatch)
    second = compile_kernel(SPEC, None, cache=tmp_path)
    assert len(compiled[0]) > 10 and compiled[1] == ["kernel"] and first.code == second.code
    forget(monkeypatch)
    assert compile_kernel(SPEC, None).code == first.code and compiled[2] == compiled[0]


def test_a_part_that_was_damaged_is_compiled_again(
    compiled: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compile_kernel(SPEC, None, cache=tmp_path)
    entries = [path for path in tmp_path.glob("??/*") if len(path.parent.name) == 2]
    assert len(entries) == len(compiled[0]) - 1
    entries[0].write_bytes(entries[0].read_bytes()[:-1] + b"\0\0")
    forget(monkeypatch)
    assert compile_kernel(SPEC, None, cache=tmp_path).code == first.code and len(compiled[1]) == 2


def test_parts_of_other_targets_are_others(tmp_path: Path, compiled: list[list[str]]) -> None:
    other = "aarch64" if host_target() != "aarch64" else "x86-64-v3"
    compile_kernel(SPEC, None, cache=tmp_path)
    compile_kernel(SPEC, None, other, cache=tmp_path)
    assert len(compiled[1]) > 10


def test_a_shared_cache_holds_no_parts(tmp_path: Path) -> None:
    local, shared = DiskCache(tmp_path / "local", None), DiskCache(tmp_path / "shared", None)
    assert local_folder(LayeredCache(local, shared)) == local_folder(local) == tmp_path / "local"
    assert local_folder(None) is None


def test_functions_used_longest_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MAX_BYTES", 100)
    kept, functions = Parts(), [Function(name, []) for name in "abc"]
    for f in functions[:2]:
        kept.add(f, "t", Blob(bytes(40), 0))
    assert kept.known(functions[0], "t")
    kept.add(functions[2], "t", Blob(bytes(30), 0))
    assert [bool(kept.known(f, "t")) for f in functions] == [True, False, True]
