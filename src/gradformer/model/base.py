"""The face that Gradformer and every baseline share, and the registry that makes them by name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

import torch
from torch import Tensor, nn

from gradformer.attention.draws import number_sites
from gradformer.errors import ConfigError, suggest
from gradformer.graphs.arrays import Schema
from gradformer.graphs.batch import Batch
from gradformer.graphs.structures import Structure
from gradformer.model.encoders import check_categories
from gradformer.model.own import HINT, VARIABLE, import_own_models
from gradformer.structure.codebook import HOPS, Codebook

_KINDS: dict[type, type] = {int: Integral, float: Real, str: str, bool: bool}
"""What may be given for an option of each type."""


Needs = Structure
"""What a model wants of the store."""


def option(default: Any, text: str, least: int = 0) -> Any:
    """A field of a config with its help text, and the least value where it is a whole number."""
    return field(default=default, metadata={"help": text, "least": least})


@dataclass(frozen=True)
class ModelConfig:
    """Base of all model configs: frozen, flat, typed; one field for each option."""

    layers: int = option(4, "number of layers")
    width: int = option(64, "channels of a node")

    def __post_init__(self) -> None:
        for each in fields(self):
            value, least = getattr(self, each.name), each.metadata.get("least", 0)
            least = max(least, 1) if each.name in ("layers", "width", "heads") else least
            if isinstance(each.default, int) and value is not None and value < least:
                raise ConfigError(f"{each.name}: got {value}, expected at least {least}")

    def needs(self) -> Needs:
        """What the store must hold for this model."""
        return Needs(index=None)


def make_config(kind: type[Any], config: Any | None, options: dict[str, Any]) -> Any:
    """A config of class ``kind`` from a ready one or options; unknown names are errors."""
    names = {field.name for field in fields(kind)}
    types = get_type_hints(kind)
    for name, value in options.items():
        if name not in names:
            raise ConfigError(f"{name}: unknown model option; {suggest(name, names)}")
        if get_origin(types[name]) is Literal:
            if value not in get_args(types[name]):
                known = ", ".join(map(repr, get_args(types[name])))
                raise ConfigError(f"{name}: got {value!r}, expected one of {known}")
        elif not isinstance(value, _KINDS.get(types[name], object)):
            raise ConfigError(f"{name}: got {value!r}, expected {types[name].__name__}")
    if config is None:
        return kind(**options)
    return replace(config, **options)


class GraphModel(nn.Module):
    """A model of packed graphs.

    A subclass gives ``Config`` (a :class:`ModelConfig`), ``reference`` (what it was proven
    against), a constructor, and :meth:`states`. What it has under ``head``, a
    :class:`gradformer.model.heads.Head` or alike, does the rest, unless it gives
    :meth:`embedding` and :meth:`readout` too. ``codebook`` says what bytes of pairs mean: it comes
    among the constructor's options where they are no hops.
    """

    Config: ClassVar[type[ModelConfig]]
    reference: ClassVar[str] = ""
    schema: Schema
    config: Any
    head: Any
    _sites: int | None = None

    def __init__(self, schema: Schema, config: ModelConfig | None, options: dict[str, Any]) -> None:
        super().__init__()
        self.schema = schema
        self.codebook: Codebook = options.pop("codebook", HOPS)
        self.config = make_config(type(self).Config, config, options)

    @property
    def sites(self) -> int:
        """How many places draw at random; they get their numbers when this is first asked for."""
        if self._sites is None:
            self._sites = number_sites(self)
        return self._sites

    def prepare(self, data: Batch | Any) -> Batch:
        """A :class:`Batch` from ours or PyG's, with seeds for this step when training.

        Outside our training engine the seed of a step comes from torch's generator.
        """
        if isinstance(data, Batch):
            batch = data
        else:
            batch = Batch.from_pyg(data)
            self._check_categories(batch)
        if self.training and self.sites and batch.seeds is None:
            seed = torch.randint(2**31 - 1, (2,), device=batch.layout.device)
            batch = batch.with_seed(seed, self.sites)
        return batch

    def _check_categories(self, batch: Batch) -> None:
        """Stores are checked when packed; to a kernel a category outside its table is a zero."""
        for name, x, sizes in (
            ("x", batch.x, self.schema.node),
            ("edge_attr", batch.edge_attr, self.schema.edge),
        ):
            if x is None or x.is_floating_point() or isinstance(sizes, int):
                continue
            if x.shape[1] == len(sizes):
                check_categories(name, x, sizes)

    def states(self, batch: Batch) -> Tensor:
        """Final node states, [nodes, width] (models with graph tokens may append rows)."""
        raise NotImplementedError

    def embedding(self, states: Tensor, batch: Batch) -> Tensor:
        """What enters the head: one row for each graph, or each node."""
        return self.head.embed(states, batch)

    def readout(self, states: Tensor, batch: Batch) -> Tensor:
        """Predictions (logits or values), [graphs or nodes, outputs]."""
        return self.head(states, batch)

    def forward(self, data: Batch | Any) -> Tensor:
        """Predictions for a :class:`Batch` or a PyG ``Batch``, [graphs or nodes, outputs]."""
        batch = self.prepare(data)
        return self.readout(self.states(batch), batch)


def is_own(model: type[GraphModel]) -> bool:
    """Whether a model is the user's, not the package's."""
    return model.__module__.partition(".")[0] != "gradformer"


def has_guests(model: nn.Module) -> bool:
    """Whether a part of a model is neither the package's nor torch's, but the user's or PyG's."""
    return any(
        type(part).__module__.partition(".")[0] not in ("gradformer", "torch")
        for part in model.modules()
    )


def home(model: type[GraphModel]) -> str:
    """The file that defines a model, or its module where there is none, as in a notebook."""
    found = getattr(sys.modules.get(model.__module__), "__file__", None)
    return model.__module__ if found is None else str(Path(found).resolve())


MODELS: dict[str, type[GraphModel]] = {}
Model = TypeVar("Model", bound=GraphModel)


def register(name: str) -> Callable[[type[Model]], type[Model]]:
    """Make a model known under ``name``, which no other file gives to one of its models."""

    def enter(model: type[Model]) -> type[Model]:
        assert is_dataclass(model.Config)
        before = MODELS.get(name, model)
        if is_own(before) != is_own(model):
            raise ConfigError(f"register: {name!r} is a model of the package; take another name")
        if (first := home(before)) != (second := home(model)):
            raise ConfigError(
                f"register: {name!r} is a model of {first} and of {second}; take another name in "
                f"one of them, or leave one out of {VARIABLE}"
            )
        MODELS[name] = model
        return model

    return enter


def all_models() -> dict[str, type[GraphModel]]:
    """The class of every model by name, with those of the user's own files."""
    import gradformer.model.gradformer
    import gradformer.zoo  # noqa: F401

    import_own_models()
    return MODELS


def model_class(name: str) -> type[GraphModel]:
    """The class of a model by name."""
    known = all_models()
    if name not in known:
        raise ConfigError(f"model: unknown name {name!r}; {suggest(str(name), known)} ({HINT})")
    return known[name]


def create_model(name: str, schema: Schema, **options: Any) -> GraphModel:
    """A model by name; options are the fields of its config."""
    make: Any = model_class(name)
    return make(schema, **options)
