"""Checks of artifacts: stress, prove, digest, sign, verify."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ..build.options import parse_sizes
from ..settings import settings
from .shared import (
    artifact_argument,
    existing,
    is_source,
    model_or_folder,
    profile_option,
    recorded_sizes,
    say,
    show,
    sizes_option,
)


@click.command("stress")
@artifact_argument
@click.option(
    "--seconds", type=click.FloatRange(min=0.1), default=10.0, show_default=True, help="duration of the test"
)
@click.option(
    "--threads", type=click.IntRange(min=1), default=5, show_default=True, help="number of calling threads"
)
@click.option("--seed", type=int, default=0, show_default=True, help="seed of the random shapes and inputs")
@click.option(
    "--shapes", type=click.IntRange(min=100), help="instead, call at this many distinct shapes, once each"
)
def stress_command(artifact: Path, seconds: float, threads: int, seed: int, shapes: int | None) -> None:
    """Call ARTIFACT at many shapes under stress.

    Several threads call it while code is evicted and compilations fail. The exit code is 1 if any result
    differs from the generic tier's or, with --shapes, if resident memory grows by more than 5 % and
    8 MiB.
    """
    from ..promises.stress import many_shapes, stress

    if shapes is not None:
        flat = many_shapes(artifact, shapes, settings.code_mib << 20)
        say(flat.text(), **asdict(flat))
        raise SystemExit(flat.has_failed)
    report = stress(artifact, seconds, threads, seed)
    say(report.text(), **asdict(report))
    raise SystemExit(bool(report.problems))


@click.command("prove")
@click.argument("artifact", type=click.Path(path_type=Path), callback=model_or_folder)
@click.option("--inputs", type=existing, metavar="FILE.npz", help="use these inputs instead of random ones")
@sizes_option
@profile_option
@click.option(
    "--seconds", type=click.FloatRange(min=0), default=10.0, show_default=True, help="time for random inputs"
)
@click.option("--seed", type=int, default=0, show_default=True, help="seed of the random sizes and inputs")
@click.option(
    "--pad", "pads", multiple=True, metavar="SIZE[=MASK]",
    help="a size to pad, and the input that masks it (repeatable); default: found by inputs named mask",
)  # fmt: skip
@click.option("--no-pad", is_flag=True, help="pad no size")
@click.option(
    "--golden", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.npz",
    help="golden vectors: calls with their results to compare; written if FILE does not exist",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="print the result as one object")
def prove_command(
    artifact: Path, inputs: Path | None, sizes: tuple[str, ...], profiles: tuple[Path, ...], seconds: float,
    seed: int, pads: tuple[str, ...], no_pad: bool, golden: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Compare ARTIFACT's results bit by bit.

    It compares all tiers and thread counts, the saved and loaded program and the runner; rows alone,
    permuted, in other batches and padded; with --golden, results stored by another machine or version. It
    names the operators and lines that make results depend on more than their row. The exit code is 1 if any
    bit differs.

    Of a language model, also of its folder, it compares the logits of requests alone, among others, in parts
    of every size, and from shared pages of the cache.
    """
    import json

    from ..promises.language import prove_language
    from ..promises.prove import Padding, prove
    from ..vm.artifact import read

    if is_source(artifact) or "language" in read(artifact).meta:
        if inputs or sizes or profiles or pads or golden:
            raise click.UsageError("ARTIFACT is a language model: give only --seconds, --seed and --json")
        found = prove_language(artifact, seconds, seed)
    else:
        padded = [Padding(name, mask or None) for name, _, mask in (text.partition("=") for text in pads)]
        pad = padded if pads or no_pad else None
        found = prove(artifact, *_calls(artifact, inputs, sizes, profiles), seconds, pad, seed, golden)
    show(json.dumps(found.json(), indent=1) if as_json else found.text())
    raise SystemExit(not found.is_proved)


def _calls(
    artifact: Path, inputs: Path | None, sizes: Sequence[str], profiles: Sequence[Path]
) -> tuple[dict[str, Any] | None, list[dict[str, int]]]:
    """Return the given inputs, and the given and recorded sizes."""
    from ..program.files import read_inputs
    from ..specialise.bake import identity
    from ..vm.artifact import read

    given = None if inputs is None else read_inputs([str(inputs)], read(artifact).inputs)
    wanted: list[dict[str, int]] = [parse_sizes(text) for text in sizes]
    for path in profiles:
        wanted += [values for values, _ in recorded_sizes(path, identity(read(artifact)))]
    return given, wanted


@click.command("digest")
@click.argument("file", type=existing)
def digest_command(file: Path) -> None:
    """Print the SHA-256 of FILE.

    Use it with shapevm.load(digest=...) and shapevm-run --digest.
    """
    from ..program.trust import digest

    found = digest(file)
    say(found, file=str(file), digest=found)


@click.command("sign")
@click.argument("file", type=existing)
@click.option("--key", type=existing, required=True, help="an Ed25519 private key in PEM")
def sign_command(file: Path, key: Path) -> None:
    """Sign FILE: write FILE.sig beside it.

    Make a key with: openssl genpkey -algorithm ed25519 -out key.pem;
    its public half with: openssl pkey -in key.pem -pubout -out key.pub."""
    from ..program.trust import sign

    signature = str(sign(file, key))
    say(signature, signature=signature)


@click.command("verify")
@click.argument("file", type=existing)
@click.option("--trust", "key", type=existing, help="an Ed25519 public key in PEM that made FILE.sig")
@click.option("--digest", "wanted", help="the SHA-256 that FILE must have")
def verify_command(file: Path, key: Path | None, wanted: str | None) -> None:
    """Check that FILE is valid.

    It checks the structure, every hash, the bytecode and, if given, the signature or digest. Nothing runs.
    """
    from ..program.trust import check_artifact

    found = check_artifact(file, key, wanted)
    say(f"{file}: sound, SHA-256 {found}", file=str(file), digest=found)


COMMANDS = (stress_command, prove_command, digest_command, sign_command, verify_command)
