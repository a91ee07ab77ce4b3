"""What an artifact does and holds: run, inspect, dis, asm; settings; doctor; where the C SDK is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ..settings import TABLE, settings
from ..tables import output_width
from .shared import (
    artifact_argument,
    inputs_option,
    is_json,
    output_option,
    path_type,
    saved,
    say,
    say_files,
    strategy_option,
)

MEANING_INDENT = " " * 6  # of the lines that say what a setting means


@click.command("run")
@artifact_argument
@click.option("--verify", type=click.Choice(["full", "lazy", "none"]), help="when the weights are checked")
@click.option("--digest", help="refuse a file with another SHA-256")
@click.option(
    "--trust", type=click.Path(exists=True, dir_okay=False), help="refuse a file that this key did not sign"
)
@click.option("--no-native-code", is_flag=True, help="compile all kernels here, run none of the file's code")
@click.option(
    "--plugin",
    "plugins",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    help="a library of functions that the program calls (repeatable)",
)
@inputs_option
@click.option("--output", type=path_type, help="where to write the results: .npz, or .npy for one")
@strategy_option
@click.option("--repeat", type=click.IntRange(min=1), default=1, show_default=True, help="calls")
@click.option("--record", "profile", type=path_type, help="write the calls' sizes as a profile")
@click.option("--metrics", type=path_type, help="write all counters as OpenMetrics text")
def run_command(
    artifact: Path,
    verify: str | None,
    digest: str | None,
    trust: str | None,
    no_native_code: bool,
    plugins: tuple[str, ...],
    inputs: tuple[str, ...],
    output: Path | None,
    strategy: str | None,
    repeat: int,
    profile: Path | None,
    metrics: Path | None,
) -> None:
    """Run ARTIFACT on numpy files.

    It prints the results' types, and how many milliseconds calls took: the first, the median, the least.
    """
    import time

    from .. import load, record
    from ..files import read_inputs, write_results, write_text

    native = False if no_native_code else None
    trusted: dict[str, Any] = {"verify": verify, "digest": digest, "trust": trust, "native_code": native}
    exe = load(artifact, strategy=strategy, plugins=plugins, **trusted)
    values = read_inputs(inputs, exe.user_inputs)
    times = []
    with record(exe) as recording:
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


def _say_results(results: Mapping[str, Any], times: Sequence[float]) -> None:
    """Say what a program returned, and how many milliseconds its calls took."""
    import statistics

    for name, value in results.items():
        shown = f"{value.dtype}{list(value.shape)}" if hasattr(value, "dtype") else repr(value)
        say(f"{name}: {shown}")
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
@click.option("--full", is_flag=True, help="all of ARTIFACT: text that shapevm asm makes the same bytes of")
@click.option("-o", "--output", type=path_type, help="with --full: the .svmasm file to write")
def dis_command(artifact: Path, full: bool, output: Path | None) -> None:
    """Print ARTIFACT's bytecode, and its kernels' specs.

    Each instruction has its offset, its effect and the model's line. With --full also constants, machine code
    and everything else; large constants go to a file beside --output.
    """
    from ..inspect import specs_text
    from ..vm.artifact import read
    from ..vm.disassembler import disassemble

    if output is not None and not full:
        raise click.UsageError("-o writes the text that --full makes: give --full too")
    if full:
        _full_text(artifact, output)
        return
    program = read(artifact)
    code, specs = disassemble(program, specs=False), specs_text(program)
    say(f"{code}\n{specs}".removesuffix("\n"), bytecode=code, specs=specs)


def _full_text(artifact: Path, output: Path | None) -> None:
    from ..text_files import program_text, write_files

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
    """Assemble a program as TEXT to an artifact.

    TEXT is what `shapevm dis --full` writes, or what you write (docs/assembly.md).
    """
    from ..text_files import read_program

    saved(read_program(text), output)


@click.command("inspect")
@artifact_argument
@click.option("--json", "as_json", is_flag=True, help="print the result as one object")
def inspect_command(artifact: Path, as_json: bool) -> None:
    """Print what ARTIFACT takes, gives and holds.

    The last line says whether shapevm-run can run it.
    """
    from ..inspect import inspect_text, inspection

    if as_json:
        import json

        click.echo(json.dumps(inspection(artifact), indent=2))
    else:
        click.echo(inspect_text(artifact))


@click.command("settings")
def settings_command() -> None:
    """List every setting with its value.

    A line gives the name, the environment variable and the value (* where it is not the default), those below
    it the meaning.
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
    """Print where the C SDK is: all its FOLDERs, or one."""
    from ..runner import sdk

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
    """Say what is wrong with the machine and its set-up.

    It lists the machine, the versions, the kernel cache and the settings. Exit 1 if anything is wrong.
    """
    import json

    from ..doctor import data, examine, problems, text

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
