"""Commands on an artifact: run, inspect, dis, asm; and settings, doctor, sdk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..reports.tables import output_width
from ..settings import TABLE, settings
from ..vm.literals import printable
from .shared import (
    FAILED,
    REFUSED,
    USAGE,
    artifact_argument,
    failing,
    inputs_option,
    is_json,
    loaded,
    loading_options,
    output_option,
    path_type,
    saved,
    say,
    say_files,
    show,
)

if TYPE_CHECKING:
    from ..program.executable import Executable

MEANING_INDENT = " " * 6  # of the lines with a setting's meaning


@click.command("run")
@artifact_argument
@loading_options
@inputs_option
@click.option("--output", type=path_type, help="file for the results: .npz, or .npy for one result")
@click.option("--repeat", type=click.IntRange(min=1), default=1, show_default=True, help="number of calls")
@click.option("--record", "profile", type=path_type, help="write the sizes of the calls as a profile")
@click.option("--metrics", type=path_type, help="write all counters as OpenMetrics text")
def run_command(
    artifact: Path,
    inputs: tuple[str, ...],
    output: Path | None,
    repeat: int,
    profile: Path | None,
    metrics: Path | None,
    **loading: Any,
) -> None:
    """Run ARTIFACT on numpy files.

    It prints the types of the results, and the milliseconds of the first, the median and the fastest call.
    """
    import time

    from .. import record
    from ..program.files import write_results
    from ..vm.files import write_text

    exe = loaded(artifact, **loading)
    values = _values(exe, inputs)
    times = []
    with failing(FAILED), record(exe) as recording:
        for _ in range(repeat):
            start = time.perf_counter()
            results = exe.run(values)
            times.append((time.perf_counter() - start) * 1e3)
        exe.machine.check_weights()
    if profile is not None:
        recording.save(profile)
    if metrics is not None:
        write_text(metrics, exe.metrics())
    if output is not None:
        write_results(output, results)
    _say_results(results, times)


def _values(exe: Executable, inputs: Sequence[str]) -> dict[str, Any]:
    """Read the inputs from files and check them against the program's contract."""
    from ..program.files import read_inputs

    with failing(USAGE):
        values = read_inputs(inputs, exe.user_inputs)
    names = [row.name for row in exe.user_inputs]
    with failing(REFUSED):
        if set(names) == set(values):  # otherwise the call reports the missing one
            exe.bind_flat([values[name] for name in names])
    return values


def _say_results(results: Mapping[str, Any], times: Sequence[float]) -> None:
    """Report a program's results, and how many milliseconds its calls took."""
    import statistics

    for name, value in results.items():
        shown = f"{value.dtype}{list(value.shape)}" if hasattr(value, "dtype") else repr(value)
        say(f"{printable(name)}: {printable(shown)}")
    median, least = statistics.median(times), min(times)
    calls = "1 call" if len(times) == 1 else f"{len(times)} calls"
    say(
        f"first {times[0]:.3f} ms, median {median:.3f} ms, least {least:.3f} ms ({calls})",
        outputs={name: _described(value) for name, value in results.items()},
        milliseconds={"first": times[0], "median": median, "least": least},
        calls=len(times),
    )


def _described(value: Any) -> Any:
    """Return a result as data: dtype and shape of an array, else its text."""
    is_array = hasattr(value, "dtype")
    return {"dtype": str(value.dtype), "shape": list(value.shape)} if is_array else {"value": repr(value)}


@click.command("dis")
@artifact_argument
@click.option(
    "--full", is_flag=True, help="print all of ARTIFACT, as text that shapevm asm turns into the same bytes"
)
@click.option("-o", "--output", type=path_type, help="with --full: the .svmasm file to write")
def dis_command(artifact: Path, full: bool, output: Path | None) -> None:
    """Print ARTIFACT's bytecode and kernel specs.

    Each instruction is printed with its offset, its effect and the model's line. --full adds constants,
    machine code and everything else; large constants go to a file beside --output.
    """
    from ..reports.inspect import specs_text
    from ..vm.artifact import read_verified
    from ..vm.disassembler import disassemble

    if output is not None and not full:
        raise click.UsageError("-o writes the text that --full makes: give --full too")
    if full:
        _full_text(artifact, output)
        return
    program = read_verified(artifact)
    code, specs = disassemble(program, specs=False), specs_text(program)
    say(f"{code}\n{specs}".removesuffix("\n"), bytecode=code, specs=specs)


def _full_text(artifact: Path, output: Path | None) -> None:
    from ..build.text_files import program_text, write_files

    text, arrays = program_text(artifact)
    if output is not None:
        say_files(write_files(output, text, arrays))
    elif arrays:
        raise click.UsageError(
            f"{len(arrays)} large constants need a file beside the text: give -o FILE.svmasm"
        )
    else:
        say(text.removesuffix("\n"), text=text)


@click.command("asm")
@click.argument("text", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@output_option
def asm_command(text: Path, output: Path) -> None:
    """Assemble TEXT to an artifact.

    TEXT is a file written by `shapevm dis --full` or by hand (docs/assembly.md).
    """
    from ..build.text_files import read_program

    saved(read_program(text), output)


@click.command("inspect")
@artifact_argument
@click.option("--json", "as_json", is_flag=True, help="print the result as one object")
def inspect_command(artifact: Path, as_json: bool) -> None:
    """Print ARTIFACT's inputs, outputs and contents.

    The last line says whether shapevm-run can run it.
    """
    from ..reports.inspect import inspect_text, inspection

    if as_json:
        import json

        show(json.dumps(inspection(artifact), indent=2))
    else:
        show(inspect_text(artifact))


@click.command("settings")
def settings_command() -> None:
    """List every setting with its value.

    Each setting has a line with its name, its environment variable and its value (* if not the default), then
    its meaning.
    """
    rows = [(setting, str(getattr(settings, setting.name))) for setting in TABLE]
    if is_json():
        names = {s.name: {"value": now, "variable": s.variable, "meaning": s.doc} for s, now in rows}
        say("", **names)
        return
    widest, variables = max(len(s.name) for s in TABLE), max(len(s.variable) for s in TABLE)
    for setting, now in rows:
        mark = " " if now == str(setting.default) else "*"
        line = f"{mark} {setting.name:{widest}}  {setting.variable:{variables}}  {now}"
        click.echo(line.rstrip())
        click.echo(click.wrap_text(setting.doc, output_width(), MEANING_INDENT, MEANING_INDENT))


@click.command("sdk")
@click.argument("folder", type=click.Choice(["include", "lib", "pkgconfig", "cmake"]), required=False)
def sdk_command(folder: str | None) -> None:
    """Print the paths of the C SDK: all its FOLDERs, or one."""
    from .. import sdk

    folders = {name: str(path) for name, path in sdk()._asdict().items()}
    chosen = {folder: folders[folder]} if folder else folders
    lines = [f"{name:9} {path}" for name, path in folders.items()]
    say(folders[folder] if folder else "\n".join(lines), **chosen)


@click.command("doctor")
@click.option(
    "--measure/--no-measure",
    default=True,
    show_default=True,
    help="measure the machine's limits, which takes 1 s",
)
@click.option("--json", "as_json", is_flag=True, help="print the result as one object")
def doctor_command(measure: bool, as_json: bool) -> None:
    """Report problems of the machine and its set-up.

    It lists the machine, the versions, the kernel cache and the settings. The exit code is 1 if anything is
    wrong.
    """
    import json

    from ..cli.doctor import data, examine, problems, text

    findings = examine(measure)
    click.echo(json.dumps(data(findings), indent=1) if as_json else text(findings))
    raise SystemExit(bool(problems(findings)))


COMMANDS = (
    run_command,
    dis_command,
    asm_command,
    inspect_command,
    settings_command,
    sdk_command,
    doctor_command,
)
