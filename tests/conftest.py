"""Tests keep compiled kernels in a folder of their own, never in the user's cache."""

import os
import sys

import pytest

from .quick_export import keep_what_torch_recomputes


@pytest.fixture(scope="session", autouse=True)
def kernel_cache(tmp_path_factory):
    """Point the disk cache, also that of processes which tests start, at a fresh folder."""
    before = os.environ.get("SHAPEVM_CACHE_DIR")
    folder = tmp_path_factory.mktemp("kernels")
    os.environ["SHAPEVM_CACHE_DIR"] = str(folder)
    yield folder
    if before is None:
        del os.environ["SHAPEVM_CACHE_DIR"]
    else:
        os.environ["SHAPEVM_CACHE_DIR"] = before


@pytest.fixture(scope="session", autouse=True)
def quick_export():
    """Make exporting quick where tests have imported torch."""
    if "torch" in sys.modules:
        keep_what_torch_recomputes()
