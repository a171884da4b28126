"""PyG data: features, targets, masks, and what does not fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data

from gradformer.errors import ConfigError, InputError
from gradformer.graphs.molecules import from_smiles
from gradformer.graphs.objects import from_objects, from_smiles_list
from gradformer.graphs.pyg_data import from_pyg

EDGES = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


def path(**values: Any) -> Data:
    return Data(edge_index=EDGES, num_nodes=3, **values)


def test_pyg_graphs() -> None:
    graphs = [
        path(x=torch.tensor([[0], [5], [1]]), edge_attr=torch.rand(4, 2), y=torch.tensor([[0.5]])),
        path(x=torch.tensor([[0], [1], [2]]), edge_attr=torch.rand(4, 2), y=torch.tensor([[1.5]])),
    ]
    data = from_pyg(graphs)
    assert (data.reading.node, data.reading.edge, data.reading.level) == ((6,), 2, "graph")
    assert data.arrays.y.tolist() == [[0.5], [1.5]]
    np.testing.assert_array_equal(data.arrays.edge_attr[4:], graphs[1].edge_attr.numpy())
    np.testing.assert_array_equal(data.arrays.edge_index[:, :4], EDGES.numpy())


def test_the_level_of_pyg_graphs_is_seen_from_y() -> None:
    nodes = from_pyg([path(y=torch.tensor([0, 2, 1])), path(y=torch.tensor([1, 1, 0]))])
    assert (nodes.reading.level, nodes.reading.labels.task) == ("node", "multiclass")
    assert nodes.arrays.y.tolist() == [0, 2, 1, 1, 1, 0]
    labels = torch.tensor([[1.0, 0.0, float("nan")]])
    graphs = from_pyg([path(y=labels), path(y=1 - labels), path(y=torch.tensor([[0.0, 0, 1]]))])
    assert (graphs.reading.level, graphs.reading.labels.task) == ("graph", "multilabel")
    np.testing.assert_array_equal(graphs.arrays.y[0], np.float32([1, 0, np.nan]))


@pytest.mark.parametrize(
    ("shapes", "level"),
    [
        ([(2, [2]), (1, [1])], "node"),
        ([(1, [1]), (1, [1])], "graph"),
        ([(2, []), (2, [])], "graph"),
        ([(2, [1]), (2, [2])], "graph"),
        ([(2, [1]), (1, None)], "graph"),
    ],
)
def test_a_row_of_y_for_each_node_of_every_graph_is_the_level_of_nodes(
    shapes: list[tuple[int, list[int] | None]], level: str
) -> None:
    def graph(nodes: int, shape: list[int] | None) -> Data:
        y = None if shape is None else torch.rand(shape)
        return Data(edge_index=EDGES[:, :0], num_nodes=nodes, y=y)

    data = from_pyg([graph(*each) for each in shapes], skip_invalid=True)
    assert data.reading.level == level


def test_targets_of_pyg_graphs_may_be_words() -> None:
    assert from_pyg([path(y="b"), path(y="a")]).arrays.y.tolist() == [[1], [0]]


def test_targets_of_pyg_graphs_may_stand_apart() -> None:
    """``fit(graphs, y=targets)``, as for all Python objects; what the graphs call y is left out."""
    graphs = [path(y=torch.zeros(3)), path(), path()]
    data = from_objects(graphs, y=np.array([0.5, np.nan, 1.5]))
    assert (data.reading.level, data.reading.labels.task) == ("graph", "regression")
    np.testing.assert_array_equal(data.arrays.y, np.float32([[0.5], [np.nan], [1.5]]))
    nodes = from_objects(graphs[:1], y=[["a", "b", "a"]], level="node")
    assert nodes.arrays.y.reshape(-1).tolist() == [0, 1, 0]
    with pytest.raises(InputError, match=r"^y has 2 entries for 3 graphs"):
        from_objects(graphs, y=[1, 2])


def test_molecules_of_pyg_are_not_taken_for_those_of_a_model_that_numbers_atoms_otherwise() -> None:
    """PyG's own ``from_smiles`` has as many columns, and carbon is 6 there, not 5."""
    pytest.importorskip("rdkit")
    from torch_geometric.utils import from_smiles as pyg_smiles

    like = from_smiles_list(["CCO", "CN"], y=[0.5, 1.5]).reading
    like = replace(like, kind="graphs")  # as that of a benchmark, which takes graphs too
    other = pyg_smiles("CCO")
    for x in (other.x, other.x[:, :0]):
        other.x = x
        with pytest.raises(InputError, match=r"position 0: x numbers the atoms .*give the SMILES"):
            from_pyg([other], like=like)
    x, edge_index, edge_attr = map(torch.from_numpy, from_smiles("CCO"))
    ours = Data(x=x, edge_index=edge_index.long(), edge_attr=edge_attr, smiles="CCO")
    for smiles in ("CCO", "OCC", "no molecule", None, 3):  # it may be anything
        for ours.x in (x, x.flip(0)):  # in any order
            ours.smiles = smiles
            assert from_pyg([ours], like=like).arrays.num_graphs == 1
    ours.x, ours.smiles, ours.num_nodes = None, "CCO", 3
    with pytest.raises(InputError, match="position 0: has no x, the training data have 9 columns"):
        from_pyg([ours], like=like)
    other = from_pyg([path(x=torch.rand(3, 1), y=torch.tensor(0.5))]).reading  # of no molecules
    assert from_pyg([path(x=torch.rand(3, 1), smiles="CCO")], like=other).arrays.num_graphs == 1


def test_a_batch_is_the_graphs_that_it_was_made_of() -> None:
    """Not one graph that is not connected."""
    graphs = [path(y=torch.tensor([k + 0.5])) for k in range(3)]
    data = from_pyg([Batch.from_data_list(graphs[:2]), graphs[2]])
    assert data.arrays.y.tolist() == [[0.5], [1.5], [2.5]]
    assert data.unused == ()
    with pytest.raises(InputError, match="a Batch does not know the graphs it was made of"):
        from_pyg([Batch(edge_index=graphs[0].edge_index)])


def test_masks_split_the_nodes_of_a_single_graph() -> None:
    y = torch.tensor([0, 1, 0])
    train, val = torch.tensor([True, False, False]), torch.tensor([False, False, True])
    data = from_pyg([path(y=y, train_mask=train, val_mask=val)])
    assert data.arrays.split.tolist() == [[0], [-1], [1]]
    several, none = [path(y=y, train_mask=train)] * 2, [path(y=y)]
    for graphs in (several, none, [path(y=torch.tensor([0.5]), train_mask=train)]):
        assert from_pyg(graphs).arrays.split is None
    with pytest.raises(InputError, match="val_mask holds nodes that another mask holds too"):
        from_pyg([path(y=y, train_mask=train, val_mask=train | val)])
    for mask, found in ((train[:2], r"\(2,\) bool"), (train.int(), r"\(3,\) int32")):
        with pytest.raises(
            InputError, match=rf"test_mask must be booleans \[nodes\], found {found}"
        ):
            from_pyg([path(y=y, test_mask=mask)])
    like = from_pyg([path(y=y)]).reading
    new = from_pyg([path(test_mask=torch.ones(3, 10, dtype=torch.bool))], like=like)
    assert new.arrays.split is None, "new graphs are not split"


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        ("graph", "expected torch_geometric.data.Data, found str"),
        (Data(x=torch.zeros(3, 1)), "has no edge_index"),
        (Data(edge_index=EDGES.float(), num_nodes=3), "edge_index must be whole numbers"),
        (Data(edge_index=EDGES[0, :2], num_nodes=3), r"edge_index must be .* found \(2,\) int64"),
        (Data(edge_index=EDGES.T, num_nodes=3), r"edge_index must be .* found \(4, 2\) int64"),
        (Data(edge_index=EDGES, num_nodes=2), r"edge \[1, 2\] is out of range"),
        (Data(edge_index=EDGES[:, :0], num_nodes=0), "a graph has 1 to 1,000,000 nodes"),
        (path(x=torch.zeros(2, 1)), r"x has shape \(2, 1\), expected 3 rows"),
        (path(x=torch.full((3, 1), torch.nan)), r"x\[0, 0\] = nan is not a finite"),
        (path(x=EDGES.to_sparse()), "x must be a dense tensor"),
        (path(y=torch.zeros(2)), r"y has shape \(2,\), expected \[1\] or \[1, targets\]"),
        (path(y=torch.zeros(1, 1, 1)), r"y has shape \(1, 1, 1\), expected \[1\] or"),
    ],
)
def test_bad_pyg_graphs_are_named(graph: Any, reason: str) -> None:
    good = path(x=torch.zeros(3, 1), y=torch.tensor([0.5]))
    with pytest.raises(InputError, match="position 1: " + reason):
        from_pyg([good, graph])
    kept = from_pyg([good, graph, good], skip_invalid=True)
    assert kept.rows.tolist() == [0, 2]
    assert [row for row, _ in kept.skipped] == [1]


def test_nodes_have_one_target() -> None:
    with pytest.raises(InputError, match=r"y has shape \(3, 2\), expected \[nodes\]"):
        from_pyg([path(y=torch.rand(3, 2))])
    with pytest.raises(ConfigError, match="level: unknown value 'nodes'"):
        from_pyg([path(y=torch.rand(3))], level="nodes")  # type: ignore[arg-type]


def test_new_pyg_graphs_are_checked_against_the_training_data() -> None:
    like = from_pyg([path(x=torch.tensor([[0], [1], [2]]), y=torch.tensor([y])) for y in (0, 1)])
    assert from_pyg([path(x=torch.tensor([[1], [1], [1]]))], like=like.reading).arrays.y is None
    with pytest.raises(InputError, match="category unseen in training"):
        from_pyg([path(x=torch.tensor([[0], [1], [3]]))], like=like.reading)
    with pytest.raises(InputError, match="holds molecules as SMILES, but the model was trained on"):
        from_smiles_list(["C"], like=like.reading)
