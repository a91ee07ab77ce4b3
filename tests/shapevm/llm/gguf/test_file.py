"""GGUF files that the package `gguf` writes, and broken ones."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from shapevm.errors import ArgumentError
from shapevm.llm.gguf import read_gguf
from shapevm.nn import Quantised


def written(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Write a file of some values and tensors; return the tensors' values."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 2)
    writer.add_float32("llama.eps", 0.5)
    writer.add_bool("tokenizer.ggml.add_bos_token", True)
    writer.add_array("tokenizer.ggml.tokens", ["<s>", "\u00e4", ""])
    writer.add_array("tokenizer.ggml.scores", [0.0, -1.5, 2.0])
    plain = np.arange(10, dtype=np.float32).reshape(2, 5)
    wide = np.linspace(-1, 1, 4 * 64, dtype=np.float32).reshape(4, 64)
    packed = gguf.quants.quantize(wide, gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("plain", plain)
    writer.add_tensor("packed", packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    values = gguf.quants.dequantize(packed, gguf.GGMLQuantizationType.Q8_0)
    return {"plain": plain, "packed": values}


def test_metadata_and_tensors(tmp_path: Path) -> None:
    values = written(tmp_path / "a.gguf")
    file = read_gguf(tmp_path / "a.gguf")
    found = {key.partition(".")[2]: value for key, value in file.metadata.items()}
    assert (found["block_count"], found["eps"], found["ggml.add_bos_token"]) == (2, 0.5, True)
    assert found["ggml.tokens"] == ["<s>", "\u00e4", ""]
    assert found["ggml.scores"] == [0.0, -1.5, 2.0]
    np.testing.assert_array_equal(file.tensor("plain"), values["plain"])
    packed = file.tensor("packed")
    assert isinstance(packed, Quantised)
    np.testing.assert_array_equal(packed.values(), values["packed"])
    with pytest.raises(ArgumentError, match='has no tensor "other"'):
        file.tensor("other")


def test_every_shortened_file_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "a.gguf")
    whole = (tmp_path / "a.gguf").read_bytes()
    end = read_gguf(tmp_path / "a.gguf").places["packed"]
    short = tmp_path / "short.gguf"
    for size in range(0, end.begin + end.n_bytes, 7):
        short.write_bytes(whole[:size])
        with pytest.raises(ArgumentError, match=re.escape(str(short))):
            read_gguf(short)


def test_changed_bytes_are_read_or_refused(tmp_path: Path) -> None:
    written(tmp_path / "a.gguf")
    whole = (tmp_path / "a.gguf").read_bytes()
    rng = np.random.default_rng(0)
    changed = tmp_path / "changed.gguf"
    for _ in range(300):
        data = bytearray(whole)
        data[int(rng.integers(0, 400))] = int(rng.integers(0, 256))
        changed.write_bytes(data)
        try:
            file = read_gguf(changed)
        except ArgumentError:
            continue
        for name in file.places:
            file.tensor(name)


def header(*parts: bytes) -> bytes:
    return b"GGUF" + struct.pack("<I", 3) + b"".join(parts)


HUGE = struct.pack("<Q", 1 << 62)
NONE, ONE = struct.pack("<Q", 0), struct.pack("<Q", 1)
NAMED = struct.pack("<Q", 1) + b"k"
BROKEN = {
    "magic": (b"GGML" + bytes(32), "does not begin with GGUF"),
    "version": (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "its version is 1"),
    "tensors": (header(HUGE, NONE), "more than the file can hold"),
    "entries": (header(NONE, HUGE), "more than the file can hold"),
    "text": (header(NONE, ONE, NAMED, struct.pack("<I", 8), HUGE), "more than the file can hold"),
    "list": (header(NONE, ONE, NAMED, struct.pack("<II", 9, 0), HUGE), "more than the file can hold"),
    "lists": (header(NONE, ONE, NAMED, struct.pack("<II", 9, 9), ONE, bytes(12)), "unknown type 9"),
    "kind": (header(NONE, ONE, NAMED, struct.pack("<I", 77), ONE), "unknown type 77"),
    "axes": (header(ONE, NONE, NAMED, struct.pack("<I", 5), bytes(64)), "has 5 axes"),
    "format": (header(ONE, NONE, NAMED, struct.pack("<IIQ", 0, 99, 0), bytes(8)), "has the type 99"),
    "blocks": (header(ONE, NONE, NAMED, struct.pack("<IQIQ", 1, 33, 8, 0), bytes(99)), "blocks of 32"),
    "end": (header(ONE, NONE, NAMED, struct.pack("<IQIQ", 1, 4, 0, 1 << 60), bytes(99)), "ends at byte"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused(name: str, tmp_path: Path) -> None:
    data, message = BROKEN[name]
    (tmp_path / "b.gguf").write_bytes(data)
    with pytest.raises(ArgumentError, match=message):
        read_gguf(tmp_path / "b.gguf")
