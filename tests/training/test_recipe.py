"""Every recipe loads and builds its model; settings and files are checked key by key."""

from __future__ import annotations

from dataclasses import field, make_dataclass
from pathlib import Path
from typing import Any

import pytest

from gradformer.errors import ConfigError
from gradformer.graphs.arrays import Schema
from gradformer.graphs.cards import card_names
from gradformer.model.base import MODELS, create_model, model_class
from gradformer.recipes import recipe_names, recipe_text
from gradformer.training.options import build, convert
from gradformer.training.recipe import Recipe, load_recipe, presets, search_space

SCHEMA = Schema(node=(5,), edge=(3,), level="graph", task="regression", outputs=1)
WORDS = Schema(node=5, edge=(), level="node", task="multiclass", outputs=3)


def test_there_is_a_recipe_for_every_dataset() -> None:
    assert set(card_names()) < set(recipe_names())


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_and_preset_builds_its_model(name: str) -> None:
    for preset in (None, *presets(name)):
        recipe = load_recipe(name, preset=preset)
        assert Recipe.from_dict(recipe.to_dict()) == recipe
        model = model_class(recipe.model.name)
        small = recipe.change("model.layers=1")
        schema = WORDS if name.split("-")[0] in ("cora", "citeseer", "actor") else SCHEMA
        assert model(schema, small.model.config).schema == schema  # type: ignore[call-arg]
        for option, values in search_space(name).items():
            for value in values:
                recipe.change(f"{option}={value}")


def test_a_model_is_searched_over_its_own_ranges_or_options() -> None:
    assert search_space("cora", "graphgps") == search_space("cora-graphgps")
    whole, some = search_space("mutag"), search_space("mutag", "gin")
    assert some.items() < whole.items()
    assert {"model.layers", "train.lr"} <= some.keys()
    assert "model.decay" not in some
    assert search_space("mutag", "gradformer") == whole


def test_a_recipe_survives_its_file(tmp_path: Path) -> None:
    recipe = load_recipe("cluster-16", preset="authors", settings=["train.lr=1e-3", "seed=3"])
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe.to_yaml(), encoding="utf-8")
    assert Recipe.load(path) == recipe
    assert load_recipe(str(path)) == recipe
    assert recipe.model.config.layers == 16
    assert recipe.train.lr == 1e-3


def test_another_model_brings_its_own_defaults() -> None:
    recipe = load_recipe("zinc", model="kdlgt", settings=["model.layers=3"])
    assert recipe.model.name == "kdlgt"
    assert recipe.model.config == model_class("kdlgt").Config(layers=3)
    assert recipe.train == load_recipe("zinc").train
    assert create_model("kdlgt", SCHEMA, layers=3).config == recipe.model.config


@pytest.mark.parametrize("name", card_names())
def test_every_model_has_a_recipe_for_every_dataset(name: str) -> None:
    for model in (*MODELS, "gradformer"):
        assert load_recipe(name, model=model).model.name == model


def test_a_model_is_not_trained_by_its_recipe_for_other_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Citeseer begins from the recipe of Cora, for which a model may have one of its own."""
    own = {"cora-gat": "{base: cora, model: {name: gat}}"}
    names = [*recipe_names(), *own]
    monkeypatch.setattr("gradformer.training.recipe.recipe_names", lambda: names)
    monkeypatch.setattr(
        "gradformer.training.recipe.recipe_text", lambda name: own.get(name) or recipe_text(name)
    )
    assert load_recipe("cora", model="gat").dataset == "cora"
    assert load_recipe("citeseer", model="gat").dataset == "citeseer"


def test_baselines_take_what_they_have() -> None:
    config = load_recipe("nci1", model="gcn").model.config
    assert config == model_class("gcn").Config(layers=4, width=64, dropout=0.0, pool="add")  # type: ignore[call-arg]
    assert load_recipe("cluster", model="graphgps").model.config.layers == 16


def test_a_shallower_recipe_leaves_other_models_as_they_are() -> None:
    for name, model in (("cluster", "gcn"), ("pattern", "graphgps")):
        assert load_recipe(f"{name}-16", model=model) == load_recipe(name, model=model)
        assert load_recipe(f"{name}-16", model="gradformer").model.config.layers == 16


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["model.layrs=2"], "model.layrs: unknown option; did you mean 'layers'?"),
        (["trian.lr=2"], "trian: unknown section; did you mean 'train'?"),
        (["model.layers=two"], "model.layers: got 'two', expected a whole number"),
        (["model.layers=2.5"], "model.layers: got '2.5', expected a whole number"),
        (["model.learn_decay=maybe"], "expected true or false"),
        (["train.lr=-1"], "train.lr: got -1.0, expected a number above 0"),
        (["train.lr=nan"], "train.lr: got nan"),
        (["train.schedule=cosin"], "did you mean 'cosine'?"),
        (["data.fraction=0"], "data.fraction: got 0.0"),
        (["model.name=gradfomer"], "did you mean 'gradformer'?"),
        (["train.epochs"], "expected name=value"),
        (["train=3"], "train: got '3', expected options"),
        (["trials=0"], "trials: got 0, expected at least 1"),
    ],
)
def test_a_wrong_setting_is_named(settings: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_recipe("zinc", settings=settings)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_preset_takes_the_place_of_that_of_the_base(tmp_path: Path) -> None:
    """It was that of the base, changed further: all had what one dataset was tuned to."""
    path = tmp_path / "mine.yaml"
    path.write_text("base: imdb-binary\npresets: {tuned: {model: {layers: 3}}, small: {}}\n")
    plain, tuned = load_recipe(str(path)), load_recipe(str(path), preset="tuned")
    assert load_recipe("imdb-binary", preset="tuned") != load_recipe("imdb-binary")
    assert tuned == plain.change("model.layers=3")
    assert load_recipe(str(path), preset="authors").train.decay_all
    assert presets(str(path)) == ["authors", "paper", "small", "tuned"]
    path.write_text("base: imdb-binary\npresets: [tuned]\n")
    with pytest.raises(ConfigError, match=r"mine\.yaml: presets: got \['tuned'\], expected"):
        load_recipe(str(path))


def test_a_wrong_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("dataset: zinc\nmodel: [1, 2\n")
    with pytest.raises(ConfigError, match=r"bad\.yaml, line 3: not a readable recipe: did not"):
        load_recipe(str(path))
    for text, wrong in (("modle: {}", "modle"), ("model: {layers: two}", "model.layers")):
        path.write_text(f"dataset: zinc\n{text}\n")
        for reader in (load_recipe, Recipe.load):
            with pytest.raises(ConfigError, match=rf"bad\.yaml: {wrong}: "):
                reader(str(path))
    for base, wrong in (("zink", "there is none"), (str(path), "base: .* is made from this file")):
        path.write_text(f"base: {base}\n")
        with pytest.raises(ConfigError, match=rf"bad\.yaml: .*{wrong}"):
            load_recipe(str(path))
    path.write_text("dataset: zinc\ntrain: {epochs: 2}\ntrain: {lr: 0.1}\n")
    with pytest.raises(ConfigError, match=r"bad\.yaml, line 3: .*'train' stands twice"):
        load_recipe(str(path))
    path.write_text("dataset: zinc\nsearch: {train.lr: 0.1}\npresets: {fast: 3}\n")
    with pytest.raises(ConfigError, match=r"search: train\.lr: got 0\.1, expected a list"):
        search_space(str(path))
    with pytest.raises(ConfigError, match="fast: got 3, expected options"):
        load_recipe(str(path), preset="fast")
    path.write_text("dataset: zinc\n")
    with pytest.raises(ConfigError, match=r"^model\.layer: "):  # which is not in the file
        load_recipe(str(path), settings=["model.layer=2"])
    with pytest.raises(ConfigError, match="No such file"):
        load_recipe(str(tmp_path / "absent.yaml"))
    with pytest.raises(ConfigError, match="did you mean 'zinc'"):
        load_recipe("zink")
    with pytest.raises(ConfigError, match="did you mean 'paper'"):
        load_recipe("zinc", preset="papers")


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        *((word, bool, True) for word in ("true", "Yes", "on")),
        *((word, bool, False) for word in ("false", "no", "OFF")),
        ("none", int | None, None),
        ("3", int | None, 3),
        ("none", str, "none"),
        ("[0.5, 2]", tuple[float, ...], (0.5, 2.0)),
    ],
)
def test_what_a_text_means(text: str, kind: Any, value: Any) -> None:
    assert convert(text, kind, "model.x") == value


@pytest.mark.parametrize(("text", "kind"), [("maybe", bool), ("1", bool), ("12", tuple[int, ...])])
def test_what_a_text_cannot_mean(text: str, kind: Any) -> None:
    with pytest.raises(ConfigError, match=rf"model\.x: got '{text}', expected (true or|a list)"):
        convert(text, kind, "model.x")


@pytest.mark.parametrize("kind", [tuple, tuple[int, str], tuple[int, ...] | str])
def test_a_type_that_a_recipe_cannot_give_back_is_refused(kind: Any) -> None:
    """It was trained to the end, and the run could not be opened."""
    options = make_dataclass("Options", [("many", kind, field(default=(1, 2)))])
    with pytest.raises(
        ConfigError, match=r"model\.many: the type .* cannot be written in a recipe"
    ):
        build(options, {}, "model.")
    for whole in (tuple[int, ...] | None, tuple[int, int]):
        options = make_dataclass("Options", [("many", whole, field(default=(1, 2)))])
        assert build(options, {"many": [3, 4]}, "model.").many == (3, 4)
