"""The losses against torch's own and against the formula of the SBM benchmarks."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from gradformer.errors import ConfigError
from gradformer.graphs.arrays import Task
from gradformer.training.losses import Objective, balanced_weights, check_class_weights, loss_kind


def rows(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def test_cross_entropy_leaves_out_missing_and_padded_rows() -> None:
    prediction = rows(6, 3)
    y = torch.tensor([0, 2, -1, 1, 1, 2])
    real = torch.tensor([True, True, True, True, True, False])
    got = Objective("classes")(prediction, y, real)
    torch.testing.assert_close(got, F.cross_entropy(prediction[[0, 1, 3, 4]], y[[0, 1, 3, 4]]))


def test_batch_weights_are_those_of_the_benchmark() -> None:
    prediction, y = rows(8, 4), torch.tensor([0, 0, 0, 1, 1, 2, 0, 0])
    count = torch.bincount(y, minlength=4).float()
    weight = (8 - count) / 8 * (count > 0)
    expected = F.cross_entropy(prediction, y, weight=weight)
    got = Objective("classes", batch_weights=True)(prediction, y)
    torch.testing.assert_close(got, expected)


def test_a_batch_of_one_class_or_without_labels_has_no_nan() -> None:
    prediction = rows(3, 2).requires_grad_()
    weighted = Objective("classes", batch_weights=True)
    for y in (torch.zeros(3, dtype=torch.long), torch.full((3,), -1), torch.tensor([1, -1, -1])):
        loss = weighted(prediction, y)
        (grad,) = torch.autograd.grad(loss, prediction)
        assert loss == 0
        assert grad.isfinite().all()


def test_binary_and_regression_mask_missing_labels() -> None:
    prediction = rows(5, 2).requires_grad_()
    y = torch.tensor([[1.0, 0.0], [math.nan, 1.0], [0.0, math.nan], [1.0, 1.0], [0.0, 0.0]])
    for kind, theirs in (
        ("binary", F.binary_cross_entropy_with_logits),
        ("l1", F.l1_loss),
        ("mse", F.mse_loss),
    ):
        for rows_of in (slice(0, 5), slice(1, 2)):  # the second has one label
            p, t = prediction[rows_of], y[rows_of]
            got = Objective(kind)(p, t)
            torch.testing.assert_close(got, theirs(p[~t.isnan()], t[~t.isnan()]))
            (grad,) = torch.autograd.grad(got, prediction)
            assert grad.isfinite().all()
        assert Objective(kind)(prediction, y * math.nan) == 0


def test_balanced_weights() -> None:
    y = torch.tensor([0, 0, 0, 1, -1])
    weights = torch.tensor([4 / 9, 4 / 3, 0.0])  # the last class has no label
    torch.testing.assert_close(balanced_weights(y, "multiclass", 3), weights)
    columns = [[1, 0, 0, math.nan, 1, 0], [0, 0, 0, 0, math.nan, 0], [0, 0, 0, 0, 1, 0]]
    got = balanced_weights(torch.tensor(columns).T, "multilabel", 3)
    torch.testing.assert_close(got, torch.tensor([3 / 2, 1.0, 5.0]))  # without a positive: as it is
    alone, light = rows(1, 2), torch.tensor([0.5, 0.0])  # the mean over one label is its loss
    got = Objective("classes", balance=light)(alone, torch.tensor([0]))
    torch.testing.assert_close(got, F.cross_entropy(alone, torch.tensor([0])))


@pytest.mark.parametrize(
    ("name", "task"), [("batch", "binary"), ("batch", "regression"), ("balanced", "regression")]
)
def test_class_weights_without_effect_are_refused(name: str, task: Task) -> None:
    assert check_class_weights(name, "multiclass") == name
    assert check_class_weights("balanced", "multilabel") == "balanced"
    with pytest.raises(ConfigError, match=f"train.class_weights: '{name}' has no meaning"):
        check_class_weights(name, task)


def test_targets_are_learned_on_their_scale() -> None:
    mean, std = scale = torch.tensor([[3.0, -1.0], [4.0, 0.5]])  # of each target
    prediction, z = rows(5, 2), rows(5, 2).flip(0)
    got = Objective("l1", scale=scale)(prediction, mean + std * z)
    torch.testing.assert_close(got, F.l1_loss(prediction, z))


def test_auto_follows_the_metric() -> None:
    assert loss_kind("auto", "regression", "mae") == "l1"
    assert loss_kind("auto", "regression", "rmse") == "mse"
    assert loss_kind("auto", "binary", "auroc") == "binary"
    assert loss_kind("cross_entropy", "multiclass", "accuracy") == "classes"
    assert loss_kind("l1", "regression", "rmse") == "l1"
    assert loss_kind("mse", "regression", "mae") == "mse"
    with pytest.raises(ConfigError, match="does not fit"):
        loss_kind("l1", "multiclass", "accuracy")
