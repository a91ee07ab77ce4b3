"""The zip archive: members of one folder, stored as PyTorch writes them, each within limits."""

from __future__ import annotations

import os
import re
import struct
import zipfile
import zlib
from typing import IO, Any

from ...ir.errors import ArchiveError

MAX_MEMBERS = 200_000
MAX_DIRECTORY = 32 << 20  # bytes of the zip's directory
MAX_NAME = 500  # characters
MAX_UNPACKED = 128 << 20  # bytes of all compressed members together, unpacked
MAX_MEMBER = 64 << 20  # bytes of a member that is not a tensor's storage, unpacked
_NAME = re.compile(r"[\w.@+-]+(?: [\w.@+-]+)*")
_LOCAL_HEADER = struct.Struct("<4s22xHH")


class _Guarded:
    """A file that refuses reads of more bytes than the directory may have: zipfile reads it whole."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.limit = file, MAX_DIRECTORY
        self.seek, self.tell, self.close = file.seek, file.tell, file.close

    def seekable(self) -> bool:
        """Return True, for zipfile."""
        return True

    def read(self, n: int = -1) -> bytes:
        """Return the next `n` bytes."""
        data = self.file.read(self.limit + 1 if n < 0 else min(n, self.limit + 1))
        if len(data) > self.limit:
            raise ArchiveError(f"the archive's directory is longer than {self.limit:,} bytes")
        return data


class Container:
    """The members of an archive by their names inside its folder. Use as a context."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = open(path, "rb")  # noqa: SIM115 (closed by __exit__)
        try:
            self._size = os.fstat(self._file.fileno()).st_size
            guarded: Any = _Guarded(self._file)
            self._zip = _checked(zipfile.ZipFile, guarded)
            guarded.limit = max(self._size, 1)
            self.members = self._checked_members()
            self._unpacked = 0
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def text(self, name: str) -> str:
        """Return a member as text."""
        try:
            return self.read(name).decode("utf-8")
        except UnicodeDecodeError:
            raise ArchiveError(f"{name} is not UTF-8") from None

    def read(self, name: str) -> bytes:
        """Return a member of at most MAX_MEMBER bytes, its checksum checked."""
        return self._bytes(name, MAX_MEMBER)

    def storage(self, name: str, n_bytes: int) -> bytes:
        """Return the bytes of a tensor's storage, which must not be compressed and have `n_bytes`."""
        info = self._info(name)
        if info.compress_type != zipfile.ZIP_STORED:
            raise ArchiveError(f"{name} is compressed; storages of tensors are not")
        if info.file_size != n_bytes:
            raise ArchiveError(f"{name} has {info.file_size:,} bytes; its tensors need {n_bytes:,}")
        return self._bytes(name, n_bytes)

    def _info(self, name: str) -> zipfile.ZipInfo:
        if name not in self.members:
            raise ArchiveError(f"the archive has no member {name[:100]!r}")
        return self.members[name]

    def _bytes(self, name: str, limit: int) -> bytes:
        info = self._info(name)
        if info.file_size > limit:
            raise ArchiveError(f"{name} has {info.file_size:,} bytes; at most {limit:,} are read")
        if info.compress_type != zipfile.ZIP_STORED:
            self._unpacked += info.file_size
            if self._unpacked > MAX_UNPACKED:
                raise ArchiveError(
                    f"compressed members of the archive have more than {MAX_UNPACKED:,} bytes in all"
                )
        data: bytes = _checked(self._read_member, info)
        if len(data) != info.file_size:
            raise ArchiveError(f"{name} has {len(data):,} bytes; the directory says {info.file_size:,}")
        return data

    def _read_member(self, info: zipfile.ZipInfo) -> bytes:
        with self._zip.open(info) as member:
            return member.read(info.file_size + 1)  # one more: then the checksum is compared

    def _checked_members(self) -> dict[str, zipfile.ZipInfo]:
        infos = self._zip.infolist()
        if not 0 < len(infos) <= MAX_MEMBERS:
            raise ArchiveError(f"the archive has {len(infos):,} members; 1 to {MAX_MEMBERS:,} are read")
        folder = infos[0].filename.split("/")[0]
        members: dict[str, zipfile.ZipInfo] = {}
        for info in infos:
            name = _name_inside(info, folder)
            if name in members:
                raise ArchiveError(f"the archive has two members {name!r}")
            _check_form(info, name)
            members[name] = info
        self._check_places(infos)
        return members

    def _check_places(self, infos: list[zipfile.ZipInfo]) -> None:
        """No member may overlap another one or the directory."""
        end = 0
        for info in sorted(infos, key=lambda info: info.header_offset):
            if info.header_offset < end:
                raise ArchiveError(f"member {info.filename!r} overlaps another one")
            self._file.seek(info.header_offset)
            header = self._file.read(_LOCAL_HEADER.size)
            if len(header) < _LOCAL_HEADER.size or header[:4] != b"PK\x03\x04":
                raise ArchiveError(f"member {info.filename!r} has no header")
            _, name, extra = _LOCAL_HEADER.unpack(header)
            end = info.header_offset + _LOCAL_HEADER.size + name + extra + info.compress_size
        if end > min(self._zip.start_dir, self._size):
            raise ArchiveError("a member of the archive runs past the beginning of its directory")


def _checked(do: Any, *args: Any) -> Any:
    """Call a function of zipfile; its errors for bytes that are not a zip become ArchiveError."""
    try:
        return do(*args)
    except (
        zipfile.BadZipFile,
        zlib.error,
        NotImplementedError,
        RuntimeError,
        EOFError,
        OSError,
        struct.error,
        OverflowError,
        ValueError,
    ) as error:
        if isinstance(error, ArchiveError):
            raise
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise ArchiveError(f"the file is not a sound zip archive: {reason}") from None


def _name_inside(info: zipfile.ZipInfo, folder: str) -> str:
    parts = info.orig_filename.split("/")
    plain = all(_NAME.fullmatch(part) and part not in (".", "..") for part in parts)
    if not plain or len(parts) < 2 or parts[0] != folder or len(info.orig_filename) > MAX_NAME:
        shown, inside = info.orig_filename[:100], folder[:100]
        raise ArchiveError(f"member {shown!r} is not a file inside of one folder {inside!r}")
    return "/".join(parts[1:])


def _check_form(info: zipfile.ZipInfo, name: str) -> None:
    if info.flag_bits & 0x61:
        raise ArchiveError(f"member {name!r} is encrypted")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ArchiveError(f"member {name!r} is compressed in a way that PyTorch does not write")
    if info.compress_type == zipfile.ZIP_STORED and info.compress_size != info.file_size:
        raise ArchiveError(f"member {name!r} states two sizes")
