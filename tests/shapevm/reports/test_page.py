"""The HTML pages of profile and explain: whole by themselves, no text is markup, tables sort."""

import os
import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from shapevm.vm.artifact import read

import shapevm
from shapevm.__main__ import main
from shapevm.reports.launch_graph import Node, heat, launch_graph, lines_of, svg, with_layers_once
from shapevm.reports.page import Cell, page, part, table

VOID = {"meta", "br", "rect", "path"}
EVIL = '<script>alert("1")</script>&'


class Elements(HTMLParser):
    """Checks that elements are closed in order; keeps their names and texts."""

    def __init__(self, text):
        super().__init__()
        self.open, self.names, self.texts = [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.names.append(tag)
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attributes)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.names.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_texts_are_no_markup():
    body = table((EVIL,), [[Cell(EVIL)], [Cell(EVIL, 1.0, 2.0)]]) + svg([Node(EVIL, EVIL)], {0: (EVIL, 1)})
    found = Elements(page(EVIL, body))
    assert found.names.count("script") == 1  # the page's own
    assert sum(EVIL in text for text in found.texts) >= 5
    assert "script" not in Elements(part(body)).names


def test_graph():
    nodes = [Node("x"), Node("a", "m.py:1", 0, {0}, 1), Node("b", "m.py:2", 1, {0, 1}, 2)]
    drawn = svg(nodes, {1: ("3 ms", 1.0)})
    assert drawn.count("<rect") == 3 and drawn.count("<path") == 3
    assert heat(1.0) in drawn and "3 ms" in drawn and heat(0.0) == "rgb(255,255,255)"


def chain(kernels):
    """A graph in which each launch reads the one before it; the first reads the input."""
    launches = [Node(f"kernel {k}", f"m.py:{k}", k, {i}, i + 1) for i, k in enumerate(kernels)]
    return [Node("x"), *launches]


@pytest.mark.parametrize(
    ("kernels", "kept", "counts"),
    [
        ([0, 1, 2, 3, 1, 2, 3, 1, 2, 3, 4], [0, 1, 2, 3, 4], [1, 3, 3, 3, 1]),
        ([1, 1, 1, 2], [1, 1, 1, 2], [1, 1, 1, 1]),  # no layer: fewer than three launches
        ([1, 2, 3, 1, 2, 4], [1, 2, 3, 1, 2, 4], [1] * 6),
        ([1, 2, 3, 1, 2, 3, 1, 2], [1, 2, 3, 1, 2], [2, 2, 2, 1, 1]),
        ([0, 5, 6, 7, 5, 6, 7, 8, 5, 6, 9, 5, 6, 9], [0, 5, 6, 7, 8, 5, 6, 9], [1, 2, 2, 2, 1, 2, 2, 2]),
        ([], [], []),
    ],
)
def test_equal_layers_are_drawn_once(kernels, kept, counts):
    nodes = chain(kernels)
    shown, places = with_layers_once(nodes)
    assert [node.kernel for node in shown[1:]] == kept
    assert [node.count for node in shown[1:]] == counts
    assert [shown[place].kernel for place in places] == [node.kernel for node in nodes]
    for index, node in enumerate(shown):
        assert all(other < index for other in node.reads)
        assert node.layer == 1 + max((shown[other].layer for other in node.reads), default=-1)
    for count in set(counts) - {1}:
        assert f"{count} × k" in svg(shown, {})


def test_lines_of_a_kernel_are_all_named():
    places = [(0, "b.py:7"), (1, "b.py:9"), (0, "b.py:8"), (0, "a.py:1"), (0, "b.py:7"), (2, "")]
    nodes = [Node("x"), *(Node("k", source, kernel) for kernel, source in places)]
    assert lines_of(nodes) == {0: "b.py:7, 8, a.py:1", 1: "b.py:9"}


def test_times_of_equal_layers_add_up(build):
    class Layers(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(
                torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True) for _ in range(4)
            )

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    x = torch.randn(2, 5, 16)
    exe = build(Layers().eval(), x)
    profile = exe.profile((x,), calls=2)
    shown = [float(ms) for ms in re.findall(r"\n([\d.]+) ms</title>", profile.html())]
    n_launches = sum(row.calls for row in profile.kernels) // 2
    assert len(shown) <= n_launches / 2 and "4 × k" in profile.html()
    assert sum(shown) == pytest.approx(sum(row.total_ms for row in profile.kernels), abs=0.001 * len(shown))
    assert all(row.source.startswith("test_page.py:") for row in profile.kernels)  # the line of this model
    assert "× k" in exe.explain().html() and "× k" in exe._repr_html_()


@pytest.mark.parametrize("note", ["", "3 ms", "2 misses of 16", "2,000 misses of 16,000", "n" * 40])
def test_texts_stay_in_their_boxes(note):
    drawn = svg([Node("x"), Node("a", "models/modeling_bert.py:350", 0, {0}, 1)], {1: (note, 0.5)})
    (below,) = re.findall(r'fill="#555">([^<]*bert[^<]*|[^<]*n+[^<]*|[^<]*misses[^<]*)<', drawn)
    assert note in below and len(below) <= max(26, len(note))


def test_launches_read_what_others_wrote(artifact):
    nodes = launch_graph(read(artifact))
    assert [node.label for node in nodes if node.layer == 0] == ["x"]
    first, *rest = [index for index, node in enumerate(nodes) if node.kernel >= 0]
    assert nodes[first].reads == {0} and all(first in nodes[index].reads for index in rest)


def test_profile_and_explain(artifact, tmp_path):
    for command, words in (("profile", ["of limit", "ms"]), ("explain", ["misses", "new sizes"])):
        out = tmp_path / f"{command}.html"
        args = [command, str(artifact), "--sizes", "n=5", "--html", str(out)]
        done = CliRunner().invoke(main, args)
        assert done.exit_code == 0, done.output
        text = out.read_text()
        assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text
        found = Elements(text)
        assert {"table", "svg", "script", "th"} <= set(found.names)
        assert all(word in found.texts for word in words)
        assert any("net_of_test.py" in shown for shown in found.texts)
        assert ("n 1" in found.texts and 'title="n (axis 0 of x) 1"' in text) == (command == "explain")
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)


def test_notebooks(artifact):
    with shapevm.load(artifact, strategy="generic") as exe:
        parts = [exe._repr_html_(), exe.explain()._repr_html_()]
        profile = exe.profile((np.zeros((4, 8), "f"),), calls=1)
        parts.append(profile._repr_html_())
        assert exe.profile()._repr_html_() is None
    for text in parts:
        found = Elements(text)
        assert {"table", "svg"} <= set(found.names) and "script" not in found.names
    assert any("f32[n, 8]" in text for text in Elements(parts[0]).texts)
    assert "closed" in exe._repr_html_()


def test_times_of_a_loop_are_shared_out(build):
    def forward(self, x):
        def body(x):
            return x * 2

        return torch._higher_order_ops.while_loop(lambda x: x.sum() < 100, lambda x: (body(x),), (x,))[0] + 1

    exe = build(forward, torch.ones(4))
    profile = exe.profile((torch.ones(4),), calls=2)
    assert "ms</text>" in profile.html()


CHROMIUM = shutil.which("chromium")


@pytest.mark.skipif(
    CHROMIUM is None and not os.environ.get("BROWSER_REQUIRED"),
    reason="chromium is not installed: make browser",
)
def test_a_click_sorts(tmp_path):
    assert CHROMIUM, "BROWSER_REQUIRED is set, and there is no chromium"
    rows = [[Cell(name), Cell(str(value), value, 0.5)] for name, value in (("b", 10), ("a", 9), ("c", 100))]
    click = "document.querySelectorAll('th')[{}].click();"
    orders = []
    for clicks in ((1,), (1, 1), (0,)):
        path = tmp_path / "page.html"
        script = "".join(click.format(column) for column in clicks)
        path.write_text(page("t", table(("name", "figure"), rows)) + f"<script>{script}</script>")
        command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", path.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        orders.append("".join(re.findall(r'<td class="short">(\w)</td>', done.stdout)))
    assert orders == ["cba", "abc", "abc"]
