"""What a captured step is made of, without a GPU: its sizes, and its kernels in the interpreter."""

from __future__ import annotations

import pytest
import torch

from gradformer.attention import use_engine
from gradformer.training.capture import EDGES, NODES, CapturedTrial
from gradformer.training.trial import Trial
from tests.training import toy


def make(*settings: str, device: str = "cpu", **options: str) -> Trial:
    recipe = toy.RECIPE.change(
        "model.layers=1", "model.width=8", "model.pe_width=3", "train.clip=0", *settings
    )
    return toy.trial(recipe, 1, device, **options)


def test_the_capacity_holds_every_batch_and_hardly_more() -> None:
    trial = make("train.batch_size=7", "train.epochs=60")
    arrays = trial.data.store.arrays
    for epoch, last in ((0, 50), (50, 60)):
        capacity = CapturedTrial(trial).capacity(epoch)
        batches = [ids for k in range(last) for ids in trial.order(k)]
        for pointer, room, unit in (
            ("node_ptr", capacity.nodes, NODES),
            ("edge_ptr", capacity.edges, EDGES),
        ):
            sizes = arrays[pointer][1:] - arrays[pointer][:-1]
            largest = max(int(sizes[ids].sum()) for ids in batches)
            assert largest <= room < largest + unit


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        (("model.dropout=0",), {"task": "regression"}),
        (("model.local=gatedgcn", "model.pe=lap", "train.class_weights=batch"), {"level": "node"}),
    ],
)
def test_padded_kernels_follow_the_plain_step(
    settings: tuple[str, ...], options: dict[str, str], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr("gradformer.training.capture.NODES", 4)  # the interpreter is slow
    monkeypatch.setattr("gradformer.training.capture.EDGES", 16)
    plain = make("train.batch_size=2", *settings, **options)
    with use_engine("fused"):
        padded = make("train.batch_size=2", *settings, device=device, **options)
        captured = CapturedTrial(padded)
        graphs = torch.from_numpy(padded.permuted(0))
        captured.ids.view(-1)[: len(graphs)] = graphs
        body = captured.step(captured.capacity(0))
        body()
    with use_engine("reference"):
        loss = plain.step(plain.batches()[0])
    torch.testing.assert_close(captured.losses[0].cpu(), loss, rtol=1e-4, atol=1e-5)
    assert int(captured.cursor) == int(padded.step.count) == 1
    torch.testing.assert_close(padded.weights.grad.cpu(), plain.weights.grad, rtol=1e-3, atol=1e-5)
    found, expected = padded.weights.vector.cpu(), plain.weights.vector
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
