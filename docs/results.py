"""Write docs/results.md, its figures, and the pages of the studies from the records in
``results/``: ``python docs/results.py``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gradformer.cli.search import AS_IT_IS
from gradformer.grouping import grouped
from gradformer.report.levers import levers
from gradformer.report.markup import Markup
from gradformer.report.settings import protocol
from gradformer.studies import STUDIES
from gradformer.studies.looking import kept_plan, look
from gradformer.studies.page import CAPTION, lists_of, markdown, write_markdown
from gradformer.studies.study import Measured, Rows, Study
from gradformer.studies.study import Plan as StudyPlan
from gradformer.studies.tables import markdown_table, shown, value
from gradformer.training.attempts import STEADY, load_attempts, validation_scores
from gradformer.training.files import read_json
from gradformer.training.metrics import LOWER_IS_BETTER, metric_label
from gradformer.training.plan import Plan, load_plan
from gradformer.training.recipe import Recipe, load_recipe, presets
from gradformer.training.run import Run
from gradformer.training.trials import mean_and_std
from summary import RANKED, summary
from tables import results_table

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results.md"
STUDIED = ROOT / "results" / "studies"
SEARCHED = ROOT / "results" / "search"
INTRODUCTION = (
    "# Results\n\nEvery number on this page is made from the records under `results/` "
    "(`make tables`) or is in the paper's tables. What has not been measured is named."
)
READING = f"## How to read the tables\n\n{CAPTION}"
CONDITIONS = (
    "## How it was measured\n\nThe test part is evaluated once per trial, with the weights of the "
    "selected epoch, the first one with the best validation score. Trial k has seed k. ± is the "
    "sample standard deviation (n − 1) over trials that ended well. Protocol, machine, versions "
    "and commit of every cell are in `results/studies/NAME/README.md`, beside its records."
)
CLEAR = 3.0
SEARCHES = (
    "## The searches behind `tuned`\n\nThe candidates of a search are drawn at random from the "
    "ranges in its `plan.json` (under `results/search/`), mostly those of the recipe; the first "
    "rung trains all of them. Below are the settings for which one value is clearly best there: "
    f"its candidates' mean rank by validation score is more than {CLEAR:.0f} standard errors (σ) "
    "from that of the others. As {} settings are compared, a few of these are there by chance. "
    "Better by: difference of the medians, in points."
)
WINNERS = (
    "Candidates were compared over {} to {} seeds, often for fewer epochs. Below are the winners, "
    "trained in full, beside the recipes `paper` and `authors`: mean ± sample standard deviation, "
    "of validation over the seeds that all of them have, of test over all. A winner is kept as "
    "`tuned` if its validation score is better than those of `paper`, `authors` and other "
    "winners; where none is, `tuned` is the better of these two. A recipe without scores was not "
    "trained in full.\n\n"
    "Here the validation score of a recipe is its best mean over {} epochs in a row: by the best "
    "of a hundred epochs on a hundred graphs, the noisiest recipe would win. Searches whose "
    "`plan.json` does not say `steady` compared their candidates by the best epoch. We decided to "
    "compare in this way when test scores were already known; it changed the choice on "
    "imdb-binary alone. In every run the epoch that is tested is the first with the best "
    "validation score."
)
FINALISTS = (
    '<details markdown="1"><summary>What was tried: the last rung of each search</summary>\n\n'
    "What each candidate changes in the recipe, best first. Validation scores can be compared "
    "within a search, not between searches.\n\n{}\n\n</details>"
)


def made() -> tuple[str, dict[str, Markup]]:
    """The page, and its figures by their paths beside it."""
    text, figures = results_page(list(STUDIES.values()), STUDIED, results_table())
    return f"{text}\n{searches()}", figures


def results_page(
    studies: Sequence[Study], root: Path, scores: str = ""
) -> tuple[str, dict[str, Markup]]:
    """All studies, from the records under ``root``; figures by the path by which they are shown.

    ``scores`` is the table that comes first.
    """
    parts, figures = list[str](), dict[str, Markup]()
    known = dict[str, list[Measured]]()
    for study in studies:
        plan, kept = StudyPlan(study.datasets, study.models), kept_plan(study, root)
        plan = plan if kept is None else plan.with_more(kept)
        measured = look(study, plan, root)
        path = None
        if (drawn := study.figure(measured)) is not None:
            path = f"assets/results/{study.name}.svg"
            figures[path] = drawn
        known[study.name] = measured
        text = markdown(study, measured, lists_of(plan, measured, {})[:2], path, brief=True)
        parts.append(f"## {study.title}\n\n{text}")
    ranked = {
        (one.cell.column, one.cell.row): one
        for name in RANKED
        for one in known.get(name, ())
        if one.outcome is not None
    }
    everything = [one for measured in known.values() for one in measured]
    decays, depths = known.get("decay", ()), known.get("deep", ())
    short = summary(list(ranked.values()), decays, depths, scores)
    head = [f"{INTRODUCTION}\n", short, f"{READING}\n"]
    if (rows := conditions(everything))[1]:
        parts.append(f"{CONDITIONS}\n\n{markdown_table(rows)}\n")
    return "\n".join(part for part in (*head, *parts) if part), figures


def conditions(measured: Sequence[Measured]) -> Rows:
    """A row for each dataset: its task, split, and selection; where cells differ, all of them."""
    head = ["data", "task", "split", "selected by", "data exactness"]
    begun = (one.history for one in measured if one.history is not None)
    known = [dict(protocol(history)) for history in begun if history.header]
    for facts in known:
        facts["selected by"] = facts["selection"].removeprefix("first epoch with the best ")
    return head, [
        [" / ".join(dict.fromkeys(own.get(name, "–") for own in some)) for name in head]
        for some in grouped((facts["data"], facts) for facts in known).values()
    ]


def searches() -> str:
    """What the candidates of the recorded searches say about each setting."""
    head = ["search", "candidates", "epochs", "setting", "best value", "better by", "σ"]
    rows, unclear, seeds, compared = [], set[str](), [], 0
    for place in _ended():
        seeds.append(load_plan(place).recipe.trials)
        attempts = load_attempts(place)
        first = [one for one in attempts if one.rung == 0 and one.settings]  # those that are drawn
        factor, places = shown({"lower_is_better": first[0].metric in LOWER_IS_BETTER})
        about = [place.name, str(len(first)), str(first[0].epochs)]
        found = levers(attempts)
        compared += len(found)
        for one in found:
            if one.strength > CLEAR:
                gain = f"{factor * one.gain:.{places}f}".replace("-", "−")
                rows.append([*about, one.name, str(one.value), gain, f"{one.strength:.1f}"])
            else:
                unclear.add(one.name)
    never = ", ".join(f"`{name}`" for name in sorted(unclear - {row[3] for row in rows}))
    nothing = f"Of these no value is clearly best on any data: {never}."
    full = WINNERS.format(min(seeds), max(seeds), STEADY)
    tried = FINALISTS.format(finalists())
    intro = SEARCHES.format(compared)
    parts = [intro, markdown_table((head, rows)), nothing, full, winners(), tried]
    return "\n\n".join(parts) + "\n"


def winners() -> str:
    """What searches found beside ``paper`` and ``authors``, of which the studies have the runs."""
    head = ["search", "metric", "winner, val", "paper, val", "authors, val", "winner, test"]
    head += ["paper, test", "seeds", "is"]
    rows = []
    for place in _ended():
        plan, best = load_plan(place), Recipe.load(place / "best.yaml")
        places = [*sorted(STUDIED.glob(f"*/{plan.data}-gradformer-*")), *place.glob("confirmed")]
        runs = [run for run in places if (run / "results.json").is_file()]
        named = {run.name.removeprefix(f"{plan.data}-gradformer-"): run for run in runs}
        paper, authors = named["paper"], named.get("authors")
        winner = next((run for run in runs if _alike(best, Recipe.load(run / "recipe.yaml"))), None)
        trained = [Run.load(run) if run else None for run in (winner, paper, authors)]
        shared = min(len(run.results["trials"]) for run in trained if run)
        known = [_outcome(run, shared) if run else None for run in trained]
        scores = [value(one, "val") if one else "–" for one in known]
        scores += [value(one) if one else "–" for one in known[:2]]
        seeds = " / ".join(str(len(one["test"]["values"])) if one else "–" for one in known)
        metric = metric_label(read_json(paper / "results.json")["metric"])
        rows.append([place.name, metric, *scores, seeds, _became(plan, best)])
    return markdown_table((head, rows))


def _outcome(run: Run, seeds: int) -> dict[str, Any]:
    """The results of a run, the validation part of its first seeds scored as candidates are."""
    return run.results | {"val": mean_and_std(validation_scores(run)[:seeds])}


def _ended() -> list[Path]:
    """The folders of the searches that have a winner."""
    return sorted(best.parent for best in SEARCHED.glob("*/best.yaml"))


def finalists() -> str:
    """What was trained longest in each search, with its validation score."""
    head = ["search", "epochs", "seeds", "change", "validation"]
    rows = []
    for place in _ended():
        plan, attempts = load_plan(place), load_attempts(place)
        last = [one for one in attempts if one.rung == attempts[-1].rung]
        falls = {"lower_is_better": last[0].metric in LOWER_IS_BETTER}
        for one in sorted(last, key=lambda one: one.cost):
            changes = [f"`{s}`" for s in one.settings if plan.recipe.change(s) != plan.recipe]
            outcome = falls | {"val": {"mean": one.val, "std": one.std}}
            score = "diverged" if one.val is None else value(outcome, "val")
            about = [place.name, str(one.epochs), str(plan.recipe.trials)]
            rows.append([*about, " ".join(changes) or AS_IT_IS, score])
    return markdown_table((head, rows))


def _became(plan: Plan, best: Recipe) -> str:
    """What became of the winner of a search."""
    if best == plan.recipe:
        return AS_IT_IS
    if "tuned" in presets(plan.data) and _alike(best, load_recipe(plan.data, preset="tuned")):
        return "`tuned`"
    return "not kept"


def _alike(first: Recipe, second: Recipe) -> bool:
    """Whether recipes are one but for the seeds and epochs, of which a search may have fewer."""
    return first.change(f"trials={second.trials}", f"train.epochs={second.train.epochs}") == second


if __name__ == "__main__":
    text, figures = made()
    PAGE.write_text(text, encoding="utf-8")
    for path, figure in figures.items():
        place = PAGE.parent / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(figure, encoding="utf-8")
    for study in STUDIES.values():
        if (plan := kept_plan(study, STUDIED)) is not None:
            write_markdown(study, plan, look(study, plan, STUDIED), STUDIED, {})
    print(f"{PAGE.name} and the pages of results/studies/ are made from their records")
