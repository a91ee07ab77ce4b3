"""Executables in pickles: the artifact's path or URL and SHA-256, or its bytes where it has neither; how it
was loaded; and its state.

An executable that was loaded from a file is unpickled from that file, so pickles are small and processes of
one machine share the mapped weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..vm.errors import FileError
from ..vm.held_file import HeldFile
from ..vm.load_options import LoadOptions
from .remote import open_artifact


@dataclass(frozen=True)
class Pickled:
    """The content of a pickle. `content`: the artifact's bytes, None if it is read from `path`, a path or a
    URL; `state`: the values of buffers that calls change."""

    path: str
    sha256: bytes
    content: bytes | None
    options: LoadOptions
    state: Mapping[str, Any]

    @classmethod
    def of(cls, file: HeldFile, options: LoadOptions, state: Mapping[str, Any]) -> Pickled:
        """Return the pickle content of an executable. Raises FileError if its artifact was changed since it
        was loaded."""
        sha256 = file.sha256()
        is_found = bool(file.url) or file.is_at_its_path()
        content = None if is_found else b"".join(file.pieces())
        return cls(file.url or file.path_when_opened, sha256, content, options, state)

    def file(self) -> HeldFile:
        """Reopen the artifact. Raises FileError if its file is gone, ArtifactError if it was replaced."""
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
