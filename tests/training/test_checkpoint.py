"""Checkpoints: what is kept, and files that do not fit named in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gradformer.errors import InputError
from gradformer.graphs.arrays import Schema
from gradformer.graphs.batch import Batch
from gradformer.model.base import MODELS, GraphModel, ModelConfig
from gradformer.model.encoders import FeatureEncoder
from gradformer.model.heads import Head
from gradformer.training import checkpoint
from gradformer.training.capture import _undone
from gradformer.training.checkpoint import load_checkpoint, save_checkpoint
from gradformer.training.loop import Stop, train_epoch
from gradformer.training.recipe import ModelChoice
from tests.training import toy


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda state: state.pop("sha256"), "missing or unknown: sha256"),
        (lambda state: state.pop("progress"), "progress.best, progress.best_epoch, progress.epoch"),
        (lambda state: state["progress"].pop("status"), "missing or unknown: progress.status"),
        (lambda state: state["progress"].update(mood=1), "missing or unknown: progress.mood"),
        (lambda state: state.update(progress=[]), "not the state of a trial"),
        (lambda state: state.update(format=0), "format 0, this version reads 1"),
        (lambda state: state.update(seed=5), "of seed 5, expected 0"),
    ],
)
def test_a_state_of_another_kind_is_one_line(
    change: Callable[[dict[str, Any]], object], words: str, tmp_path: Path
) -> None:
    trial = toy.trial()
    save_checkpoint(tmp_path, trial)
    (path,) = (tmp_path / "checkpoints").glob("*/state.json")
    state = json.loads(path.read_text())
    change(state)
    path.write_text(json.dumps(state))
    with pytest.raises(InputError, match=f"^{path}: .*{words}.*; restore the file, or remove"):
        load_checkpoint(tmp_path, trial)


def test_a_checkpoint_of_another_model_is_one_line(tmp_path: Path) -> None:
    one, other = toy.trial(), toy.trial(toy.RECIPE.change("model.width=24"))
    save_checkpoint(tmp_path, one)
    with pytest.raises(InputError, match=r"safetensors: weights/.* is shaped \[.*, expected \["):
        load_checkpoint(tmp_path, other)
    save_checkpoint(tmp_path / "plain", toy.trial(toy.RECIPE.change("train.ema=0")))
    with pytest.raises(InputError, match=r"safetensors: average/.* is missing, expected \["):
        load_checkpoint(tmp_path / "plain", one)


@pytest.mark.parametrize(
    ("file", "words"),
    [("*/state.json", "not the state of a trial"), ("latest", "cannot be read .Is a directory.")],
)
def test_a_file_of_another_kind_is_one_line(file: str, words: str, tmp_path: Path) -> None:
    save_checkpoint(tmp_path, toy.trial())
    (path,) = (tmp_path / "checkpoints").glob(file)
    path.unlink()
    path.write_text("[]") if path.suffix else path.mkdir()
    with pytest.raises(InputError, match=f"^{path}: {words}; restore the file, or remove"):
        load_checkpoint(tmp_path, toy.trial())


@pytest.mark.parametrize("damaged", [b"", b"epoch-00000-st\xe5p-0\n", b"epoch\0", b"epoch-00009\n"])
def test_a_pointer_that_names_nothing_says_how_to_mend_it(damaged: bytes, tmp_path: Path) -> None:
    """Nothing but the pointer is lost; it was called a bug, or the whole run damaged."""
    save_checkpoint(tmp_path, toy.trial())
    pointer = tmp_path / "checkpoints" / "latest"
    (folder,) = (path for path in pointer.parent.iterdir() if path.is_dir())
    pointer.write_bytes(damaged)
    words = f"^{pointer}: names no checkpoint; write the name of the folder beside it into it, or "
    with pytest.raises(InputError, match=words):
        load_checkpoint(tmp_path, toy.trial())
    pointer.write_text(folder.name)
    assert load_checkpoint(tmp_path, toy.trial())


def test_a_folder_that_is_moved_while_it_is_tidied_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    monkeypatch.setattr(
        checkpoint, "replace_file", lambda *_: folder.rename(tmp_path / "elsewhere")
    )
    words = r"checkpoints: cannot be written \(No such file .*--resume"
    with pytest.raises(InputError, match=words):
        save_checkpoint(folder, toy.trial())


def test_a_checkpoint_that_is_there_is_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To be stopped right after it was saved: for a moment there was none to continue from."""
    save_checkpoint(tmp_path, toy.trial())
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: pytest.fail("it is removed"))
    save_checkpoint(tmp_path, toy.trial())


def test_the_batches_that_a_norm_of_torch_has_seen_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's model may have one; with momentum None it forgot all that it had seen before. Nor
    may it count a step that is undone, as one before a CUDA graph is recorded, or keep a flag that
    is down in a checkpoint as it was at first."""

    class Normed(GraphModel):
        Config = ModelConfig

        def __init__(self, schema: Schema, config: Any = None, **options: Any) -> None:
            super().__init__(schema, config, options)
            self.node = FeatureEncoder(schema.node, 8)
            self.norm = torch.nn.BatchNorm1d(8, momentum=None)
            self.register_buffer("is_new", torch.tensor(True))
            self.head = Head(8, schema.outputs, schema.level)

        def states(self, batch: Batch) -> torch.Tensor:
            self.is_new &= False
            normed: torch.Tensor = self.norm(self.node(batch))
            return normed

    monkeypatch.setitem(MODELS, "normed", Normed)
    recipe = replace(toy.RECIPE, model=ModelChoice("normed", ModelConfig()))
    one, other = toy.trial(recipe), toy.trial(recipe)
    with _undone(one.step.state):
        one.step(one.batches()[0])
    train_epoch([one], Stop())
    save_checkpoint(tmp_path, one)
    load_checkpoint(tmp_path, other)
    assert not other.model.state_dict()["is_new"]
    assert int(other.model.state_dict()["norm.num_batches_tracked"]) == one.steps_per_epoch
    for trial in (one, other):
        trial.losses = []
        train_epoch([trial], Stop())
    for name, value in one.model.state_dict().items():
        assert torch.equal(value, other.model.state_dict()[name]), name


def test_a_checkpoint_that_cannot_be_written_says_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / ".latest.unfinished").mkdir(parents=True)
    with pytest.raises(InputError, match=r"latest: cannot be written .* --resume \(from the last"):
        save_checkpoint(tmp_path, toy.trial())
