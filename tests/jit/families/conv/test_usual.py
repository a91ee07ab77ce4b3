"""Usual convolutions have the parts that other networks' convolutions have."""

import pytest
from shapevm.jit.families.conv.usual import Layer, usual_conv
from shapevm.jit.families.matmul.schedules import PANEL
from shapevm.jit.spec import to_json
from shapevm.jit.spec_reader import from_json

from ..shared_parts import parts_of

TAPS = 9
ONE = (1, 1)
CHANNELS = (64, 128)  # sums in one chain, and in several


@pytest.mark.parametrize("target", ["x86-64-v4-amx", "x86-64-v3", "aarch64"])
@pytest.mark.parametrize("other", [64, 256, 512])
def test_convolutions_of_other_channels_have_the_same_parts(target: str, other: int) -> None:
    usual = [usual_conv(Layer(channels, channels, (3, 3), ONE, ONE)) for channels in CHANNELS]
    assert [from_json(to_json(spec)) for spec in usual] == usual
    text, channels = to_json(usual[1]), usual[1].product.n
    for a, b in ((TAPS * channels, TAPS * other), (channels, other)):
        text = text.replace(f"{a}", f"{b}")
    text = text.replace(f"[{channels // PANEL},", f"[{other // PANEL},")
    found = parts_of(from_json(text), target)
    known = set().union(*(parts_of(spec, target) for spec in usual))
    assert len(found) > 10 and len(found & known) >= 0.9 * len(found)
