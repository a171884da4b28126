"""From names, files and objects to runs; what is shown and written on the way."""

from __future__ import annotations

import json
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data

from gradformer.errors import ConfigError, GradformerWarning, InputError
from gradformer.graphs.objects import from_objects
from gradformer.graphs.store import pack
from gradformer.training.fit import fit, resume
from gradformer.training.folder import WEIGHTS
from gradformer.training.records import read_record
from gradformer.training.run import Run
from tests.training import toy

SMALL = [
    "model.layers=1",
    "model.width=8",
    "model.heads=2",
    "model.pe_steps=3",
    "model.pe_width=2",
    "train.epochs=2",
    "train.warmup_epochs=0",
]


def test_a_benchmark_by_name_and_its_resumption(data_mirror: Path, tmp_path: Path) -> None:
    run = fit(
        "MUTAG", settings=SMALL, trials=2, mirror=data_mirror, out=tmp_path / "run", **toy.QUIET
    )
    assert run.recipe.dataset == "mutag"
    assert run.results["metric"] == "accuracy"
    assert len(run.results["test"]["values"]) == 2
    bytes_before = (tmp_path / "run" / "results.json").read_bytes()
    (tmp_path / "run" / "results.json").unlink()
    (tmp_path / "run" / "trials" / "1" / "result.json").unlink()
    resume(tmp_path / "run", **toy.QUIET)
    assert (tmp_path / "run" / "results.json").read_bytes() == bytes_before
    record = read_record(tmp_path / "run" / "record.jsonl")
    assert [line["trial"] for line in record if line["kind"] == "result"] == [0, 1]
    weights = tmp_path / "run" / "trials" / "0" / WEIGHTS
    kept = weights.read_bytes()
    weights.unlink()
    (tmp_path / "run" / "results.json").unlink()
    resume(tmp_path / "run", **toy.QUIET)
    assert weights.read_bytes() == kept, "the checkpoint gives them back"


def test_a_benchmark_of_one_graph_is_split_by_nodes(data_mirror: Path, tmp_path: Path) -> None:
    settings = [*SMALL[:2], "model.heads=1", "train.epochs=1", "model.attention_dropout=0"]
    out = tmp_path / "run"
    run = fit("cora", settings=settings, trials=1, mirror=data_mirror, out=out, **toy.QUIET)
    share = run.results["test"]["mean"] * 1000  # of 1,000 nodes
    assert 0 < share < 1000
    assert share == pytest.approx(round(share))


def test_networkx_graphs_with_a_regression(tmp_path: Path) -> None:
    graphs = toy.some_graphs()
    y = [100.5 + graph.number_of_edges() for graph in graphs]
    run = fit(graphs, y=y, settings=SMALL, out=tmp_path / "run", **toy.QUIET)
    assert run.results["metric"] == "mae"
    found = run.predict(graphs[:5])
    assert found.value.shape == (5, 1)
    assert (np.abs(found.value - 110) < 30).all()  # in the units of y
    again = Run.load(tmp_path / "run").predict(graphs[:5])
    np.testing.assert_array_equal(again.value, found.value)
    with pytest.raises(InputError, match="SMILES"):
        run.predict(["CCO"])
    with pytest.warns(GradformerWarning, match="1 of 3 positions are left out") as told:
        run.predict([*graphs[:2], nx.Graph()], skip_invalid=True)
    assert told[0].filename == __file__  # and not a file of the package
    assert resume(run.folder, graphs, y=y, trials=2, **toy.QUIET).trials == [0, 1]
    for data in (from_objects(graphs, y=y), toy.data()):
        with pytest.raises(ConfigError, match="trails: not an option of data that are read"):
            fit(data, trails=3, out=tmp_path / "new", **toy.QUIET)


def test_a_file_of_graphs_and_its_resumption(tmp_path: Path) -> None:
    path = tmp_path / "graphs.jsonl"
    lines = [
        {"num_nodes": len(g), "edges": list(g.edges), "y": "even" if len(g) % 2 else "odd"}
        for g in toy.some_graphs()
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    settings = [*SMALL, "data.split=stratified"]
    run = fit(str(path), settings=settings, out=tmp_path / "run", **toy.QUIET)
    assert run.reading is not None
    assert run.reading.labels.classes == (("even", "odd"),)
    assert resume(tmp_path / "run", **toy.QUIET).results == run.results
    with pytest.raises(ConfigError, match=r"^trials: got '2', expected a whole number$"):
        resume(tmp_path / "run", trials="2", **toy.QUIET)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"trials: got 0, and .*run has 1: seeds can on"):
        resume(tmp_path / "run", trials=0, **toy.QUIET)
    grown = resume(tmp_path / "run", trials=np.int64(2), **toy.QUIET)  # type: ignore[arg-type]
    whole = fit(str(path), settings=settings, trials=2, out=tmp_path / "whole", **toy.QUIET)
    assert grown.results == whole.results
    assert (grown.recipe, Run.load(grown.folder).trials) == (whole.recipe, [0, 1])
    path.write_text("".join(json.dumps(line) + "\n" for line in lines[1:]))
    with pytest.raises(InputError, match="not those that the run began with"):
        resume(tmp_path / "run", **toy.QUIET)
    path.unlink()
    with pytest.raises(InputError, match=f"{path}: the data that .* bring them back"):
        resume(tmp_path / "run", **toy.QUIET)


def test_a_file_that_is_gone_may_be_given_as_objects(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    path, smiles = tmp_path / "molecules.csv", ["C" * n for n in range(1, 31)]
    y = [len(word) + 0.5 for word in smiles]
    rows = [f"{word},{value},a" for word, value in zip(smiles, y)]
    path.write_text("\n".join(["smiles,y,note", *rows]))
    settings = [*SMALL, "train.epochs=1"]
    run = fit(path, target="y", settings=settings, out=tmp_path / "run", **toy.QUIET)
    path.unlink()
    assert resume(run.folder, smiles, y=y, trials=2, **toy.QUIET).trials == [0, 1]


def test_a_run_goes_on_with_the_metric_it_was_begun_with(tmp_path: Path) -> None:
    """Several regression targets had MAE before the metric was written down."""
    graphs = toy.some_graphs()
    y = [[len(g) + 0.5, 1000.5 * g.number_of_edges()] for g in graphs]
    settings = [*SMALL, "train.epochs=1"]
    run = fit(graphs, y=y, settings=settings, out=tmp_path / "run", **toy.QUIET)
    assert run.results["metric"] == run.origin["metric"] == "scaled_mae"
    about = json.loads((run.folder / "data.json").read_text())
    del about["origin"]["metric"]
    (run.folder / "data.json").write_text(json.dumps(about))
    path = run.place(0) / "result.json"
    result = {**run.result(0), "metric": "mae"}
    for part in ("val", "test"):
        del result[part]["scaled_mae"]
    path.write_text(json.dumps(result))
    grown = resume(run.folder, from_objects(graphs, y=y), trials=2, **toy.QUIET)
    assert (grown.results["metric"], len(grown.results["test"]["values"])) == ("mae", 2)


def test_a_run_that_was_begun_with_a_target_of_one_value_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs = toy.some_graphs()
    y = [[len(g) + 0.5, 1.5] for g in graphs]
    with monkeypatch.context() as before:
        before.setattr("gradformer.training.data._refuse_constants", lambda user: None)
        fit(graphs, y=y, settings=SMALL, out=tmp_path / "run", **toy.QUIET)
    again = from_objects(graphs, y=y)
    assert resume(tmp_path / "run", again, trials=2, **toy.QUIET).trials == [0, 1]
    with pytest.raises(InputError, match=r"'y\[1\]' is always 1.5"):
        fit(again, settings=SMALL, out=tmp_path / "new", **toy.QUIET)


def test_nodes_of_one_pyg_graph(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = torch.from_numpy(rng.integers(0, 3, 60))
    edges = torch.from_numpy(np.argwhere(rng.random((60, 60)) < 0.1).T)
    graph = Data(x=torch.nn.functional.one_hot(y, 3).float(), edge_index=edges, y=y)
    settings = [*SMALL, "model.width=32", "train.epochs=20", "train.lr=0.01", "model.local=gcn"]
    run = fit([graph], level="node", settings=settings, out=tmp_path / "run", **toy.QUIET)
    assert run.results["test"]["mean"] > 0.5
    assert run.predict([graph]).value.shape == (60, 3)
    some = run.embed([graph, graph.subgraph(torch.arange(7))])
    means = [some.nodes[:60].mean(axis=0), some.nodes[60:].mean(axis=0)]
    np.testing.assert_allclose(some.graphs, means, rtol=1e-4, atol=1e-5)


def test_wrong_names_and_options_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'zinc'"):
        fit("zinк", out=tmp_path / "run")
    with pytest.raises(ConfigError, match="smiles: not an option of the benchmark"):
        fit("pattern-sample", smiles="x", out=tmp_path / "run")
    with pytest.raises(InputError, match="expected PyG Data"):
        fit([3.0], out=tmp_path / "run")
    with pytest.raises(InputError, match="data: got NoneType, expected a path"):
        fit(None, out=tmp_path / "run")
    with pytest.raises(InputError, match="the DataFrame: say which column is to be learned"):
        fit(pd.DataFrame({"smiles": ["CCO"]}), out=tmp_path / "run")
    with pytest.raises(ConfigError, match=r"y: no option for a DataFrame; known: .*target"):
        fit(pd.DataFrame({"smiles": ["CCO"]}), y=[1], out=tmp_path / "run")
    with pytest.raises(InputError, match=r"nothing\.csv does not exist"):
        fit(Path("nothing.csv"), out=tmp_path / "run")
    with pytest.raises(ConfigError, match="modle: no option for these graphs"):
        fit(toy.some_graphs(), y=range(30), modle="gin", out=tmp_path / "run")
    graphs, scaffold = toy.some_graphs(), ["data.split=scaffold"]
    with pytest.raises(ConfigError, match="scaffold needs molecules"):
        fit(graphs, y=range(30), settings=scaffold, out=tmp_path / "run")
    with pytest.raises(ConfigError, match=r"^trials: got 2\.5, expected a whole number$"):
        fit(graphs, y=range(30), trials=2.5, out=tmp_path / "run")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^settings: got \('train.epochs', 1\), expected texts"):
        fit(graphs, y=range(30), settings=[("train.epochs", 1)], out=tmp_path / "run")  # type: ignore[list-item]
    with pytest.raises(ConfigError, match=r"^model: unknown name <class "):
        fit(graphs, y=range(30), model=Data, out=tmp_path / "run")  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_a_recipe_file_and_a_single_setting(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("base: own\nmodel: {layers: 1, width: 32}\n")
    run = fit(
        toy.some_graphs(),
        y=["a", "b", "c"] * 10,
        recipe=recipe,
        settings="train.epochs=1",
        out=tmp_path / "run",
        **toy.QUIET,
    )
    assert (run.recipe.model.config.width, run.recipe.train.epochs) == (32, 1)
    assert repr(run) == f"<Run {tmp_path / 'run'}: gradformer on own, 1 of 1 trials>"
    for ask in (run.predict, run.embed):
        with pytest.raises(ConfigError, match="batch_size: got 0"):
            ask(toy.some_graphs(), batch_size=0)
    with pytest.raises(ConfigError, match="did you mean 'val'"):
        run.evaluate(toy.some_graphs(), part="vl")


def test_embeddings_are_what_predictions_are_made_from(tmp_path: Path) -> None:
    settings = [*SMALL, "train.precision=bf16"]
    graphs, out = toy.some_graphs(), tmp_path / "run"
    run = fit(graphs, y=["a", "b", "c"] * 10, settings=settings, out=out, **toy.QUIET)
    embedded = torch.from_numpy(run.embed(graphs).graphs)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        logits = run.model(0).head.net(embedded)
    assert logits.float().softmax(1).numpy() == pytest.approx(run.predict(graphs).value, abs=1e-6)


def test_other_targets_than_those_that_were_learned_are_not_scored(tmp_path: Path) -> None:
    graphs, out = toy.some_graphs(), tmp_path / "run"
    run = fit(graphs, y=["a", "b", "c"] * 10, settings=SMALL, out=out, **toy.QUIET)
    other = pack(from_objects(graphs, y=[0.5 * k for k in range(30)]).arrays, run.structure)
    words = "are graph regression of width 1, the run has learned graph multiclass of width 3"
    with pytest.raises(InputError, match=words):
        run.evaluate(other)
    assert run.predict(other).value.shape == (30, 3)


def test_parts_that_are_named_are_not_drawn_as_well(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    parts = ["train", "val", "test"]
    lines = [f"{'C' * n},{n}.5,{parts[n % 3]}" for n in range(1, 31)]
    (tmp_path / "a.csv").write_text("\n".join(["smiles,y,part", *lines]))
    with pytest.raises(ConfigError, match=r"split_column: names the parts, and data\.split=random"):
        fit(
            tmp_path / "a.csv",
            **{"target": "y", "split_column": "part", "settings": ["data.split=random"]},
            out=tmp_path / "run",
        )
    assert not (tmp_path / "run").exists()


def test_names_of_targets_may_come_from_pandas_and_new_data_are_read_as_the_runs(
    tmp_path: Path,
) -> None:
    pytest.importorskip("rdkit")
    frame = pd.DataFrame({"smiles": ["C" * n for n in range(1, 31)], "y": np.arange(30) + 0.5})
    frame.to_csv(tmp_path / "a.csv", index=False)
    run = fit(
        tmp_path / "a.csv",
        target=frame.columns[1:],
        settings=["train.epochs=1", "model.layers=1"],
        out=tmp_path / "run",
        **toy.QUIET,
    )
    assert Run.load(run.folder).evaluate() == run.evaluate()
    with pytest.raises(ConfigError, match="target: new data are read as those of the run"):
        run.evaluate(frame.assign(z=frame.y + 1000), target="z")


def test_folds_that_would_count_more_than_others_are_refused(tmp_path: Path) -> None:
    graphs = toy.some_graphs(40)
    given = {"y": [len(g) % 2 for g in graphs], "settings": [*SMALL, "data.split=kfold"]}
    with pytest.raises(ConfigError, match=r"trials: got 12, .* 2 of them .*; take 10 or 20"):
        fit(graphs, **given, trials=12, out=tmp_path / "run", **toy.QUIET)
    assert not (tmp_path / "run").exists()
    run = fit(graphs, **given, trials=1, out=tmp_path / "run", **toy.QUIET)
    with pytest.raises(ConfigError, match=r"got 23, .* 3 of them .*; take 20 or 30"):
        resume(run.folder, graphs, y=given["y"], trials=23, **toy.QUIET)
    assert Run.load(run.folder).recipe.trials == 1
