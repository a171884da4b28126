"""Every command and every Python block of the README and the docs is run, in their order.

``gradformer`` commands run with GRADFORMER_SMOKE=1; of ``make`` and ``pip`` it is checked that the
target and the extras exist, of commands inside a sentence that the verb and the options do.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import networkx as nx
import pytest
import torch
import typer
from torch_geometric.data import Data
from typer.testing import CliRunner

from gradformer.cli.app import app
from gradformer.model.base import all_models
from tests.cli.conftest import write_graphs, write_molecules
from tests.conftest import ROOT, shared_path

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BENCHMARKS = ("zinc", "mutag")
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def commands(block: str) -> list[str]:
    return [line[2:].split("  #")[0].strip() for line in block.splitlines() if line[:2] == "$ "]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_page_hides_a_command(page: Path) -> None:
    """Commands stand in console blocks behind a prompt, so that they are found here."""
    text = page.read_text(encoding="utf-8")
    lines = re.findall(
        r"^\s*(?:\$ )?((?:gradformer|make|pip|python|mkdocs) .*)", text, re.MULTILINE
    )
    written = [line.split("  #")[0].strip() for line in lines]
    found = [
        command for kind, block in blocks(page) if kind == "console" for command in commands(block)
    ]
    assert sorted(written) == sorted(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_in_sentences_exist(page: Path) -> None:
    """``gradformer VERB …`` between backticks: the verb, its options and the options of all."""
    root = typer.main.get_command(app)
    text = re.sub(BLOCK, "", page.read_text(encoding="utf-8"))
    for span in re.findall(r"`gradformer ([^`]+)`", text):
        command = root
        for word in span.split():
            verbs = getattr(command, "commands", {})
            if word in verbs:
                command = verbs[word]
            elif word.startswith("-"):
                known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
                assert word in known | {"--help", "-h"}, f"{page.name}: gradformer {span}"
            else:
                assert not verbs or word.isupper(), f"{page.name}: gradformer {span}"


@pytest.mark.slow
@pytest.mark.filterwarnings("default::gradformer.errors.GradformerWarning")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_says_works(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = blocks(page)
    if not found:
        pytest.skip("the page has no commands")
    words = " ".join(text for _, text in found)
    if any(re.search(rf"\b{name}\b", words) for name in BENCHMARKS):
        monkeypatch.setenv("GRADFORMER_DATA", str(shared_path("data")))
    monkeypatch.setenv("GRADFORMER_SMOKE", "1")
    monkeypatch.chdir(tmp_path)
    write_molecules(tmp_path)
    write_graphs(tmp_path)
    module = ModuleType("page")
    vars(module).update(_objects())
    monkeypatch.setitem(sys.modules, "page", module)
    # what a page adds is taken out again
    monkeypatch.setattr("gradformer.model.base.MODELS", dict(all_models()))
    for kind, text in found:
        if kind == "python":
            exec(compile(text, str(page), "exec"), vars(module))
            continue
        for command in commands(text):
            _run(command)


def _objects() -> dict[str, object]:
    """What a page may take for granted: objects of the reader."""
    graphs = [nx.cycle_graph(n) for n in range(4, 24)] + [nx.path_graph(n) for n in range(4, 24)]
    ring = torch.tensor([[0, 1, 2, 1, 2, 0], [1, 2, 0, 0, 1, 2]])
    return {
        "graphs": graphs,
        "targets": ["ring"] * 20 + ["chain"] * 20,
        "list_of_data": [
            Data(x=torch.tensor([[k], [1], [2]]), edge_index=ring, y=torch.tensor([0.5 * k]))
            for k in range(4)
        ],
    }


def _run(command: str) -> None:
    program, *words = shlex.split(command)
    if program == "gradformer":
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, f"{command}\n{result.output}\n{result.exception!r}"
    elif program == "make":
        subprocess.run(["make", "-n", *words], cwd=ROOT, check=True, capture_output=True)
    else:
        assert words[0] == "install", command
        extras = re.findall(r"\[(.*?)\]", command)
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        known = project["optional-dependencies"]
        assert all(name in known for group in extras for name in group.split(",")), command


def test_links_between_pages_exist() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_page_is_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in PAGES[1:]:
        assert page.name in menu, f"add {page.name} to nav in mkdocs.yml"
