"""A run: a folder with a recipe, its record, its trials and their results."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as read_tensors

from gradformer.errors import ConfigError, InputError, counted, warn
from gradformer.graphs.arrays import Schema
from gradformer.graphs.cards import find_card
from gradformer.graphs.labels import Labels
from gradformer.graphs.molecules import smiles_reader
from gradformer.graphs.own import kind_of, read
from gradformer.graphs.store import Store, pack
from gradformer.graphs.structures import Structure
from gradformer.graphs.targets import TargetScale
from gradformer.graphs.user_data import Kind, Reading, UserData, refuse_options
from gradformer.model.base import GraphModel
from gradformer.structure.codebook import Codebook
from gradformer.training import inference
from gradformer.training.files import read_json, reading
from gradformer.training.folder import WEIGHTS
from gradformer.training.metrics import metrics_of
from gradformer.training.recipe import Recipe
from gradformer.training.records import RECORD, read_record, read_result, read_results
from gradformer.weights import published

NEW_DATA = ("smiles", "y", "skip_invalid")
"""Options of reading that new data may have; the others are those of the run's own."""


@dataclass(frozen=True, repr=False)
class Run:
    """A run on disk.

    ``recipe.yaml`` the complete recipe · ``data.json`` what the data look like and where they came
    from · ``record.jsonl`` everything that happened · ``results.json`` the outcome ·
    ``trials/<k>/`` ``model.safetensors``, ``result.json`` and the last checkpoint of trial k.
    """

    folder: Path
    recipe: Recipe
    schema: Schema
    structure: Structure
    codebook: Codebook
    origin: dict[str, Any]

    def __repr__(self) -> str:
        done = f"{len(self.trials)} of {self.recipe.trials} trials"
        return f"<Run {self.folder}: {self.recipe.model.name} on {self.recipe.dataset}, {done}>"

    def __fspath__(self) -> str:
        """The folder: a run may be given wherever one is named."""
        return str(self.folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Run:
        """Open a run, finished or not; or, where there is no run, a model that comes with the
        package under this name."""
        known, folder = published(), Path(folder)
        if not os.path.isfile(folder / "recipe.yaml"):  # unlike Path, it takes any name
            folder = known.get(str(folder), folder)
        if not os.path.isfile(folder / "recipe.yaml"):
            raise InputError(
                f"{folder}: not a run (there is no recipe.yaml), nor one of the package's models: "
                f"{', '.join(known)}; name a folder that gradformer train made"
            )
        recipe, path = Recipe.load(folder / "recipe.yaml"), folder / "data.json"
        stored = read_json(path, ("schema", "structure", "codebook", "origin"))
        with reading(path):
            return cls(
                folder,
                recipe,
                Schema.from_dict(stored["schema"]),
                Structure.from_dict(stored["structure"]),
                Codebook.from_dict(stored["codebook"]),
                stored["origin"],
            )

    @property
    def results(self) -> dict[str, Any]:
        """The outcome: metric, mean and std of validation and test, and each trial."""
        path = self.folder / "results.json"
        if not path.exists():
            raise InputError(
                f"{self.folder}: not finished; continue: gradformer train --resume "
                f"{quote(str(self.folder))}"
            )
        return read_results(path)

    @property
    def record(self) -> list[dict[str, Any]]:
        """The lines of ``record.jsonl``."""
        return read_record(self.folder / RECORD)

    @property
    def reading(self) -> Reading | None:
        """How the user's own training data were read; None for a benchmark."""
        saved = self.origin.get("reading")
        return None if saved is None else Reading.from_dict(saved)

    @property
    def labels(self) -> Labels:
        """Names of targets and classes; numbers where a benchmark gives no names."""
        if self.reading is not None:
            return self.reading.labels
        task, outputs = self.schema.task, self.schema.outputs
        count = 1 if task == "multiclass" else outputs
        targets = ("y",) if count == 1 else tuple(f"y{k}" for k in range(count))
        if task == "regression":
            return Labels(task, targets, ())
        words = tuple(str(k) for k in range(outputs if task == "multiclass" else 2))
        return Labels(task, targets, (words,) * count)

    def like(self, kind: Kind, where: str) -> Reading:
        """How new data of a kind are read: as the user's own were, or as the benchmark's graphs.

        A benchmark's graphs come as JSON lines or objects, with its own numbers of categories, and
        as SMILES where it has molecules whose atoms are known by name.
        """
        if self.reading is not None:
            return self.reading
        node, edge = self.schema.node, self.schema.edge
        if kind == "tu" or (kind == "smiles" and smiles_reader(node, edge) is None):
            given = "SMILES" if kind == "smiles" else "labels of a TU folder"
            raise InputError(
                f"{where}: {given} cannot be read for a model of {self.origin['name']}, which "
                f"knows its nodes {node} and edges {edge} by number only; give JSON lines"
            )
        return Reading(kind, node, edge, self.schema.level, self.labels)

    @property
    def metric(self) -> str:
        """What is reported; of earlier versions, which did not say, that of benchmark or task."""
        if "metric" in self.origin:
            return str(self.origin["metric"])
        if self.origin["kind"] == "benchmark":
            return find_card(self.recipe.dataset).metric
        return metrics_of(self.schema.task)[0]

    @property
    def trials(self) -> list[int]:
        """Trials that ended with a test score: those whose weights can predict."""
        kept = (path.parent for path in self.folder.glob(f"trials/*/{WEIGHTS}"))
        ended = (int(place.name) for place in kept if (place / "result.json").is_file())
        return sorted(trial for trial in ended if self.result(trial)["test"] is not None)

    def place(self, trial: int) -> Path:
        """The folder of a trial."""
        return self.folder / "trials" / str(trial)

    def result(self, trial: int) -> dict[str, Any]:
        """What came out of a trial that has ended: its ``result.json``."""
        return read_result(self.place(trial) / "result.json")

    def scale(self, trial: int) -> TargetScale | None:
        """The scale on which a trial learned its regression; None for none."""
        saved = self.result(trial)["scale"]
        return None if saved is None else TargetScale.from_dict(saved)

    def usable(self) -> list[int]:
        """:attr:`trials`; raises if there are none, and warns of others, unfinished or lost."""
        if not self.trials:
            raise InputError(
                f"{self.folder}: no trial has a test score and is kept with its weights; --resume "
                "continues a run that was stopped, and makes lost weights again where checkpoints "
                "are kept; where all diverged, train anew with a lower train.lr"
            )
        ended = self._ended()
        if (left := self.recipe.trials - len(ended)) > 0:
            why = f"not finished, {counted(left, 'trial')} to come, so the others are used"
            warn(f"{self.folder}: {why}; gradformer train --resume continues it")
        if lost := [k for k, had in ended if had and not (self.place(k) / WEIGHTS).is_file()]:
            warn(
                f"{self.folder}: the weights of {len(lost)} of its trials are not there "
                f"({', '.join(map(str, lost))}), so the others are used; "
                "gradformer train --resume makes them again where their checkpoints are kept"
            )
        return self.trials

    def _ended(self) -> list[tuple[int, bool]]:
        """Trials that have ended, if only in a line of results, and whether they had weights."""
        bare = self.results["trials"] if (self.folder / "results.json").is_file() else []
        kept = (self.folder / "trials").glob("*/result.json")
        found = {one["trial"]: one["test"] is not None for one in bare}
        return sorted((found | {int(path.parent.name): True for path in kept}).items())

    def model(self, trial: int = 0) -> GraphModel:
        """The model of a trial with its selected weights, in eval mode."""
        path = self.place(trial) / WEIGHTS
        if trial not in (usable := self.usable()):
            raise InputError(
                f"{self.folder}: trial {trial} is not finished, diverged, or has lost its weights; "
                f"trials that can be used: {', '.join(map(str, usable))}"
            )
        model = self.recipe.model.make(self.schema, self.codebook)
        with reading(path, "mend the permissions"):
            content = path.read_bytes()
        try:
            model.load_state_dict(read_tensors(content))
        except (RuntimeError, SafetensorError) as error:
            reason = str(error).split("\n")[0].rstrip(":")
            raise InputError(
                f"{path}: not the weights of this {self.recipe.model.name} ({reason}); the file is "
                "damaged, or another version of gradformer wrote it: train anew, or delete it and "
                "say gradformer train --resume, which makes it again from the trial's checkpoint"
            ) from None
        return model.eval()

    def read(self, data: Any, labelled: bool = False, **reading: Any) -> UserData:
        """New graphs, a path or objects, understood as those that the run was trained on.

        Targets are read only if ``labelled``, as a score needs them; else they may be anything. Of
        the options of ``reading`` only ``smiles``, ``y`` and ``skip_invalid`` make a difference:
        the rest is as the run has it.
        """
        own = {"task": self.schema.task, "level": self.schema.level}
        for name, value in reading.items():
            if name not in NEW_DATA and value != own.get(name):
                raise ConfigError(
                    f"{name}: new data are read as those of the run; leave it out (there is "
                    f"{', '.join(NEW_DATA)})"
                )
        if isinstance(data, str | Path):
            like = self.like(kind_of(Path(data)), str(data))
            return read(data, like, labelled, **reading)
        from gradformer.graphs.objects import as_items, from_objects  # loads NetworkX and pandas

        kind, items = as_items(data)
        return from_objects(items, self.like(kind, "the data"), labelled, **reading)

    def pack(
        self, data: Any, labelled: bool = False, **reading: Any
    ) -> tuple[Store, UserData | None]:
        """Graphs as the model takes them: a path, objects, :class:`UserData` or a store.

        Rows of a path or of objects that ``skip_invalid`` leaves out are warned of.
        """
        if isinstance(data, Store | UserData):
            refuse_options(reading, "graphs that have been read")
        if isinstance(data, Store):
            own, its = (
                (one.structure.index, one.structure.symmetric, one.codebook) for one in (self, data)
            )
            if self.structure.index is not None and own != its:
                raise InputError(
                    "the store: its pairs are other ones than those of the run; give the graphs "
                    "themselves, or pack them with run.structure and codebook=run.codebook"
                )
            return data, None
        if not isinstance(data, UserData):
            data = self.read(data, labelled, **reading)
            data.tell_skipped()
        self.expect(data.arrays.schema, "the graphs")
        return pack(data.arrays, self.structure, codebook=self.codebook, called=data.place), data

    def expect(self, given: Schema, where: str) -> None:
        """Raise unless graphs of schema ``given`` fit the model."""
        if (given.node, given.edge) != (self.schema.node, self.schema.edge):
            raise InputError(
                f"{where}: node and edge features are {given.node} and {given.edge}, "
                f"the run was trained with {self.schema.node} and {self.schema.edge}"
            )

    predict = inference.predict
    """What every trial predicts, see :func:`gradformer.training.inference.predict`."""
    evaluate = inference.evaluate
    """Scores of every trial, see :func:`gradformer.training.inference.evaluate`."""
    evaluate_targets = inference.evaluate_targets
    """By target, see :func:`gradformer.training.inference.evaluate_targets`."""
    embed = inference.embed
    """Embeddings of graphs and nodes, see :func:`gradformer.training.inference.embed`."""

    def report(self, out: str | Path | None = None) -> Path:
        """Write the run's page, ``report.html`` in its folder if not said; gives its path."""
        from gradformer.report import write_report

        return write_report([self], Path(out) if out else self.page("report.html"))

    def page(self, name: str) -> Path:
        """Where a page is written if not said: the run's folder; here, if it is the package's."""
        return (Path() if self.folder in published().values() else self.folder) / name


def ended_trials(run: Run, record: Sequence[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Trial → result of those that have ended, by the lines of the run's ``record``.

    Results that the record has lost, as when a machine goes down, are those of ``results.json``.
    """
    found = {line["trial"]: line for line in record if line["kind"] == "result"}
    if len(found) < run.recipe.trials and (run.folder / "results.json").is_file():
        found = {line["trial"]: line for line in run.results["trials"]} | found
    return dict(sorted(found.items()))
