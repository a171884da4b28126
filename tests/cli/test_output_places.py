"""Where output goes: links, pipes, full disks, and places that cannot be written."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Program, csv_rows


def test_links_and_pipes_stay_what_they_are(
    program: Program, graph_run: Path, files: Path, tmp_path: Path
) -> None:
    words = ("predict", graph_run, files / "graphs.jsonl", "-o")
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to("real.csv")
    program(*words, tmp_path / "link.csv")
    assert (tmp_path / "link.csv").is_symlink()
    rows = (tmp_path / "real.csv").read_bytes()
    assert len(csv_rows(rows.decode())) == 30
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    program(*words, tmp_path / "pipe")
    assert os.read(reading, 1 << 20) == rows
    os.close(reading)
    kept = os.dup(1)
    with open(tmp_path / "all.csv", "wb", buffering=0) as both:
        both.write(b"before\n")
        os.dup2(both.fileno(), 1)
        program(*words, "/dev/stdout")
        os.dup2(kept, 1)
        both.write(b"after\n")
    os.close(kept)
    assert (tmp_path / "all.csv").read_bytes() == b"before\n" + rows + b"after\n"


def test_full_output_is_one_line(graph_run: Path, files: Path) -> None:
    words = ["-m", "gradformer", "predict", graph_run, files / "graphs.jsonl"]
    with open("/dev/full", "w") as full:
        ended = subprocess.run([sys.executable, *words], stdout=full, stderr=subprocess.PIPE)
    assert ended.returncode == 1
    assert b"error: standard output: cannot be written (No space left" in ended.stderr


def test_output_that_a_disk_takes_in_part_is_an_error_also_without_a_buffer(
    graph_run: Path, files: Path, tmp_path: Path
) -> None:
    words = ["-m", "gradformer", "predict", graph_run, files / "graphs.jsonl"]
    with open(tmp_path / "out.csv", "wb") as out:
        ended = subprocess.run(
            [sys.executable, *words],
            stdout=out,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512)),
        )
    assert (ended.returncode, (tmp_path / "out.csv").stat().st_size) == (1, 512)
    assert b"error: standard output: cannot be written (File too large)" in ended.stderr


@pytest.mark.parametrize("verb", ["predict", "embed"])
def test_a_place_that_cannot_be_written_is_named_before_the_work(
    program: Program, files: Path, tmp_path: Path, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (verb, tmp_path / "no run", files / "graphs.jsonl", "--out")
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "file").touch()
    assert "is a folder" in program(*words, tmp_path / "folder.csv", code=1).stderr
    assert "file is no folder" in program(*words, tmp_path / "file" / "out.csv", code=1).stderr
    (tmp_path / "old.csv").touch()
    monkeypatch.setattr(os, "access", lambda place, _: str(place) != str(tmp_path))
    for out in ("new/out.csv", "old.csv", f"{300 * 'n'}/out.csv"):
        said = program(*words, tmp_path / out, code=1).stderr
        assert f"{tmp_path} may not be written to" in said


@pytest.mark.parametrize(
    ("verb", "name"),
    [("predict", "a.csv"), ("embed", "a.csv"), ("explain", "a.html"), ("report", "a.html")],
)
def test_folders_on_the_way_are_made_and_a_folder_is_no_file(
    program: Program, graph_run: Path, files: Path, tmp_path: Path, verb: str, name: str
) -> None:
    words = (verb, graph_run, *(() if verb == "report" else (files / "graphs.jsonl",)))
    out = tmp_path / "new" / "folder" / name
    program(*words, "--out", out)
    assert out.is_file()
    assert "is a folder" in program(*words, "--out", out.parent, code=1).stderr
    said = program(*words, "--out", out / name, code=1).stderr
    assert "choose another place" in said
    assert "--resume" not in said
