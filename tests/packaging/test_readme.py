"""What the README shows works as it stands there."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.S | re.M)
    return [text for name, text in fenced if name == language]


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_python_example(tmp_path):
    (example,) = blocks("python")
    printed = run([sys.executable, "-c", example], tmp_path)
    assert printed.strip() in ("exact", "generic", "none")
    assert (tmp_path / "model.svm").exists()


def test_command_lines(tmp_path):
    (commands,) = [block for block in blocks("") if "shapevm compile" in block]
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    ids = np.full((1, 5), 2000)
    np.save(tmp_path / "ids.npy", ids)
    np.save(tmp_path / "mask.npy", np.ones_like(ids))
    scripts = Path(sys.executable).parent
    for line in commands.strip().splitlines():
        name, *arguments = shlex.split(line, comments=True)
        assert run([str(scripts / name), *arguments], tmp_path).strip()
    assert np.load(tmp_path / "out.npz")["output"].shape == (1, 384)


def test_links_lead_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
        for target in re.findall(r"\]\((?!http)([^)#]+)[^)]*\)", prose):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, re.M):
        assert re.search(rf"^{target}:", makefile, re.M), target
