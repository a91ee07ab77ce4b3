"""Make a release: "Unreleased" becomes the version's heading, a commit and a tag. `--check` only compares.

The version is `__version__` in shapevm/__init__.py. A release is a tag vX.Y.Z of the commit that has this
version and whose CHANGELOG.md has the heading "X.Y.Z (date)".
"""

from __future__ import annotations

import datetime
import re
import sys
from pathlib import Path

from make_wheel import ROOT, run

CHANGES, VERSION = "CHANGELOG.md", "shapevm/__init__.py"
UNRELEASED = "## Unreleased\n"


def numbers(version: str) -> tuple[int, ...]:
    """Return a version's parts, to be compared."""
    return tuple(map(int, version.split(".")))


def version_in(text: str) -> str:
    """Return the version that a package's text states. Exits where there is none."""
    found = re.search(r'^__version__ = "(\d+\.\d+\.\d+)"$', text, re.M)
    return found[1] if found else sys.exit(f"{VERSION} states no version X.Y.Z")


def headings(text: str) -> list[str]:
    """Return the versions that a change log describes, as it orders them."""
    return re.findall(r"^## (\d+\.\d+\.\d+) \(\d{4}-\d{2}-\d{2}\)$", text, re.M)


def disagreements(root: Path) -> list[str]:
    """Return what does not agree among the version, the change log and the tags, a sentence each."""
    text = (root / CHANGES).read_text()
    version, released = version_in((root / VERSION).read_text()), headings(text)
    tags = [tag[1:] for tag in run("git", "tag", "--list", "v[0-9]*", folder=root).split()]
    found = []
    if UNRELEASED not in text:
        found.append(f'{CHANGES} has no heading "Unreleased"')
    if released != sorted(set(released), key=numbers, reverse=True):
        found.append(f"{CHANGES} must name each release once, the newest first; it has {', '.join(released)}")
    if released and numbers(version) < numbers(released[0]):
        found.append(f"{VERSION} says {version}, older than {released[0]} in {CHANGES}")
    for tag in tags:
        said = version_in(run("git", "show", f"v{tag}:{VERSION}", folder=root))
        if said != tag:
            found.append(f"the commit of tag v{tag} has version {said}")
        if tag not in released:
            found.append(f'tag v{tag} has no heading "{tag} (date)" in {CHANGES}')
    return found


def release(root: Path, today: str) -> str:
    """Write the heading, commit and tag; return the tag. Exits where something stands against it."""
    text, version = (root / CHANGES).read_text(), version_in((root / VERSION).read_text())
    if run("git", "status", "--porcelain", folder=root):
        sys.exit("there are changes that are not committed; commit them first")
    if version in headings(text):
        sys.exit(f"{CHANGES} has {version} already; raise __version__ in {VERSION} first")
    if not text.partition(UNRELEASED)[2].partition("\n## ")[0].strip():
        sys.exit(f'{CHANGES} lists nothing under "Unreleased"; say what {version} brings')
    text = text.replace(UNRELEASED, f"{UNRELEASED}\n## {version} ({today})\n")
    (root / CHANGES).write_text(text)
    run("git", "commit", "-q", "-m", f"Release {version}", CHANGES, folder=root)
    run("git", "tag", "-a", f"v{version}", "-m", f"shapevm {version}", folder=root)
    return f"v{version}"


def main() -> None:
    """Check, and without `--check` release."""
    found = disagreements(ROOT)
    if found:
        sys.exit("\n".join(found))
    if sys.argv[1:] == ["--check"]:
        return
    tag = release(ROOT, datetime.date.today().isoformat())
    print(f"{tag} is made. Next: make wheel ARGS='x86_64 aarch64'; git push origin main {tag}")


if __name__ == "__main__":
    main()
