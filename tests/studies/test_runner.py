"""A study stops at any time and goes on to the same bits; cells share runs and grow."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from gradformer.errors import InputError
from gradformer.studies import STUDIES, runner
from gradformer.studies.runner import begin, carry_out, look
from gradformer.studies.study import Cell, Plan
from gradformer.studies.tables import machines
from gradformer.training.card import model_card
from gradformer.training.files import read_json
from gradformer.training.loop import Stop, StoppedError
from gradformer.training.run import Run
from tests.conftest import shared_path
from tests.studies.conftest import Reproduce

TABLE1 = STUDIES["table1"]
SHORT = ("train.epochs=3", "data.fraction=0.3", "train.batch_size=8", "model.layers=1")
PLAN = Plan(("mutag",), ("gcn", "gin"), 2, SHORT)
CELLS = TABLE1.cells(PLAN.datasets, PLAN.models)


@pytest.fixture(autouse=True)
def _data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADFORMER_DATA", str(shared_path("data")))


def train(root: Path, plan: Plan = PLAN, cells: list[Cell] = CELLS) -> dict[Cell, str]:
    return carry_out(TABLE1, cells, plan, root, device="cpu", quiet=True, seeds=plan.trials)


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
    half = look(TABLE1, CELLS, PLAN, tmp_path / "stopped")
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
    began, other = machines(look(TABLE1, CELLS, PLAN, tmp_path / "stopped"))
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
    (measured,) = look(TABLE1, cells, fewer, tmp_path)
    assert measured.outcome is not None
    assert len(measured.outcome["test"]["values"]) == 2  # more than asked for is welcome


def test_a_cell_is_complete_with_its_own_seeds_until_more_are_asked_for(tmp_path: Path) -> None:
    train(tmp_path, Plan(PLAN.datasets, PLAN.models, 1, SHORT), CELLS[:1])

    def seeds(folder: Path) -> int:
        return len(read_json(folder / "results.json")["trials"])

    options = {"device": "cpu", "quiet": True}
    carry_out(TABLE1, CELLS, PLAN, tmp_path, **options)
    gcn, gin = (tmp_path / "table1" / cell.name for cell in CELLS)
    assert (seeds(gcn), seeds(gin)) == (1, 2), "the plan's seeds are those of new cells"
    assert not any(one.missing for one in look(TABLE1, CELLS, PLAN, tmp_path))
    carry_out(TABLE1, CELLS, PLAN, tmp_path, **options, seeds=2)
    assert (seeds(gcn), seeds(gin)) == (2, 2)
    carry_out(TABLE1, CELLS, PLAN, tmp_path, **options, seeds=1)
    assert (seeds(gcn), seeds(gin)) == (2, 2), "none is taken away"


def test_seeds_of_some_cells_are_not_those_of_the_plan(
    tmp_path: Path, reproduce: Reproduce, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("table1", "--out", tmp_path)
    reproduce(*words, "--dataset", "mutag", "-m", "majority", "--trials", "1")
    monkeypatch.delenv("GRADFORMER_SMOKE")
    settings = [f"--set={s}" for s in read_json(tmp_path / "table1" / "plan.json")["settings"]]
    more = (*words, *settings, "--resume")
    majority = tmp_path / "table1" / "mutag-majority-class" / "results.json"
    reproduce(*more)
    assert len(read_json(majority)["trials"]) == 1
    reproduce(*more, "-m", "majority", "--trials", "3")
    assert len(read_json(majority)["trials"]) == 3
    assert read_json(tmp_path / "table1" / "plan.json")["trials"] == 1
    reproduce(*more, "--trials", "4")
    assert len(read_json(majority)["trials"]) == 4
    assert read_json(tmp_path / "table1" / "plan.json")["trials"] == 4


@pytest.mark.filterwarnings("default::gradformer.errors.GradformerWarning")
def test_a_record_without_weights_gives_its_page_and_can_grow(
    tmp_path: Path, reproduce: Reproduce
) -> None:
    """As it is committed: no weights, checkpoints or graphs."""
    words = ("table1", "--dataset", "mutag", "--model", "gcn", "--out", tmp_path)
    reproduce(*words, "--trials", "1")
    place = tmp_path / "table1" / "mutag-gcn"
    before = read_json(place / "results.json")["trials"][0]
    for folder in ("trials", "examples"):
        shutil.rmtree(place / folder)
    said = reproduce(*words, "--resume", "--trials", "1", "--budget", "0")
    assert "measured 1 of 1 cells" in said.output
    said = reproduce(*words, "--resume", "--trials", "2")
    assert "results but not the weights of 1 of its trials" in said.output
    after = read_json(place / "results.json")["trials"]
    assert len(after) == 2
    assert after[0] == before
    run = Run.load(place)
    assert run.trials == [1]  # only the new seed was trained
    assert [line["trial"] for line in run.record if line["kind"] == "epoch"] == [0, 1]


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
    assert carry_out(deep, cells, plan, tmp_path, device="cpu", quiet=True) == {}
    assert not list(tmp_path.glob("deep/*"))
    assert all(one.outcome is not None for one in look(deep, cells, plan, tmp_path))


def test_a_cell_alone_on_the_device_is_not_taken_from_seeds_side_by_side(tmp_path: Path) -> None:
    study = STUDIES["efficiency"]
    plan = Plan(("mutag",), ("graphgps",), 2, (*SHORT, "train.warmup_epochs=0"))
    cost, score = study.cells(plan.datasets, plan.models)
    for cell in (cost, score):  # the same recipe but for the number of seeds
        assert carry_out(study, [cell], plan, tmp_path, device="cpu", quiet=True) == {}
    alone, both = look(study, [cost, score], plan, tmp_path)
    assert alone.history is not None
    assert len(alone.history.results) == 1
    assert alone.memory is not None
    assert both.outcome is not None
    assert len(both.outcome["test"]["values"]) == 2
    shutil.rmtree(tmp_path / "efficiency" / cost.name)
    assert look(study, [cost], plan, tmp_path)[0].missing == "not begun"


@pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="only Linux forgets a peak"
)
def test_the_peak_of_a_cell_is_not_that_of_an_earlier_one() -> None:
    held = np.ones(2**25)
    peak = runner._process_peak()
    del held
    runner._forget_peak()
    assert runner._process_peak() < peak - 2**27


def test_a_folder_with_another_recipe_is_left_alone(tmp_path: Path) -> None:
    cells = CELLS[:1]
    train(tmp_path, PLAN, cells)
    other = Plan(PLAN.datasets, PLAN.models, 2, (*SHORT, "train.lr=0.5"))
    (reason,) = train(tmp_path, other, cells).values()
    assert "another recipe; choose another --out" in reason
    assert Run.load(tmp_path / "table1" / cells[0].name).recipe.train.lr != 0.5


def test_a_cell_that_was_killed_before_it_began_is_begun(tmp_path: Path) -> None:
    place = tmp_path / "table1" / CELLS[0].name
    place.mkdir(parents=True)
    for left in (".lock", "data.json"):
        (place / left).touch()
    assert train(tmp_path, PLAN, CELLS[:1]) == {}


def test_a_damaged_cell_hides_no_other(tmp_path: Path) -> None:
    place = tmp_path / "table1" / CELLS[0].name
    place.mkdir(parents=True)
    (place / "recipe.yaml").write_text(CELLS[0].recipe(2, SHORT).to_yaml())
    (place / "results.json").write_text("{")
    damaged, other = look(TABLE1, CELLS, PLAN, tmp_path)
    assert "mutag-gcn/results.json: cannot be read" in damaged.missing
    assert "move the run away" in damaged.missing
    assert other.missing == "not begun"
    (place / "recipe.yaml").write_text('{"a')
    damaged, other = look(TABLE1, CELLS, PLAN, tmp_path)
    assert "mutag-gcn/recipe.yaml, line 1: not a readable recipe" in damaged.missing
    assert "train again" in damaged.missing
    assert other.missing == "not begun"


@pytest.mark.filterwarnings("default::gradformer.errors.GradformerWarning")
def test_damaged_weights_and_a_short_record_take_no_number_away(
    tmp_path: Path, reproduce: Reproduce
) -> None:
    words = ("table1", "--dataset", "mutag", "--model", "gcn", "--trials", "1", "--out", tmp_path)
    reproduce(*words)
    place = tmp_path / "table1" / "mutag-gcn"
    page = place.parent / "README.md"
    before = page.read_text()
    record = (place / "record.jsonl").read_text()
    (place / "record.jsonl").write_text(record[:-50])
    page.unlink()
    reproduce(*words, "--resume")
    assert page.read_text() == before
    (place / "trials" / "0" / "model.safetensors").write_text("no weights")
    page.unlink()
    said = reproduce(*words, "--resume").output
    assert re.search(r"page of mutag is left as it is: .*not the weights of this gcn", said)
    assert page.read_text() == before


def test_a_plan_is_kept_and_grows(tmp_path: Path) -> None:
    begin(TABLE1, Plan(("mutag",), ("gcn",), 4), tmp_path, False)
    with pytest.raises(InputError, match="continue it with --resume"):
        begin(TABLE1, PLAN, tmp_path, False)
    with pytest.raises(InputError, match=r"other settings \(no --set, not --set train.epochs=3 "):
        begin(TABLE1, PLAN, tmp_path, True)  # its page would lose all cells that are there
    whole = begin(TABLE1, Plan(("nci1",), ("gin",), 10), tmp_path, True)
    assert whole == Plan(("mutag", "nci1"), ("gcn", "gin"), 10)


def test_budget_and_resume_in_the_program(reproduce: Reproduce, tmp_path: Path) -> None:
    words = ("table1", "--out", tmp_path)
    said = reproduce(*words, "--dataset", "mutag", "--model", "gcn", "--budget", "0")
    assert "measured 0 of 1 cells" in said.output
    assert f"gradformer reproduce table1 --resume --out {tmp_path} --dataset mutag" in said.output
    page = tmp_path / "table1" / "README.md"
    assert "not begun (1 of 1): gcn on mutag" in page.read_text()
    assert "begun before" in reproduce(*words, code=1).output
    assert "measured 1 of 1 cells" in reproduce(*words, "--resume").output
    assert "not begun" not in page.read_text()


def test_presets_are_kept_and_grow(tmp_path: Path, reproduce: Reproduce) -> None:
    words = ("table1", "--out", tmp_path, "--trials", "1")
    models = ("--dataset", "mutag", "-m", "gradformer", "-m", "gcn")
    reproduce(*words, *models, "--preset", "authors")

    def trained() -> set[str]:
        return {path.parent.name for path in tmp_path.glob("table1/*/results.json")}

    assert trained() == {"mutag-gradformer-authors"}
    reproduce(*words, "--resume")
    assert trained() == {"mutag-gradformer-authors"}, "the same cells as before"
    said = reproduce(*words, "--resume", "-m", "gcn", code=1).output
    assert "--preset authors was asked for before, and no cell" in said
    assert "say --preset none now" in said
    reproduce(*words, "--resume", "--preset", "none")
    assert trained() == {"mutag-gradformer-authors", "mutag-gcn"}
    assert read_json(tmp_path / "table1" / "plan.json")["presets"] == ["authors", "none"]


def test_what_fails_is_said_and_the_rest_is_measured(reproduce: Reproduce, tmp_path: Path) -> None:
    words = ("--dataset", "mutag", "--model", "gt", "--model", "gcn", "--set", "model.pool=none")
    said = reproduce("table1", *words, "--out", tmp_path / "bad", code=1)
    assert "is left out: " in said.output
    text = (tmp_path / "bad" / "table1" / "README.md").read_text()
    assert "pool" in text
    for option, value in (("--dataset", "mutga"), ("--model", "gnc")):
        said = reproduce("table1", option, value, "--out", tmp_path, code=1)
        assert f"{option} {value}: unknown; did you mean" in said.output
    assert "did you mean 'decay'?" in reproduce("dceay", code=1).output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("table1", "--preset", "tunde"), "--preset tunde: no cell of table1 on mutag has it; did"),
        (("index", "--model", "gin"), "--model gin: no cell of index on mutag has it; known: grad"),
        (("decay", "--set", "model.layer=3"), "model.layer: unknown option; did you mean 'layers'"),
    ],
)
def test_what_fits_no_cell_is_said_before_anything_is_written(
    words: tuple[str, ...], said: str, reproduce: Reproduce, tmp_path: Path
) -> None:
    output = reproduce(*words, "--dataset", "mutag", "--out", tmp_path, code=1).output
    assert said in output
    assert not list(tmp_path.iterdir())


def test_settings_of_some_models_and_seeds_that_diverge_are_on_the_page(
    reproduce: Reproduce, tmp_path: Path
) -> None:
    words = ("--dataset", "mutag", "--model", "graphgps", "--model", "gcn", "--trials", "1")
    changes = ("--set", "model.heads=2", "--set", "train.lr=1e30")
    said = reproduce("table1", *words, *changes, "--out", tmp_path, code=1)
    assert "measured 0 of 2 cells" in said.output
    text = (tmp_path / "table1" / "README.md").read_text()
    assert "1 of 1 seeds diverged (1 of 2): graphgps on mutag" in text
    assert "model.heads: unknown option" in text
