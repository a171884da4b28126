"""A recipe: everything that decides a training run, in one typed, frozen value.

A recipe file is YAML with the sections of :class:`Recipe`. Files of the package may also have
``base`` (another recipe that this one changes), ``presets`` (small changes by name), ``baselines``
(options for any other model, as far as it has them) and ``search`` (lists of values for options,
which ``gradformer search`` draws from).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from gradformer.errors import ConfigError, at_least, suggest
from gradformer.graphs.arrays import Schema
from gradformer.model.base import (
    GraphModel,
    ModelConfig,
    all_models,
    create_model,
    is_own,
    model_class,
)
from gradformer.recipes import recipe_names, recipe_text
from gradformer.structure.codebook import Codebook
from gradformer.training.ambient import drawing
from gradformer.training.options import build, convert, merge, setting
from gradformer.training.sections import DataOptions, TrainOptions
from gradformer.yaml_text import parse_yaml

DEFAULT_MODEL = "gradformer"
_SECTIONS = ("dataset", "model", "data", "train", "trials", "seed")
_EXTRA = ("base", "presets", "baselines", "search")


@dataclass(frozen=True)
class ModelChoice:
    """A model by name, with its options."""

    name: str
    config: ModelConfig

    def make(self, schema: Schema, codebook: Codebook, seed: int = 0) -> GraphModel:
        """The model with the initial weights of a seed, for data of that schema; ``codebook`` says
        what their bytes mean, unless these count hops."""
        hops = self.config.needs().index in (None, "hops")
        known = {} if hops else {"codebook": codebook}
        with drawing(seed):
            return create_model(self.name, schema, config=self.config, **known)


@dataclass(frozen=True)
class Recipe:
    """A dataset, a model, and how they are brought together; trial k has seed ``seed + k``."""

    dataset: str
    model: ModelChoice
    data: DataOptions = field(default_factory=DataOptions)
    train: TrainOptions = field(default_factory=TrainOptions)
    trials: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        at_least("trials", self.trials, 1)
        at_least("seed", self.seed, 0)
        if self.seed > 2**31 - 1 - self.trials:
            raise ConfigError(
                f"seed: got {self.seed}, expected a number from 0 to 2³¹ − 1 − trials"
            )
        for name in ("trials", "seed"):  # a YAML file takes no numbers of NumPy
            object.__setattr__(self, name, int(getattr(self, name)))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Recipe:
        """From plain values; unknown keys, and values of a wrong type, are errors."""
        for name in values:
            if name not in _SECTIONS:
                whole = whole_names(str(_section(values, "model").get("name", ""))).get(str(name))
                hint = f"did you mean {whole!r}?" if whole else suggest(str(name), _SECTIONS)
                raise ConfigError(f"{name}: unknown section; {hint}")
        if "dataset" not in values:
            raise ConfigError("dataset: the recipe names none; add dataset: NAME")
        model = dict(_section(values, "model"))
        name = convert(model.pop("name", DEFAULT_MODEL), str, "model.name")
        return cls(
            dataset=convert(values["dataset"], str, "dataset"),
            model=ModelChoice(name, build(model_class(name).Config, model, "model.")),
            data=build(DataOptions, _section(values, "data"), "data."),
            train=build(TrainOptions, _section(values, "train"), "train."),
            trials=convert(values.get("trials", 1), int, "trials"),
            seed=convert(values.get("seed", 0), int, "seed"),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, every option stated, in a fixed order."""
        return {
            "dataset": self.dataset,
            "model": {"name": self.model.name, **_plain(asdict(self.model.config))},
            "data": asdict(self.data),
            "train": asdict(self.train),
            "trials": self.trials,
            "seed": self.seed,
        }

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True)

    @classmethod
    def load(cls, path: str | Path) -> Recipe:
        """Read a complete recipe, as a run keeps it."""
        values = _file(str(path))
        with _naming(path):
            return cls.from_dict(values)

    def change(self, *settings: str) -> Recipe:
        """The recipe with ``a.b=c`` settings applied."""
        return Recipe.from_dict(_apply(self.to_dict(), settings))


def load_recipe(
    name: str, *, model: str | None = None, preset: str | None = None, settings: Iterable[str] = ()
) -> Recipe:
    """The package's recipe for a dataset, or the one in a YAML file.

    Args:
        name: a dataset (``zinc``), a recipe (``cluster-16``), or the path of a YAML file.
        model: another model; its own recipe ``<name>-<model>``, or that of a base on the same data,
            is used where there is one, else the model's defaults, with the options under
            ``baselines`` that it has, and the dataset's way of training.
        preset: one of the presets in the file.
        settings: changes as ``a.b=c``, applied last.

    >>> load_recipe("zinc", settings=["model.layers=2"]).model.config.layers
    2
    """
    values = _find(name, model, preset)
    if _is_file(name):  # what is wrong in the file, before what is wrong in the settings
        with _naming(name):
            Recipe.from_dict(values)
    return Recipe.from_dict(_apply(values, settings))


def presets(name: str) -> list[str]:
    """The presets of a recipe."""
    return sorted(_section(_raw(name), "presets"))


def search_space(name: str, model: str | None = None) -> dict[str, list[Any]]:
    """Option (``a.b``) → values that a search may draw, as the recipe states them.

    ``model`` as in :func:`load_recipe`: of ranges for another model it gets those of its options.
    """
    raw = _raw(name if model is None else _own_recipe(name, model))
    for key, values in _section(raw, "search").items():
        if not isinstance(values, list):
            raise ConfigError(f"{name}: search: {key}: got {values!r}, expected a list of values")
    space = {str(k): list(v) for k, v in _section(raw, "search").items()}
    if model is None or _section(raw, "model").get("name", DEFAULT_MODEL) == model:
        return space
    own = {f"model.{name}" for name in _options(model)}
    return {k: v for k, v in space.items() if k in own or not k.startswith("model.")}


def _find(name: str, model: str | None, preset: str | None) -> dict[str, Any]:
    if model is not None:
        name = _own_recipe(name, model)
    raw = _raw(name)
    known = _section(raw, "presets")
    if preset is not None and preset not in known:
        raise ConfigError(f"preset: {name} has none named {preset!r}; {suggest(preset, known)}")
    values = {key: value for key, value in raw.items() if key not in _EXTRA}
    if preset is not None:
        values = merge(values, _section(known, preset))
    if model is None or _section(values, "model").get("name", DEFAULT_MODEL) == model:
        return values
    shared = {n: v for n, v in _section(raw, "baselines").items() if _has(model, n, v)}
    return merge(values, {"model": {"name": model, **shared}})


def _has(model: str, option: str, value: Any) -> bool:
    """Whether a model has an option of ``baselines``.

    A user's model may mean another thing by that name: it has the option only if that can have the
    value.
    """
    if not is_own(model_class(model)):
        return option in _options(model)
    try:
        build(model_class(model).Config, {option: value}, "model.")
    except ConfigError:
        return False
    return True


def _options(model: str) -> set[str]:
    return {option.name for option in fields(model_class(model).Config)}


def _own_recipe(name: str, model: str) -> str:
    """The recipe ``<name>-<model>``, or that of a base on the same data (for ``cluster-16`` that of
    ``cluster``); ``name`` if there is neither."""
    names = recipe_names()
    under: str | None = name
    while under in names:
        if f"{under}-{model}" in names:
            return f"{under}-{model}"
        values = _file(under)
        under = None if "dataset" in values else values.get("base")
    return name


def _raw(name: str, above: tuple[str, ...] = ()) -> dict[str, Any]:
    """A file's values over those of its ``base``; ``above`` are the files that it is a base of."""
    if name in above:
        raise ConfigError(f"base: {name} is made from this file; name another")
    values = _file(name)
    base = values.pop("base", None)
    if base is None:
        return values
    with _naming(name):
        under = _raw(str(base), (*above, name))
    if "name" in _section(values, "model"):  # the base says these of another model
        under = {name: value for name, value in under.items() if name not in _EXTRA}
    with _naming(name):  # a preset takes the place of the base's of this name
        by_name = {**_section(under, "presets"), **_section(values, "presets")}
    return merge(under, values) | ({"presets": by_name} if by_name else {})


def _is_file(name: str) -> bool:
    return name.endswith((".yaml", ".yml"))


@contextmanager
def _naming(path: str | Path) -> Iterator[None]:
    """An error inside names the file."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _file(name: str) -> dict[str, Any]:
    """What stands in a recipe of the package, or in a user's file."""
    own = _is_file(name)
    if not own and name not in recipe_names():
        if Path(name).suffix:
            raise ConfigError(f"{name}: not a recipe, whose name ends in .yaml")
        raise ConfigError(f"recipe: there is none for {name!r}; {suggest(name, recipe_names())}")
    where = name if own else f"{name}.yaml"
    try:
        values = parse_yaml(Path(name).read_text("utf-8") if own else recipe_text(name))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = getattr(error, "strerror", None) or getattr(error, "problem", None) or error
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f", line {mark.line + 1}"
        reason = " ".join(str(reason).split())
        raise ConfigError(f"{where}{line}: not a readable recipe: {reason}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{where}: expected sections such as model: and train:")
    return values


def _apply(values: Mapping[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    changed = dict(values)
    for text in [settings] if isinstance(settings, str) else settings:
        if not isinstance(text, str):
            raise ConfigError(f"settings: got {text!r}, expected texts such as 'model.layers=6'")
        changed = merge(changed, setting(text))
    return changed


def whole_names(model: str = "") -> dict[str, str]:
    """Options by their names alone, each with its section; where two have one, that of training.

    >>> names = whole_names()
    >>> names["epochs"], names["slope"]
    ('train.epochs', 'model.slope')
    """
    config = all_models().get(model, model_class(DEFAULT_MODEL)).Config
    sections = (("data", DataOptions), ("model", config), ("train", TrainOptions))
    return {each.name: f"{name}.{each.name}" for name, kind in sections for each in fields(kind)}


def _section(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = values.get(name) or {}
    if not isinstance(section, Mapping):
        raise ConfigError(f"{name}: got {section!r}, expected options as name: value")
    return section


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {n: list(v) if isinstance(v, tuple) else v for n, v in values.items()}
