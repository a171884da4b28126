"""Checkpoints: what is kept, and files that do not fit named in one line."""

from __future__ import annotations

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
from gradformer.training.epochs import train_epoch
from gradformer.training.recipe import ModelChoice
from gradformer.training.stop import Stop
from tests.training import toy


def test_a_checkpoint_of_another_version_or_seed_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / checkpoint.FILE
    with monkeypatch.context() as before:
        before.setattr(checkpoint, "FORMAT", 1)
        save_checkpoint(tmp_path, toy.trial())
    with pytest.raises(InputError, match=f"^{path}: of format 1, expected 2; restore the file, or"):
        load_checkpoint(tmp_path, toy.trial())
    save_checkpoint(tmp_path, toy.trial(toy.RECIPE.change("seed=5")))
    with pytest.raises(InputError, match=f"^{path}: of seed 5, expected 0; restore the file, or"):
        load_checkpoint(tmp_path, toy.trial())


def test_a_folder_of_an_earlier_version_is_not_passed_over(tmp_path: Path) -> None:
    """The trial would begin anew, and its checkpoints be lost."""
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(InputError, match="checkpoints: an earlier version of gradformer wrote it;"):
        load_checkpoint(tmp_path, toy.trial())


def test_a_checkpoint_of_another_model_is_one_line(tmp_path: Path) -> None:
    one, other = toy.trial(), toy.trial(toy.RECIPE.change("model.width=24"))
    save_checkpoint(tmp_path, one)
    with pytest.raises(InputError, match=r"safetensors: weights/.* is shaped \[.*, expected \["):
        load_checkpoint(tmp_path, other)
    save_checkpoint(tmp_path / "plain", toy.trial(toy.RECIPE.change("train.ema=0")))
    with pytest.raises(InputError, match=r"safetensors: average/.* is missing, expected \["):
        load_checkpoint(tmp_path / "plain", one)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda whole: whole[:-1], r"damaged \(.*\)"),
        (lambda whole: b"", r"damaged \(.*\)"),
        (lambda whole: whole.replace(b'"epoch": 0', b'"epoch": 1'), "damaged, its checksum"),
        (lambda whole: whole[:-1] + bytes([whole[-1] ^ 1]), "damaged, its checksum"),
        (lambda whole: whole.replace(b'"sha256"', b'"sha255"'), "damaged, its checksum"),
    ],
)
def test_a_damaged_checkpoint_is_one_line(
    damage: Callable[[bytes], bytes], words: str, tmp_path: Path
) -> None:
    save_checkpoint(tmp_path, toy.trial())
    path = tmp_path / checkpoint.FILE
    before = path.read_bytes()
    path.write_bytes(damage(before))
    assert path.read_bytes() != before
    with pytest.raises(InputError, match=f"^{path}: {words}.*; restore the file, or remove it"):
        load_checkpoint(tmp_path, toy.trial())


def test_a_checkpoint_that_is_no_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / checkpoint.FILE).mkdir()
    with pytest.raises(InputError, match=r"cannot be read .Is a directory.; restore the file, or"):
        load_checkpoint(tmp_path, toy.trial())


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
    (tmp_path / f".{checkpoint.FILE}.unfinished").mkdir()
    words = r"checkpoint\.safetensors: cannot be written .* --resume \(from the last"
    with pytest.raises(InputError, match=words):
        save_checkpoint(tmp_path, toy.trial())
