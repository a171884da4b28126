"""A folder in the text format of the TU collection, with graphs of the user's own."""

from __future__ import annotations

from codecs import BOM_UTF8
from pathlib import Path

import numpy as np

from gradformer.errors import InputError, choice, counted, warn
from gradformer.graphs.arrays import Vocabulary
from gradformer.graphs.assemble import assemble
from gradformer.graphs.labels import present
from gradformer.graphs.raw_graphs import RawGraph, node_count
from gradformer.graphs.sources.tu import FeatureFile, Read, TUGraphs, tu_graphs
from gradformer.graphs.user_data import Inputs, Reading, RowChecks, UserData

Targets = list[list[str | None]]


def read_tu_folder(
    path: str | Path,
    node: FeatureFile | None = None,
    edge: FeatureFile | None = None,
    task: str | None = None,
    skip_invalid: bool = False,
    like: Reading | None = None,
    labelled: bool = True,
    inputs: Inputs | None = None,
) -> UserData:
    """Read the folder that holds NAME_A.txt and its companions; graphs are counted from 1.

    ``node`` and ``edge`` choose between the files of labels (categories) and of attributes
    (numbers); where both exist, labels are taken. Targets are the lines of NAME_graph_labels.txt
    or, for a regression, of NAME_graph_attributes.txt. ``like`` is the reading of the training
    data; then targets may be absent, or anything unless ``labelled``. ``inputs`` are what a model
    was trained on that is to be trained further on these graphs.
    """
    folder = Path(path)
    name, read = _open_folder(folder)
    targets, usual_task = _targets(read, like.labels.task if like else task)
    if not labelled:
        targets = None
    given = like.inputs if like else inputs
    try:
        node = _features(name, read, "node", node, given.node if given else None)
        edge = _features(name, read, "edge", edge, given.edge if given else None)
        if targets is None and like is None:
            raise InputError(f"{name}_graph_labels.txt is missing; it holds what is to be learned")
        found = tu_graphs(name, read, node=node, edge=edge)
        _tell_one_way(f"{folder}/{name}_A.txt", found)
        count = len(found.node_ptr) - 1
        if targets is not None and len(targets) != count:
            kind = "attributes" if usual_task == "regression" else "labels"
            raise InputError(
                f"{name}_graph_{kind}.txt has {counted(len(targets), 'line')}, expected {count}: "
                f"one for each graph of {name}_graph_indicator.txt"
            )
    except InputError as error:
        raise InputError(f"{folder}/{error}") from None
    rows = RowChecks(str(folder), "graph", skip_invalid)

    def graph(row: int, g: int) -> RawGraph:
        return _graph(found, row, g, None if targets is None else targets[g])

    graphs = rows.graphs(list(enumerate(range(count), start=1)), graph)
    return assemble(graphs, rows, kind="tu", task=task or usual_task, inputs=inputs, like=like)


def _open_folder(folder: Path) -> tuple[str, Read]:
    """The name of the set, and a function that gives the content of NAME_<kind>.txt."""
    names = [file.name.removesuffix("_A.txt") for file in folder.glob("*_A.txt")]
    if len(names) != 1:
        raise InputError(
            f"{folder} must hold one file NAME_A.txt, the edges of graphs in TU format, "
            f"and holds {len(names)}; data of another kind are named by their file"
        )

    def read(kind: str) -> bytes | None:
        file = folder / f"{names[0]}_{kind}.txt"
        try:
            return file.read_bytes().removeprefix(BOM_UTF8) if file.exists() else None
        except OSError as error:
            raise InputError(f"{file} cannot be read: {error.strerror}") from None

    return names[0], read


def _tell_one_way(file: str, graphs: TUGraphs) -> None:
    """Warn if no edge is listed in both directions, as the collection lists all of them."""
    first = np.repeat(graphs.node_ptr[:-1], np.diff(graphs.edge_ptr))
    source, target = graphs.edge_index + first
    nodes = graphs.node_ptr[-1]
    if len(first) and not np.isin(source * nodes + target, target * nodes + source).any():
        warn(
            f"{file}: lists each edge in one direction, and is taken so; list both, unless the "
            "edges are directed"
        )


def _features(
    name: str, read: Read, kind: str, wanted: FeatureFile | None, vocabulary: Vocabulary | None
) -> FeatureFile:
    """Which of the two files of features to read."""
    if wanted is not None:
        choice(kind, wanted, ("labels", "attributes"))
        if read(f"{kind}_{wanted}") is None:
            raise InputError(
                f"{name}_{kind}_{wanted}.txt is missing, which {kind}={wanted!r} asks for"
            )
        return wanted
    if vocabulary is not None:
        return "attributes" if isinstance(vocabulary, int) else "labels"
    attributes_only = read(f"{kind}_labels") is None and read(f"{kind}_attributes") is not None
    return "attributes" if attributes_only else "labels"


def _targets(read: Read, task: str | None) -> tuple[Targets | None, str]:
    """The values on each graph's line (None without a file), and the task that the file is for."""
    files = {"classification": "graph_labels", "regression": "graph_attributes"}
    for usual, kind in sorted(files.items(), reverse=task == "regression"):
        content = read(kind)
        if content is not None:
            lines = content.decode("utf-8", "replace").splitlines()
            return [[*map(present, line.split(","))] for line in lines if line.strip()], usual
    return None, "classification"


def _graph(found: TUGraphs, row: int, g: int, y: list[str | None] | None) -> RawGraph:
    nodes = slice(found.node_ptr[g], found.node_ptr[g + 1])
    edges = slice(found.edge_ptr[g], found.edge_ptr[g + 1])
    return RawGraph(
        row=row,
        num_nodes=node_count(int(nodes.stop - nodes.start)),
        edge_index=found.edge_index[:, edges],
        x=None if found.x is None else found.x[nodes],
        edge_attr=None if found.edge_attr is None else found.edge_attr[edges],
        y=y,
    )
