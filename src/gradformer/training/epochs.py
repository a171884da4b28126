"""The steps of an epoch: of one trial, or of all that are captured, a step of each at a time."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gradformer.errors import warn
from gradformer.graphs.collate import Capacity, Collator
from gradformer.model.base import GraphModel
from gradformer.training.capture import CapturedTrial, forbidden
from gradformer.training.distributed import place_in_batch
from gradformer.training.stop import Stop
from gradformer.training.threads import worthwhile_threads
from gradformer.training.trial import Trial, own_generators

PATIENCE = 50
"""Captured steps of each trial between two looks at whether someone asks to stop."""


def graphs_left(trial: Trial) -> int:
    """Graphs of the present epoch that the trial has not seen."""
    seen = len(trial.losses) * trial.recipe.train.batch_size
    return max(len(trial.graphs) - seen, 0)


def train_epoch(trials: list[Trial], stop: Stop) -> list[Trial] | None:
    """Do the steps of the present epoch that are not done yet; None if stopped between two.

    Gives the trials whose steps are done: of captured ones those that the device has memory for.
    """
    captured = [(trial, trial.captured) for trial in trials if trial.captured is not None]
    if captured:
        return _replay_epoch(captured, stop)
    (trial,) = trials
    process, _ = place_in_batch()
    steps = [*zip(trial.batches(), trial.generator_seeds(process))]
    with (
        own_generators(trial.model, trial.collator.device) as generators,
        worthwhile_threads(*work_of(trial)),
    ):
        for ids, seed in steps[len(trial.losses) :]:
            if stop.agreed():
                return None
            for generator in generators:
                generator.manual_seed(seed)
            trial.losses.append(trial.step(*own_share(ids)))
    return trials


def _replay_epoch(trials: list[tuple[Trial, CapturedTrial]], stop: Stop) -> list[Trial] | None:
    """All trials that find room a step at a time, each on its stream."""
    begun = _begun(trials)
    if not begun:
        return []
    done = replay_steps(begun, stop)
    for trial, captured in begun:
        captured.finish(done[trial])
    whole = all(done[trial] == trial.steps_per_epoch for trial, _ in begun)
    return [trial for trial, _ in begun] if whole else None


def _begun(trials: list[tuple[Trial, CapturedTrial]]) -> list[tuple[Trial, CapturedTrial]]:
    """Those, from the first on, whose epoch the device has memory for. One that finds none waits,
    unless it is the first: then it is no longer captured. Neither is one that has waited and turns
    out to do what a capture forbids."""
    for number, (trial, captured) in enumerate(trials):
        reason = "" if number else "the GPU has no memory for one step; lower train.batch_size"
        try:
            if _finds_room(captured, [later for _, later in trials[number + 1 :]]):
                continue
        except Exception as error:
            reason = forbidden(trial, error)
        if reason:
            _let_go(trial, reason)
        return trials[:number]
    return trials


def _finds_room(captured: CapturedTrial, others: list[CapturedTrial]) -> bool:
    """Begin an epoch, if need be with the memory that the last of the ``others`` hold."""
    while not captured.begin():
        holding = [other for other in others if other.holds]
        if not holding:
            return False
        holding[-1].release()
    return True


def _let_go(trial: Trial, reason: str) -> None:
    trial.captured = None
    warn(
        f"trial {trial.number}: its steps are not captured as CUDA graphs, which is slower and may "
        f"change last bits: {reason}"
    )


def replay_steps(trials: list[tuple[Trial, CapturedTrial]], stop: Stop) -> dict[Trial, int]:
    """Replay until the epoch is done or someone asks to stop; the steps that each trial has done.

    Nothing is read back. So that a signal is not heard only at the end, the host is never more
    than two windows of :data:`PATIENCE` steps ahead: it waits for the end of the window before the
    last, while the device has the last one to work on.
    """
    done = {trial: len(trial.losses) for trial, _ in trials}
    steps = {trial: trial.steps_per_epoch for trial, _ in trials}
    slowest = max(trials, key=lambda pair: steps[pair[0]] - done[pair[0]])[1]
    before = None
    while done != steps:
        for _ in range(PATIENCE):
            for trial, captured in trials:
                if done[trial] < steps[trial]:
                    captured.advance()
                    done[trial] += 1
        if before is not None:
            before.synchronize()
        before = slowest.stream.record_event()
        if stop.agreed():
            break
    return done


def own_share(ids: Tensor) -> tuple[Tensor, Capacity | None]:
    """The graphs of a batch that fall to this process; an empty slot if there are none."""
    first, stride = place_in_batch()
    share = ids[first::stride]
    if len(share):
        return share, None
    return torch.full_like(ids[:1], -1), Capacity(graphs=1, nodes=1, edges=1, largest=1)


def work_of(trial: Trial) -> tuple[GraphModel, Collator, NDArray[np.int64], int]:
    return trial.model, trial.collator, trial.graphs, trial.recipe.train.batch_size
