"""Arguments, flags and steps that several commands share."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..settings import STRATEGIES
from ..vm.errors import FileError

if TYPE_CHECKING:
    from ..build import Progress
    from ..profiles import Profile
    from ..vm.program import Program, Symbol

_UNITS = {"": 1, "b": 1, "kb": 1000, "mb": 1000**2, "kib": 1 << 10, "mib": 1 << 20}


class OutputFile(click.Path):
    """A file to write: that it can be is checked before a command begins its work."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path. Raises FileError where its folder does not exist or may not be written to."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        code = 0
        if path.is_dir():
            code = errno.EISDIR
        elif not path.parent.is_dir():
            code = errno.ENOTDIR if path.parent.exists() else errno.ENOENT
        elif not os.access(path if path.exists() and not path.is_file() else path.parent, os.W_OK):
            code = errno.EACCES
        if code:
            raise FileError(f"{path} cannot be written: {os.strerror(code)}")
        return path


path_type = OutputFile()
existing = click.Path(exists=True, dir_okay=False, path_type=Path)
model_argument = click.argument("model")


def _artifact(ctx: click.Context, parameter: click.Parameter, path: Path) -> Path:
    from ..argument_check import check_artifact

    check_artifact(path)
    return path


artifact_argument = click.argument("artifact", type=existing, callback=_artifact)
output_option = click.option("-o", "--output", type=path_type, required=True, help="the file to write")
sizes_option = click.option(
    "--sizes", multiple=True, metavar="NAME=N,...", help="sizes to call at (repeatable)"
)
profile_option = click.option(
    "--profile",
    "profiles",
    multiple=True,
    type=existing,
    help="a profile, whose sizes are taken (repeatable)",
)
strategy_option = click.option(
    "--strategy", type=click.Choice(STRATEGIES), help="how calls run; default: the setting"
)
inputs_option = click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=FILE.npy|NAME=NUMBER|FILE.npz",
    help="an input (repeatable)",
)


@dataclass
class _Said:
    """How a command speaks, and what it has said as data."""

    is_quiet: bool = False
    is_json: bool = False
    data: dict[str, Any] = field(default_factory=dict)


def _said() -> _Said:
    """Return the record of the command that runs."""
    return click.get_current_context().meta.setdefault(__name__, _Said())


def _set_quiet(ctx: click.Context, parameter: click.Parameter, given: bool) -> None:
    said = ctx.meta.setdefault(__name__, _Said())
    said.is_quiet |= given


def _set_json(ctx: click.Context, parameter: click.Parameter, given: bool) -> None:
    ctx.meta.setdefault(__name__, _Said()).is_json = given


quiet_option = click.option(
    "-q", "--quiet", is_flag=True, help="show no progress", expose_value=False, callback=_set_quiet
)
json_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="print the result as one object",
    expose_value=False,
    callback=_set_json,
)


def is_quiet() -> bool:
    """Whether the command that runs shows no progress."""
    return _said().is_quiet


def is_json() -> bool:
    """Whether the command that runs prints data."""
    return _said().is_json


def say(text: str, /, **data: Any) -> None:
    """Print a line of a command's result; under --json keep `data` for `say_data` instead."""
    said = _said()
    if said.is_json:
        said.data |= data
    else:
        click.echo(text)


def say_files(paths: Sequence[Path]) -> None:
    """Say which files a command wrote, and how big they are."""
    for path in paths:
        said = _said().data.get("files", [])
        size = path.stat().st_size
        say(f"{path}: {size:,} bytes", files=[*said, {"path": str(path), "bytes": size}])


def say_data() -> None:
    """Print what was said as data, where --json asks for it."""
    if _said().is_json:
        click.echo(json.dumps(_said().data, indent=1))


MODEL_HELP = """MODEL is a .pt2 file, a TorchScript file (.pt), a graph as text (.svmir), or FILE.py:NAME or
MODULE:NAME, where NAME is a function that returns the arguments of shapevm.compile as a dict: model,
and as needed args, kwargs, dynamic_shapes, inputs, optional_examples, options."""


def example_of(symbols: Sequence[Symbol]) -> str:
    """Return sizes of a program as `--sizes` takes them: "batch=1,length=1"."""
    return ",".join(f"{s.name}={max(s.min, 1)}" for s in symbols)


def parse_bytes(text: str) -> int:
    """Return 2000000 from "2MB"."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) *([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS:
        raise click.UsageError(f"budget {text!r} must look like 2MB, 500kB or 64KiB")
    return int(float(match[1]) * _UNITS[match[2]])


def merged(paths: Sequence[Path]) -> Profile:
    """Return the sum of the profiles in some files."""
    from ..profiles import merge, read

    return merge(map(read, paths))


def recorded_sizes(path: Path, program: str) -> list[tuple[dict[str, int], int]]:
    """Return the sizes in a profile of the program with this identity, each with its number of calls. Raises
    ArgumentError for a profile of another program."""
    from ..profiles import check_program, read

    profile = read(path)
    check_program(profile, program, str(path))
    return [
        (dict(zip(profile.symbols, values, strict=True)), calls.count)
        for values, calls in profile.sizes.items()
    ]


def saved(program: Program, path: Path) -> None:
    """Write an artifact, which may be the one that the program was read from."""
    from ..vm.artifact import write

    write(program, path)
    say_files([path])


def store_of(program: Program) -> Any:
    """Return a store for the target of the artifact's code."""
    from ..jit.llvm.target import TARGETS, runs_here
    from ..kernel_store import open_store

    targets = {o.target for kernel in program.kernels for o in kernel.objects}
    return open_store(next((name for name in TARGETS if name in targets and runs_here(name)), None))


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """Show the stages of a compilation on standard error: a bar on a terminal, else a line for each."""
    from rich.console import Console

    console, quiet = Console(stderr=True), is_quiet()
    if quiet or not console.is_terminal:
        seen: set[str] = set()

        def line(stage: str, done: int, total: int) -> None:
            if not quiet and stage not in seen:
                seen.add(stage)
                click.echo(stage, err=True)

        yield line
        return
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=1)
        yield lambda stage, done, total: bar.update(task, description=stage, completed=done, total=total)
