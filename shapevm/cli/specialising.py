"""Kernels for the shapes that a program meets: profile, explain, freeze, merge, bake, tune."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..build.options import parse_sizes
from .shared import (
    artifact_argument,
    example_of,
    existing,
    inputs_option,
    merged,
    output_option,
    parse_bytes,
    path_type,
    profile_option,
    recorded_sizes,
    saved,
    say,
    show,
    shown_progress,
    sizes_option,
    store_of,
    strategy_option,
)

if TYPE_CHECKING:
    from ..program.executable import Executable
    from ..vm.codes import Strategy

MAX_REPLAYS = 8  # calls that `explain` makes at one tuple of sizes of a profile


def _sizes_of(
    exe: Executable, sizes: Sequence[str], profiles: Sequence[Path]
) -> list[tuple[dict[str, int], int]]:
    """Return the given sizes and those of profiles, with the number of calls to make at each."""
    from ..calls.profiles import profile_of

    wanted = [(parse_sizes(text), MAX_REPLAYS) for text in sizes]
    for path in profiles:
        found = recorded_sizes(path, profile_of(exe).program)
        wanted += [(values, min(count, MAX_REPLAYS)) for values, count in found]
    for values, _ in wanted:
        if set(values) != {s.name for s in exe.machine.symbols}:
            raise click.UsageError(
                f"sizes must be given for {', '.join(s.name for s in exe.machine.symbols)}"
            )
    return wanted


def _inputs_of(
    exe: Executable, inputs: Sequence[str], sizes: Sequence[str], profiles: Sequence[Path]
) -> list[dict[str, Any]]:
    """Return inputs for a program: from files, or made up at sizes."""
    from ..program.files import read_inputs
    from ..promises.samples import sample_inputs

    symbols, rows = exe.machine.symbols, exe.user_inputs
    if inputs:
        return [read_inputs(inputs, rows)]
    wanted = [values for values, _ in _sizes_of(exe, sizes, profiles)]
    if not wanted and symbols:
        raise click.UsageError(
            f"the program has sizes to choose: give --sizes {example_of(symbols)}, or --input"
        )
    return [
        dict(zip([row.name for row in rows], sample_inputs(rows, symbols, values), strict=True))
        for values in wanted or [{}]
    ]


def _warm(exe: Executable, sizes: Sequence[str], profiles: Sequence[Path]) -> None:
    """Call a program at sizes, and at those of profiles, on made-up data."""
    from ..promises.samples import sample_inputs

    for values, count in _sizes_of(exe, sizes, profiles):
        inputs = sample_inputs(exe.machine.inputs, exe.machine.symbols, values)
        for _ in range(count):
            exe.machine.call(inputs)
    exe.wait_until_specialised()


@click.command("explain")
@artifact_argument
@sizes_option
@profile_option
@strategy_option
@click.option("--measure", is_flag=True, help="also measure the milliseconds that exact code saved")
@click.option("--json", "as_json", is_flag=True, help="print the result as one object")
@click.option("--html", "page", type=path_type, help="write one HTML page")
def explain_command(
    artifact: Path, sizes: tuple[str, ...], profiles: tuple[Path, ...], strategy: Strategy | None,
    measure: bool, as_json: bool, page: Path | None,
) -> None:  # fmt: skip
    """Report the hits and misses of each call site.

    It names the cause of each miss. ARTIFACT is called on random data at --sizes and at the sizes of
    profiles.
    """
    from .. import load
    from ..vm.files import write_text

    with load(artifact, strategy=strategy) as exe:
        _warm(exe, sizes, profiles)
        found = exe.explain(measure)
    if page is not None:
        write_text(page, found.html())
        click.echo(page)
    else:
        show(found.json() if as_json else found.text())


@click.command("profile")
@artifact_argument
@inputs_option
@sizes_option
@profile_option
@strategy_option
@click.option(
    "--calls", type=click.IntRange(min=1), default=10, show_default=True, help="calls at each shape"
)
@click.option("--threads", type=click.IntRange(min=0), help="threads that run kernels; 0: one per CPU")
@click.option("--trace", type=path_type, help="write a Chrome trace, for ui.perfetto.dev")
@click.option("--html", "html_page", type=path_type, help="write one HTML page")
@click.option("--json", "as_json", is_flag=True, help="print the result as one object")
def profile_command(
    artifact: Path, inputs: tuple[str, ...], sizes: tuple[str, ...], profiles: tuple[Path, ...],
    strategy: Strategy | None, calls: int, threads: int | None, trace: Path | None,
    html_page: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Call ARTIFACT and report the time of each kernel.

    For each kernel it prints the model's line, the time, the variant and the share of the machine's limits.
    Inputs are read from files, or drawn at random at --sizes.
    """
    from .. import load, set_threads
    from ..vm.files import write_text

    if threads is not None:
        set_threads(threads)
    with load(artifact, strategy=strategy) as exe, shown_progress() as progress:
        calls_of = _inputs_of(exe, inputs, sizes, profiles)
        for index, values in enumerate(calls_of):
            progress("warm up", index, len(calls_of))
            exe.run(values)
        exe.wait_until_specialised()
        with exe.profile() as found:
            for index in range(calls * len(calls_of)):
                progress("call", index, calls * len(calls_of))
                exe.run(calls_of[index % len(calls_of)])
            progress("measure the machine", 0, 1)
        text = found.to_json() if as_json else found.text()
        html = found.html() if html_page is not None else ""
    if html_page is not None:
        write_text(html_page, html)
    if trace is not None:
        found.to_chrome_trace(trace)
    show(text)


@click.command("freeze")
@artifact_argument
@sizes_option
@profile_option
@output_option
def freeze_command(artifact: Path, sizes: tuple[str, ...], profiles: tuple[Path, ...], output: Path) -> None:
    """Write ARTIFACT with exact kernels for some sizes.

    Kernels in the disk cache are not compiled again.
    """
    from ..compiler.packages import check_kernel_compiler
    from ..specialise.bake import all_exact
    from ..specialise.buckets import add_cells, cells
    from ..vm.artifact import read_verified

    check_kernel_compiler()
    program = read_verified(artifact)
    if program.symbols and not (sizes or profiles):
        raise click.UsageError(
            f"no sizes are given: give --sizes {example_of(program.symbols)}, or --profile"
        )
    store = store_of(program)
    for text in sizes:
        values = {name: [value] for name, value in parse_sizes(text).items()}
        program = add_cells(program, store, cells(values, program.symbols))
    for path in profiles:
        program = all_exact(program, store, merged([path]))
    counts = {"compiled": store.stats.compiled, "from_cache": store.stats.from_cache}
    say("{compiled} kernels compiled, {from_cache} from the cache".format(**counts), **counts)
    saved(program, output)


@click.command("merge")
@click.argument("profiles", nargs=-1, required=True, type=existing)
@output_option
def merge_command(profiles: tuple[Path, ...], output: Path) -> None:
    """Add up PROFILES of one program."""
    from ..calls.profiles import write

    whole = merged(profiles)
    write(whole, output)
    counts = {"calls": whole.n_calls, "sizes": len(whole.sizes)}
    say(f"{output}: {whole.n_calls:,} calls at {len(whole.sizes):,} sizes", file=str(output), **counts)


@click.command("bake")
@artifact_argument
@click.argument("profiles", nargs=-1, required=True, type=existing)
@click.option(
    "--budget", required=True, metavar="BYTES", help="most bytes that the kernels may have, such as 2MB"
)
@click.option(
    "--measure/--no-measure",
    default=True,
    show_default=True,
    help="run sample kernels first, to measure their times",
)
@output_option
def bake_command(
    artifact: Path, profiles: tuple[Path, ...], budget: str, measure: bool, output: Path
) -> None:
    """Write ARTIFACT with the most useful kernels.

    They are those that save most time within --budget bytes. PROFILES give the sizes of the program's calls
    and their counts.
    """
    from ..compiler.packages import check_kernel_compiler
    from ..specialise.bake import bake
    from ..vm.artifact import read_verified

    check_kernel_compiler()
    program = read_verified(artifact)
    baked = bake(program, merged(profiles), store_of(program), parse_bytes(budget), measure)
    say(baked.text(), **baked.data())
    saved(baked.program, output)


@click.command("tune")
@artifact_argument
@click.option("--profile", "profiles", multiple=True, required=True, type=existing, help="sizes to tune for")
@click.option(
    "--seconds", type=click.FloatRange(min=0), default=60.0, show_default=True, help="time to measure in"
)
@click.option("-o", "--output", type=path_type, help="the file to write; default: ARTIFACT itself")
def tune_command(artifact: Path, profiles: tuple[Path, ...], seconds: float, output: Path | None) -> None:
    """Measure schedules of ARTIFACT's kernels.

    They are measured at the sizes of profiles, beginning with the kernels that take most time. Ctrl-C ends
    the search; schedules found so far are kept in the artifact and in the cache directory.
    """
    from ..compiler.packages import check_kernel_compiler
    from ..specialise.tune import tune
    from ..vm.artifact import read_verified

    check_kernel_compiler()
    program = read_verified(artifact)
    with shown_progress() as progress:
        tuned = tune(
            program, merged(profiles), store_of(program), seconds,
            lambda done, total, what: progress("measure schedules", done, total),
        )  # fmt: skip
    say(tuned.text(), **tuned.data())
    saved(tuned.program(program), output or artifact)


COMMANDS = (profile_command, explain_command, freeze_command, merge_command, bake_command, tune_command)
