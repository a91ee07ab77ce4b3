"""Executables in pickles: the artifact's path or URL and SHA-256, or its bytes where it has neither; how it
was loaded; and its state.

So that a pickle is small, and processes of one machine share the mapped weights, an executable that was
loaded from a file is found there again by whoever unpickles it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .remote import open_artifact
from .vm.codes import DEFAULTS
from .vm.errors import FileError
from .vm.files import HeldFile
from .vm.load_options import LoadOptions

if TYPE_CHECKING:
    from .executable import Executable

MAX_COPIED = DEFAULTS["COPY_BYTES"][0]


@dataclass(frozen=True)
class Pickled:
    """What an executable is made of again. `content`: the artifact's bytes, None where it lies at `path`, a
    path or a URL; `state`: the values of buffers that calls change."""

    path: str
    sha256: bytes
    content: bytes | None
    options: LoadOptions
    state: Mapping[str, Any]

    @classmethod
    def of(cls, file: HeldFile, options: LoadOptions, state: Mapping[str, Any]) -> Pickled:
        """Return an executable's. Raises FileError where its artifact was changed since it was loaded."""
        sha256 = file.sha256()
        is_found = bool(file.url) or file.is_at_its_path()
        content = None if is_found else b"".join(file.pieces())
        return cls(file.url or file.path_when_opened, sha256, content, options, state)

    def restored(self) -> Executable:
        """Load the executable again. Raises FileError where its file is gone, ArtifactError where another
        one lies there, and what `shapevm.load` raises."""
        from .compiler_packages import has_compiler
        from .opening import open_held

        file = self._file()
        copy = self.options.reading.copy
        if copy is None:  # a digest alone would make copies of all files
            copy = file.size <= MAX_COPIED
        reading = replace(self.options.reading, copy=copy, sha256=self.sha256)
        options = replace(self.options, has_compiler=has_compiler(), reading=reading)
        made = open_held(file, options)
        made.set_state(self.state)
        return made

    def _file(self) -> HeldFile:
        if self.content is not None:
            content = self.content
            return HeldFile.temporary(lambda file: file.write(content), self.path or "the unpickled program")
        try:
            return open_artifact(self.path, self.sha256)
        except FileError as error:
            raise FileError(
                f"{error}; a pickled Executable is loaded from the file that it was loaded from at first: "
                f"put that file, with SHA-256 {self.sha256.hex()}, at the same path on every machine, or "
                "load it from a URL"
            ) from None


def restored(pickled: Pickled) -> Executable:
    """Return the executable of a pickle."""
    return pickled.restored()
