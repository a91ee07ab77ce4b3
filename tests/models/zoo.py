"""Families of models at dynamic shapes, with random weights: what each needs, and how far it is from eager.

    python -m tests.models.zoo [NAME ...] [--door export] [--page docs/models.md]

`MODELS` is the table. Tests compile the small ones of it; `make models` compiles all, through each door in a
process of its own, and puts what it finds into the page at once: `make models ARGS="bert t5"` does these
rows anew and keeps the others.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from time import process_time
from typing import Any
from unittest import mock

import torch
from torch.export import Dim
from torch.utils._pytree import tree_leaves

import shapevm
from shapevm.pytorch import dynamo
from shapevm.settings import settings

from . import sequences, vision

Sizes = dict[str, int]
#: Greatest difference allowed, as a part of the greatest magnitude of an output, and beyond it.
RELATIVE, ABSOLUTE = 1e-3, 1e-4


@dataclass(frozen=True)
class Model:
    """A model of the zoo.

    `make()`: the module, its weights drawn from torch's generator. `inputs(**sizes)`: keyword arguments of
    these sizes. `dims`: bounds of each size, (min, max) or (min, max, multiple). `axes`: the dynamic axes of
    each argument, nested as the arguments are, with names of `dims`.
    `shapes`: three sizes to compare at; the model is exported at `example`, or at the last of them.
    `automatic`: sizes of which torch.export finds out by itself what must hold of them.
    """

    make: Callable[[], torch.nn.Module]
    inputs: Callable[..., dict[str, Any]]
    dims: Mapping[str, tuple[int, ...]]
    axes: Mapping[str, Any]
    shapes: tuple[Sizes, ...]
    example: Sizes | None = None
    automatic: tuple[str, ...] = ()


@dataclass
class Stopwatch:
    """Processor seconds of compiling, by stage: torch.export's own, what turns its program into kernel specs,
    and generic kernels. It is what `shapevm.compile` calls as work goes on."""

    export: float = 0.0
    lowering: float = 0.0
    kernels: float = 0.0
    _stage: str = ""
    _since: float = field(default_factory=process_time)

    def __call__(self, stage: str, done: int = 0, total: int = 0) -> None:
        """Note that `stage` begins, or, of a pass, has ended."""
        now = process_time()
        if self._stage:
            setattr(self, self._stage, getattr(self, self._stage) + now - self._since)
        known = {"export": "export", "kernels": "kernels", "check sizes 0 and 1": ""}
        self._stage, self._since = known.get(stage, "lowering"), now


@dataclass(frozen=True)
class Report:
    """What became of a model: the operators that PyTorch is called for, by name; its programs and their
    kernels; the greatest difference to eager as a part of the greatest output; the time of compiling."""

    fallbacks: tuple[str, ...]
    n_programs: int
    n_kernels: int
    difference: float
    time: Stopwatch = field(default_factory=Stopwatch)


def dynamic_shapes(model: Model) -> Any:
    """Return `axes` with torch's dims for their names."""
    dims = {name: _dim(name, *bounds) for name, bounds in model.dims.items()}
    dims |= {name: Dim.AUTO(*model.dims[name]) for name in model.automatic}  # type: ignore[operator]
    return _with_dims(model.axes, dims)


def _dim(name: str, low: int, high: int, multiple: int = 1) -> Any:
    if multiple == 1:
        return Dim(name, min=low, max=high)
    return multiple * Dim(f"{name}s", min=low // multiple, max=high // multiple)


def _with_dims(axes: Any, dims: Mapping[str, Any]) -> Any:
    if isinstance(axes, str):
        return dims[axes]
    if isinstance(axes, Mapping):
        return {key: _with_dims(item, dims) for key, item in axes.items()}
    if isinstance(axes, list | tuple):
        return type(axes)(_with_dims(item, dims) for item in axes)
    return axes


def compiled(model: Model, module: torch.nn.Module, **options: Any) -> shapevm.Executable:
    """Return the executable of a model."""
    example = model.inputs(**(model.example or model.shapes[-1]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return shapevm.compile(module, kwargs=example, dynamic_shapes=dynamic_shapes(model), **options)


def made(model: Model) -> torch.nn.Module:
    """Return the module in evaluation mode, with weights that let all of it be seen in its results: what
    would be zero or one everywhere is random, and batch norms know what they get."""
    torch.manual_seed(0)
    module = model.make().eval()
    with torch.no_grad():
        for weight in module.parameters():
            if weight.numel() and weight.min() == weight.max():
                weight.add_(torch.randn_like(weight), alpha=0.1)
        norms = [part for part in module.modules() if isinstance(part, torch.nn.BatchNorm2d)]
        for norm in norms:
            norm.train().momentum = 1.0
        module(**model.inputs(**model.shapes[-1]))
    for norm in norms:
        norm.eval()
    return module


def judged(model: Model) -> Report:
    """Compile a model, compare it with eager at its shapes, and say what it took without a cache: generic
    code at all, exact code at the last."""
    module, time = made(model), Stopwatch()
    with settings.scope(cache=False), compiled(model, module, strategy="generic", progress=time) as exe:
        difference = max(differs(module, exe, model.inputs(**sizes)) for sizes in model.shapes)
        differs(module, exe.using("jit"), model.inputs(**model.shapes[-1]))
        fallbacks = tuple(sorted(exe.machine.externs))
        return Report(fallbacks, 1, len(exe.machine.kernels), difference, time)


@contextmanager
def programs_alone() -> Iterator[list[shapevm.Executable]]:
    """Give the programs that torch.compile makes in the block; a graph or call that PyTorch runs is an
    AssertionError."""
    programs, make = list[shapevm.Executable](), dynamo._executable

    def keep(*args: Any) -> shapevm.Executable:
        programs.append(make(*args))
        return programs[-1]

    torch._dynamo.reset()
    refuse = mock.Mock(side_effect=AssertionError("a graph of the model runs in PyTorch"))
    with mock.patch.object(dynamo, "_executable", keep), mock.patch.object(dynamo._LOG, "warning", refuse):
        yield programs
    torch._dynamo.reset()


def judged_by_dynamo(model: Model) -> Report:
    """The same by `torch.compile`: one graph, from which as many programs are made as PyTorch asks for."""
    module = made(model)
    with programs_alone() as programs, torch.no_grad():
        run = torch.compile(
            module, backend="shapevm", dynamic=True, fullgraph=True, options={"strategy": "generic"}
        )
        difference = 0.0
        for sizes in model.shapes:
            given = model.inputs(**sizes)
            _mark_static(given, model.axes)
            difference = max(difference, differs(module, run, given))
    fallbacks = {name for program in programs for name in program.machine.externs}
    n_kernels = sum(len(program.machine.kernels) for program in programs)
    return Report(tuple(sorted(fallbacks)), len(programs), n_kernels, difference)


def _mark_static(given: Any, axes: Any) -> None:
    """Tell Dynamo which axes of the inputs have one size."""
    if isinstance(given, torch.Tensor):
        torch._dynamo.mark_static(given, [axis for axis in range(given.ndim) if axis not in axes])
    elif isinstance(given, Mapping):
        for key, item in given.items():
            _mark_static(item, axes[key])
    elif isinstance(given, list | tuple):
        for item, of_item in zip(given, axes, strict=True):
            _mark_static(item, of_item)


def differs(module: torch.nn.Module, exe: Callable[..., Any], given: Mapping[str, Any]) -> float:
    """Return the greatest difference of the results to eager's, as a part of the greatest magnitude of an
    output. Raises AssertionError where it is too great or types and shapes differ."""
    with torch.no_grad():
        expected = tree_leaves(module(**given))
    found, greatest = tree_leaves(exe(**given)), 0.0
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        scale = theirs.abs().max().item() if theirs.numel() else 0.0
        torch.testing.assert_close(ours, theirs, rtol=0, atol=RELATIVE * scale + ABSOLUTE)
        if theirs.numel() and scale:
            greatest = max(greatest, (ours - theirs).abs().max().item() / scale)
    return greatest


# The table ------------------------------------------------------------------------------------------


def _image(**sizes: int) -> torch.Tensor:
    return torch.randn(sizes["batch"], 3, sizes["height"], sizes["width"])


def _classifier(
    name: str,
    sides: Sequence[int] = (33, 64, 97),
    fixed: bool = False,
    automatic: bool = False,
    **options: Any,
) -> Model:
    """Return one of torchvision's classifiers: images of any batch and, unless `fixed`, of any sides.
    `automatic`: torch.export finds conditions on the sides, such as those of pooling with rounding up."""
    low, middle, high = sides
    batches = {"batch": (1, 64)}
    dims = batches if fixed else batches | dict.fromkeys(("height", "width"), (low, 512))
    pairs = [(low, middle), (middle, high), (high, low)]
    shapes = [{"batch": n, "height": h, "width": w} for n, (h, w) in enumerate(pairs, 1)]
    if fixed:
        shapes = [{"batch": n} for n in (1, 2, 3)]
    side = {"height": high, "width": high} if fixed else {}
    return Model(
        make=vision.make(name, **options),
        inputs=lambda **sizes: {"x": _image(**sizes, **side)},
        dims=dims,
        axes={"x": {0: "batch"} if fixed else {0: "batch", 2: "height", 3: "width"}},
        shapes=tuple(shapes),
        automatic=("height", "width") if automatic else (),
    )


CLASSIFIERS: dict[str, Model] = {
    "resnet18": _classifier("resnet18"),
    "squeezenet1_0": _classifier("squeezenet1_0", automatic=True),
    "vgg11": _classifier("vgg11"),
    "mobilenet_v2": _classifier("mobilenet_v2"),
    "densenet121": _classifier("densenet121"),
    "inception_v3": _classifier("inception_v3", (80, 113, 150), aux_logits=False, init_weights=False),
    "alexnet": _classifier("alexnet", (64, 97, 130)),
    "googlenet": _classifier("googlenet", automatic=True, aux_logits=False, init_weights=False),
    "mnasnet1_0": _classifier("mnasnet1_0"),
    "shufflenet_v2_x1_0": _classifier("shufflenet_v2_x1_0"),
    "vit_b_16": _classifier("vit_b_16", (224, 224, 224), fixed=True),
    "swin_t": _classifier("swin_t", (224, 224, 224), fixed=True),  # its windows depend on the sides
    "efficientnet_b0": _classifier("efficientnet_b0"),
}
#: The same families in sizes that compile in seconds.
SMALL_CLASSIFIERS: dict[str, Model] = {
    "resnet18": _classifier("resnet18"),
    "mobilenet_v2": _classifier("mobilenet_v2", width_mult=0.25),
    "densenet": _classifier("DenseNet", growth_rate=8, block_config=(2, 2), num_init_features=16),
    "vit": _classifier(
        "VisionTransformer", (32, 32, 32), fixed=True, image_size=32, patch_size=8, num_layers=2, num_heads=4,
        hidden_dim=32, mlp_dim=64,
    ),
    "swin": _classifier(
        "SwinTransformer", (33, 33, 33), fixed=True, patch_size=[4, 4], embed_dim=24, depths=[2, 2],
        num_heads=[2, 4], window_size=[4, 4],
    ),
}  # fmt: skip

_TEXT = {"batch": (1, 32), "length": (1, 64)}
_TEXTS = ({"batch": 1, "length": 1}, {"batch": 3, "length": 17}, {"batch": 2, "length": 40})
_TOKENS = {0: "batch", 1: "length"}
_MASKED = {"input_ids": _TOKENS, "attention_mask": _TOKENS}
_IMAGES = {"batch": (1, 32), "height": (16, 128), "width": (16, 128)}
_PIXELS = {0: "batch", 2: "height", 3: "width"}


def _text(make: Callable[[], torch.nn.Module]) -> Model:
    """Return a model of token ids and their mask."""
    return Model(make, sequences.masked, _TEXT, _MASKED, _TEXTS)


def _two_texts(batch: int, length: int, target: int) -> dict[str, torch.Tensor]:
    return sequences.masked(batch, length) | {"decoder_input_ids": sequences.tokens(batch, target)}


def _spectra(batch: int, target: int) -> dict[str, torch.Tensor]:
    return {
        "input_features": torch.randn(batch, 16, 60),
        "decoder_input_ids": sequences.tokens(batch, target),
    }


def _patches(batch: int, height: int, width: int) -> dict[str, Any]:
    image = torch.randn(batch, 3, 8 * (height // 8), 8 * (width // 8))
    return {"pixel_values": image, "interpolate_pos_encoding": True}


def _pairs(texts: int, length: int, images: int) -> dict[str, torch.Tensor]:
    return sequences.masked(texts, length) | {"pixel_values": torch.randn(images, 3, 32, 32)}


def _pixels(batch: int, height: int, width: int) -> dict[str, torch.Tensor]:
    mask = torch.ones(batch, height, width, dtype=torch.long)
    mask[1:, height - height // 4 :] = 0
    return {"pixel_values": torch.randn(batch, 3, height, width), "pixel_mask": mask}


TRANSFORMERS: dict[str, Model] = {
    "bert": _text(sequences.bert),
    "gpt2": _text(sequences.Decoder),
    "gpt2 with a cache": Model(
        make=sequences.CachedDecoder,
        inputs=sequences.with_past,
        dims={"batch": (1, 32), "past": (1, 60), "length": (1, 60)},
        axes={"input_ids": _TOKENS, "past": [({0: "batch", 2: "past"}, {0: "batch", 2: "past"})] * 2},
        shapes=(
            {"batch": 1, "past": 5, "length": 1},
            {"batch": 1, "past": 1, "length": 7},
            {"batch": 3, "past": 9, "length": 4},
        ),
    ),
    "llama": _text(sequences.llama),
    "t5": Model(
        make=sequences.t5,
        inputs=_two_texts,
        dims=_TEXT | {"target": (1, 64)},
        axes=_MASKED | {"decoder_input_ids": {0: "batch", 1: "target"}},
        shapes=tuple(sizes | {"target": n} for sizes, n in zip(_TEXTS, (1, 5, 23), strict=True)),
    ),
    "whisper": Model(
        make=sequences.whisper,
        inputs=_spectra,
        dims={"batch": (1, 32), "target": (1, 60)},
        axes={"input_features": {0: "batch"}, "decoder_input_ids": {0: "batch", 1: "target"}},
        shapes=({"batch": 1, "target": 1}, {"batch": 3, "target": 17}, {"batch": 2, "target": 6}),
    ),
    "vit": Model(
        make=sequences.vit,
        inputs=_patches,
        dims={"batch": (1, 32), "height": (16, 128, 8), "width": (16, 128, 8)},
        axes={"pixel_values": _PIXELS, "interpolate_pos_encoding": None},
        shapes=(
            {"batch": 1, "height": 16, "width": 56},
            {"batch": 3, "height": 40, "width": 40},
            {"batch": 2, "height": 48, "width": 24},
        ),
    ),
    "mamba": Model(
        make=sequences.mamba,
        inputs=lambda batch: {"input_ids": sequences.tokens(batch, 12)},  # it loops over a length of its own
        dims={"batch": (1, 32)},
        axes={"input_ids": {0: "batch"}},
        shapes=({"batch": 1}, {"batch": 3}, {"batch": 2}),
    ),
    "wav2vec2": Model(
        make=sequences.wav2vec2,
        inputs=lambda batch, samples: {"input_values": torch.randn(batch, samples)},
        dims={"batch": (1, 32), "samples": (400, 8000)},
        axes={"input_values": {0: "batch", 1: "samples"}},
        shapes=({"batch": 1, "samples": 400}, {"batch": 3, "samples": 1234}, {"batch": 2, "samples": 3001}),
    ),
    "clip": Model(
        make=sequences.clip,
        inputs=_pairs,
        dims={"texts": (1, 32), "length": (1, 64), "images": (1, 32)},
        axes={
            "input_ids": {0: "texts", 1: "length"},
            "attention_mask": {0: "texts", 1: "length"},
            "pixel_values": {0: "images"},
        },
        shapes=(
            {"texts": 1, "length": 1, "images": 1},
            {"texts": 3, "length": 17, "images": 2},
            {"texts": 2, "length": 40, "images": 5},
        ),
    ),
    "detr": Model(
        make=sequences.detr,
        inputs=_pixels,
        dims=_IMAGES,
        axes={"pixel_values": _PIXELS, "pixel_mask": {0: "batch", 1: "height", 2: "width"}},
        shapes=(
            {"batch": 1, "height": 32, "width": 47},
            {"batch": 3, "height": 64, "width": 64},
            {"batch": 2, "height": 97, "width": 65},
        ),
    ),
}
MODELS = CLASSIFIERS | TRANSFORMERS


# The page -------------------------------------------------------------------------------------------


def main() -> None:
    """Judge models and put their rows into the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only these models")
    parser.add_argument("--door", action="append", choices=DOORS, help="only what this door makes of them")
    parser.add_argument("--page", type=Path, help="put the rows here")
    options = parser.parse_args()
    for name in options.names or MODELS:
        for door in options.door or DOORS:
            cells = _cells(door, name)
            print(name, door, *cells, sep=" | ", flush=True)
            if options.page:
                put(options.page, name, door, cells)


def put(page: Path, name: str, door: str, cells: Sequence[str]) -> None:
    """Write the page with what a door makes of a model in place of what it has."""
    text = page.read_text() if page.exists() else ""
    rows = _rows(text)
    row = rows.setdefault(name, ["not run", "", "", "", "", "", "not run", "", ""])
    row[DOORS[door][1]] = cells
    missing = [other for other in MODELS if other not in rows]
    last = [f"\nWithout a row: {', '.join(missing)}."] if missing else []
    lines = [f"| {n} | {' | '.join(rows[n])} |" for n in MODELS if n in rows]
    others = "\n" + text[text.index(OTHERS) :] if OTHERS in text else ""
    page.write_text("\n".join([HEAD + "\n".join(lines), *last]) + "\n" + others)


def _rows(text: str) -> dict[str, list[str]]:
    """Return the cells of a page's rows by model."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "|" in line]
    return {name: cells for name, *cells in rows if name in MODELS}


OTHERS = "## Other people's packages"  #: from here on another command writes
HEAD = """# Models

Families of models with random weights (`tests/models/zoo.py`), compiled with dynamic batches, sides and
lengths and compared with eager at three shapes, one of them with a batch of 1. The classifiers are
torchvision's, the others small models of transformers. `make models` writes the page, row by row.

| column | meaning |
| --- | --- |
| called in PyTorch | operators without a kernel; `shapevm-run` runs only programs without them |
| difference | the greatest over all outputs and shapes, relative to the output's greatest magnitude |
| export | seconds of one processor in `torch.export` itself |
| lowering | seconds from its program to kernel specs |
| generic kernels | seconds to compile them |
| torch.compile | one graph with `dynamic=True`; axes that have one size are marked as static |
| programs | programs that PyTorch compiled: more than one if its guards distinguish the three shapes |

| model | called in PyTorch | kernels | difference | export | lowering | generic kernels \
| torch.compile: called | programs | difference |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""


def _cells(door: str, name: str) -> list[str]:
    """Return what a door's process says of a model; its failure is a row of the page as well."""
    judge, place = DOORS[door]
    try:
        with ProcessPoolExecutor(1, get_context("spawn"), torch.set_num_threads, (1,)) as alone:
            return alone.submit(judge, name).result()
    except Exception as error:
        text = " ".join(f"fails: {type(error).__name__}: {error}".replace("|", "/").split())
        return [text[:300], *[""] * (place.stop - place.start - 1)]


def _by_export(name: str) -> list[str]:
    found = judged(MODELS[name])
    seconds = [f"{each:.1f}" for each in (found.time.export, found.time.lowering, found.time.kernels)]
    return [_called(found), str(found.n_kernels), f"{found.difference:.1e}", *seconds]


def _by_dynamo(name: str) -> list[str]:
    found = judged_by_dynamo(MODELS[name])
    return [_called(found), str(found.n_programs), f"{found.difference:.1e}"]


def _called(found: Report) -> str:
    return ", ".join(found.fallbacks) or "none"


#: What judges a model, and where its cells are in a row.
DOORS: dict[str, tuple[Callable[[str], list[str]], slice]] = {
    "export": (_by_export, slice(0, 6)),
    "compile": (_by_dynamo, slice(6, 9)),
}


if __name__ == "__main__":
    main()
