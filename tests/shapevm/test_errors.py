"""Every error is public."""

import pickle
import subprocess
import sys

import pytest
from shapevm.vm.errors import TABLE

import shapevm
from shapevm import errors

MODULES = ("errors", "llm", "nn", "onnx")


def test_every_error_is_public():
    others = {"Error", "UnsupportedOp", "TextError", "AssemblyError", "ArchiveError", "InputError"}
    assert {error.__name__ for _, _, error in TABLE} | others == set(errors.__all__)
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), Exception)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_there_once_the_package_is_imported(name: str) -> None:
    """Nothing that an extra brings is needed for that."""
    hidden = "import sys; sys.modules |= dict.fromkeys(['torch', 'onnx', 'tokenizers', 'gguf', 'jinja2'])"
    done = subprocess.run([sys.executable, "-c", f"{hidden}; import shapevm; shapevm.{name}"], check=False)
    assert done.returncode == 0


def test_tracebacks_and_pickles_name_the_public_module():
    for name in errors.__all__:
        kind = getattr(errors, name)
        if name != "AssemblyError":
            assert kind.__module__ == "shapevm.errors" and pickle.loads(pickle.dumps(kind)) is kind


def test_dir_lists_what_is_public():
    assert set(dir(shapevm)) == {*shapevm.__all__, "__version__", *MODULES}
