"""NetworkX graphs, SMILES and tables from Python, and what all objects share."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from tests.graphs.test_pyg_data import path
from torch.utils.data import Dataset, Subset
from torch_geometric.data import HeteroData

from gradformer.errors import ConfigError, InputError
from gradformer.graphs.objects import from_networkx, from_objects, from_pyg, from_smiles_list
from gradformer.graphs.user_splits import user_split, user_way


def test_a_part_of_a_dataset_is_taken_as_a_list_is() -> None:
    graphs = [path(y=torch.tensor([k / 2])) for k in range(6)]
    data = from_objects(Subset(graphs, [4, 1]))
    assert data.arrays.y.tolist() == [[2.0], [0.5]]
    pytest.importorskip("rdkit")
    column = pd.Series(["CC", "CO"], index=[7, 3])  # whose entries go by their labels
    assert from_objects(column, y=[1.5, 2.5]).smiles == ("CC", "CO")


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


def test_columns_of_pandas_go_by_their_names() -> None:
    graphs = [nx.path_graph(2)] * 2
    frame = pd.DataFrame({"gap": [1.5, 2.5], "mu": [3.5, 4.5]})
    data = from_networkx(graphs, y=frame)
    assert data.reading.labels.targets == ("gap", "mu")
    plain = from_networkx(graphs, y=frame.to_numpy())
    for y, like in (
        (frame.assign(id=0)[["id", "mu", "gap"]], data),
        (frame.to_numpy(), data),
        (pd.DataFrame(frame.to_numpy()), data),
        (frame, plain),  # which knows no names
    ):
        again = from_networkx(graphs, y=y, like=like.reading)
        np.testing.assert_array_equal(again.arrays.y, data.arrays.y)
    with pytest.raises(InputError, match=r"^y has no column 'mu', which the run has learned; re"):
        from_networkx(graphs, y=frame.rename(columns={"mu": "m"}), like=data.reading)
    with pytest.raises(InputError, match=r"^y has more than one column 'mu'; rename one"):
        from_networkx(graphs, y=frame[["mu", "mu"]])
    asked = from_networkx(graphs, y=frame[["gap"]], like=data.reading, labelled=False)
    assert asked.arrays.y is None  # targets of what is only asked for may be any


def test_a_single_column_is_the_single_target_whatever_it_is_called() -> None:
    graphs, y = [nx.path_graph(2)] * 2, pd.DataFrame({"tox": [1.5, 2.5]})
    data = from_networkx(graphs, y=y)
    again = from_networkx(graphs, y=y.rename(columns={"tox": "label"}), like=data.reading)
    np.testing.assert_array_equal(again.arrays.y, data.arrays.y)


def test_whole_numbers_beside_a_gap_are_whole() -> None:
    values = [0, 1, None, 2, 1, 2, 0]
    column = pd.Series(values, dtype="Int64")
    masked = np.ma.array([0, 1, 5, 2, 1, 2, 0], mask=column.isna())
    for y in (column, column.to_frame(), pd.Series(pd.Categorical(values)), masked):
        data = from_networkx([nx.path_graph(2)] * 7, y=y)
        assert data.reading.labels.classes == (("0", "1", "2"),)
        assert data.arrays.y.tolist() == [0, 1, -1, 2, 1, 2, 0]


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
    graph.add_node("c", x=[0, 0])
    np.testing.assert_array_equal(
        from_networkx([graph], level="node").arrays.y, np.float32([[0], [1], [np.nan]])
    )


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
        ([nx.Graph([(0, 1)], y=1), 3], None, "position 1: expected a networkx graph, found int"),
        ([half], [1, 2], "y has 2 entries for 1 graph$"),
        ([], [], "holds no data"),
        ([half], {0: 1}, "y: got dict, expected a list"),
        ([half], 1.5, "y: got float, expected a list"),
        ([half], np.array(1.5), "y: got ndarray, expected a list"),
    ):
        with pytest.raises(InputError, match=reason):
            from_networkx(graphs, y=y)
    with pytest.raises(ConfigError, match="level: unknown value 'nodes'"):
        from_networkx([half], level="nodes")  # type: ignore[arg-type]


def test_smiles() -> None:
    pytest.importorskip("rdkit")
    data = from_smiles_list(["CCO", "C("] + ["C"] * 2, y=["a", "b", "b", None], skip_invalid=True)
    assert data.smiles == ("CCO", "C", "C")
    np.testing.assert_array_equal(data.arrays.y, np.float32([[0], [1], [np.nan]]))
    assert data.skipped[0].row == 1
    with pytest.raises(InputError, match=r"^the list, position 0: expected SMILES as text"):
        from_smiles_list([3], y=[1])  # type: ignore[list-item]
    with pytest.raises(InputError, match="holds something that is no text"):
        from_smiles_list(["\ud800"], y=[1])
    assert from_smiles_list(["CO"], like=data.reading).arrays.y is None


def test_na_is_no_value_beside_numbers_and_a_word_beside_words() -> None:
    smiles = ["C", "CC", "CCC", "CCCC"]
    numbers = from_smiles_list(smiles, y=[1.5, "NA", 2.5, "None"]).arrays.y
    np.testing.assert_array_equal(numbers, np.float32([[1.5], [np.nan], [2.5], [np.nan]]))
    words = from_smiles_list(smiles, y=["mild", "NA", "bad", "NaN"])
    assert words.reading.labels.classes == (("NA", "bad", "mild"),)
    assert words.arrays.y.tolist() == [2, 0, 1, -1]
    parts = from_smiles_list(smiles, y=[0.5, 1.5, 2.5, 3.5], split=["train", "NA", "val", "test"])
    assert parts.arrays.split[:, 0].tolist() == [0, -1, 1, 2]
