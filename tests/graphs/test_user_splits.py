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


def test_large_scaffolds_are_dealt_out_first_and_fill_a_part_to_the_last_molecule() -> None:
    rings = ["C1CC1", "C1CCC1", "C1CCCC1", "C1CCCCC1", "C1CCCCCC1", "c1ccccc1", "c1ccncc1"]
    smiles = rings[:1] * 6 + rings[1:] + ["c1ccoc1", "c1ccsc1", "c1cc[nH]c1", "c1cnoc1"]
    for seed in range(8):  # 16 molecules; the first scaffold has more than half of a test part
        parts = scaffold_split(smiles, (0.5, 0.25, 0.25), seed)
        assert parts[:6].tolist() == [0] * 6
        assert np.bincount(parts).tolist() == [8, 4, 4]


def test_scaffolds_are_found_once_for_all_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("gradformer.graphs.user_splits.scaffold", lambda s: asked.append(s) or s)
    smiles = [f"once{k}" for k in range(20)]
    assert (scaffold_split(smiles, seed=0) != scaffold_split(smiles, seed=1)).any()
    assert asked == smiles


def test_a_split_with_an_empty_part_is_refused() -> None:
    with pytest.raises(InputError, match="leaves nothing for"):
        scaffold_split(["CCO", "CC", "CCC", "C"] * 5)
    with pytest.raises(ConfigError, match="three fractions"):
        scaffold_split(["CCO"], (0.5, 0.5))
    with pytest.raises(ConfigError, match="above 0"):
        scaffold_split(["CCO"], (0.8, 0.2, 0.0))


def test_words_for_parts() -> None:
    words = ("train", "Training", "val", "valid", "validation", "dev", " TEST ")
    assert [part_number(word) for word in words] == [0, 0, 1, 1, 1, 1, 2]


def test_unknown_part() -> None:
    with pytest.raises(InputError, match="split 'holdout' is unknown; use train, val or test"):
        part_number("holdout")
