"""PyG data, NetworkX graphs and SMILES from Python."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import Dataset, Subset
from torch_geometric.data import Batch, Data, HeteroData

from gradformer.errors import InputError
from gradformer.graphs.molecules import from_smiles
from gradformer.graphs.objects import (
    from_networkx,
    from_objects,
    from_pyg,
    from_smiles_list,
)
from gradformer.graphs.user_splits import user_split, user_way

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


def test_a_part_of_a_dataset_is_taken_as_a_list_is() -> None:
    graphs = [path(y=torch.tensor([k / 2])) for k in range(6)]
    data = from_objects(Subset(graphs, [4, 1]))
    assert data.arrays.y.tolist() == [[2.0], [0.5]]


def test_what_is_no_list_of_graphs_is_named() -> None:
    with pytest.raises(InputError, match=r"^data: got Dataset, expected a path, a DataFrame, or a"):
        from_objects(Dataset())  # it does not know its length
    for graphs in (HeteroData(), [HeteroData()]):
        with pytest.raises(InputError, match=r"^data: got HeteroData, expected PyG Data, NetworkX"):
            from_objects(graphs)


def test_a_split_of_ones_own_is_a_list_of_words() -> None:
    words = ["train", "Train", None, "val", "test"]
    column = pd.Series(words, dtype="string")  # None is <NA> there
    found = [
        from_objects([path(y=torch.tensor([k / 2])) for k in range(5)], split=words),
        from_objects([nx.path_graph(3)] * 5, y=[0.0, 0.5, 1.0, 1.5, 2.0], split=column),
    ]
    for data in found:
        parts = user_split(user_way("auto", data.arrays), data, 0)(seed=3)
        assert [part.tolist() for part in parts] == [[0, 1], [3], [4]]
    graphs = [nx.path_graph(2)] * 3
    with pytest.raises(InputError, match=r"^the list, position 1: split 'tset' is unknown; use tr"):
        from_objects(graphs, y=[1, 2, 3], split=["train", "tset", "val"])
    with pytest.raises(InputError, match=r"^split has 2 entries for 3 graphs"):
        from_objects(graphs, y=[1, 2, 3], split=["train", "val"])
    with pytest.raises(InputError, match=r"^split: got 'scaffold', .*settings=\['data.split=scaf"):
        from_objects(graphs, y=[1, 2, 3], split="scaffold")


def networkx_task(y: torch.Tensor) -> str:
    graphs = [nx.path_graph(3) for _ in y]
    for graph, value in zip(graphs, y.tolist()):
        graph.graph["y"] = value
    given = from_networkx([nx.path_graph(3) for _ in y], y=y.numpy()).reading.labels.task
    assert from_networkx(graphs).reading.labels.task == given
    return given


@pytest.mark.parametrize(
    ("values", "dtype", "task"),
    [
        ([0, 1, 2, 0, 1, 2], torch.int64, "multiclass"),
        ([0, 1, 2, 0, 1, 2], torch.float, "regression"),
        ([0, 1, float("nan"), 0, 1, 1], torch.float, "binary"),
    ],
)
def test_whole_numbers_of_python_are_what_their_type_says(
    values: list[float], dtype: torch.dtype, task: str
) -> None:
    y = torch.tensor(values, dtype=dtype)
    assert from_pyg([path(y=value) for value in y]).reading.labels.task == task
    assert networkx_task(y) == task
    pytest.importorskip("rdkit")
    assert from_smiles_list(["CC"] * 6, y=y.tolist()).reading.labels.task == task


def test_targets_may_be_columns_of_pandas() -> None:
    """Whose entries go by their labels, not by their places."""
    frame = pd.DataFrame({"a": [1.5, 2.5], "b": [0.5, np.nan]}, index=[7, 3])
    graphs = [nx.path_graph(2)] * 2
    one, two = from_networkx(graphs, y=frame["a"]), from_networkx(graphs, y=frame)
    assert one.arrays.y.tolist() == [[1.5], [2.5]]
    np.testing.assert_array_equal(two.arrays.y, np.float32([[1.5, 0.5], [2.5, np.nan]]))


def test_a_table_of_pandas_is_read_as_one_in_a_file_is() -> None:
    pytest.importorskip("rdkit")
    frame = pd.DataFrame(
        {"SMILES": ["CCO", "CN", "CC"], "a": [1.5, np.nan, 2.5], "b": [3, 4, 5], "use": "train"},
        index=[7, 3, 5],
    )
    data = from_objects(frame, target=["a", "b"], task="regression", split_column="use")
    assert (data.reading.smiles, data.reading.labels.targets) == ("SMILES", ("a", "b"))
    np.testing.assert_array_equal(data.arrays.y, np.float32([[1.5, 3], [np.nan, 4], [2.5, 5]]))
    assert data.place(2) == "the DataFrame, position 2"
    new = from_objects(pd.DataFrame({"smiles": ["CCC"]}), like=data.reading, labelled=False)
    assert new.smiles == ("CCC",)
    with pytest.raises(InputError, match=r"^the DataFrame, position 1: column 'SMILES': SMI"):
        from_objects(frame.assign(SMILES=["C", "C(", "C"]), target="b")
    with pytest.raises(InputError, match=r"^the DataFrame has no column 'c'; the columns are: SMI"):
        from_objects(frame, target="c")


def test_targets_of_nodes_may_be_tensors_and_are_found_again_in_new_graphs() -> None:
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, {k: torch.tensor(k + 0.5) for k in range(3)}, "y")
    data = from_networkx([graph], level="node")
    assert data.reading.labels.task == "regression"
    assert data.arrays.y.tolist() == [[0.5], [1.5], [2.5]]
    new = from_networkx([graph, graph], like=data.reading)
    assert new.arrays.y.tolist() == data.arrays.y.tolist() * 2


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
    assert from_pyg([ours], like=like).arrays.num_graphs == 1
    ours.smiles = "no molecule"  # it may be anything
    assert from_pyg([ours], like=like).arrays.num_graphs == 1


def test_attributes_that_are_not_used_are_named() -> None:
    y, mask = torch.tensor([0, 1, 0]), torch.tensor([True, False, False])
    single = from_pyg([path(y=y, x=torch.rand(3, 2), pos=torch.rand(3, 2), train_mask=mask)])
    assert single.unused == ("pos",)
    several = from_pyg([path(y=y, train_mask=mask), path(y=y, edge_weight=torch.rand(4))])
    assert several.unused == ("edge_weight", "train_mask")
    graph = nx.Graph([(0, 1, {"weight": 2, "edge_attr": 1})], y=1.5, temperature=300)
    nx.set_node_attributes(graph, 1, "charge")
    names = ("charge of nodes", "temperature of graphs", "weight of edges")
    assert from_networkx([graph]).unused == names
    assert from_networkx([graph], y=[2.5]).unused == (*names, "y of graphs")


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
    assert from_pyg([path(y=y, train_mask=train)] * 2).arrays.split is None
    with pytest.raises(InputError, match="val_mask holds nodes that another mask holds too"):
        from_pyg([path(y=y, train_mask=train, val_mask=train)])
    with pytest.raises(InputError, match=r"test_mask must be booleans \[nodes\], found \(2,\)"):
        from_pyg([path(y=y, test_mask=train[:2])])


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        ("graph", "expected torch_geometric.data.Data, found str"),
        (Data(x=torch.zeros(3, 1)), "has no edge_index"),
        (Data(edge_index=EDGES.float(), num_nodes=3), "edge_index must be whole numbers"),
        (Data(edge_index=EDGES, num_nodes=2), r"edge \[1, 2\] is out of range"),
        (Data(edge_index=EDGES[:, :0], num_nodes=0), "a graph has 1 to 1,000,000 nodes"),
        (path(x=torch.zeros(2, 1)), r"x has shape \(2, 1\), expected 3 rows"),
        (path(x=torch.full((3, 1), torch.nan)), r"x\[0, 0\] = nan is not a finite"),
        (path(x=EDGES.to_sparse()), "x must be a dense tensor"),
        (path(y=torch.zeros(2)), r"y has shape \(2,\), expected \[1\] or \[1, targets\]"),
    ],
)
def test_bad_pyg_graphs_are_named(graph: Any, reason: str) -> None:
    good = path(x=torch.zeros(3, 1), y=torch.tensor([0.5]))
    with pytest.raises(InputError, match="position 1: " + reason):
        from_pyg([good, graph])
    kept = from_pyg([good, graph, good], skip_invalid=True)
    assert kept.rows.tolist() == [0, 2]
    assert [row for row, _ in kept.skipped] == [1]


def test_new_pyg_graphs_are_checked_against_the_training_data() -> None:
    like = from_pyg([path(x=torch.tensor([[0], [1], [2]]), y=torch.tensor([y])) for y in (0, 1)])
    assert from_pyg([path(x=torch.tensor([[1], [1], [1]]))], like=like.reading).arrays.y is None
    with pytest.raises(InputError, match="category unseen in training"):
        from_pyg([path(x=torch.tensor([[0], [1], [3]]))], like=like.reading)
    with pytest.raises(InputError, match="holds molecules as SMILES, but the model was trained on"):
        from_smiles_list(["C"], like=like.reading)


def test_networkx_graphs() -> None:
    graph = nx.Graph()
    graph.add_node("b", x=[1.5, 0], y="u")
    graph.add_node("a", x=[0.5, 1], y="v")
    graph.add_edge("a", "b", edge_attr=2)
    data = from_networkx([graph, graph], y=[1, 0])
    assert data.arrays.edge_index[:, :2].tolist() in ([[0, 1], [1, 0]], [[1, 0], [0, 1]])
    np.testing.assert_array_equal(data.arrays.x[:2], np.float32([[1.5, 0], [0.5, 1]]))
    assert data.arrays.edge_attr[:, 0].tolist() == [2, 2, 2, 2]
    assert data.arrays.y.tolist() == [[1], [0]]
    assert from_networkx([graph], level="node").arrays.y.tolist() == [[0], [1]]


def test_networkx_directions_and_graph_attributes() -> None:
    graphs = [nx.DiGraph([(0, 1)], y=0.5), nx.Graph([(0, 1)], y=1.5)]
    arrays = from_networkx(graphs).arrays
    assert np.diff(arrays.edge_ptr).tolist() == [1, 2]
    assert arrays.y.tolist() == [[0.5], [1.5]]


def test_bad_networkx_graphs() -> None:
    half = nx.path_graph(2)
    half.nodes[0]["x"] = 1
    for graphs, y, reason in (
        ([half], [1], "position 0: some have the attribute 'x' and some have not"),
        ([nx.Graph()], [1], "this one has 0"),
        ([3], [1], "expected a networkx graph, found int"),
        ([half], [1, 2], "y has 2 entries for 1 graphs"),
        ([], [], "holds no data"),
        ([half], {0: 1}, "y: got dict, expected a list"),
        ([half], 1.5, "y: got float, expected a list"),
        ([half], np.array(1.5), "y: got ndarray, expected a list"),
    ):
        with pytest.raises(InputError, match=reason):
            from_networkx(graphs, y=y)


def test_smiles() -> None:
    pytest.importorskip("rdkit")
    data = from_smiles_list(["CCO", "C("] + ["C"] * 2, y=["a", "b", "b", None], skip_invalid=True)
    assert data.smiles == ("CCO", "C", "C")
    np.testing.assert_array_equal(data.arrays.y, np.float32([[0], [1], [np.nan]]))
    assert data.skipped[0].row == 1
    with pytest.raises(InputError, match="position 0: expected SMILES as text, found int"):
        from_smiles_list([3], y=[1])  # type: ignore[list-item]
    with pytest.raises(InputError, match="holds something that is no text"):
        from_smiles_list(["\ud800"], y=[1])
    assert from_smiles_list(["CO"], like=data.reading).arrays.y is None
