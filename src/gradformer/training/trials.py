"""All trials of a run, side by side: begun or continued, trained, tested once, written down."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save as write_tensors

from gradformer.training.capture import capture
from gradformer.training.checkpoint import load_checkpoint, save_checkpoint
from gradformer.training.data import TrainingData
from gradformer.training.distributed import from_first, is_first
from gradformer.training.files import read_json, replace_file, replace_json, writing
from gradformer.training.keepsakes import Answers, save_answers
from gradformer.training.loop import Stop, StoppedError, train
from gradformer.training.metrics import LOWER_IS_BETTER, scores
from gradformer.training.progress import Display
from gradformer.training.recipe import Recipe
from gradformer.training.records import Recorder, environment, read_record, truncate
from gradformer.training.trial import Trial

_DECISIVE = ("versions", "device_name", "threads", "processes")
SAVE_EVERY = 60.0
"""Seconds between checkpoints at epoch ends; the last epoch and a signal are always saved."""


class Trials:
    """The trials of a recipe and their folders.

    Args:
        folder: of the run; it exists.
        recipe, data: what is trained on what.
        device: where.
        save_every: seconds between checkpoints.
        tensorboard: write curves for TensorBoard too.
        quiet: show nothing.
        until: when to stop and save, on the monotonic clock.
    """

    def __init__(
        self,
        folder: Path,
        recipe: Recipe,
        data: TrainingData,
        device: torch.device,
        *,
        save_every: float = SAVE_EVERY,
        tensorboard: bool = True,
        quiet: bool = False,
        until: float | None = None,
    ) -> None:
        self.folder, self.recipe, self.device, self.until = folder, recipe, device, until
        self.save_every, self.tensorboard, self.quiet = save_every, tensorboard, quiet
        self.writes = is_first()  # processes that share a batch have the same state
        collator = data.collator(device)
        self.trials = [Trial(number, recipe, data, collator) for number in range(recipe.trials)]
        self._saved: dict[int, float] = {}

    def run(self) -> list[dict[str, Any]]:
        """Train what is left to train; gives the result of every trial.

        Raises :class:`StoppedError` after saving if a signal or the clock asks to stop.
        """
        for trial in self.trials:
            load_checkpoint(self._of(trial), trial)
        changes = self._changes()
        recorder = self._recorder()
        waiting = [trial for trial in self.trials if not self._result_path(trial).exists()]
        try:
            with (
                Stop(self.until).listening() as stop,
                Display(waiting, self.quiet or not self.writes) as show,
            ):

                def on_epoch(trial: Trial, record: Mapping[str, Any]) -> None:
                    if recorder is not None:
                        recorder.epoch(trial.number, record)
                    show.epoch(trial, record)
                    ended = trial.progress.status != "training"
                    if ended or self._due(trial):
                        self._save(trial, recorder)
                    if ended:
                        self._finish(trial, recorder)

                if changes:
                    show.say(f"other than at the start of the run: {changes}; bits may differ")
                for trial in waiting:  # ended, but killed before its result was written
                    if trial.progress.status != "training":
                        self._finish(trial, recorder)
                if self.device.type == "cuda":
                    reason = capture([t for t in waiting if t.progress.status == "training"])
                    if reason is not None:
                        show.say(f"steps are not captured as CUDA graphs: {reason}")
                if not train(waiting, on_epoch, stop):
                    for trial in waiting:
                        self._save(trial, recorder)
                    assert stop.signal is not None
                    raise StoppedError(
                        f"stopped and saved; continue: gradformer train --resume {self.folder}",
                        stop.signal,
                    )
        finally:
            if recorder is not None:
                recorder.close()
        written = [read_json(self._result_path(t)) for t in self.trials] if self.writes else []
        results: list[dict[str, Any]] = from_first(written)
        return results

    def _of(self, trial: Trial) -> Path:
        return self.folder / "trials" / str(trial.number)

    def _result_path(self, trial: Trial) -> Path:
        return self._of(trial) / "result.json"

    def _due(self, trial: Trial) -> bool:
        now = time.monotonic()
        return now - self._saved.setdefault(trial.number, now) >= self.save_every

    def _save(self, trial: Trial, recorder: Recorder | None) -> None:
        if recorder is not None:
            recorder.sync()
            save_checkpoint(self._of(trial), trial)
        self._saved[trial.number] = time.monotonic()

    def _changes(self) -> str:
        """What a resumed run finds different from where it began, as far as it may change bits."""
        began = next(iter(read_record(self.folder / "record.jsonl")), {})
        before, now = began.get("environment"), environment(self.device)
        if before is None:
            return ""
        return ", ".join(name for name in _DECISIVE if before.get(name) != now[name])

    def _recorder(self) -> Recorder | None:
        if not self.writes:
            return None
        path = self.folder / "record.jsonl"
        began = not path.exists()
        if not began:
            truncate(path, {trial.number: trial.progress.epoch for trial in self.trials})
        recorder = Recorder(path, self.tensorboard)
        about = self.trials[0].data.about
        header = {
            "environment": environment(self.device),
            "time": time.strftime("%FT%TZ", time.gmtime()),
        }
        if began:
            recorder.write("run", recipe=self.recipe.to_dict(), data=about, **header)
        else:
            recorder.write("resume", **header)
        for trial in self.trials:
            if self._result_path(trial).exists():
                recorder.write("result", **read_json(self._result_path(trial)))
        return recorder

    def _finish(self, trial: Trial, recorder: Recorder | None) -> None:
        """Test the selected weights, once, and write weights and result."""
        answers = answers_of(trial)
        result = outcome(trial, answers)
        if recorder is None:
            return
        folder = self._of(trial)
        with writing(folder), trial.selected() as model:
            folder.mkdir(parents=True, exist_ok=True)
            tensors = {name: t.detach().cpu().clone() for name, t in model.state_dict().items()}
            replace_file(folder / "model.safetensors", write_tensors(tensors))
        if answers is not None:
            save_answers(folder, answers)
        replace_json(self._result_path(trial), result)
        recorder.write("result", **result)


def answers_of(trial: Trial) -> Answers | None:
    """Answers of the selected weights on the test part; None for a trial that diverged."""
    if trial.progress.status != "finished" or not trial.progress.best_epoch:
        return None
    items = trial.parts.test
    with trial.selected():
        return Answers(trial.predict(items), trial.data.labels(items))


def outcome(trial: Trial, answers: Answers | None) -> dict[str, Any]:
    """The result of a trial that has ended: test scores at the epoch of the best validation."""
    progress, task = trial.progress, trial.data.schema.task
    return {
        "trial": trial.number,
        "seed": trial.seed,
        "status": progress.status,
        "bad_step": progress.bad_step,
        "metric": trial.data.metric,
        "epochs": progress.epoch,
        "best_epoch": progress.best_epoch,
        "val": progress.best,
        "test": None if answers is None else scores(answers.prediction, answers.target, task),
        "parameters": sum(p.numel() for p in trial.model.parameters()),
        "scale": None if trial.scale is None else trial.scale.to_dict(),
    }


def summary(results: list[dict[str, Any]], metric: str) -> dict[str, Any]:
    """Mean and standard deviation (of the sample) over the trials that ended well, and the list."""
    values = {
        part: [
            result[part][metric]
            for result in results
            if result["test"] is not None and result["test"][metric] is not None
        ]
        for part in ("val", "test")
    }
    return {
        "metric": metric,
        "lower_is_better": metric in LOWER_IS_BETTER,
        **{part: _spread(found) for part, found in values.items()},
        "diverged": [r["trial"] for r in results if r["status"] == "diverged"],
        "trials": results,
    }


def _spread(values: list[float]) -> dict[str, Any]:
    return {
        "mean": float(np.mean(values)) if values else None,
        "std": float(np.std(values, ddof=1)) if len(values) > 1 else None,
        "values": values,
    }
