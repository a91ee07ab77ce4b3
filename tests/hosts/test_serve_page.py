"""The programs and commands of docs/serve.md, as they stand there, on ports that are free."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shapevm

from ..packaging.pages import ROOT, blocks
from .test_servers import PYTHON, SECONDS, end, started

TEXT = (ROOT / "docs" / "serve.md").read_text()
COMMANDS = re.findall(r"^```sh\n(.*?)^```$", TEXT, re.M | re.S)
ROWS = [[0.5] * 64, [-1.0] * 64]

pytestmark = pytest.mark.skipif(not PYTHON, reason="needs servers: make hosts")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's files and its artifact."""
    monkeypatch.chdir(tmp_path)
    for name, text in blocks("serve.md"):
        (tmp_path / name).write_text(text)
    compile_model()
    return tmp_path


def compile_model() -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```$", TEXT, re.M | re.S)
    exec(program, {})


def command_of(server: str, port: int) -> list[str]:
    """Return the page's command for a server, which sets SHAPEVM_THREADS first."""
    (line,) = (line for line in COMMANDS if server in line)
    threads, name, *words = shlex.split(re.sub(r"\b800\d\b", str(port), line))
    return ["env", threads, PYTHON, "-m", name, *words]


def free_port() -> int:
    with socket.socket() as link:
        link.bind(("127.0.0.1", 0))
        return int(link.getsockname()[1])


def ask(port: int, path: str, rows: Any = None) -> tuple[int, str]:
    """Return the status and text of an answer, once there is one."""
    data = None if rows is None else json.dumps(rows).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"}
    )
    limit = time.monotonic() + SECONDS
    while True:
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:  # it does not listen yet
            assert time.monotonic() < limit
            time.sleep(0.1)


def wanted(folder: Path) -> Any:
    return shapevm.load(folder / "model.svm", strategy="generic")(np.array(ROWS, np.float32)).tolist()


def test_shapevm_serve(folder: Path) -> None:
    port = free_port()
    (line,) = (line for line in COMMANDS if line.startswith("shapevm serve"))
    command = [PYTHON, "-m", *shlex.split(line.replace("8000", str(port)))]
    given = {"name": "input", "shape": [2, 64], "datatype": "FP32", "data": ROWS}
    with started(command, folder / "model.svm", "auto", folder) as host:
        status, text = ask(port, "/v2/models/model/infer", {"inputs": [given]})
        assert status == 200, text
        (output,) = json.loads(text)["outputs"]
        found = np.array(output["data"], np.float32).reshape(output["shape"])
        assert found.tolist() == wanted(folder)
        assert ask(port, "/health")[0] == 200
        host.send_signal(signal.SIGTERM)
        assert host.wait(SECONDS) == 0


def test_fastapi(folder: Path) -> None:
    port = free_port()
    with started(command_of("uvicorn", port), folder / "model.svm", "auto", folder) as host:
        assert ask(port, "/health") == (200, '"model"')
        status, text = ask(port, "/predict", {"x": ROWS})
        assert status == 200 and json.loads(text) == wanted(folder), text
        status, text = ask(port, "/predict", {"x": [[0.5] * 63]})
        assert status == 422 and "axis 1 has size 63" in text and "it must be 64" in text
        status, text = ask(port, "/predict", {"x": [[0.5] * 63, [0.5]]})
        assert status == 422
        status, text = ask(port, "/metrics")
        assert status == 200 and 'shapevm_calls_total{model="model"}' in text
        end(host, signal.SIGTERM, folder)


def test_gunicorn(folder: Path) -> None:
    port = free_port()
    with started(command_of("gunicorn", port), folder / "model.svm", "auto", folder) as host:
        status, text = ask(port, "/", ROWS)
        assert status == 200 and json.loads(text) == wanted(folder)
        compile_model()  # another one, by the page's way to replace it
        expected, limit = wanted(folder), time.monotonic() + SECONDS
        assert expected != json.loads(text)
        os.kill(host.pid, signal.SIGHUP)
        while json.loads(text) != expected and time.monotonic() < limit:
            status, text = ask(port, "/", ROWS)
            assert status == 200
        assert json.loads(text) == expected
        end(host, signal.SIGTERM, folder)
