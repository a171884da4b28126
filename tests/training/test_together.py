"""Several recipes side by side: each gives the bits that it gives alone, stopped or not."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from safetensors.numpy import load_file

from gradformer.training import loop
from gradformer.training.fit import Job, fit, fit_together
from gradformer.training.loop import train
from gradformer.training.run import Run
from gradformer.training.search import _groups
from gradformer.training.stop import Stop, StoppedError
from tests.training import toy

RECIPES = [
    toy.RECIPE.change("trials=2", "train.epochs=2"),
    toy.RECIPE.change("train.epochs=3", "train.batch_size=5", "model.decay=0.3"),
]


def jobs(root: Path) -> list[Job]:
    return [Job(root / str(k), recipe, toy.data(recipe)) for k, recipe in enumerate(RECIPES)]


def same(one: Run, two: Run) -> bool:
    names = [f"trials/{trial}/model.safetensors" for trial in one.trials]
    pairs = [(load_file(one.folder / n), load_file(two.folder / n)) for n in names]
    return one.results == two.results and all(
        (a[key] == b[key]).all() for a, b in pairs for key in a
    )


def test_each_recipe_has_its_own_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = [
        fit(job.data, recipe=job.recipe, out=job.folder, device="cpu", quiet=True)
        for job in jobs(tmp_path / "alone")
    ]
    together = fit_together(jobs(tmp_path / "together"), device="cpu")
    assert all(same(*pair) for pair in zip(alone, together))
    asked, agreed = [0], Stop.agreed

    def soon(self: Stop) -> bool:
        asked[0] += 1
        self.until = 0.0 if asked[0] == 9 else None
        return agreed(self)

    with monkeypatch.context() as patch:
        patch.setattr(Stop, "agreed", soon)
        with pytest.raises(StoppedError):
            fit_together(jobs(tmp_path / "stopped"), device="cpu")
    assert not (tmp_path / "stopped" / "0" / "results.json").exists()
    kept = load_file(tmp_path / "stopped" / "0" / "trials" / "0" / "checkpoint.safetensors")
    state = json.loads(bytes(kept["state"].tolist()))
    assert (state["progress"]["epoch"], state["step"]) == (1, 4)  # all that was done
    resumed = fit_together(jobs(tmp_path / "stopped"), device="cpu")
    assert all(same(*pair) for pair in zip(alone, resumed))


def test_candidates_of_one_precision_share_the_room(tmp_path: Path) -> None:
    recipe = toy.RECIPE.change("trials=8")
    recipes = dict.fromkeys(range(6), recipe)
    recipes |= {7: recipe.change("train.precision=bf16"), 8: recipe}
    places = {number: tmp_path / str(number) for number in recipes}
    places[1].mkdir()
    (places[1] / "results.json").write_text("{}")
    assert list(_groups(recipes, places, room=32)) == [[1], [7], [0, 2, 3, 4], [5, 8]]
    assert list(_groups(recipes, places, room=2))[1:3] == [[7], [0]]


def test_those_that_train_side_by_side_share_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """10 graphs for the one, and the 6 that the other, which was stopped in its epoch, has left."""
    clock = itertools.count()
    monkeypatch.setattr(loop.time, "perf_counter", lambda: float(next(clock)))

    def all_steps(trials: list[Any], stop: Stop) -> list[Any]:
        for one in trials:
            one.losses = [0.5] * 3
        return trials

    monkeypatch.setattr(loop, "train_epoch", all_steps)

    def trial(steps_done: int) -> Any:
        progress = SimpleNamespace(status="training")
        return SimpleNamespace(
            progress=progress,
            captured="as a CUDA graph",
            losses=[0.5] * steps_done,
            recipe=SimpleNamespace(train=SimpleNamespace(batch_size=4)),
            graphs=range(10),
            close_epoch=lambda: vars(progress).update(status="finished") or {"epoch": 1},
        )

    told: list[Any] = []
    assert train([trial(0), trial(1)], lambda _, record: told.append(record), Stop())
    assert told == [{"epoch": 1, "seconds": 1 / 2 + 1, "graphs_per_second": 16.0}] * 2
