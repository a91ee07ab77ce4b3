from __future__ import annotations

import hashlib
import io
import os
import random
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from shapevm.vm import artifact, writer
from shapevm.vm.assembler import assemble
from shapevm.vm.chunks import hash_rows
from shapevm.vm.errors import ArtifactError
from shapevm.vm.layout import BY_NAME, CHUNKED, FORMAT_VERSIONS, PAGE, SECTIONS
from shapevm.vm.machine import Machine
from shapevm.vm.program import Axis, Buffer, Constant, Dim, Input, Lines, Output, Program, Symbol

from .programs import sample

HEADER, ROW = BY_NAME["header"].size, BY_NAME["section"].size


def assert_same(a: Program, b: Program) -> None:
    for field in fields(a):
        if field.name != "strings":  # the file's strings hold names as well
            assert getattr(a, field.name) == getattr(b, field.name), field.name
    assert b.strings[: len(a.strings)] == a.strings


def rehash(data: bytes) -> bytes:
    """Return `data` with all hashes of the container made right: what an attacker would do."""
    made = bytearray(data)
    rows = {name: BY_NAME["section"].unpack(made, HEADER + i * ROW) for i, name in enumerate(SECTIONS)}
    bodies = [made[row["offset"] : row["offset"] + row["size"]] for row in (rows[name] for name in CHUNKED)]
    if all(len(body) % 256 == 0 and len(body) < 1 << 24 for body in bodies):
        begin, size = rows["CHUNKS"]["offset"], rows["CHUNKS"]["size"]
        chunks = b"".join(hash_row for body in bodies for hash_row in hash_rows([body]))[:size]
        if begin + len(chunks) <= len(made):
            made[begin : begin + len(chunks)] = chunks
    for index, (_, hashed, _) in enumerate(SECTIONS.values()):
        at = HEADER + index * ROW
        row = BY_NAME["section"].unpack(made, at)
        if hashed and row["offset"] + row["size"] <= len(made):
            body = made[row["offset"] : row["offset"] + row["size"]]
            made[at + 32 : at + 64] = hashlib.sha256(body).digest()
    made[32:64] = hashlib.sha256(made[HEADER : HEADER + ROW * len(SECTIONS)]).digest()
    return bytes(made)


def test_round_trip() -> None:
    data = artifact.to_bytes(sample())
    read = artifact.from_bytes(data)
    assert_same(sample(), read)
    assert artifact.to_bytes(read) == data


def test_file(tmp_path: Path) -> None:
    path = tmp_path / "a.svm"
    weights = np.arange(100_000, dtype="<f4")
    program = replace(sample(), constants=(*sample().constants, Constant.tensor(weights, "f32", "big")))
    artifact.write(program, path)
    artifact.write(program, path)  # over an old one
    read = artifact.read(path)
    assert_same(program, read)
    assert os.listdir(tmp_path) == ["a.svm"]
    big = read.constants[-1].value
    assert big.ctypes.data % PAGE == 0 and not big.flags.writeable and not big.flags.owndata


def test_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.svm"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match="zero character"):
        artifact.write(replace(sample(), strings=("", "a\0b")), path)
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["a.svm"]


def test_shared_weights_are_stored_once() -> None:
    array = np.ones(50_000, "<f4")
    constants = (Constant.tensor(array, "f32", "a"), Constant.tensor(array, "f32", "b"))
    data = artifact.to_bytes(replace(sample(), constants=constants + sample().constants[2:]))
    assert len(data) < 2 * array.nbytes


@pytest.mark.parametrize("shape", [(50_000, 3), (3, 2_000_003), (2, 3, 5)])
def test_a_tensor_need_not_be_contiguous(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype="<f4").reshape(shape).T
    constants = (Constant.tensor(array, "f32", "a"), *sample().constants[1:])
    read = artifact.from_bytes(artifact.to_bytes(replace(sample(), constants=constants)))
    np.testing.assert_array_equal(read.constants[0].value, array)


class Pipe(io.BytesIO):
    """Takes bytes in order."""

    def seekable(self) -> bool:
        return False

    def seek(self, offset: int, whence: int = 0) -> int:
        raise OSError("this is a pipe")


@pytest.mark.parametrize("n", [0, 1, 300_000, 1_000_000])
def test_a_pipe_gets_the_bytes_of_a_file(n: int, tmp_path: Path) -> None:
    weights = np.arange(n, dtype="<f4")
    program = replace(sample(), constants=(Constant.tensor(weights, "f32", "w"), *sample().constants[1:]))
    pipe = Pipe()
    artifact.write_to(program, pipe)
    artifact.write(program, tmp_path / "a.svm")
    assert pipe.getvalue() == (tmp_path / "a.svm").read_bytes() == artifact.to_bytes(program)
    assert artifact.to_bytes(artifact.from_bytes(pipe.getvalue())) == pipe.getvalue()


def test_weights_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces, n_read = writer._pieces, []

    def counted(array: np.ndarray, begin: int, end: int) -> Iterator[memoryview]:
        n_read.append((end - begin) // array.itemsize)
        return pieces(array, begin, end)

    monkeypatch.setattr(writer, "_pieces", counted)
    constants = (Constant.tensor(np.ones((700, 900), "<f4").T, "f32", "a"), *sample().constants[1:])
    artifact.to_bytes(replace(sample(), constants=constants))
    assert n_read.count(700 * 900) == 1


@pytest.mark.parametrize("n_cpus", [1, 2, 3])
def test_threads_write_the_same_bytes(n_cpus: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares begin and end within tensors, contiguous or not, and between them."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(n_cpus))
    shapes = [(1_500_007,), (2_001, 999), (1, 2_500_001), (0, 3), (3,), (33, 50_021)]
    tensors = [np.random.default_rng(7).random(shape, np.float32).T for shape in shapes]
    constants = [Constant.tensor(tensor, "f32", f"w{i}") for i, tensor in enumerate(tensors)]
    program = replace(sample(), constants=(*constants, *sample().constants[len(constants) :]))
    artifact.write(program, tmp_path / "a.svm")
    written = (tmp_path / "a.svm").read_bytes()
    assert written == artifact.to_bytes(program)
    for constant, tensor in zip(artifact.from_bytes(written).constants, tensors, strict=False):
        np.testing.assert_array_equal(constant.value, tensor)


def test_object_alone() -> None:
    for o in sample().kernels[0].objects:
        data = artifact.serialise_object(o)
        assert artifact.parse_object(data) == o
        for at in range(len(data)):
            changed = bytearray(data)
            changed[at] ^= 1 << at % 8
            with pytest.raises(ArtifactError):
                artifact.parse_object(bytes(changed))
        for bad in (data[:-1], data + b"\0", data[:40], b""):
            with pytest.raises(ArtifactError):
                artifact.parse_object(bad)


def covered(data: bytes) -> list[int]:
    """Return the offsets of the bytes that have a meaning for the loader: not gaps, code or weights."""
    offsets = list(range(HEADER + ROW * len(SECTIONS)))
    for index, name in enumerate(SECTIONS):
        row = BY_NAME["section"].unpack(data, HEADER + index * ROW)
        if name not in ("WEIGHTS", "BLOBS"):
            offsets += range(row["offset"], row["offset"] + row["size"])
    return offsets


def test_every_changed_byte_is_refused() -> None:
    data = artifact.to_bytes(sample())
    for at in [*range(0, len(data), 13), len(data) - 1]:
        changed = bytearray(data)
        changed[at] ^= 0x10
        with pytest.raises(ArtifactError):
            artifact.from_bytes(bytes(changed))


def test_changed_machine_code_is_refused() -> None:
    data = artifact.to_bytes(sample())
    at = data.index(bytes(range(1, 201)))
    changed = data[: at + 9] + b"\xff" + data[at + 10 :]
    with pytest.raises(ArtifactError, match="section BLOBS: hash 0 of CHUNKS differs"):
        artifact.from_bytes(changed)
    with pytest.raises(ArtifactError, match="code object's SHA-256 differs"):
        artifact.from_bytes(rehash(changed))


def test_every_length_is_refused() -> None:
    data = artifact.to_bytes(sample())
    for end in [*range(0, 1200, 7), *range(1200, len(data), 997)]:
        with pytest.raises(ArtifactError):
            artifact.from_bytes(data[:end])
    with pytest.raises(ArtifactError):
        artifact.from_bytes(data + b"\0")


def test_hostile_bytes_with_right_hashes() -> None:
    """Whatever the bytes say: a program or an ArtifactError, nothing else, and quickly."""
    data, rng = artifact.to_bytes(sample()), random.Random(1)
    places, refused = covered(data)[HEADER:], 0
    for _ in range(3000):
        changed = bytearray(data)
        for at in rng.sample(places, rng.choice((1, 1, 2, 5))):
            changed[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        try:
            artifact.from_bytes(rehash(bytes(changed)))
        except ArtifactError:
            refused += 1
    assert refused > 1000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": (Input("x", "tensor", "f32", (Axis.of(7),)),)}, "symbol 7 of 2"),
        ({"inputs": sample().inputs[:2]}, "main has 5 parameters"),
        ({"outputs": ()}, "main has 2 results"),
        ({"outputs": (Output("y", "tensor", "f32", (Axis.of(7),)), Output("z"))}, "symbol 7 of 2"),
        ({"outputs": (Output("y", "int", None, (Axis.const(3),)), Output("z"))}, "no tensor"),
        ({"outputs": (Output("y", "tensor", "f32", (Axis(None, 0, 3, "n"),)), Output("z"))}, "told"),
        ({"inputs": (Input("x", "tensor", "f32", (Axis(expression="n"),)),)}, "has the text"),
        ({"symbols": (Symbol("n", 3, 2), Symbol("rest"))}, "max 2 is below min 3"),
        ({"symbols": (Symbol("n", -2, -3), Symbol("rest"))}, "max -3 is below min -2"),
        ({"symbols": (Symbol("n", -(2**63)), Symbol("rest"))}, r"must be > -2\^63"),
        ({"inputs": (Input("a"), *sample().inputs[1:])}, None),
    ],
)
def test_contract_is_checked(change: dict[str, object], message: str | None) -> None:
    if message is None:
        change["inputs"] = (Input("x", "tensor", "f32", (Axis.of(0),)), *sample().inputs[1:])
        message = '"rest" is bound by no input'
    with pytest.raises(ArtifactError, match=message):
        artifact.from_bytes(artifact.to_bytes(replace(sample(), **change)))  # type: ignore[arg-type]


def test_objects_must_be_the_kernels() -> None:
    p = sample()
    kernel = p.kernels[0]
    other = replace(kernel, buffers=(Buffer("f32", (3,)), kernel.buffers[1]))
    with pytest.raises(ArtifactError, match="other dims or buffers"):
        artifact.from_bytes(artifact.to_bytes(replace(p, kernels=(other, p.kernels[1]))))
    with pytest.raises(ArtifactError, match="another kernel spec"):
        artifact.from_bytes(artifact.to_bytes(replace(p, kernels=(replace(kernel, spec="{}"), p.kernels[1]))))
    twice = replace(kernel, objects=(kernel.objects[0], kernel.objects[0]))
    with pytest.raises(ArtifactError, match="twice"):
        artifact.from_bytes(artifact.to_bytes(replace(p, kernels=(twice, p.kernels[1]))))


@pytest.mark.parametrize(
    "lines",
    [
        (Lines(2, 0, 3),),
        (Lines(0, 2, 3),),
        (Lines(0, 0, 3), Lines(0, 0, 3)),
        (Lines(0, 0, 3), Lines(1, 1, 3)),
        (Lines(0, 0, 3, 0),),
        (Lines(0, 0, 3, 1, 0, 0),),
        (Lines(0, 0, 3, 1, 0, (1 << 16) + 1),),
        (Lines(0, 0, 3, 1, -(1 << 16) - 1),),
        (Lines(1, 0, 3, 2),),
        (Lines(0, 0, Dim(1)),),
        (Lines(0, 0, -1),),
    ],
)
def test_lines_that_cannot_be_are_refused(lines: tuple[Lines, ...]) -> None:
    """By both readers; buffer 1 is an output."""
    p = sample()
    objects = tuple(replace(o, work=replace(o.work, lines=lines)) for o in p.kernels[0].objects)
    data = artifact.to_bytes(replace(p, kernels=(replace(p.kernels[0], objects=objects), p.kernels[1])))
    for read in (artifact.from_bytes, Machine.from_bytes):
        with pytest.raises(ArtifactError, match="lines|a size|dim|size is"):
            read(data)


@pytest.mark.parametrize("version", [FORMAT_VERSIONS[0] - 1, FORMAT_VERSIONS[-1] + 1, 0, 2**32 - 1])
def test_other_format_versions_are_refused_by_name(version: int) -> None:
    data = bytearray(artifact.to_bytes(sample()))
    assert int.from_bytes(data[8:12], "little") in FORMAT_VERSIONS
    data[8:12] = version.to_bytes(4, "little")
    with pytest.raises(ArtifactError, match=rf"format version {version}, this runtime reads 4 to 5"):
        Machine.from_bytes(rehash(bytes(data)))


@pytest.mark.parametrize(
    ("section", "at", "value", "message"),
    [
        ("STRINGS", 4, -16, "do not ascend"),
        ("STRINGS", 8, 0, "do not ascend"),
        ("STRINGS", 0, 1, "do not begin at 0"),
        ("INPUTS", 16, -2, "its symbol"),
        ("INPUTS", 16, 99, "its symbol"),
    ],
)
def test_hostile_rows_with_right_hashes(section: str, at: int, value: int, message: str) -> None:
    data = bytearray(artifact.to_bytes(sample()))
    row = BY_NAME["section"].unpack(data, HEADER + list(SECTIONS).index(section) * ROW)
    begin = row["offset"] + at
    assert row["size"] > at
    data[begin : begin + 4] = (value & 0xFFFFFFFF).to_bytes(4, "little")
    with pytest.raises(ArtifactError, match=rf"{section} record .*{message}"):
        Machine.from_bytes(rehash(bytes(data)))


def test_damage_is_said_to_be_in_the_tensor_where_it_is() -> None:
    """A tensor that ends where the damaged MiB begins has no part in it."""
    sizes = {"first": 1 << 20, "second": 256}
    constants = tuple(Constant.tensor(np.ones(n // 4, "<f4"), "f32", name) for name, n in sizes.items())
    text = 'output "y"\nfunction "main" (0 params, 1 results)\n  int r0 1\n  return (r0)\n'
    data = bytearray(artifact.to_bytes(replace(assemble(text), constants=constants)))
    row = BY_NAME["section"].unpack(data, HEADER + list(SECTIONS).index("WEIGHTS") * ROW)
    data[row["offset"] + (1 << 20)] ^= 1
    with pytest.raises(ArtifactError, match='MiB 1 of the weights .*: constant "second" was changed'):
        Machine.from_bytes(bytes(data))


def test_constants_are_read_by_name(tmp_path: Path) -> None:
    """Of the weights, only the MiBs that hold them are read and checked."""
    sizes = {"first": 1 << 20, "second": 256, "third": 1 << 21}
    constants = tuple(Constant.tensor(np.full(n // 4, n, "<f4"), "f32", name) for name, n in sizes.items())
    text = 'output "y"\nfunction "main" (0 params, 1 results)\n  int r0 1\n  return (r0)\n'
    data = bytearray(artifact.to_bytes(replace(assemble(text), constants=constants)))
    row = BY_NAME["section"].unpack(data, HEADER + list(SECTIONS).index("WEIGHTS") * ROW)
    data[row["offset"] + 1] ^= 1
    (path := tmp_path / "changed.svm").write_bytes(data)
    for name in ("second", "third"):
        (found,) = artifact.read_constants(path, name)
        assert found.name == name and np.array_equal(
            found.value, np.full(sizes[name] // 4, sizes[name], "<f4")
        )
    assert artifact.read_constants(path, "fourth") == ()
    with pytest.raises(ArtifactError, match="WEIGHTS: hashes 0 .. 1 of CHUNKS differ"):
        artifact.read_constants(path, "first")
    path.write_bytes(b"")
    with pytest.raises(ArtifactError, match="is empty"):
        artifact.read_constants(path, "first")
