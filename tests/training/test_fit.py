"""From names, files and objects to runs; what is shown and written on the way."""

from __future__ import annotations

import errno
import io
import json
import re
import signal
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console
from torch_geometric.data import Data

from gradformer.errors import ConfigError, GradformerWarning, InputError
from gradformer.graphs.objects import from_objects, from_smiles_list
from gradformer.graphs.own import read
from gradformer.graphs.store import pack
from gradformer.training.data import TrainingData, own_data
from gradformer.training.fit import fit, resume
from gradformer.training.loop import Stop, train
from gradformer.training.progress import Display
from gradformer.training.recipe import load_recipe
from gradformer.training.records import Recorder
from gradformer.training.run import Run
from gradformer.training.trial import Trial
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


def some_graphs(count: int = 30) -> list[nx.Graph]:
    rng = np.random.default_rng(0)
    return [nx.gnp_random_graph(int(n), 0.5, seed=int(n)) for n in rng.integers(3, 9, count)]


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


def test_a_benchmark_of_one_graph_is_split_by_nodes(data_mirror: Path, tmp_path: Path) -> None:
    settings = [*SMALL[:2], "model.heads=1", "train.epochs=1", "model.attention_dropout=0"]
    out = tmp_path / "run"
    run = fit("cora", settings=settings, trials=1, mirror=data_mirror, out=out, **toy.QUIET)
    share = run.results["test"]["mean"] * 1000  # of 1,000 nodes
    assert 0 < share < 1000
    assert share == pytest.approx(round(share))


def test_networkx_graphs_with_a_regression(tmp_path: Path) -> None:
    graphs = some_graphs()
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
    assert resume(run.folder, graphs, y=y, trials=2, **toy.QUIET).trials == [0, 1]
    for data in (from_objects(graphs, y=y), toy.data()):
        with pytest.raises(ConfigError, match="trails: not an option of data that are read"):
            fit(data, trails=3, out=tmp_path / "new", **toy.QUIET)


def test_a_file_of_graphs_and_its_resumption(tmp_path: Path) -> None:
    path = tmp_path / "graphs.jsonl"
    lines = [
        {"num_nodes": len(g), "edges": list(g.edges), "y": "even" if len(g) % 2 else "odd"}
        for g in some_graphs()
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    settings = [*SMALL, "data.split=stratified"]
    run = fit(str(path), settings=settings, out=tmp_path / "run", **toy.QUIET)
    assert run.reading is not None
    assert run.reading.labels.classes == (("even", "odd"),)
    assert resume(tmp_path / "run", **toy.QUIET).results == run.results
    with pytest.raises(ConfigError, match=r"trials: got 0, and .*run has 1: seeds can on"):
        resume(tmp_path / "run", trials=0, **toy.QUIET)
    grown = resume(tmp_path / "run", trials=2, **toy.QUIET)
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
    graphs = some_graphs()
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


def test_what_cannot_be_learned_or_scored_is_said_before_training(tmp_path: Path) -> None:
    parts = [(n, ["train", "val", "test"][n % 3 - 1]) for n in range(1, 31)]
    empty = [n + 0.5 if part == "train" else "" for n, part in parts]
    same = ["a" if part == "train" else "ab"[n % 2] for n, part in parts]
    for name, y in {"empty": empty, "same": same}.items():
        lines = [f"{'C' * n},{target},{part}" for (n, part), target in zip(parts, y)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["smiles,y,part", *lines]))
    one_class = read(tmp_path / "same.csv", split_column="part")
    recipe = load_recipe("own")
    for data, message in (
        (from_smiles_list(["C", "CC"], y=[1.5, 1.5]), "target 'y' is always 1.5, so nothing"),
        (from_smiles_list(["C", "CC"], y=[1.5, 2.0]), "left for val of 2 graphs with labels"),
        (read(tmp_path / "empty.csv", split_column="part"), "of the val part has a label"),
        (one_class, "all labels of the train part are the same"),
    ):
        with pytest.raises(InputError, match=message):
            own_data(recipe, data)
    own_data(recipe, one_class, begun=True)  # it was not always refused


def test_a_run_that_was_begun_with_a_target_of_one_value_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs = some_graphs()
    y = [[len(g) + 0.5, 1.5] for g in graphs]
    with monkeypatch.context() as before:
        before.setattr("gradformer.training.data._refuse_constants", lambda user: None)
        fit(graphs, y=y, settings=SMALL, out=tmp_path / "run", **toy.QUIET)
    again = from_objects(graphs, y=y)
    assert resume(tmp_path / "run", again, trials=2, **toy.QUIET).trials == [0, 1]
    with pytest.raises(InputError, match=r"'y\[1\]' is always 1.5"):
        fit(again, settings=SMALL, out=tmp_path / "new", **toy.QUIET)


@pytest.mark.parametrize("copy", ["{}O", "O{}"])
def test_molecules_of_both_training_and_test_are_told(copy: str) -> None:
    chains = ["C" * n for n in range(1, 16)]
    words = [f"{chain}O" for chain in chains] + [copy.format(chain) for chain in chains]
    data = from_smiles_list(words, y=[len(word) + 0.5 for word in words])
    with pytest.warns(GradformerWarning, match=r"of 3 test molecules .* \(the first: position"):
        own_data(load_recipe("own"), data)
    isomers = from_smiles_list([f"C{c}O" for c in chains] + [f"{c}OC" for c in chains], y=data.rows)
    own_data(load_recipe("own"), isomers)  # tells nothing


def test_a_class_that_is_too_rare_to_be_tested_is_told() -> None:
    graphs = some_graphs(65)
    y = ["odd" if k % 2 else "even" for k in range(60)] + ["rare"] * 5
    data = from_objects(graphs, y=y)
    with pytest.warns(GradformerWarning, match="class 'rare': nothing of it is in the test part"):
        own_data(load_recipe("own"), data)
    folds = load_recipe("own", settings=["data.split=kfold", "trials=10"])
    own_data(folds, data)  # tells nothing: every row is tested


def test_a_graph_that_is_too_large_is_named_as_in_the_file(tmp_path: Path) -> None:
    sizes = [4, 5, 40_000, 6]
    lines = [json.dumps({"num_nodes": n, "edges": [[0, 1]], "y": n + 0.5}) for n in sizes]
    (tmp_path / "graphs.jsonl").write_text("\n".join(lines))
    with pytest.raises(InputError, match=r"^line 3 has 40,000 nodes"):
        own_data(load_recipe("own"), read(tmp_path / "graphs.jsonl"))


def test_attributes_that_no_model_sees_are_told() -> None:
    graphs = some_graphs()
    nx.set_node_attributes(graphs[3], 1.5, "charge")
    data = from_objects(graphs, y=[len(g) + 0.5 for g in graphs])
    with pytest.warns(GradformerWarning, match="not used: charge of nodes; a model sees x of"):
        own_data(load_recipe("own"), data)


def test_ten_folds_test_every_graph_once() -> None:
    graphs = some_graphs(40)
    for y in ([len(g) % 2 for g in graphs], [0.5 + len(g) for g in graphs]):
        recipe = load_recipe("own", settings=["data.split=kfold", "seed=3", "trials=10"])
        data = own_data(recipe, from_objects(graphs, y=y))
        folds = [data.split(3 + trial) for trial in range(10)]
        tested = np.concatenate([fold.test for fold in folds])
        assert sorted(tested) == list(range(40))
        for fold, following in zip(folds, [*folds[1:], folds[0]]):
            np.testing.assert_array_equal(fold.val, following.test)
            assert len({*fold.train, *fold.val, *fold.test}) == 40


def test_nodes_of_one_pyg_graph(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = torch.from_numpy(rng.integers(0, 3, 60))
    edges = torch.from_numpy(np.argwhere(rng.random((60, 60)) < 0.1).T)
    graph = Data(x=torch.nn.functional.one_hot(y, 3).float(), edge_index=edges, y=y)
    settings = [*SMALL, "model.width=32", "train.epochs=20", "train.lr=0.01", "model.local=gcn"]
    run = fit([graph], level="node", settings=settings, out=tmp_path / "run", **toy.QUIET)
    assert run.results["test"]["mean"] > 0.5
    assert run.predict([graph]).value.shape == (60, 3)


def test_wrong_names_and_options_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'zinc'"):
        fit("zinк", out=tmp_path / "run")
    with pytest.raises(ConfigError, match="smiles: not an option of the benchmark"):
        fit("pattern-sample", smiles="x", out=tmp_path / "run")
    with pytest.raises(InputError, match="expected PyG Data"):
        fit([3.0], out=tmp_path / "run")
    with pytest.raises(InputError, match="data: got NoneType, expected a path"):
        fit(None, out=tmp_path / "run")
    with pytest.raises(InputError, match="data: got DataFrame, expected a path"):
        fit(pd.DataFrame({"smiles": ["CCO"]}), out=tmp_path / "run")
    with pytest.raises(InputError, match=r"nothing\.csv does not exist"):
        fit(Path("nothing.csv"), out=tmp_path / "run")
    with pytest.raises(ConfigError, match="modle: no option for these graphs"):
        fit(some_graphs(), y=range(30), modle="gin", out=tmp_path / "run")
    graphs, scaffold = some_graphs(), ["data.split=scaffold"]
    with pytest.raises(ConfigError, match="scaffold needs molecules"):
        fit(graphs, y=range(30), settings=scaffold, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_recipe_file_and_a_single_setting(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("base: own\nmodel: {layers: 1, width: 32}\n")
    run = fit(
        some_graphs(),
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
            ask(some_graphs(), batch_size=0)
    with pytest.raises(ConfigError, match="did you mean 'val'"):
        run.evaluate(some_graphs(), part="vl")


def trained(console: Console, epochs: int = 3) -> Trial:
    recipe = toy.RECIPE.change(f"train.epochs={epochs}")
    data: TrainingData = toy.data(recipe)
    trial = Trial(0, recipe, data, data.collator("cpu"))
    with Display([trial], console=console) as display:
        train([trial], display.epoch, Stop())
    return trial


def test_plain_lines_where_there_is_no_terminal() -> None:
    text = io.StringIO()
    trained(Console(file=text, force_terminal=False))
    lines = text.getvalue().splitlines()
    assert lines[0].startswith("trial 0  epoch 1/3  loss ")
    assert "graphs/s" in lines[0]
    assert lines[0].endswith("left")
    assert lines[-1].startswith("trial 0  epoch 3/3")
    assert "\x1b" not in text.getvalue()


def test_lines_that_a_full_disk_refuses_end_no_training() -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    assert trained(Console(file=Full())).progress.status == "finished"


def test_a_terminal_that_ends_may_say_so_twice() -> None:
    with Stop().listening() as stop:
        for _ in range(2):
            signal.raise_signal(signal.SIGHUP)
        assert stop.agreed()


def test_under_nohup_the_end_of_a_terminal_is_nothing() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Stop().listening() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop.agreed()
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(("width", "bar"), [(150, True), (80, False)])
def test_bars_in_a_terminal(width: int, bar: bool) -> None:
    text = io.StringIO()
    trained(Console(file=text, force_terminal=True, width=width))
    shown = re.sub(r"\x1b\[[\d;?]*\w", "", text.getvalue())
    values = r"\d:\d\d:\d\d \d:\d\d:\d\d loss [\d.]+  val accuracy [\d.]+ \(best [\d.]+\)"
    assert re.search(rf"3/3 {values}", shown)
    assert ("━" in shown) == bar


def test_curves_for_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    recorder = Recorder(tmp_path / "record.jsonl", tensorboard=True)
    for epoch in (1, 2):
        values = {"epoch": epoch, "loss": 0.5, "val": {"mae": 0.25}, "starts": [[2.0, 3.0]]}
        recorder.epoch(0, values)
    recorder.close()
    events = EventAccumulator(str(tmp_path / "tensorboard" / "trial-0"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("val/mae")] == [(1, 0.25), (2, 0.25)]
    assert [e.value for e in events.Scalars("start/0/1")] == [3.0, 3.0]


def test_bfloat16_trains_too() -> None:
    recipe = toy.RECIPE.change("train.precision=bf16")
    data = toy.data(recipe)
    trial = Trial(0, recipe, data, data.collator("cpu"))
    train([trial], lambda *_: None, Stop())
    assert trial.progress.status == "finished"
    assert trial.weights.vector.dtype == torch.float32


def test_embeddings_are_what_predictions_are_made_from(tmp_path: Path) -> None:
    settings = [*SMALL, "train.precision=bf16"]
    graphs, out = some_graphs(), tmp_path / "run"
    run = fit(graphs, y=["a", "b", "c"] * 10, settings=settings, out=out, **toy.QUIET)
    embedded = torch.from_numpy(run.embed(graphs).graphs)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        logits = run.model(0).head.net(embedded)
    assert logits.float().softmax(1).numpy() == pytest.approx(run.predict(graphs).value, abs=1e-6)


def test_other_targets_than_those_that_were_learned_are_not_scored(tmp_path: Path) -> None:
    graphs, out = some_graphs(), tmp_path / "run"
    run = fit(graphs, y=["a", "b", "c"] * 10, settings=SMALL, out=out, **toy.QUIET)
    other = pack(from_objects(graphs, y=[0.5 * k for k in range(30)]).arrays, run.structure)
    words = "are graph regression of width 1, the run has learned graph multiclass of width 3"
    with pytest.raises(InputError, match=words):
        run.evaluate(other)
    assert run.predict(other).value.shape == (30, 3)
