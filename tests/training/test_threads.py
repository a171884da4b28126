"""A batch has the threads that it is worth, in training and in predicting."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from gradformer.training import threads
from gradformer.training.loop import Stop, train
from tests.training import toy


@pytest.fixture
def three_threads() -> Iterator[None]:
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(1)


@pytest.mark.usefixtures("three_threads")
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
