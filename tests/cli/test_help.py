"""What ``--help`` shows in a terminal of 80 columns."""

from __future__ import annotations

from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from gradformer.cli.app import app

ROOT = typer.main.get_command(app)
VERBS = [(name,) for name in ROOT.commands if name != "data"]
VERBS += [("data", name) for name in ROOT.commands["data"].commands]


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_help_shows_an_example_and_what_to_give(
    verb: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = CliRunner().invoke(app, [*verb, "--help"])
    assert result.exit_code == 0
    assert f"gradformer {' '.join(verb)}" in result.output.split("Usage:")[1]
    assert "Example: gradformer" in result.output
    assert max(len(line) for line in result.output.splitlines()) <= 80
    assert "bool" not in result.output, "a flag takes no value"
    assert "range" not in result.output.replace("--range", "").replace("ranges", "")
    unsaid = [each.opts[0] for each in _command(verb).params if not each.help]
    assert not unsaid
    assert all("\n" not in part for part in _command(verb).help.split("\n\n"))


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_a_number_has_a_least_value(verb: tuple[str, ...]) -> None:
    """Seeds, trials and minutes begin with 0; of all else there is at least one."""
    for each in _command(verb).params:
        if each.metavar in ("N", "MINUTES"):
            least = int(each.name not in ("seed", "trial", "budget"))
            result = CliRunner().invoke(app, [*verb, each.opts[0], str(least - 1)])
            assert result.exit_code == 2
            assert f"'{each.opts[0]}'" in result.stderr


def _command(verb: tuple[str, ...]) -> Any:
    command = ROOT
    for word in verb:
        command = command.commands[word]
    return command


@pytest.mark.parametrize("words", [(), ("data",)], ids=str)
def test_help_of_several_commands_shows_no_value_of_a_flag(words: tuple[str, ...]) -> None:
    output = CliRunner().invoke(app, [*words, "-h"]).output
    assert "Usage:" in output
    assert "bool" not in output
