"""Damaged and changing files: whatever happens to an artifact's bytes, no call gives wrong numbers."""

from __future__ import annotations

import hashlib
import io
import logging
import os
import random
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shapevm.vm import artifact
from shapevm.vm.assembler import assemble
from shapevm.vm.errors import ArgumentError, ArtifactError, FileError
from shapevm.vm.files import write_parts
from shapevm.vm.held_file import HeldFile
from shapevm.vm.layout import CHUNK, PAGE
from shapevm.vm.load_options import LoadOptions, Reading
from shapevm.vm.machine import Machine
from shapevm.vm.program import Constant, Program

from .kernels import ADD_ROW, with_code

MAPPED = LoadOptions(strategy="generic", reading=Reading(copy=False))


def reading(options: LoadOptions, verify: str) -> LoadOptions:
    """Return options with another way to verify weights."""
    return replace(options, reading=replace(options.reading, verify=verify))


CHANGED = "the file was changed while its program was loaded"


def weighted(n: int) -> Program:
    """Return y = x + w, z = w2 with weights of n elements each, w2 given back as it is."""
    text = f"""
    symbol "n" {n} .. {n}
    input "x": f32[s0]
    output "y"
    output "z"
    constant c0 "encoder.weight" f32[1] = [0.0]
    constant c1 "encoder.bias" f32[1] = [0.0]
    kernel k0 {ADD_ROW}
    function "main" (2 params, 2 results)
      const r2 c0
      alloc r3 f32 (r1)
      kernel k0 (r1) (r0, r2, r3)
      const r4 c1
      return (r3, r4)
    """
    made = with_code(assemble(textwrap.dedent(text)))
    rng = np.random.default_rng(n)
    constants = (Constant.tensor(rng.standard_normal(n, np.float32), "f32", c.name) for c in made.constants)
    return replace(made, constants=tuple(constants))


def expected(program: Program, x: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    return [x + program.constants[0].value, program.constants[1].value]


def assert_right(machine: Machine, program: Program) -> None:
    x = np.arange(len(program.constants[0].value), dtype=np.float32)
    for got, want in zip(machine.call([x]), expected(program, x), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.fixture(scope="module")
def big() -> Program:
    return weighted(3 * CHUNK // 8)  # 1.5 MiB each


@pytest.fixture
def path(big: Program, tmp_path: Path) -> Path:
    artifact.write(big, tmp_path / "model.svm")
    return tmp_path / "model.svm"


def flip(path: Path, at: int, bit: int = 0) -> None:
    """Change one bit in place."""
    with open(path, "r+b") as file:
        file.seek(at)
        (old,) = file.read(1)
        file.seek(at)
        file.write(bytes([old ^ 1 << bit]))


def place_of(path: Path, array: np.ndarray[Any, Any]) -> int:
    return path.read_bytes().index(array.tobytes())


@pytest.mark.parametrize("options", [LoadOptions(strategy="generic"), MAPPED], ids=["copied", "mapped"])
def test_a_flipped_bit_of_a_weight_is_refused(big: Program, path: Path, options: LoadOptions) -> None:
    with Machine.open(path, options) as machine:
        assert_right(machine, big)
    flip(path, place_of(path, big.constants[0].value) + 5)
    with pytest.raises(ArtifactError, match='MiB 0 of the weights .* constant "encoder.weight" was changed'):
        Machine.open(path, options)
    with pytest.raises(ArtifactError, match="model.svm: .*copy the file again"):
        Machine.open(path, reading(options, "full"))
    Machine.open(path, reading(options, "none")).close()
    with pytest.raises(ArtifactError, match="section WEIGHTS: hash . of CHUNKS differs"):
        artifact.read(path)


def test_a_chunk_of_several_constants_names_their_number(path: Path, big: Program) -> None:
    flip(path, place_of(path, big.constants[1].value))
    with pytest.raises(ArtifactError, match='"encoder.weight", or one of 1 others there, was changed'):
        Machine.open(path)


def resident(path: Path) -> int:
    """Return KiB of a file's mappings that are in this process's memory."""
    found, is_wanted = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if "-" in first and not first.endswith(":"):
            is_wanted = rest[4:] == [str(path)]
        elif first == "Rss:" and is_wanted:
            found += int(rest[0])
    return found


def test_weights_that_no_call_reads_take_no_memory(big: Program, path: Path) -> None:
    with Machine.open(path, reading(MAPPED, "lazy")) as machine:
        machine.check_weights()
        unread = resident(path)
        assert_right(machine, big)
        assert unread < resident(path) / 4


def test_lazy_verification_fails_every_call_from_then_on(
    big: Program, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lazy = reading(MAPPED, "lazy")
    with Machine.open(path, lazy) as machine:
        machine.check_weights()
        assert_right(machine, big)
    flip(path, place_of(path, big.constants[0].value))
    with caplog.at_level(logging.ERROR, "shapevm"), Machine.open(path, lazy) as machine:
        with pytest.raises(ArtifactError, match="encoder.weight"):
            machine.check_weights()
        for _ in range(3):
            with pytest.raises(ArtifactError, match="encoder.weight"):
                assert_right(machine, big)
        end = time.monotonic() + 60
        while not caplog.records and time.monotonic() < end:
            time.sleep(0.01)
        (record,) = caplog.records
        assert record.name == "shapevm" and "encoder.weight" in record.getMessage()


def test_lazy_verification_goes_on_in_a_forked_child(big: Program, path: Path) -> None:
    flip(path, place_of(path, big.constants[0].value))
    code = f"""
    import os, time
    from shapevm.vm.load_options import LoadOptions, Reading
    from shapevm.vm.machine import Machine
    reading = Reading(copy=False, verify="lazy")
    machine = Machine.open({str(path)!r}, LoadOptions(strategy="generic", reading=reading))
    if os.fork():
        raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))
    try:
        machine.check_weights()
    except Exception as error:
        os._exit(7 if "encoder.weight" in str(error) else 1)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], timeout=100)
    assert done.returncode == 7


def test_unknown_ways_to_verify_are_refused(path: Path) -> None:
    with pytest.raises(ArgumentError, match="verify 'often' is unknown; known are auto, full, lazy, none"):
        Machine.open(path, LoadOptions(reading=Reading(verify="often")))


# Files that change ----------------------------------------------------------------------------------


def test_a_copy_does_not_change_with_its_file(big: Program, path: Path) -> None:
    with Machine.open(path, LoadOptions(strategy="generic")) as machine:
        flip(path, place_of(path, big.constants[0].value))
        assert_right(machine, big)
        os.truncate(path, 100)
        assert_right(machine, big)
        machine.check_weights()


@pytest.mark.parametrize("change", ["weight", "tables", "truncate", "append"])
def test_a_mapped_file_that_changes_is_noticed(big: Program, path: Path, change: str) -> None:
    with Machine.open(path, MAPPED) as machine:
        assert_right(machine, big)
        if change == "weight":
            flip(path, place_of(path, big.constants[0].value))
        elif change == "tables":
            flip(path, 200)
        elif change == "truncate":
            os.truncate(path, PAGE)
        else:
            with open(path, "ab") as file:
                file.write(b"x")
        for _ in range(2):
            with pytest.raises(FileError, match=CHANGED):
                assert_right(machine, big)
        with pytest.raises(FileError, match=CHANGED):
            machine.check_weights()


def touch(path: Path) -> None:
    """Give a file a time that it did not have."""
    os.utime(path, ns=(0, os.stat(path).st_mtime_ns - 1_000_000_007))


@pytest.mark.parametrize("touching", [touch, lambda path: path.write_bytes(path.read_bytes())])
def test_a_touched_file_with_the_same_bytes_goes_on(big: Program, path: Path, touching: Any) -> None:
    with Machine.open(path, MAPPED) as machine, Machine.open(path, MAPPED) as other:
        held = HeldFile.open(path)
        for _ in range(2):
            assert_right(machine, big)
            touching(path)
            assert_right(machine, big)
            machine.check_weights()
            assert b"".join(held.pieces()) == path.read_bytes()
        assert_right(other, big)
        flip(path, place_of(path, big.constants[1].value))
        touch(path)
        for m in (machine, other, machine):
            with pytest.raises(FileError, match=CHANGED):
                assert_right(m, big)
        with pytest.raises(FileError, match="was changed"):
            held.check()


def test_touches_while_threads_call(big: Program, path: Path) -> None:
    with Machine.open(path, MAPPED) as machine:
        ended, problems = threading.Event(), list[BaseException]()

        def work() -> None:
            try:
                while not ended.is_set():
                    assert_right(machine, big)
            except BaseException as problem:
                problems.append(problem)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            touch(path)
            time.sleep(0.005)
        ended.set()
        for thread in threads:
            thread.join()
        assert problems == []


def test_replacing_a_mapped_file_by_renaming_changes_nothing(big: Program, path: Path) -> None:
    with Machine.open(path, MAPPED) as machine:
        other = path.with_name("other.svm")
        artifact.write(weighted(5), other)
        os.replace(other, path)
        assert_right(machine, big)
        path.unlink()
        assert_right(machine, big)


def test_calls_while_the_file_is_cut_short(big: Program, path: Path) -> None:
    """SIGBUS in any thread: the calls end with an error, other programs go on."""
    data, n_refused = path.read_bytes(), 0
    with Machine.from_bytes(data, LoadOptions(strategy="generic")) as other:
        for round_ in range(5):
            path.unlink()
            path.write_bytes(data)
            with Machine.open(path, MAPPED) as machine:
                cut = threading.Timer(0.002 * round_, os.truncate, (path, PAGE))
                cut.start()
                end = time.monotonic() + 60
                while time.monotonic() < end:
                    try:
                        assert_right(machine, big)
                    except FileError as error:
                        assert CHANGED in str(error)
                        n_refused += 1
                        break
                cut.join()
            assert_right(other, big)
    assert n_refused == 5


#: AddressSanitizer looks on.
OWN_SIGNAL = {**os.environ, "ASAN_OPTIONS": f"{os.environ.get('ASAN_OPTIONS', '')}:handle_sigbus=0"}
#: What a host may do about the signal after a program was loaded.
HOSTS = {
    "faulthandler": "import faulthandler; faulthandler.enable()",
    "handler": "import signal; signal.signal(signal.SIGBUS, lambda *_: None)",
    "default": "import signal; signal.signal(signal.SIGBUS, signal.SIG_DFL)",
    "blocked": "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGBUS, signal.SIGINT})",
}


@pytest.mark.parametrize("host", HOSTS)
def test_hosts_that_handle_the_signal_themselves_get_an_error_too(
    big: Program, path: Path, host: str
) -> None:
    code = f"""
    import os, signal, numpy as np
    from shapevm.vm.load_options import LoadOptions, Reading
    from shapevm.vm.machine import Machine
    from shapevm.vm.errors import FileError
    options = LoadOptions(reading=Reading(copy=False, verify="none"))
    machine, other = Machine.open({str(path)!r}, options), Machine.open({str(path)!r}, options)
    {HOSTS[host]}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    os.truncate({str(path)!r}, 4096)
    try:
        machine.call([np.zeros({len(big.constants[0].value)}, "f4")])
    except FileError:
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == blocked
        try:
            other.check_weights()
        except FileError:
            os._exit(7)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], timeout=100, env=OWN_SIGNAL)
    assert done.returncode == 7


@pytest.mark.parametrize("when", ["", "before", "after", "twice"])
def test_a_bus_error_of_others_still_ends_the_process(
    big: Program, path: Path, tmp_path: Path, when: str
) -> None:
    enable = "import faulthandler; faulthandler.enable()"
    code = f"""
    import mmap, os, numpy as np
    from shapevm.vm.load_options import LoadOptions, Reading
    from shapevm.vm.machine import Machine
    {enable if when in ("before", "twice") else ""}
    machine = Machine.open({str(path)!r}, LoadOptions(reading=Reading(copy=False)))
    {enable if when in ("after", "twice") else ""}
    machine.call([np.zeros({len(big.constants[0].value)}, "f4")])
    file = open({str(tmp_path / "own")!r}, "w+b")
    file.truncate(8192)
    own = mmap.mmap(file.fileno(), 8192)
    file.truncate(0)
    own[5000]
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], timeout=100, env=OWN_SIGNAL, capture_output=True
    )
    assert done.returncode < 0
    assert (b"Bus error" in done.stderr) == bool(when)


def test_a_program_that_was_read_outlives_its_file(big: Program, path: Path) -> None:
    read = artifact.read(path)
    os.truncate(path, PAGE)
    for got, want in zip(read.constants, big.constants, strict=True):
        np.testing.assert_array_equal(got.value, want.value)


# Digests --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copy", [None, True, False])
def test_only_the_file_of_a_digest_is_loaded(big: Program, path: Path, copy: bool | None) -> None:
    digest = hashlib.sha256(path.read_bytes()).digest()
    options = LoadOptions(strategy="generic", reading=Reading(copy=copy, sha256=digest))
    with Machine.open(path, options) as machine:
        assert_right(machine, big)
    Machine.from_bytes(path.read_bytes(), options).close()
    artifact.write(replace(big, meta={"name": "other"}), path)
    with pytest.raises(ArtifactError, match="SHA-256 is not the digest that was asked for"):
        Machine.open(path, options)
    with pytest.raises(ArtifactError, match="SHA-256 is not the digest that was asked for"):
        Machine.from_bytes(path.read_bytes(), options)
    with pytest.raises(ArgumentError, match="has 32 bytes, the digest given has 5"):
        Machine.open(path, LoadOptions(reading=Reading(sha256=b"short")))


def test_every_byte_of_a_small_file_counts(tmp_path: Path) -> None:
    data, rng = artifact.to_bytes(weighted(100)), random.Random(0)
    for at in [*range(0, len(data), 29), len(data) - 1]:
        changed = bytearray(data)
        changed[at] ^= 1 << rng.randrange(8)
        with pytest.raises(ArtifactError):
            Machine.from_bytes(bytes(changed))
    for end in [*range(0, len(data), 173), len(data) - 1]:
        (tmp_path / "cut.svm").write_bytes(data[:end])
        with pytest.raises(ArtifactError):
            Machine.open(tmp_path / "cut.svm")


# Huge pages -----------------------------------------------------------------------------------------------

HAS_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled").exists()
HUGE_PAGE = 2 << 20


def areas(path: str = "") -> list[tuple[int, int, int, bool]]:
    """Return (begin, end, offset in the file, whether huge pages are asked for) of this process's areas of
    memory that a file backs, or of those that none does."""
    found: list[tuple[int, int, int, bool]] = []
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if "-" in first and not first.endswith(":"):
            begin, end = (int(text, 16) for text in first.split("-"))
            is_wanted, offset = rest[4:] == [path][: len(path)], int(rest[1], 16)
        elif first == "VmFlags:" and is_wanted:
            found.append((begin, end, offset, "hg" in rest))
    return found


@pytest.mark.skipif(not HAS_HUGE_PAGES, reason="this kernel has no transparent huge pages")
@pytest.mark.parametrize("mode", ["auto", "never", "always"])
def test_weights_lie_on_huge_pages_where_they_are_to(tmp_path: Path, mode: str) -> None:
    """A mapped file's addresses and offsets begin alike within a huge page: else the system has no choice.
    Always means a copy."""
    program, path = weighted(3 << 20), tmp_path / "model.svm"  # 12 MiB each: mapped
    artifact.write(program, path)
    before = {begin for begin, *_ in areas()}
    with Machine.open(path, LoadOptions(strategy="generic", reading=Reading(huge_pages=mode))) as machine:
        mapped = areas(str(path))
        copied = [area for area in areas() if area[0] not in before and area[1] - area[0] > 24 << 20]
        assert_right(machine, program)
    assert bool(mapped) == (mode != "always")
    assert all(is_huge == (mode == "auto") for *_, is_huge in mapped)
    assert all((begin - offset) % HUGE_PAGE == 0 for begin, _, offset, _ in mapped if mode == "auto")
    assert any(begin % HUGE_PAGE == 0 and is_huge for begin, *_, is_huge in copied) == (mode == "always")
    assert areas(str(path)) == []


@pytest.mark.skipif(not HAS_HUGE_PAGES, reason="this kernel has no transparent huge pages")
@pytest.mark.parametrize(("mib", "ends_with_page"), [(7, True), (5.8, True), (4.1, False)])
def test_a_copy_fills_its_last_huge_page_unless_that_wastes_much(
    tmp_path: Path, mib: float, ends_with_page: bool
) -> None:
    program, path = weighted(int(mib * 2**20) // 8), tmp_path / "model.svm"
    artifact.write(program, path)
    size = path.stat().st_size
    assert size < 16 << 20  # so it is copied
    before = {begin for begin, *_ in areas()}
    with Machine.open(path, LoadOptions(strategy="generic")) as machine:
        # Other threads may map memory meanwhile, such as a stack of 8 MiB, but not as this copy is.
        new = [area for area in areas() if area[0] not in before and area[0] % HUGE_PAGE == 0 and area[3]]
        assert_right(machine, program)
    (n_bytes,) = [end - begin for begin, end, *_ in new if size <= end - begin < size + HUGE_PAGE]
    assert (n_bytes % HUGE_PAGE == 0) == ends_with_page
    assert n_bytes <= 1.25 * size + PAGE


class Calls(io.BytesIO):
    """A file that notes where each call to write begins and ends."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[int, int]] = []

    def write(self, data: Any) -> int:
        begin = self.tell()
        n = super().write(data)
        self.made.append((begin, begin + n))
        return n


def test_one_call_writes_all_of_a_huge_page() -> None:
    """Systems keep what one call writes together: of smaller pieces none lies on a huge page."""
    file = Calls()
    artifact.write_to(weighted(2000003), file)
    last = len(file.getvalue()) // HUGE_PAGE
    assert last >= 7
    assert {(n * HUGE_PAGE, (n + 1) * HUGE_PAGE) for n in range(1, last)} <= set(file.made)


@pytest.mark.parametrize("mode", ["auto", "never", "always"])
@pytest.mark.parametrize("copy", [True, False])
def test_pages_change_no_result(big: Program, path: Path, mode: str, copy: bool) -> None:
    options = LoadOptions(strategy="generic", reading=Reading(copy=copy, huge_pages=mode))
    with Machine.open(path, options) as machine:
        assert_right(machine, big)


def test_unknown_huge_pages_are_refused(path: Path) -> None:
    with pytest.raises(ArgumentError, match="huge_pages 'often' is unknown; known are auto, always, never"):
        Machine.open(path, LoadOptions(reading=Reading(huge_pages="often")))


@pytest.mark.parametrize("most", [1, 5, 1 << 20])
@pytest.mark.parametrize("n", [1, 2, 2000])
def test_parts_are_written_whole(n: int, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the system writes less than it is given, or there are more parts than a call takes."""
    writev, write = os.pwritev, os.pwrite
    monkeypatch.setattr(os, "pwritev", lambda to, parts, at: writev(to, [b"".join(parts)[:most]], at))
    monkeypatch.setattr(os, "pwrite", lambda to, data, at: write(to, bytes(data)[:most], at))
    parts = [memoryview(random.Random(i).randbytes(1 + i % 3)) for i in range(n)]
    with open(tmp_path / "a", "wb") as file:
        write_parts(file.fileno(), parts, 3)
    assert (tmp_path / "a").read_bytes() == bytes(3) + b"".join(parts)
