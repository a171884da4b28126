"""A study stops at any time and goes on to the same bits; cells share runs and grow."""

from __future__ import annotations

import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from gradformer.cli.reproduce import _write
from gradformer.errors import InputError
from gradformer.studies import STUDIES, runner
from gradformer.studies.looking import kept_plan, look
from gradformer.studies.runner import begin, carry_out
from gradformer.studies.study import Cell, Plan
from gradformer.studies.tables import machines
from gradformer.training.card import model_card
from gradformer.training.files import read_json
from gradformer.training.run import Run
from gradformer.training.stop import Stop, StoppedError

pytestmark = pytest.mark.usefixtures("raw_data")
TABLE1 = STUDIES["table1"]
SHORT = ("train.epochs=3", "data.fraction=0.3", "train.batch_size=8", "model.layers=1")
PLAN = Plan(("mutag",), ("gcn", "gin"), 2, SHORT)
CELLS = TABLE1.cells(PLAN.datasets, PLAN.models)


def train(root: Path, plan: Plan = PLAN, cells: list[Cell] = CELLS) -> dict[Cell, str]:
    failed: dict[Cell, str] = {}
    carry_out(TABLE1, cells, plan, root, failed, device="cpu", quiet=True, seeds=plan.trials)
    return failed


def stop_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is spent when the steps have been asked so many times."""
    asked, agreed = [0], Stop.agreed

    def count(self: Stop) -> bool:
        asked[0] += 1
        if asked[0] == steps:
            self.until = 0.0
        return agreed(self)

    monkeypatch.setattr(Stop, "agreed", count)


def test_a_study_that_is_stopped_ends_in_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        stop_after(8, patch)
        patch.setenv("GRADFORMER_COMMIT", "a1")
        with pytest.raises(StoppedError, match="reproduce table1 --resume") as stopped:
            train(tmp_path / "stopped")
    assert stopped.value.signal == signal.SIGALRM
    first = tmp_path / "stopped" / "table1" / "mutag-gcn"
    assert not (first / "results.json").exists()
    half = look(TABLE1, PLAN, tmp_path / "stopped", CELLS)
    assert [one.missing for one in half] == ["0 of 2 seeds are done", "not begun"]
    monkeypatch.setenv("GRADFORMER_COMMIT", "b2")
    for name in ("stopped", "whole"):
        assert train(tmp_path / name) == {}
    for cell in CELLS:
        runs = [tmp_path / name / "table1" / cell.name for name in ("stopped", "whole")]
        one, two = (read_json(run / "results.json") for run in runs)
        assert one == two
        for trial in "01":
            weights = [load_file(run / "trials" / trial / "model.safetensors") for run in runs]
            assert all((weights[0][key] == weights[1][key]).all() for key in weights[1])
    assert [line["kind"] for line in Run.load(first).record].count("resume") == 1
    assert "| commit | a1 then b2 |" in model_card(Run.load(first), 0, "mine")
    began, other = machines(look(TABLE1, PLAN, tmp_path / "stopped", CELLS))
    assert "commit a1 then b2" in began
    assert "commit b2" in other


def test_seeds_are_added_and_the_old_ones_kept(tmp_path: Path) -> None:
    cells, fewer = CELLS[:1], Plan(PLAN.datasets, PLAN.models, 1, SHORT)
    place = tmp_path / "table1" / cells[0].name
    train(tmp_path, fewer, cells)
    before = (place / "trials" / "0" / "model.safetensors").stat().st_mtime_ns
    one = read_json(place / "results.json")
    train(tmp_path, PLAN, cells)
    two = read_json(place / "results.json")
    assert two["trials"][0] == one["trials"][0]
    assert [trial["seed"] for trial in two["trials"]] == [0, 1]
    assert (place / "trials" / "0" / "model.safetensors").stat().st_mtime_ns == before
    (measured,) = look(TABLE1, fewer, tmp_path, cells)
    assert measured.outcome is not None
    assert len(measured.outcome["test"]["values"]) == 2  # more than asked for is welcome


def test_a_cell_is_complete_with_its_own_seeds_until_more_are_asked_for(tmp_path: Path) -> None:
    train(tmp_path, Plan(PLAN.datasets, PLAN.models, 1, SHORT), CELLS[:1])

    def seeds(folder: Path) -> int:
        return len(read_json(folder / "results.json")["trials"])

    options = {"device": "cpu", "quiet": True}
    carry_out(TABLE1, CELLS, PLAN, tmp_path, {}, **options)
    gcn, gin = (tmp_path / "table1" / cell.name for cell in CELLS)
    assert (seeds(gcn), seeds(gin)) == (1, 2), "the plan's seeds are those of new cells"
    assert not any(one.missing for one in look(TABLE1, PLAN, tmp_path, CELLS))
    carry_out(TABLE1, CELLS, PLAN, tmp_path, {}, **options, seeds=2)
    assert (seeds(gcn), seeds(gin)) == (2, 2)
    carry_out(TABLE1, CELLS, PLAN, tmp_path, {}, **options, seeds=1)
    assert (seeds(gcn), seeds(gin)) == (2, 2), "none is taken away"


def test_seeds_that_a_cell_keeps_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        stop_after(8, patch)
        with pytest.raises(StoppedError):
            train(tmp_path)
    said: list[str] = []
    how: dict[str, Any] = {"device": "cpu", "quiet": True, "tell": said.append}
    carry_out(TABLE1, CELLS[:1], PLAN, tmp_path, {}, **how, seeds=1)
    assert said == ["cell 1 of 1: gcn on mutag, with the 2 seeds that it was begun with"]


def test_a_cell_is_begun_and_continued_as_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its time and device, and without curves for TensorBoard."""
    train(tmp_path, Plan(PLAN.datasets, PLAN.models, 1, SHORT), CELLS[:1])
    asked = []
    for name in ("resume", "fit"):
        monkeypatch.setattr(runner, name, lambda *_, **options: asked.append(options))
    late = time.monotonic() + 3600
    options = {"until": late, "device": "cpu", "quiet": True}
    carry_out(TABLE1, CELLS, PLAN, tmp_path, {}, **options, seeds=2)
    continued, begun = asked
    assert continued == {"trials": 2, "tensorboard": False, **options}
    assert begun.pop("recipe").trials == 2
    assert begun == {"out": tmp_path / "table1" / "mutag-gin", "tensorboard": False, **options}


def test_what_another_cell_has_begun_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(("mutag",), ("gradformer",), 1, SHORT)
    other, paper = (Cell("mutag", row, "mutag", preset="paper") for row in ("other", "paper"))
    with monkeypatch.context() as patch:
        stop_after(4, patch)
        with pytest.raises(StoppedError):
            train(tmp_path, plan, [paper])
    train(tmp_path, plan, [other, paper])
    assert [path.name for path in (tmp_path / "table1").iterdir()] == [paper.name]


def test_what_another_study_has_trained_is_used(tmp_path: Path) -> None:
    plan = Plan(("mutag",), ("graphgps",), 1, SHORT)
    train(tmp_path, plan, TABLE1.cells(plan.datasets, plan.models))
    deep = STUDIES["deep"]
    cells = deep.cells(plan.datasets, plan.models)  # one depth, for SHORT says so
    carry_out(deep, cells, plan, tmp_path, {}, device="cpu", quiet=True)
    assert not list(tmp_path.glob("deep/*"))
    assert all(one.outcome is not None for one in look(deep, plan, tmp_path, cells))


def test_a_run_that_gets_more_seeds_stays_a_result_of_other_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They lost their numbers, and were trained anew."""
    plan = Plan(("mutag",), ("gradformer",), 2, SHORT)
    other, paper = (Cell("mutag", row, "mutag", preset="paper") for row in ("other", "paper"))
    train(tmp_path, plan, [paper])
    with monkeypatch.context() as patch:
        stop_after(4, patch)
        with pytest.raises(StoppedError):
            train(tmp_path, replace(plan, trials=4), [paper])
    (measured,) = look(TABLE1, plan, tmp_path, [other])
    assert measured.outcome is not None
    assert len(measured.outcome["test"]["values"]) == 2
    train(tmp_path, plan, [other])
    assert [path.name for path in (tmp_path / "table1").iterdir()] == [paper.name]


def test_a_page_has_what_another_process_asked_for_meanwhile(tmp_path: Path) -> None:
    first = Plan(("mutag",), ("gcn",), 1, SHORT)
    begin(TABLE1, first, tmp_path, False)
    second = begin(TABLE1, Plan(("mutag",), ("gin",), 1, SHORT), tmp_path, True)
    train(tmp_path, second, TABLE1.cells(("mutag",), ("gin",)))
    _write(TABLE1, first, tmp_path, {})
    assert "| mutag | gin |" in (tmp_path / "table1" / "README.md").read_text()


def test_a_cell_that_finds_no_memory_is_left_out_and_a_bug_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = iter([RuntimeError("CUDA error: out of memory"), RuntimeError("shapes differ")])

    def fails(*_: object) -> None:
        raise next(errors)

    monkeypatch.setattr(runner, "_train", fails)
    (why,) = train(tmp_path, cells=CELLS[:1]).values()
    assert why.startswith("the GPU has no memory left")
    with pytest.raises(RuntimeError, match="shapes differ"):
        train(tmp_path)


def test_a_cell_alone_on_the_device_is_not_taken_from_seeds_side_by_side(tmp_path: Path) -> None:
    study = STUDIES["efficiency"]
    plan = Plan(("mutag",), ("graphgps",), 2, (*SHORT, "train.warmup_epochs=0"))
    cost, score = study.cells(plan.datasets, plan.models)
    for cell in (cost, score):  # the same recipe but for the number of seeds
        carry_out(study, [cell], plan, tmp_path, {}, device="cpu", quiet=True)
    alone, both = look(study, plan, tmp_path, [cost, score])
    assert alone.history is not None
    assert len(alone.history.results) == 1
    assert alone.memory is not None
    assert both.outcome is not None
    assert len(both.outcome["test"]["values"]) == 2
    shutil.rmtree(tmp_path / "efficiency" / cost.name)
    assert look(study, plan, tmp_path, [cost])[0].missing == "not begun"


@pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="only Linux forgets a peak"
)
def test_the_peak_of_a_cell_is_not_that_of_an_earlier_one() -> None:
    held = np.ones(2**25)
    peak = runner.most_held()
    del held
    runner.settle()
    assert runner.most_held() < peak - 2**27


def test_a_folder_with_another_recipe_is_left_alone(tmp_path: Path) -> None:
    cells = CELLS[:1]
    train(tmp_path, PLAN, cells)
    other = Plan(PLAN.datasets, PLAN.models, 2, (*SHORT, "train.lr=0.5"))
    (reason,) = train(tmp_path, other, cells).values()
    assert "another recipe; choose another --out" in reason
    assert Run.load(tmp_path / "table1" / cells[0].name).recipe.train.lr != 0.5


def test_a_cell_that_was_killed_before_it_began_is_begun(tmp_path: Path) -> None:
    place = tmp_path / "table1" / CELLS[0].name
    (place / ".unfinished").mkdir(parents=True)
    for left in (".lock", ".unfinished/data.json"):
        (place / left).touch()
    assert train(tmp_path, PLAN, CELLS[:1]) == {}


def test_a_damaged_cell_hides_no_other(tmp_path: Path) -> None:
    place = tmp_path / "table1" / CELLS[0].name
    place.mkdir(parents=True)
    (place / "recipe.yaml").write_text(CELLS[0].recipe(2, SHORT).to_yaml())
    (place / "results.json").write_text("{")
    damaged, other = look(TABLE1, PLAN, tmp_path, CELLS)
    assert "mutag-gcn/results.json: cannot be read" in damaged.missing
    assert "delete it and say --resume, which makes it again" in damaged.missing
    assert other.missing == "not begun"
    (place / "recipe.yaml").write_text('{"a')
    damaged, other = look(TABLE1, PLAN, tmp_path, CELLS)
    assert "mutag-gcn/recipe.yaml, line 1: not a readable recipe" in damaged.missing
    assert "train again" in damaged.missing
    assert other.missing == "not begun"


def test_a_damaged_note_of_the_memory_can_be_deleted(tmp_path: Path) -> None:
    plan = Plan(("mutag",), ("gcn",), 1, SHORT)
    train(tmp_path, plan, CELLS[:1])
    note = tmp_path / "table1" / CELLS[0].name / "memory.json"
    note.write_text("null")
    (one,) = look(TABLE1, plan, tmp_path, CELLS[:1])
    assert "memory.json: cannot be read (it has not all of peak_bytes)" in one.missing
    assert "or delete it: then only the memory is not known" in one.missing
    note.unlink()
    (one,) = look(TABLE1, plan, tmp_path, CELLS[:1])
    assert (one.missing, one.memory) == ("", None)


@pytest.mark.parametrize("damaged", ["[]", '{"datasets": ["mutag"], "m\\u0000dels": []}', "{"])
def test_a_damaged_plan_is_named(damaged: str, tmp_path: Path) -> None:
    begin(TABLE1, Plan(("mutag",), ("gcn",)), tmp_path, False)
    (tmp_path / "table1" / "plan.json").write_text(damaged)
    for use in (kept_plan, lambda study, root: begin(study, PLAN, root, True)):
        with pytest.raises(InputError, match=r"table1/plan.json: cannot be read \(.*; .* restore"):
            use(TABLE1, tmp_path)


def test_a_plan_is_kept_and_grows(tmp_path: Path) -> None:
    begin(TABLE1, Plan(("mutag",), ("gcn",), 4), tmp_path, False)
    with pytest.raises(InputError, match="continue it with --resume"):
        begin(TABLE1, PLAN, tmp_path, False)
    with pytest.raises(InputError, match=r"other settings \(no --set, not --set train.epochs=3 "):
        begin(TABLE1, PLAN, tmp_path, True)  # its page would lose all cells that are there
    whole = begin(TABLE1, Plan(("nci1",), ("gin",), 10), tmp_path, True)
    assert whole == Plan(("mutag", "nci1"), ("gcn", "gin"), 10)
