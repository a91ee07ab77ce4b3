"""Arguments, flags and steps that several commands share."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from ..vm.codes import STRATEGIES, Verify
from ..vm.errors import Cancelled, Error, InputError
from ..vm.files import check_writable, descriptor_of
from ..vm.literals import printable_lines

if TYPE_CHECKING:
    from ..build.build import Progress
    from ..calls.profiles import Profile
    from ..program.executable import Executable
    from ..vm.program import Program, Symbol

_UNITS = {"": 1, "b": 1, "kb": 1000, "mb": 1000**2, "kib": 1 << 10, "mib": 1 << 20}
STDOUT = 1  # its file descriptor
#: Exit codes of shapevm-run.
USAGE, NOT_LOADED, REFUSED, FAILED, CANCELLED = 2, 3, 4, 5, 130


def failure(message: str, exit_code: int) -> click.ClickException:
    """Return an exception that ends a command with one sentence and an exit code, which click takes from the
    class."""
    ended: click.ClickException = type("Failure", (click.ClickException,), {"exit_code": exit_code})(message)
    return ended


@contextmanager
def failing(exit_code: int) -> Iterator[None]:
    """Give errors of a step of a command this exit code; errors of names and Ctrl-C keep theirs."""
    try:
        yield
    except (Cancelled, InputError):
        raise
    except Error as error:
        raise failure(str(error), exit_code) from None


class OutputFile(click.Path):
    """An output file: whether it can be written is checked before a command begins its work."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path. Ends the command if it cannot be written."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        try:
            check_writable(path)
            if descriptor_of(path) == STDOUT and ctx is not None:
                ctx.meta.setdefault(__name__, _Said()).is_stdout_taken = True
        except OSError as error:
            raise failure(f"{path} cannot be written: {error.strerror}", FAILED) from None
        return path


path_type = OutputFile()
existing = click.Path(exists=True, dir_okay=False, path_type=Path)
model_argument = click.argument("model")


def artifact_of(ctx: click.Context, parameter: click.Parameter, path: Path) -> Path:
    """Return the path of an artifact. Raises a click exception for another file."""
    from ..calls.checks import check_artifact

    with failing(NOT_LOADED):
        check_artifact(path)
    return path


def is_source(path: Path) -> bool:
    """Return whether a path is that of a language model which must be compiled: a folder or a GGUF file."""
    return path.is_dir() or path.suffix == ".gguf"


def model_or_folder(ctx: click.Context, parameter: click.Parameter, path: Path) -> Path:
    """Return the path of an artifact, or of a language model to compile. Raises a click exception for another
    file."""
    return path if is_source(path) else artifact_of(ctx, parameter, path)


artifact_argument = click.argument("artifact", type=click.Path(path_type=Path), callback=artifact_of)
output_option = click.option("-o", "--output", type=path_type, required=True, help="the file to write")
sizes_option = click.option("--sizes", multiple=True, metavar="NAME=N,...", help="sizes to use (repeatable)")
profile_option = click.option(
    "--profile",
    "profiles",
    multiple=True,
    type=existing,
    help="a profile whose sizes to use (repeatable)",
)
strategy_option = click.option(
    "--strategy", type=click.Choice(STRATEGIES), help="when exact kernels are compiled; default: the setting"
)
_LOADING = (
    click.option("--verify", type=click.Choice(get_args(Verify)), help="when the weights are checked"),
    click.option("--digest", help="refuse a file with another SHA-256"),
    click.option(
        "--trust",
        type=click.Path(exists=True, dir_okay=False),
        help="refuse a file that this key did not sign",
    ),
    click.option(
        "--no-native-code", is_flag=True, help="compile all kernels here; run none of the file's code"
    ),
    click.option(
        "--plugin",
        "plugins",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False),
        help="a library with functions that the program calls (repeatable)",
    ),
    strategy_option,
)


def loading_options(command: Any) -> Any:
    """Decorate a command with the options of loading an artifact, which `loaded` takes."""
    for option in reversed(_LOADING):
        command = option(command)
    return command


def loaded(artifact: Path, *, no_native_code: bool, **options: Any) -> Executable:
    """Load an artifact with a command's options. Ends the command if that fails."""
    from .. import load

    with failing(NOT_LOADED):
        return load(artifact, native_code=False if no_native_code else None, **options)


inputs_option = click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=FILE.npy|NAME=NUMBER|FILE.npz",
    help="an input (repeatable)",
)


@dataclass
class _Said:
    """The output mode of a command, and its output so far as data."""

    is_quiet: bool = False
    is_json: bool = False
    is_stdout_taken: bool = False  # by a file that the command writes: messages go to stderr
    data: dict[str, Any] = field(default_factory=dict)


def _said() -> _Said:
    """Return the record of the running command."""
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
    """Whether the running command shows no progress."""
    return _said().is_quiet


def is_json() -> bool:
    """Whether the running command prints data."""
    return _said().is_json


def say(text: str, /, **data: Any) -> None:
    """Print a line of a command's result; under --json keep `data` for `say_data` instead."""
    said = _said()
    if said.is_json:
        said.data |= data
    else:
        click.echo(printable_lines(text), err=said.is_stdout_taken)


def show(text: str) -> None:
    """Print a command's text of several lines, with characters that a terminal cannot show escaped."""
    click.echo(printable_lines(text.removesuffix("\n")))


def say_files(paths: Sequence[Path]) -> None:
    """Report the files that a command wrote, and their sizes."""
    for path in paths:
        said = _said().data.get("files", [])
        size = path.stat().st_size
        say(f"{path}: {size:,} bytes", files=[*said, {"path": str(path), "bytes": size}])


def say_data() -> None:
    """Print the collected data if --json is given."""
    if _said().is_json:
        click.echo(json.dumps(_said().data, indent=1), err=_said().is_stdout_taken)


MODEL_HELP = """MODEL is a .pt2 file, a TorchScript file (.pt), an .onnx file, a graph as text (.svmir), for
`compile` also the folder of a text model or language model of Hugging Face, or FILE.py:NAME or MODULE:NAME,
where NAME is a function that returns the arguments of shapevm.compile as a dict: model, and as needed args,
kwargs, dynamic_shapes, inputs, optional_examples, options."""


def example_of(symbols: Sequence[Symbol]) -> str:
    """Return example sizes of a program for `--sizes`: "batch=1,length=1"."""
    return ",".join(f"{s.name}={max(s.min, 1)}" for s in symbols)


def parse_bytes(text: str) -> int:
    """Return 2000000 from "2MB"."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) *([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS:
        raise click.UsageError(f"budget {text!r} must look like 2MB, 500kB or 64KiB")
    return int(float(match[1]) * _UNITS[match[2]])


def merged(paths: Sequence[Path]) -> Profile:
    """Return the sum of the profiles in some files."""
    from ..calls.profiles import merge, read

    return merge(map(read, paths))


def recorded_sizes(path: Path, program: str) -> list[tuple[dict[str, int], int]]:
    """Return the sizes in a profile of the program with this identity, each with its number of calls. Raises
    ArgumentError if a profile is of another program."""
    from ..calls.profiles import check_program, read

    profile = read(path)
    check_program(profile, program, str(path))
    return [
        (dict(zip(profile.symbols, values, strict=True)), calls.count)
        for values, calls in profile.sizes.items()
    ]


def saved(program: Program, path: Path) -> None:
    """Write an artifact, possibly over the one that the program was read from."""
    from ..vm.artifact import write

    write(program, path)
    say_files([path])


def store_of(program: Program) -> Any:
    """Return a store for the target of the artifact's code."""
    from ..jit.llvm.target import TARGETS, runs_here
    from ..specialise.kernel_store import open_store

    targets = {o.target for kernel in program.kernels for o in kernel.objects}
    return open_store(next((name for name in TARGETS if name in targets and runs_here(name)), None))


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """Show the stages of a compilation on standard error: a bar on a terminal, nothing elsewhere."""
    from ..program.bar import bar

    with bar(is_shown=not is_quiet()) as update:
        yield update
