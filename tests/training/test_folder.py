"""The folder of a run: nobody's work is lost, however a new run there begins or fails to."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from gradformer.errors import ConfigError, InputError
from gradformer.training import fit as fitting
from gradformer.training.fit import fit, resume
from gradformer.training.folder import check_free, filling, held
from gradformer.training.run import Run
from tests.training import toy

SMALL = toy.RECIPE.change("model.layers=1", "train.epochs=1")
OTHER = SMALL.change("train.epochs=2")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    fit(toy.data(SMALL), recipe=SMALL, out=folder, **toy.QUIET)
    return folder


@pytest.fixture
def old(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def test_a_run_in_training_is_not_overwritten(old: Path) -> None:
    before = toy.contents(old)
    with held(old), pytest.raises(InputError, match="another process is at work there"):
        fit(toy.data(SMALL), recipe=SMALL, out=old, overwrite=True, **toy.QUIET)
    assert toy.contents(old) == before


@pytest.mark.parametrize(
    ("setting", "task"),
    [
        ("train.select=mae", "multiclass"),
        ("train.loss=l1", "multiclass"),
        ("train.class_weights=batch", "regression"),
        ("train.class_weights=balanced", "regression"),
    ],
)
def test_options_that_do_not_fit_touch_no_folder(setting: str, task: str, old: Path) -> None:
    before, recipe = toy.contents(old), SMALL.change(setting)
    for folder in (old, old.parent / "new"):
        with pytest.raises(ConfigError, match=setting.split("=")[0]):
            fit(toy.data(recipe, task=task), recipe=recipe, out=folder, overwrite=True, **toy.QUIET)
    assert toy.contents(old) == before
    assert not (old.parent / "new").exists()


def test_a_run_that_cannot_begin_leaves_the_old_one(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path, *_: object) -> None:
        (folder / "half").touch()
        raise InputError("the disk is full")

    before = toy.contents(old)
    (old / ".unfinished").mkdir()  # by a process that was killed before it tidied
    (old / ".unfinished" / "older").touch()
    with pytest.raises(InputError, match="exists already"):
        fit(toy.data(OTHER), recipe=OTHER, out=old, **toy.QUIET)
    with monkeypatch.context() as patch:
        patch.setattr(fitting, "save_examples", full)
        with pytest.raises(InputError, match="is full"):
            fit(toy.data(OTHER), recipe=OTHER, out=old, overwrite=True, **toy.QUIET)
    assert toy.contents(old) == before
    assert not (old / ".unfinished").exists()
    assert fit(toy.data(OTHER), recipe=OTHER, out=old, overwrite=True, **toy.QUIET).recipe == OTHER
    assert not (old / ".unfinished").exists()


def test_a_run_of_which_a_part_cannot_be_moved_stays(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a folder in it that may not be written to: its recipe was gone, and then the rest."""
    before, rename = toy.contents(old), Path.rename

    def refuse(path: Path, target: Path) -> Path:
        if path.name == "trials":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    words = r"/run: cannot be written \(Permission denied\); make room or mend the permissions"
    with pytest.raises(InputError, match=words):
        fit(toy.data(OTHER), recipe=OTHER, out=old, overwrite=True, **toy.QUIET)
    assert toy.contents(old) == before
    assert not (old / ".unfinished").exists()


def test_a_disk_that_turns_read_only_while_a_run_begins_is_what_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it could not be tidied either was said in its place, as a bug."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "unlink", refuse)
    monkeypatch.setattr(Path, "replace", refuse)
    words = r"data.json: cannot be written \(Read-only file system\); make room or mend"
    with pytest.raises(InputError, match=words):
        fit(toy.data(SMALL), recipe=SMALL, out=tmp_path / "run", **toy.QUIET)
    monkeypatch.undo()
    assert fit(toy.data(SMALL), recipe=SMALL, out=tmp_path / "run", **toy.QUIET).trials == [0]


def test_a_run_that_another_process_has_made_meanwhile_stays(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, prepare = tmp_path / "run", fitting.prepare

    def meanwhile(*arguments: Any) -> Any:
        shutil.copytree(finished, folder)
        return prepare(*arguments)

    monkeypatch.setattr(fitting, "prepare", meanwhile)
    with pytest.raises(InputError, match="exists already"):
        fit(toy.data(OTHER), recipe=OTHER, out=folder, **toy.QUIET)
    assert toy.contents(folder) == toy.contents(finished)


@pytest.mark.parametrize("last", ["save_examples", "replace_file", "filling", "_train"])
def test_killed_while_beginning_there_is_the_old_run_or_the_new_one(
    last: str, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends where it would call ``last``; before ``_train`` the new run has begun."""

    def begin() -> None:
        monkeypatch.setattr(fitting, last, lambda *_: os._exit(9))
        fit(toy.data(OTHER), recipe=OTHER, out=old, overwrite=True, **toy.QUIET)

    before = toy.contents(old)
    process = toy.FORK.Process(target=begin)
    process.start()
    process.join()
    assert process.exitcode == 9
    if last == "_train":
        assert resume(old, toy.data(OTHER), **toy.QUIET).recipe == OTHER
    else:
        assert resume(old, toy.data(SMALL), **toy.QUIET).recipe == SMALL
        assert toy.contents(old) == before
    assert not (old / ".unfinished").exists()


@pytest.mark.parametrize("moved", [0, 1, 3, 6, 7])
def test_killed_between_two_runs_a_plain_start_works(
    moved: int, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends when so many files of the old run, or then of the new, have their places."""
    names, rename = iter(range(100)), Path.rename

    def counted(path: Path, target: Path) -> Path:
        if not path.name.startswith(".") and next(names) == moved:
            os._exit(9)
        return rename(path, target)

    def begin() -> None:
        monkeypatch.setattr(Path, "rename", counted)
        fit(toy.data(OTHER), recipe=OTHER, out=old, overwrite=True, **toy.QUIET)

    process = toy.FORK.Process(target=begin)
    process.start()
    process.join()
    assert process.exitcode == 9
    assert fit(toy.data(OTHER), recipe=OTHER, out=old, overwrite=moved == 0, **toy.QUIET).trials
    assert not (old / ".unfinished").exists()
    assert len(Run.load(old).results["test"]["values"]) == 1


def test_only_what_a_run_left_counts_as_nothing(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "mine").touch()
    (tmp_path / "data.json").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(InputError, match="exists already and is not a run; choose another fol"):
            fit(toy.data(SMALL), recipe=SMALL, out=tmp_path, overwrite=overwrite, **toy.QUIET)
    assert (tmp_path / "data.json").read_text() == "mine"
    for left in (".lock", ".unfinished"):  # either may be another program's
        (tmp_path / left).mkdir()
        with pytest.raises(InputError, match="exists already"):
            fit(toy.data(SMALL), recipe=SMALL, out=tmp_path, **toy.QUIET)
        (tmp_path / left).rmdir()
    (tmp_path / ".lock").touch()
    (tmp_path / ".unfinished").mkdir()
    (tmp_path / "examples").symlink_to(elsewhere)
    fit(toy.data(SMALL), recipe=SMALL, out=tmp_path, **toy.QUIET)
    assert not [*tmp_path.glob(".unfinished")]
    assert [*elsewhere.iterdir()] == [elsewhere / "mine"]


def test_a_new_folder_may_be_empty_or_deep_but_no_file(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    check_free(tmp_path / "empty", overwrite=False)
    with held(tmp_path / "very" / "deep"):
        check_free(tmp_path / "very" / "deep", overwrite=False)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file: exists already and is not a run; choose"):
        check_free(tmp_path / "file", overwrite=False)


def test_a_folder_counts_as_a_run_only_while_it_is_whole(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recipe, which decides that, leaves first and comes back last."""
    moved: list[str] = []
    rename = Path.rename

    def noted(path: Path, target: Path) -> Path:
        moved.append(path.name)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", noted)
    with filling(old) as new:
        for name in ("data.json", "recipe.yaml", "examples"):
            (new / name).touch()
        assert not moved
    assert moved[0] == moved[-1] == "recipe.yaml"
    assert len(moved) > 6
    assert {path.name for path in old.iterdir()} == {".lock", *moved[-3:]}
