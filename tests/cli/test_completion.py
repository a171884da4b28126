"""What a TAB offers, asked for as the shell asks: through the environment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gradformer.cli.app import app
from gradformer.cli.complete import model_names
from gradformer.cli.reproduce import NAMES
from gradformer.graphs.cards import card_names
from gradformer.model.base import all_models
from gradformer.recipes import recipe_names
from gradformer.studies import STUDIES


def offered(line: str) -> list[str]:
    """The words for the last, unfinished word of a line."""
    words = line.split(" ")
    asked = {"_GRADFORMER_COMPLETE": "complete_bash", "COMP_WORDS": line}
    asked["COMP_CWORD"] = str(len(words) - 1)
    result = CliRunner().invoke(app, [], prog_name="gradformer", env=asked)
    assert result.exit_code == 0, result.output
    return result.stdout.split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("gradformer tr", {"train"}),
        ("gradformer train mut", {"mutag"}),
        ("gradformer train cluster", {"cluster", "cluster-16"}),
        ("gradformer train zinc --model gra", {"gradformer", "graphgps", "graphormer"}),
        ("gradformer train zinc --preset pap", {"paper"}),
        ("gradformer train x --split sca", {"scaffold"}),
        ("gradformer data info z", {"zinc"}),
        ("gradformer models gi", {"gin"}),
        ("gradformer search nci", {"nci1"}),
        ("gradformer evaluate run --on zi", {"zinc"}),
        ("gradformer evaluate run --part v", {"val"}),
        ("gradformer reproduce low", {"low-resource"}),
        ("gradformer reproduce table1 --dataset mut", {"mutag"}),
    ],
)
def test_names_are_offered(
    line: str, words: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = offered(line)
    assert words <= set(found)
    assert all(word.startswith(line.split(" ")[-1]) for word in found)


def test_files_are_offered_beside_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    for name in ("molecules.csv", "mine/more.csv", ".hidden"):
        (tmp_path / name).touch()
    assert offered("gradformer train mole") == ["molecules.csv"]
    assert offered("gradformer train mol") == ["molhiv", "molecules.csv"]
    assert offered("gradformer train min") == ["mine/"]
    assert offered("gradformer predict run mine/") == ["mine/more.csv"]
    assert ".hidden" not in offered("gradformer train ")
    assert offered("gradformer train .hi") == [".hidden"]
    assert "/dev/" in offered("gradformer train /de")
    assert offered(f"gradformer train {tmp_path}/mol") == [f"{tmp_path}/molecules.csv"]
    assert offered("gradformer train nowhere/") == []


def test_the_names_are_those_of_the_package() -> None:
    known = {n for n, m in all_models().items() if "gradformer" in m.__module__}
    assert set(model_names()) == known
    assert set(NAMES) == STUDIES.keys()
    assert set(card_names()) <= set(recipe_names())


def test_no_one_waits_for_torch() -> None:
    code = "import sys, gradformer.cli.complete as c; c.model_names(); c.data_names(''); "
    code += "assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
