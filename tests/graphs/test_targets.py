"""The scale of regression targets."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gradformer.errors import InputError
from gradformer.graphs.targets import TargetScale, is_labelled


def test_a_scale_leads_back_to_the_users_units() -> None:
    rng = np.random.default_rng(0)
    y = (rng.normal(size=(200, 3)) * [3, 1e-4, 1e-5] + [1e3, -2, 1e-4]).astype(np.float32)
    y[::7, 0] = np.nan
    scale = TargetScale.fit(y)
    z = ((y - scale.mean) / scale.std).astype(np.float32)
    np.testing.assert_allclose(np.nanmean(z, axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(np.nanstd(z, axis=0), 1, rtol=1e-5)
    np.testing.assert_allclose(scale.invert(z), y, rtol=1e-6)
    assert TargetScale.from_dict(json.loads(json.dumps(scale.to_dict()))) == scale


def test_a_constant_target_is_only_shifted() -> None:
    y = np.full((50, 1), 0.1, np.float32)
    scale = TargetScale.fit(y)
    assert scale.std == (1.0,)
    assert scale.mean == pytest.approx([0.1])


def test_a_target_without_values_is_refused() -> None:
    with pytest.raises(InputError, match="target 1 has no value in the training split"):
        TargetScale.fit(np.float32([[1, np.nan], [2, np.nan]]))


def test_missing_classes() -> None:
    assert is_labelled(np.array([0, -1, 2])).tolist() == [True, False, True]
