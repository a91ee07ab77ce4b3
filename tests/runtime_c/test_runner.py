"""shapevm-run: files in, files out, the contract's sentences, exit codes."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.locales import comma_locale
from tests.outputs import CHECKS
from tests.vm.programs import RECURSION

USAGE, LOAD, CONTRACT, RUN = 2, 3, 4, 5
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def run(build: Callable[[str, str], Path], folder: Path) -> Run:
    def call(model: str, *args: object) -> subprocess.CompletedProcess[str]:
        command = [str(build("runner", "address")), str(folder / model), *map(str, args)]
        return subprocess.run(command, capture_output=True, text=True)

    return call


def ramp(n: int) -> np.ndarray:
    return np.arange(n, dtype="<f4") / 8


@pytest.fixture
def two(tmp_path: Path) -> Callable[..., list[str]]:
    """Return the arguments that give x and z as .npy files."""

    def save(x: np.ndarray, z: np.ndarray) -> list[str]:
        np.save(tmp_path / "x.npy", x)
        np.save(tmp_path / "z.npy", z)
        return ["--input", f"x={tmp_path / 'x.npy'}", "--input", f"z={tmp_path / 'z.npy'}"]

    return save


@pytest.mark.parametrize("n", [1, 7, 8, 1000, 100003])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_values(run: Run, two, tmp_path: Path, n: int, threads: int) -> None:
    x, z = ramp(n), ramp(n)[::-1].copy()
    done = run("chain.svm", *two(x, z), "--output", tmp_path / "y.npy", "--threads", threads, "--repeat", 3)
    assert done.returncode == 0, done.stderr
    assert re.search(r"first [\d.]+ ms, min [\d.]+ ms, median [\d.]+ ms, 3 calls", done.stdout)
    assert np.array_equal(np.load(tmp_path / "y.npy"), (x + z) + z)


@pytest.mark.parametrize("threads", [1, 3])
def test_trace(run: Run, two, tmp_path: Path, threads: int) -> None:
    """Chrome's trace events: every kernel lies in a call, and threads' shares are all of a kernel's tiles."""
    path, n = tmp_path / "trace.json", 200_003
    options = ("--repeat", 3, "--threads", threads, "--trace", path)
    done = run("chain.svm", *two(ramp(n), ramp(n)), *options)
    assert done.returncode == 0, done.stderr
    trace = json.loads(path.read_text())
    assert trace["otherData"] == {"producer": "shapevm", "threads": threads, "lost": 0}
    by_kind: dict[str, list[dict]] = {}
    for event in trace["traceEvents"][1:]:
        assert event["ph"] == "X" and event["dur"] >= 0
        by_kind.setdefault(event["cat"], []).append(event)
    calls, kernels = by_kind["call"], by_kind["kernel"]
    assert [call["args"] for call in calls] == [{"n": n}] * 3 and len(kernels) == 6
    for kernel in kernels:
        assert any(c["ts"] <= kernel["ts"] and ends(kernel) <= ends(c) for c in calls)
        assert kernel["args"]["dims"] == [n] and kernel["args"]["tier"] == "generic"
    shares = by_kind.get("tiles", [])
    whole = [k["args"]["tiles"] for k in kernels]
    within = [[s for s in shares if k["ts"] <= s["ts"] and ends(s) <= ends(k)] for k in kernels]
    found = [sum(s["args"]["tiles"] for s in inner) for inner in within]
    # On a busy machine a kernel is not shared once that has not paid: it has no shares then.
    assert all(n in (0, tiles) for n, tiles in zip(found, whole, strict=True))
    assert sum(map(len, within)) == len(shares)
    assert bool(shares) == (threads > 1 and kernels[0]["args"]["tiles"] > 1)


def ends(event: dict) -> float:
    """Return when an event ends, in us; rounding to three decimals moves it by one of the last."""
    return event["ts"] + event["dur"] - 0.0025


def test_trace_that_cannot_be_written(run: Run, two, tmp_path: Path) -> None:
    done = run("chain.svm", *two(ramp(4), ramp(4)), "--trace", tmp_path / "missing" / "trace.json")
    assert done.returncode == RUN and "missing/trace.json" in done.stderr


def test_npz_both_ways(run: Run, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", z=ramp(5), x=np.asfortranarray(ramp(5)))
    done = run("chain.svm", "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz")
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "out.npz") as out:
        assert list(out) == ["y"]
        assert np.array_equal(out["y"], 3 * ramp(5))


@pytest.mark.parametrize("n", [0, 1, 3])
def test_an_input_that_is_read_as_it_lies_must_lie_in_rows(run: Run, tmp_path: Path, n: int) -> None:
    path, out = tmp_path / "x.npy", tmp_path / "y.npy"
    x = np.stack([ramp(n), ramp(n) + 1])
    np.save(path, x)
    done = run("rows.svm", "--input", f"x={path}", "--output", out)
    assert done.returncode == 0 and np.array_equal(np.load(out), x), done.stderr
    np.save(path, np.asfortranarray(x))
    done = run("rows.svm", "--input", f"x={path}", "--output", out)
    assert done.returncode == (CONTRACT if n > 1 else 0)
    assert n < 2 or 'input "x" is read as it lies in memory (as_strided, stride' in done.stderr


def test_containers_and_ints(run: Run, tmp_path: Path) -> None:
    index = np.array([0, 3, 1, 2, 3])
    np.save(tmp_path / "i.npy", index)
    done = run(
        "lookup.svm",
        "--input",
        f"index={tmp_path / 'i.npy'}",
        "--input",
        "times=3",
        "--output",
        tmp_path / "o.npz",
    )
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "o.npz") as out:
        assert np.array_equal(out["sum"], 3 * np.array([1, 2, 4, 8], "f4")[index])
        assert out["sizes.0.n"] == 10 and out["sizes.1"] == 3


@pytest.mark.parametrize(
    "items",
    [
        [],
        [1],
        [-7, 9223372036854775807],
        [0.5, -2e9, float("inf")],
        [True, False],
        ["a", "", "b, ]"],
        ['\n\t"\\/\b', "\u00e9\u4e16", "\U0001f600x", ""],
    ],
)
def test_lists(run: Run, tmp_path: Path, items: list[object]) -> None:
    text = json.dumps(items).replace("Infinity", "inf")
    done = run("list.svm", "--input", f"ks= {text} ".replace("= ", "="), "--output", tmp_path / "o.npz")
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "o.npz") as out:
        assert out["n"] == len(items)
        assert [out[f"same.{i}"].item() for i in range(len(items))] == items


@pytest.mark.parametrize(
    "text",
    [
        "1",
        "[",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[1]]",
        "[a]",
        '["a]',
        '["\\x"]',
        '["\\u00g0"]',
        '["\\u00"]',
        '["\\ud83d"]',
        '["\\ude00"]',
        '["\\ud83d\\u0041"]',
        '["\\"]',
        '["\\',
        "[99999999999999999999]",
    ],
)
def test_texts_that_are_no_lists(run: Run, text: str) -> None:
    done = run("list.svm", "--input", f"ks={text}")
    assert done.returncode == USAGE and "not a list, such as [1, 2], [0.5], [true] or" in done.stderr


def test_empty_tensors(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "i.npy", np.zeros(0, "<i8"))
    done = run(
        "lookup.svm",
        "--input",
        f"index={tmp_path / 'i.npy'}",
        "--input",
        "times=1",
        "--output",
        tmp_path / "o.npz",
    )
    assert done.returncode == 0, done.stderr
    assert np.load(tmp_path / "o.npz")["sum"].shape == (0,)


def test_list_prints_the_contract(run: Run) -> None:
    done = run("chain.svm", "--list")
    assert done.returncode == 0
    for line in (
        "input   x: f32[n]",
        "symbol  n: at least 1, at most 100000000 (model.py:3)",
        "output  y: f32[n]",
    ):
        assert line in done.stdout.splitlines()
    assert re.search(r"kernel  add: 1 sizes, 3 buffers, 2 code objects of \d+ bytes, model.py:5", done.stdout)


def test_exact_code_of_the_artifact_is_used(run: Run, two) -> None:
    assert "[8] exact" in run("chain.svm", *two(ramp(8), ramp(8)), "--stats").stdout
    assert "[9] generic" in run("chain.svm", *two(ramp(9), ramp(9)), "--stats").stdout


def test_contract_is_checked(run: Run, two) -> None:
    done = run("chain.svm", *two(ramp(8), ramp(9)))
    assert done.returncode == CONTRACT
    assert (
        'input "z": axis 0 has size 9, so n is 9; but input "x": axis 0 has size 8, so n is 8 (model.py:3)'
        in done.stderr
    )
    done = run("chain.svm", *two(ramp(8).astype("f8"), ramp(8)))
    assert (done.returncode, done.stderr) == (
        CONTRACT,
        'shapevm-run: input "x" is f64; the program takes f32: convert it first\n',
    )


def test_errors_while_running(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "i.npy", np.array([4]))
    done = run("lookup.svm", "--input", f"index={tmp_path / 'i.npy'}", "--input", "times=1")
    assert done.returncode == RUN
    assert (
        done.stderr
        == 'shapevm-run: kernel "gather": index 4 is out of range for an axis of size 4 (model.py:7)\n'
    )


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        ([], USAGE, "an input is missing"),
        (["--input", "w=1"], USAGE, "no input of that name"),
        (["--input", "x=missing.npy"], USAGE, "missing.npy: cannot read it: No such file"),
        (["--speed", "1"], USAGE, "unknown option: --speed"),
        (["--threads"], USAGE, "a value is missing"),
        (["--repeat", "0"], USAGE, "--repeat takes a whole number from 1 to 2147483647, not: 0"),
        (["--foo"], USAGE, "unknown option: --foo"),
        (["--strategy", "jit"], USAGE, "there is no compiler here"),
        (["--huge-pages", "often"], USAGE, "huge pages are used auto, always or never: often"),
    ],
)
def test_usage(run: Run, args: list[str], code: int, words: str) -> None:
    done = run("chain.svm", *args)
    assert done.returncode == code and words in done.stderr


def test_files_that_are_no_arrays(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, x=ramp(3))
    assert "compressed, only stored arrays are supported" in run("chain.svm", "--input", path).stderr
    np.save(tmp_path / "c.npy", np.zeros(2, "<c8"))
    assert (
        'numpy dtype "<c8" is not supported' in run("chain.svm", "--input", f"x={tmp_path / 'c.npy'}").stderr
    )
    np.savez(path, x=ramp(300))
    whole = path.read_bytes()
    for cut in range(0, len(whole), 7):
        path.write_bytes(whole[:cut])
        assert run("chain.svm", "--input", path).returncode == USAGE
    for place in (100, 400, len(whole) - 30):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
        assert run("chain.svm", "--input", path).returncode == USAGE


@pytest.mark.parametrize("place", [0, 8, 16, 40, 70, 4096])
def test_a_changed_byte_is_refused(run: Run, folder: Path, place: int) -> None:
    data = bytearray((folder / "chain.svm").read_bytes())
    data[place] ^= 1
    (folder / "changed.svm").write_bytes(data)
    done = run("changed.svm", "--list")
    assert done.returncode == LOAD and "artifact: " in done.stderr


def test_files_that_are_no_artifacts(run: Run, folder: Path) -> None:
    assert run("none.svm").returncode == LOAD
    assert "it is no regular file" in run(".").stderr
    (folder / "empty.svm").write_bytes(b"")
    assert "this is no .svm file" in run("empty.svm").stderr


def test_damaged_weights_are_refused_before_any_output(run: Run, folder: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", ramp(100))
    data = (folder / "weighted.svm").read_bytes()
    at = data.index((np.arange(100, dtype="<f4") + 1).tobytes())
    (tmp_path / "bad.svm").write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    io = ["--input", f"x={tmp_path / 'x.npy'}", "--output", tmp_path / "o.npz"]
    for options, code in (((), LOAD), (("--verify", "full"), LOAD), (("--verify", "lazy"), RUN)):
        done = run(tmp_path / "bad.svm", *io, *options)
        assert done.returncode == code, done.stderr
        message = 'bad.svm: MiB 0 of the weights does not match its hash: constant "w" was changed'
        assert message in done.stderr
    assert sorted(os.listdir(tmp_path)) == ["bad.svm", "x.npy"]
    assert run(tmp_path / "bad.svm", *io, "--verify", "none").returncode == 0
    for options in (("--huge-pages", "always"), ("--huge-pages", "never"), ("--verify", "lazy")):
        assert run("weighted.svm", *io, *options).returncode == 0
    with np.load(tmp_path / "o.npz") as out:
        assert np.array_equal(out["y"], ramp(100) + np.arange(100) + 1)


def test_digest_and_native_code(run: Run, folder: Path, two) -> None:
    digest = hashlib.sha256((folder / "chain.svm").read_bytes()).hexdigest()
    assert run("chain.svm", *two(ramp(8), ramp(8)), "--digest", digest.upper()).returncode == 0
    done = run("weighted.svm", "--list", "--digest", digest)
    assert done.returncode == LOAD and "its SHA-256 is not the digest that was asked for" in done.stderr
    done = run("chain.svm", "--list", "--digest", digest[:-1] + "g")
    assert done.returncode == USAGE and "a digest has 64 hexadecimal digits" in done.stderr
    done = run("chain.svm", "--list", "--no-native-code")
    assert done.returncode == LOAD and 'kernel "add": native code of artifacts is switched off' in done.stderr


def test_outputs_appear_whole_or_not_at_all(run: Run, two, tmp_path: Path) -> None:
    inputs = two(ramp(8), ramp(8))
    place = tmp_path / "out"
    place.mkdir()
    options = {"y.npy": "--output", "y.npz": "--output", "m.txt": "--metrics", "r": "--record"}
    for name, option in options.items():
        (place / name).write_bytes(b"old")
        hard_link = tmp_path / f"old-{name}"
        os.link(place / name, hard_link)
        assert run("chain.svm", *inputs, option, place / name).returncode == 0
        assert hard_link.read_bytes() == b"old" != (place / name).read_bytes()  # not written in place
    done = run("chain.svm", *inputs, "--output", tmp_path / "no" / "y.npy")
    assert done.returncode == RUN and "no/y.npy: cannot write it: No such file" in done.stderr
    assert run("chain.svm", *inputs, "--output", "/dev/full").returncode == RUN
    assert run("chain.svm", *inputs, "--metrics", "/dev/null").returncode == 0
    assert Path("/dev/null").is_char_device()
    assert sorted(os.listdir(place)) == ["m.txt", "r", "y.npy", "y.npz"]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_outputs_anywhere(
    build: Callable[[str, str], Path], folder: Path, two, tmp_path: Path, check: Callable[..., None]
) -> None:
    begin = [str(build("runner", "plain")), str(folder / "chain.svm"), *two(ramp(8), ramp(8))]

    def is_right(content: bytes) -> bool:
        with np.load(io.BytesIO(content)) as found:
            return list(found) == ["y"] and np.array_equal(found["y"], 3 * ramp(8))

    (tmp_path / "place").mkdir()
    check(lambda path: [*begin, "--stats", "--output", path], is_right, tmp_path / "place")


@pytest.mark.parametrize(("to", "why"), [(">/dev/full", "No space left"), (">&-", "Bad file descriptor")])
@pytest.mark.parametrize("option", ["--list", "--help", "--output"])
def test_what_stdout_does_not_take_is_an_error(
    build: Callable[[str, str], Path], folder: Path, two, tmp_path: Path, option: str, to: str, why: str
) -> None:
    """Where it is closed, no file that is opened later gets what is printed."""
    call = [*two(ramp(8), ramp(8)), "--output", str(tmp_path / "y.npy")] if option == "--output" else [option]
    command = [str(build("runner", "address")), str(folder / "chain.svm"), *call]
    done = subprocess.run(["sh", "-c", f'"$@" {to}', "sh", *command], stderr=subprocess.PIPE, text=True)
    assert done.returncode == RUN
    assert re.fullmatch(f"shapevm-run: standard output: cannot write it: {why}.*\n", done.stderr)
    if option == "--output":
        assert np.array_equal(np.load(tmp_path / "y.npy"), 3 * ramp(8))


def test_it_needs_libc_and_libm_only(build: Callable[[str, str], Path], tmp_path: Path) -> None:
    runner, stripped = build("runner", "plain"), tmp_path / "runner"
    needed = re.findall(
        r"NEEDED.*\[(.*)\]", subprocess.run(["readelf", "-d", runner], capture_output=True, text=True).stdout
    )
    assert {name.split(".")[0] for name in needed} <= {"libc", "libm", "libpthread"}
    subprocess.run(["strip", "-o", stripped, runner], check=True)
    assert stripped.stat().st_size <= 320_000


def overlapping(n: int, size: int) -> bytes:
    """Return an .npz of n members over the same bytes."""
    buffer = io.BytesIO()
    np.savez(buffer, x=np.zeros(size, "f4"))
    whole = buffer.getvalue()
    end = whole.rindex(b"PK\x05\x06")
    at = int.from_bytes(whole[end + 16 : end + 20], "little")
    record, last = whole[at:end], bytearray(whole[end:])
    last[8:10] = last[10:12] = n.to_bytes(2, "little")
    last[12:16] = (n * len(record)).to_bytes(4, "little")
    return whole[:at] + record * n + bytes(last)


def test_an_npz_cannot_expand(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    path.write_bytes(overlapping(5000, 1 << 20))
    done = run("chain.svm", "--input", path)
    assert done.returncode == USAGE and "its members overlap" in done.stderr


def test_limits_count_the_inputs(run: Run, two, tmp_path: Path) -> None:
    args = two(ramp(100_000), ramp(100_000))
    done = run("chain.svm", *args, "--memory", 700_000)
    assert done.returncode == RUN and "over the" in done.stderr and "--memory" not in done.stdout
    assert run("chain.svm", *args, "--memory", 3_000_000).returncode == 0
    for wrong in ("-1", "1e10", "x", "nan"):
        assert run("chain.svm", *args, "--timeout", wrong).returncode == USAGE
    assert run("chain.svm", *args, "--timeout", "20.5").returncode == 0


def test_a_long_call_ends(build: Callable[[str, str], Path], folder: Path, tmp_path: Path) -> None:
    from shapevm.vm.assembler import assemble
    from shapevm.vm.writer import write

    write(assemble('function "main" (0 params, 0 results)\nagain:\n  jump again\n'), folder / "forever.svm")
    command = [str(build("runner", "plain")), str(folder / "forever.svm")]
    done = subprocess.run([*command, "--timeout", "0.1"], capture_output=True, text=True, timeout=60)
    assert done.returncode == RUN and "timeout: the call took longer than 100 ms" in done.stderr
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 128 + signal.SIGINT and process.stderr is not None
        assert process.stderr.read() == "shapevm-run: ended by a signal, such as Ctrl-C\n"


def test_recursion_and_nesting_have_limits(run: Run, folder: Path, tmp_path: Path) -> None:
    from shapevm.vm.assembler import assemble
    from shapevm.vm.writer import write

    write(assemble(RECURSION), folder / "recursion.svm")
    nested = 'output "y"\nfunction "main" (0 params, 1 results)\n  int r0 1\n' + "  list r0 (r0)\n" * 300
    write(assemble(nested + "  return (r0)\n"), folder / "nested.svm")
    for n, options, limit in (
        (999, (), 0),
        (1000, (), 1000),
        (5, ("--call-depth", 5), 5),
        (10**5, ("--call-depth", 0), 0),
    ):
        done = run("recursion.svm", "--input", f"n={n}", "--output", tmp_path / "y.npy", *options)
        if limit:
            sentence = (
                f"call_depth: .* over the limit of {limit}; raise call_depth, or the recursion does not end"
            )
            assert done.returncode == RUN and re.search(sentence, done.stderr)
        else:
            assert done.returncode == 0 and np.load(tmp_path / "y.npy") == n, done.stderr
    done = run("nested.svm")
    assert done.returncode == RUN and "201 deep, over the limit of 200; raise nesting" in done.stderr
    assert run("nested.svm", "--nesting", 300, "--output", tmp_path / "y.npz").returncode == 0
    for wrong in (("--nesting", 1001), ("--call-depth", -1), ("--call-depth", (1 << 20) + 1)):
        assert run("nested.svm", *wrong).returncode == USAGE


def test_a_fifo_is_refused(run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.npy")
    done = run("chain.svm", "--input", f"x={tmp_path / 'x.npy'}")
    assert done.returncode == USAGE and "it is no regular file" in done.stderr


def test_results_that_share_children_are_refused(run: Run, folder: Path, tmp_path: Path) -> None:
    from shapevm.vm.assembler import assemble
    from shapevm.vm.writer import write

    text = 'output "y"\nfunction "main" (0 params, 1 results)\n  list r0 ()\n' + "  list r0 (r0, r0)\n" * 60
    write(assemble(text + "  return (r0)\n"), folder / "shared.svm")
    done = run("shared.svm", "--output", tmp_path / "y.npz")
    assert done.returncode == RUN and "over 4096 values" in done.stderr
    assert run("shared.svm").returncode == 0


def test_the_data_of_an_npy_is_aligned(run: Run, two, tmp_path: Path) -> None:
    for n in (1, 99, 100, 12345):
        assert run("chain.svm", *two(ramp(n), ramp(n)), "--output", tmp_path / "y.npy").returncode == 0
        written = (tmp_path / "y.npy").read_bytes()
        assert (len(written) - 4 * n) % 64 == 0 and np.array_equal(np.load(tmp_path / "y.npy"), 3 * ramp(n))


def test_a_name_that_is_all_dot_npy_has_no_suffix(
    build: Callable[[str, str], Path], folder: Path, two, tmp_path: Path
) -> None:
    command = [str(build("runner", "address")), str(folder / "chain.svm"), *two(ramp(4), ramp(4))]
    assert subprocess.run([*command, "--output", ".npy"], cwd=tmp_path).returncode == 0
    with np.load(tmp_path / ".npy") as out:
        assert list(out) == ["y"]


def write_identity(kind: str, path: Path) -> None:
    """Write a program that returns its input."""
    from shapevm.vm.assembler import assemble
    from shapevm.vm.writer import write

    text = f'input "x": {kind}\noutput "y"\nfunction "main" (1 params, 1 results)\n  return (r0)\n'
    write(assemble(text), path)


@pytest.mark.parametrize("kind", ["int", "float", "bool"])
def test_arrays_without_axes_are_numbers_of_their_own_kind(
    run: Run, folder: Path, tmp_path: Path, kind: str
) -> None:
    write_identity(kind, folder / "number.svm")
    for dtype, taken in (("<i8", "int"), ("<f8", "float"), ("?", "bool"), ("<f4", ""), ("<i4", "")):
        np.save(tmp_path / "x.npy", np.array(1, dtype))
        done = run("number.svm", "--input", f"x={tmp_path / 'x.npy'}", "--output", tmp_path / "y.npy")
        assert done.returncode == (0 if taken == kind else CONTRACT), (dtype, done.stderr)
        if taken == kind:
            assert np.load(tmp_path / "y.npy") == 1
        else:
            assert f'input "x" is a tensor; the program takes a {kind}' in done.stderr.replace(
                "an int", "a int"
            )


@pytest.mark.parametrize(
    ("kind", "given", "value"), [("int", "-3", -3), ("float", "-2.5", -2.5), ("bool", "true", True)]
)
def test_numbers_as_text(
    run: Run, folder: Path, tmp_path: Path, kind: str, given: str, value: object
) -> None:
    write_identity(kind, folder / "value.svm")
    done = run("value.svm", "--input", f"x={given}", "--output", tmp_path / "y.npy")
    assert done.returncode == 0, done.stderr
    found = np.load(tmp_path / "y.npy")
    assert found == value and found.dtype == np.array(value).dtype
    assert run("value.svm", "--input", "x=text").returncode == USAGE


def with_zip64(whole: bytes, fields: int) -> bytes:
    """Return an .npz of one member whose sizes (fields 2) and offset (3) are in ZIP64's extra field."""
    end = whole.rindex(b"PK\x05\x06")
    at = int.from_bytes(whole[end + 16 : end + 20], "little")
    record, last = bytearray(whole[at:end]), bytearray(whole[end:])
    places = ((24, 28), (20, 24), (42, 46))[:fields]  # size, packed, offset
    extra = b"".join(int.from_bytes(record[a:b], "little").to_bytes(8, "little") for a, b in places)
    for a, b in places:
        record[a:b] = b"\xff" * 4
    extra = b"\x99\x99\x02\x00ab" + b"\x01\x00" + len(extra).to_bytes(2, "little") + extra
    name = 46 + int.from_bytes(record[28:30], "little")
    record[30:32] = len(extra).to_bytes(2, "little")
    record[name:] = extra
    last[12:16] = len(record).to_bytes(4, "little")
    return whole[:at] + bytes(record) + bytes(last)


def test_numbers_have_a_point_in_every_locale(
    build: Callable[[str, str], Path], folder: Path, two, tmp_path: Path
) -> None:
    """A plug-in, as any library of a host, may set the locale: what is read and written stays as it was."""
    source, library = tmp_path / "locale.c", tmp_path / "locale.so"
    source.write_text("""
    #include <locale.h>
    #include <stdio.h>
    __attribute__((constructor)) static void set(void) {
      if (!setlocale(LC_ALL, "")) fputs("no locale", stderr);
      fprintf(stderr, "%.1f", 0.5);
    }""")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    environment = {**os.environ, **comma_locale(tmp_path), "LD_PRELOAD": str(library)}
    runner = str(build("runner", "plain"))

    def run_there(model: str, *args: str) -> str:
        command = [runner, str(folder / model), *args]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "0,5")
        return done.stdout

    metrics, trace, output = (str(tmp_path / name) for name in ("metrics", "trace", "y.npz"))
    options = ("--timeout", "9.5", "--metrics", metrics, "--trace", trace)
    times = run_there("chain.svm", *two(ramp(9), ramp(9)), *options)
    assert re.match(r"first [\d.]+ ms, min [\d.]+ ms, median [\d.]+ ms", times)
    text = Path(metrics).read_text()
    bounds = [float(bound) for bound in re.findall(r'le="([^"]*)"', text)]
    assert bounds == sorted(bounds) and 0.00025 in bounds
    assert float(re.search(r"_seconds_sum\S* (.*)", text)[1]) > 0
    assert json.loads(Path(trace).read_text())["traceEvents"]
    write_identity("float", folder / "float.svm")
    run_there("float.svm", "--input", "x=-2.5", "--output", output)
    assert np.load(output)["y"] == -2.5
    run_there("list.svm", "--input", "ks=[0.5, 1e-3]", "--output", output)
    assert np.load(output)["n"] == 2


@pytest.mark.parametrize("fields", [2, 3])
def test_zip64(run: Run, folder: Path, tmp_path: Path, fields: int) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, x=ramp(100))
    (tmp_path / "x.npz").write_bytes(with_zip64(buffer.getvalue(), fields))
    done = run("weighted.svm", "--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz")
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "y.npz") as out:
        assert np.array_equal(out["y"], ramp(100) + np.arange(100) + 1)


def test_no_memory_for_a_context(
    build: Callable[[str, str], Path], folder: Path, two, tmp_path: Path
) -> None:
    library = tmp_path / "failures.so"
    source = Path(__file__).with_name("failures.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", source, "-o", library, "-ldl"], check=True)
    command = [str(build("runner", "plain")), str(folder / "chain.svm"), *two(ramp(4), ramp(4))]
    report = tmp_path / "count"

    def failing(at: int) -> subprocess.CompletedProcess[str]:
        fail = {"FAIL_CALL": "calloc", "FAIL_AT": str(at), "FAIL_REPORT": str(report)}
        environment = {**os.environ, **fail, "LD_PRELOAD": str(library)}
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    assert failing(0).returncode == 0
    found = [failing(at) for at in range(1, int(report.read_text()) + 1)]
    codes = {done.returncode for done in found if "there is none for a context for the call" in done.stderr}
    assert codes == {RUN}
