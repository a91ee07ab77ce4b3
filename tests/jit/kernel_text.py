"""The LLVM text of a fixed list of kernels here and in another revision: a change that is to leave code as it
is.

    python -m tests.jit.kernel_text [--revision main] [--keep FOLDER]

The list has every family's examples and a spec of every variant, for all targets: generic, exact and for a
range of sizes, by every schedule. It says which of them differ, and exits with 1 if one does. `--keep` leaves
the texts of both in the folders `before` and `after` of FOLDER, for `diff -r`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, TypedDict

ROOT = Path(__file__).parents[2]
KEYS = ("generic", "exact", "range")


class Case(TypedDict):
    """A kernel: `dims` are sizes of its spec, None where the spec has only generic ones."""

    spec: str
    dims: list[int] | None
    key: str
    target: str
    schedule: str | None


def cases() -> Iterator[Case]:
    """Yield the list."""
    from shapevm.jit.families.table import FAMILIES
    from shapevm.jit.llvm.target import TARGETS
    from shapevm.jit.text import format_spec, parse_spec
    from shapevm.jit.tuning import schedules_of

    from .families.test_variants import CASES

    specs = [(e.text, e.dims) for family in FAMILIES.values() for e in family.examples]
    specs += [(format_spec(spec), dims) for spec, dims, _, _ in CASES.values()]
    for text, dims in dict.fromkeys(specs):
        for target in TARGETS:
            for schedule in (None, *schedules_of(parse_spec(text), None, target)):
                for key in KEYS if dims else KEYS[: 1 + (dims is not None)]:
                    given = None if dims is None else list(dims)
                    yield Case(spec=text, dims=given, key=key, target=target, schedule=schedule)


# In each revision ---------------------------------------------------------------------------------------


def use(root: Path) -> None:
    """Import `shapevm` from a checkout, not from where it is installed."""
    import importlib.util

    import shapevm.vm._runtime as runtime  # compiled, so only where shapevm is installed

    for name in [name for name in sys.modules if name.partition(".")[0] == "shapevm"]:
        del sys.modules[name]
    sys.modules["shapevm.vm._runtime"] = runtime
    sys.meta_path[:] = [finder for finder in sys.meta_path if "ScikitBuild" not in type(finder).__name__]
    folders = [str(root), str(root / "shapevm")]
    given = importlib.util.spec_from_file_location(
        "shapevm", root / "shapevm" / "__init__.py", submodule_search_locations=folders
    )
    assert given is not None and given.loader is not None
    sys.modules["shapevm"] = module = importlib.util.module_from_spec(given)
    given.loader.exec_module(module)


def text_of(case: Case) -> str:
    """Return a kernel's text with what its generator says of it, or its refusal."""
    from shapevm.jit.compiler import kernel_text, target_for
    from shapevm.jit.text import parse_spec
    from shapevm.vm.program import SizeRange

    spec, dims = parse_spec(case["spec"]), tuple(case["dims"] or ())
    key: Any = {
        "generic": None,
        "exact": dims,
        "range": tuple(SizeRange(n // 2, 2 * n + 1) for n in dims),
    }[case["key"]]
    try:
        text, generated = kernel_text(spec, key, target_for(spec, case["target"]), case["schedule"])
    except ValueError as error:
        return f"; refused: {error}\n"
    return f"{text}; {generated}\n"


def write(root: Path, wanted: Path, folder: Path) -> None:
    """Write the texts of the cases that the file `wanted` lists as `root`'s source makes them, and a digest
    of each."""
    use(root)
    folder.mkdir(parents=True)
    digests = []
    for i, case in enumerate(json.loads(wanted.read_text())):
        text = text_of(case)
        (folder / f"{i}.ll").write_text("".join(f"; {line}\n" for line in case["spec"].splitlines()) + text)
        digests.append(sha256(text.encode()).hexdigest())
    (folder / "digests.json").write_text(json.dumps(digests))


# Both ---------------------------------------------------------------------------------------------------


def compare(listed: list[Case], revision: str, folder: Path) -> list[int]:
    """Return which of the cases differ between `revision` and the working tree; write to `folder`."""
    archive = subprocess.run(["git", "archive", revision], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as tar:
        tar.extractall(folder / "source", filter="data")
    wanted = folder / "cases.json"
    wanted.write_text(json.dumps(listed))
    before, after = (
        digests_of(folder / "source", wanted, folder / "before"),
        digests_of(ROOT, wanted, folder / "after"),
    )
    return [i for i, pair in enumerate(zip(before, after, strict=True)) if len(set(pair)) > 1]


def digests_of(root: Path, wanted: Path, folder: Path) -> list[str]:
    """Return the digests of what `write` writes, by a process of its own."""
    command = [sys.executable, __file__, "--write", str(root), str(wanted), str(folder)]
    subprocess.run(command, check=True)
    found: list[str] = json.loads((folder / "digests.json").read_text())
    return found


def main() -> int:
    """Compare; return the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--revision", default="main")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--write", nargs=3, type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        write(*given.write)
        return 0
    listed = list(cases())
    with tempfile.TemporaryDirectory() as made:
        folder = given.keep or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        different = compare(listed, given.revision, folder)
    for i in different:
        case = listed[i]
        print(f"{i}.ll differs: {case['key']}, {case['target']}, schedule {case['schedule']}, {case['spec']}")
    print(f"{len(different)} of {len(listed)} kernels differ from those of {given.revision}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
