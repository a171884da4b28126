"""The packed store: what it holds, and what is said of a damaged one."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradformer.errors import ConfigError, InputError
from gradformer.graphs import sbm, structures
from gradformer.graphs.arrays import GraphArrays, Schema
from gradformer.graphs.ordering import sort_by_target
from gradformer.graphs.store import Store, build_store, content_hash, pack, store_key
from gradformer.graphs.structures import Structure, register_structure
from gradformer.structure import hop_distances, laplacian, random_walk
from gradformer.zoo.eigenpairs import NORMALISED


def unsorted_graphs() -> GraphArrays:
    """Three small graphs, one without edges, edges in no order, with attributes to follow them."""
    edge_index = np.array([[2, 0, 1, 2, 1, 0, 3, 1], [0, 1, 2, 1, 0, 2, 1, 3]], np.int32)
    return GraphArrays(
        np.array([0, 3, 4, 8]),
        np.array([0, 6, 6, 8]),
        edge_index,
        Schema((5,), 1, "graph", "regression", 1),
        np.arange(8)[:, None] % 5,
        np.arange(8, dtype=np.float32)[:, None],
        np.array([[0.5], [np.nan], [2.0]], np.float32),
    )


def altered(name: str, place: object, value: float) -> dict[str, np.ndarray]:
    """An array of these graphs with another number in one place."""
    array = getattr(unsorted_graphs(), name).copy()
    array[place] = value
    return {name: array}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"edge_index": np.zeros((2, 7))}, "edge_index has shape (2, 7), expected (2, 8)"),
        (altered("edge_index", (0, 6), 4), "graph 2 has an edge (4, 1) but only 4 nodes; nodes"),
        (altered("edge_index", (1, 5), -1), "graph 0 has an edge (0, -1) but only 3 nodes; nodes"),
        ({"x": np.zeros((7, 1), np.int64)}, "x has 7 rows, expected 8"),
        ({"x": np.zeros((8, 2), np.int64)}, "x has shape (8, 2), expected 1 column"),
        ({"x": np.zeros(8, np.int64)}, "x has shape (8,), expected 1 column"),
        (altered("x", (3, 0), 5), "x[3, 0] = 5 is outside its vocabulary 0..4"),
        (altered("x", (3, 0), -1), "x[3, 0] = -1 is outside its vocabulary 0..4"),
        (altered("edge_attr", (2, 0), np.inf), "edge_attr is not a finite number in row 2"),
    ],
)
def test_graphs_that_contradict_themselves_are_named(change: dict[str, Any], says: str) -> None:
    assert unsorted_graphs().check("ours").num_graphs == 3
    with pytest.raises(InputError, match=rf"^ours: {re.escape(says)}(?!s)"):
        replace(unsorted_graphs(), **change).check("ours")


@pytest.mark.parametrize("change", [{"level": "edge"}, {"task": "ranking"}, {"outputs": 0}])
def test_a_schema_of_another_kind_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"^schema\.{next(iter(change))}: "):
        replace(unsorted_graphs().schema, **change)


def test_edges_are_sorted_by_target_and_take_their_attributes_along() -> None:
    arrays = unsorted_graphs()
    store = pack(arrays)
    a = store.arrays
    assert a["target"].tolist() == [0, 0, 1, 1, 2, 2, 1, 3]
    assert a["source"].tolist() == [2, 1, 0, 2, 1, 0, 3, 1]
    assert a["edge_attr"][:, 0].tolist() == [0, 4, 1, 3, 2, 5, 6, 7]
    assert a["by_source"].tolist() == [2, 5, 1, 4, 0, 3, 1, 0]
    for name, dtype in (("source", "int32"), ("target", "int32"), ("by_source", "int32")):
        assert a[name].dtype == dtype
    assert a["pair_ptr"].tolist() == [0, 9, 10, 26]


def test_by_source_sorts_each_graph_stably() -> None:
    store = pack(sbm.cluster(splits=(6, 0, 0)))
    a = store.arrays
    for first, last in zip(a["edge_ptr"][:-1], a["edge_ptr"][1:]):
        expected = np.argsort(a["source"][first:last], kind="stable")
        assert (a["by_source"][first:last] == expected).all()


def test_structure_is_computed_on_the_sorted_graphs() -> None:
    arrays = sort_by_target(sbm.cluster(splits=(4, 0, 0)))
    graphs = (arrays.node_ptr, arrays.edge_ptr, arrays.edge_index)
    store = pack(arrays, Structure(rwse=5, lap=3))
    assert (store.arrays["distance"] == hop_distances(*graphs)).all()
    assert (store.arrays["rwse"] == random_walk(*graphs, 5)).all()
    assert (store.arrays["lap"] == laplacian(*graphs, 3)[0]).all()
    assert "distance" not in pack(arrays, Structure(index=None)).arrays


def test_a_store_comes_back_as_it_was_packed(tmp_path: Path) -> None:
    arrays, structure = unsorted_graphs(), Structure(symmetric=True, rwse=2)
    packed = pack(arrays, structure, about={"card": "none"})
    opened = build_store(lambda: arrays, structure, tmp_path / "s", about={"card": "none"})
    assert opened.arrays.keys() == packed.arrays.keys()
    for name, value in packed.arrays.items():
        np.testing.assert_array_equal(opened.arrays[name], value)
        assert opened.arrays[name].dtype == value.dtype
        assert not opened.arrays[name].flags.writeable
    for part in ("kinds", "schema", "structure", "codebook", "content", "about"):
        assert getattr(opened, part) == getattr(packed, part)
    assert opened.num_graphs == 3
    assert opened.sizes.tolist() == [3, 1, 4]
    assert opened.num_pairs == 26


def test_codebook_of_training_is_kept_for_new_graphs(tmp_path: Path) -> None:
    arrays = unsorted_graphs()
    trained = build_store(lambda: arrays, Structure(index="curvature"), tmp_path / "s")
    other = sbm.cluster(splits=(2, 0, 0))
    packed = pack(other, trained.structure, codebook=trained.codebook)
    assert packed.codebook == trained.codebook
    assert pack(other, trained.structure).codebook != trained.codebook


def test_similarity_needs_features() -> None:
    arrays = replace(unsorted_graphs(), x=None)
    with pytest.raises(InputError, match="similarity needs node features"):
        pack(arrays, Structure(index="similarity"))
    assert pack(unsorted_graphs(), Structure(index="similarity")).codebook.name == "similarity"


def test_key_tells_content_and_options_apart() -> None:
    arrays = unsorted_graphs()
    changed = replace(arrays, y=np.array([[0.5], [1], [2.0]], np.float32))
    assert content_hash(arrays) == content_hash(unsorted_graphs()) != content_hash(changed)
    wide, narrow = (replace(arrays, x=np.zeros(shape, np.int64)) for shape in ((8, 2), (16, 1)))
    assert content_hash(wide) != content_hash(narrow)  # of the same bytes
    options = [Structure(), Structure(rwse=1), Structure(symmetric=True), Structure(index=None)]
    assert len({store_key("content", option) for option in options}) == 4
    assert store_key("a", Structure()) != store_key("b", Structure())


def test_stores_of_older_eigenvectors_are_made_anew_and_others_stay() -> None:
    before = {  # as of when those of graphs of many pieces were not orthogonal
        Structure(lap=4): "072d4161f59535b0",
        Structure(extras=(NORMALISED.request(count=8),)): "32484e6037572c05",
        Structure(rwse=4): "501804c032bc45ba",
    }
    now = {structure: store_key("content", structure)[:16] for structure in before}
    assert [now[structure] == before[structure] for structure in before] == [False, False, True]


def test_large_graphs_are_refused_before_any_work() -> None:
    none = np.zeros((2, 0), np.int32)
    schema = Schema((), (), "graph", "regression", 1)
    arrays = GraphArrays(np.array([0, 5, 60_005]), np.array([0, 0, 0]), none, schema)
    with pytest.raises(
        InputError, match=r"graph 1 has 60,000 nodes.*3.6 GB \(limit 1.1 GB\).*gatedg"
    ):
        pack(arrays)
    assert pack(arrays, Structure(index=None)).num_graphs == 2
    assert pack(unsorted_graphs(), limit=16).num_graphs == 3
    with pytest.raises(InputError, match=r"graph 2 has 4 nodes.*limit 15 bytes"):
        pack(unsorted_graphs(), limit=15)


def test_more_pairs_than_memory_are_refused_before_any_work() -> None:
    many = np.arange(10_001) * 30_000
    edges = np.zeros(10_001, np.int64)
    arrays = GraphArrays(many, edges, np.zeros((2, 0), np.int32), unsorted_graphs().schema)
    with pytest.raises(InputError, match="pairs of all 10,000 graphs take 9,000 GB"):
        pack(arrays)


def test_nothing_to_pack_is_an_error() -> None:
    empty = np.zeros(1, np.int64)
    arrays = GraphArrays(empty, empty, np.zeros((2, 0), np.int32), unsorted_graphs().schema)
    with pytest.raises(InputError, match="no graph"):
        pack(arrays)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structures, "_REGISTRY", dict(structures._REGISTRY))


@pytest.mark.usefixtures("registry")
def test_registered_structures_are_stored_with_their_kind(tmp_path: Path) -> None:
    def degrees(arrays: GraphArrays, scale: int = 1) -> dict[str, np.ndarray]:
        assert (arrays.edge_index[1][:2] == 0).all()  # edges come sorted
        target = arrays.edge_index[1] + np.repeat(arrays.node_ptr[:-1], np.diff(arrays.edge_ptr))
        return {"degree": scale * np.bincount(target, minlength=arrays.node_ptr[-1])}

    register_structure("test-degrees", degrees, "node")
    wanted = Structure(extras=("test-degrees:scale=3",))
    store = build_store(unsorted_graphs, wanted, tmp_path / "s")
    assert store.arrays["degree"].tolist() == [6, 6, 6, 0, 0, 3, 0, 3]
    assert store.kinds["degree"] == "node"
    assert store.structure == wanted
    before = store_key("c", wanted)
    register_structure("test-degrees", degrees, "node", version=2)
    assert store_key("c", wanted) != before


@pytest.mark.usefixtures("registry")
def test_broken_structures_are_named() -> None:
    arrays = unsorted_graphs()
    cases = {
        "short": (lambda _: {"a": np.zeros(3)}, "node", "'a' has 3 rows, expected 8"),
        "taken": (lambda _: {"x": np.zeros(8)}, "node", "'x': the name is taken"),
        "twice": (lambda _: {"distance": np.zeros(26)}, "pair", "'distance' a second time"),
    }
    for name, (function, kind, message) in cases.items():
        register_structure(name, function, kind)
        with pytest.raises(ConfigError, match=message):
            pack(arrays, Structure(extras=(name,)))
    with pytest.raises(ConfigError, match="did you mean 'short'"):
        Structure(extras=("shirt",))
    with pytest.raises(ConfigError, match="expected option=value"):
        Structure(extras=("short:3",))
    with pytest.raises(ConfigError, match=r"structure\.index"):
        Structure(index="hop")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"structure\.rwse"):
        Structure(rwse=-1)


def test_damage_is_reported_with_a_remedy(tmp_path: Path) -> None:
    build_store(unsorted_graphs, Structure(), tmp_path / "s")
    with pytest.raises(InputError, match="not a store or is damaged"):
        Store.open(tmp_path)
    path = tmp_path / "s" / "source.npy"
    whole = path.read_bytes()
    heads = [
        whole[:at] + byte + whole[at + 1 :] for at, byte in ((10, b"\0"), (21, b","), (26, b"B"))
    ]
    for broken in (b"", whole[:-5], *heads):
        path.write_bytes(broken)
        with pytest.raises(InputError, match=r"source\.npy.*delete it and it is built again"):
            Store.open(tmp_path / "s")
    path.write_bytes(whole)
    source = np.load(path)
    for other in (source[:-1], source.astype(np.int64)):  # as of another store
        np.save(path, other)
        with pytest.raises(InputError, match=rf"source.npy has {other.dtype} \({len(other)},\)"):
            Store.open(tmp_path / "s")
    path.write_bytes(whole)
    Store.open(tmp_path / "s")
    meta = json.loads((tmp_path / "s" / "meta.json").read_text())
    for broken in ("", "[]", "{", json.dumps({**meta, "arrays": 3}), "\udcff"):
        (tmp_path / "s" / "meta.json").write_text(broken, errors="surrogateescape")
        with pytest.raises(InputError, match="not a store or is damaged"):
            Store.open(tmp_path / "s")
    (tmp_path / "s" / "meta.json").write_text(json.dumps({**meta, "format": 99}))
    with pytest.raises(InputError, match="has store format 99"):
        Store.open(tmp_path / "s")


def test_a_pickled_array_is_not_opened(tmp_path: Path) -> None:
    build_store(unsorted_graphs, Structure(), tmp_path / "s")
    np.save(tmp_path / "s" / "x.npy", np.array([object()]), allow_pickle=True)
    with pytest.raises(InputError, match=r"x\.npy"):
        Store.open(tmp_path / "s")
