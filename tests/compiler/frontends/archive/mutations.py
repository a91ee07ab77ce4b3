"""Archives changed at random: bits, lengths, opcodes, sizes, offsets and code, with checksums made anew.

    python tests/compiler/frontends/archive/mutations.py 10000 [SEED]

opens as many mutated archives, under a limit of memory and of time: with our own reader, and as
`shapevm.compile` does, which hands what was read to torch's compiler. It fails where one gives anything else
than a program or one sentence of ArchiveError, and where a temporary file is left.
"""

from __future__ import annotations

import io
import random
import resource
import signal
import sys
import tempfile
import time
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch
from shapevm.compiler.frontends.archive import ArchiveError, read_archive
from shapevm.compiler.frontends.torchscript import load_script

MEMORY, SECONDS = 1 << 30, 20
TEXTS = [
    b"(" * 3000,
    b"- " * 3000,
    b"x.y" * 2000,
    b"not " * 900,
    b"\xff",
    b"lambda: 0",
    b"f(" * 150,
    b'"""',
    b"elif",
]
NUMBERS = [0, 1, 255, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 0x80000000]


class Part(torch.nn.Module):
    """A module with attributes of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)
        self.linear.bias.data = self.linear.bias.data.to(torch.bfloat16)
        self.sizes, self.names, self.scales = [1, 2], ["a", "b"], [0.5]
        self.table, self.pair = {"x": 1}, (1, 2.5, "s", None, True, -5, 1 << 40)
        self.register_buffer("view", torch.arange(12.0).reshape(3, 4).t())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Use what is there."""
        for i in range(self.sizes[0]):
            if x.size(0) > 2:
                x = x + i
        return x @ self.linear.weight.t() * torch.ones(2)


class Lists(torch.nn.Module):
    """A module whose program has lists in lists, dicts of them, optionals and text."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = [[1, 2], [3]]
        self.places = {"a": [0, 1], "b": [2]}

    def forward(self, x: torch.Tensor, k: int | None = None) -> tuple[list[list[int]], torch.Tensor, str]:
        """Use what is there."""
        rows = [row.copy() for row in self.rows]
        groups: dict[int, list[int]] = {}
        for i in range(x.size(0)):
            rows.append([i])
            rows[i].append(len(rows))
            groups.setdefault(i % 2, [7]).append(i)
        parts = torch.split(x, 2 if k is None else k)
        named = f"{len(parts)} {len(groups)}"
        return rows, torch.cat(parts[1:] + parts[:1])[self.places["a"][1] :], named


def saved(module: torch.nn.Module) -> bytes:
    """Return the archive of a scripted module."""
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(module), buffer)
    return buffer.getvalue()


def members(archive: bytes) -> dict[str, tuple[bytes, int]]:
    """Return the members of an archive and how each is compressed."""
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        return {info.filename: (file.read(info), info.compress_type) for info in file.infolist()}


def packed(found: dict[str, tuple[bytes, int]]) -> bytes:
    """Return an archive of members, with the right checksums."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, (data, form) in found.items():
            file.writestr(name, data, form)
    return buffer.getvalue()


def _bytes_changed(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(5):
            case 0 if at < len(changed):
                changed[at] ^= 1 << rng.randrange(8)
            case 1:
                del changed[at : at + rng.choice([1, 4, 100])]
            case 2:
                size = rng.choice([1, 2, 4])
                changed[at : at + size] = (rng.choice(NUMBERS) & (256**size - 1)).to_bytes(size, "little")
            case 3:
                begin = rng.randrange(len(changed) + 1)
                changed[at:at] = changed[begin : begin + rng.choice([1, 8, 64])]
            case _ if at < len(changed):
                changed[at] = rng.choice(b"(.]}t\x85\x86Rb0q2hse\x81QcNXKJ\x8a\x88")
    return bytes(changed)


def mutated(rng: random.Random, archive: bytes) -> bytes:
    """Return an archive with one kind of change."""
    kind = rng.randrange(6)
    if kind == 0:
        return _bytes_changed(rng, archive)
    if kind == 1:
        return archive[: rng.randrange(len(archive))]
    if kind == 2:  # the directory, where the sizes and offsets are
        at = archive.rindex(b"PK\x05\x06") - rng.randrange(1, 1500)
        return archive[:at] + _bytes_changed(rng, archive[at:])
    found = members(archive)
    ending = {3: ".pkl", 4: ".py", 5: ""}[kind]
    name = rng.choice([name for name in found if name.endswith(ending) and "debug" not in name])
    data, form = found[name]
    if kind == 4 and rng.random() < 0.5:
        at = rng.randrange(len(data))
        data = data[:at] + rng.choice(TEXTS) + data[at:]
    elif kind == 5 and rng.random() < 0.5:
        del found[name]
        found[rng.choice(["archive/../x", "other/x", "archive/data", "/x", name + "\0", name.upper()])] = (
            data,
            form,
        )
        return packed(found)
    else:
        data = _bytes_changed(rng, data)
    found[name] = data, form
    return packed(found)


def outcome(path: Path) -> str:
    """Return "read" or "refused" for a file. Any other exception than ArchiveError leaves."""
    try:
        for tensor in read_archive(path).tensors().values():
            tensor.array.ravel()[:1].sum() if tensor.array.size < 1 << 20 else None
        load_script(path)
    except ArchiveError as error:
        sentence = str(error)
        assert sentence and "\n" not in sentence and len(sentence) < 2000, sentence
        return "refused"
    return "read"


def run(n: int, seed: int, path: Path, report: Callable[[int], object] = lambda i: None) -> Counter[str]:
    """Read `n` mutated archives; count what became of them."""
    rng, counts = random.Random(seed), Counter[str]()
    plain = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    archives = [saved(Part()), saved(Lists()), saved(plain)]
    for i in range(n):
        report(i)
        path.write_bytes(mutated(rng, rng.choice(archives)))
        counts[outcome(path)] += 1
    return counts


def main() -> None:
    """Run under limits of memory and of the processor's time for each file."""
    n, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    warnings.simplefilter("ignore")
    archives = saved(Part())  # torch's own memory, before the limit
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    assert archives
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        path = Path(folder) / "mutated.pt"
        counts = run(n, seed, path, lambda i: signal.setitimer(signal.ITIMER_PROF, SECONDS))
        left = sorted(each.name for each in Path(folder).iterdir())
        assert left == [path.name], f"temporary files are left: {left}"
    print(*(f"{what} {count}" for what, count in sorted(counts.items())), f"{time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
