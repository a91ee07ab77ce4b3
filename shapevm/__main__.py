"""The command line: shapevm compile | run | show | dis | inspect | settings."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import __version__
from .settings import TABLE, settings

if TYPE_CHECKING:
    from .build import Progress


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="shapevm")
def main() -> None:
    """Compile a PyTorch program once, run it at any shape."""


MODEL_HELP = """MODEL is a .pt2 file, or FILE.py:NAME or MODULE:NAME, where NAME is a function that returns the arguments of
shapevm.compile as a dict: model, and as needed args, kwargs, dynamic_shapes."""


def load_model(text: str) -> dict[str, Any]:
    """Return the arguments for `shapevm.compile` that MODEL names."""
    if text.endswith(".pt2"):
        return {"model": text}
    place, _, name = text.rpartition(":")
    if not place:
        raise click.UsageError(f"MODEL {text!r} is neither a .pt2 file nor FILE.py:NAME nor MODULE:NAME")
    module = _load_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    factory = getattr(module, name, None)
    if factory is None:
        raise click.UsageError(f"{place} has no {name!r}")
    made = factory()
    if not isinstance(made, dict) or "model" not in made:
        raise click.UsageError(f"{text} must return a dict with at least 'model', not {type(made).__name__}")
    return made


def _load_file(path: Path) -> Any:
    if not path.exists():
        raise click.UsageError(f"{path} does not exist")
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def shown_progress(quiet: bool) -> Iterator[Progress | None]:
    """Show the stages of a compilation on standard error."""
    if quiet:
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=1)
        yield lambda stage, done, total: progress.update(task, description=stage, completed=done, total=total)


def parse_sizes(texts: tuple[str, ...]) -> list[dict[str, int]]:
    """Return [{"batch": 1, "length": 16}, ...] from "batch=1,length=16" ..."""
    result = []
    for text in texts:
        try:
            result.append(
                {name.strip(): int(value) for name, value in (part.split("=") for part in text.split(","))}
            )
        except ValueError:
            raise click.UsageError(f"sizes {text!r} must look like batch=1,length=16") from None
    return result


@main.command("compile", help=f"Compile MODEL to an artifact.\n\n{MODEL_HELP}")
@click.argument("model")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="the .svm file to write",
)
@click.option(
    "--sizes",
    multiple=True,
    metavar="NAME=N,...",
    help="also put exact kernels for these sizes in (repeatable)",
)
@click.option("--target", help="compile for this target instead of the host's")
@click.option("-q", "--quiet", is_flag=True, help="no progress")
def compile_command(
    model: str, output: Path, sizes: tuple[str, ...], target: str | None, quiet: bool
) -> None:
    """Compile a model."""
    from . import compile

    with shown_progress(quiet) as progress:
        exe = compile(**load_model(model), sizes=parse_sizes(sizes), target=target, progress=progress)
        exe.save(output)
    click.echo(f"{output}: {output.stat().st_size / 1e6:.1f} MB, {exe.summary()}")


def read_inputs(texts: tuple[str, ...]) -> dict[str, Any]:
    """Return arrays by name from NAME=FILE.npy and FILE.npz."""
    import numpy as np

    arrays: dict[str, Any] = {}
    for text in texts:
        name, equals, file = text.partition("=")
        try:
            if equals:
                arrays[name] = np.load(file, allow_pickle=False)
            else:
                arrays.update(np.load(name, allow_pickle=False))
        except (OSError, ValueError) as error:
            raise click.UsageError(f"--input {text}: {error}") from None
    return arrays


@main.command("run")
@click.argument("artifact", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--input", "inputs", multiple=True, metavar="NAME=FILE.npy|FILE.npz", help="an input (repeatable)"
)
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="where to write the results (.npz)"
)
@click.option("--strategy", type=click.Choice([c for s in TABLE if s.name == "strategy" for c in s.choices]))
@click.option(
    "--repeat", default=1, show_default=True, help="calls; prints first, median and least milliseconds"
)
def run_command(
    artifact: str, inputs: tuple[str, ...], output: Path | None, strategy: str | None, repeat: int
) -> None:
    """Run ARTIFACT on arrays from .npy and .npz files."""
    import statistics
    import time

    import numpy as np

    from . import load

    exe = load(artifact, strategy=strategy)
    arrays = read_inputs(inputs)
    times = []
    for _ in range(max(1, repeat)):
        start = time.perf_counter()
        results = exe.run(arrays)
        times.append((time.perf_counter() - start) * 1e3)
    for name, value in results.items():
        click.echo(
            f"{name}: {value.dtype}{list(value.shape)}"
            if isinstance(value, np.ndarray)
            else f"{name}: {value!r}"
        )
    click.echo(
        f"first {times[0]:.3f} ms, median {statistics.median(times):.3f} ms, least {min(times):.3f} ms ({len(times)} calls)"
    )
    if output is not None:
        np.savez(output, **results)


@main.command("show", help=f"Print every stage of MODEL's compilation, down to assembly.\n\n{MODEL_HELP}")
@click.argument("model")
@click.option(
    "--stage",
    "stages",
    multiple=True,
    help="only these stages: import, a pass, bytecode, llvm, asm (repeatable)",
)
@click.option("--kernel", type=int, help="only this kernel in llvm and asm (default: the first)")
@click.option(
    "--sizes",
    metavar="NAME=N,...",
    help="llvm and asm of the exact kernel for these sizes, instead of the generic one",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="write numbered files here instead",
)
def show_command(
    model: str, stages: tuple[str, ...], kernel: int | None, sizes: str | None, output: Path | None
) -> None:
    """Show the stages of a compilation."""
    from .show import all_stages, write_stages

    chosen = parse_sizes((sizes,))[0] if sizes else None
    shown = all_stages(load_model(model), wanted=stages, kernel=kernel, sizes=chosen)
    if output is not None:
        for path in write_stages(shown, output):
            click.echo(path)
        return
    for name, text in shown:
        click.secho(f"=== {name}", bold=True)
        click.echo(text)


@main.command("dis")
@click.argument("artifact", type=click.Path(exists=True, dir_okay=False))
def dis_command(artifact: str) -> None:
    """Print ARTIFACT's bytecode: offset, instruction, effect, model line."""
    from .vm.artifact import read
    from .vm.disassembler import disassemble

    click.echo(disassemble(read(artifact)))


@main.command("inspect")
@click.argument("artifact", type=click.Path(exists=True, dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="machine-readable")
def inspect_command(artifact: str, as_json: bool) -> None:
    """Print what ARTIFACT takes, gives and holds, and whether the standalone runner can run it."""
    from .inspect import inspect_text, inspection

    if as_json:
        import json

        click.echo(json.dumps(inspection(artifact), indent=2))
    else:
        click.echo(inspect_text(artifact))


@main.command("settings")
def settings_command() -> None:
    """List every setting, its value and its environment variable."""
    from rich.console import Console
    from rich.table import Table

    table = Table("setting", "now", "default", "environment", "meaning")
    for setting in TABLE:
        now = str(getattr(settings, setting.name))
        table.add_row(setting.name, now, str(setting.default), setting.variable, setting.doc)
    Console().print(table)


def entry() -> None:
    """Run the command line; an error of ours is one sentence on standard error and exit code 1."""
    from .vm.errors import Error

    try:
        main()
    except (Error, FileNotFoundError) as error:
        raise SystemExit(f"shapevm: {error}") from None


if __name__ == "__main__":
    entry()
