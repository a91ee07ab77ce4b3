"""From a model to an artifact: compile, show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..build.options import Options, check_options, parse_sizes
from ..vm.literals import printable, printable_lines
from .flags import flag, option_flags, with_flags
from .shared import MODEL_HELP, is_json, model_argument, path_type, say, say_files, shown_progress

if TYPE_CHECKING:
    from ..build.build import Progress
    from ..program.executable import Executable


_NO_CACHE = "--cache-tokens and --cache are of language models: a folder or a GGUF file"


@click.command("compile", help=f"Compile MODEL to an artifact.\n\n{MODEL_HELP}")
@model_argument
@click.option(
    "-o",
    "--output",
    type=path_type,
    required=True,
    help="the .svm file to write, or an .svmir file for only the graph, as text",
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=TYPE",
    help='an input\'s name and type, such as "x=f32[batch, 16]" (repeatable, in order)',
)
@click.option(
    "--cache-tokens",
    type=click.IntRange(1, (1 << 24) - 1),
    help="of a language model: the tokens of all its sequences whose keys and values are kept; default: 4096",
)
@click.option(
    "--cache",
    type=click.Choice(["f32", "bf16", "int8"]),
    help="of a language model: how keys and values are kept; default: f32",
)
@option_flags
def compile_command(
    model: str,
    output: Path,
    inputs: tuple[str, ...],
    cache_tokens: int | None,
    cache: str | None,
    **flags: Any,
) -> None:
    """Compile a model. `flags`: see `cli.flags`."""
    from .. import compile
    from ..build.model import load_model
    from ..calls.checks import GRAPH_SUFFIX, check_suffix, is_onnx
    from ..compiler.packages import check_compiler, check_onnx_compiler

    (check_onnx_compiler if is_onnx(model) else check_compiler)()
    check_suffix(output)
    with shown_progress() as progress:
        progress("load the model", 0, 1)
        if Path(model).is_dir() or model.endswith(".gguf"):
            if inputs or output.suffix == GRAPH_SUFFIX:
                raise click.UsageError("MODEL is a text model: give no --input, and an .svm file as output")
            of_cache = {"cache_tokens": cache_tokens, "cache": cache}
            exe = _compile_folder(Path(model), of_cache, with_flags(Options(), flags), output)
        elif cache_tokens is not None or cache is not None:
            raise click.UsageError(_NO_CACHE)
        else:
            arguments = load_model(model, inputs)
            options = with_flags(check_options(arguments.pop("options", None)), flags)
            if output.suffix == GRAPH_SUFFIX:
                _write_graph(arguments, options, output, progress)
                return
            exe = compile(**arguments, options=options, strategy="generic", progress=progress)
            exe.save(output)
    size = output.stat().st_size
    shown = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"
    files = [{"path": str(output), "bytes": size}]
    say(f"{output}: {shown}, {exe.summary()}", files=files, summary=exe.summary())


def _compile_folder(folder: Path, of_cache: dict[str, Any], options: Options, output: Path) -> Executable:
    """Compile the text model or the language model, with a cache, of a folder of Hugging Face, or a GGUF
    file."""
    from ..llm.folder import is_language_model

    if is_language_model(folder):
        from ..llm import from_pretrained

        model = from_pretrained(folder, **of_cache, options=options)
        model.save(output)
        return model.exe
    if any(each is not None for each in of_cache.values()):
        raise click.UsageError(_NO_CACHE)
    from ..text import open_text_model

    opened = open_text_model(folder, options, "generic")
    opened.save(output)
    return opened.executable


def _write_graph(arguments: dict[str, Any], options: Options, output: Path, progress: Progress) -> None:
    from ..build.compile import compiled_graph
    from ..build.text_files import write_files

    say_files(write_files(output, *compiled_graph(arguments, options, progress)))


@click.command(
    "show",
    help=f"Print the stages of a compilation.\n\nBy default: a line per pass, then bytecode.\n\n{MODEL_HELP}",
)
@model_argument
@click.option(
    "--stage",
    "--after",
    "names",
    multiple=True,
    help="print only these stages, in full: import, a pass, lowered, bytecode, llvm, asm (repeatable)",
)
@click.option("--diff", is_flag=True, help="print the changes of each pass instead of one line")
@click.option(
    "--kernel",
    type=int,
    default=0,
    show_default=True,
    help="number of the kernel for the stages llvm and asm",
)
@click.option(
    "--sizes",
    metavar="NAME=N,...",
    help="print llvm and asm of the exact kernel for these sizes instead of the generic one",
)
@flag("target")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="write the stages in full, as numbered files, to this folder",
)
def show_command(
    model: str,
    names: tuple[str, ...],
    diff: bool,
    kernel: int,
    sizes: str | None,
    target: tuple[str, ...],
    output: Path | None,
) -> None:
    """Show the stages of a compilation."""
    from ..compiler.packages import check_compiler

    check_compiler()
    from ..build.model import load_model
    from ..build.show import PRINTED, STAGES, all_stages, sections, write_stages

    wanted = names or (PRINTED if output is None else STAGES)
    chosen = parse_sizes(sizes) if sizes else None
    with shown_progress() as progress:
        progress("load the model", 0, 1)
        arguments = load_model(model)
        arguments["options"] = with_flags(check_options(arguments.get("options")), {"target": target})
        stages = all_stages(arguments, wanted, kernel, chosen, progress)
    if output is not None:
        paths = [str(path) for path in write_stages(stages, output)]
        say("\n".join(paths), files=paths)
        return
    colors = {"-": "red", "+": "green"} if diff and not names else {}
    found = list(sections(stages, whole=bool(names), diff=diff))
    if is_json():
        say("", stages=[{"title": title, "text": text} for title, text in found])
        return
    for title, text in found:
        click.secho(f"=== {printable(title)}", bold=True)
        for line in text.splitlines():
            click.secho(printable_lines(line), fg=colors.get(line[:1]))
        click.echo()


COMMANDS = (compile_command, show_command)
