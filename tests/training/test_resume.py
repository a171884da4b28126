"""A run that was stopped, killed or ran out of disk goes on to the same bytes."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from gradformer.errors import ConfigError, GradformerWarning, InputError
from gradformer.training.fit import fit, resume
from gradformer.training.records import read_record
from gradformer.training.run import Run
from gradformer.training.stop import StoppedError
from tests.training import toy
from tests.training.toy import QUIET


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.finish(tmp_path_factory.mktemp("long") / "run", "train.epochs=12", trials=2)


def test_a_trial_has_the_same_files_alone_and_among_others(whole: Path, tmp_path: Path) -> None:
    alone = toy.finish(tmp_path / "run", "seed=1")
    ours, theirs = toy.contents(alone / "trials" / "0"), toy.contents(whole / "trials" / "1")
    del ours["result.json"], theirs["result.json"]  # names the trial
    assert ours == theirs


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_leaves_a_run_that_continues_to_the_same_bytes(
    number: signal.Signals, long: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "stopped"
    process = toy.start(folder, "train.epochs=12", trials=2)
    wait_for_epochs(folder, 5)
    assert process.pid is not None
    os.kill(process.pid, number)
    process.join(timeout=60)
    assert process.exitcode == 3
    assert "gradformer train --resume" in folder.with_suffix(".error").read_text()
    toy.finish(folder, trials=2)
    assert toy.contents(folder) == toy.contents(long)


def test_where_nobody_reads_its_progress_a_run_stops_and_is_saved(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended at once: what it had learned since the last checkpoint was lost."""
    reading, writing = os.pipe()
    os.close(reading)
    folder, options = tmp_path / "run", {"tensorboard": False, "device": "cpu"}
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", open(writing, "w", buffering=1))  # noqa: SIM115
        with pytest.raises(StoppedError, match="stopped and saved; continue") as stopped:
            fit(toy.data(), recipe=toy.RECIPE.change("trials=2"), out=folder, **options)  # type: ignore[arg-type]
    assert stopped.value.signal == signal.SIGPIPE
    assert lines(folder) == 2  # the run and its first epoch
    resume(folder, toy.data(), **QUIET)
    assert toy.contents(folder) == toy.contents(whole)


def test_killed_at_any_moment_it_continues_to_the_same_bytes(long: Path, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    rng = np.random.default_rng(int(time.time()))
    for _ in range(10):
        process = toy.start(folder, "train.epochs=12", trials=2)
        before = lines(folder)
        while lines(folder) == before and process.is_alive():
            time.sleep(0.001)
        time.sleep(rng.uniform(0.0, 0.2))  # in a step, a record, a checkpoint, a result
        process.kill()
        process.join()
    toy.finish(folder, "train.epochs=12", trials=2)
    assert toy.contents(folder) == toy.contents(long)


def test_killed_while_writing_a_checkpoint_the_last_one_is_whole(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every rename and sync of a run is, in turn, the last thing that happens."""
    from gradformer.graphs import atomic
    from gradformer.training import files, trials

    monkeypatch.setattr(trials, "SAVE_EVERY", 0.0)

    class KilledError(BaseException):
        pass

    for fatal in range(0, 32, 4):
        folder = tmp_path / str(fatal)
        calls = iter(range(1000))

        def sync(path: Path, fatal: int = fatal, calls: object = calls) -> None:
            if next(calls) == fatal:  # type: ignore[call-overload]
                raise KilledError

        recipe = toy.RECIPE.change("trials=2")
        with monkeypatch.context() as patch:
            patch.setattr(atomic, "flush", sync)
            patch.setattr(files, "flush", sync)
            patch.setattr(shutil, "rmtree", lambda *_, **__: None)  # it tidies nothing
            with pytest.raises(KilledError):
                fit(toy.data(), recipe=recipe, out=folder, **QUIET)
        if not (folder / "recipe.yaml").exists():
            continue
        resume(folder, toy.data(), **QUIET)
        assert toy.contents(folder) == toy.contents(whole)


def test_a_full_disk_is_one_line_and_leaves_the_last_checkpoint(long: Path, tmp_path: Path) -> None:
    folder = tmp_path / "full"
    process = toy.start(folder, "train.epochs=12", trials=2)
    wait_for_epochs(folder, 4)
    assert process.pid is not None
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (20_000, 20_000))
    process.join(timeout=60)
    assert process.exitcode == 3
    error = folder.with_suffix(".error").read_text()
    assert "cannot be written (File too large); make room" in error
    assert "\n" not in error
    toy.finish(folder, trials=2)
    assert toy.contents(folder) == toy.contents(long)


def test_a_missing_or_damaged_file_is_named(copied: Path, tmp_path: Path) -> None:
    (copied / "trials/0/result.json").unlink()
    path = copied / "trials/0/checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match="safetensors: damaged"):
        resume(copied, toy.data(), **QUIET)
    (copied / "data.json").write_text("{")
    with pytest.raises(InputError, match=r"data.json: cannot be read \(Expecting property name"):
        Run.load(copied)
    (copied / "data.json").unlink()
    with pytest.raises(
        InputError, match=r"data.json: cannot be read \(No such file or directory\)"
    ):
        Run.load(copied)
    with pytest.raises(InputError, match="not a run"):
        Run.load(tmp_path)


@pytest.mark.parametrize("damaged", ["null", "{}", "[]", '{"trial": 0, "tes'])
@pytest.mark.parametrize("file", ["results.json", "trials/0/result.json", "data.json"])
def test_json_that_is_not_of_a_run_is_named(file: str, damaged: str, copied: Path) -> None:
    """It was called a bug. What can be made again is, once the file is gone."""
    before, path = toy.contents(copied), copied / file
    path.write_text(damaged)
    with pytest.raises(
        InputError, match=f"{file}: cannot be read .* restore this file, or"
    ) as said:
        Run.load(copied).usable(), Run.load(copied).results
    if file != "data.json":
        assert str(said.value).endswith("delete it and say --resume, which makes it again")
        path.unlink()
        resume(copied, toy.data(), **QUIET)
        assert toy.contents(copied) == before


def test_results_without_weights_stand_and_are_not_trained_again(whole: Path, copied: Path) -> None:
    """As they are kept in a repository."""
    shutil.rmtree(copied / "trials")
    before = toy.contents(copied)
    with pytest.raises(InputError, match=r"all trials have ended, .* --recipe .*run/recipe.yaml"):
        resume(copied, toy.data(), **QUIET)
    assert toy.contents(copied) == before
    with pytest.raises(InputError, match=r"no trial .* is kept with its weights"):
        Run.load(copied).evaluate(toy.data().store)
    (copied / "results.json").unlink()  # its record has them too
    with pytest.warns(GradformerWarning, match="not the weights of 2 of its trials"):
        resume(copied, toy.data(), trials=3, **QUIET)
    run = Run.load(copied)
    assert run.results["trials"][:2] == Run.load(whole).results["trials"]
    assert run.trials == [2]


def test_predictions_of_a_run_that_is_not_finished_say_so(whole: Path, copied: Path) -> None:
    """They are the mean of fewer trials than asked for, and other ones when it is."""
    shutil.rmtree(copied / "trials" / "1")
    (copied / "results.json").unlink()
    with pytest.warns(GradformerWarning, match="not finished, 1 trial to come, so the others"):
        found = Run.load(copied).predict(toy.data().store)
    assert found.trials.shape[0] == 1


def test_seeds_are_added_to_a_run_that_an_earlier_version_has_ended(
    whole: Path, copied: Path
) -> None:
    """Its checkpoints, which cannot be read, are of no use any more."""
    for trial in ("0", "1"):
        (copied / "trials" / trial / "checkpoint.safetensors").unlink()
        (copied / "trials" / trial / "checkpoints").mkdir()
    run = resume(copied, toy.data(), trials=3, **QUIET)
    assert run.trials == [0, 1, 2]
    assert run.results["trials"][:2] == Run.load(whole).results["trials"]


@pytest.mark.parametrize(
    ("line", "edited", "says"),
    [("  lr: 0.003", "  lr: 0.5", "train.lr is 0.5, and the run began with 0.003"),
     ("trials: 2", "trials: 1", "trials is 1, and the run began with 2")],
)  # fmt: skip
def test_a_recipe_that_was_edited_does_not_continue_a_run(
    line: str, edited: str, says: str, copied: Path
) -> None:
    """New seeds were trained with the new rate, and stood beside the old ones as one result."""
    recipe = copied / "recipe.yaml"
    before = recipe.read_text()
    recipe.write_text(before.replace(f"\n{line}\n", f"\n{edited}\n"))
    assert recipe.read_text() != before
    with pytest.raises(ConfigError, match=says):
        resume(copied, toy.data(), trials=3, **QUIET)


def test_an_endless_option_is_no_edit(tmp_path: Path) -> None:
    """A record has no numbers that are not finite, so such runs were refused."""
    recipe = toy.RECIPE.change("train.clip=inf", "train.epochs=1")
    fit(toy.data(), recipe=recipe, out=tmp_path / "run", **QUIET)
    assert resume(tmp_path / "run", toy.data(), trials=2, **QUIET).trials == [0, 1]


def test_other_data_do_not_continue_a_run(whole: Path) -> None:
    with pytest.raises(InputError, match="not those that the run began with"):
        resume(whole, toy.data(graphs=39), **QUIET)
    with pytest.raises(InputError, match=r"Python objects.* or on= to evaluate, data= to resume"):
        resume(whole, **QUIET)
    for other in ({"model": "gcn"}, {"preset": "paper"}):
        with pytest.raises(ConfigError, match="either a recipe"):
            fit(toy.data(), recipe=toy.RECIPE, **other)


def test_a_run_that_continues_elsewhere_says_so(
    copied: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    resume(copied, toy.data(), trials=2, tensorboard=False, device="cpu")  # as many as it has
    assert "bits may differ" not in capfd.readouterr().err
    record = copied / "record.jsonl"
    record.write_text(record.read_text().replace('"threads": 1', '"threads": 64', 1))
    resume(copied, toy.data(), tensorboard=False, device="cpu")
    assert "start of the run: threads; bits may differ" in capfd.readouterr().err


def lines(folder: Path) -> int:
    return len(read_record(folder / "record.jsonl"))


def wait_for_epochs(folder: Path, epochs: int) -> None:
    deadline = time.monotonic() + 120
    while lines(folder) < 1 + epochs:
        assert time.monotonic() < deadline, "the process trains nothing"
        time.sleep(0.005)
