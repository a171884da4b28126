"""All trials of a run, side by side: begun or continued, trained, tested once, written down.

Several runs can share the device: then the trials of all of them are side by side.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import torch
from safetensors.torch import save as write_tensors

from gradformer.training.capture import capture
from gradformer.training.checkpoint import has_checkpoint, load_checkpoint, save_checkpoint
from gradformer.training.data import TrainingData
from gradformer.training.distributed import from_first, is_first
from gradformer.training.files import RESUMABLE, replace_file, replace_json
from gradformer.training.fine_tuning import tell_seen
from gradformer.training.folder import WEIGHTS
from gradformer.training.keepsakes import Answers, save_answers
from gradformer.training.loop import train
from gradformer.training.metrics import LOWER_IS_BETTER, scores
from gradformer.training.progress import Display
from gradformer.training.recipe import Recipe
from gradformer.training.records import (
    RECORD,
    Recorder,
    environment,
    header,
    read_record,
    read_result,
    truncate,
)
from gradformer.training.stop import Stop, StoppedError
from gradformer.training.trial import Trial
from gradformer.training.wording import rows_table

_DECISIVE = ("versions", "device_name", "threads", "processes")
SAVE_EVERY = 60.0
"""Seconds from the start, and then between checkpoints at epoch ends, that a checkpoint waits.

The last epoch and a signal are always saved."""


class Trials:
    """The trials of a recipe and their folders in that of the run, where nothing is done before
    :meth:`open`. If they begin ``anew``, what an earlier run has left there is ignored."""

    def __init__(
        self,
        folder: Path,
        recipe: Recipe,
        data: TrainingData,
        device: torch.device,
        *,
        anew: bool = False,
        tensorboard: bool = True,
    ) -> None:
        self.folder, self.recipe, self.device = folder, recipe, device
        self.tensorboard = tensorboard
        collator = data.collator(device)
        begun = [not anew and self._was_begun(number) for number in range(recipe.trials)]
        self.trials = [Trial(k, recipe, data, collator, was) for k, was in enumerate(begun)]
        if recipe.train.weights != "none" and not all(begun):
            tell_seen(recipe, data, [k for k, was in enumerate(begun) if not was])
        self.waiting: list[Trial] = []
        self.changes = ""  # what may have changed bits since the run began
        self._recorder: Recorder | None = None
        self._saved: dict[int, float] = {}

    def open(self) -> None:
        """Go to the last checkpoints, and begin or continue the record; needs the folder."""
        ended = from_first([not self._goes_on(trial) for trial in self.trials])
        self.waiting = [trial for trial, has_ended in zip(self.trials, ended) if not has_ended]
        began, here = header(read_record(self._record_path)), environment(self.device)
        before = began.get("environment", here)
        self.changes = ", ".join(name for name in _DECISIVE if before.get(name) != here[name])
        if is_first():  # processes that share a batch have the same state
            self._recorder = self._open_record(here, begins=not began)
        self._saved = dict.fromkeys(range(len(self.trials)), time.monotonic())

    def finish_ended(self) -> None:
        """Test those that ended, but were killed before their result was written."""
        for trial in self.waiting:
            if trial.progress.status != "training":
                self._capture([trial])
                self._finish(trial)

    def prepare(self) -> str | None:
        """Make ready to train; gives the reason why steps are not captured, if they are not."""
        return self._capture([t for t in self.waiting if t.progress.status == "training"])

    def _capture(self, trials: list[Trial]) -> str | None:
        return capture(trials) if self.device.type == "cuda" else None

    def note(self, trial: Trial, record: Mapping[str, Any]) -> None:
        """Write down an epoch of one of the trials, save it if it is time, test it if it ended."""
        if self._recorder is not None:
            self._recorder.epoch(trial.number, record)
        ended = trial.progress.status != "training"
        if ended or time.monotonic() - self._saved[trial.number] >= SAVE_EVERY:
            self._save(trial)
        if ended:
            self._finish(trial)

    def save(self) -> None:
        """Checkpoints of all that has not ended."""
        for trial in self.waiting:
            self._save(trial)

    def close(self) -> None:
        """Nothing more is written down."""
        if self._recorder is not None:
            self._recorder.close()

    def results(self) -> list[dict[str, Any]]:
        """The result of every trial, all of which have ended."""
        paths = [self._result_path(trial.number) for trial in self.trials if is_first()]
        return from_first([read_result(path) for path in paths])

    @property
    def _record_path(self) -> Path:
        return self.folder / RECORD

    def _of(self, number: int) -> Path:
        return self.folder / "trials" / str(number)

    def _result_path(self, number: int) -> Path:
        return self._of(number) / "result.json"

    def _save(self, trial: Trial) -> None:
        if self._recorder is not None:
            self._recorder.sync()
            save_checkpoint(self._of(trial.number), trial)
        self._saved[trial.number] = time.monotonic()

    def _open_record(self, here: Mapping[str, Any], begins: bool) -> Recorder:
        truncate(self._record_path, {trial.number: self._epochs(trial) for trial in self.trials})
        recorder = Recorder(self._record_path, self.tensorboard)
        around = {"environment": here, "time": time.strftime("%FT%TZ", time.gmtime())}
        if begins:
            about = self.trials[0].data.about
            recorder.write("run", recipe=self.recipe.to_dict(), data=about, **around)
        else:
            recorder.write("resume", **around)
        for trial in self.trials:
            if trial not in self.waiting:
                recorder.write("result", **read_result(self._result_path(trial.number)))
        return recorder

    def _was_begun(self, number: int) -> bool:
        return has_checkpoint(self._of(number)) or self._result_path(number).exists()

    def _goes_on(self, trial: Trial) -> bool:
        """Whether something is left to do, if only to make lost weights again; then the trial is at
        its last checkpoint."""
        folder, has_result = self._of(trial.number), self._result_path(trial.number).exists()
        if has_result and (folder / WEIGHTS).exists():
            return False
        return load_checkpoint(folder, trial) or not has_result

    def _epochs(self, trial: Trial) -> int:
        """Epochs that are done: a result says so even if the checkpoint is gone."""
        path = self._result_path(trial.number)
        return int(read_result(path)["epochs"]) if path.exists() else trial.progress.epoch

    def _finish(self, trial: Trial) -> None:
        """Test the selected weights, once, and write weights and result."""
        answers = answers_of(trial)
        trial.captured = None  # frees device memory for the trials that go on
        result = outcome(trial, answers)
        if self._recorder is None:
            return
        folder = self._of(trial.number)
        with trial.using(trial.best):
            state = trial.model.state_dict()
            tensors = {name: tensor.detach().cpu().clone() for name, tensor in state.items()}
        replace_file(folder / WEIGHTS, write_tensors(tensors), RESUMABLE)
        if answers is not None:
            save_answers(folder, answers)
        rows = rows_table(trial.data, trial.parts, answers)
        if rows is not None:
            replace_file(folder / "rows.csv", rows, RESUMABLE)
        replace_json(self._result_path(trial.number), result, RESUMABLE)
        self._recorder.write("result", **result)


def train_all(runs: Sequence[Trials], until: float | None, quiet: bool) -> None:
    """Train what is left of ``runs``, all trials side by side; a run's bits are those of it alone.

    Raises :class:`StoppedError` after saving if a signal asks to stop, the end of a pipe with its
    progress, or the monotonic clock at ``until``. Shows nothing if ``quiet``.
    """
    try:
        for run in runs:
            run.open()
        owner = {trial: run for run in runs for trial in run.waiting}
        with Stop(until).listening() as stop, Display(list(owner), quiet or not is_first()) as show:

            def on_epoch(trial: Trial, record: Mapping[str, Any]) -> None:
                try:
                    show.epoch(trial, record)
                except BrokenPipeError:  # nobody reads on: that asks to stop as well
                    stop.signal = signal.SIGPIPE
                owner[trial].note(trial, record)

            for run in runs:  # before the steps of others take the memory
                run.finish_ended()
            for run in runs:
                if run.changes:
                    show.say(f"other than at the start of the run: {run.changes}; bits may differ")
                reason = run.prepare()
                if reason is not None:
                    show.say(f"steps are not captured as CUDA graphs: {reason}")
            if not train(list(owner), on_epoch, stop):
                for run in runs:
                    run.save()
                assert stop.signal is not None
                again = f"gradformer train --resume {quote(str(runs[0].folder))}"
                raise StoppedError(f"stopped and saved; continue: {again}", stop.signal)
    finally:
        for run in runs:
            run.close()


def answers_of(trial: Trial) -> Answers | None:
    """Answers of the selected weights on the test part; None for a trial that diverged."""
    if trial.progress.status != "finished" or not trial.progress.best_epoch:
        return None
    items = trial.parts.test
    with trial.using(trial.best):
        return Answers(trial.predict(items), trial.data.labels(items))


def outcome(trial: Trial, answers: Answers | None) -> dict[str, Any]:
    """The result of a trial that has ended: test scores at the epoch of the best validation."""
    progress, task, test = trial.progress, trial.data.schema.task, None
    if answers is not None:
        test = scores(answers.prediction, answers.target, task, trial.scale)
    return {
        "trial": trial.number,
        "seed": trial.seed,
        "status": progress.status,
        "bad_step": progress.bad_step,
        "metric": trial.data.metric,
        "epochs": progress.epoch,
        "best_epoch": progress.best_epoch,
        "val": progress.best,
        "test": test,
        "parameters": sum(p.numel() for p in trial.model.parameters()),
        "scale": None if trial.scale is None else trial.scale.to_dict(),
    }


def summary(results: list[dict[str, Any]], metric: str) -> dict[str, Any]:
    """Mean and standard deviation (of the sample) over the trials that ended well, and the list."""
    good = [r for r in results if r["test"] is not None and r["test"][metric] is not None]
    return {
        "metric": metric,
        "lower_is_better": metric in LOWER_IS_BETTER,
        **{part: mean_and_std([r[part][metric] for r in good]) for part in ("val", "test")},
        "diverged": [r["trial"] for r in results if r["status"] == "diverged"],
        "trials": results,
    }


def mean_and_std(values: list[float]) -> dict[str, Any]:
    """Mean and standard deviation of the sample, None where there are too few; and the values."""
    return {
        "mean": float(np.mean(values)) if values else None,
        "std": float(np.std(values, ddof=1)) if len(values) > 1 else None,
        "values": values,
    }
