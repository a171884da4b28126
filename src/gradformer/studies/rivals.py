"""Rows that a reader will ask for beside the models: no graph network, the same seeds and splits.

``majority`` answers with the most frequent class of the training part. ``fingerprints`` is a random
forest (100 trees, leaves of at least two) over Morgan fingerprints (radius 2, 2048 bits) of
molhiv's molecules.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradformer.errors import InputError
from gradformer.graphs.cards import find_card
from gradformer.graphs.mirror import raw_files
from gradformer.graphs.sources.readers import read_card
from gradformer.graphs.splits import Split, fixed_split, low_resource
from gradformer.training.data import benchmark
from gradformer.training.metrics import scores
from gradformer.training.recipe import Recipe, load_recipe

BITS, RADIUS, TREES = 2048, 2, 100
MOLECULES = "ogbg_molhiv/mapping/mol.csv.gz"


def majority(recipe: Recipe, trial: int) -> dict[str, Any]:
    """The result of a trial of ``recipe`` that answers with the most frequent class."""
    plain = load_recipe(recipe.dataset, model="gcn")  # a model that needs no structure
    data = benchmark(replace(plain, data=recipe.data, seed=recipe.seed))
    if data.schema.task != "multiclass":
        raise InputError(f"majority: {recipe.dataset} has no classes; leave it out")
    parts = data.split(recipe.seed + trial)
    counts = np.bincount(data.labels(parts.train), minlength=data.schema.outputs)

    def score(items: NDArray[np.int64]) -> dict[str, float]:
        y = data.labels(items)
        return scores(np.tile(counts, (len(y), 1)), y, "multiclass")

    return _result(recipe, trial, data.metric, score(parts.val), score(parts.test))


def fingerprints(recipe: Recipe, trial: int) -> dict[str, Any]:
    """The result of a trial of ``recipe`` in which the random forest answers."""
    card = find_card(recipe.dataset)
    if card.name != "molhiv":
        raise InputError(f"fingerprints: {card.name} has no molecules here; only molhiv has")
    if recipe.data.split not in ("auto", "fixed"):
        raise InputError(
            f"fingerprints: data.split is {recipe.data.split}, and only the published split of "
            "molhiv can be had; leave one of the two out"
        )
    bits, y, parts = _molhiv()
    seed = recipe.seed + trial
    train = low_resource(parts.train, recipe.data.fraction, seed)
    answer = forest(bits[train], y[train], seed)

    def score(items: NDArray[np.int64]) -> dict[str, float]:
        return scores(answer(bits[items])[:, None], y[items][:, None], "binary")

    return _result(recipe, trial, card.metric, score(parts.val), score(parts.test))


def _result(recipe: Recipe, trial: int, metric: str, val: Any, test: Any) -> dict[str, Any]:
    about = {"trial": trial, "seed": recipe.seed + trial, "status": "finished", "metric": metric}
    return {**about, "val": val, "test": test}


@cache
def _molhiv() -> tuple[NDArray[np.uint8], NDArray[Any], Split]:
    """Fingerprints, labels and published split of molhiv."""
    card = find_card("molhiv")
    files = raw_files(card)
    arrays = read_card(card, files)
    assert arrays.split is not None
    try:
        table = csv.DictReader(io.StringIO(files.read(MOLECULES).decode()))
    except InputError as error:
        raise InputError(f"fingerprints: the SMILES of molhiv are needed: {error}") from None
    bits = morgan([row["smiles"] for row in table])
    return bits, np.asarray(arrays.y)[:, 0], fixed_split(arrays.split[:, 0])


RIVALS = {"majority": majority, "fingerprints": fingerprints}


def morgan(smiles: list[str]) -> NDArray[np.uint8]:
    """Morgan fingerprints [molecules, bits]."""
    try:
        from rdkit import Chem, rdBase
        from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator
    except ImportError:
        raise _absent("rdkit") from None
    make = GetMorganGenerator(radius=RADIUS, fpSize=BITS)
    found = np.zeros((len(smiles), BITS), np.uint8)
    with rdBase.BlockLogs():  # RDKit remarks on unusual molecules
        for row, text in zip(found, smiles):
            molecule = Chem.MolFromSmiles(text)
            if molecule is not None:
                row[:] = make.GetFingerprintAsNumPy(molecule)
    return found


def forest(
    bits: NDArray[np.uint8], y: NDArray[Any], seed: int
) -> Callable[[NDArray[np.uint8]], NDArray[np.float64]]:
    """A random forest of a seed: fingerprints → log-odds of being positive."""
    try:
        from sklearn.ensemble import RandomForestClassifier
    except ImportError:
        raise _absent("scikit-learn") from None
    trees = RandomForestClassifier(TREES, min_samples_leaf=2, n_jobs=-1, random_state=seed)
    trees.fit(bits, y)
    trees.n_jobs = 1  # threads would add up the votes in any order

    def answer(rows: NDArray[np.uint8]) -> NDArray[np.float64]:
        share = np.clip(trees.predict_proba(rows)[:, 1], 1e-9, 1 - 1e-9)
        return np.asarray(np.log(share) - np.log1p(-share))

    return answer


def _absent(library: str) -> InputError:
    return InputError(
        f"fingerprints: {library} is not installed; pip install 'gradformer[studies]'"
    )
