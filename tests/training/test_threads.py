"""A batch has the threads that it is worth, in training and in predicting."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, get_ident
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gradformer.graphs.batch import Batch
from gradformer.model.gradformer import Gradformer
from gradformer.training import outputs, threads
from gradformer.training.loop import train
from gradformer.training.stop import Stop
from tests.training import toy

pytestmark = pytest.mark.usefixtures("three_threads")


@pytest.mark.parametrize(("share", "worth"), [(1e9, 1), (0.4, 2), (1e-9, 3)])
def test_steps_and_predictions_have_the_threads_that_a_batch_is_worth(
    share: float, worth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = toy.trial(toy.RECIPE.change("train.epochs=1"))
    graphs = trial.data.store.arrays
    nodes = graphs["node_ptr"][trial.graphs + 1] - graphs["node_ptr"][trial.graphs]
    edges = graphs["edge_ptr"][trial.graphs + 1] - graphs["edge_ptr"][trial.graphs]
    layer = 16 * (nodes + edges).mean() + 2 * (nodes**2).mean()  # width 16, two heads
    monkeypatch.setattr(threads, "SHARE", int(7 * layer * share) + 1)  # batches of seven
    had: dict[bool, set[int]] = {True: set(), False: set()}
    trial.model.register_forward_hook(
        lambda model, *_: had[model.training].add(torch.get_num_threads())
    )
    train([trial], lambda *_: None, Stop(None))
    assert had[True] == {worth}
    assert len(had[False]) == 1
    assert had[False] == {worth} or share == 0.4  # validation graphs are others
    assert torch.get_num_threads() == 3


def test_batches_side_by_side_give_the_same_bits_each_with_a_model_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "SHARE", 1 << 40)  # a batch is worth one thread
    trial = toy.trial(toy.RECIPE)
    graphs, working, together = np.arange(40), dict[int, int](), set()
    meet = Barrier(3, timeout=60)

    def enter(model: Any, *_: Any) -> None:
        assert torch.get_num_threads() == 1
        assert not torch.is_grad_enabled()
        assert id(model) not in working
        working[id(model)] = get_ident()
        if outputs.FEWEST == 4:
            meet.wait()  # so there are three
        together.add(len(working))

    def leave(model: Any, *_: Any) -> None:
        assert working.pop(id(model)) == get_ident()

    trial.model.register_forward_pre_hook(enter)
    trial.model.register_forward_hook(leave)
    monkeypatch.setattr(outputs, "FEWEST", 7)  # of twelve
    alone = outputs.model_outputs(trial.model, trial.collator, graphs[:36], 3)
    assert together == {1}
    monkeypatch.setattr(outputs, "FEWEST", 4)
    np.testing.assert_array_equal(
        outputs.model_outputs(trial.model, trial.collator, graphs[:36], 3), alone
    )
    assert max(together) == 3
    assert torch.get_num_threads() == 3


class Drawing(Gradformer):
    """A user's model, which is random also when it answers, and keeps what it has made."""

    kept: Tensor | None = None

    def states(self, batch: Batch) -> Tensor:
        assert self.kept is not None
        self.kept = super().states(batch) + torch.rand(()) + 0 * self.kept.mean()
        return self.kept


def test_batches_of_a_users_model_follow_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "SHARE", 1 << 40)
    monkeypatch.setattr(outputs, "FEWEST", 1)
    trial = toy.trial(toy.RECIPE)
    monkeypatch.setattr(trial.model, "__class__", Drawing)
    trial.model.kept = torch.zeros(1, requires_grad=True) * 2  # which cannot be copied
    used = []
    trial.model.register_forward_hook(lambda model, *_: used.append((model, get_ident())))
    outputs.model_outputs(trial.model, trial.collator, np.arange(40), 2)
    assert used == [(trial.model, get_ident())] * 20


def test_what_goes_wrong_in_a_batch_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "SHARE", 1 << 40)
    monkeypatch.setattr(outputs, "FEWEST", 1)
    trial = toy.trial(toy.RECIPE)

    def fail(*_: Any) -> None:
        raise ArithmeticError("so it is")

    trial.model.register_forward_pre_hook(fail)
    with pytest.raises(ArithmeticError, match="so it is"):
        outputs.model_outputs(trial.model, trial.collator, np.arange(40), 2)


def test_threads_of_a_pool_have_what_their_starter_has_whatever_others_set() -> None:
    """They had what was set last, by a validation beside them."""
    with threads.no_more_threads(2) as room, threads.pool(1) as pool:
        assert room == 1
        with ThreadPoolExecutor(1) as other:
            other.submit(torch.set_num_threads, 1).result()
            pool.submit(int).result()  # it is there, and has not asked
            other.submit(torch.set_num_threads, 1).result()
        assert pool.submit(torch.get_num_threads).result() == 2
