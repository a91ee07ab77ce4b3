"""The keys of kernels depend on the code that compiles them, however that was delivered."""

import compileall
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from shapevm.jit.object.generator import generator_sources
from shapevm.vm._runtime import __file__ as RUNTIME

ROOT = Path(__file__).parents[3]
CHANGED = ("step: Int = 1", "step: Int = 2")
PRINT = """
import sys
sys.path.insert(0, sys.argv[1])  # before the tree's own finder, which an editable install has
sys.meta_path[:] = [finder for finder in sys.meta_path if finder.__module__.startswith("_frozen")]
import shapevm
from shapevm.jit.object.cache import generator_version
print(shapevm.__file__, generator_version())
"""


def test_kernels_depend_on_every_room_of_the_generator() -> None:
    rooms = {name.split(".")[-2] for name in generator_sources()}
    assert rooms >= {"jit", "llvm", "loops", "object", "matmul", "conv"}


def delivered(folder: Path, form: str, changed: tuple[str, str] | None = None) -> str:
    """Return the version that a copy of the package has, in a form, with a text of the generator changed."""
    package = folder / "site/shapevm"
    sources = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "shapevm", package, ignore=sources)
    for room in ("compiler", "jit", "vm"):
        shutil.copytree(ROOT / room, package / room, ignore=sources)
    shutil.copy(RUNTIME, package / "vm")
    file = package / "jit/loops/affine.py"
    if changed is not None:
        assert changed[0] in (text := file.read_text())
        file.write_text(text.replace(*changed, 1))
    if form == "pyc":
        assert compileall.compile_dir(package, quiet=1, legacy=True)
        for source in package.rglob("*.py"):
            source.unlink()
    done = subprocess.run(
        [sys.executable, "-c", PRINT, folder / "site"], capture_output=True, text=True, cwd=folder
    )  # fmt: skip
    assert not done.returncode, done.stderr
    where, found = done.stdout.split()
    assert Path(where).is_relative_to(package)
    return found


@pytest.mark.parametrize("form", ["source", "pyc"])
def test_the_key_is_that_of_the_code(form: str, tmp_path: Path) -> None:
    known = delivered(tmp_path / "one", form)
    assert delivered(tmp_path / "elsewhere", form) == known
    assert delivered(tmp_path / "newer", form, CHANGED) != known
