"""The files of examples/serve: their schemas, and their commands."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from shapevm.__main__ import main

PYTHON = os.environ.get("HOSTS_PYTHON", "")
FOLDER = Path(__file__).parents[2] / "examples" / "serve"


def options(words: list[str]) -> list[str]:
    """Parse a command's arguments, without its file; return its options."""
    assert words[0].endswith("shapevm") and words[1] == "serve" and words[2].endswith(".svm")
    command = main.commands["serve"]
    known = {flag for option in command.params for flag in option.opts}
    given = [word for word in words[3:] if word.startswith("--")]
    assert given and set(given) <= known
    return given


def test_the_dockerfile() -> None:
    text = re.sub(r"\\\n", " ", (FOLDER / "Dockerfile").read_text())
    rows = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    known = {"FROM", "COPY", "RUN", "ARG", "USER", "ENV", "VOLUME", "EXPOSE", "CMD"}
    assert {row[0] for row in rows} == known and rows[0][0] == "FROM" and rows[-1][0] == "CMD"
    options(json.loads(rows[-1][1]))


def test_the_unit() -> None:
    text = (FOLDER / "shapevm.service").read_text()
    (command,) = re.findall(r"^ExecStart=(.*)$", text, re.M)
    options(shlex.split(command))
    drain, stop = re.search(r"--drain (\d+)", command), re.search(r"^TimeoutStopSec=(\d+)$", text, re.M)
    assert drain and stop and int(drain[1]) < int(stop[1])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    text = (FOLDER / "shapevm.service").read_text().replace("/opt/shapevm/bin/shapevm", "/bin/true")
    (tmp_path / "shapevm.service").write_text(text)
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / "shapevm.service")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_command_of_the_manifest() -> None:
    text = (FOLDER / "kubernetes.yaml").read_text()
    (words,) = re.findall(r"^ *args: (\[.*\])$", text, re.M)
    options(json.loads(words))


@pytest.mark.skipif(not PYTHON, reason="needs kubernetes-validate: make hosts")
def test_the_manifest() -> None:
    command = [PYTHON, "-m", "kubernetes_validate", "--strict", str(FOLDER / "kubernetes.yaml")]
    program = Path(PYTHON).with_name("kubernetes-validate")
    done = subprocess.run([str(program), *command[3:]], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    broken = (FOLDER / "kubernetes.yaml").read_text().replace("containerPort: 8000", "containerPort: http")
    wrong = subprocess.run(
        [str(program), "--strict", "/dev/stdin"], input=broken, capture_output=True, text=True
    )
    assert wrong.returncode != 0
