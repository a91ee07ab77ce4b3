"""A transformer's encoder layer and vit_b_16, one core: PyTorch's own attention module, batch first."""

from __future__ import annotations

from functools import partial

import torch
from classifiers import SIDE, against_the_best
from measure import Figure, interleaved, median, ratio
from peers import check, contestants, missing
from vision import ROUNDS, make, vision

import shapevm

WIDTH, HEADS, LENGTH = 768, 12, 197  # of vit_b_16


def encoder_layer() -> list[Figure]:
    """`nn.TransformerEncoderLayer` of static and of dynamic sizes against eager."""
    torch.manual_seed(0)
    options = {"activation": "gelu", "norm_first": True, "batch_first": True}
    layer = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, **options).eval()  # type: ignore[arg-type]
    x = torch.randn(1, LENGTH, WIDTH)
    sizes = {0: torch.export.Dim("batch", min=1, max=16), 1: torch.export.Dim("length", min=1, max=512)}
    found = []
    for name, example, shapes in (("static", x, None), ("dynamic", torch.randn(2, 5, WIDTH), (sizes,))):
        exe = shapevm.compile(layer, (example,), dynamic_shapes=shapes, strategy="jit")
        torch.testing.assert_close(exe(x), layer(x), rtol=1e-3, atol=1e-3)
        times = interleaved({"shapevm": partial(exe, x), "eager": partial(layer, x)}, ROUNDS)
        text = ", ".join(f"{label} {median(row) * 1e3:.2f}" for label, row in times.items())
        gain = f"{text}: {ratio(times, 'eager', 'shapevm'):.2f}x eager"
        found.append(
            Figure(f"encoder layer, {name}, at 1 x {LENGTH} x {WIDTH} (ms)", gain, "at least 1.4x eager")
        )
    return found


def vit() -> list[Figure]:
    """vit_b_16 on one image against the best of the other runtimes."""
    model, item = make("vit_b_16"), {"x": torch.randn(1, 3, SIDE, SIDE)}
    exe = shapevm.compile(model, (item["x"],), strategy="jit")
    with contestants(model, exe, item, None, cold=True) as runners:
        runners["shapevm"] = lambda item: exe(item["x"])
        runners["eager"] = lambda item: model(item["x"])
        check(runners, item)
        figure, _ = against_the_best("vit_b_16", runners, item, "at least 1.12x")
    return [figure]


def figures() -> list[Figure]:
    """Return all figures, one core."""
    torch.set_num_threads(1)
    shapevm.set_threads(1)
    with torch.inference_mode():
        if not vision.is_installed():
            return [*encoder_layer(), Figure("vit_b_16", "torchvision is not installed")]
        return [*encoder_layer(), *vit(), *missing()]
