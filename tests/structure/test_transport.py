"""Exact transport against a linear program."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from gradformer.structure.transport import transport


@pytest.mark.parametrize("seed", range(12))
def test_equals_linear_program(seed):
    rng = np.random.default_rng(seed)
    s, d = rng.integers(1, 9, 2)
    cost = rng.integers(0, (4, 30)[seed % 2], (s, d))
    supply = rng.multinomial(40, rng.dirichlet(np.ones(s)))
    demand = rng.multinomial(40, rng.dirichlet(np.ones(d)))
    rows = np.kron(np.eye(s), np.ones(d))
    columns = np.kron(np.ones(s), np.eye(d))
    solved = linprog(
        cost.ravel(), A_eq=np.vstack([rows, columns]), b_eq=np.concatenate([supply, demand])
    )
    assert solved.success
    assert transport(cost, supply, demand) == round(solved.fun)


def test_nothing_to_move():
    assert transport(np.zeros((0, 0), int), np.zeros(0, int), np.zeros(0, int)) == 0
