"""The command that serves an artifact over HTTP."""

from __future__ import annotations

from dataclasses import Field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..serve.limits import Limits
from .shared import (
    FAILED,
    NOT_LOADED,
    USAGE,
    failing,
    failure,
    is_source,
    loaded,
    loading_options,
    model_or_folder,
)

if TYPE_CHECKING:
    from ..llm import LanguageModel
    from ..program.executable import Executable
    from ..serve.models import Service


def _limit_option(row: Field[Any]) -> Any:
    least, kind = row.metadata["least"], type(row.default)
    number = click.IntRange(min=least) if kind is int else click.FloatRange(min=least)
    flag = f"--{row.name.replace('_', '-')}"
    return click.option(
        flag, type=number, default=row.default, show_default=True, help=row.metadata["meaning"]
    )


def _limit_options(command: Any) -> Any:
    for row in reversed(fields(Limits)):
        command = _limit_option(row)(command)
    return command


def _name(ctx: click.Context, parameter: click.Parameter, name: str | None) -> str | None:
    if name is not None and (not name.isprintable() or "/" in name or not name):
        raise click.BadParameter(f"{name!r} must be text without a slash")
    return name


@click.command("serve")
@click.argument("artifact", type=click.Path(path_type=Path), callback=model_or_folder)
@click.option("--name", callback=_name, help="the model's name in requests; default: the file's name")
@click.option("--host", default="127.0.0.1", show_default=True, help="the address to listen at")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0: a free one")
@click.option("--uds", type=click.Path(path_type=Path), help="listen at this Unix socket instead")
@click.option(
    "--log", type=click.Choice(["text", "json"]), default="text", show_default=True, help="form of the log"
)
@_limit_options
@loading_options
def serve_command(
    artifact: Path, name: str | None, host: str, port: int, uds: Path | None, log: str, **options: Any
) -> None:
    """Serve ARTIFACT over HTTP.

    ARTIFACT may be the folder of a language model. Any program: the Open Inference Protocol (/v2). Programs
    of texts: OpenAI's embeddings, reranking, and the routes of text-embeddings-inference. Language models:
    OpenAI's chat completions. docs/serve.md describes them. SIGTERM ends the server when its requests are
    answered.
    """
    try:
        from ..serve.logs import set_up
        from ..serve.server import serve
    except ModuleNotFoundError as error:
        raise failure(f"{error.name} is not installed: pip install 'shapevm[serve]'", FAILED) from None

    limits = Limits(**{row.name: options.pop(row.name) for row in fields(Limits)})
    set_up(log)
    if is_source(artifact):
        if given := [f"--{option.replace('_', '-')}" for option, value in options.items() if value]:
            raise failure(f"{given[0]} is an option of artifacts, and {artifact} is none", USAGE)
        service = _conversing(artifact, name, limits)
    else:
        service = _service(loaded(artifact, **options), name, limits)
    serve(service, host, port, uds)


def _conversing(folder: Path, name: str | None, limits: Limits) -> Service:
    """Compile the language model of a folder, and return its service."""
    from ..llm import from_pretrained

    with failing(NOT_LOADED):
        return _service_of(from_pretrained(folder), name, limits)


def _service_of(model: LanguageModel, name: str | None, limits: Limits) -> Service:
    from ..serve.models import Service

    model.name = model.name if name is None else name
    return Service(model.exe, model.name, limits, language=model)


def _service(exe: Executable, name: str | None, limits: Limits) -> Service:
    if "language" in exe.machine.meta:
        from ..llm.opening import loaded as loaded_model

        with failing(NOT_LOADED):
            return _service_of(loaded_model(exe), name, limits)
    from ..serve.inference import unsupported
    from ..serve.models import Service

    problem = unsupported(exe)
    if problem is not None:
        raise failure(problem, FAILED)
    text = None
    if "text" in exe.machine.meta:
        from ..text import open_text_model

        text = open_text_model(exe)
    return Service(exe, exe.name if name is None else name, limits, text)


COMMANDS = (serve_command,)
