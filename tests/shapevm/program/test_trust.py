"""Which artifacts are loaded: digests, signatures, native code; what happens to files meanwhile."""

from __future__ import annotations

import copy
import gc
import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from shapevm.vm import files
from shapevm.vm.errors import ArgumentError, ArtifactError, FileError
from shapevm.vm.files import replacing

import shapevm
from shapevm.__main__ import main
from shapevm.program.trust import digest


@pytest.fixture(scope="module")
def made() -> shapevm.Executable:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
    shapes = ({0: torch.export.Dim("n", min=1, max=64)},)
    return shapevm.compile(model, (torch.randn(3, 4),), dynamic_shapes=shapes, strategy="generic")


@pytest.fixture
def path(made: shapevm.Executable, tmp_path: Path) -> Path:
    made.save(tmp_path / "model.svm")
    return tmp_path / "model.svm"


X = torch.arange(20.0).reshape(5, 4) / 8 - 1


def other_artifact(path: Path) -> None:
    """Replace the file by another sound artifact: a later constant name."""
    from dataclasses import replace

    from shapevm.vm.artifact import read, to_bytes

    program = read(path)
    path.write_bytes(to_bytes(replace(program, meta={**program.meta, "name": "other"})))


# Digests --------------------------------------------------------------------------------------------


def test_load_takes_only_the_digest(made: shapevm.Executable, path: Path) -> None:
    found = digest(path)
    assert found == hashlib.sha256(path.read_bytes()).hexdigest()
    for copied in (None, True, False):
        assert torch.equal(shapevm.load(path, digest=found, copy=copied)(X), made(X))
    other_artifact(path)
    for copied in (None, True, False):
        with pytest.raises(ArtifactError, match="SHA-256 is not the digest"):
            shapevm.load(path, digest=found, copy=copied)
    with pytest.raises(ArgumentError, match="digest 'abc' is no SHA-256: it must be 64 hexadecimal digits"):
        shapevm.load(path, digest="abc")
    with pytest.raises(ArgumentError, match="verify 'often' is unknown"):
        shapevm.load(path, verify="often")


def test_the_command_line_knows_digests(path: Path) -> None:
    shown = CliRunner().invoke(main, ["digest", str(path)])
    assert shown.stdout.strip() == digest(path)
    sound = CliRunner().invoke(main, ["verify", str(path), "--digest", digest(path)])
    assert sound.exit_code == 0 and sound.stdout == f"{path}: sound, SHA-256 {digest(path)}\n"
    wrong = CliRunner().invoke(main, ["verify", str(path), "--digest", "0" * 64])
    assert wrong.exit_code == 3 and "its SHA-256 is" in wrong.output
    data = bytearray(path.read_bytes())
    data[-300] ^= 4
    path.write_bytes(data)
    damaged = CliRunner().invoke(main, ["verify", str(path)])
    assert damaged.exit_code == 3 and "section WEIGHTS" in damaged.output


# Signatures -----------------------------------------------------------------------------------------


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.generate()
    pem = private.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
    public = private.public_key().public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "key.pem").write_bytes(pem)
    (tmp_path / "key.pub").write_bytes(public)
    return tmp_path / "key.pem", tmp_path / "key.pub"


def test_load_takes_only_what_the_key_signed(
    made: shapevm.Executable, path: Path, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    private, public = keys
    with pytest.raises(FileError, match="signature cannot be read.*shapevm sign"):
        shapevm.load(path, trust=public)
    signed = CliRunner().invoke(main, ["sign", str(path), "--key", str(private)])
    assert signed.exit_code == 0 and signed.stdout.strip() == f"{path}.sig"
    assert torch.equal(shapevm.load(path, trust=public)(X), made(X))
    assert torch.equal(shapevm.load(path, trust=public.read_bytes(), digest=digest(path))(X), made(X))
    assert CliRunner().invoke(main, ["verify", str(path), "--trust", str(public)]).exit_code == 0
    with pytest.raises(ArtifactError, match="signature is for another digest"):
        shapevm.load(path, trust=public, digest="0" * 64)
    for wrong in (private, path):
        with pytest.raises(ArgumentError, match="is no Ed25519 public key"):
            shapevm.load(path, trust=wrong)
    other_artifact(path)
    with pytest.raises(ArtifactError, match="SHA-256 is not the digest"):
        shapevm.load(path, trust=public)
    changed = CliRunner().invoke(main, ["verify", str(path), "--trust", str(public)])
    assert changed.exit_code == 3 and "was signed" in changed.output


def test_signatures_by_others_are_refused(path: Path, keys: tuple[Path, Path]) -> None:
    private, public = keys
    shapevm.program.trust.sign(path, private)
    place = Path(f"{path}.sig")
    signature = json.loads(place.read_text())
    other_artifact(path)
    place.write_text(json.dumps({**signature, "sha256": digest(path)}))
    with pytest.raises(ArtifactError, match="the signature is not by the trusted key"):
        shapevm.load(path, trust=public)
    for text in ("", "[]", "{}", '{"sha256": 1, "ed25519": 2}', "[" * 100000):
        place.write_text(text)
        with pytest.raises(ArtifactError, match="is no signature"):
            shapevm.load(path, trust=public)


# Native code ----------------------------------------------------------------------------------------


def test_without_native_code_kernels_are_compiled_from_their_specs(
    made: shapevm.Executable, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exe = shapevm.load(path, native_code=False, strategy="generic")
    kernels = range(len(exe.machine.kernels))
    assert all(kernel.n_objects == 0 for kernel in exe.machine.kernels)
    assert torch.equal(exe(X), made(X)) and all(list(exe.machine.installed(k)) for k in kernels)
    with shapevm.settings.scope(native_code=False):
        assert all(kernel.n_objects == 0 for kernel in shapevm.load(path).machine.kernels)
    monkeypatch.setattr("shapevm.compiler.packages.has_compiler", lambda: False)
    with pytest.raises(shapevm.Error, match="native code .* is switched off"):
        shapevm.load(path, native_code=False)


# Files ----------------------------------------------------------------------------------------------


def test_copies_of_an_executable_are_independent(made: shapevm.Executable, path: Path) -> None:
    exe = shapevm.load(path, strategy="generic")
    y = exe(X)
    for make in (copy.copy, copy.deepcopy):
        other = make(exe)
        del exe
        gc.collect()
        with open(os.devnull, "rb"):  # would get the number of a descriptor that was closed
            other.save(path.with_name("again.svm"))
        assert path.with_name("again.svm").read_bytes() == path.read_bytes()
        assert torch.equal(other(X), y) and other.machine.options.strategy == "generic"
        other.close()
        exe = shapevm.load(path, strategy="generic")
        with make(exe):
            pass
        assert torch.equal(exe(X), y)


def test_copies_have_their_own_state() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("n", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.n += 1
            return x + self.n

    exe = shapevm.compile(Counter(), (torch.zeros(2),), strategy="generic")
    exe(torch.zeros(2))
    other = copy.deepcopy(exe)
    assert other(torch.zeros(2)).tolist() == [2, 2] == exe(torch.zeros(2)).tolist()
    assert other(torch.zeros(2)).tolist() == [3, 3]


def test_a_changed_file_is_not_saved_as_the_program(path: Path) -> None:
    exe = shapevm.load(path)
    path.write_bytes(b"other")
    with pytest.raises(FileError, match="model.svm: the file was changed while its program was loaded"):
        exe.save(path.with_name("again.svm"))
    assert os.listdir(path.parent) == ["model.svm"]
    with pytest.raises(FileError, match="the file was changed"):
        copy.copy(exe)


def test_save_syncs_and_leaves_nothing_behind(
    made: shapevm.Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, sync = [], os.fsync

    def note(handle: int) -> None:
        synced.append(os.fstat(handle).st_ino)
        sync(handle)

    monkeypatch.setattr(files.os, "fsync", note)
    made.save(tmp_path / "a.svm")
    assert synced == [(tmp_path / "a.svm").stat().st_ino, tmp_path.stat().st_ino]
    before = (tmp_path / "a.svm").read_bytes()

    def fail(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(FileError, match="a.svm cannot be written: No space left on device"):
        made.save(tmp_path / "a.svm")
    assert os.listdir(tmp_path) == ["a.svm"] and (tmp_path / "a.svm").read_bytes() == before


def test_replacing_writes_devices_in_place(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_bytes(b"old")
    with replacing(place) as file:
        file.write(b"new")
        assert place.read_bytes() == b"old"
    assert place.read_bytes() == b"new"
    (tmp_path / "null").symlink_to(os.devnull)
    with replacing(tmp_path / "null") as file:
        file.write(b"x")
    assert (tmp_path / "null").is_symlink() and sorted(os.listdir(tmp_path)) == ["file", "null"]
    with pytest.raises(KeyboardInterrupt), replacing(place) as file:
        raise KeyboardInterrupt
    assert sorted(os.listdir(tmp_path)) == ["file", "null"]


def test_a_fifo_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.svm")
    with pytest.raises(FileError, match="it is no regular file"):
        shapevm.load(tmp_path / "model.svm")
    runner = subprocess.run([shapevm.runner_path(), tmp_path / "model.svm"], capture_output=True, timeout=60)
    assert runner.returncode == 3 and b"it is no regular file" in runner.stderr
