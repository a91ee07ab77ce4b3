"""Artifacts at URLs: fetched once, kept under their SHA-256, believed only as far as their digest."""

import contextlib
import hashlib
import io
import os
import pickle
from pathlib import Path

import fsspec
import numpy as np
import pytest
import torch
from shapevm.vm.errors import ArgumentError, ArtifactError, FileError

import shapevm

URL = "memory://models/model.svm"
X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    rows = torch.export.Dim("rows", min=1, max=64)
    model = torch.nn.Linear(4, 5).eval()
    exe = shapevm.compile(model, (torch.zeros(3, 4),), dynamic_shapes=({0: rows},), strategy="generic")
    path = tmp_path_factory.mktemp("made") / "model.svm"
    exe.save(path)
    return path.read_bytes()


@pytest.fixture
def kept(content: bytes, tmp_path: Path) -> Path:
    """The folder of fetched artifacts, while `content` lies at URL."""
    fsspec.filesystem("memory").pipe_file("models/model.svm", content)
    with shapevm.settings.scope(cache_dir=str(tmp_path)):
        yield tmp_path / "artifacts"
    fsspec.filesystem("memory").store.clear()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.svm"))


def test_a_url_s_file_is_kept_under_its_digest(kept: Path, content: bytes) -> None:
    exe = shapevm.load(URL, strategy="generic")
    assert exe(X).tobytes() == shapevm.load(content, strategy="generic")(X).tobytes()
    assert names(kept) == [f"{hashlib.sha256(content).hexdigest()}.svm"]
    assert kept.stat().st_mode & 0o777 == 0o700
    assert not list(kept.glob("*.part"))


def test_a_known_digest_is_not_fetched_again(kept: Path, content: bytes) -> None:
    digest = hashlib.sha256(content).hexdigest()
    shapevm.load(URL, digest=digest)
    fsspec.filesystem("memory").store.clear()
    shapevm.load(URL, digest=digest)(X)
    with pytest.raises(FileError, match="memory://models/model.svm cannot be read: FileNotFoundError"):
        shapevm.load(URL)


def test_a_pickle_names_url_and_digest(kept: Path) -> None:
    exe = shapevm.load(URL, strategy="generic")
    text = pickle.dumps(exe)
    assert len(text) < 2000 and URL.encode() in text and str(kept).encode() not in text
    expected = exe(X).tobytes()
    with shapevm.settings.scope(cache_dir=str(kept.parent / "another machine")):
        assert pickle.loads(text)(X).tobytes() == expected
    with shapevm.settings.scope(cache=False):
        assert pickle.loads(text)(X).tobytes() == expected
    fsspec.filesystem("memory").pipe_file("models/model.svm", b"another")
    assert pickle.loads(text)(X).tobytes() == expected  # from the folder of this machine
    with (
        shapevm.settings.scope(cache_dir=str(kept.parent / "third")),
        pytest.raises(ArtifactError, match="SHA-256 is .*, not "),
    ):
        pickle.loads(text)


def test_a_kept_file_with_other_bytes_is_fetched_again(kept: Path, content: bytes) -> None:
    digest = hashlib.sha256(content).hexdigest()
    shapevm.load(URL)
    place = kept / f"{digest}.svm"
    place.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    shapevm.load(URL, digest=digest)(X)
    assert place.read_bytes() == content


def test_a_folder_that_others_write_to_is_refused(kept: Path) -> None:
    shapevm.load(URL)
    os.chmod(kept, 0o777)
    with pytest.raises(FileError, match="others may write to"):
        shapevm.load(URL)


def test_what_was_opened_last_is_kept(kept: Path, content: bytes) -> None:
    kept.mkdir()
    for age in range(3):
        (kept / f"{age}.svm").write_bytes(bytes(1 << 19))
        os.utime(kept / f"{age}.svm", (age, age))
    with shapevm.settings.scope(artifacts_mib=1):
        shapevm.load(URL)
    assert names(kept) == sorted(["2.svm", f"{hashlib.sha256(content).hexdigest()}.svm"])


def test_a_file_url_is_a_path(kept: Path, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a model.svm"
    path.write_bytes(content)
    shapevm.load(path.as_uri())(X)
    assert not kept.exists()


@pytest.mark.parametrize(
    ("url", "error", "message"),
    [
        ("nosuch://a/b.svm", ArgumentError, "nosuch://a/b.svm cannot be opened: Protocol not known"),
        ("memory://nothing", FileError, "memory://nothing cannot be read"),
        ("file:///nothing.svm", FileError, "/nothing.svm cannot be opened: No such file"),
    ],
)
def test_what_cannot_be_fetched_is_one_sentence(kept: Path, url: str, error: type, message: str) -> None:
    with pytest.raises(error, match=message) as raised:
        shapevm.load(url)
    assert "\n" not in str(raised.value)


class Endless(io.RawIOBase):
    """A server's answer: some bytes, then zeros for ever."""

    n_read = 0

    def __init__(self, start: bytes) -> None:
        self.start = start

    def read(self, n: int = -1) -> bytes:
        self.n_read += n
        assert self.n_read < 1 << 28, "read on and on"
        piece, self.start = self.start[:n], self.start[n:]
        return piece + bytes(n - len(piece))


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content, "has more than the [0-9]+ bytes that its header states"),
        (lambda content: b"", "the first 8 bytes are not an artifact's"),
        (
            lambda content: content[:24] + (1 << 62).to_bytes(8, "little") + content[32:],
            "do not fit into the",
        ),
    ],
)
def test_an_endless_file_is_not_fetched(
    kept: Path, content: bytes, monkeypatch: pytest.MonkeyPatch, change, message: str, cache: bool
) -> None:
    monkeypatch.setattr(fsspec, "open", lambda url, mode: contextlib.nullcontext(Endless(change(content))))
    with (
        shapevm.settings.scope(cache=cache),
        pytest.raises(shapevm.Error, match=f"^{URL}: .*{message}") as raised,
    ):
        shapevm.load(URL)
    assert "\n" not in str(raised.value)
    assert not list(kept.glob("*.part")) and not list(kept.glob("*.svm"))


def test_a_url_has_no_signature(kept: Path) -> None:
    with pytest.raises(ArgumentError, match="trust: a URL has no signature"):
        shapevm.load(URL, trust=b"key")
