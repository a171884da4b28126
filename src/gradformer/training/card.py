"""The card of a trained model: what it is, what it was trained on, how well, and by what."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from gradformer.errors import InputError, counted
from gradformer.graphs.cards import find_card, is_card
from gradformer.graphs.molecules import smiles_reader
from gradformer.model.base import GraphModel, home, is_own, model_class
from gradformer.model.own import VARIABLE
from gradformer.training.metrics import metric_name, score_text
from gradformer.training.records import environments, header
from gradformer.training.run import Run


def model_card(run: Run, trial: int, name: str) -> str:
    """Markdown, from the files of the run alone; ``name`` is what users will call the model."""
    dataset = Path(run.origin.get("name", run.recipe.dataset)).name  # without its folder
    benchmark = find_card(dataset) if run.reading is None and is_card(dataset) else None
    title = dataset if benchmark is None else benchmark.title
    rows = [*_data(run, dataset), *_scores(run, trial), *_origin(run)]
    table = "\n".join(["| | |", "|---|---|", *(f"| {what} | {value} |" for what, value in rows)])
    parts = [f"# {run.recipe.model.name} trained on {title}", _use(run, name), table]
    if benchmark is not None:  # of their own models users decide themselves
        parts.append(
            "The weights have the licence of the package (MIT). "
            f"The data have terms of their own; cite {benchmark.citation}."
        )
    return "\n\n".join(parts) + "\n"


def _use(run: Run, name: str) -> str:
    """The command that predicts, and what it must be given."""
    kind = "smiles" if smiles_reader(run.schema.node, run.schema.edge) else "graphs"
    column = "smiles"
    if run.reading is not None:
        kind, column = run.reading.kind, quote(run.reading.smiles or column)
    file = {"smiles": f"molecules.csv --smiles {column}", "graphs": "graphs.jsonl", "tu": "FOLDER"}
    text = f"```console\n$ gradformer predict {quote(name)} {file[kind]}\n```"
    if kind == "graphs" and run.reading is None:
        text += "\n\nCategories of nodes and edges have the numbers of the benchmark's store."
    if is_own(model := model_class(run.recipe.model.name)):
        text = (
            f"`{run.recipe.model.name}` is no model of gradformer: the model is needed beside its "
            f"weights, that is, the Python file that defines it.\n\n"
            f"```sh\nexport {VARIABLE}={_file(model)}\n```\n\n{text}"
        )
    return text


def _file(model: type[GraphModel]) -> str:
    """The file of a user's model without its folder: cards name no path of the machine."""
    name = Path(home(model)).name
    return name if name.endswith(".py") else "FILE.py"


def _data(run: Run, dataset: str) -> list[tuple[str, str]]:
    found = [("data", dataset)]
    found += [(n, str(run.origin[n])) for n in ("protocol", "exactness") if n in run.origin]
    config = run.recipe.model.config
    size = f"{counted(config.layers, 'layer')} of width {config.width}"
    found.append(("model", f"{run.recipe.model.name}, {size}; `recipe.yaml` has all settings"))
    source = Path(run.recipe.train.weights).name
    return found if source == "none" else [*found, ("fine-tuned from", source)]


def _scores(run: Run, trial: int) -> list[tuple[str, str]]:
    """Scores of the model, and the mean of its run: the score of a chosen model is too good."""
    results = run.results
    if trial >= len(results["trials"]):
        raise InputError(
            f"{run.folder}: seeds were added that have not all ended, so there is no mean to put "
            f"on a card; continue: gradformer train --resume {quote(str(run.folder))}"
        )
    result, test, val = results["trials"][trial], results["test"], results["val"]["values"]
    metric, name = result["metric"], metric_name(result["metric"])
    score = result["test"][metric]  # None where an answer was not finite
    tested = "–" if score is None else score_text(score)
    both = f"{score_text(result['val'][metric])}, test {tested}"
    this = f"this model, seed {result['seed']}"
    best = min if results["lower_is_better"] else max
    if len(val) > 1 and result["val"][metric] == best(val):
        this += f", the best of {len(val)} by validation"
    found = [("parameters", f"{result['parameters']:,}"), (this, f"validation {name} {both}")]
    count = len(results["trials"])
    if count > 1 and val:
        few = f"{len(val)} of {count} seeds (the others have no score)"
        std = "" if test["std"] is None else f" ± {score_text(test['std'])}"
        seeds = f"all {count} seeds" if len(val) == count else few
        found.append((f"mean of {seeds}", f"test {name} {score_text(test['mean'])}{std}"))
    return found


def _origin(run: Run) -> list[tuple[str, str]]:
    record = run.record
    began = header(record)
    if not began:
        return []
    around = began["environment"]
    versions = ", ".join(f"{n} {v}" for n, v in around["versions"].items() if v is not None)
    found = [("trained", f"{began['time']} on {around['device_name']}"), ("versions", versions)]
    commits = dict.fromkeys(one["commit"] for one in environments(record) if one["commit"])
    return [*found, ("commit", " then ".join(commits))] if commits else found
