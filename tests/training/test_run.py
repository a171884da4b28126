"""Runs: folders, records, results, prediction; nothing is overwritten or half written."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gradformer.errors import ConfigError, GradformerWarning, InputError
from gradformer.graphs.arrays import Schema
from gradformer.graphs.batch import Batch
from gradformer.model.base import MODELS, GraphModel, ModelConfig
from gradformer.model.encoders import FeatureEncoder
from gradformer.model.heads import Head
from gradformer.training.capture import _undone
from gradformer.training.checkpoint import load_checkpoint, save_checkpoint
from gradformer.training.fit import fit, resume
from gradformer.training.loop import Stop, train_epoch
from gradformer.training.recipe import ModelChoice
from gradformer.training.records import read_record, truncate
from gradformer.training.run import Run
from gradformer.training.trial import Trial
from gradformer.training.trials import summary
from tests.training import toy

QUIET = toy.QUIET


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a run that must not depend on how often it was stopped."""
    found = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("record.jsonl", ".lock")
    }
    timeless = [
        {k: v for k, v in entry.items() if k not in ("seconds", "graphs_per_second")}
        for entry in read_record(folder / "record.jsonl")
        if entry["kind"] in ("epoch", "result")
    ]
    lines = sorted(json.dumps(entry) for entry in timeless)
    return {**found, "record": "\n".join(lines).encode()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.finish(tmp_path_factory.mktemp("whole") / "run", trials=2)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.finish(tmp_path_factory.mktemp("long") / "run", "train.epochs=12", trials=2)


def test_a_run_holds_its_recipe_record_and_results(whole: Path) -> None:
    run = Run.load(whole)
    assert run.recipe == toy.RECIPE.change("trials=2")
    kinds = [entry["kind"] for entry in run.record]
    assert kinds[0] == "run"
    assert kinds.count("epoch") == 8
    assert kinds.count("result") == 2
    environment = run.record[0]["environment"]
    assert environment["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    epoch = next(entry for entry in run.record if entry["kind"] == "epoch")
    assert np.shape(epoch["starts"]) == (1, 2)
    values = [result["test"]["accuracy"] for result in run.results["trials"]]
    assert run.results["test"]["mean"] == pytest.approx(np.mean(values))
    assert run.results["test"]["std"] == pytest.approx(np.std(values, ddof=1))


def test_a_trial_has_the_same_files_alone_and_among_others(whole: Path, tmp_path: Path) -> None:
    alone = toy.finish(tmp_path / "run", "seed=1")
    ours, theirs = contents(alone / "trials" / "0"), contents(whole / "trials" / "1")
    del ours["result.json"], theirs["result.json"]  # names the trial
    assert ours == theirs


def test_predictions_are_those_of_the_selected_weights(whole: Path) -> None:
    run, data = Run.load(whole), toy.data()
    found = run.predict(data.store)
    assert found.trials.shape == (2, 40, 2)
    np.testing.assert_allclose(found.value.sum(axis=1), 1.0)
    for trial, result in enumerate(run.results["trials"]):
        items = data.split(result["seed"]).test
        right = found.trials[trial][items].argmax(axis=1) == data.labels(items)
        assert right.mean() == pytest.approx(result["test"]["accuracy"])


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
    assert contents(folder) == contents(long)


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
    assert contents(folder) == contents(long)


def test_killed_while_writing_a_checkpoint_the_last_one_is_whole(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every rename and sync of a run is, in turn, the last thing that happens."""
    from gradformer.graphs import atomic
    from gradformer.training import files

    class KilledError(BaseException):
        pass

    for fatal in range(0, 60, 7):
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
                fit(toy.data(), recipe=recipe, out=folder, save_every=0.0, **QUIET)
        if not (folder / "recipe.yaml").exists():
            continue
        resume(folder, toy.data(), save_every=0.0, **QUIET)
        assert contents(folder) == contents(whole)


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
    assert contents(folder) == contents(long)


def test_a_missing_or_damaged_file_is_named(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / "trials/0/result.json").unlink()
    (path,) = (folder / "trials/0/checkpoints").glob("*/tensors.safetensors")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match="checksum"):
        resume(folder, toy.data(), **QUIET)
    path.unlink()
    with pytest.raises(InputError, match="safetensors: cannot be read"):
        resume(folder, toy.data(), **QUIET)
    (folder / "data.json").write_text("{")
    with pytest.raises(InputError, match=r"data.json: cannot be read"):
        Run.load(folder)
    with pytest.raises(InputError, match="not a run"):
        Run.load(tmp_path)


def test_results_without_weights_stand_and_are_not_trained_again(
    whole: Path, tmp_path: Path
) -> None:
    """As they are kept in a repository."""
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    shutil.rmtree(folder / "trials")
    before = contents(folder)
    with pytest.raises(InputError, match=r"all 2 trials have ended, .* --recipe .*run/recipe.yaml"):
        resume(folder, toy.data(), **QUIET)
    assert contents(folder) == before
    with pytest.raises(InputError, match=r"no trial .* is kept with its weights"):
        Run.load(folder).evaluate(toy.data().store)
    (folder / "results.json").unlink()  # its record has them too
    with pytest.warns(GradformerWarning, match="not the weights of 2 of its trials"):
        resume(folder, toy.data(), trials=3, **QUIET)
    run = Run.load(folder)
    assert run.results["trials"][:2] == Run.load(whole).results["trials"]
    assert run.trials == [2]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda state: state.pop("sha256"), "missing or unknown: sha256"),
        (lambda state: state.pop("progress"), "progress.best, progress.best_epoch, progress.epoch"),
        (lambda state: state["progress"].pop("status"), "missing or unknown: progress.status"),
        (lambda state: state["progress"].update(mood=1), "missing or unknown: progress.mood"),
        (lambda state: state.update(progress=[]), "not the state of a trial"),
        (lambda state: state.update(format=0), "format 0, this version reads 1"),
    ],
)
def test_a_state_of_another_kind_is_one_line(
    change: Callable[[dict[str, Any]], object], words: str, tmp_path: Path
) -> None:
    data = toy.data()
    trial = Trial(0, toy.RECIPE, data, data.collator("cpu"))
    save_checkpoint(tmp_path, trial)
    (path,) = (tmp_path / "checkpoints").glob("*/state.json")
    state = json.loads(path.read_text())
    change(state)
    path.write_text(json.dumps(state))
    with pytest.raises(InputError, match=f"^{path}: .*{words}.*; restore the file, or remove"):
        load_checkpoint(tmp_path, trial)


def test_a_checkpoint_of_another_model_is_one_line(tmp_path: Path) -> None:
    data = toy.data()
    wide = toy.RECIPE.change("model.width=24")
    one, other = (Trial(0, recipe, data, data.collator("cpu")) for recipe in (toy.RECIPE, wide))
    save_checkpoint(tmp_path, one)
    with pytest.raises(InputError, match=r"safetensors: weights/.* is shaped \[.*, expected \["):
        load_checkpoint(tmp_path, other)


def test_the_batches_that_a_norm_of_torch_has_seen_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's model may have one; with momentum None it forgot all that it had seen before. Nor
    may it count a step that is undone, as one before a CUDA graph is recorded, or keep a flag that
    is down in a checkpoint as it was at first."""

    class Normed(GraphModel):
        Config = ModelConfig

        def __init__(self, schema: Schema, config: Any = None, **options: Any) -> None:
            super().__init__(schema, config, options)
            self.node = FeatureEncoder(schema.node, 8)
            self.norm = torch.nn.BatchNorm1d(8, momentum=None)
            self.register_buffer("is_new", torch.tensor(True))
            self.head = Head(8, schema.outputs, schema.level)

        def states(self, batch: Batch) -> torch.Tensor:
            self.is_new &= False
            normed: torch.Tensor = self.norm(self.node(batch))
            return normed

    monkeypatch.setitem(MODELS, "normed", Normed)
    recipe = replace(toy.RECIPE, model=ModelChoice("normed", ModelConfig()))
    data = toy.data()
    one, other = (Trial(0, recipe, data, data.collator("cpu")) for _ in range(2))
    with _undone(one.step.state):
        one.step(one.batches()[0])
    train_epoch([one], Stop())
    save_checkpoint(tmp_path, one)
    load_checkpoint(tmp_path, other)
    assert not other.model.state_dict()["is_new"]
    assert int(other.model.state_dict()["norm.num_batches_tracked"]) == one.steps_per_epoch
    for trial in (one, other):
        trial.losses = []
        train_epoch([trial], Stop())
    for name, value in one.model.state_dict().items():
        assert torch.equal(value, other.model.state_dict()[name]), name


def test_a_checkpoint_that_cannot_be_written_says_how_to_go_on(tmp_path: Path) -> None:
    data = toy.data()
    (tmp_path / "checkpoints" / ".latest.unfinished").mkdir(parents=True)
    with pytest.raises(InputError, match=r"latest: cannot be written .* --resume \(from the last"):
        save_checkpoint(tmp_path, Trial(0, toy.RECIPE, data, data.collator("cpu")))


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for folder in (Path("/proc/run"), tmp_path / "file" / "run"):
        with pytest.raises(InputError, match=f"{folder}: cannot be written"):
            fit(toy.data(), recipe=toy.RECIPE, out=folder, **QUIET)


def test_nothing_is_overwritten_unasked(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="exists already"):
        fit(toy.data(), recipe=toy.RECIPE, out=whole, **QUIET)
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(InputError, match="not a run"):
        fit(toy.data(), recipe=toy.RECIPE, out=tmp_path, overwrite=True, **QUIET)
    assert (tmp_path / "mine.txt").exists()
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    short = toy.RECIPE.change("train.epochs=1")
    assert fit(toy.data(), recipe=short, out=folder, overwrite=True, **QUIET).recipe == short
    assert len(Run.load(folder).trials) == 1


def test_other_data_do_not_continue_a_run(whole: Path) -> None:
    with pytest.raises(InputError, match="not those that the run began with"):
        resume(whole, toy.data(graphs=39), **QUIET)
    with pytest.raises(InputError, match="Python objects"):
        resume(whole, **QUIET)
    with pytest.raises(ConfigError, match="either a recipe"):
        fit(toy.data(), recipe=toy.RECIPE, model="gcn")


def test_a_run_that_continues_elsewhere_says_so(
    whole: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    resume(folder, toy.data(), tensorboard=False, device="cpu")
    assert "bits may differ" not in capfd.readouterr().err
    record = folder / "record.jsonl"
    record.write_text(record.read_text().replace('"threads": 1', '"threads": 64', 1))
    resume(folder, toy.data(), tensorboard=False, device="cpu")
    assert "start of the run: threads; bits may differ" in capfd.readouterr().err


def test_regression_targets_are_learned_on_their_scale(tmp_path: Path) -> None:
    data = toy.data(task="regression")
    recipe = toy.RECIPE.change("train.epochs=30", "train.lr=1e-2", "model.attention_dropout=0")
    run = fit(data, recipe=recipe, out=tmp_path / "run", **QUIET)
    y = data.labels(np.arange(40))
    found = run.predict(data.store, device="auto")
    assert found.value.shape == (40, 1)
    for name in ("gpu", "mps", "meta"):
        with pytest.raises(ConfigError, match=f"device: unknown name '{name}'"):
            run.predict(data.store, device=name)
    test = data.split(0).test
    error = np.abs(found.value[test] - y[test]).mean()
    assert error == pytest.approx(run.results["test"]["mean"], rel=1e-5)
    assert error < 0.8 * np.abs(y[test] - y.mean()).mean()


def test_a_record_is_truncated_to_the_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    entries = [{"kind": "run"}]
    entries += [{"kind": "epoch", "trial": t, "epoch": e} for e in (1, 2, 3) for t in (0, 1)]
    entries += [{"kind": "result", "trial": 0}]
    path.write_text("".join(json.dumps(e) + "\n" for e in entries) + '{"kind": "epo')
    truncate(path, {0: 2})
    left = [(e["kind"], e.get("trial"), e.get("epoch")) for e in read_record(path)]
    assert left == [("run", None, None), ("epoch", 0, 1), ("epoch", 0, 2)]


def test_a_diverged_trial_is_left_out_of_the_mean() -> None:
    good = {"trial": 0, "status": "finished", "val": {"mae": 0.5}, "test": {"mae": 0.4}}
    bad = {"trial": 1, "status": "diverged", "val": {}, "test": None}
    found = summary([good, bad], "mae")
    assert found["test"] == {"mean": 0.4, "std": None, "values": [0.4]}
    assert found["diverged"] == [1]


def lines(folder: Path) -> int:
    return len(read_record(folder / "record.jsonl"))


def wait_for_epochs(folder: Path, epochs: int) -> None:
    deadline = time.monotonic() + 120
    while lines(folder) < 1 + epochs:
        assert time.monotonic() < deadline, "the process trains nothing"
        time.sleep(0.005)
