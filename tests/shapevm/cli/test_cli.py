"""The command line: what it prints, writes, and answers to bad input."""

import io
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import click.testing
import numpy as np
import pytest
import torch
from shapevm.jit.llvm.target import host_target

import shapevm
from shapevm.__main__ import main
from shapevm.cli.running import MEANING_INDENT
from tests.outputs import CHECKS


@pytest.fixture
def run():
    """Return a function that runs a command and gives its standard output; it must succeed unless told."""

    def run(*arguments, code=0):
        result = click.testing.CliRunner().invoke(main, [str(a) for a in arguments], catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result.stdout if code == 0 else result.stderr

    return run


@pytest.fixture(scope="session")
def x(tmp_path_factory):
    path = tmp_path_factory.mktemp("inputs") / "x.npy"
    np.save(path, np.random.default_rng(0).random((5, 8), "f"))
    return path


# compile --------------------------------------------------------------------------------------------


def test_compile_writes_an_artifact(run, model_file, tmp_path, net):
    path = tmp_path / "net.svm"
    text = run("compile", f"{model_file}:make", "-o", path, "--sizes", "n=5", "--sizes", "n=6", "-q")
    assert text == f"{path}: {path.stat().st_size / 1e3:.1f} kB, 2 kernels for n 1..100\n"
    with shapevm.load(path, strategy="auto") as exe:
        x = torch.randn(5, 8)
        torch.testing.assert_close(exe(x)["h"], net["model"](x)["h"].detach())
        assert exe.stats().tier() == "exact"


def test_compile_takes_files_and_modules(run, model_file, tmp_path, net, monkeypatch):
    exported = torch.export.export(net["model"], net["args"], dynamic_shapes=net["dynamic_shapes"])
    torch.export.save(exported, tmp_path / "net.pt2")
    run("compile", tmp_path / "net.pt2", "-o", tmp_path / "a.svm", "-q")
    monkeypatch.chdir(model_file.parent)
    run("compile", "net_of_test:make", "-o", tmp_path / "b.svm", "-q")
    x = torch.randn(4, 8)
    a, b = (shapevm.load(tmp_path / name)(x)["sum"] for name in ("a.svm", "b.svm"))
    assert torch.equal(a, b)


def test_compile_for_another_target(run, model_file, tmp_path):
    run("compile", f"{model_file}:make", "-o", tmp_path / "v3.svm", "--target", "x86-64-v3", "-q")
    assert "targets: x86-64-v3\n" in run("inspect", tmp_path / "v3.svm")


def test_a_pipe_gets_no_stages(model_file, tmp_path):
    command = ["compile", f"{model_file}:make", "-o", str(tmp_path / "net.svm")]
    result = click.testing.CliRunner().invoke(main, command)
    assert complaints(result.stderr) == [] and result.stdout.count("\n") == 1


# run ------------------------------------------------------------------------------------------------


def test_run_prints_and_writes_results(run, artifact, x, tmp_path):
    lines = run("run", artifact, "--input", f"x={x}", "--output", tmp_path / "out.npz", "--repeat", "5")
    sums, h, times = lines.splitlines()
    assert (sums, h) == ("sum: float32[5]", "h: float32[5, 16]")
    assert times.startswith("first ") and times.endswith("(5 calls)")
    expected = shapevm.load(artifact)(np.load(x))
    written = np.load(tmp_path / "out.npz")
    assert list(written) == ["sum", "h"]
    for name in written:
        np.testing.assert_array_equal(written[name], expected[name])


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_results_are_written_anywhere(artifact, x, tmp_path, check):
    expected = shapevm.load(artifact)(np.load(x))

    def is_right(content):
        with np.load(io.BytesIO(content)) as found:
            return list(found) == ["sum", "h"] and all((found[n] == expected[n]).all() for n in found)

    (tmp_path / "place").mkdir()
    begin = [sys.executable, "-m", "shapevm", "run", str(artifact), "--input", f"x={x}", "-q"]
    check(lambda path: [*begin, "--output", path], is_right, tmp_path / "place")


@pytest.mark.parametrize("command", [["settings"], ["--help"], ["inspect"], ["inspect", "--json"], ["run"]])
def test_what_stdout_does_not_take_is_one_sentence(artifact, x, command):
    given = {"inspect": [artifact, "-q"], "run": [artifact, "-q", "--input", f"x={x}"]}.get(command[0], [])
    line = [sys.executable, "-m", "shapevm", *command, *given]
    with open("/dev/full", "w") as full:
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "Error: standard output: No space left on device\n")


def test_names_of_files_that_are_no_text(artifact, x, tmp_path):
    names = [os.fsencode(tmp_path) + name for name in (b"/m\xff.svm", b"/\xfe.npz")]
    Path(os.fsdecode(names[0])).write_bytes(Path(artifact).read_bytes())
    call = [sys.executable, "-m", "shapevm"]
    run = [*call, "run", names[0], "--input", f"x={x}", "--output", names[1]]
    subprocess.run(run, check=True, capture_output=True)
    assert list(np.load(os.fsdecode(names[1]))) == ["sum", "h"]
    done = subprocess.run([*call, "inspect", names[0]], check=True, capture_output=True, text=True)
    assert "m\\udcff.svm" in done.stdout


@pytest.mark.parametrize("strategy", ["auto", "jit", "bucket", "generic"])
def test_run_and_the_runner_write_the_same(run, artifact, x, tmp_path, strategy):
    np.savez(tmp_path / "in.npz", x=np.load(x))
    ours, theirs = tmp_path / "ours.npz", tmp_path / "theirs.npz"
    run("run", artifact, "--input", tmp_path / "in.npz", "--output", ours, "--strategy", strategy)
    command = [shapevm.runner_path(), artifact, "--input", tmp_path / "in.npz", "--output", theirs]
    subprocess.run(command, check=True, capture_output=True)
    for name in ("sum", "h"):
        assert np.load(ours)[name].tobytes() == np.load(theirs)[name].tobytes()


def test_run_with_numbers_and_one_result(run, build, tmp_path):
    exe = build(
        lambda self, x, k: x * k,
        torch.ones(3),
        2,
        dynamic_shapes={"x": None, "k": torch.export.Dim.DYNAMIC},
    )
    exe.save(tmp_path / "scale.svm")
    np.save(tmp_path / "x.npy", np.ones(3, "f"))
    np.save(tmp_path / "k.npy", np.array(5))
    for k in (5, tmp_path / "k.npy"):
        out = tmp_path / "out.npy"
        run(
            "run",
            tmp_path / "scale.svm",
            "--input",
            f"x={tmp_path}/x.npy",
            "--input",
            f"k={k}",
            "--output",
            out,
        )
        np.testing.assert_array_equal(np.load(out), [5, 5, 5])
    message = run("run", tmp_path / "scale.svm", "--input", "k=five", code=2)
    assert "input 'k' is 'five'; the program takes one int" in message


def test_outputs_may_have_any_name(run, build, tmp_path):
    exe = build(lambda self, x: {"file": x + 1, "args": (x, {"a": x * 2}), "n": x.shape[0]}, torch.ones(3))
    exe.save(tmp_path / "names.svm")
    np.save(tmp_path / "x.npy", np.ones(3, "f"))
    text = run(
        "run", tmp_path / "names.svm", "--input", f"x={tmp_path}/x.npy", "--output", tmp_path / "out.npz"
    )
    assert "args.1.a: float32[3]" in text
    out = np.load(tmp_path / "out.npz")
    assert list(out) == ["file", "args.0", "args.1.a"] or list(out) == ["file", "args.0", "args.1.a", "n"]
    np.testing.assert_array_equal(out["args.1.a"], [2, 2, 2])


# dis, asm, inspect, settings ------------------------------------------------------------------------


def test_dis_prints_code_then_specs_once(run, artifact):
    text = run("dis", artifact)
    assert 'input "x": f32[s0, 8]' in text and 'line "net_of_test.py:15"' in text
    code, *specs = text.split("\nspec @")
    assert code.count("launch ") == len(specs) == 2
    assert " of k0, matmul" in specs[0].split("\n")[0] and "\n    b0 f32[n0,8]\n" in specs[0]
    for spec in specs:
        assert f"@{spec.split()[0]}" in code
    assert '{\\"' not in text  # no JSON


def test_full_text_assembles_to_the_same_bytes(run, artifact, tmp_path):
    text = tmp_path / "net.svmasm"
    assert run("dis", "--full", artifact, "-o", text) == f"{text}: {text.stat().st_size:,} bytes\n"
    assert run("dis", "--full", artifact) == text.read_text()
    run("asm", text, "-o", tmp_path / "again.svm")
    assert (tmp_path / "again.svm").read_bytes() == artifact.read_bytes()
    assert "give --full too" in run("dis", artifact, "-o", text, code=2)
    text.write_text(text.read_text().replace("  return ", "  retrun "))
    message = run("asm", text, "-o", tmp_path / "again.svm", code=1)
    assert re.search(
        r"net.svmasm: line \d+, column 3: opcode 'retrun' is unknown; the nearest is 'return'", message
    )


def test_full_text_with_large_constants(run, tmp_path):
    """They lie beside the text."""
    path, text = tmp_path / "big.svm", tmp_path / "big.svmasm"
    with shapevm.compile(torch.nn.Linear(64, 70), (torch.zeros(2, 64),), strategy="generic") as exe:
        exe.save(path)
    assert "need a file beside the text: give -o FILE.svmasm" in run("dis", "--full", path, code=2)
    assert [line.split(": ")[0] for line in run("dis", "--full", path, "-o", text).splitlines()] == [
        str(text),
        f"{text}.npz",
    ]
    run("asm", text, "-o", tmp_path / "again.svm")
    assert (tmp_path / "again.svm").read_bytes() == path.read_bytes()
    Path(f"{text}.npz").unlink()
    assert "is not in the file beside the text" in run("asm", text, "-o", tmp_path / "again.svm", code=1)


def test_a_graph_is_written_shown_and_compiled(run, model_file, tmp_path):
    text = run("compile", f"{model_file}:make", "-o", tmp_path / "net.svmir", "-q")
    assert text.startswith(f"{tmp_path / 'net.svmir'}: ")
    run("compile", f"{model_file}:make", "-o", tmp_path / "a.svm", "-q")
    run("compile", tmp_path / "net.svmir", "-o", tmp_path / "b.svm", "-q")
    assert (tmp_path / "a.svm").read_bytes() == (tmp_path / "b.svm").read_bytes()
    assert "%x: f32[n, 8]" in run("show", tmp_path / "net.svmir", "--stage", "import", "-q")


def test_inspect(run, artifact):
    text = run("inspect", artifact)
    size = artifact.stat().st_size
    assert text.startswith(f"{artifact}: {size:,} bytes (weights ")
    for line in (
        "size n: 1 to 100",
        "input x: f32[n, 8]",
        "output sum: f32[n]",
        "output h: f32[n, 16]",
        "invariant along n: a row's results depend on nothing but the row",
        "operators that PyTorch must run: none",
        "runs with shapevm-run: yes",
    ):
        assert line in text.split("\n"), line
    row = r"^  k0 matmul.* \(net_of_test.py:1\d\): generic \(\S+ [a-z-]+\), exact for \[3\]$"
    assert re.search(row, text, re.MULTILINE)
    data = json.loads(run("inspect", artifact, "--json"))
    assert (
        data["file_bytes"] == size
        and [row["name"] for row in data["outputs"]] == ["sum", "h"]
        and data["standalone"]
    )
    assert data["inputs"] == [{"name": "x", "kind": "tensor", "dtype": "f32", "shape": ["n", 8]}]
    assert [kernel["exact"] for kernel in data["kernels"]] == [[[3]], [[3]]]
    assert data["along"] == {"n": {"sum": [], "h": []}}


@pytest.mark.parametrize("command", main.list_commands(None))
def test_help_has_80_columns(command):
    done = click.testing.CliRunner().invoke(main, [command, "--help"], env={"COLUMNS": "80"})
    assert done.exit_code == 0 and max(map(len, done.output.splitlines())) <= 80


def test_settings(run, monkeypatch):
    monkeypatch.setenv("SHAPEVM_PLANS", "7")
    printed = run("settings").splitlines()
    assert max(len(line) for line in printed if line.startswith(MEANING_INDENT)) <= 80
    lines = [line for line in printed if not line.startswith(MEANING_INDENT)]
    assert len(lines) == len(shapevm.settings._table)
    assert any(line.split()[:4] == ["*", "plans", "SHAPEVM_PLANS", "7"] for line in lines)
    assert any(line.split()[:3] == ["strategy", "SHAPEVM_STRATEGY", "auto"] for line in lines)


def test_the_list_of_commands_has_whole_sentences(run):
    commands = run("--help").partition("Commands:\n")[2].splitlines()
    assert len(commands) == len(main.commands) and not [line for line in commands if not line.endswith(".")]
    assert not [line for line in commands if line.endswith("...")]


# What goes wrong ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("compile {model}:make", 2, "Missing option '-o'"),
        ("compile {model}:none -o {new}", 1, "net_of_test.py has no function 'none'"),
        ("compile {model}:torch -o {new}", 1, "net_of_test.py has no function 'torch'"),
        (
            "compile {model}:nothing -o {new}",
            1,
            "; it must return a dict with at least",
        ),
        (
            "compile {model}:misspelt -o {new}",
            1,
            "whose key 'arguments' is unknown; did you mean args?",
        ),
        (
            "compile {model} -o {new}",
            1,
            "is Python code: on the command line name a function",
        ),
        ("compile /no/file.py:make -o {new}", 1, "/no/file.py does not exist"),
        ("compile /no/file.pt2 -o {new}", 1, "/no/file.pt2 does not exist"),
        ("compile no.such.module:make -o {new}", 1, "there is no module 'no.such.module'"),
        (
            "compile {model}:make -o /no/folder/net.svm",
            5,
            "/no/folder/net.svm cannot be written: No such file",
        ),
        ("freeze {artifact} -o {new}", 2, "no sizes are given: give --sizes n=1, or --profile"),
        ("compile {model}:make -o {new} --sizes n", 1, "sizes 'n' must look like batch=1,length=16"),
        ("compile {model}:make -o {new} --sizes m=3", 1, "sizes m=3 must give a value for each of n"),
        ("compile {model}:make -o {new} --sizes n=101", 1, "n is 101; it must be at least 1 and at most 100"),
        ("compile {model}:make -o {new} --target z80", 2, "Invalid value for '--target'"),
        ("run {artifact} --input {x}", 2, "x.npy is one array without a name; write NAME="),
        ("run {artifact} --input y={x}", 2, "input 'y' is unknown; the program takes x"),
        ("run {artifact}", 2, "input 'x' is missing; the program takes x"),
        ("run {artifact} --input x=/no/x.npy", 2, "/no/x.npy cannot be read as a numpy file: No such file"),
        ("run {artifact} --input x={model}", 2, "net_of_test.py cannot be read as a numpy file"),
        ("run {artifact} --input x={empty}", 2, "cannot be read as a numpy file"),
        ("run {artifact} --input x={wide}", 4, 'input "x": axis 1 has size 9; it must be 8'),
        ("run {artifact} --input x={x} --repeat 0", 2, "Invalid value for '--repeat'"),
        ("run {artifact} --input x={x} --strategy fast", 2, "Invalid value for '--strategy'"),
        ("run {artifact} --input x={x} --output /no/o.npz", 5, "/no/o.npz cannot be written: No such file"),
        (
            "run {artifact} --input x={x} --output {new}.npy",
            1,
            "a .npy file holds one result, the program has 2",
        ),
        ("run {model}", 3, "net_of_test.py is no .svm file: it is another kind of file"),
        ("run /no/file.svm", 3, "/no/file.svm cannot be read: No such file"),
        ("inspect {empty}", 3, "is empty"),
        ("dis {cut}", 3, "artifact"),
        ("inspect {flipped}", 3, ""),
        ("run {flipped} --input x={x}", 3, ""),
        (
            "show {model}:make --stage lex",
            1,
            "stage 'lex' does not exist; there are import, compose, move_scales, decompose",
        ),
        ("show {model}:make --kernel 2", 1, "kernel 2 does not exist; there are 0 to 1"),
        ("show {model}:make --kernel -1", 1, "kernel -1 does not exist; there are 0 to 1"),
        ("show {model}:make --sizes m=2", 1, "sizes m=2 must give a value for each of n"),
        ("show {model}:make -o {empty}", 1, "cannot be written"),
        ("dance {model}", 2, "No such command 'dance'"),
    ],
)
def test_errors_are_one_sentence(run, model_file, artifact, x, tmp_path, arguments, code, message):
    data = bytearray(artifact.read_bytes())
    (tmp_path / "cut.svm").write_bytes(data[: len(data) // 2])
    data[data.index(b"net_of_test.py")] ^= 1  # no padding between sections, which nobody reads
    (tmp_path / "flipped.svm").write_bytes(data)
    (tmp_path / "empty").touch()
    np.save(tmp_path / "wide.npy", np.ones((5, 9), "f"))
    names = {
        name: tmp_path / file
        for name, file in [("cut", "cut.svm"), ("flipped", "flipped.svm"), ("empty", "empty")]
    }
    filled = arguments.format(
        model=model_file,
        artifact=artifact,
        x=x,
        new=tmp_path / "new.svm",
        wide=tmp_path / "wide.npy",
        **names,
    )
    text = run(*filled.split(), code=code)
    *progress, last = text.strip().split("\n")
    assert last.startswith("Error: ") and message in last and "Traceback" not in text
    assert not (tmp_path / "new.svm").exists()


def test_a_wrong_setting_is_one_sentence(run, artifact, x, monkeypatch):
    monkeypatch.setenv("SHAPEVM_STRATEGY", "fast")
    message = run("run", artifact, "--input", f"x={x}", code=3)
    assert message == "Error: SHAPEVM_STRATEGY='fast' must be one of auto, jit, bucket, generic\n"


def test_unsupported_operators_are_told(run, tmp_path):
    (tmp_path / "fft.py").write_text(
        "import torch\n"
        "class M(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return torch.linalg.inv(x)\n"
        "def make():\n"
        "    return {'model': M(), 'args': (torch.ones(3, 3),)}\n"
    )
    command = ("compile", f"{tmp_path}/fft.py:make", "-o", tmp_path / "fft.svm", "-q", "--fallback=error")
    message = run(*command, code=1)
    assert "aten.linalg_inv_ex.default (fft.py:4)" in message and message.count("\n") == 1


USER = """
import torch

def broken():
    return helper(3)

def helper(n):
    raise ValueError(f"no weights {n}")

def missing():
    import nothing_of_this_name

def takes(n):
    return {}

def ended():
    raise KeyboardInterrupt
"""


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("broken", 1, "raised ValueError at user_code.py:8: no weights 3; mend the function"),
        ("missing", 1, "imports nothing_of_this_name at user_code.py:11, which is not installed here"),
        (
            "takes",
            1,
            "raised TypeError: takes() missing 1 required positional argument: 'n'; mend the function",
        ),
        ("ended", 130, "ended by Ctrl-C"),
    ],
)
def test_errors_of_the_users_function_are_one_sentence(run, tmp_path, name, code, said):
    (tmp_path / "user_code.py").write_text(USER)
    message = run("compile", f"{tmp_path}/user_code.py:{name}", "-o", tmp_path / "x.svm", code=code)
    assert said in message and message.count("\n") == 1


def test_files_that_hold_no_program_say_what_to_give(run, tmp_path):
    module = torch.nn.Linear(4, 3)
    torch.save(module.state_dict(), tmp_path / "state.pt")
    torch.save(module, tmp_path / "module.pt")
    torch.save(module.state_dict(), tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    torch.export.save(torch.export.export(module, (torch.ones(2, 4),)), tmp_path / "program.pt2")
    (tmp_path / "program.pt2").rename(tmp_path / "program.pt")
    torch.jit.save(torch.jit.script(module), tmp_path / "script.pt2")
    (tmp_path / "text.pt2").write_text("no archive")
    with zipfile.ZipFile(tmp_path / "package.pt2", "w") as package:
        package.writestr("package/archive_format", "pt2")
        package.writestr("package/data/aotinductor/model/a.wrapper.so", b"")
    for name, said in {
        "state.pt": "was written by torch.save", "module.pt": "was written by torch.save",
        "old.pth": "was written by torch.save", "program.pt": "rename it to program.pt2",
        "script.pt2": "rename it to script.pt", "text.pt2": "give the file that torch.export.save",
        "package.pt2": "holds the machine code of AOTInductor",
    }.items():  # fmt: skip
        message = run("compile", tmp_path / name, "-o", tmp_path / "x.svm", code=1)
        assert said in message and message.count("\n") == 1, message


def test_exit_codes_are_those_of_the_runner(artifact, x, tmp_path):
    np.save(tmp_path / "wide.npy", np.ones((5, 9), np.float32))
    np.save(tmp_path / "ints.npy", np.ones((5, 8), np.int64))
    (tmp_path / "text.svm").write_text("no program")
    for words, code in (
        ([artifact, "--input", f"x={x}"], 0),
        ([artifact], 2),
        ([artifact, "--input", f"y={x}"], 2),
        ([artifact, "--input", "x=nothing.npy"], 2),
        ([artifact, "--no-such-flag"], 2),
        ([tmp_path / "nothing.svm"], 3),
        ([tmp_path / "text.svm"], 3),
        ([artifact, "--input", f"x={tmp_path}/wide.npy"], 4),
        ([artifact, "--input", f"x={tmp_path}/ints.npy"], 4),
    ):
        texts = [str(word) for word in words]
        ours = click.testing.CliRunner().invoke(main, ["run", *texts])
        runner = subprocess.run([shapevm.runner_path(), *texts], capture_output=True, check=False)
        assert ours.exit_code == runner.returncode == code, (texts, ours.output, runner.stderr)


def test_flags_of_two_words_have_dashes(run, model_file, tmp_path):
    assert "--max-error" in run("compile", "--help") and "--max_error" not in run("compile", "--help")
    for flag in ("--max-error", "--max_error"):
        words = ("--weights", "int8", flag, "0.5", "-q")
        run("compile", f"{model_file}:make", "-o", tmp_path / "rounded.svm", *words)


def test_the_console_script(artifact, x, tmp_path):
    script = Path(sys.executable).with_name("shapevm")
    command = [script, "run", artifact, "--input", f"x={x}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert (
        done.stdout.startswith("sum: float32[5]\nh: float32[5, 16]\nfirst ") and complaints(done.stderr) == []
    )
    done = subprocess.run([*command, "--input", "y=1"], capture_output=True, text=True, check=False)
    assert (
        done.returncode == 2
        and done.stderr == "Error: 1 cannot be read as a numpy file: No such file or directory\n"
    )
    version = subprocess.run([script, "--version"], capture_output=True, text=True, check=True).stdout
    assert version == f"shapevm, version {shapevm.__version__}\n"
    module = subprocess.run(
        [sys.executable, "-m", "shapevm", "-h"], capture_output=True, text=True, check=True
    )
    for command in ("compile", "run", "show", "dis", "inspect", "settings"):
        assert f"\n  {command} " in module.stdout
    closed = f"{script} dis {artifact} | head -1"
    done = subprocess.run(closed, shell=True, capture_output=True, text=True, check=True, env=os.environ)
    assert complaints(done.stderr) == []


def complaints(stderr: str) -> list[str]:
    """Return the lines of standard error but for the progress of what takes over two seconds."""
    return [line for line in stderr.splitlines() if not line.startswith("shapevm ")]


# buckets --------------------------------------------------------------------------------------------


def test_compile_takes_buckets(run, model_file, tmp_path):
    path = tmp_path / "net.svm"
    run("compile", f"{model_file}:make", "-o", path, "--buckets", "n=4,5..9", "--buckets", "n=max 20", "-q")
    with shapevm.load(path, strategy="bucket") as exe:
        for n, tier in ((4, "exact"), (7, "bucket"), (20, "bucket"), (21, "generic")):
            before = exe.stats()
            exe(torch.randn(n, 8))
            assert exe.stats().since(before).tier() == tier
    assert "the program takes 1..100" in run(
        "compile", f"{model_file}:make", "-o", path, "--buckets", "n=200", "-q", code=1
    )


# For programs ---------------------------------------------------------------------------------------


def test_every_command_takes_quiet_and_json():
    for command in main.commands.values():
        flags = {flag for parameter in command.params for flag in parameter.opts}
        assert {"--quiet", "-q", "--json"} <= flags, command.name


@pytest.mark.parametrize(
    ("arguments", "keys"),
    [
        ("asm {text} -o {new}", {"files"}),
        ("bake {artifact} {profile} --budget 1MB --no-measure -o {new}", {"kernels", "shares", "files"}),
        ("compile {model}:make -o {new}", {"files", "summary"}),
        ("compile {model}:make -o {new}.svmir", {"files"}),
        ("digest {artifact}", {"file", "digest"}),
        ("dis {artifact}", {"bytecode", "specs"}),
        ("dis {artifact} --full -o {new}.svmasm", {"files"}),
        ("doctor --no-measure", {"findings"}),
        ("explain {artifact} --sizes n=5", {"summary", "sites"}),
        ("freeze {artifact} --sizes n=5 -o {new}", {"compiled", "from_cache", "files"}),
        ("inspect {artifact}", {"inputs", "kernels"}),
        ("merge {profile} -o {new}.json", {"file", "calls", "sizes"}),
        ("merge-targets {artifact} -o {new}", {"files"}),
        ("profile {artifact} --sizes n=5 --calls 1", {"calls", "kernels"}),
        ("run {artifact} --input x={x}", {"outputs", "milliseconds", "calls"}),
        ("sdk", {"include", "lib", "pkgconfig", "cmake"}),
        ("settings", {"strategy", "cache_dir"}),
        ("show {model}:make --stage import", {"stages"}),
        pytest.param(
            "stress {artifact} --seconds 0.3", {"calls", "problems"}, marks=pytest.mark.failing_kernels
        ),
        ("strip {artifact} --target {target} -o {new}", {"files"}),
        ("tune {artifact} --profile {profile} --seconds 0 -o {new}", {"kernels", "changed", "files"}),
        ("verify {artifact}", {"file", "digest"}),
    ],
)
def test_json_is_one_object(model_file, artifact, x, tmp_path, arguments, keys):
    run_main = click.testing.CliRunner().invoke
    names = {name: str(tmp_path / name) for name in ("new", "profile", "text")}
    names |= {"model": str(model_file), "artifact": str(artifact), "x": str(x), "target": host_target()}
    prepared = {
        "profile": ["run", names["artifact"], "--input", f"x={x}", "--record", names["profile"]],
        "text": ["dis", names["artifact"], "--full", "-o", names["text"]],
    }
    for name, words in prepared.items():
        if f"{{{name}}}" in arguments:
            assert run_main(main, words).exit_code == 0
    done = run_main(main, [*arguments.format(**names).split(), "--json", "-q"])
    assert done.stderr == "" and done.exit_code == 0 or arguments.startswith("doctor"), done.output
    assert keys <= set(json.loads(done.stdout)), done.stdout
