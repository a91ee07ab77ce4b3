"""The table of routes has what pages say of it."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from shapevm.serve.limits import Limits
from shapevm.serve.protocols import ROUTES

DOCS = Path(__file__).parents[3] / "docs"
PATH = re.compile(r"`(?:GET |POST )?(/[\w/]+)`")


def test_the_page_has_every_route():
    table = (DOCS / "serve.md").read_text().partition("| limit |")[0].replace("NAME", "{name}")
    named = set(re.findall(r"`(?:GET |POST )?(/[\w/{}]+)`", table))
    of_models = {row.path for row in ROUTES if "/versions/" in row.path or row.path.endswith("/ready")}
    assert {row.path for row in ROUTES} - of_models - {"/v2", "/v1/models/{name}"} <= named
    assert named <= {row.path for row in ROUTES}


@pytest.mark.parametrize("product", ["TEI's `/embed`", "infinity's"])
def test_routes_and_limits_of_other_servers(product):
    rows = [row for row in (DOCS / "text.md").read_text().splitlines() if row.startswith(f"| {product}")]
    assert rows
    for row in rows:
        _, before, here, _ = row.split("|")
        named = PATH.findall(here.partition("there is no")[0])
        wanted = PATH.findall(before) if "the same" in here else named
        assert set(wanted) <= {row.path for row in ROUTES}
    (row,) = (row for row in (DOCS / "text.md").read_text().splitlines() if "| TEI's `--max" in row)
    options = {name.replace("-", "_") for name in re.findall(r"`--([a-z-]+)`", row.split("|")[2])}
    assert len(options) == 4 and options <= {field.name for field in fields(Limits)}
