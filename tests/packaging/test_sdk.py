"""The C SDK: its symbols, its headers, and the examples built from the installed SDK alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import shapevm.vm._runtime

import shapevm

from .pages import ROOT
from .pages import blocks as quoted
from .test_readme import SMALL_ENCODER

EXAMPLES = ROOT / "examples" / "sdk"
IDS = [101, 2759, 2088, 102]
SDK = shapevm.sdk()


def run(*command: object, **environment: str) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(
        words, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout


def pkg_config(*words: str, folder: Path = SDK.pkgconfig) -> list[str]:
    return run("pkg-config", *words, "svm", PKG_CONFIG_PATH=str(folder)).split()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact with the encoder's inputs and outputs."""
    folder = tmp_path_factory.mktemp("model")
    made: dict[str, object] = {}
    exec(SMALL_ENCODER, made)
    shapevm.compile(**made["arguments"]()).save(folder / "model.svm")
    return folder / "model.svm"


def check_example(program: Path, model: Path, **environment: str) -> None:
    printed = run(program, model, *IDS, **environment)
    ids = np.array([IDS])
    assert np.array_equal(np.float32(printed.split()), shapevm.load(model)(ids, np.ones_like(ids))[0])
    command = [program, model, "9999"]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 1 and "index 9999 is out of range" in done.stderr


def symbols(library: Path, *flags: str) -> set[str]:
    return set(re.findall(r"^\w+ \w (\S+)$", run("nm", "--defined-only", *flags, library), re.M))


def declared() -> set[str]:
    text = re.sub(r"/\*.*?\*/", "", (SDK.include / "svm.h").read_text(), flags=re.S)
    return set(re.findall(r"\b(svm_\w+)\((?!\*)", text))


def test_libraries_export_what_the_header_declares() -> None:
    assert len(declared()) > 50
    assert symbols(SDK.lib / "libsvm.so.1", "-D") == declared()
    assert symbols(SDK.lib / "libsvm.a", "-g") == declared()
    assert symbols(Path(shapevm.vm._runtime.__file__), "-D") == {"PyInit__runtime"}


@pytest.mark.parametrize("language", [["-xc", "-std=c99"], ["-xc", "-std=c11"], ["-xc++", "-std=c++11"]])
def test_the_header_stands_alone(language: list[str], tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text('#include "svm.h"\n')
    flags = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]
    run("cc", *flags, *language, f"-I{SDK.include}", source)


def test_version(tmp_path: Path) -> None:
    source = tmp_path / "version.c"
    source.write_text(
        '#include <stdio.h>\n#include "svm.h"\n'
        "int main(void) {\n"
        '  printf("%d.%d %d", SVM_API_MAJOR, SVM_API_MINOR, svm_api_version());\n  return 0;\n}\n'
    )
    run("cc", source, "-o", tmp_path / "version", *pkg_config("--cflags", "--libs"))
    header, library = run(tmp_path / "version").split()
    assert pkg_config("--modversion") == [header]
    assert int(library) == 1000 * int(header.split(".")[0]) + int(header.split(".")[1])


def test_c_with_pkg_config(model: Path, tmp_path: Path) -> None:
    program = tmp_path / "embed"
    run("cc", EXAMPLES / "embed.c", "-o", program, *pkg_config("--cflags", "--libs"))
    check_example(program, model)
    assert len((EXAMPLES / "embed.c").read_text().splitlines()) <= 40


def test_texts_from_c(tmp_path: Path) -> None:
    """Texts of several lengths in one call have the bits that each has alone."""
    made: dict[str, object] = {}
    exec(SMALL_ENCODER, made)
    options = shapevm.Options(pack="attention_mask")
    shapevm.compile(**made["arguments"](), options=options).save(tmp_path / "texts.svm")
    run("cc", EXAMPLES / "embed_texts.c", "-o", tmp_path / "embed_texts", *pkg_config("--cflags", "--libs"))
    texts, exe = [[7], IDS, [1, 2], [2999] * 40], shapevm.load(tmp_path / "texts.svm")
    lines = "".join(" ".join(map(str, ids)) + "\n" for ids in texts)
    command = [tmp_path / "embed_texts", tmp_path / "texts.svm"]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    for line, ids in zip(done.stdout.splitlines(), texts, strict=True):
        alone = exe(np.array([ids]), np.ones((1, len(ids)), np.int64))[0]
        assert np.array_equal(np.float32(line.split()), alone)


def test_static_c_with_names_of_its_own(model: Path, tmp_path: Path) -> None:
    """The static library keeps its internal names to itself."""
    own = tmp_path / "own.c"
    names = ("sha256_init", "sha256_update", "interpret", "plan_make", "tag_name", "DTYPE_NAMES", "rt_free")
    own.write_text("".join(f"int {name} = 1;\n" for name in names))
    program = tmp_path / "embed"
    libs = [f"-L{SDK.lib}", "-l:libsvm.a", "-lm", "-pthread"]
    run("cc", EXAMPLES / "embed.c", own, "-o", program, *pkg_config("--cflags"), *libs)
    check_example(program, model)


def test_c_and_cpp_with_cmake(model: Path, tmp_path: Path) -> None:
    run("cmake", "-S", EXAMPLES, "-B", tmp_path, "-D", f"svm_DIR={SDK.cmake}")
    run("cmake", "--build", tmp_path)
    check_example(tmp_path / "embed", model)
    check_example(tmp_path / "embed_static", model)


NO_RUST = shutil.which("rustc") is None and "RUST_REQUIRED" not in os.environ


@pytest.mark.skipif(NO_RUST, reason="rustc is not installed")
def test_rust(model: Path, tmp_path: Path) -> None:
    program = tmp_path / "embed"
    run("rustc", EXAMPLES / "embed.rs", "-L", SDK.lib, "-o", program)
    check_example(program, model, LD_LIBRARY_PATH=str(SDK.lib))


SCRIPTS = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "docs" / "embed.md").read_text(), re.M | re.S)


def test_cmake_installs_the_same(model: Path, tmp_path: Path) -> None:
    build, prefix = tmp_path / "build", tmp_path / "prefix"
    (script,) = [text for text in SCRIPTS if "--install" in text]
    script = script.replace("/opt/shapevm", str(prefix)).replace("build/sdk", str(build))
    run("sh", "-euc", f"cd {ROOT}\n{script}")
    flags = pkg_config("--cflags", "--libs", folder=prefix / "lib" / "pkgconfig")
    program = tmp_path / "embed"
    run("cc", EXAMPLES / "embed.c", "-o", program, *flags)
    check_example(program, model)
    assert "usage" in run(prefix / "bin" / "shapevm-run", "--help")


def test_the_command_prints_the_folders() -> None:
    for name, path in SDK._asdict().items():
        assert run("shapevm", "sdk", name, PATH=scripts()).strip() == str(path)
        assert path.is_dir() and str(path) in run("shapevm", "sdk", PATH=scripts())


def scripts() -> str:
    return f"{Path(sys.executable).parent}:{os.environ['PATH']}"


@pytest.mark.parametrize(("path", "text"), quoted("embed.md"))
def test_the_page_shows_the_examples(path: str, text: str) -> None:
    assert text == (ROOT / path).read_text()


@pytest.mark.parametrize("script", [text for text in SCRIPTS if "./" in text])
def test_the_page_s_commands_run(script: str, model: Path, tmp_path: Path) -> None:
    """Those that follow use the variables of the first."""
    if "rustc" in script and NO_RUST:
        pytest.skip("rustc is not installed")
    for path in (model, *EXAMPLES.iterdir()):
        shutil.copy(path, tmp_path)
    (setting,) = re.findall(r"^export .*$", "".join(SCRIPTS), re.M)
    printed = run("sh", "-euc", f"cd {tmp_path}\n{setting}\n{script}", PATH=scripts())
    assert len(np.float32(printed.split()[-384:])) == 384


def test_the_library_stays_once_a_program_was_opened(model: Path, tmp_path: Path) -> None:
    """Its threads and handlers outlive programs; what is unloaded under them crashes the host."""
    own = shutil.copy(SDK.lib / "libsvm.so.1", tmp_path / "libown.so")
    code = f"""
    import _ctypes, ctypes, os
    library, program, error = ctypes.CDLL({str(own)!r}), ctypes.c_void_p(), ctypes.create_string_buffer(4096)
    assert not library.svm_open_path({os.fsencode(model)!r}, None, ctypes.byref(program), error)
    library.svm_close(program)
    _ctypes.dlclose(library._handle)
    assert "libown.so" in open("/proc/self/maps").read()
    """
    run(sys.executable, "-c", textwrap.dedent(code))
