"""Two processes that share each batch train the model that one process trains."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gradformer.errors import ConfigError
from gradformer.training import fit as fitting
from gradformer.training.distributed import find_device
from gradformer.training.fit import fit
from gradformer.training.recipe import Recipe
from gradformer.training.run import Run
from tests.training import toy

# A last batch of one graph (25 = 4 · 6 + 1) leaves the second process without any.
SETTINGS = ["train.epochs=3", "train.batch_size=6", "train.ema=0"]


def problem(kind: str, recipe: Recipe) -> Any:
    return toy.one_graph(recipe) if kind == "single" else toy.data(recipe, graphs=42, level=kind)


def process(rank: int, folder: Path, port: int, recipe: Recipe, kind: str) -> None:
    environment = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in environment.items()})
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    if rank == 0:  # is slow, so that who does not wait for it is seen
        write = fitting.replace_json
        fitting.replace_json = lambda *of: (time.sleep(0.3), write(*of))[1]  # type: ignore[attr-defined]
    run = fit(problem(kind, recipe), recipe=recipe, out=folder, **toy.QUIET)  # type: ignore[arg-type]
    assert run.results["test"]["values"]


def start_two(*arguments: Any, context: Any = toy.TRAINING) -> list[int | None]:
    """Exit codes of two processes."""
    port = 20_000 + os.getpid() % 20_000
    folder, *rest = arguments
    both = [context.Process(target=process, args=(rank, folder, port, *rest)) for rank in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join(timeout=120)
    return [each.exitcode for each in both]


@pytest.mark.parametrize("kind", ["graph", "node", "single"])
def test_two_processes_train_what_one_trains(kind: str, tmp_path: Path) -> None:
    weights = "none" if kind == "graph" else "batch"
    recipe = toy.RECIPE.change(*SETTINGS, f"train.class_weights={weights}")
    assert kind == "single" or len(problem(kind, recipe).split(0).train) % 6 == 1
    one = fit(problem(kind, recipe), recipe=recipe, out=tmp_path / "one", **toy.QUIET)  # type: ignore[arg-type]
    assert start_two(tmp_path / "two", recipe, kind) == [0, 0]
    two = Run.load(tmp_path / "two")
    for ours, theirs in zip(epochs(one), epochs(two), strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], abs=1e-5)
        np.testing.assert_allclose(ours["starts"], theirs["starts"], atol=1e-4)
    assert json.dumps(one.results["trials"][0]["val"]) == json.dumps(
        two.results["trials"][0]["val"]
    )


def test_what_is_refused_is_said_by_the_first(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").write_text("x")
    assert start_two(tmp_path, toy.RECIPE, "graph", context=toy.FORK) == [1, 1]
    said = capfd.readouterr().err
    assert said.count("Traceback") == 1
    assert "exists already" in said


def epochs(run: Run) -> list[dict[str, Any]]:
    return [entry for entry in run.record if entry["kind"] == "epoch"]


def test_every_process_launches_on_its_own_device(monkeypatch: pytest.MonkeyPatch) -> None:
    current = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert find_device() == torch.device("cuda:1")
    assert find_device("cuda:3") == torch.device("cuda:3")
    assert find_device("cpu") == torch.device("cpu")
    assert current == [torch.device("cuda:1"), torch.device("cuda:3")]


def test_a_gpu_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="device: cuda is asked for, but torch sees no GPU; use"):
        find_device("cuda")

    def refuse(device: torch.device) -> None:
        raise RuntimeError("CUDA error: invalid device ordinal")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", refuse)
    with pytest.raises(ConfigError, match="there is no cuda:7; GPUs that torch sees: 1"):
        find_device("cuda:7")
