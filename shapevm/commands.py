"""Commands about what a program does with the shapes it meets: explain, freeze, merge, bake, stress."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import parse_sizes
from .settings import STRATEGIES, settings

if TYPE_CHECKING:
    from .executable import Executable
    from .profiles import Profile
    from .vm.program import Program

MAX_REPLAYS = 8  # calls that explain makes at one tuple of sizes of a profile

_UNITS = {"": 1, "b": 1, "kb": 1000, "mb": 1000**2, "kib": 1 << 10, "mib": 1 << 20}

path_type = click.Path(path_type=Path)
existing = click.Path(exists=True, dir_okay=False, path_type=Path)
artifact_argument = click.argument("artifact", type=existing)
output_option = click.option("-o", "--output", type=path_type, required=True, help="the file to write")
sizes_option = click.option(
    "--sizes", multiple=True, metavar="NAME=N,...", help="sizes to be called at (repeatable)"
)
profile_option = click.option(
    "--profile", "profiles", multiple=True, type=existing, help="sizes of a profile"
)
strategy_option = click.option("--strategy", type=click.Choice(STRATEGIES), help="default: the setting")


def parse_bytes(text: str) -> int:
    """Return 2000000 from "2MB"."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) *([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS:
        raise click.UsageError(f"budget {text!r} must look like 2MB, 500kB or 64KiB")
    return int(float(match[1]) * _UNITS[match[2]])


def _merged(paths: Sequence[Path]) -> Profile:
    from .profiles import merge, read

    return merge(map(read, paths))


def _saved(program: Program, path: Path) -> None:
    """Write an artifact, which may be the one that the program was read from."""
    from .vm.artifact import write

    write(program, path)
    click.echo(f"{path}: {path.stat().st_size:,} bytes")


def _store(program: Program) -> Any:
    """Return a store for the target of the artifact's code."""
    from .jit.llvm.target import TARGETS, runs_here
    from .specialise import open_store

    targets = {o.target for kernel in program.kernels for o in kernel.objects}
    return open_store(next((name for name in TARGETS if name in targets and runs_here(name)), None))


def _warm(exe: Executable, sizes: Sequence[str], profiles: Sequence[Path]) -> None:
    """Call a program at sizes, and at those of profiles, on made-up data."""
    from .samples import sample_inputs

    wanted = [(parse_sizes(text), MAX_REPLAYS) for text in sizes]
    for path in profiles:
        profile = _merged([path])
        wanted += [
            (dict(zip(profile.symbols, values, strict=True)), min(calls.count, MAX_REPLAYS))
            for values, calls in profile.sizes.items()
        ]
    for values, count in wanted:
        if set(values) != {s.name for s in exe.machine.symbols}:
            raise click.UsageError(
                f"sizes must be given for {', '.join(s.name for s in exe.machine.symbols)}"
            )
        inputs = sample_inputs(exe.machine.inputs, exe.machine.symbols, values)
        for _ in range(count):
            exe.machine.call(inputs)
    exe.wait_until_specialised()


@click.command("explain")
@artifact_argument
@sizes_option
@profile_option
@strategy_option
@click.option("--measure", is_flag=True, help="run kernels to tell the milliseconds that exact code saved")
@click.option("--json", "as_json", is_flag=True, help="machine-readable")
@click.option("--html", "page", type=path_type, help="write one HTML page")
def explain_command(
    artifact: Path, sizes: tuple[str, ...], profiles: tuple[Path, ...], strategy: str | None,
    measure: bool, as_json: bool, page: Path | None,
) -> None:  # fmt: skip
    """Call ARTIFACT at sizes, on made-up data, and tell what every call site did and why it missed."""
    from . import load
    from .files import write_text

    with load(artifact, strategy=strategy) as exe:
        _warm(exe, sizes, profiles)
        found = exe.explain(measure)
    if page is not None:
        write_text(page, found.html())
        click.echo(page)
    else:
        click.echo(found.json() if as_json else found.text(), nl=False)


@click.command("freeze")
@artifact_argument
@sizes_option
@profile_option
@output_option
def freeze_command(artifact: Path, sizes: tuple[str, ...], profiles: tuple[Path, ...], output: Path) -> None:
    """Write ARTIFACT with exact kernels for these sizes; those in the disk cache are taken as they are."""
    from .bake import all_exact
    from .buckets import add_keys, cells, keys_of
    from .specialise import check_kernel_compiler
    from .vm.artifact import read

    check_kernel_compiler()
    program = read(artifact)
    store = _store(program)
    for text in sizes:
        values = {name: [value] for name, value in parse_sizes(text).items()}
        program = add_keys(program, store, keys_of(program, cells(values, program.symbols)))
    for path in profiles:
        program = all_exact(program, store, _merged([path]))
    click.echo(f"{store.stats.compiled} kernels compiled, {store.stats.from_cache} from the cache")
    _saved(program, output)


@click.command("merge")
@click.argument("profiles", nargs=-1, required=True, type=existing)
@output_option
def merge_command(profiles: tuple[Path, ...], output: Path) -> None:
    """Add PROFILES of one program up."""
    from .profiles import write

    merged = _merged(profiles)
    write(merged, output)
    click.echo(f"{output}: {merged.n_calls:,} calls at {len(merged.sizes):,} sizes")


@click.command("bake")
@artifact_argument
@click.argument("profiles", nargs=-1, required=True, type=existing)
@click.option("--budget", required=True, metavar="BYTES", help="of the kernels, such as 2MB")
@click.option("--measure/--no-measure", default=True, show_default=True, help="run sample kernels first")
@output_option
def bake_command(
    artifact: Path, profiles: tuple[Path, ...], budget: str, measure: bool, output: Path
) -> None:
    """Write ARTIFACT with the kernels that PROFILES make worth their bytes."""
    from .bake import bake
    from .specialise import check_kernel_compiler
    from .vm.artifact import read

    check_kernel_compiler()
    program = read(artifact)
    baked = bake(program, _merged(profiles), _store(program), parse_bytes(budget), measure)
    click.echo(baked.text())
    _saved(baked.program, output)


@click.command("tune")
@artifact_argument
@click.option("--profile", "profiles", multiple=True, required=True, type=existing, help="sizes to tune for")
@click.option("--seconds", type=click.FloatRange(min=0), default=60.0, show_default=True)
@click.option("-o", "--output", type=path_type, help="the file to write; default: ARTIFACT itself")
def tune_command(artifact: Path, profiles: tuple[Path, ...], seconds: float, output: Path | None) -> None:
    """Measure schedules of ARTIFACT's kernels at the sizes of profiles, what takes most time first.

    Ctrl-C ends it: what was found so far is kept, in the artifact and in the cache directory.
    """
    from rich.progress import Progress

    from .specialise import check_kernel_compiler
    from .tune import tune
    from .vm.artifact import read

    check_kernel_compiler()
    program = read(artifact)
    with Progress(transient=True) as progress:
        bar = progress.add_task("")

        def notify(done: int, total: int, what: str) -> None:
            progress.update(bar, completed=done, total=total, description=what)

        tuned = tune(program, _merged(profiles), _store(program), seconds, notify)
    click.echo(tuned.text())
    _saved(tuned.program(program), output or artifact)


@click.command("stress")
@artifact_argument
@click.option("--seconds", type=click.FloatRange(min=0.1), default=10.0, show_default=True)
@click.option("--threads", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--shapes", type=click.IntRange(min=100), help="instead: this many distinct shapes, once each")
def stress_command(artifact: Path, seconds: float, threads: int, seed: int, shapes: int | None) -> None:
    """Throw streams of shapes at ARTIFACT while code is evicted and compilations fail; exit 1 if any result
    differs from the generic tier's. With --shapes: exit 1 if resident memory grows.
    """
    from .stress import MAX_GROWTH, many_shapes, stress

    if shapes is not None:
        flat = many_shapes(artifact, shapes, settings.code_mib << 20)
        click.echo(flat.text())
        raise SystemExit(flat.growth > MAX_GROWTH)
    report = stress(artifact, seconds, threads, seed)
    click.echo(report.text())
    raise SystemExit(bool(report.problems))


@click.command("prove")
@artifact_argument
@click.option("--inputs", type=existing, metavar="FILE.npz", help="these inputs, not random ones")
@sizes_option
@profile_option
@click.option("--seconds", type=click.FloatRange(min=0), default=10.0, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--pad", "pads", multiple=True, metavar="SIZE[=MASK]",
    help="a size that is padded, and the input that masks it (repeatable); default: by inputs named mask",
)  # fmt: skip
@click.option("--no-pad", is_flag=True, help="no size is padded")
@click.option("--json", "as_json", is_flag=True, help="machine-readable")
def prove_command(
    artifact: Path, inputs: Path | None, sizes: tuple[str, ...], profiles: tuple[Path, ...], seconds: float,
    seed: int, pads: tuple[str, ...], no_pad: bool, as_json: bool,
) -> None:  # fmt: skip
    """Compare the results of ARTIFACT bit by bit: all tiers, thread counts, saved and loaded, in the runner;
    rows alone, permuted, in other batches, padded. Say which operators, at which lines, make results depend
    on more than their row. Exit 1 if any bit differs.
    """
    import json

    from .files import read_inputs
    from .prove import Padding, prove
    from .vm.artifact import read

    given = None
    if inputs is not None:
        given = read_inputs([str(inputs)], read(artifact).inputs)
    wanted: list[dict[str, int]] = [parse_sizes(text) for text in sizes]
    for path in profiles:
        profile = _merged([path])
        wanted += [dict(zip(profile.symbols, values, strict=True)) for values in profile.sizes]
    padded = [Padding(name, mask or None) for name, _, mask in (text.partition("=") for text in pads)]
    found = prove(artifact, given, wanted, seconds, padded if pads or no_pad else None, seed)
    click.echo(json.dumps(found.json(), indent=1) if as_json else found.text())
    raise SystemExit(not found.is_proved)


@click.command("digest")
@click.argument("file", type=existing)
def digest_command(file: Path) -> None:
    """Print the digest of FILE, its SHA-256, as shapevm.load(digest=...) and shapevm-run --digest take it."""
    from .trust import digest

    click.echo(digest(file))


@click.command("sign")
@click.argument("file", type=existing)
@click.option("--key", type=existing, required=True, help="an Ed25519 private key in PEM")
def sign_command(file: Path, key: Path) -> None:
    """Sign FILE: write FILE.sig beside it. Make a key with: openssl genpkey -algorithm ed25519 -out key.pem;
    its public half with: openssl pkey -in key.pem -pubout -out key.pub."""
    from .trust import sign

    click.echo(sign(file, key))


@click.command("verify")
@click.argument("file", type=existing)
@click.option("--trust", "key", type=existing, help="an Ed25519 public key in PEM that made FILE.sig")
@click.option("--digest", "wanted", help="the SHA-256 that FILE must have")
def verify_command(file: Path, key: Path | None, wanted: str | None) -> None:
    """Check FILE: its structure, every hash, its bytecode; and its signature or digest. Nothing runs."""
    from .trust import check_artifact

    click.echo(f"{file}: sound, SHA-256 {check_artifact(file, key, wanted)}")


COMMANDS = (
    explain_command, freeze_command, merge_command, bake_command, tune_command, stress_command,
    prove_command, digest_command, sign_command, verify_command,
)  # fmt: skip
