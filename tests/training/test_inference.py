"""What is read or packed already is asked only where it means what it meant in training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data

from gradformer.errors import InputError
from gradformer.graphs.cards import find_card
from gradformer.graphs.datasets import load_dataset, split_of
from gradformer.graphs.objects import from_networkx
from gradformer.graphs.store import pack
from gradformer.training.fit import fit
from tests.training import toy

GRAPHS = [nx.cycle_graph(n) for n in range(3, 18)] + [nx.path_graph(n) for n in range(3, 18)]
SHORT = ["train.epochs=1", "model.layers=1", "model.width=32"]


def test_labels_that_were_read_by_themselves_have_the_words_of_the_run(tmp_path: Path) -> None:
    words = ["chain", "ring"] * 15
    run = fit(GRAPHS, y=words, settings=SHORT, out=tmp_path / "run", **toy.QUIET)
    expected = run.evaluate(GRAPHS, y=words)
    assert run.evaluate(from_networkx(GRAPHS, y=words)) == expected
    other = from_networkx(GRAPHS, y=["open", "closed"] * 15)
    with pytest.raises(InputError, match=r"^the graphs: classes are .*'closed'.* has learned"):
        run.evaluate(other)
    assert run.predict(other).value.shape == (30, 1)


def test_targets_that_were_read_by_themselves_have_the_order_of_the_run(tmp_path: Path) -> None:
    y = pd.DataFrame({"a": np.arange(30) + 0.5, "b": np.arange(30) / 7})
    run = fit(GRAPHS, y=y, settings=SHORT, out=tmp_path / "run", **toy.QUIET)
    expected = run.evaluate(GRAPHS, y=y)
    assert run.evaluate(from_networkx(GRAPHS, y=y)) == expected
    assert run.evaluate(from_networkx(GRAPHS, y=y.to_numpy())) == expected
    with pytest.raises(InputError, match=r"^the graphs: targets are \('b', 'a'\), the run"):
        run.evaluate(from_networkx(GRAPHS, y=y[["b", "a"]]))


def test_a_store_has_the_pairs_of_the_run(tmp_path: Path) -> None:
    y = np.arange(30) / 7
    settings = [*SHORT, "model.index=curvature"]
    run = fit(GRAPHS, y=y, settings=settings, out=tmp_path / "run", **toy.QUIET)
    arrays = from_networkx(GRAPHS, y=y).arrays
    same = pack(arrays, run.structure, codebook=run.codebook)
    np.testing.assert_array_equal(run.predict(same).value, run.predict(GRAPHS).value)
    with pytest.raises(InputError, match=r"^the store: its pairs are other ones than those of the"):
        run.predict(pack(arrays))


def test_a_run_without_names_of_targets_takes_those_that_were_read_by_place(tmp_path: Path) -> None:
    y = pd.DataFrame({"a": np.arange(30) + 0.5, "b": np.arange(30) / 7})
    run = fit(GRAPHS, y=y, settings=SHORT, out=tmp_path / "run", **toy.QUIET)
    expected, read = run.evaluate(GRAPHS, y=y), from_networkx(GRAPHS, y=y)
    unread = replace(run, origin={**run.origin, "reading": None})  # as of a benchmark
    assert unread.reading is None
    assert unread.labels.targets == ("y0", "y1")
    assert unread.evaluate(read) == expected


def test_pairs_of_a_benchmark_mean_what_they_meant_in_training(
    data_mirror: Path, tmp_path: Path
) -> None:
    """They were bytes of the benchmark's own scale."""
    y, settings = [0, 1] * 15, [*SHORT, "model.index=curvature"]
    out, task = tmp_path / "run", "multiclass"
    run = fit(GRAPHS, y=y, task=task, settings=settings, out=out, **toy.QUIET)
    own = load_dataset("imdb-binary", data_mirror, run.structure).store
    assert own.codebook != run.codebook
    node, edge = (own.arrays[name] for name in ("node_ptr", "edge_ptr"))
    ends = torch.from_numpy(np.stack([own.arrays["source"], own.arrays["target"]]))
    graphs = [
        Data(edge_index=ends[:, edge[g] : edge[g + 1]], num_nodes=int(node[g + 1] - node[g]))
        for g in range(20)
    ]
    answers = run.predict("imdb-binary", mirror=data_mirror).value
    np.testing.assert_allclose(answers[:20], run.predict(graphs).value, atol=1e-6)
    (by_name,) = run.evaluate("imdb-binary", mirror=data_mirror)
    test = split_of(find_card("imdb-binary"), own).test
    right = answers[test].argmax(axis=1) == own.arrays["y"][test]
    assert by_name["accuracy"] == pytest.approx(right.mean())
