"""The metrics against scikit-learn, ties and missing labels included."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from gradformer.errors import ConfigError, InputError
from gradformer.graphs.targets import TargetScale
from gradformer.training.metrics import METRICS, better, check_metric, metrics_of, scores

draws = st.integers(0, 10_000)


@settings(max_examples=40, deadline=None)
@given(draws)
def test_classes_equal_scikit_learn(draw: int) -> None:
    rng = np.random.default_rng(draw)
    prediction = rng.normal(size=(60, 4))
    y = rng.integers(0, 4, 60)
    y[:4] = -1
    got = scores(prediction, y, "multiclass")
    answer = prediction.argmax(1)[4:]
    assert got["accuracy"] == pytest.approx(sk.accuracy_score(y[4:], answer), abs=1e-12)
    expected = sk.recall_score(y[4:], answer, labels=np.unique(y[4:]), average="macro")
    assert got["mean_recall"] == pytest.approx(expected, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(draws)
def test_rankings_equal_scikit_learn(draw: int) -> None:
    rng = np.random.default_rng(draw)
    prediction = rng.integers(-3, 4, size=(50, 3)).astype(np.float32)  # many ties
    y = rng.integers(0, 2, (50, 3)).astype(np.float32)
    y[0], y[1] = 0, 1
    y[rng.random(y.shape) < 0.1] = math.nan
    y[:2] = [[0] * 3, [1] * 3]
    got = scores(prediction, y, "multilabel")
    columns = [(y[~np.isnan(t), k], prediction[~np.isnan(t), k]) for k, t in enumerate(y.T)]
    auroc = np.mean([sk.roc_auc_score(t, p) for t, p in columns])
    precision = np.mean([sk.average_precision_score(t, p) for t, p in columns])
    accuracy = np.mean([sk.accuracy_score(t, p > 0) for t, p in columns])
    assert got["auroc"] == pytest.approx(auroc, abs=1e-12)
    assert got["average_precision"] == pytest.approx(precision, abs=1e-12)
    assert got["accuracy"] == pytest.approx(accuracy, abs=1e-12)


def test_regression_equals_scikit_learn_and_leaves_out_missing_labels() -> None:
    rng = np.random.default_rng(0)
    prediction, y = rng.normal(size=(30, 1)), rng.normal(size=(30, 1))
    got = scores(prediction, y, "regression")
    names = ("mae", "rmse", "r2")
    assert tuple(got) == metrics_of("regression") == names, "one target needs no scale"
    assert tuple(scores(prediction, y, "regression", TargetScale.fit(y))) == names
    assert got["mae"] == pytest.approx(sk.mean_absolute_error(y, prediction))
    assert got["rmse"] == pytest.approx(sk.root_mean_squared_error(y, prediction))
    assert got["r2"] == pytest.approx(sk.r2_score(y, prediction))
    assert math.isnan(scores(prediction[:1], y[:1], "regression")["r2"]), "nothing varies"
    more = np.concatenate([y, [[math.nan]]])
    assert scores(np.concatenate([prediction, [[1e9]]]), more, "regression") == got


@pytest.mark.parametrize(("shift", "unit"), [(1e5, 1.0), (0.0, 1e-25), (0.0, 1e25)])
def test_the_explained_variance_of_float32_labels_is_exact(shift: float, unit: float) -> None:
    rng = np.random.default_rng(0)
    y = (shift + unit * rng.normal(size=(400, 1))).astype(np.float32)
    exact = y.astype(np.float64)
    prediction = exact + 0.5 * unit * rng.normal(size=exact.shape)
    wanted = 1 - np.square(exact - prediction).mean() / np.var(exact)
    assert scores(prediction, y, "regression")["r2"] == pytest.approx(wanted, abs=1e-9)


def test_several_regression_targets_count_the_same_whatever_their_unit() -> None:
    rng = np.random.default_rng(0)
    prediction, y = rng.normal(size=(30, 3)), rng.normal(size=(30, 3))
    y[:4, 1], unit = math.nan, np.array([1e3, 1.0, 1e-3])
    got = scores(prediction, y, "regression", TargetScale.fit(y))
    (first, *_) = got
    assert first == metrics_of("regression", 2)[0] == "scaled_mae"
    each = [np.nanmean(np.abs(prediction - y)[:, k]) / np.nanstd(y[:, k]) for k in range(3)]
    assert got[first] == pytest.approx(np.mean(each))
    known = [~np.isnan(t) for t in y.T]
    explained = [sk.r2_score(y[k, j], prediction[k, j]) for j, k in enumerate(known)]
    assert got["r2"] == pytest.approx(np.mean(explained))
    other = scores(prediction * unit, y * unit, "regression", TargetScale.fit(y * unit))
    assert other[first] == pytest.approx(got[first])
    assert other["mae"] > 100 * got["mae"]


def test_a_target_of_one_class_has_no_ranking() -> None:
    prediction = np.array([[0.1, 0.2], [0.3, 0.1]])
    y = np.array([[1.0, 0.0], [1.0, 1.0]])
    assert METRICS["auroc"](prediction, y) == 0.0  # the second target only
    for name in ("auroc", "average_precision"):
        assert math.isnan(METRICS[name](prediction[:, :1], y[:, :1]))
    assert METRICS["accuracy"](prediction, y) == 0.75  # of both: right and wrong need no ranking


def test_a_class_that_does_not_occur_has_no_recall() -> None:
    answers = np.eye(3)[[0, 2, 2, 1]]
    assert METRICS["mean_recall"](answers, np.array([0, 2, 2, 0])) == 0.75


def test_answers_that_are_not_finite_have_no_score() -> None:
    prediction, y = np.array([[0.1, 0.2], [np.nan, 0.1]]), np.array([1, 0])
    assert all(math.isnan(value) for value in scores(prediction, y, "multiclass").values())
    assert scores(prediction, np.array([1, -1]), "multiclass")["accuracy"] == 1.0


def test_better_is_strict_and_never_nan() -> None:
    assert better("mae", 0.1, 0.2)
    assert not better("mae", 0.2, 0.2)
    assert better("accuracy", 0.2, 0.1)
    assert not better("accuracy", 0.2, 0.2)
    assert better("accuracy", 0.0, None)
    assert not better("accuracy", math.nan, None)


def test_wrong_use_is_named() -> None:
    with pytest.raises(ConfigError, match="metric: unknown value 'auroc'"):
        check_metric("auroc", "multiclass")
    prediction, missing = np.zeros((2, 1)), np.full((2, 1), math.nan)
    with pytest.raises(InputError, match="no label"):
        scores(prediction, missing, "regression")
    found = scores(prediction, missing, "regression", missing=True)
    assert all(math.isnan(value) for value in found.values())
