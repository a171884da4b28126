"""The rows without a graph network."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gradformer.errors import InputError
from gradformer.graphs.splits import Split
from gradformer.studies import STUDIES, rivals
from gradformer.studies.looking import look
from gradformer.studies.runner import carry_out
from gradformer.studies.study import Plan
from gradformer.training.data import benchmark
from gradformer.training.files import read_json
from gradformer.training.recipe import load_recipe
from gradformer.training.stop import Stop, StoppedError

pytestmark = pytest.mark.usefixtures("raw_data")


def test_the_majority_is_that_of_the_training_part() -> None:
    few = "data.fraction=0.02"  # three graphs, which differ from the whole in their majority
    data = benchmark(load_recipe("mutag", model="gcn", settings=[few]))
    for seed in range(6):
        value = rivals.majority(load_recipe("mutag", settings=[few]), seed)["test"]["accuracy"]
        parts = data.split(seed)
        share = data.labels(parts.train).mean()
        test = data.labels(parts.test).mean()
        assert value == pytest.approx(test if share > 0.5 else 1 - test)


def test_a_forest_learns_from_fingerprints(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rdkit")
    pytest.importorskip("sklearn")
    monkeypatch.setattr(rivals, "TREES", 20)
    smiles = ["C" * n + tail for tail in ("N", "O") for n in range(1, 30)]
    y = np.repeat([0.0, 1.0], 29)
    bits = rivals.morgan([*smiles, "not a molecule"])
    assert bits.shape == (59, rivals.BITS)
    assert not bits[-1].any()
    train = np.arange(58) % 2 == 0
    answer = rivals.forest(bits[:58][train], y[train], 0)
    found = answer(bits[:58][~train])
    assert ((found > 0) == (y[~train] > 0)).mean() > 0.9
    again = rivals.forest(bits[:58][train], y[train], 0)(bits[:58][~train])
    np.testing.assert_array_equal(found, again)


def test_the_forest_is_scored_on_the_parts_of_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.setattr(rivals, "TREES", 5)
    y = np.arange(40) % 2.0
    bits = np.tile(y[:, None], (1, 8)).astype(np.uint8)
    bits[30:] = 1 - bits[30:]  # the test part turns the rule round
    parts = Split(np.arange(20), np.arange(20, 30), np.arange(30, 40))
    monkeypatch.setattr(rivals, "_molhiv", lambda: (bits, y, parts))
    recipe = load_recipe("molhiv", settings=["trials=3", "seed=4"])
    for trial in (0, 2):
        found = rivals.fingerprints(recipe, trial)
        assert (found["trial"], found["seed"], found["metric"]) == (trial, 4 + trial, "auroc")
        assert (found["val"]["auroc"], found["test"]["auroc"]) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("library", "use"),
    [
        ("rdkit", lambda: rivals.morgan(["C"])),
        ("sklearn", lambda: rivals.forest(np.zeros((2, 4), np.uint8), np.arange(2), 0)),
    ],
)
def test_what_is_not_installed_is_said(
    library: str, use: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [n for n in sys.modules if n.split(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InputError, match=r"pip install 'gradformer\[studies\]'"):
        use()


def test_only_molhiv_has_fingerprints_on_its_split_and_only_classes_a_majority() -> None:
    with pytest.raises(InputError, match="only molhiv has"):
        rivals.fingerprints(load_recipe("mutag"), 0)
    with pytest.raises(InputError, match="has no classes"):
        rivals.majority(load_recipe("zinc"), 0)
    with pytest.raises(InputError, match="only the published split"):
        rivals.fingerprints(load_recipe("molhiv", settings=["data.split=random"]), 0)


def test_a_row_has_the_folds_of_the_models_beside_it(tmp_path: Path) -> None:
    """The first seed deals them; seeds computed one by one dealt their own."""
    study, settings = STUDIES["table1"], ("data.split=kfold", "seed=3")
    (cell,) = study.cells(("mutag",), ("majority",))
    carry_out(study, [cell], Plan(("mutag",), ("majority",), 10, settings), tmp_path, {})
    found = read_json(tmp_path / "table1" / cell.name / "results.json")
    data = benchmark(load_recipe("mutag", model="gcn", settings=settings))
    assert [one["trial"] for one in found["trials"]] == list(range(10))
    for one in found["trials"]:
        parts = data.split(one["seed"])
        assert one["test"]["accuracy"] == pytest.approx(data.labels(parts.test).mean())
        assert one["val"]["accuracy"] == pytest.approx(data.labels(parts.val).mean())


def test_a_row_is_computed_seed_by_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = STUDIES["table1"]
    (cell,) = study.cells(("mutag",), ("majority",))
    whole = [rivals.majority(load_recipe("mutag"), trial) for trial in range(4)]
    asked, agreed = iter([None, None, 0.0]), Stop.agreed

    def soon(self: Stop) -> bool:
        self.until = next(asked)
        return agreed(self)

    with monkeypatch.context() as patch:
        patch.setattr(Stop, "agreed", soon)
        with pytest.raises(StoppedError):
            carry_out(study, [cell], Plan(("mutag",), ("majority",), 4), tmp_path, {})
    for trials in (4, 3):  # whatever the plan of today says, it was begun with four
        (one,) = look(study, Plan(("mutag",), ("majority",), trials), tmp_path, [cell])
        assert one.missing == "2 of 4 seeds are done"
    carry_out(study, [cell], Plan(("mutag",), ("majority",), 4), tmp_path, {})
    found = read_json(tmp_path / "table1" / cell.name / "results.json")
    assert found["trials"] == whole
    assert found["test"]["values"] == [one["test"]["accuracy"] for one in whole]
