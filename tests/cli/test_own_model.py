"""A model in a file of the user's own, named by a variable, is known to the program."""

from __future__ import annotations

import os
from abc import ABC
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from torch import Tensor

from gradformer.attention import Decay
from gradformer.errors import ConfigError
from gradformer.graphs.arrays import Schema
from gradformer.graphs.batch import Batch
from gradformer.model.base import (
    GraphModel,
    ModelConfig,
    Needs,
    all_models,
    create_model,
    make_config,
    register,
)
from gradformer.model.encoders import FeatureEncoder
from gradformer.model.heads import Head
from gradformer.model.layer import GradformerLayer
from gradformer.model.parts import Dropout
from gradformer.structure.codebook import HOPS
from gradformer.training.fit import fit
from gradformer.training.recipe import load_recipe
from tests.cli.conftest import Program
from tests.conftest import ROOT

OWN = """\
from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gradformer.model.base import GraphModel, ModelConfig, register

{kind} = str


@dataclass(frozen=True)
class Config(ModelConfig):
    level: {kind} = "low"
    pool: Literal["sum", "mean"] | None = None
    order: Literal[1, 2] = 1
    hidden: int | None = 8
    scale: float = 1


@register("{name}")
class Own(GraphModel):
    Config = Config
"""


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradformer.model.base.MODELS", dict(all_models()))


def test_the_model_of_the_documentation_is_trained_and_opened_again(
    program: Program, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "adding-a-model.md").read_text(encoding="utf-8")
    text = page.split("```python\n")[1].split("```")[0]
    (tmp_path / "tiny.py").write_text(text.replace("add the input", "add [all] :o: the input"))
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
    assert "add [all] :o: the input" in program("models", "tiny").stdout
    program("export", run, "-o", tmp_path / "given")
    assert "export GRADFORMER_MODELS=tiny.py" in (tmp_path / "given" / "README.md").read_text()


def test_what_a_model_needs_is_said_by_name() -> None:
    """By place the steps of an encoding would be taken for symmetric, as they were for rwse."""
    with pytest.raises(TypeError):
        Needs("hops", 16)  # type: ignore[misc]
    assert Needs("hops", rwse=16) == Needs.encoded("rwse", 16, "hops")


def test_a_users_model_may_need_another_index_than_hops(tmp_path: Path) -> None:
    """Its codebook was an unknown option to it."""

    @dataclass(frozen=True)
    class Curved(ModelConfig):
        def needs(self) -> Needs:
            return Needs("curvature")

    @register("bent")
    class Bent(GraphModel):
        Config = Curved

        def __init__(self, schema: Schema, config: Curved | None = None, **options: object) -> None:
            super().__init__(schema, config, options)
            self.decay = Decay(2, codebook=self.codebook)
            self.layer = GradformerLayer(self.config.width, 2, None)
            self.node = FeatureEncoder(schema.node, self.config.width)
            self.head = Head(self.config.width, schema.outputs, schema.level)

        def states(self, batch: Batch) -> Tensor:
            (tables,) = self.decay()
            return self.layer(self.node(batch), None, tables, batch)[0]

    graphs, y = [nx.path_graph(n) for n in range(3, 33)], [0.5 * n for n in range(30)]
    options: dict[str, Any] = {
        "settings": ["train.epochs=1"],
        "quiet": True,
        "out": tmp_path / "run",
    }
    run = fit(graphs, y=y, model="bent", **options)
    model = run.model()
    assert model.codebook == run.codebook != HOPS
    assert isinstance(model, Bent)
    assert model.decay.psi[254] == np.float32(run.codebook.values[254])
    assert len(run.predict(graphs).value) == 30


def test_every_place_that_draws_has_a_number_of_its_own() -> None:
    @register("hasty")
    class Hasty(GraphModel, ABC):  # with a metaclass of its own
        Config = ModelConfig

        def __init__(self, schema: Schema, config: ModelConfig | None = None) -> None:
            super().__init__(schema, config, {})
            self.first, self.second = Dropout(0.5), Dropout(0.5)

    made = create_model("hasty", Schema((5,), 0, "graph", "regression", 1))
    assert made.sites == 2
    assert [place.site for place in made.children()] == [0, 1]


def test_words_of_gradformer_mean_nothing_in_a_users_model(
    program: Program, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part called attention or decay, and an option decay, ended the report in an error."""
    page = (ROOT / "docs" / "adding-a-model.md").read_text(encoding="utf-8")
    text = page.split("```python\n")[1].split("```")[0]
    parts = "self.attention = nn.Linear(1, 1)\n        self.decay = nn.Linear(1, 1)"
    head = "self.head = "
    text = text.replace(head, f"{parts}\n        self.decay.start = 0\n        {head}")
    text = text.replace("    residual:", '    decay: str = "slow"\n    residual:')
    (tmp_path / "words.py").write_text(text.replace('"tiny"', '"words"'))
    monkeypatch.setenv("GRADFORMER_SMOKE", "1")
    monkeypatch.setenv("GRADFORMER_MODELS", str(tmp_path / "words.py"))
    run = tmp_path / "run"
    words = ("train", files / "graphs.jsonl", "--model", "words", "-q", "-n", "1", "-o", run)
    assert str(run / "report.html") in program(*words).stdout
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "words has no decay" in page
    assert "Not shown for words" in page


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
    assert "No such option: --epochs" in program("train", "--epochs", "3", code=2).output


def test_files_of_one_name_have_their_own_names_and_none_is_the_package_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The config of the first is looked at when the second has been imported."""
    for name, kind in (("first", "Level"), ("second", "Grade")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.py").write_text(OWN.format(name=name, kind=kind))
    both = [tmp_path / name / "mine.py" for name in ("first", "second")]
    monkeypatch.setenv("GRADFORMER_MODELS", os.pathsep.join(map(str, both)))
    assert {"first", "second"} <= all_models().keys()
    with pytest.raises(ConfigError, match="level: got 1, expected str"):
        make_config(all_models()["first"].Config, None, {"level": 1})
    taken = tmp_path / "taken.py"
    taken.write_text(OWN.format(name="gin", kind="Level"))
    monkeypatch.setenv("GRADFORMER_MODELS", str(taken))
    with pytest.raises(ConfigError, match="'gin' is a model of the package; take another name"):
        all_models()


def test_options_are_choices_and_a_type_that_no_recipe_holds_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, wrong = tmp_path / "own.py", tmp_path / "wrong.py"
    own.write_text(OWN.format(name="choosing", kind="Level"))
    wrong.write_text(OWN.format(name="wrong", kind="Level").replace("Literal[1, 2] =", "bytes ="))
    monkeypatch.setenv("GRADFORMER_MODELS", os.pathsep.join(map(str, (own, wrong))))
    settings = ["model.pool=mean", "model.order=2", "model.scale=0.5"]
    recipe = load_recipe("mutag", model="choosing", settings=settings)
    own = recipe.model.config
    assert (own.pool, own.order, own.scale) == ("mean", 2, 0.5)
    for name in ("pool", "hidden"):
        assert getattr(recipe.change(f"model.{name}=none").model.config, name) is None
    with pytest.raises(ConfigError, match=r"model.order: unknown value '3'; known: 1, 2"):
        recipe.change("model.order=3")
    with pytest.raises(ConfigError, match=r"order: got 3, expected one of 1, 2"):
        make_config(all_models()["choosing"].Config, None, {"order": 3})
    with pytest.raises(ConfigError, match=r"model.order: the type <class 'bytes'> cannot be"):
        load_recipe("mutag", model="wrong")


def test_an_option_is_the_recipe_s_only_if_it_can_have_the_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mutag says layers: 4 and pool: add of other models; this one's pool is sum or mean."""
    (tmp_path / "own.py").write_text(OWN.format(name="pooling", kind="Level"))
    monkeypatch.setenv("GRADFORMER_MODELS", str(tmp_path / "own.py"))
    config = load_recipe("mutag", model="pooling").model.config
    assert (config.layers, config.pool) == (4, None)


def test_a_bug_of_an_own_model_is_not_called_ours(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.py").write_text(OWN.format(name="unfinished", kind="Level"))
    monkeypatch.setenv("GRADFORMER_MODELS", str(tmp_path / "own.py"))
    said = program("models", "unfinished", code=70).output
    assert "a bug of gradformer or of GRADFORMER_MODELS: --debug shows where" in said


def test_a_name_that_two_files_give_is_an_error_that_names_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [tmp_path / "a.py", tmp_path / "b.py"]
    for path in both:
        path.write_text(OWN.format(name="twice", kind="Level"))
    monkeypatch.setenv("GRADFORMER_MODELS", str(both[0]))
    first = all_models()["twice"]
    register("twice")(first)  # as a notebook does that runs a cell again
    monkeypatch.setenv("GRADFORMER_MODELS", os.pathsep.join(map(str, both)))
    with pytest.raises(ConfigError, match=f"model of {both[0]} and of {both[1]}; take another"):
        all_models()
