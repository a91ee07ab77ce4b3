"""Every error is public."""

from shapevm.vm.errors import TABLE

from shapevm import errors


def test_every_error_is_public():
    others = {"Error", "UnsupportedOp", "TextError", "AssemblyError", "ArchiveError", "InputError"}
    assert {error.__name__ for _, _, error in TABLE} | others == set(errors.__all__)
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), Exception)
