"""A program that uses onnxruntime, unchanged: `python onnx_program.py NAME (shapevm|onnxruntime)` prints its
results."""

import json
import sys
from pathlib import Path

if sys.argv[2] == "shapevm":
    import shapevm.onnx

    shapevm.onnx.install()

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from onnx_pages import page


def rapidocr() -> list[list[str]]:
    """Read pages of several sizes."""
    from rapidocr_onnxruntime import RapidOCR

    engine = RapidOCR()
    return [[line[1] for line in engine(page(seed))[0] or []] for seed in range(3)]


def magika() -> list[str]:
    """Tell the kinds of texts."""
    from magika import Magika

    texts = [
        b"def f(x):\n    return x + 1\n" * 20,
        b"<html><body><p>text</p></body></html>" * 20,
        b'{"a": [1, 2]}' * 40,
    ]
    return [str(Magika().identify_bytes(text).output.label) for text in texts]


def ddddocr() -> list[str]:
    """Read words as captchas."""
    import io

    import ddddocr
    from PIL import Image

    readers = [ddddocr.DdddOcr(show_ad=False), ddddocr.DdddOcr(show_ad=False, old=True)]
    found = []
    for seed in range(2):
        file = io.BytesIO()
        Image.fromarray(page(seed)[10:50, :160]).save(file, "png")
        found += [reader.classification(file.getvalue()) for reader in readers]
    return found


made = {"rapidocr": rapidocr, "magika": magika, "ddddocr": ddddocr}[sys.argv[1]]()
import onnxruntime  # noqa: E402 - whichever it is

print(json.dumps([onnxruntime.InferenceSession.__module__.split(".")[0], made]))
