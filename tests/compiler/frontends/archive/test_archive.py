"""Archives of torch.jit.save are read as torch.jit.load reads them; others are refused in a sentence."""

import glob
import io
import os
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import silero_vad
import torch
from shapevm.compiler.frontends.archive import ArchiveError, read_archive

from . import mutations

SILERO = sorted(glob.glob(os.path.join(os.path.dirname(silero_vad.__file__), "data", "*.jit")))


def _bits(tensor):
    return tensor.view(torch.uint16).numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()


def _assert_same_tensors(path):
    tensors, expected = read_archive(path).tensors(), torch.jit.load(path).state_dict()
    assert expected and set(expected) <= set(tensors)
    for name, tensor in expected.items():
        found = tensors[name].array
        assert found.shape == tuple(tensor.shape), name
        assert np.array_equal(found, _bits(tensor.detach())), name


@pytest.mark.parametrize("path", SILERO, ids=os.path.basename)
def test_silero(path):
    _assert_same_tensors(path)
    archive = read_archive(path)
    assert "forward" in archive.code.classes[archive.root.class_name].methods


def test_tensors_and_attributes(tmp_path):
    path = tmp_path / "m.pt"
    path.write_bytes(mutations.saved(mutations.Part()))
    _assert_same_tensors(path)
    root = read_archive(path).root
    assert root.attributes["sizes"] == [1, 2] and root.attributes["names"] == ["a", "b"]
    assert root.attributes["pair"] == (1, 2.5, "s", None, True, -5, 1 << 40)
    assert root.attributes["linear"].attributes["bias"].dtype == "bf16"
    assert root.attributes["view"].array.strides == (4, 16)
    (constant,) = read_archive(path).constants or (None,)
    assert constant is None or constant.dtype


def test_traced(tmp_path):
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU()).eval()
    torch.jit.save(torch.jit.trace(model, torch.randn(1, 3, 8, 8)), tmp_path / "m.pt")
    _assert_same_tensors(tmp_path / "m.pt")


def test_without_torch(tmp_path):
    path = tmp_path / "m.pt"
    path.write_bytes(mutations.saved(mutations.Part()))
    program = (
        "import sys; sys.modules['torch'] = None; sys.modules['_pickle'] = None; import pickle\n"
        "def refuse(*a, **k): raise AssertionError('pickle ran')\n"
        "pickle.load = pickle.loads = pickle.Unpickler = pickle._Unpickler = refuse\n"
        "from shapevm.compiler.frontends.archive import read_archive\n"
        f"print(len(read_archive({str(path)!r}).tensors()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "3", done.stderr


PATH = "archive/code/__torch__/mutations.py"
PICKLES = {
    b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R.": "calls 'os.system', which is not read,",
    b"\x80\x02cbuiltins\neval\n.": "bare name",
    b"\x80\x02]q\x00h\x00a.": "holds itself",
    b"\x80\x02" + b"]" * 300 + b"a" * 299 + b".": "nests more than 200",
    b"\x80\x02]q\x00" + b"h\x00\x86q\x00" * 40 + b".": "nests more than",
    b"\x80\x02S'x'\n.": "opcode STRING",
    b"\x80\x02h\x07.": "entry 7",
    b"\x80\x02X\xff\xff\xff\xffab.": "without a valid argument",
    b"\x80\x02N": "no opcode",
}


@pytest.mark.parametrize(("data", "sentence"), PICKLES.items(), ids=list(PICKLES.values()))
def test_pickles(data, sentence, tmp_path):
    _refused(tmp_path, {"archive/data.pkl": data}, sentence)


def _refused(tmp_path, changes, sentence):
    found = mutations.members(mutations.saved(mutations.Part()))
    found |= {name: (data, 0) for name, data in changes.items()}
    (tmp_path / "m.pt").write_bytes(mutations.packed(found))
    with pytest.raises(ArchiveError, match=sentence) as caught:
        read_archive(tmp_path / "m.pt")
    assert "\n" not in str(caught.value)


CODES = {
    b"x = " + b"(" * 5000: "nests more than 200",
    b"def f(x):\n  return " + b"-" * 50000 + b"x\n": "nests more than 200",
    b"def f(x):\n  return x" + b".a" * 50000 + b"\n": "nests more than 200",
    b"def f(x):\n  return lambda: x\n": r"'lambda' is not part of serialised TorchScript \(code/x.py:2\)",
    b"import os\n": "'import' is not part",
    b"def f(x):\n  return {x}\n": r"Set is not part of serialised TorchScript \(code/x.py:2\)",
    b"f(1)\n": "more than classes and functions",
    b"def f(:\n": r"not valid: .*\(code/x.py:1\)",
    b"".join(b" " * i + b"if x:\n" for i in range(300)): "too many levels|nested|indentation",
    b'def f():\n  return f"{x}"\n': "not part",
    b"def f():\n  return " + b"9" * 5000 + b"\n": "not part",
    b"\xff": "is not UTF-8",
}


@pytest.mark.parametrize(("text", "sentence"), CODES.items(), ids=range(len(CODES)))
def test_code(text, sentence, tmp_path):
    _refused(tmp_path, {"archive/code/x.py": text}, sentence)


MEMBERS = {
    "archive/../x": "not a file inside",
    "other/x": "not a file inside",
    "archive/a//b": "not a file inside",
    "archive/a\\b": "not a file inside",
}


@pytest.mark.parametrize(("name", "sentence"), MEMBERS.items(), ids=list(MEMBERS))
def test_members(name, sentence, tmp_path):
    _refused(tmp_path, {name: b""}, sentence)


def test_storages(tmp_path):
    _refused(tmp_path, {"archive/data/0": b"1234"}, "has 4 bytes; its tensors need")
    found = mutations.members(mutations.saved(mutations.Part()))
    name = next(name for name in found if name.endswith("data/0"))
    found[name] = found[name][0], zipfile.ZIP_DEFLATED
    (tmp_path / "m.pt").write_bytes(mutations.packed(found))
    with pytest.raises(ArchiveError, match="is compressed"):
        read_archive(tmp_path / "m.pt")


def test_bombs(tmp_path):
    bomb = mutations.members(mutations.saved(mutations.Part()))
    bomb["archive/code/x.py"] = bytes(100 << 20), zipfile.ZIP_DEFLATED
    (tmp_path / "m.pt").write_bytes(mutations.packed(bomb))
    with pytest.raises(ArchiveError, match="at most 67,108,864 are read"):
        read_archive(tmp_path / "m.pt")


def test_many_bombs(tmp_path):
    """Each member is within its limit, all together are not."""
    bomb = mutations.members(mutations.saved(mutations.Part()))
    form, text = b"FORMAT_WITH_STRING_TABLE", bytes(60 << 20)
    strings = [b"X" + struct.pack("<I", len(each)) + each for each in (form, text)]
    ranges = b"\x80\x02" + strings[0] + strings[1] + b"\x85)\x87."  # form, (text,), ()
    for i in range(3):
        bomb[f"archive/code/x{i}.py"] = b"", 0
        bomb[f"archive/code/x{i}.py.debug_pkl"] = ranges, zipfile.ZIP_DEFLATED
    (tmp_path / "m.pt").write_bytes(mutations.packed(bomb))
    with pytest.raises(ArchiveError, match="134,217,728 bytes in all"):
        read_archive(tmp_path / "m.pt")


def test_tensors_that_repeat_their_storage(tmp_path):
    class Wide(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("wide", torch.zeros(1).expand(1 << 40))

        def forward(self, x):
            return x + self.wide.sum()

    torch.jit.save(torch.jit.script(Wide()), tmp_path / "m.pt")
    with pytest.raises(ArchiveError, match="1,099,511,627,775 elements more than the archive stores"):
        read_archive(tmp_path / "m.pt")


def test_overlapping_members(tmp_path):
    data = bytearray(mutations.packed(mutations.members(mutations.saved(mutations.Part()))))
    with zipfile.ZipFile(io.BytesIO(bytes(data))) as file:
        at = file.start_dir
    n_name, n_extra = struct.unpack_from("<HH", data, at + 28)
    struct.pack_into(
        "<I", data, at + 46 + n_name + n_extra + 42, 0
    )  # the second member begins where the first does
    (tmp_path / "m.pt").write_bytes(data)
    with pytest.raises(ArchiveError, match="overlaps"):
        read_archive(tmp_path / "m.pt")


def test_tensors_outside_of_their_storage(tmp_path):
    found = mutations.members(mutations.saved(mutations.Part()))
    name = next(name for name in found if name.endswith("data.pkl"))
    data = found[name][0].replace(b"(K\x04K\x03t", b"(K\x04K\x05t")
    assert data != found[name][0]
    _refused(tmp_path, {name: data}, "reads element")


def test_mutated_archives(request):
    """In a process of its own, under its limits: `--archives 10000` tries as many."""
    n, seed = request.config.option.archives, request.config.option.seed
    command = [sys.executable, mutations.__file__, str(n), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert not done.returncode, f"seed {seed}: {done.stderr}"
    read, n_read, refused, n_refused, *_ = done.stdout.split()
    assert (read, refused, int(n_read) + int(n_refused)) == ("read", "refused", n)
    assert int(n_refused) > n // 3 and int(n_read) > n // 40
