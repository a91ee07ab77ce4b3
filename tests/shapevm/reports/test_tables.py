"""Tables: figures are whole at any width; texts fold and keep every word."""

import os
import re
import subprocess
import sys

import pytest

from shapevm.reports.tables import table_text

TITLES = ("kernel", "calls", "compile ms", "nothing", "of limit")
ROWS = [
    ("k0 reduce_max sub exp_nonpositive reduce_sum reciprocal mul", "1234567", "1.6e-07", "", "100%"),
    ("a_name_of_one_word_that_is_longer_than_any_column_could_be", "8", "12345.67", "", "3%"),
]


@pytest.mark.parametrize("width", [1, 20, 40, 80, 200])
def test_figures_are_whole(width):
    text = table_text(TITLES, ROWS, title="2 kernels", width=width)
    for figure in ("1234567", "1.6e-07", "12345.67", "100%"):
        assert re.search(rf"(?<!\S){re.escape(figure)}(?!\S)", text), text
    assert "…" not in text and "..." not in text and "nothing" not in text
    if width >= 80:
        assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("width", [30, 80])
def test_texts_keep_every_letter(width):
    for name, *_ in ROWS:
        text = table_text(("kernel", "calls"), [(name, "77")], width=width)
        body = text[text.rindex("─") + 1 :].replace("77", "")
        assert "".join(body.split()) == name.replace(" ", "")


def test_a_pipe_is_80_wide():
    code = (
        "from shapevm.reports.tables import table_text\n"
        "print(table_text(('kernel', 'ms'), [('word ' * 40, '12345678.901')]))"
    )
    env = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert "12345678.901" in done.stdout and max(map(len, done.stdout.splitlines())) <= 80
