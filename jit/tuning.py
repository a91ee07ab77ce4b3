"""The tuning database: which schedule of a kernel was measured fastest on a CPU, a file beside the cache.

Schedules change the order of nothing that is summed, so results keep their bits.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import tempfile
from pathlib import Path

from ..vm.errors import ArtifactError
from ..vm.files import read_regular
from ..vm.program import KernelKey, format_key
from ..vm.schema import Exactly, MapOf, Object, Text, decode
from .families.matmul.tile_choice import TileChoice
from .object.cache import report_unusable
from .spec import KernelSpec, SpecText, spec_hash

FILE = "tuning.json"
FORMAT = "shapevm-tuning-1"
#: The lines of /proc/cpuinfo that tell a CPU from others on x86-64 and AArch64.
_OF_CPU = ("vendor_id", "cpu family", "model", "flags", "CPU implementer", "CPU part", "Features")
SCHEDULES = Object({"format": Exactly((FORMAT,)), "schedules": MapOf(Text(256))})


def schedules_of(spec: KernelSpec | SpecText, dims: KernelKey, target: str) -> tuple[str, ...]:
    """Return the schedules that a kernel can be compiled with for `dims`, () where it has one only."""
    from .families.table import family_of
    from .spec_reader import from_json

    spec = from_json(spec.text) if isinstance(spec, SpecText) else spec
    return family_of(spec).schedules(spec, dims, target)


def preferred_schedule(
    spec: KernelSpec | SpecText, dims: KernelKey, target: str, measured: TileChoice
) -> str | None:
    """Return the schedule for a machine of which `measured` was measured, None for the generator's own
    choice."""
    from .families.table import family_of
    from .spec_reader import from_json

    spec = from_json(spec.text) if isinstance(spec, SpecText) else spec
    return family_of(spec).preferred(spec, dims, target, measured.tiles)


@functools.cache
def cpu_name() -> str:
    """Return a key of this CPU that distinguishes it from others with different fastest schedules."""
    first = _text(Path("/proc/cpuinfo")).split("\n\n")[0].splitlines()
    return " ".join(line for line in first if line.startswith(_OF_CPU))


@functools.cache
def machine_name() -> str:
    """Return a key of this machine among those with such a CPU: its model's name, and its caches."""
    lines = _text(Path("/proc/cpuinfo")).splitlines()
    model = next((line for line in lines if line.startswith("model name")), "")
    caches = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"))
    return " ".join([model, *(_text(size).strip() for size in caches)])


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


class TuningDatabase:
    """Schedules by spec, sizes, target and CPU, in a JSON file that is replaced as a whole. A file that is
    missing, broken or of another format counts as empty; one that cannot be written is unchanged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: tuple[int, int] | None = None
        self._found: dict[str, str] = {}

    @staticmethod
    def key(spec: KernelSpec | SpecText, dims: KernelKey, target: str) -> str:
        """Return the name of an entry."""
        text = "\n".join([spec_hash(spec), format_key(dims), target, cpu_name()])
        return hashlib.sha256(text.encode()).hexdigest()

    def get(self, spec: KernelSpec | SpecText, dims: KernelKey, target: str) -> str | None:
        """Return the schedule to compile with, None for the generator's own choice."""
        name = self._read().get(self.key(spec, dims, target)) if dims is not None else None
        return name if name is not None and name in schedules_of(spec, dims, target) else None

    def put(self, spec: KernelSpec, dims: KernelKey, target: str, schedule: str) -> None:
        """Keep what was measured fastest."""
        found = {**self._read(), self.key(spec, dims, target): schedule}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=FILE)
            try:
                with os.fdopen(handle, "w") as file:
                    json.dump({"format": FORMAT, "schedules": found}, file, indent=0)
                os.replace(temporary, self.path)
            except BaseException:
                os.unlink(temporary)
                raise
        except OSError as error:
            report_unusable(str(self.path), error)

    def _read(self) -> dict[str, str]:
        """Return the file's entries; it is read again when it has changed."""
        try:
            status = self.path.stat()
            stamp = status.st_mtime_ns, status.st_ino
            if stamp != self._stamp:
                self._found = decode(read_regular(self.path), SCHEDULES, str(self.path))["schedules"]
                self._stamp = stamp
        except (OSError, ArtifactError):
            self._found, self._stamp = {}, None
        return self._found
