"""How tables and lines look in a pipe, and in a terminal."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from gradformer.cli.search import _show_levers, _tell
from gradformer.cli.tables import fact_table, plain_table, show, show_rows
from gradformer.training.attempts import Attempt
from gradformer.training.plan import Plan
from gradformer.training.recipe import load_recipe

HEAD = ("run", "data", "metric", "test")


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_what_rows_share_is_said_once_above_them(capsys: pytest.CaptureFixture[str]) -> None:
    one, two = ("a", "[toy]", "mae", "0.5"), ("b", "[toy]", "mae", "10.5")
    show_rows(HEAD, [one, two], words=3)
    assert lines(capsys) == ["data [toy], metric mae", "run  test", "a     0.5", "b    10.5"]
    show_rows(HEAD, [one], words=3)
    assert lines(capsys) == ["run  data   metric  test", "a    [toy]  mae      0.5"]


def test_numbers_are_on_the_right_and_facts_have_no_head(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = plain_table("name", "size", right=("size",))
    table.add_row("a", "1")
    show(table)
    assert lines(capsys) == ["name  size", "a        1"]
    facts = fact_table(2)
    facts.add_row("python", "3")
    show(facts)
    assert lines(capsys) == ["python  3"]


@pytest.mark.parametrize(
    ("space", "told"),
    [
        ({"train.lr": ["0.1"], "model.words": ["[a]:o:", "b"]}, "model.words=[a]:o:"),
        ({"train.lr": ["0.1"], "model.words": ["[a]:o:"]}, "train.lr=0.1 model.words=[a]:o:"),
    ],
)
def test_an_attempt_of_a_search_tells_where_candidates_differ(
    space: dict[str, list[str]], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan: Any = SimpleNamespace(space=space)
    settings = ("train.lr=0.1", "model.words=[a]:o:")
    attempt: Any = SimpleNamespace(metric="mae", val=0.5, rung=1, epochs=3, settings=settings)
    _tell(plan, attempt)
    assert capsys.readouterr().err == f"rung 1  3 epochs  validation MAE ↓ 0.5000  {told}\n"


def test_scores_that_tie_on_either_side_are_said_in_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They were inf σ apart."""
    scores = {"1": (0.7, 0.7), "2": (0.6, 0.6)}
    _show_levers(
        [
            Attempt(0, 0, (f"model.layers={value}",), 1, "accuracy", val, None)
            for value, some in scores.items()
            for val in some
        ]
    )
    assert "wholly: each side has one score" in capsys.readouterr().out


@pytest.mark.parametrize("terminal", [True, False])
def test_an_attempt_is_one_line_of_a_terminal(
    terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into a file it is written whole."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=80)
    monkeypatch.setattr("gradformer.cli.search.as_it_is", lambda **_: console)
    names = [f"model.{name}" for name in ("layers", "width", "heads", "pe_steps", "pe_width")]
    plan = Plan("mutag", load_recipe("mutag"), {name: [4, 8] for name in names})
    settings = tuple(f"{name}=4" for name in names)
    _tell(plan, Attempt(0, 3, settings, 2, "accuracy", 0.5, None))
    (line,) = out.getvalue().splitlines()
    assert line.startswith("rung 0  2 epochs  validation accuracy ↑ 0.5000  model.layers=4 ")
    assert (len(line) == 80) == terminal
    assert line.endswith("…" if terminal else "model.pe_width=4")
