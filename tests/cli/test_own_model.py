"""A model in a file of the user's own, named by a variable, is known to the program."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gradformer.model.base import all_models
from tests.cli.conftest import Program
from tests.conftest import ROOT


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradformer.model.base.MODELS", dict(all_models()))


def test_the_model_of_the_documentation_is_trained_and_opened_again(
    program: Program, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "adding-a-model.md").read_text(encoding="utf-8")
    (tmp_path / "tiny.py").write_text(page.split("```python\n")[1].split("```")[0])
    (tmp_path / "empty.py").touch()
    names = [tmp_path / "empty.py", tmp_path / "tiny.py"]
    run = tmp_path / "run"
    words = ("train", files / "graphs.jsonl", "--model", "tiny", "-q", "-n", "1", "-o", run)
    said = program(*words, code=1).output
    assert "unknown name 'tiny'" in said
    assert "name its file in GRADFORMER_MODELS" in said
    monkeypatch.setenv("GRADFORMER_SMOKE", "1")
    monkeypatch.setenv("GRADFORMER_MODELS", os.pathsep.join(map(str, names)))
    assert "tiny on" in program(*words).stdout
    assert "accuracy" in program("evaluate", run).stdout
    assert "residual" in program("models", "tiny").stdout


@pytest.mark.parametrize(
    ("text", "says"),
    [(None, "wrong.py is no Python file"), ("import nothing_here", "imported (ModuleNotFound")],
)
def test_a_file_that_cannot_be_imported_is_named(
    text: str | None,
    says: str,
    program: Program,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if text is not None:
        (tmp_path / "wrong.py").write_text(text)
    monkeypatch.setenv("GRADFORMER_MODELS", str(tmp_path / "wrong.py"))
    assert says in program("models", code=1).output.replace("\n", "")
