"""The classifiers of the zoo through the TorchScript door, traced and scripted, compared with TorchScript at
all their shapes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import shapevm

from . import vision
from .zoo import ABSOLUTE, CLASSIFIERS, RELATIVE

NEEDS_VISION = pytest.mark.skipif(not vision.is_installed(), reason="torchvision is not installed")
#: What their branches on sizes give has other ranks or shifts: their sides are fixed.
FIXED = ("swin_t", "swin_v2_t")


def test_voices_at_both_rates() -> None:
    silero_vad = pytest.importorskip("silero_vad")
    model = torch.jit.load(str(Path(silero_vad.__file__).parent / "data" / "silero_vad.jit")).eval()
    torch.manual_seed(0)
    with shapevm.compile(model, args=(torch.randn(1, 512), 16000), strategy="generic") as exe:
        model.reset_states()
        for rate, n in ((16000, 1), (16000, 1), (8000, 1), (8000, 3), (16000, 2)):
            sound = torch.randn(n, rate // 500 * 16)
            with torch.no_grad():
                torch.testing.assert_close(exe(sound, rate), model(sound, rate))
        with pytest.raises(shapevm.errors.GuardError, match="Provided number of samples is 300"):
            exe(torch.randn(1, 300), 8000)


@NEEDS_VISION
@pytest.mark.drawn
@pytest.mark.parametrize("how", ["script", "trace"])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifier(name: str, how: str) -> None:
    model = CLASSIFIERS[name]
    torch.manual_seed(0)
    module = model.make().eval()
    (example,) = model.inputs(**model.shapes[0]).values()
    program = (
        torch.jit.script(module) if how == "script" else torch.jit.trace(module, example, check_trace=False)
    )
    batch = torch.export.Dim("batch", min=1, max=64)
    shapes = ({0: batch},) if name in FIXED else None
    with shapevm.compile(program, args=(example,), dynamic_shapes=shapes, strategy="generic") as exe:
        for sizes in model.shapes:
            (image,) = model.inputs(**sizes).values()
            if name in FIXED and image.shape[1:] != example.shape[1:]:
                continue
            with torch.no_grad():
                wanted = program(image)
            found = exe(image)
            if isinstance(wanted, tuple):  # scripted models give what training needs as well
                wanted, found = wanted[0], found[0]
            limit = ABSOLUTE + RELATIVE * wanted.abs().max()
            assert (found - wanted).abs().max() <= limit, f"{name} at {sizes}"
