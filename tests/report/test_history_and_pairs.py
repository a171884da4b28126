"""What is read from a record, and the difference of two runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from gradformer.report.curves import learning_curve
from gradformer.report.history import History, open_histories
from gradformer.report.outcome import (
    _comparison_table,
    _difference_tables,
    _strips,
    differences,
    unequal,
)
from gradformer.report.pairs import comparable, difference, paired_difference, splits_by_seed


def history(
    record, label="a", content="x", split="auto", trials=2, seed=0, dataset="own", way=None
) -> History:
    run = SimpleNamespace(
        folder=Path("nowhere"),
        record=record,
        origin={"content": content} | ({} if way is None else {"split": way}),
        recipe=SimpleNamespace(
            data=SimpleNamespace(split=split), trials=trials, seed=seed, dataset=dataset
        ),
    )
    return History(run, label)  # type: ignore[arg-type]


def results(values, metric="mae", first_seed=0):
    return [
        {"kind": "result", "trial": k, "seed": first_seed + k, "status": "finished",
         "metric": metric, "val": {metric: v}, "test": {metric: v}}
        for k, v in enumerate(values)
    ]  # fmt: skip


def test_curve_is_the_mean_over_trials_that_reach_an_epoch():
    lines = [
        {"kind": "epoch", "trial": 0, "epoch": 1, "loss": 1.0},
        {"kind": "epoch", "trial": 1, "epoch": 1, "loss": 3.0},
        {"kind": "epoch", "trial": 0, "epoch": 2, "loss": 0.5},
        {"kind": "epoch", "trial": 1, "epoch": 2, "loss": None},
        {"kind": "epoch", "trial": 2, "epoch": 1, "loss": 8.0},
    ]
    curve = learning_curve(0, history(lines), ["loss"])
    assert curve.y == [4.0, 0.5]
    spread = ((9 + 1 + 16) / 2) ** 0.5
    assert curve.low == pytest.approx([4 - spread, 0.5])
    assert curve.high == pytest.approx([4 + spread, 0.5])
    assert [y for _, y in curve.faint] == [[1.0, 0.5], [3.0], [8.0]]
    assert learning_curve(0, history(lines), ["val", "mae"]) is None


def test_times_and_start_points_are_those_of_all_epochs():
    lines = [
        {"kind": "epoch", "trial": 1, "epoch": 1, "seconds": 2.0},
        {"kind": "epoch", "trial": 0, "epoch": 1, "seconds": 1.5, "starts": [[2.0, 3.0]]},
        {"kind": "epoch", "trial": 0, "epoch": 2, "seconds": None, "starts": [[2.5, 3.5]]},
    ]
    one = history(lines)
    assert list(one.epochs) == [0, 1]
    assert one.seconds == 3.5
    epochs, starts = one.starts(0)
    assert (epochs.tolist(), starts.tolist()) == ([1, 2], [[[2.0, 3.0]], [[2.5, 3.5]]])
    assert one.starts(1) is one.starts(7) is None
    assert not history(results([1.0])).finished
    both = history(results([1.0, 2.0]))
    assert (both.finished, both.metric) == (True, "mae")


def test_a_diverged_trial_counts_in_no_mean():
    record = results([1.0, 2.0])
    record[1] |= {"status": "diverged", "test": None}
    outcome = history(record).outcome
    assert outcome["test"]["values"] == [1.0]
    assert outcome["diverged"] == [1]


def test_long_curves_are_thinned_and_keep_their_ends():
    epochs = range(1, 2001)
    lines = [{"kind": "epoch", "trial": 0, "epoch": k, "loss": k, "starts": [[k]]} for k in epochs]
    curve, starts = learning_curve(0, history(lines), ["loss"]), history(lines).starts(0)
    for x, y in ((curve.x, curve.y), (starts[0].tolist(), starts[1].ravel().tolist())):
        assert (len(x), x[0], x[-1], y) == (240, 1, 2000, x)


def bounds(found):
    return found.mean - found.reach, found.mean + found.reach


def test_paired_difference_is_student_s():
    rng = np.random.default_rng(0)
    one, two = rng.normal(size=6), rng.normal(size=6)
    found = paired_difference(history(results(one)).outcome, history(results(two)).outcome)
    interval = stats.ttest_rel(two, one).confidence_interval()
    assert bounds(found) == pytest.approx((interval.low, interval.high))
    assert found.pairs.better == int((two < one).sum()), "a smaller error is better"
    assert found.pairs.better + found.pairs.worse == 6


def test_a_tie_is_neither_better_nor_worse_and_two_seeds_have_an_interval():
    one, two = history(results([0.3, 0.4])), history(results([0.3, 0.2]))
    found = paired_difference(one.outcome, two.outcome)
    assert (found.pairs.better, found.pairs.worse) == (1, 0)
    interval = stats.ttest_rel([0.3, 0.2], [0.3, 0.4]).confidence_interval()
    assert bounds(found) == pytest.approx((interval.low, interval.high))
    _, rows, _ = differences([one, two])
    assert rows == [["a − a", "−0.10", "0.14", "−1.37 … +1.17", "2", "1 / 0"]]


def test_differences_that_are_all_the_same_have_no_interval():
    """Of small test sets, whose accuracies are few numbers: one of width 0 would be clear."""
    one, two = (history(results(np.array(right) / 411)) for right in ([200, 264], [203, 267]))
    found = paired_difference(one.outcome, two.outcome)
    assert found.mean == pytest.approx(3 / 411)
    assert (found.pairs.std, found.reach) == (0.0, None)
    head, (row,), _ = differences([one, two])
    assert dict(zip(head, row)) == {
        "difference": "a − a", "mean": "+0.007299", "std": "0.000000", "seeds": "2",
        "better / worse": "0 / 2",
    }  # fmt: skip
    same = paired_difference(one.outcome, one.outcome)
    assert same.reach == 0.0


def test_only_equal_seeds_are_paired():
    early, later = history(results([1, 2, 3])), history(results([5, 7], first_seed=2))
    found = paired_difference(early.outcome, later.outcome)
    assert (found.pairs.count, found.mean, found.reach) == (1, 2.0, None)
    head, rows, others = differences([early, later, history(results([2, 4, 4]))])
    assert (len(head), rows[0][2:4], len(others)) == (6, ["–", "–"], 1), "others have a spread"
    late = history(results([5], first_seed=9))
    assert paired_difference(history(results([1])).outcome, late.outcome) is None


def test_a_seed_without_a_score_is_not_paired():
    """As where an answer on the test part was not finite: in a file its score is null."""
    one, two = results([1.0, 2.0, 3.0, 9.0]), results([2.0, 4.0, 6.0, 8.0])
    two[1]["test"], one[3]["test"] = {"mae": None}, None  # the latter diverged
    first, other = history(one), history(two)
    found = paired_difference(first.outcome, other.outcome)
    assert (found.pairs.count, found.mean) == (2, 2.0)
    assert unequal([first, other])


def test_other_data_split_or_metric_is_not_compared():
    one = history(results([1.0]))
    assert comparable(one, history(results([2.0])))
    assert not comparable(one, history(results([2.0]), content="y"))
    assert not comparable(one, history(results([2.0]), split="scaffold"))
    assert not comparable(one, history(results([2.0], metric="rmse")))
    assert comparable(one, history(results([2.0]), seed=3))
    folds = history(results([1.0]), split="kfold")
    assert comparable(folds, history(results([2.0]), split="kfold"))
    assert not comparable(folds, history(results([2.0]), split="kfold", seed=3)), "other folds"


def test_a_split_that_is_named_is_that_which_is_found():
    """Random by seed is the way of NCI1, and of a user's numbers, whether it is said or not."""
    for first, other in (
        ({"dataset": "nci1"}, {"dataset": "nci1", "split": "random"}),
        ({"dataset": "zinc"}, {"dataset": "zinc", "split": "fixed"}),
        ({"way": "random"}, {"way": "random", "split": "random"}),
    ):
        assert comparable(history(results([1.0]), **first), history(results([2.0]), **other))
    column = history(results([1.0]), way="column")
    assert not comparable(column, history(results([1.0]), way="random", split="random"))


def test_means_over_other_seeds_are_not_compared():
    one, two = history(results([1, 2, 3])), history(results([1, 2, 4]))
    fewer = history(results([0, 2]))
    assert unequal([one, two]) == ""
    assert unequal([one, two, fewer]).startswith("Seeds differ, so the means do not compare;")
    rest = [history(results([k]), content="y", dataset="nci1") for k in (1, 2)]
    assert unequal([one, *rest, fewer]).startswith("On own seeds differ, so")
    assert unequal([one, two, history(results([0]), content="y", dataset="nci1")]) == ""


def test_runs_that_do_not_compare_are_told_apart():
    """As those of two targets in one file: its name and the metric are the same."""
    one, two = history(results([1, 2]), "one"), history(results([1, 3]), "two")
    others = [history(results([60, 50]), "y", content="y"), history(results([2, 3]), way="column")]
    for other in others:
        said = "Runs on own differ in targets, rows or split, so not all means compare."
        assert unequal([one, two, other]) == said
        figures = str(_strips([one, two, other])).split("<figure")[1:]
        assert ["one" in drawn and "two" in drawn for drawn in figures] == [True, False]
    assert unequal([one, history(results([1, 2], metric="r2"))]) == ""


def test_seeds_that_differ_on_one_dataset_leave_the_best_of_another_bold():
    def sized(values, **given):
        return history([line | {"parameters": 1} for line in results(values)], **given)

    own = [sized([1, 2]), sized([1])]
    rest = [sized([k], content="y", dataset="nci1") for k in (1, 2)]
    both = str(_comparison_table([*own, *rest]))
    assert "The best mean on each dataset is bold. On own seeds differ" in both
    assert both.count('class="best"') == 1
    assert "bold" not in str(_comparison_table(own))


def test_seeds_of_a_fixed_split_are_not_paired():
    """As on the results page: equal seeds have nothing in common there, so all seeds count."""
    rng = np.random.default_rng(0)
    one, two = rng.normal(size=3), rng.normal(size=5)
    fixed = {"dataset": "zinc"}
    first, other = history(results(one), **fixed), history(results(two, first_seed=9), **fixed)
    head, ((_, _, interval, seeds),), _ = differences([first, other])
    told = str(_difference_tables([first, other])[0])
    assert "Where all have one split, equal seeds have nothing in common: they are those of" in told
    assert head == ["difference", "mean", "95 % interval", "seeds"], "pairs alone have a spread"
    found = stats.ttest_ind(two, one, equal_var=False).confidence_interval()
    assert interval == f"{found.low:+.2f} … {found.high:+.2f}".replace("-", "−")
    assert seeds == "5 and 3"
    assert unequal([first, other]) == "", "means over other seeds compare"


def test_a_run_without_a_score_has_no_difference():
    lost = results([1.0])
    lost[0]["test"] = None  # it diverged
    one, none = history(results([1.0, 2.0])), history(lost)
    for pair in ((one, none), (none, one)):
        assert difference(*(side.outcome for side in pair), by_seed=False) is None


def test_no_difference_has_no_minus():
    _, ((_, mean, *_),), _ = differences([history(results([0.3])), history(results([0.3 - 1e-12]))])
    assert float(mean) == 0.0
    assert mean[0] == "+"


def test_differences_of_a_target_in_a_small_unit_have_digits():
    one, two = history(results([1.4e-6, 1.6e-6])), history(results([1.3e-6, 1.4e-6]))
    _, ((_, mean, std, interval, *_),), _ = differences([one, two])
    assert (mean, std, interval) == ("−1.5×10⁻⁷", "7.1×10⁻⁸", "−7.9×10⁻⁷ … +4.9×10⁻⁷")


def test_which_runs_have_a_split_for_each_seed():
    drawn = [{}, {"dataset": "nci1"}, {"dataset": "actor"}, {"way": "scaffold"}]
    drawn += [{"dataset": "zinc", "way": "scaffold"}]  # a user's data of that name
    drawn += [{"dataset": "zinc", "split": "random"}]
    fixed = [{"dataset": "zinc"}, {"dataset": "nci1", "split": "fixed"}, {"way": "column"}]
    assert all(splits_by_seed(history([], **given).run) for given in drawn)
    assert not any(splits_by_seed(history([], **given).run) for given in fixed)


def test_labels_tell_runs_apart(variants):
    assert [h.label for h in open_histories(variants)] == [run.folder.name for run in variants]
    by_model = open_histories([variants[0].folder, variants[-1]])
    assert [h.label for h in by_model] == ["gradformer", "gin"]
    twice = [h.label for h in open_histories([variants[0], variants[0]])]
    assert len(set(twice)) == 2
