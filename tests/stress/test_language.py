"""A short run of the stress test of language models."""

from __future__ import annotations

from .language import soak


def test_no_request_is_lost() -> None:
    found = soak(250)
    assert found["whole"] > 100 and found["cancelled"] and found["refused"]
    assert found["whole"] + found["cancelled"] + found["refused"] == 250
