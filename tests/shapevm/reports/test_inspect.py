"""`shapevm inspect`: kernels' sizes as text."""

from shapevm.vm.program import SizeRange as R

from shapevm.reports.inspect import shown_keys


def test_keys_that_round_up_are_shown_as_one():
    keys = [(R((n - 1) * 16 + 1, n * 16), 384) for n in range(1, 9)]
    assert shown_keys(keys) == ["1..128 round 16,384"]
    assert shown_keys([(7, 384), *keys[2:], (R(129, 140), 384), (R(200, 512), 384)]) == [
        "7,384", "33..140 round 16,384", "200..512,384",
    ]  # fmt: skip
    assert shown_keys([(R(1, 16),), (R(17, 40),)]) == ["1..16", "17..40"]
    assert shown_keys([(R(1, None),), (R(1, 16),), (R(17, 32),), (R(33, 48),)]) == ["1..", "1..48 round 16"]
