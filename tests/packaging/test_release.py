"""A release: version, change log and tags agree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .pages import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import release

LOG = "# Changelog\n\n## Unreleased\n\n- More.\n\n## 0.1.0 (2026-01-31)\n\n- All.\n"


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def write(folder: Path, version: str, log: str) -> None:
    (folder / "shapevm").mkdir(exist_ok=True)
    (folder / release.VERSION).write_text(f'__version__ = "{version}"\n')
    (folder / release.CHANGES).write_text(log)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository on the way from 0.1.0, which has its tag, to 0.2.0."""
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "someone")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "someone@example.com")
    git(tmp_path, "init", "-q")
    for version, log in (("0.1.0", LOG.replace("\n- More.\n", "")), ("0.2.0", LOG)):
        write(tmp_path, version, log)
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-q", "-m", version)
    git(tmp_path, "tag", "v0.1.0", "HEAD~")
    return tmp_path


def test_this_repository_agrees() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("the sources are not in a git repository")
    assert release.disagreements(ROOT) == []


def test_a_release(root: Path) -> None:
    assert release.disagreements(root) == []
    assert release.release(root, "2026-02-28") == "v0.2.0"
    assert release.disagreements(root) == []
    assert git(root, "show", "v0.2.0:CHANGELOG.md") == LOG.replace(
        "## Unreleased\n", "## Unreleased\n\n## 0.2.0 (2026-02-28)\n"
    )
    assert git(root, "log", "-1", "--format=%s").strip() == "Release 0.2.0"
    assert not git(root, "status", "--porcelain")
    with pytest.raises(SystemExit, match="has 0.2.0 already; raise __version__"):
        release.release(root, "2026-03-01")


@pytest.mark.parametrize(
    ("version", "log", "message"),
    [
        ("0.2.0", LOG.replace("- More.", ""), 'nothing under "Unreleased"; say what 0.2.0 brings'),
        ("0.1.0", LOG, "has 0.1.0 already"),
    ],
)
def test_nothing_to_release(root: Path, version: str, log: str, message: str) -> None:
    write(root, version, log)
    with pytest.raises(SystemExit, match="not committed"):
        release.release(root, "2026-02-28")
    git(root, "commit", "-qam", "changed")
    with pytest.raises(SystemExit, match=message):
        release.release(root, "2026-02-28")
    assert git(root, "tag").split() == ["v0.1.0"]


@pytest.mark.parametrize(
    ("version", "log", "tag", "message"),
    [
        ("0.2.0", LOG, "v0.2.0", 'tag v0.2.0 has no heading "0.2.0 (date)" in CHANGELOG.md'),
        ("0.2.0", LOG, "v0.3.0", "the commit of tag v0.3.0 has version 0.2.0"),
        ("0.0.9", LOG, "", "shapevm/__init__.py says 0.0.9, older than 0.1.0 in CHANGELOG.md"),
        ("0.2.0", LOG.replace("Unreleased", "Later"), "", 'CHANGELOG.md has no heading "Unreleased"'),
        ("0.2.0", LOG + "\n## 0.1.9 (2026-01-31)\n", "", "the newest first; it has 0.1.0, 0.1.9"),
        ("0.2.0", LOG.replace("0.1.0 (", "0.1.1 ("), "", 'tag v0.1.0 has no heading "0.1.0 (date)"'),
    ],
)
def test_what_does_not_agree(root: Path, version: str, log: str, tag: str, message: str) -> None:
    write(root, version, log)
    git(root, "add", "-A")
    git(root, "commit", "-q", "--allow-empty", "-m", "changed")
    if tag:
        git(root, "tag", tag)
    assert message in " ".join(release.disagreements(root))
