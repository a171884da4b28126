"""Scaffold splits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gradformer.errors import ConfigError, InputError
from gradformer.graphs.molecules import scaffold
from gradformer.graphs.user_splits import part_number, scaffold_split

pytest.importorskip("rdkit")


def test_scaffolds_stay_together_and_sizes_are_met(data_mirror: Path) -> None:
    table = pd.read_csv(data_mirror / "ZINC" / "zinc12k_smiles.csv.gz", nrows=600)
    smiles = table["smiles"].tolist()
    parts = scaffold_split(smiles, (0.7, 0.2, 0.1), seed=3)
    homes: dict[str, set[int]] = {}
    for word, part in zip(smiles, parts.tolist()):
        homes.setdefault(scaffold(word), set()).add(part)
    assert all(len(home) == 1 for home in homes.values())
    np.testing.assert_allclose(np.bincount(parts) / 600, (0.7, 0.2, 0.1), atol=0.02)
    np.testing.assert_array_equal(parts, scaffold_split(smiles, (0.7, 0.2, 0.1), seed=3))
    assert (parts != scaffold_split(smiles, (0.7, 0.2, 0.1), seed=4)).any()


def test_a_split_with_an_empty_part_is_refused() -> None:
    with pytest.raises(InputError, match="leaves nothing for"):
        scaffold_split(["CCO", "CC", "CCC", "C"] * 5)
    with pytest.raises(ConfigError, match="three fractions"):
        scaffold_split(["CCO"], (0.5, 0.5))


def test_unknown_part() -> None:
    with pytest.raises(InputError, match="split 'holdout' is unknown; use train, val or test"):
        part_number("holdout")
