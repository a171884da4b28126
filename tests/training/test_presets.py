"""The presets are what the paper's table and the authors' code say, and differ only as stated."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest
import torch

from gradformer.graphs.arrays import Schema
from gradformer.model.gradformer import Gradformer
from gradformer.training import options
from gradformer.training.attempts import validation_scores
from gradformer.training.files import read_json
from gradformer.training.recipe import Recipe, load_recipe, presets
from gradformer.training.run import Run
from gradformer.training.weights import Weights
from tests.conftest import ROOT, shared_path

TU = ("nci1", "proteins", "mutag", "collab", "imdb-binary")
NODES = ("cora", "citeseer", "actor")
COLUMNS = (*TU, "cluster", "pattern", "molhiv", "zinc")
ALL = {"model.equal_projections": True, "train.decay_all": True}
NO_SCHEDULE = {"train.schedule": "none", "train.clip": 0.0}
GATED = {"model.double_residual": True, "model.carry_edges": False}
AUTHORS: dict[str, dict[str, Any]] = {
    **dict.fromkeys((*TU, *NODES), ALL),
    "nci1": {**ALL, "model.decay": 0.6},
    "zinc": {**ALL, **NO_SCHEDULE, "model.slope": 0.1},
    "molhiv": {**ALL, **NO_SCHEDULE, **GATED, "model.slope": 0.2, "model.position_gate": True},
    "pattern": {**ALL, **NO_SCHEDULE, **GATED},
    "cluster": {
        **(ALL | NO_SCHEDULE | GATED),
        **{"model.slope": 0.1, "model.layers": 16, "model.dropout": 0.0},
        **{"train.class_weights": "none", "train.select": "accuracy"},
    },
}


def flat(name: str, preset: str | None) -> dict[str, Any]:
    return options.flat(load_recipe(name, preset=preset).to_dict())


@pytest.mark.parametrize("name", AUTHORS)
def test_authors_differs_from_the_paper_as_stated(name: str) -> None:
    paper, authors = flat(name, "paper"), flat(name, "authors")
    assert paper == {**flat(name, None), **({"model.decay": 0.7} if name == "nci1" else {})}
    assert {k: v for k, v in authors.items() if v != paper[k]} == AUTHORS[name]


@pytest.mark.parametrize(
    ("name", "rates"), [("nci1", (0.6, 0.7)), ("proteins", (0.5, 0.6))], ids=["nci1", "proteins"]
)
def test_of_two_rates_the_paper_has_the_better_by_validation(
    name: str, rates: tuple[float, ...]
) -> None:
    runs = {}
    for path in (ROOT / "results" / "studies").glob(f"*/{name}-*/recipe.yaml"):
        for rate in rates:
            if Recipe.load(path) == load_recipe(name, settings=[f"model.decay={rate}"]):
                runs[rate] = read_json(path.parent / "results.json")["val"]["mean"]
    assert runs.keys() == set(rates)
    assert flat(name, "paper")["model.decay"] == max(runs, key=lambda rate: runs[rate])


@pytest.mark.parametrize("name", AUTHORS)
def test_tuned_keeps_data_seeds_and_metric(name: str) -> None:
    if "tuned" not in presets(name):
        pytest.skip(f"{name} is not tuned yet")
    paper, tuned = flat(name, "paper"), flat(name, "tuned")
    for option in paper:
        if not option.startswith(("model.", "train.")) or option == "train.select":
            assert tuned[option] == paper[option]
    assert tuned["model.name"] == "gradformer"


SHALLOW = ("cluster-16", "pattern-16")


@pytest.mark.parametrize("name", [n for n in (*AUTHORS, *SHALLOW) if "tuned" in presets(n)])
def test_tuned_is_the_winner_of_the_best_validation_in_full(name: str) -> None:
    """Of the winners of the recorded searches, ``paper`` and ``authors``, over the same seeds."""
    results, tuned = ROOT / "results", load_recipe(name, preset="tuned")
    (paper,) = results.glob(f"studies/*/{name}-gradformer-paper")
    same = "cluster-16" if name == "cluster" else name  # the authors' run of both
    (authors,) = results.glob(f"studies/*/{same}-gradformer-authors")
    presets_runs = [paper, authors]
    runs = [*presets_runs, *results.glob(f"studies/*/{name}-gradformer-tuned")]
    runs += results.glob(f"search/{name}*/confirmed")
    scores = [validation_scores(Run.load(run)) for run in runs]
    seeds = min(map(len, scores))
    sign = -1 if Run.load(paper).results["lower_is_better"] else 1
    means = [sign * fmean(one[:seeds]) for one in scores]
    best = runs[means.index(max(means))]  # of equals the first
    assert replace(Recipe.load(best / "recipe.yaml"), trials=tuned.trials) == tuned
    winners = [Recipe.load(path) for path in results.glob(f"search/{name}*/best.yaml")]
    length = f"trials={tuned.trials}", f"train.epochs={tuned.train.epochs}"
    assert best in presets_runs or any(one.change(*length) == tuned for one in winners)


def printed() -> dict[str, dict[str, str]]:
    """Dataset → row → cell of the table of hyper-parameters in the notes on the paper."""
    text = shared_path("paper", "NOTES.md").read_text(encoding="utf-8")
    table = text[text.index("## Hyper-parameters") :].split("\n\n")[0].split("\n")[1:]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table if "|" in line]
    rows = {line[0]: line[1:] for line in lines[2:]}
    return {name: {row: cells[k] for row, cells in rows.items()} for k, name in enumerate(COLUMNS)}


@pytest.mark.parametrize("name", COLUMNS)
def test_the_paper_preset_is_the_papers_table(name: str) -> None:
    said, got = printed()[name], flat(name, "paper")
    for row, option in (("layers", "layers"), ("width", "width"), ("heads", "heads")):
        assert got[f"model.{option}"] == int(said[row])
    assert got["train.batch_size"] == int(said["batch"])
    assert got["model.dropout"] == float(said["dropout"])
    assert got["model.decay"] in map(float, said["λ"].split(","))
    assert got["model.start"] == float(said["start (n_hop)"])
    assert got["model.local"] == said["local module"].lower()
    kind, _, length = said["PE"].lower().partition("-")
    assert got["model.pe"] == kind
    assert not length or got["model.pe_steps"] == int(length)
    pool, head = said["readout"].lower().split(", ")
    assert got["model.head"] == head
    assert pool in ("node", got["model.pool"])
    epochs, warmup, rate = said["epochs / warm-up / rate"].split("/")
    assert (got["train.epochs"], got["train.lr"]) == (int(epochs), float(rate))
    assert got["train.warmup_epochs"] == (0 if warmup == "–" else int(warmup))
    assert got["train.optimizer"] == ("adam" if name in TU else "adamw")
    assert got["train.schedule"] == ("none" if name in TU else "cosine")
    assert (got["model.attention_dropout"], got["train.weight_decay"]) == (0.5, 1e-5)
    assert got["model.pe_join"] == ("add" if name in TU else "concat")
    width = {"zinc": 28, "cluster": 16, "molhiv": 16}
    assert got["model.pe_width"] == width.get(name, got["model.pe_width"])
    assert got["trials"] == 10


def test_projections_start_equal_and_everything_is_decayed() -> None:
    schema = Schema(node=(5,), edge=(3,), level="graph", task="regression", outputs=1)
    model = Gradformer(schema, layers=2, width=8, heads=2, pe="none", equal_projections=True)
    for layer in model.layers:
        source = layer.attention.out
        x = torch.randn(3, 8)
        for part in layer.attention.project(x):
            torch.testing.assert_close(part.flatten(1), source(x))
    first, second = (layer.attention.out.weight for layer in model.layers)
    assert not torch.equal(first, second)
    everything, usual = Weights(model, decay_all=True), Weights(model)
    assert everything.decayed == everything.num_parameters
    assert "decay.start" in everything.views(everything.vector)
    assert usual.decayed < usual.num_parameters
