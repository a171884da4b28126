"""Every study from end to end: trained in smoke mode, written down, drawn."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from gradformer.errors import ConfigError
from gradformer.studies import STUDIES, decay, page
from gradformer.studies.study import Plan
from gradformer.studies.tables import unbroken
from tests.conftest import shared_path
from tests.studies.conftest import Reproduce

SHAPES = {  # what the page of a study must show: cells that are measured, words
    "table1": (5, ["gradformer (paper)", "88.00 ± 2.45", "others − this", "majority class"]),
    "deep": (9, ["mutag, 24 layers", "gradformer, MLP readout", "graphgps"]),
    "baselines": (4, ["gradformer (authors)", "88.00 ± 2.45", "graphormer"]),
    "low-resource": (8, ["mutag, 5 %", "mutag, 100 %"]),
    "ablation": (6, ["gradformer without local module", "graphgps without PE"]),
    "index": (3, ["shortest path", "curvature", "feature similarity"]),
    "decay": (6, ["exponential, λ = 0.0", "linear, λ = 0.5", "linear, λ = 1.0"]),
    "efficiency": (4, ["seconds of an epoch", "peak memory, GiB"]),
    "nodes": (7, ["gradformer (authors)", "graphgps", "gcn", "gin", "gatedgcn"]),
    "attention": (4, ["plain", "with PE", "with bias", "with decay"]),
    "starts": (1, ["gradformer"]),
}
DRAWN = {
    "decay": "Score over λ on mutag",
    "index": "Score of each index on mutag",
    "efficiency": "Score over peak memory, GiB on mutag",
    "attention": ", with decay</title>",
    "starts": "Start points of gradformer",
}
OPTIONS = {
    "baselines": ["--model", "gradformer", "--model", "graphormer"],
    "table1": ["--model", "gradformer", "--model", "gcn", "--model", "majority"],
    "efficiency": ["--model", "gradformer", "--model", "graphgps"],
}


def test_all_studies_are_here() -> None:
    assert SHAPES.keys() == STUDIES.keys()


def test_cells_are_different_and_can_be_trained() -> None:
    for study in STUDIES.values():
        cells = study.cells(study.datasets, study.models)
        assert len({cell.name for cell in cells}) == len(cells)
        for cell in cells:
            if not cell.without_preset:
                recipe = cell.recipe(10).to_dict()
                changed = {text.partition("=")[0]: text.partition("=")[2] for text in cell.settings}
                for path, value in changed.items():
                    section, name = path.split(".")
                    written = recipe[section][name]
                    assert str(written).lower() == value or float(written) == float(value)


def test_costs_are_compared_on_equal_batches() -> None:
    study = STUDIES["efficiency"]
    costs = [cell for cell in study.cells(study.datasets, study.models) if cell.cost]
    for dataset in study.datasets:
        sizes = {c.recipe().train.batch_size for c in costs if c.dataset == dataset}
        assert len(sizes) == 1


@pytest.mark.parametrize("name", SHAPES)
def test_a_study_from_end_to_end(
    name: str, reproduce: Reproduce, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decay, "RATES", (0.0, 0.5, 1.0))
    monkeypatch.setattr(page, "LONG", 5)
    done, words = SHAPES[name]
    said = reproduce(
        name, "--dataset", "mutag", "--trials", "1", "--out", root, *OPTIONS.get(name, [])
    )
    assert f"measured {done} of" in said.output
    markdown = (root / name / "README.md").read_text()
    html = (root / name / "index.html").read_text()
    for word in words:
        assert unbroken(word) in markdown
        assert word in html
    assert "`" not in html
    assert "first epoch with the best validation accuracy" in markdown
    assert "evaluated once a trial" in markdown
    assert "commit" in markdown
    assert "- train.epochs=1" in markdown  # which smoke mode has changed
    leads = unbroken("others − this")
    leaders = [row.split(" | ")[1] for row in markdown.splitlines() if leads in row]
    if name == "ablation":
        assert leaders == ["gradformer", "graphgps"], "each model with its own variants"
    if name == "starts":
        assert not leaders, "a row without others has no difference"
    figure = root / name / "figure.svg"
    assert figure.is_file() == (name in DRAWN)
    assert ("<summary>The numbers</summary>" in markdown) == (name == "decay")
    assert ("](figure.svg)" in markdown) == ("data:image/svg+xml" in html) == (name in DRAWN)
    if name in DRAWN:
        assert DRAWN[name] in figure.read_text()
    if name in ("attention", "starts"):
        for folder in [*root.glob("*/*/trials"), *root.glob("*/*/examples")]:
            shutil.rmtree(folder)
        before = figure.read_bytes()
        again = (name, "--resume", "--trials", "1", "--budget", "0", "--out", root)
        figure.unlink()
        reproduce(*again)
        assert figure.read_bytes() == before, "drawn from the record alone"
        for numbers in root.glob("*/*/patterns.json"):
            numbers.unlink()
        reproduce(*again)
        assert figure.read_bytes() == before, "what cannot be drawn stays"
        assert "](figure.svg)" in (root / name / "README.md").read_text()


def test_records_name_no_folder_of_this_machine(reproduce: Reproduce, root: Path) -> None:
    """They are committed: a path of whoever measured says nothing to others."""
    reproduce("starts", "--dataset", "mutag", "--out", root, "--resume")
    checked = 0
    for path in root.rglob("*"):
        if path.suffix in (".json", ".jsonl", ".yaml", ".md"):
            checked += 1
            assert str(shared_path("data")) not in path.read_text(), path
    assert checked > 3


def test_rows_have_the_right_numbers(reproduce: Reproduce, root: Path) -> None:
    options = ("--dataset", "mutag", "--model", "gcn", "--model", "majority", "--trials", "2")
    reproduce("table1", *options, "--out", root / "rows")
    folder = root / "rows" / "table1"
    results = json.loads((folder / "mutag-gcn" / "results.json").read_text())
    mean, std = (100 * results["test"][name] for name in ("mean", "std"))
    text = (folder / "README.md").read_text()
    cells = ["mutag", "gcn", "accuracy ↑", f"{mean:.2f} ± {std:.2f}", "73.4 ± 10.8", "2"]
    assert " | ".join(map(unbroken, cells)) in text
    row = next(line for line in text.splitlines() if "| majority class |" in line)
    assert re.search(r"\| [+−]\d+\.\d\d \([+−][\d.]+\xa0…\xa0[+−][\d.]+\) \|$", row), row
    rival = json.loads((folder / "mutag-majority-class" / "results.json").read_text())
    assert [trial["seed"] for trial in rival["trials"]] == [0, 1]


def test_the_recipe_for_a_users_own_data_is_no_dataset() -> None:
    """It was begun, and a cell without data stayed in the plan."""
    with pytest.raises(ConfigError, match="--dataset own: unknown; known: actor, "):
        Plan(("own",), ("gin",))
