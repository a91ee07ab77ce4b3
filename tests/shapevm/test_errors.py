"""Every error is public."""

import subprocess
import sys

from shapevm.vm.errors import TABLE

from shapevm import errors


def test_every_error_is_public():
    others = {"Error", "UnsupportedOp", "TextError", "AssemblyError", "ArchiveError", "InputError"}
    assert {error.__name__ for _, _, error in TABLE} | others == set(errors.__all__)
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), Exception)


def test_errors_are_there_once_the_package_is_imported():
    done = subprocess.run([sys.executable, "-c", "import shapevm; shapevm.errors.FileError"], text=True)
    assert done.returncode == 0
