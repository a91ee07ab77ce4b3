"""`shapevm show`: every stage down to assembly, for people and as files."""

import re

import click.testing
import pytest
from shapevm.compiler.ir.text import format_graph, parse
from shapevm.compiler.passes.pipeline import PASSES

from shapevm.__main__ import main
from shapevm.build.show import PRINTED, STAGES, all_stages


@pytest.fixture(scope="module")
def show(model_file):
    def show(*arguments):
        command = ["show", f"{model_file}:make", "-q", *map(str, arguments)]
        result = click.testing.CliRunner().invoke(main, command, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    return show


@pytest.fixture(scope="module")
def whole(show):
    return show()


@pytest.fixture(scope="module")
def differences(show):
    return show("--diff")


def titles(text: str) -> list[str]:
    return re.findall(r"^=== (.*)$", text, re.MULTILINE)


def test_every_stage_in_order(whole, differences):
    assert titles(whole) == ["import", "passes", "lowered", "bytecode"]
    rows = [re.sub(r"^pass \d+: ", "", title).split(", ") for title in titles(differences)]
    names = [name for row in rows for name in row]
    assert names[0] == "import" and names[-2:] == ["lowered", "bytecode"]
    assert set(names) == set(PRINTED) == set(STAGES) - {"llvm", "asm"}
    assert titles(differences)[1].startswith("pass 1: ")


def test_every_pass_is_a_line(whole):
    lines = whole.split("=== passes\n")[1].split("\n\n")[0].splitlines()
    assert [line.split()[1] for line in lines] == [step.__name__ for step, _ in PASSES]
    said = {line.split()[1]: re.split(r" {2,}", line)[-1] for line in lines}
    assert re.fullmatch(r"- .*layer_norm.*; \+ .* and \d+ more", said["decompose"])
    assert said["fuse"].endswith("+ 2 fused") and said["lower"].endswith("; + 2 kernel")
    assert said["pack"] == "+ constant" and said["update_in_place"] == "no change"
    assert re.fullmatch(r"\d+ lines changed", said["bind"])


def test_passes_without_a_change_share_a_title(differences):
    unchanged = re.findall(r"^=== (.*)\nno change\n", differences, re.MULTILINE)
    assert unchanged and any(", " in title for title in unchanged)
    assert not re.search(r"no change\n\n=== .*\nno change\n", differences)


def test_a_small_model_takes_few_lines(whole):
    assert len(whole.splitlines()) <= 102 + len(PASSES)


def test_differences(differences):
    decompose = differences.split(": decompose\n")[1].split("\n=== ")[0].splitlines()
    assert any(re.match(r"- .*= layer_norm\(", line) for line in decompose)
    assert any(re.match(r"\+ .*= rsqrt\(.*# net_of_test.py:16$", line) for line in decompose)
    bind = differences.split(": bind\n")[1].split("\n=== ")[0]
    assert all(line[0] in "+- " for line in decompose) and "graph" not in "".join(decompose)
    assert re.search(r"^-  matmul n_dims=0 .* m=n n=", bind, re.MULTILINE)
    assert re.search(r"^\+  matmul n_dims=1 .* m=n0 n=", bind, re.MULTILINE)


def test_the_graph_after_a_pass(show):
    text = show("--after", "fuse")
    assert titles(text)[0].endswith(": fuse") and text.count("= fused()") == 2
    assert re.search(r"\n    body:\n      %\w+: f32\[n, 16\] = matmul\(", text)


def test_specs_are_printed_once_and_readable(whole):
    assert whole.count("\nspec @") == whole.count("\nkernel k") == 2
    lowered = whole.split("=== lowered\n")[1].split("\n=== ")[0]
    assert lowered.count("\nspec @") == 2 and re.search(r"= reduce\.sum f32 v\d+", lowered)
    assert '\\"op\\"' not in whole  # no JSON


def test_long_arrays_are_cut_for_people_only(whole, show, tmp_path):
    line = next(line for line in whole.splitlines() if 'name="line.bias"' in line)
    assert re.search(r"float32\[16\]\([^()]*, [^()]*, [^()]*, [^()]*, \.\.\.\)", line)
    assert max(map(len, whole.splitlines())) <= 410
    show("--stage", "import", "-o", tmp_path)
    assert "..." not in (tmp_path / "00-import.ir").read_text()


def test_chosen_stages_are_whole(show):
    text = show("--stage", "decompose", "--stage", "bytecode")
    assert [title.split(": ")[-1] for title in titles(text)] == ["decompose", "bytecode"]
    assert text.split("\n")[1].startswith('graph "main"') and "kernel kernel=k0" in text


@pytest.mark.parametrize("kernel", [0, 1])
@pytest.mark.parametrize("sizes", [None, "n=7"])
def test_a_kernels_machine_code(show, kernel, sizes):
    options = [
        "--stage",
        "llvm",
        "--stage",
        "asm",
        "--kernel",
        kernel,
        *(["--sizes", sizes] if sizes else []),
    ]
    text = show(*options)
    form = "exact for n=7" if sizes else "generic"
    for stage, title in zip(("llvm", "asm"), titles(text), strict=True):
        assert re.fullmatch(rf"{stage}: kernel {kernel}, .*, {form}, (x86-64-v[34].*|aarch64)", title)
    llvm, asm = text.split("\n=== asm")
    assert "define " in llvm and "\nkernel:" in asm
    reads_sizes = re.search(r"load i64, ptr %dims|getelementptr[^\n]* i64, ptr %", llvm) is not None
    assert reads_sizes == (sizes is None) or kernel == 0


def test_another_target(show):
    text = show("--stage", "asm", "--target", "aarch64", "--kernel", "1")
    assert titles(text)[0].endswith(", aarch64") and re.search(r"^\s+ret$", text, re.MULTILINE)
    assert "%rsp" not in text and "zmm" not in text


def test_files(show, tmp_path):
    folder = tmp_path / "new" / "folder"
    printed = show("-o", folder).split()
    assert printed == sorted(str(path) for path in folder.iterdir())
    names = [path.rsplit("/", 1)[1] for path in printed]
    assert names[0] == "00-import.ir" and names[3] == "03-decompose.ir"
    assert [name.split("-")[1] for name in names[-4:]] == ["lowered.ir", "bytecode.dis", "llvm.ll", "asm.s"]
    for name in names[:-3]:
        text = (folder / name).read_text()
        assert text.startswith('graph "main"')


def test_stages_parse_back(net):
    from shapevm.compiler.ir.text import constants

    from shapevm.build.show import import_model, run_passes

    graph = import_model(net["model"], net["args"], None, net["dynamic_shapes"])
    stages = []
    run_passes(graph, watch=lambda name, graph: stages.append((format_graph(graph), constants(graph))))
    for text, arrays in stages:
        assert format_graph(parse(text, arrays)) == text


def test_only_what_is_wanted_is_made(net, monkeypatch):
    from shapevm.build import show

    monkeypatch.setattr(show, "build_program", None)  # compiles kernels
    assert [stage.name for stage in all_stages(net, wanted=["lowered", "cse"])] == ["cse", "lowered"]


def test_a_model_without_kernels(tmp_path):
    (tmp_path / "sizes.py").write_text(
        "import torch\n"
        "class M(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x.shape[0] * 2\n"
        "def make():\n"
        "    n = torch.export.Dim('n')\n"
        "    return {'model': M(), 'args': (torch.ones(3),), 'dynamic_shapes': {'x': {0: n}}}\n"
    )
    result = click.testing.CliRunner().invoke(main, ["show", "-q", f"{tmp_path}/sizes.py:make"])
    assert result.exit_code == 0 and titles(result.stdout)[-1] == "bytecode", result.output
