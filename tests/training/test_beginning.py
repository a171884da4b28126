"""Fine-tuning: which weights a trial begins with, and what does not fit."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gradformer.errors import ConfigError, InputError
from gradformer.graphs.arrays import Task
from gradformer.training.beginning import begin_from, take_weights
from gradformer.training.export import export
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


def test_what_does_not_fit_is_said_before_a_folder_is_made(source: Run, tmp_path: Path) -> None:
    def refused(expected: type[Exception], match: str, **options: object) -> None:
        given: dict[str, Any] = {"weights": source.folder, "out": tmp_path / "out", **options}
        with pytest.raises(expected, match=match):
            fit(toy.some_graphs(), y=[0.5 * k for k in range(30)], **given)
        assert not (tmp_path / "out").exists()

    refused(InputError, "knows nodes .* and edges .*, and the data have .*same features")
    refused(ConfigError, "bring their model; leave out model gin", model="gin")
    refused(InputError, "train.weights: .*gone: not a run", weights=tmp_path / "gone")
    wide = toy.RECIPE.change(*begin_from(source.folder), "model.width=32")
    with pytest.raises(ConfigError, match=r"has another shape .*leave model"):
        toy.trial(wide)


def test_a_model_that_has_another_shape_for_nodes_says_so(tmp_path: Path) -> None:
    recipe = SHORT.change("model.name=graphtrans", "trials=1")
    run = fit(toy.data(recipe), recipe=recipe, out=tmp_path / "graphs", **toy.QUIET)
    model = run.recipe.model.make(replace(run.schema, level="node"), run.codebook)
    with pytest.raises(
        ConfigError, match=r"another shape \(.*\); it is one of graphs: begin from a run on n"
    ):
        take_weights(model, str(run.folder), 0)
