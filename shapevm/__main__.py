"""The command line: shapevm compile | run | show | dis | inspect | settings, and those of commands.py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import __version__
from .cli.flags import flag, option_flags, with_flags
from .commands import COMMANDS, strategy_option
from .options import check_options, parse_sizes
from .settings import TABLE, settings
from .vm.errors import Error

if TYPE_CHECKING:
    from .build import Progress


class Commands(click.Group):
    """A group whose commands end with one sentence and exit code 1 for an error of ours."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except Error as error:
            raise click.ClickException(str(error)) from None


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="shapevm")
def main() -> None:
    """Compile a PyTorch program once, run it at any shape."""


for command in COMMANDS:
    main.add_command(command)

MODEL_HELP = """MODEL is a .pt2 file, or FILE.py:NAME or MODULE:NAME, where NAME is a function that returns
the arguments of shapevm.compile as a dict: model, and as needed args, kwargs, dynamic_shapes, inputs,
options."""

model_argument = click.argument("model")
artifact_argument = click.argument("artifact", type=click.Path(exists=True, dir_okay=False, path_type=Path))
quiet_option = click.option("-q", "--quiet", is_flag=True, help="no progress")


@contextmanager
def shown_progress(quiet: bool) -> Iterator[Progress]:
    """Show the stages of a compilation on standard error: a bar on a terminal, else a line for each."""
    from rich.console import Console

    console = Console(stderr=True)
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


@main.command("compile", help=f"Compile MODEL to an artifact.\n\n{MODEL_HELP}")
@model_argument
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="the .svm file to write")
@option_flags
@quiet_option
def compile_command(model: str, output: Path, quiet: bool, **flags: Any) -> None:
    """Compile a model. `flags`: see `cli.flags`."""
    from . import compile
    from .model import load_model
    from .specialise import check_compiler

    check_compiler()
    with shown_progress(quiet) as progress:
        progress("load the model", 0, 1)
        arguments = load_model(model)
        options = with_flags(check_options(arguments.pop("options", None)), flags)
        exe = compile(**arguments, options=options, strategy="generic", progress=progress)
        exe.save(output)
    size = output.stat().st_size
    shown = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"
    click.echo(f"{output}: {shown}, {exe.summary()}")


@main.command("run")
@artifact_argument
@click.option("--verify", type=click.Choice(["full", "lazy", "none"]), help="when the weights are checked")
@click.option("--digest", help="refuse a file with another SHA-256")
@click.option(
    "--trust", type=click.Path(exists=True, dir_okay=False), help="refuse a file that this key did not sign"
)
@click.option("--no-native-code", is_flag=True, help="compile all kernels here, run none of the file's code")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=FILE.npy|NAME=NUMBER|FILE.npz",
    help="an input (repeatable)",
)
@click.option(
    "--output", type=click.Path(path_type=Path), help="where to write the results: .npz, or .npy for one"
)
@strategy_option
@click.option("--repeat", type=click.IntRange(min=1), default=1, show_default=True, help="calls")
@click.option(
    "--record", "profile", type=click.Path(path_type=Path), help="write the calls' sizes as a profile"
)
@click.option("--metrics", type=click.Path(path_type=Path), help="write all counters as OpenMetrics text")
def run_command(
    artifact: Path,
    verify: str | None,
    digest: str | None,
    trust: str | None,
    no_native_code: bool,
    inputs: tuple[str, ...],
    output: Path | None,
    strategy: str | None,
    repeat: int,
    profile: Path | None,
    metrics: Path | None,
) -> None:
    """Run ARTIFACT on numpy files; print the results' types, and milliseconds of the first call, median and
    least."""
    import statistics
    import time

    from . import load, record
    from .files import read_inputs, write_results, write_text

    native = False if no_native_code else None
    trusted: dict[str, Any] = {"verify": verify, "digest": digest, "trust": trust, "native_code": native}
    exe = load(artifact, strategy=strategy, **trusted)
    values = read_inputs(inputs, exe.machine.inputs)
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
    for name, value in results.items():
        click.echo(
            f"{name}: {value.dtype}{list(value.shape)}" if hasattr(value, "dtype") else f"{name}: {value!r}"
        )
    median = statistics.median(times)
    click.echo(f"first {times[0]:.3f} ms, median {median:.3f} ms, least {min(times):.3f} ms ({repeat} calls)")


@main.command("show", help=f"Print the stages of MODEL's compilation, down to bytecode.\n\n{MODEL_HELP}")
@model_argument
@click.option(
    "--stage",
    "names",
    multiple=True,
    help="only these stages, whole: import, a pass, lowered, bytecode, llvm, asm (the last two only so)",
)
@click.option("--kernel", type=int, default=0, show_default=True, help="whose llvm and asm")
@click.option(
    "--sizes",
    metavar="NAME=N,...",
    help="llvm and asm of the exact kernel for these sizes, not of the generic one",
)
@flag("target")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="write whole stages as numbered files to this folder",
)
@quiet_option
def show_command(
    model: str,
    names: tuple[str, ...],
    kernel: int,
    sizes: str | None,
    target: str | None,
    output: Path | None,
    quiet: bool,
) -> None:
    """Show the stages of a compilation."""
    from .specialise import check_compiler

    check_compiler()
    from .model import load_model
    from .show import PRINTED, STAGES, all_stages, grouped, shown_text, write_stages

    wanted = names or (PRINTED if output is None else STAGES)
    chosen = parse_sizes(sizes) if sizes else None
    with shown_progress(quiet) as progress:
        progress("load the model", 0, 1)
        arguments = load_model(model)
        arguments["options"] = with_flags(check_options(arguments.get("options")), {"target": target})
        stages = all_stages(arguments, wanted, kernel, chosen, progress)
    if output is not None:
        for path in write_stages(stages, output):
            click.echo(path)
        return
    for title, stage in grouped(stages) if not names else [(stage.title, stage) for stage in stages]:
        click.secho(f"=== {title}", bold=True)
        for line in shown_text(stage, whole=bool(names)).splitlines():
            is_changed = bool(stage.difference) and not names
            click.secho(line, fg={"-": "red", "+": "green"}.get(line[:1]) if is_changed else None)
        click.echo()


@main.command("dis")
@artifact_argument
def dis_command(artifact: Path) -> None:
    """Print ARTIFACT's bytecode (instruction, offset, effect, model line), then its kernels' specs."""
    from .inspect import specs_text
    from .vm.artifact import read
    from .vm.disassembler import disassemble

    program = read(artifact)
    click.echo(disassemble(program, specs=False))
    click.echo(specs_text(program), nl=False)


@main.command("inspect")
@artifact_argument
@click.option("--json", "as_json", is_flag=True, help="machine-readable")
def inspect_command(artifact: Path, as_json: bool) -> None:
    """Print what ARTIFACT takes, gives and holds, and whether the standalone runner can run it."""
    from .inspect import inspect_text, inspection

    if as_json:
        import json

        click.echo(json.dumps(inspection(artifact), indent=2))
    else:
        click.echo(inspect_text(artifact))


@main.command("settings")
def settings_command() -> None:
    """List every setting: its value (* where it is not the default), environment variable and meaning."""
    rows = [(setting, str(getattr(settings, setting.name))) for setting in TABLE]
    widths = [
        max(map(len, column)) for column in zip(*[(s.name, now, s.variable) for s, now in rows], strict=True)
    ]
    for setting, now in rows:
        mark = " " if now == str(setting.default) else "*"
        name, value, variable = (
            text.ljust(n) for text, n in zip((setting.name, now, setting.variable), widths, strict=True)
        )
        click.echo(f"{mark} {name}  {value}  {variable}  {setting.doc}")


if __name__ == "__main__":
    main()
