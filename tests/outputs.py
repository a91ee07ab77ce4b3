"""Places where a user lets an output be written, for tests of both that write: Python and the runner in C."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

ROOT = os.geteuid() == 0

Command = Callable[[str], Sequence[str]]  # that writes its output at a path
IsRight = Callable[[bytes], bool]  # whether a file is that output


def check_files(command: Command, is_right: IsRight, folder: Path) -> None:
    """Links are followed, also where nothing is at their end; owner and mode of a file stay; the rest of the
    folder is as it was."""
    file, link, dangling = folder / "file.npz", folder / "link.npz", folder / "dangling.npz"
    (folder / "inner").mkdir()
    for place, target in ((link, "inner/../file.npz"), (dangling, "inner/new.npz")):
        place.symlink_to(target)
    file.write_bytes(b"old")
    file.chmod(0o600)
    if ROOT:
        os.chown(file, 7, 8)
    owner = file.stat().st_uid, file.stat().st_gid
    for place in (link, dangling):
        subprocess.run(command(str(place)), check=True, capture_output=True)
        assert place.is_symlink() and is_right(place.read_bytes())
    status = file.stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (*owner, 0o600)
    assert not any(name.startswith(".shapevm") for name in os.listdir(folder))


def check_open_files(command: Command, is_right: IsRight, folder: Path) -> None:
    """/dev/stdout is the shell's file, where it stands, or a pipe, and stays what it is: nothing but the
    output goes there."""
    node = os.lstat("/dev/stdout")
    for path in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
        made = subprocess.run(command(path), check=True, capture_output=True)
        assert is_right(made.stdout) and b"first " in made.stderr
        for mode in ("wb", "ab"):
            (folder / "out").write_bytes(b"before" if mode == "ab" else b"")
            with open(folder / "out", mode) as file:
                subprocess.run(command(path), check=True, stdout=file, stderr=subprocess.DEVNULL)
            found = (folder / "out").read_bytes()
            assert is_right(found.removeprefix(b"before")) and found.startswith(b"before") == (mode == "ab")
    assert os.path.samestat(os.lstat("/dev/stdout"), node)


def check_fifo(command: Command, is_right: IsRight, folder: Path) -> None:
    """A FIFO gets the bytes and stays one."""
    os.mkfifo(folder / "fifo.npz")
    with subprocess.Popen(["cat", folder / "fifo.npz"], stdout=subprocess.PIPE) as reader:
        subprocess.run(command(str(folder / "fifo.npz")), check=True, capture_output=True)
        assert is_right(reader.communicate()[0])
    assert (folder / "fifo.npz").is_fifo()


def check_mounted_file(command: Command, is_right: IsRight, folder: Path) -> None:
    """A file that is mounted, as containers get it, cannot be renamed to."""
    inner, outer = folder / "inner.npz", folder / "outer.npz"
    for path in (inner, outer):
        path.write_bytes(b"old")
    script = 'mount --bind "$1" "$2" || exit 77; shift; place=$1; shift; exec "$@"'
    own = ["unshare", "--mount", *([] if ROOT else ["--map-root-user"]), "sh", "-c", script, "sh"]
    done = subprocess.run([*own, str(inner), str(outer), *command(str(outer))], capture_output=True)
    if done.returncode == 77 or b"unshare" in done.stderr:
        pytest.skip("nothing can be mounted here")
    assert done.returncode == 0, done.stderr
    assert is_right(inner.read_bytes()) and outer.read_bytes() == b"old"
    assert sorted(os.listdir(folder)) == ["inner.npz", "outer.npz"]


def check_file_of_others(command: Command, is_right: IsRight, folder: Path) -> None:
    """A file that may be written keeps its owner, whether its folder may be written or not."""
    if not ROOT:
        pytest.skip("needs root, to make files of others")
    place = folder / "file.npz"
    # Without capabilities root is a user as any other is.
    plain = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"]
    for mode in (0o755, 0o777):
        place.write_bytes(b"longer than the output is" * 1000)
        place.chmod(0o666)
        folder.chmod(mode)
        for path in (place, folder):
            os.chown(path, 54321, 54321)
        subprocess.run([*plain, *command(str(place))], check=True, capture_output=True)
        assert is_right(place.read_bytes()) and place.stat().st_uid == 54321
        assert os.listdir(folder) == ["file.npz"]


CHECKS = (check_files, check_open_files, check_fifo, check_mounted_file, check_file_of_others)
