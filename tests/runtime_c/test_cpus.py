"""Threads by default: one per CPU, and no more than control groups grant whole ones."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Build = Callable[[str, str], Path]
ONE = Path("/sys/fs/cgroup/cpu")


def granted(build: Build, mounts: Path, membership: str, groups: dict[str, str]) -> int:
    for name, text in groups.items():
        path = mounts / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (mounts / "membership").write_text(membership)
    command = [str(build("test_cpus", "address")), str(mounts), str(mounts / "membership")]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[0])


@pytest.mark.parametrize(
    ("membership", "groups", "wanted"),
    [
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1500),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "250000 100000\n"}, 2500),
        ("0::/a/b\n", {"a/b/cpu.max": "50000 100000\n", "a/cpu.max": "250000 100000\n"}, 500),
        ("0::/host/path\n", {"cpu.max": "30000 10000\n"}, 3000),  # a container that sees its host's path
        ("0::/\n", {"cpu.max": "1 1000000\n"}, 1),
        ("0::/\n", {"cpu.max": "max 100000\n"}, 0),
        ("0::/\n", {"cpu.max": "100000\n"}, 0),
        ("0::/\n", {"cpu.max": "9223372036854775807 1\n"}, 0),
        ("0::/\n", {"cpu.max": "100000 0\n"}, 0),
        ("0::/\n", {"cpu.max": ""}, 0),
        ("", {}, 0),
        ("nonsense\n1:cpu\n", {"cpu.max": "100000 100000\n"}, 0),
        ("3:cpuset:/\n2:cpu,cpuacct:/a\n",
         {"cpu/a/cpu.cfs_quota_us": "200000\n", "cpu/a/cpu.cfs_period_us": "100000\n"}, 2000),
        ("2:cpuacct,cpu:/a\n0::/\n",
         {"cpu/a/cpu.cfs_quota_us": "-1\n", "cpu/a/cpu.cfs_period_us": "100000\n"}, 0),
        ("2:cpuset:/a\n", {"cpu/a/cpu.cfs_quota_us": "200000\n", "cpu/a/cpu.cfs_period_us": "100000\n"}, 0),
        ("0::/" + "a/" * 3000 + "\n", {"cpu.max": "100000 100000\n"}, 0),
    ],
)  # fmt: skip
def test_what_groups_grant(
    build: Build, tmp_path: Path, membership: str, groups: dict[str, str], wanted: int
) -> None:
    assert granted(build, tmp_path, membership, groups) == wanted


def test_no_membership_is_no_limit(build: Build, tmp_path: Path) -> None:
    command = [str(build("test_cpus", "address")), str(tmp_path), str(tmp_path / "missing")]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.startswith("0 ")


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of version 1 in which a process may be put."""
    path = ONE / f"shapevm-{os.getpid()}"
    try:
        path.mkdir()
    except OSError:
        pytest.skip("no control group can be made here")
    yield path
    path.rmdir()


@pytest.mark.parametrize(("quota", "wanted"), [(100_000, 1), (50_000, 1), (1_000_000_000, 0)])
def test_threads_of_a_process_in_a_group(build: Build, group: Path, quota: int, wanted: int) -> None:
    (group / "cpu.cfs_quota_us").write_text(str(quota))
    command = ["sh", "-c", f"echo $$ > {group}/cgroup.procs && exec {build('test_cpus', 'plain')} x x"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(done.stdout.split()[1]) == (wanted or len(os.sched_getaffinity(0)))
