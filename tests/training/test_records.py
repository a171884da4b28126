"""What a run writes while it trains, also where the disk takes no more."""

from __future__ import annotations

import gzip
import os
import platform
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from gradformer.errors import GradformerWarning, InputError
from gradformer.graphs.atomic import appearing
from gradformer.training import records, trials
from gradformer.training.files import replace_file
from gradformer.training.fit import fit, resume
from gradformer.training.records import (
    RECORD,
    Recorder,
    compress,
    compressed,
    environment,
    read_record,
)
from gradformer.training.run import Run
from tests.training import toy

SMALL = toy.RECIPE.change("model.layers=1", "train.epochs=16")


def test_a_full_disk_before_any_checkpoint_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "SAVE_EVERY", 1e9)
    data = toy.data(SMALL)
    words = r"record.jsonl: cannot be written \(File too large\); .* --resume"
    with toy.no_file_above(4501), pytest.raises(InputError, match=words):
        fit(data, recipe=SMALL, out=tmp_path / "run", **toy.QUIET)
    assert (tmp_path / "run" / "record.jsonl").stat().st_size == 4501
    run = resume(tmp_path / "run", data, **toy.QUIET)
    assert [e["epoch"] for e in run.record if e["kind"] == "epoch"] == list(range(1, 17))


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    replace_file(path, "old")
    words = r"result.json: cannot be written \(File too large\); make room .*, or choose another"
    with toy.no_file_above(3), pytest.raises(InputError, match=words):
        replace_file(path, "newer")
    assert path.read_text() == "old"
    assert [*tmp_path.iterdir()] == [path]


def test_processes_that_write_one_file_take_turns(tmp_path: Path) -> None:
    """As those of one study do its page: one renamed what the other was about to write, which then
    failed, or went on writing in the finished file."""
    path = tmp_path / "page.html"

    def write(letter: str) -> None:
        for _ in range(50):
            replace_file(path, letter * 100_000)
            assert len({*path.read_text()}) == 1

    writers = [toy.FORK.Process(target=write, args=(letter,)) for letter in "abc"]
    for process in writers:
        process.start()
    for process in writers:
        process.join()
    assert [process.exitcode for process in writers] == [0, 0, 0]
    assert path.stat().st_size == 100_000
    assert [*tmp_path.iterdir()] == [path]


def test_files_and_folders_are_on_the_disk_before_they_have_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a machine that goes down leaves empty ones in the place of the old."""
    file, folder, synced = tmp_path / "file", tmp_path / "folder", []

    def sync(descriptor: int) -> None:
        place = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        content = place.read_text() if place.is_file() else ""
        synced.append((place.name, content, file.exists(), folder.exists()))

    monkeypatch.setattr(os, "fsync", sync)
    replace_file(file, "whole")
    assert synced == [(".file.unfinished", "whole", False, False), (tmp_path.name, "", True, False)]
    synced.clear()
    with appearing(folder) as unfinished:
        (unfinished / "inner").write_text("whole")
    inside = [("inner", "whole", True, False), (".folder.unfinished", "", True, False)]
    assert synced == [*inside, (tmp_path.name, "", True, True)]
    synced.clear()
    Recorder(tmp_path / "record.jsonl").sync()  # before a checkpoint goes beyond it
    assert [name for name, *_ in synced] == ["record.jsonl"]


def test_curves_that_cannot_be_written_are_given_up(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "record.jsonl", tensorboard=True)
    recorder.epoch(0, {"epoch": 1, "loss": 0.5})
    with toy.no_file_above(120), pytest.warns(GradformerWarning) as said:
        recorder.epoch(0, {"epoch": 2, "loss": 0.5})
    assert str(said[0].message) == (
        f"{tmp_path / 'tensorboard'}: cannot be written (File too large); the run goes on without "
        "curves for TensorBoard"
    )
    (curves,) = (tmp_path / "tensorboard" / "trial-0").iterdir()
    size = curves.stat().st_size
    recorder.epoch(0, {"epoch": 3, "loss": 0.5})
    recorder.sync()
    recorder.close()
    assert curves.stat().st_size == size
    assert [entry["epoch"] for entry in read_record(tmp_path / "record.jsonl")] == [1, 2, 3]


def test_an_epoch_keeps_the_digits_that_float32_has(tmp_path: Path) -> None:
    starts = torch.rand(4, 50, generator=torch.Generator().manual_seed(0)) * 10
    recorder = Recorder(tmp_path / "record.jsonl")
    recorder.epoch(0, {"epoch": 1, "starts": starts.tolist(), "loss": 0.1 + 0.2})
    recorder.close()
    (line,) = read_record(tmp_path / "record.jsonl")
    assert torch.equal(torch.tensor(line["starts"]), starts)
    assert line["loss"] == 0.3  # not 0.30000000000000004


def test_a_record_without_its_first_line_gets_it(tmp_path: Path) -> None:
    recipe = SMALL.change("train.epochs=1")
    run = fit(toy.data(recipe), recipe=recipe, out=tmp_path / "run", **toy.QUIET)
    kinds = [entry["kind"] for entry in run.record]
    (run.folder / "record.jsonl").write_text("")  # opened, then killed
    for path in ("results.json", "trials/0/result.json", "trials/0/checkpoint.safetensors"):
        (run.folder / path).unlink()
    assert [e["kind"] for e in resume(run.folder, toy.data(recipe), **toy.QUIET).record] == kinds


def test_a_line_that_was_never_finished_is_no_part_of_a_record(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    path.write_text('{"kind": "run"}\n{"kind": "ep')
    assert read_record(path) == [{"kind": "run"}]


def test_a_compressed_record_is_read_and_continued_as_any_other(tmp_path: Path) -> None:
    """A study compresses what is complete: epochs of 200 runs were four fifths of a checkout."""
    recipe = SMALL.change("train.epochs=1", "trials=1")
    run = fit(toy.data(recipe), recipe=recipe, out=tmp_path / "run", **toy.QUIET)
    path, before = run.folder / RECORD, run.record
    content = path.read_bytes()
    for _ in range(2):  # the second finds nothing to do
        compress(path)
    assert not path.exists()
    assert gzip.decompress(compressed(path).read_bytes()) == content
    assert Run.load(run.folder).record == before
    shutil.copytree(run.folder, tmp_path / "more")
    more = resume(tmp_path / "more", toy.data(recipe), trials=2, **toy.QUIET)
    assert [line["trial"] for line in more.record if line["kind"] == "epoch"] == [0, 1]
    assert [path.name for path in more.folder.glob("record*")] == [RECORD]
    compressed(path).write_bytes(compressed(path).read_bytes()[:-20])
    with pytest.raises(InputError, match=r"record.jsonl: cannot be read \(Compressed file ended"):
        run.record  # noqa: B018


@pytest.mark.parametrize(
    "damaged", ["3", '["kind"]', '{"epoch": 1}', '{"kind": []}', '{"kind": "epoch", "epo', "\0",
                '{"kind": "epoch", "tri\x7fl": 0, "epoch": 1}', '{"kind": "result", "trial": 0}'],
)  # fmt: skip
def test_damaged_lines_of_a_record_are_left_out_and_named(damaged: str, tmp_path: Path) -> None:
    """It was silent, or a bug where a line was read that lacks what it is about."""
    path = tmp_path / "record.jsonl"
    path.write_text(f'{{"kind": "run"}}\n{damaged}\n{{"kind": "resume"}}\n')
    with pytest.warns(GradformerWarning, match=r"record.jsonl: damaged lines are left out: 2;"):
        assert [entry["kind"] for entry in read_record(path)] == ["run", "resume"]
    path.unlink()
    path.mkdir()
    with pytest.raises(InputError, match=r"record.jsonl: cannot be read \(Is a directory\); mend"):
        read_record(path)


def test_epochs_that_a_record_has_lost_are_told_of(tmp_path: Path) -> None:
    recipe = SMALL.change("train.epochs=3")
    run = fit(toy.data(recipe), recipe=recipe, out=tmp_path / "run", **toy.QUIET)
    record = run.folder / "record.jsonl"
    lines = record.read_text().splitlines(keepends=True)
    record.write_text("".join(lines[:2]))  # cut off, as by a machine that went down
    with pytest.warns(GradformerWarning, match="record.jsonl: has lost 2 epochs of training"):
        run = resume(run.folder, toy.data(recipe), trials=2, **toy.QUIET)
    assert [e["epoch"] for e in run.record if e["kind"] == "epoch"] == [1, 1, 2, 3]


def test_the_first_epoch_is_saved_if_it_was_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = []
    monkeypatch.setattr(trials, "save_checkpoint", lambda _, t: saved.append(t.progress.epoch))
    recipe = SMALL.change("train.epochs=3")
    monkeypatch.setattr(trials, "SAVE_EVERY", 1e-6)
    fit(toy.data(recipe), recipe=recipe, out=tmp_path / "run", **toy.QUIET)
    assert saved == [1, 2, 3]


def test_a_cpu_goes_by_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "processor\t: 0\nmodel name\t: Abacus 9\n\nprocessor\t: 1\nmodel name\t: Abacus 9\n"
    with monkeypatch.context() as patch:
        patch.setattr(records.Path, "read_text", lambda *_: text)
        assert records._processor() == "Abacus 9"
        patch.setattr(records.Path, "read_text", lambda *_: "")
        assert records._processor() in (platform.processor(), platform.machine())
    here = environment(torch.device("cpu"))
    assert here["device_name"] == records._processor()
    assert here["versions"]["numpy"] == np.__version__
