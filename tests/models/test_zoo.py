"""Families of models at dynamic shapes against eager: small ones here, all of them by `make models`."""

import pytest

from . import vision, zoo


@pytest.mark.parametrize("name", zoo.SMALL_CLASSIFIERS)
@pytest.mark.skipif(not vision.is_installed(), reason=f"torchvision is not installed: see {vision.__name__}")
def test_classifiers_are_eagers_without_its_kernels(name: str) -> None:
    assert not zoo.judged(zoo.SMALL_CLASSIFIERS[name]).fallbacks


@pytest.mark.parametrize("name", zoo.TRANSFORMERS)
def test_transformers_are_eagers_without_its_kernels(name: str) -> None:
    assert not zoo.judged(zoo.TRANSFORMERS[name]).fallbacks
