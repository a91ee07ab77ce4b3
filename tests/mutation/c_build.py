"""The C runtime with one file changed: that file compiled as in the editable install's build, and linked
with the objects of the others."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from .coverage_map import ROOT


class CBuild:
    """Builds the extension module and the runner in `folder`, with more `flags`. Raises FileNotFoundError
    without the editable install's build folder."""

    def __init__(self, folder: Path, flags: Sequence[str] = ()) -> None:
        self.folder, self._flags = folder, flags
        folder.mkdir(parents=True, exist_ok=True)
        (build,) = (ROOT / "build").glob("cp*-linux_*")
        self._build = build
        rows = json.loads((build / "compile_commands.json").read_text())
        self._commands = {str(Path(row["file"]).resolve()): shlex.split(row["command"]) for row in rows}
        self._objects: dict[str, str] = {}
        for file in self._commands:
            if "/sdk/" not in file:
                self._objects[file] = self._compiled(
                    file, file, folder / f"{Path(file).parent.name}_{Path(file).stem}.o"
                )

    def _compiled(self, file: str, source: str, target: Path) -> str:
        command = list(self._commands[file])
        command[command.index("-o") + 1] = str(target)
        command[command.index("-c") + 1] = source
        flags = ["-O1", "-w", f"-I{Path(file).parent}", *self._flags]
        subprocess.run([*command, *flags], cwd=self._build, check=True, capture_output=True)
        return str(target)

    def mutated(self, path: Path, source: bytes) -> tuple[str, str, str] | None:
        """Return the paths of the module, of the runner and of `source`, which is in place of a file; None
        where it does not compile."""
        file = str((ROOT / path).resolve())
        changed = self.folder / path.name
        changed.write_bytes(source)
        try:
            o = self._compiled(file, str(changed), self.folder / "mutant.o")
        except subprocess.CalledProcessError:
            return None
        return *self.linked({**self._objects, file: o}), str(changed)

    def with_source(self, name: str, source: bytes) -> dict[str, str]:
        """Return the objects by source, with one more that `source` is compiled to."""
        path = self.folder / name
        path.write_bytes(source)
        o = str(path.with_suffix(".o"))
        subprocess.run(["cc", "-c", "-fPIC", "-o", o, str(path)], check=True, capture_output=True)
        return {**self._objects, str(path): o}

    def linked(self, objects: Mapping[str, str] | None = None) -> tuple[str, str]:
        """Return the paths of the module and the runner made of `objects` by source; None: the sources as
        they are."""
        objects = objects or self._objects
        module, runner = self.folder / "_runtime.abi3.so", self.folder / "shapevm-run"
        of_module = [o for f, o in objects.items() if f.endswith("_runtime.c")]
        of_runner = [o for f, o in objects.items() if Path(f).parent.name == "runner"]
        library = [o for o in objects.values() if o not in of_module + of_runner]
        for target, own, flags in (
            (module, of_module, ["-shared"]),
            (runner, of_runner, []),
        ):
            rest = [*library, *flags, *self._flags, "-lm", "-lpthread", "-ldl"]
            subprocess.run(["cc", "-o", str(target), *own, *rest], check=True, capture_output=True)
        return str(module), str(runner)
