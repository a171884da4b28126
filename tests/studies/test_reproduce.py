"""``gradformer reproduce``: budgets, presets and seeds that grow, and what cannot be measured."""

from __future__ import annotations

import gzip
import re
import shutil
import signal
from itertools import product
from pathlib import Path

import pytest

from gradformer.errors import InputError
from gradformer.studies import STUDIES, runner
from gradformer.studies.study import Plan, chosen_cells
from gradformer.training.files import read_json
from gradformer.training.folder import held
from gradformer.training.run import Run
from gradformer.training.stop import StoppedError
from gradformer.training.trial import Trial
from tests.studies.conftest import Reproduce


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


def test_nothing_is_continued_where_nothing_was_begun(tmp_path: Path, reproduce: Reproduce) -> None:
    """A slip in --out would begin a study of hours."""
    said = reproduce("table1", "--resume", "--out", tmp_path / "elsewhere", "--budget", "0", code=1)
    assert "elsewhere/table1: nothing was begun there" in said.output
    assert not list(tmp_path.iterdir())
    reproduce("table1", "--resume", "--out", tmp_path, "--dataset", "mutag", "-m", "majority")


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


@pytest.mark.filterwarnings("default::gradformer.errors.GradformerWarning")
def test_damaged_weights_and_a_short_record_take_no_number_away(
    tmp_path: Path, reproduce: Reproduce
) -> None:
    words = ("table1", "--dataset", "mutag", "--model", "gcn", "--trials", "1", "--out", tmp_path)
    reproduce(*words)
    place = tmp_path / "table1" / "mutag-gcn"
    page = place.parent / "README.md"
    before = page.read_text()
    record = gzip.decompress((place / "record.jsonl.gz").read_bytes())
    (place / "record.jsonl").write_bytes(record[:-50])
    page.unlink()
    reproduce(*words, "--resume")
    assert page.read_text() == before
    (place / "trials" / "0" / "model.safetensors").write_text("no weights")
    page.unlink()
    said = reproduce(*words, "--resume").output
    assert re.search(r"page of mutag is left as it is: .*not the weights of this gcn", said)
    assert page.read_text() == before


def test_budget_and_resume_in_the_program(reproduce: Reproduce, tmp_path: Path) -> None:
    words = ("table1", "--out", tmp_path)
    said = reproduce(*words, "--dataset", "mutag", "--model", "gcn", "--budget", "0")
    last = f"page     {tmp_path / 'table1' / 'index.html'}\n"
    assert said.stdout == f"measured 0 of 1 cells\n{last}"
    again = f"gradformer reproduce table1 --resume --out {tmp_path} --dataset mutag -m gcn\n"
    assert said.stderr == f"stopped and saved; continue: {again}"
    page = tmp_path / "table1" / "README.md"
    assert "not begun (1 of 1): gcn on mutag" in page.read_text()
    begun = f"error: {tmp_path / 'table1'}: was begun before; continue it with --resume"
    assert begun in reproduce(*words, code=1).stderr
    said = reproduce(*words, "--resume")
    assert re.fullmatch(
        rf"data .*\nmutag  gcn  .*\nmeasured 1 of 1 cells\n{re.escape(last)}", said.stdout
    )
    assert said.stderr == "cell 1 of 1: gcn on mutag\n"
    assert "not begun" not in page.read_text()
    more = ("--resume", "-m", "gin", "--data", tmp_path / "empty")
    said = reproduce(*words, *more, code=1)
    assert "\ngin on mutag is left out: mutag: TU/MUTAG.zip is missing from the" in said.stderr


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
    ("stop", "code"),
    [
        (StoppedError("", signal.SIGALRM), 1),
        (StoppedError("", signal.SIGINT), 130),
        (KeyboardInterrupt(), 130),
    ],
)
def test_what_failed_before_a_stop_is_on_the_page(
    stop: BaseException,
    code: int,
    reproduce: Reproduce,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = iter([InputError("no luck"), stop])

    def train(*_: object) -> None:
        raise next(ends)

    monkeypatch.setattr(runner, "_train", train)
    words = ("table1", "--dataset", "mutag", "-m", "gin", "-m", "gcn", "--out", tmp_path)
    assert "gin on mutag is left out: no luck\n" in reproduce(*words, code=code).stderr
    for page in ("README.md", "index.html"):
        text = (tmp_path / "table1" / page).read_text()
        assert "no luck (1 of 2): gin on mutag" in text
        assert "not begun (1 of 2): gcn on mutag" in text


def test_several_processes_share_a_study(reproduce: Reproduce, tmp_path: Path) -> None:
    words = ("table1", "--out", tmp_path, "--trials", "1")
    cells = ("--dataset", "mutag", "-m", "gin", "-m", "gcn")
    with held(tmp_path / "table1" / "mutag-gin"):
        said = reproduce(*words, *cells).output
    assert "gin on mutag\nanother process is training it\n" in said
    assert "measured 1 of 2 cells" in said
    said = reproduce(*words, "--resume").output
    assert "measured 2 of 2 cells" in said
    assert "parameters" not in said, "which the page has: a terminal is narrow"
    assert "| parameters |" in (tmp_path / "table1" / "README.md").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("table1", "--preset", "tunde"), "--preset tunde: no cell of table1 on mutag has it; did"),
        (("index", "--model", "gin"), "--model gin: no cell of index on mutag has it; known: grad"),
        (("decay", "--set", "model.layer=3"), "model.layer: unknown option; did you mean 'layers'"),
        (("deep", "--set", "model.layers=2"), "--set model.layers=2: the cells of deep are named"),
        (("decay", "--set", "model.decay=0.5"), "are named by their own model.decay; leave it"),
        (("table1", "--set", "model.name=gcn"), "are named by their own model.name; leave it"),
        (("table1", "--set", "dataset=nci1"), "are named by their own dataset; leave it out (--da"),
    ],
)
def test_what_fits_no_cell_is_said_before_anything_is_written(
    words: tuple[str, ...], said: str, reproduce: Reproduce, tmp_path: Path
) -> None:
    output = reproduce(*words, "--dataset", "mutag", "--out", tmp_path, code=1).output
    assert said in output
    assert not list(tmp_path.iterdir())


def test_what_only_shortens_the_cells_of_cost_may_be_set() -> None:
    study, shorter = STUDIES["efficiency"], "train.epochs=2"
    plan = Plan(("mutag",), ("gcn",), settings=(shorter,))
    cost, score = chosen_cells(study, plan, settings=[shorter])
    assert (cost.cost, score.cost) == (True, False)


@pytest.mark.parametrize(
    ("study", "data"),
    [*product(("decay", "attention", "starts"), ["pattern-sample"]), ("decay", "zinc-gcn")],
)
def test_a_recipe_without_the_preset_of_a_study_is_named(
    study: str, data: str, reproduce: Reproduce, tmp_path: Path
) -> None:
    words = (study, "--dataset", data, "--out", tmp_path)
    alone = reproduce(*words, code=1)
    assert f"on {data}: the recipe has no preset paper" in alone.output
    reproduce(*words, "--dataset", "mutag", "--budget", "0")
    assert "the recipe has no preset paper (" in (tmp_path / study / "README.md").read_text()


def test_a_setting_that_a_model_lacks_is_on_the_page(reproduce: Reproduce, tmp_path: Path) -> None:
    words = ("--dataset", "mutag", "--model", "graphgps", "--model", "gcn", "--trials", "1")
    said = reproduce("table1", *words, "--set", "model.heads=2", "--out", tmp_path, code=1)
    assert "measured 1 of 2 cells" in said.output
    assert "model.heads: unknown option" in (tmp_path / "table1" / "README.md").read_text()


def test_a_cell_whose_seeds_all_diverged_is_a_failure_also_the_next_time(
    reproduce: Reproduce, tmp_path: Path
) -> None:
    """A script must not take a study without a number for one that is done."""
    words = ("table1", "--dataset", "mutag", "--model", "gcn", "--trials", "2", "--out", tmp_path)
    changes = ("--set", "train.lr=1e30")
    for resume in ((), ("--resume",)):
        said = reproduce(*words, *changes, *resume, code=1).output
        assert said.count("2 of 2 seeds diverged") == 1
        assert "gcn on mutag is left out: 2 of 2 seeds diverged\n" in said
        assert "measured 0 of 1 cells" in said
        text = (tmp_path / "table1" / "README.md").read_text()
        assert "2 of 2 seeds diverged (1 of 1): gcn on mutag" in text


def test_seeds_that_diverged_beside_good_ones_are_said(
    reproduce: Reproduce, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    validate = Trial.validate
    monkeypatch.setattr(Trial, "validate", lambda one: validate(one) if one.number else None)
    words = ("table1", "--dataset", "mutag", "--model", "gcn", "--trials", "2", "--out", tmp_path)
    said = reproduce(*words).output
    assert "1 of 2 seeds diverged: they count nowhere" in said
    assert "measured 0 of 1 cells" in said
    text = (tmp_path / "table1" / "README.md").read_text()
    assert "1 of 2 seeds diverged (1 of 1): gcn on mutag" in text
