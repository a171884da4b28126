"""The results in short: what counts as a clear difference, and who is set beside whom."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean, stdev
from types import SimpleNamespace
from typing import Any

import pytest

from gradformer.studies import STUDIES, decay
from gradformer.studies.differences import difference, resampled, verdict
from gradformer.studies.study import Cell, Measured
from gradformer.studies.tables import apart, results
from gradformer.training.metrics import LOWER_IS_BETTER
from tests.conftest import docs_script

script = docs_script("summary")
beside, best = script.beside, script.best
headlines, summary = script.headlines, script.summary

SHARES = ("nci1", "actor", "collab")
METRICS = dict.fromkeys(SHARES, "accuracy") | {"molhiv": "auroc", "zinc": "mae"}
EVEN = [0.50, 0.52, 0.48, 0.51, 0.49, 0.50, 0.53, 0.47, 0.50, 0.50]


def measured(data: str, model: str, values: list[float], preset: str | None = None) -> Measured:
    metric = METRICS[data]
    row = model if preset is None else f"{model} ({preset})"
    outcome: dict[str, Any] = {
        "metric": metric,
        "lower_is_better": metric in LOWER_IS_BETTER,
        "val": {"mean": 0.5},
        "test": {
            "mean": mean(values),
            "std": stdev(values) if len(values) > 1 else None,
            "values": values,
        },
        "trials": [{"seed": k, "test": {metric: v}} for k, v in enumerate(values)],
    }
    return Measured(Cell(data, row, data, model, preset=preset), outcome)


def moved(by: float) -> list[float]:
    """EVEN moved by ``by`` with a spread of differences of 0.02 between seeds."""
    return [value + by + (0.02 if k % 2 else -0.02) for k, value in enumerate(EVEN)]


@pytest.mark.parametrize(
    ("data", "by", "clear"),
    [("nci1", 0.018, 0), ("nci1", 0.024, 1), ("actor", 0.024, 0), ("actor", 0.036, 1)],
)
def test_drawn_splits_ask_for_a_wider_interval(data: str, by: float, clear: int) -> None:
    """Student's reach is t · s/√10 = 0.0151; 1.5 times as much on NCI1, 2.3 on Actor."""
    first, other = measured(data, "gcn", EVEN), measured(data, "gin", moved(by))
    assert verdict(first, other) == clear
    assert verdict(other, first) == -clear


def test_decays_are_counted_beside_none() -> None:
    def decayed(rate: float, values: list[float]) -> Measured:
        one = measured("nci1", "gradformer", values)
        return replace(one, cell=replace(one.cell, point=("linear", rate)))

    gains = {0.0: 0.1, 0.5: 0.001, 0.7: 0.1, 0.9: -0.1}
    some = [decayed(rate, moved(gain)) for rate, gain in gains.items()]
    assert decay.beside_none(some)[1] == [], "nothing to stand beside"
    assert decay.beside_none([*some, decayed(1.0, EVEN)])[1] == [["nci1", "2", "1", "1"]]


def test_on_a_fixed_split_all_seeds_count() -> None:
    """The first four of ten seeds are lucky ones, and the other model has but four."""
    lucky = [0.60, 0.61, 0.59, 0.60, 0.45, 0.44, 0.43, 0.45, 0.44, 0.43]
    first, other = measured("molhiv", "gcn", lucky), measured("molhiv", "gin", EVEN[:4])
    assert apart(first, other) == "−0.15 (−6.25 … +5.95)"  # as scipy's ttest_ind has it
    assert apart(measured("molhiv", "gcn", [0.5]), other) == "+0.25"
    near = measured("molhiv", "gat", [0.5 - 1e-9])
    assert apart(measured("molhiv", "gcn", [0.5]), near) == "+0.00", "zero has no minus"
    assert verdict(first, other) == verdict(other, first) == 0
    assert verdict(first, measured("molhiv", "gin", [0.9, 0.91])) == 1


def test_resampled_parts() -> None:
    assert resampled("nci1") == 411 / 3288
    assert resampled("actor") == 1520 / 3648
    assert resampled("cora") == resampled("zinc") == 0.0
    assert resampled("cora", "random") == 1000 / 140, "20 nodes of each class, as the card says"
    assert resampled("zinc", "random") == resampled("cora", "kfold") == 1 / 8


def test_splits_that_are_drawn_instead_of_the_fixed_one_are_paired() -> None:
    """As in a report of the same runs; by Welch's interval what the splits add hides the gain."""
    first, other = (
        replace(measured("molhiv", model, values), history=_split("random"))
        for model, values in (("gcn", [0.2, 0.4, 0.6, 0.8]), ("gin", [0.21, 0.42, 0.62, 0.82]))
    )
    rival = replace(other, history=None)
    for one in (other, rival):
        found = difference(first, one)
        assert found is not None
        assert found.pairs is not None
        assert verdict(first, one) == 1


def _split(way: str) -> Any:
    """The history of a run, as far as it tells how the data are split."""
    recipe = SimpleNamespace(dataset="molhiv", data=SimpleNamespace(split=way), seed=0)
    run = SimpleNamespace(origin={}, recipe=recipe, folder=object())
    return SimpleNamespace(run=run, metric="accuracy")


def test_a_low_error_is_better() -> None:
    first, other = measured("zinc", "gcn", EVEN), measured("zinc", "gin", moved(-0.1))
    assert verdict(first, other) == 1
    _, ((_, best_mean, *rest, _),) = best({"zinc": [first, other]})
    assert best_mean.startswith("gin 0.4")
    assert rest == ["–", "gcn", "10"]


def test_the_best_names_who_has_fewer_seeds() -> None:
    """On the seeds that both have it may even be the better one."""
    first = measured("nci1", "gcn", [0.3, 0.31, 0.29, 0.3, *[0.9] * 6])
    few = measured("nci1", "gin", moved(0.0)[:4])
    assert verdict(first, few) == 1
    even = measured("nci1", "gat", [0.5, 0.8] * 5)
    assert verdict(first, even) == 0
    _, ((*_, near, worse, seeds, _),) = best({"nci1": [first, few, even]})
    assert (near, worse, seeds) == ("gin (4 seeds), gat", "–", "10")


def test_one_seed_is_never_clear() -> None:
    assert verdict(measured("zinc", "gcn", [0.9]), measured("zinc", "gin", [0.1])) == 0


def test_other_splits_and_other_seeds_are_not_compared() -> None:
    first, other = measured("nci1", "gcn", EVEN), measured("nci1", "gin", moved(0.1))
    one, two, elsewhere = (
        replace(cell, history=_split(split))
        for cell, split in ((first, "auto"), (other, "auto"), (other, "scaffold"))
    )
    assert verdict(one, two) == verdict(one, other) == 1
    assert difference(one, elsewhere) is None
    assert verdict(one, elsewhere) == 0
    assert apart(one, elsewhere) == "–"
    assert other.outcome is not None
    for trial in other.outcome["trials"]:
        trial["seed"] += 100
    assert verdict(first, other) == 0


def test_ours_beside_the_others() -> None:
    nci1 = [
        measured("nci1", "gradformer", EVEN, "authors"),
        measured("nci1", "gradformer", moved(0.1), "paper"),
        measured("nci1", "gcn", EVEN),
        measured("nci1", "majority", moved(-0.3)),
    ]
    molhiv = [
        measured("molhiv", "gradformer", EVEN, "paper"),
        measured("molhiv", "gcn", moved(0.2)),
    ]
    _, rows = beside({"nci1": nci1, "molhiv": molhiv})
    assert rows == [["gradformer (paper)", "gcn", "nci1", "–", "molhiv"]]
    once = measured("zinc", "gradformer", [0.1], "paper")
    text = summary([*nci1, *molhiv, measured("zinc", "gcn", EVEN), once])
    assert "Only one model has been measured with several seeds on zinc." in text
    assert "Measured with one seed, and not counted above: gradformer (paper) on zinc." in text
    assert "| gradformer (paper) | gcn | nci1 | – | molhiv |" in text


def test_models_of_which_the_same_is_true_share_a_row() -> None:
    ours = measured("nci1", "gradformer", moved(0.1), "paper")
    near = [measured("nci1", model, moved(0.101)) for model in ("gat", "sat")]
    _, rows = beside({"nci1": [ours, near[0], measured("nci1", "gcn", EVEN), near[1]]})
    assert rows == [
        ["gradformer (paper)", "gat, sat", "–", "nci1", "–"],
        ["gradformer (paper)", "gcn", "nci1", "–", "–"],
    ]


def test_data_of_two_rows_count_once() -> None:
    def sixteen(one: Measured) -> Measured:
        return replace(one, cell=replace(one.cell, column="zinc-16"))

    zinc = [measured("zinc", "gradformer", EVEN, "authors"), measured("zinc", "gcn", moved(0.1))]
    more = [sixteen(one) for one in zinc]
    assert "best mean on 2 of the 2 rows" in summary([*zinc, *more]), "neither has more"
    more.append(sixteen(measured("zinc", "gradformer", moved(-0.1), "paper")))
    text = summary([*zinc, *more])
    assert "best mean on 1 of the 1 rows below on which it meets other models: zinc-16." in text
    assert "What counts on zinc is in another row too, and counts once." in text
    more[1] = sixteen(measured("zinc", "gcn", moved(0.2)))
    text = summary([*zinc, *more])
    assert "best mean on 2 of the 2 rows" in text, "another run of gcn"
    assert "- zinc and zinc-16 share 1 run, counted twice." in text


def test_nothing_is_said_of_nothing() -> None:
    assert summary([measured("zinc", "gcn", EVEN), Measured(Cell("nci1", "gcn", "nci1"))]) == ""


def test_headlines_count_where_each_side_is_best_and_how_clearly() -> None:
    columns = {
        "nci1": [
            measured("nci1", "gradformer", moved(0.37), "paper"),
            measured("nci1", "gcn", EVEN),
        ],
        "actor": [
            measured("actor", "gradformer", [value - 0.174 for value in EVEN], "paper"),
            measured("actor", "gcn", moved(-0.173)),
        ],
        "molhiv": [
            measured("molhiv", "gradformer", EVEN, "paper"),
            measured("molhiv", "gradformer", moved(0.1), "tuned"),
            measured("molhiv", "gcn", moved(0.2)),
        ],
        "zinc": [
            measured("zinc", "gradformer", [0.072, 0.074, 0.070], "paper"),
            measured("zinc", "gcn", [0.0722, 0.075, 0.070]),
            measured("zinc", "gin", [0.5, 0.51, 0.52]),
        ],
    }
    ours, theirs, paper = headlines(columns)
    assert "on 2 of the 4 rows below on which it meets other models: nci1, zinc." in ours
    assert ours.endswith("clearly worse on 1: nci1 (1 model).")
    assert "best mean on 2: actor (gcn), molhiv (gcn)." in theirs
    assert theirs.endswith("clearly worse on 1: molhiv.")
    assert "by the recipe `paper` on 3 of 4 datasets" in paper, "86.01 of nci1 is not better"
    assert paper.endswith("over our seeds on 2: molhiv, zinc."), "32.6 ± 1.7 is near actor's 33.63"
    tied = [
        measured("nci1", model, EVEN, preset)
        for model, preset in (("gradformer", "paper"), ("gcn", None))
    ]
    assert "models: nci1 (shared)." in headlines({"nci1": tied})[0]
    assert len(headlines({"nci1": columns["nci1"]})) == 2
    assert len(headlines({"not in the paper": columns["nci1"]})) == 1
    alone = [measured("molhiv", "gradformer", [0.5], "paper"), measured("molhiv", "gcn", [0.4])]
    *_, paper = headlines({"molhiv": alone})
    assert "1 of 1 dataset" in paper
    assert paper.endswith("over our seeds on none."), "one seed has no deviation"
    drawn = [measured("collab", "gradformer", EVEN, "paper"), measured("collab", "gcn", EVEN)]
    assert len(headlines({"collab": drawn})) == 1, "our graphs of collab are not the paper's"
    *_, paper = headlines({"molhiv": alone, "collab": drawn})
    assert "1 of 1 dataset other than collab, whose graphs are not the paper's;" in paper


def test_where_ours_is_clearly_best_it_is_said_how_large_the_models_are() -> None:
    def sized(one: Measured, parameters: int | None) -> Measured:
        trials = [{**t, "parameters": parameters} if parameters else t for t in one.known["trials"]]
        return replace(one, outcome={**one.known, "trials": trials})

    best, worst = measured("nci1", "gradformer", moved(0.3), "tuned"), measured("nci1", "gcn", EVEN)
    middle = measured("nci1", "majority", [value + 0.1 for value in EVEN])
    some = [sized(best, 442_094), sized(middle, None), sized(worst, 22_162)]
    ours, *_ = headlines({"nci1": some})
    assert ours.endswith(" Gradformer's parameters: 442,094 on nci1 (the others at most 22,162).")
    head, rows = results(STUDIES["table1"], some)
    sizes = [row[head.index("parameters")] for row in rows]
    assert sizes == ["442,094", "–", "22,162"]
    assert "parameters" not in results(STUDIES["table1"], some[:1])[0], "one model has no rival"


def test_others_are_set_beside_the_first_model_of_several_seeds() -> None:
    values = {"gradformer": [0.7], "gcn": [0.60, 0.62], "gin": [0.50, 0.52]}
    some = [
        replace(measured("molhiv", model, found), history=_split("random"))
        for model, found in values.items()
    ]
    told = [row[-1] for row in results(STUDIES["table1"], some)[1]]
    assert told == ["+10.00", "others − this", "−10.00"]
    assert results(STUDIES["table1"], [some[0], some[0]])[1][0][-1] == "others − this"


def test_what_decay_is_worth_by_itself_is_a_headline() -> None:
    beside = [measured("nci1", model, EVEN) for model in ("gradformer", "gcn")]
    decays = [
        replace(one, cell=replace(one.cell, row=f"λ = {rate}", point=("exponential", rate)))
        for rate, values in ((1.0, EVEN), (0.9, moved(0.1)), (0.8, moved(-0.1)), (0.7, moved(0.0)))
        for one in [measured("nci1", "gradformer", values)]
    ]
    assert "better than none (λ = 1) in 1 of 3 variants on nci1." in summary(beside, decays)
    assert "λ = 1" not in summary(beside, decays[1:]), "without a run at λ = 1 nothing is known"


def test_depths_are_compared_with_graphgps_in_a_headline() -> None:
    def at(depth: int, *some: Measured) -> list[Measured]:
        return [replace(m, cell=replace(m.cell, column=f"nci1, {depth} layers")) for m in some]

    gps = measured("nci1", "graphgps", EVEN)
    ours = [measured("nci1", "gradformer", values) for values in (moved(0.1), moved(-0.1), EVEN)]
    readout = replace(ours[2], cell=replace(ours[2].cell, row="gradformer, MLP readout"))
    depths = [*at(4, ours[0], gps), *at(12, ours[1], readout, gps), *at(24, ours[1], gps)]
    said = summary([ours[0], gps], depths=[*depths, *at(48, ours[1])])
    assert (
        "(Table 2), gradformer is clearly better on nci1, 4 layers, clearly worse on "
        "nci1, 12 layers / nci1, 24 layers (3 measured); gradformer, MLP readout is clearly "
        "better on none, clearly worse on none (1 measured)."
    ) in said


def test_who_is_not_measured_is_neither_better_nor_worse() -> None:
    others = [measured("zinc", "gcn", EVEN), measured("zinc", "gin", moved(0.2))]
    alone = [measured("nci1", "gradformer", EVEN, preset) for preset in ("authors", "tuned")]
    (said,) = headlines({"zinc": others, "nci1": alone})
    assert "on 0 of the 0 rows" in said
    assert said.endswith("worse on none.")
