"""What ``--help`` shows in a terminal of 80 columns."""

from __future__ import annotations

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
    command = ROOT
    for word in verb:
        command = command.commands[word]
    unsaid = [each.opts[0] for each in command.params if not each.help]
    assert not unsaid


@pytest.mark.parametrize("words", [(), ("data",)], ids=str)
def test_help_of_several_commands_shows_no_value_of_a_flag(words: tuple[str, ...]) -> None:
    assert "bool" not in CliRunner().invoke(app, [*words, "--help"]).output
