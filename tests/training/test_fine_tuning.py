"""Fine-tuning: which weights a trial begins with, and what does not fit."""

from __future__ import annotations

import json
import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import torch
from torch_geometric.utils import from_networkx

from gradformer.errors import ConfigError, GradformerWarning, InputError
from gradformer.graphs.arrays import Task
from gradformer.structure.codebook import HOPS
from gradformer.training.export import export
from gradformer.training.fine_tuning import begin_from, take_weights, tell_seen
from gradformer.training.fit import fit, resume
from gradformer.training.recipe import load_recipe
from gradformer.training.run import Run
from tests.training import toy

SHORT = toy.RECIPE.change("train.epochs=1", "trials=2")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two trained trials that tell two classes apart."""
    out = tmp_path_factory.mktemp("runs") / "source"
    return fit(toy.data(), recipe=SHORT, out=out, **toy.QUIET)


def test_a_trial_begins_with_the_weights_of_the_same_trial_or_of_the_others_in_turn(
    source: Run, tmp_path: Path
) -> None:
    def check(folder: Path, taken: dict[int, int]) -> None:
        recipe = toy.RECIPE.change(*begin_from(folder))
        for number, trial in taken.items():
            begun = toy.trial(recipe, number).model.state_dict()
            trained = Run.load(folder).model(trial).state_dict()
            assert begun.keys() == trained.keys()
            assert all(torch.equal(begun[name], trained[name]) for name in trained)

    check(source.folder, {0: 0, 1: 1, 2: 0})
    lacks_one = shutil.copytree(source.folder, tmp_path / "lacks one")
    (lacks_one / "trials" / "1").rename(lacks_one / "trials" / "2")
    (lacks_one / "results.json").unlink()  # which tells of a trial 1
    check(lacks_one, {0: 0, 1: 2, 2: 2, 3: 2})


@pytest.mark.parametrize(("task", "outputs"), [("multiclass", 3), ("regression", 2)])
def test_for_another_task_or_number_of_outputs_the_last_map_is_drawn(
    task: Task, outputs: int, source: Run
) -> None:
    recipe = toy.RECIPE.change(*begin_from(source.folder))
    schema = replace(source.schema, task=task, outputs=outputs)
    begun, drawn = (recipe.model.make(schema, source.codebook) for _ in range(2))
    begun.load_state_dict(drawn.state_dict())
    take_weights(begun, str(source.folder), 0)
    trained, last = source.model(0).state_dict(), "head.net.layers.2."
    for name, tensor in begun.state_dict().items():
        expected = drawn.state_dict() if name.startswith(last) else trained
        assert torch.equal(tensor, expected[name]), name


def test_the_model_comes_with_its_weights_and_the_training_does_not(source: Run) -> None:
    recipe = load_recipe("own", settings=[*begin_from(source.folder), "model.dropout=0.3"])
    theirs, ours = source.recipe.model, recipe.model
    assert (ours.name, ours.config) == (theirs.name, replace(theirs.config, dropout=0.3))
    assert recipe.train == replace(load_recipe("own").train, weights=str(source.folder.absolute()))


def test_a_model_of_the_package_is_known_by_its_name() -> None:
    assert begin_from("molhiv")[-1] == "train.weights=molhiv"


def test_a_run_stands_for_its_folder(source: Run, tmp_path: Path) -> None:
    assert begin_from(source) == begin_from(source.folder)
    assert begin_from(Run.load("molhiv"))[-1] == "train.weights=molhiv"
    copy = Run.load(shutil.copytree(source.folder, tmp_path / "copy"))
    assert resume(copy, toy.data(), trials=3, **toy.QUIET).trials == [0, 1, 2]


def test_a_fine_tuned_run_resumes_without_its_source_and_names_no_folder_when_exported(
    source: Run, tmp_path: Path
) -> None:
    out = tmp_path / "tuned"
    copy = shutil.copytree(source.folder, tmp_path / "source")
    run = fit(toy.data(), recipe=SHORT, weights=copy, out=out, **toy.QUIET)
    shutil.rmtree(copy)
    before = toy.contents(out)
    (out / "results.json").unlink()
    (out / "trials" / "1" / "result.json").unlink()
    (out / "trials" / "1" / "model.safetensors").unlink()
    resume(out, toy.data(), **toy.QUIET)
    assert toy.contents(out) == before
    given = export(run, tmp_path / "given")
    assert given.recipe.train.weights == "source"
    assert "| fine-tuned from | source |" in (given.folder / "README.md").read_text()


def test_a_run_that_replaces_another_begins_with_the_weights_as_well(
    source: Run, tmp_path: Path
) -> None:
    def trained() -> bytes:
        options: dict[str, Any] = {"out": tmp_path / "tuned", "overwrite": True, **toy.QUIET}
        run = fit(toy.data(), recipe=SHORT, weights=source.folder, **options)
        return (run.place(1) / "model.safetensors").read_bytes()

    assert trained() == trained()


def test_trials_that_begin_from_another_split_of_their_data_are_named(
    source: Run, tmp_path: Path
) -> None:
    """Weights that have learned from what is tested: the score is not one of new graphs."""
    data, begun = toy.data(), SHORT.change(*begin_from(source.folder))
    said = "was trained on another split of the same data than trial"
    with pytest.warns(GradformerWarning, match=f"{said} 2 here"):
        run = fit(data, recipe=begun.change("trials=3"), out=tmp_path / "more", **toy.QUIET)
    with pytest.warns(GradformerWarning, match=f"{said} 3 here"):
        resume(run.folder, data, trials=4, **toy.QUIET)
    alone = export(source, tmp_path / "alone", trial=1)
    others = (
        (begun.change("seed=1"), "0, 1"),
        (begun.change("data.split=kfold"), "0, 1"),
        (SHORT.change(*begin_from(alone.folder)), "0"),
    )
    for recipe, trials in others:
        with pytest.warns(GradformerWarning, match=f"{said} {trials} here"):
            tell_seen(recipe, data, [0, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tell_seen(begun, data, [0, 1])
        tell_seen(SHORT.change(*begin_from(alone.folder), "seed=1"), data, [0])
        fewer = replace(data, store=replace(data.store, content="others"))
        tell_seen(begun.change("seed=1"), fewer, [0, 1])
        tell_seen(begun.change("seed=1"), replace(data, split=lambda _: data.split(0)), [0, 1])


def test_the_run_to_begin_from_is_not_replaced(source: Run, tmp_path: Path) -> None:
    """Trials that were added later began from the new run."""
    copy = shutil.copytree(source.folder, tmp_path / "source")
    before = toy.contents(copy)
    options: dict[str, Any] = {"out": tmp_path / "x" / ".." / "source", **toy.QUIET}
    with pytest.raises(
        ConfigError, match=r"is the run to begin from, and would be replaced; choose"
    ):
        fit(toy.data(), recipe=SHORT, weights=copy, overwrite=True, **options)
    assert toy.contents(copy) == before


def test_a_tu_folder_is_not_taken_for_the_numbers_of_a_benchmark(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    with pytest.raises(InputError, match=r"mine: labels of a TU folder cannot be .*; give JSON"):
        fit(folder, weights="nci1", out=tmp_path / "out", **toy.QUIET)


def test_what_does_not_fit_is_said_before_a_folder_is_made(source: Run, tmp_path: Path) -> None:
    def refused(expected: type[Exception], match: str, **options: object) -> None:
        given: dict[str, Any] = {"weights": source.folder, "out": tmp_path / "out", **options}
        with pytest.raises(expected, match=match):
            fit(toy.some_graphs(), y=[0.5 * k for k in range(30)], **given)
        assert not (tmp_path / "out").exists()

    refused(InputError, "position 0: has no x, the training data of .*source have 1 column")
    refused(ConfigError, "bring their model; leave out model gin", model="gin")
    refused(InputError, "train.weights: .*gone: not a run", weights=tmp_path / "gone")
    with pytest.raises(InputError, match=r"knows nodes .*, and the data have .*same features"):
        fit(["C" * k for k in range(1, 31)], y=CLASSES, weights=source.folder, out=tmp_path / "out")
    wide = toy.RECIPE.change(*begin_from(source.folder), "model.width=32")
    with pytest.raises(ConfigError, match=r"has another shape .*leave model"):
        toy.trial(wide)


@pytest.fixture(scope="module")
def of_graphs(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on graphs with the categories 0, 1 and 3 of nodes, 0 to 2 of edges."""
    out = tmp_path_factory.mktemp("runs") / "of graphs"
    graphs = _with_categories((0, 1, 3), (0, 1, 2))
    return fit(graphs, y=CLASSES, settings=TINY, out=out, **toy.QUIET)


TINY = ["train.epochs=1", "model.layers=1"]
CLASSES = [0, 1] * 15


def _with_categories(nodes: tuple[int, ...], edges: tuple[int, ...] = (0,)) -> list[nx.Graph]:
    """Graphs whose nodes and edges have these categories in turn."""
    graphs = toy.some_graphs()
    for graph in graphs:
        nx.set_node_attributes(graph, {n: nodes[n % len(nodes)] for n in graph}, "x")
        kinds = {edge: edges[k % len(edges)] for k, edge in enumerate(graph.edges)}
        nx.set_edge_attributes(graph, kinds, "edge_attr")
    return graphs


def test_graphs_with_fewer_categories_are_read_as_those_of_the_run_were(
    of_graphs: Run, tmp_path: Path
) -> None:
    copy = shutil.copytree(of_graphs.folder, tmp_path / "source")
    y = [0.5 * k for k in range(30)]
    for graphs in (_with_categories((0, 1)), [from_networkx(g) for g in _with_categories((0, 1))]):
        options: dict[str, Any] = {"overwrite": True, "settings": TINY[:1], **toy.QUIET}
        run = fit(graphs, y=y, weights=copy, out=tmp_path / "tuned", **options)
        assert (run.schema.node, run.schema.edge) == (of_graphs.schema.node, of_graphs.schema.edge)
        assert run.reading is not None
        assert run.reading.seen == (((0, 1, 3),), ((0, 1, 2),))
        assert len(run.predict(_with_categories((3,), (2,))).value) == 30
    shutil.rmtree(copy)  # which a run that has begun does not need to read its data again
    assert resume(run.folder, graphs, y=y, **toy.QUIET).trials == [0]


def test_a_file_with_fewer_categories_is_read_so_too_and_again(
    of_graphs: Run, tmp_path: Path
) -> None:
    file = tmp_path / "few.jsonl"
    graph = {"num_nodes": 3, "edges": [[0, 1], [1, 2]], "x": [0, 1, 1], "edge_attr": [1, 0]}
    file.write_text("".join(json.dumps({**graph, "y": y}) + "\n" for y in CLASSES))
    options: dict[str, Any] = {"weights": of_graphs.folder, "settings": TINY[:1], **toy.QUIET}
    run = fit(file, out=tmp_path / "tuned", **options)
    assert run.schema == of_graphs.schema
    assert len(run.evaluate()) == 1
    for unseen in (2, 4):
        with file.open("a") as lines:
            lines.write(json.dumps({**graph, "x": [0, unseen, 0], "y": 1}) + "\n")
        words = rf"line 31: x\[1, 0\] = {unseen} is a category unseen in training of .*of graphs \("
        with pytest.raises(InputError, match=words):
            fit(file, out=tmp_path / "none", **options)
        with pytest.warns(GradformerWarning, match="1 of 31 lines are left out: line 31"):
            skipping = fit(file, out=tmp_path / f"{unseen}", skip_invalid=True, **options)
        assert skipping.origin["content"] == run.origin["content"]
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:30]))


def test_bytes_of_pairs_keep_their_meaning_where_training_goes_on(tmp_path: Path) -> None:
    """A profile is learned byte by byte, and other graphs had bytes of their own scale."""
    short, long = ([nx.path_graph(k + n) for n in range(30)] for k in (3, 30))
    y, settings = [0.5 * k for k in range(30)], [*TINY, "model.index=curvature"]
    before = fit(short, y=y, settings=settings, out=tmp_path / "before", **toy.QUIET)
    options: dict[str, Any] = {"y": y, **toy.QUIET}
    run = fit(long, weights=before, settings=TINY[:1], out=tmp_path / "tuned", **options)
    assert run.codebook == before.codebook
    expected = run.predict(long).value
    assert len(run.evaluate(long, y=y)) == 1
    (run.place(0) / "model.safetensors").unlink()
    (run.folder / "results.json").unlink()
    assert (resume(run.folder, long, **options).predict(long).value == expected).all()
    hops = [*TINY[:1], "model.index=hops"]
    assert fit(long, weights=before, settings=hops, out=tmp_path / "h", **options).codebook == HOPS


def test_a_model_that_has_another_shape_for_nodes_says_so(tmp_path: Path) -> None:
    recipe = SHORT.change("model.name=graphtrans", "trials=1")
    run = fit(toy.data(recipe), recipe=recipe, out=tmp_path / "graphs", **toy.QUIET)
    model = run.recipe.model.make(replace(run.schema, level="node"), run.codebook)
    with pytest.raises(
        ConfigError, match=r"another shape \(.*\); it is one of graphs: begin from a run on n"
    ):
        take_weights(model, str(run.folder), 0)
