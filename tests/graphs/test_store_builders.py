"""Building a store: it is whole or not there, whatever happens to its builders."""

from __future__ import annotations

import subprocess
import sys
from errno import ENOSPC
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gradformer.errors import InputError
from gradformer.graphs import sbm
from gradformer.graphs.arrays import GraphArrays, Schema
from gradformer.graphs.store import Store, build_store, pack
from gradformer.graphs.structures import Structure

BUILDER = """
import os, signal, sys, time
from pathlib import Path
from gradformer.graphs import sbm, store

folder, mode = Path(sys.argv[1]), sys.argv[2]

def graphs():
    with open(folder.parent / "built", "a") as file:
        file.write("x")
    time.sleep(0.3)
    return sbm.cluster(splits=(3, 0, 0))

if mode == "killed":
    save = store.np.save
    def save_then_die(path, value, **options):
        save(path, value, **options)
        if path.name == "target.npy":
            os.kill(os.getpid(), signal.SIGKILL)
    store.np.save = save_then_die
print(store.build_store(graphs, store.Structure(), folder).num_graphs)
"""


def small_graphs() -> GraphArrays:
    """An edge and two nodes."""
    edge_index = np.array([[0, 1], [1, 0]], np.int32)
    schema = Schema((), (), "graph", "regression", 1)
    return GraphArrays(np.array([0, 2, 3, 4]), np.array([0, 2, 2, 2]), edge_index, schema)


def start_builder(folder: Path, mode: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BUILDER, str(folder), mode]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_killed_builder_leaves_nothing_broken(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    killed = start_builder(folder, "killed")
    killed.communicate()
    assert killed.returncode == -9
    assert not folder.exists()
    assert (tmp_path / ".s.unfinished" / "target.npy").exists()
    arrays = sbm.cluster(splits=(3, 0, 0))
    store = build_store(lambda: arrays, Structure(), folder)
    np.testing.assert_array_equal(store.arrays["source"], arrays.edge_index[0])
    assert not (tmp_path / ".s.unfinished").exists()


def test_two_builders_share_the_work(tmp_path: Path) -> None:
    builders = [start_builder(tmp_path / "s", "plain") for _ in range(2)]
    for builder in builders:
        out, err = builder.communicate()
        assert (builder.returncode, out) == (0, "3\n"), err
    assert (tmp_path / "built").read_text() == "x"


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "stores" / "s"
    with pytest.raises(
        InputError, match=r"stores/s cannot be written \(Not a directory\); make room"
    ):
        build_store(small_graphs, Structure(), place)


def test_a_disk_without_room_is_found_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs, place = small_graphs(), tmp_path / "s"
    size = pack(graphs).nbytes
    disk = SimpleNamespace(free=size - 1)
    monkeypatch.setattr("shutil.disk_usage", lambda _: disk)
    with pytest.raises(InputError, match=rf"takes {size} bytes but only {size - 1} bytes are free"):
        build_store(lambda: graphs, Structure(), place)
    assert not place.exists()
    disk.free = size
    assert build_store(lambda: graphs, Structure(), place).nbytes == size


def test_a_failed_build_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> GraphArrays:
        raise InputError("row 3 is bad")

    with pytest.raises(InputError, match="row 3"):
        build_store(fail, Structure(), tmp_path / "s")
    assert not (tmp_path / "s").exists()

    def full(store: Store, folder: Path) -> None:
        (folder / "x.npy").touch()
        raise OSError(ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "save", full)
        with pytest.raises(InputError, match=r"cannot be written \(No space left"):
            build_store(small_graphs, Structure(), tmp_path / "s")
    assert [path.name for path in tmp_path.iterdir()] == [".s.lock"]
    assert build_store(small_graphs, Structure(), tmp_path / "s").num_graphs == 3
