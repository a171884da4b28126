"""Cores of a process: of those that it may run on, what a container gives it the time of."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gradformer import cores

SCRIPT = """
import pathlib, sys
from gradformer import cli, cores
cores.CGROUP = pathlib.Path(sys.argv.pop())
try:
    cli.main()
finally:
    import torch
    print(torch.get_num_threads())
"""


def _container(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({}, 8),
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "5000 100000\n"}, 1),
        ({"cpu.max": "1600000 100000\n"}, 8),
        ({"cpu.max": "no numbers"}, 8),
        ({"cpu/cpu.cfs_quota_us": "250000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "250000\n"}, 8),
    ],
)
def test_a_quota_is_a_limit(
    files: dict[str, str], count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(cores, "CGROUP", _container(tmp_path, files))
    assert cores.cores() == count


def test_the_program_holds_torch_to_it(tmp_path: Path) -> None:
    folder = _container(tmp_path, {"cpu.max": "100000 100000\n"})
    own = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    words = [sys.executable, "-c", SCRIPT, "--version", folder]
    assert subprocess.check_output(words, env=own, text=True).split()[-1] == "1"


@pytest.mark.parametrize(("quota", "told"), [("300000", "5"), ("max", None), ("800000", None)])
def test_who_says_how_many_threads_or_has_no_limit_is_left_alone(
    quota: str, told: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(cores, "CGROUP", _container(tmp_path, {"cpu.max": f"{quota} 100000\n"}))
    said = {} if told is None else {"OMP_NUM_THREADS": told}
    monkeypatch.setattr(os, "environ", dict(said))
    cores.hold_openmp()
    assert os.environ == said
