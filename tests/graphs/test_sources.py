"""Every reader against the files themselves, and against PyG's where PyG can read them."""

from __future__ import annotations

import gzip
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.datasets import ZINC, Actor, Planetoid, TUDataset

from gradformer.errors import InputError
from gradformer.graphs.arrays import GraphArrays
from gradformer.graphs.cards import card_names, find_card
from gradformer.graphs.datasets import check_card
from gradformer.graphs.mirror import RawFiles, raw_files
from gradformer.graphs.sources import peptides, pickles
from gradformer.graphs.sources.molhiv import read_molhiv
from gradformer.graphs.sources.peptides import read_peptides
from gradformer.graphs.sources.readers import read_card
from gradformer.graphs.sources.sbm_file import read_sbm_file

QUICK = ("actor", "citeseer", "cora", "imdb-binary", "mutag", "nci1", "pattern-sample", "zinc")
SLOW = ("cluster", "collab", "molhiv", "pattern", "proteins")


def read(name: str, mirror: Path) -> GraphArrays:
    card = find_card(name)
    return read_card(card, raw_files(card, mirror))


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_every_dataset_is_what_its_card_says(name: str, data_mirror: Path) -> None:
    card = find_card(name)
    arrays = read(name, data_mirror)
    check_card(card, arrays)
    edges = np.diff(arrays.edge_ptr).mean() / (1 if card.directed else 2)
    assert arrays.sizes.mean() == pytest.approx(card.mean_nodes, abs=0.006)
    assert edges == pytest.approx(card.mean_edges, abs=0.006)
    assert (arrays.schema.level, arrays.schema.task) == (card.level, card.task)


def test_no_dataset_is_left_out() -> None:
    assert sorted([*QUICK, *SLOW, "peptides-func"]) == card_names()


def test_peptides(data_mirror: Path) -> None:
    """The whole table takes a minute, so every hundredth row; the split is that of all rows."""
    pytest.importorskip("rdkit")
    folder = data_mirror / "peptides-functional"
    lines = gzip.decompress((folder / peptides.TABLE).read_bytes()).splitlines(keepends=True)
    assert len(lines) == 15_536
    rows = range(0, 15_535, 100)
    chosen = b"".join([lines[0], *(lines[1 + row] for row in rows)])
    parts = pickles.load((folder / peptides.SPLIT).read_bytes(), "split")
    assert tuple(len(parts[part]) for part in ("train", "val", "test")) == (10_873, 2_331, 2_331)
    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(15_535))
    here = {name: np.flatnonzero(np.isin(rows, part)) for name, part in parts.items()}
    content = {peptides.TABLE: chosen, peptides.SPLIT: pickle.dumps(here)}
    arrays = read_peptides(content.__getitem__)
    assert arrays.num_graphs == 156
    assert arrays.y.shape == (156, 10)
    assert set(np.unique(arrays.y)) == {0, 1}
    assert (arrays.split[here["val"], 0] == 1).all()
    # Means over all rows are 150.94 and 153.65; the standard error of 156 rows is about 6.
    assert arrays.sizes.mean() == pytest.approx(150.94, abs=20)
    assert np.diff(arrays.edge_ptr).mean() / 2 - arrays.sizes.mean() == pytest.approx(2.7, abs=1)


def test_peptides_names_the_bad_row(data_mirror: Path) -> None:
    pytest.importorskip("rdkit")
    table = b',smiles,peptide_seq,labels,identifier\n0,CC,x,"[0,0,0,0,0,0,0,0,0,1]",1\n'
    for row, message in ((b'1,C(,x,"[0]",2\n', "row 2: "), (b'1,CC,x,"[a]",2\n', "row 2: ")):
        with pytest.raises(InputError, match=message):
            read_peptides({peptides.TABLE: table + row}.__getitem__)


def graph(arrays: GraphArrays, g: int) -> tuple[np.ndarray, ...]:
    """x, (source, target, attributes) sorted, of one graph."""
    nodes = slice(arrays.node_ptr[g], arrays.node_ptr[g + 1])
    edges = slice(arrays.edge_ptr[g], arrays.edge_ptr[g + 1])
    source, target = arrays.edge_index[:, edges]
    order = np.lexsort((source, target))
    x = np.empty(0) if arrays.x is None else arrays.x[nodes]
    attributes = np.empty(0) if arrays.edge_attr is None else arrays.edge_attr[edges][order]
    return x, np.stack([source, target])[:, order], attributes


def pyg_edges(data: Data) -> tuple[np.ndarray, np.ndarray]:
    """Edges in our order, and the order that brings their attributes there."""
    source, target = data.edge_index.numpy()
    order = np.lexsort((source, target))
    return np.stack([source, target])[:, order], order


@pytest.mark.parametrize("name", ["MUTAG", pytest.param("PROTEINS", marks=pytest.mark.slow)])
def test_tu_agrees_with_pyg(name: str, data_mirror: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(data_mirror / "TU" / f"{name}.zip") as archive:
        archive.extractall(tmp_path)
    (tmp_path / name).rename(tmp_path / "raw")
    (tmp_path / name).mkdir()
    (tmp_path / "raw").rename(tmp_path / name / "raw")
    ours, theirs = read(name, data_mirror), TUDataset(str(tmp_path), name)
    assert ours.num_graphs == len(theirs)
    for g, data in enumerate(theirs):
        x, edges, attributes = graph(ours, g)
        expected, order = pyg_edges(data)
        assert (x[:, 0] == data.x.argmax(1).numpy()).all()
        assert (edges == expected).all()
        assert ours.y[g] == data.y
        if len(attributes):
            assert (attributes[:, 0] == data.edge_attr.argmax(1).numpy()[order]).all()


@pytest.mark.slow
def test_zinc_agrees_with_pyg(data_mirror: Path, tmp_path: Path) -> None:
    """On the test split, which stands in for the others so that PyG has less to process."""
    (tmp_path / "raw").mkdir()
    with zipfile.ZipFile(data_mirror / "ZINC" / "molecules.zip") as archive:
        for split in ("train", "val", "test"):
            for kind in ("pickle", "index"):
                content = archive.read(f"molecules/test.{kind}")
                (tmp_path / "raw" / f"{split}.{kind}").write_bytes(content)
    ours, theirs = read("zinc", data_mirror), ZINC(str(tmp_path), subset=True, split="test")
    for g, data in zip(np.flatnonzero(ours.split[:, 0] == 2), theirs, strict=True):
        x, edges, attributes = graph(ours, g)
        expected, order = pyg_edges(data)
        assert (x == data.x.numpy()).all()
        assert (edges == expected).all()
        assert (attributes[:, 0] == data.edge_attr.numpy()[order]).all()
        assert ours.y[g, 0] == data.y.item()


def test_zinc_pickles_come_from_the_archive_and_its_index_may_lie_beside_it(
    data_mirror: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "ZINC"
    folder.mkdir()
    with zipfile.ZipFile(data_mirror / "ZINC" / "molecules.zip") as archive:
        content = archive.read("molecules/test.pickle")
    with zipfile.ZipFile(folder / "molecules.zip", "w") as archive:
        for split in ("train", "val", "test"):
            archive.writestr(f"molecules/{split}.pickle", content)
            (folder / f"{split}.index").write_text("7,3,8\n")
            (folder / f"{split}.pickle").write_bytes(b"never read")
    card, files = find_card("zinc"), RawFiles(tmp_path, {})
    assert read_card(card, files).num_graphs == 9
    (folder / "val.index").write_text("7,1000\n")
    with pytest.raises(
        InputError, match=r"val\.index names molecule 1000, but val\.pickle has 1000"
    ):
        read_card(card, files)
    with zipfile.ZipFile(folder / "molecules.zip", "a") as archive:
        archive.writestr("molecules/val.index", "5\n")
    assert read_card(card, files).num_graphs == 7


def hold_one_graph(ours: GraphArrays, data: Data) -> None:
    """Features, edges, classes and published splits of a single graph are those of PyG."""
    x, edges, _ = graph(ours, 0)
    assert (x == data.x.numpy()).all()
    assert (edges == pyg_edges(data)[0]).all()
    assert (ours.y == data.y.numpy()).all()
    for part, mask in enumerate((data.train_mask, data.val_mask, data.test_mask)):
        assert ((ours.split == part) == mask.view(len(x), -1).numpy()).all()


@pytest.mark.parametrize("name", ["Cora", "CiteSeer"])
def test_planetoid_agrees_with_pyg(name: str, data_mirror: Path, tmp_path: Path) -> None:
    shutil.copytree(data_mirror / "Planetoid" / name, tmp_path / name)
    (tmp_path / name).chmod(0o755)
    hold_one_graph(read(name, data_mirror), Planetoid(str(tmp_path), name)[0])


def test_actor_agrees_with_pyg(data_mirror: Path, tmp_path: Path) -> None:
    shutil.copytree(data_mirror / "Actor" / "raw", tmp_path / "raw")
    hold_one_graph(read("actor", data_mirror), Actor(str(tmp_path))[0])


def test_zinc_first_molecules_and_labels(data_mirror: Path) -> None:
    arrays = read("zinc", data_mirror)
    assert (arrays.sizes[0], arrays.edge_ptr[1]) == (29, 64)
    train, val, test = (arrays.y[arrays.split[:, 0] == part] for part in range(3))
    for y, mean, std, low, high in (
        (train, 0.0153, 2.0109, -42.037, 3.805),
        (val, 0.0315, 1.9856, -20.341, 3.743),
        (test, 0.0124, 2.0180, -9.676, 3.454),
    ):
        found = (y.mean(dtype=float), y.std(dtype=float, ddof=1), y.min(), y.max())
        assert found == pytest.approx((mean, std, low, high), abs=6e-4)
    assert sorted(np.unique(arrays.edge_attr)) == [1, 2, 3]


def molhiv_slice(mirror: Path, graphs: int) -> Callable[[str], bytes]:
    """The first molecules of ogbg-molhiv, as files of the same names."""
    folder = mirror / "ogbg_molhiv"

    def lines(path: str) -> list[bytes]:
        return gzip.decompress((folder / path).read_bytes()).splitlines(keepends=True)

    nodes, bonds = (
        sum(int(n) for n in lines(f"raw/num-{kind}-list.csv.gz")[:graphs])
        for kind in ("node", "edge")
    )
    rows = {"node-feat": nodes, "edge-feat": bonds, "edge": bonds}

    def read(path: str) -> bytes:
        if path.startswith("split"):
            return b"".join(line for line in lines(path) if int(line) < graphs)
        return b"".join(lines(path)[: rows.get(path[4:].removesuffix(".csv.gz"), graphs)])

    return read


def test_molhiv_slice(data_mirror: Path) -> None:
    arrays = read_molhiv(molhiv_slice(data_mirror, 300))
    assert arrays.num_graphs == 300
    assert arrays.sizes[:3].tolist() == [19, 39, 21]
    assert np.diff(arrays.edge_ptr)[:3].tolist() == [40, 88, 48]
    assert arrays.x[0].tolist() == [5, 0, 4, 5, 3, 0, 2, 0, 0]
    assert arrays.edge_index[:, :4].tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert (arrays.edge_attr[::2] == arrays.edge_attr[1::2]).all()
    assert np.bincount(arrays.split[:, 0] + 1, minlength=4)[0] == 0


def test_molhiv_with_a_table_cut_short_is_refused(data_mirror: Path) -> None:
    whole = molhiv_slice(data_mirror, 20)
    for path in ("raw/node-feat.csv.gz", "raw/edge.csv.gz", "raw/graph-label.csv.gz"):

        def cut(name: str, path: str = path) -> bytes:
            content = whole(name)
            return content[: content[:-1].rindex(b"\n") + 1] if name == path else content

        with pytest.raises(InputError):
            read_molhiv(cut)


def test_published_block_models(tmp_path: Path) -> None:
    def one(n: int) -> dict[str, torch.Tensor]:
        x = torch.nn.functional.one_hot(torch.arange(n) % 3, 3).float()
        edge_index = torch.tensor([[0, 1], [1, 0]])
        return {"x": x, "edge_index": edge_index, "y": torch.arange(n) % 2}

    torch.save([[one(4), one(3)], [one(5)], [one(2)]], tmp_path / "PATTERN_v2.pt")
    arrays = read_sbm_file((tmp_path / "PATTERN_v2.pt").read_bytes(), "PATTERN_v2.pt", 3, 2)
    assert arrays.sizes.tolist() == [4, 3, 5, 2]
    assert arrays.split[:, 0].tolist() == [0, 0, 1, 2]
    assert arrays.x[:4, 0].tolist() == [0, 1, 2, 0]
    assert arrays.y[:4].tolist() == [0, 1, 0, 1]
    for content in (b"", b"not a file", (tmp_path / "PATTERN_v2.pt").read_bytes()[:200]):
        with pytest.raises(InputError, match=r"PATTERN_v2\.pt is not a published SBM file"):
            read_sbm_file(content, "PATTERN_v2.pt", 3, 2)
