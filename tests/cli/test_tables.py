"""How tables and lines look in a pipe."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gradformer.cli.search import _tell
from gradformer.cli.tables import fact_table, plain_table, show, show_rows

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
