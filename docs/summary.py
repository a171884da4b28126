"""The results in short: on each dataset the best model, and which differences are clear."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from gradformer.errors import counted
from gradformer.graphs.cards import find_card
from gradformer.grouping import grouped
from gradformer.studies.decay import beside_none
from gradformer.studies.differences import dataset, verdict
from gradformer.studies.paper import printed
from gradformer.studies.rivals import RIVALS
from gradformer.studies.study import Measured, Rows, by_column
from gradformer.studies.tables import markdown_table, parameters, shown, value
from gradformer.training.metrics import metric_label

RECIPES = (
    "Gradformer has three recipes: `authors` does what the authors' code does, `paper` what the "
    "paper says, and `tuned` is the best by validation score of these two and of what searches "
    "found. A difference is *clear* if its 95 % interval does not contain 0."
)
SCORES = (
    "The scores: test at the epoch with the best validation score, mean ± standard deviation over "
    'ten seeds unless a cell says otherwise; bold is the best of our means over several. "No '
    'network" is the most frequent class or, on molhiv, a random forest. On pattern, cluster and '
    "collab the paper's numbers are those of other graphs. The other ten baselines are "
    "[below](#table-1-all-fourteen-baselines)."
)
INTERVALS = (
    "Where each seed has its own split, the splits overlap, so intervals here are wider than "
    "Student's, which the other tables have: by Nadeau and Bengio's √(1 + seeds · test/train), "
    "1.5 for ten seeds of 8:1:1. Where all seeds have one split, an interval covers other seeds, "
    "not other test data."
)
CHANCE = (
    "Many pairs are compared here: of those that do not truly differ, about one in twenty is "
    "clear by chance."
)
SEARCHED = (
    "Gradformer has up to three recipes and every other model one: the best of three means is "
    "flattered by the choice. Only `tuned` comes from a search, which is an advantage over the "
    "others; where no search beat `paper` and `authors` by validation over their seeds, it is the "
    "better of these. Where splits are drawn, its validation parts contain test graphs of other "
    "seeds ([more](reproducing.md#presets))."
)
OURS, SHOWN = "gradformer", ("paper", "tuned")
RANKED = ("table1", "baselines", "nodes")


def summary(
    measured: Sequence[Measured],
    decays: Sequence[Measured] = (),
    depths: Sequence[Measured] = (),
    scores: str = "",
) -> str:
    """Headlines, ``scores`` (the table of README), two tables of what is clear, and how far to
    believe them; empty where nothing was measured.

    ``decays`` and ``depths`` are the cells of the studies ``decay`` and ``deep``.
    """
    known = [one for one in measured if one.outcome is not None]
    single = [one for one in known if len(_values(one)) == 1]
    every = by_column([one for one in known if one not in single])
    columns = _without_parts(every)
    several = {name: some for name, some in columns.items() if len(some) > 1}
    if not several:
        return ""
    alone = ", ".join(name for name, some in columns.items() if len(some) == 1)
    notes = [INTERVALS, CHANCE, SEARCHED]
    notes += [f"Only one model has been measured with several seeds on {alone}."] if alone else []
    once = ", ".join(f"{one.cell.row} on {one.cell.column}" for one in single)
    notes += [f"Measured with one seed, and not counted above: {once}."] if once else []
    again = ", ".join(name for name in every if name not in columns)
    notes += [f"What counts on {again} is in another row too, and counts once."] if again else []
    for (one, runs), (other, others) in combinations(_runs(several).items(), 2):
        if both := len(runs & others):
            notes.append(f"{one} and {other} share {counted(both, 'run')}, counted twice.")
    lines = [*headlines(several), *_deepened(depths), *_decayed(decays)]
    parts = [
        "## In short",
        RECIPES,
        "\n".join(f"- {line}" for line in lines),
        *([SCORES, scores] if scores else []),
        "Which model is best on which data, from Table 1 and the appendix:",
        markdown_table(best(several)),
        "Gradformer, by the paper's recipe and by the tuned one, beside each other model:",
        markdown_table(beside(several)),
        "How far to believe it:",
        "\n".join(f"- {note}" for note in notes),
    ]
    return "\n\n".join(parts) + "\n"


def headlines(columns: dict[str, list[Measured]]) -> list[str]:
    """Where Gradformer is best, where another model is, and where the paper's number is better.

    Only data on which both are measured count: of the others nothing is better or worse.
    """
    meet = {name: some for name, some in columns.items() if 0 < len(_camp(some, True)) < len(some)}
    leaders = {name: _leader(some) for name, some in meet.items()}
    ours = [name for name, first in leaders.items() if first.cell.model == OURS]
    theirs = [name for name in meet if name not in ours]
    clear, beaten = (
        [
            name
            for name in names
            if all(verdict(leaders[name], one) < 0 for one in _camp(columns[name], camp))
        ]
        for names, camp in ((ours, False), (theirs, True))
    )
    rivals = [f"{name} ({counted(len(_camp(columns[name], False)), 'model')})" for name in clear]
    shared = [f"{name} (shared)" if _is_shared(columns[name]) else name for name in ours]
    found = [
        f"One of Gradformer's recipes has the best mean on {len(ours)} of the {len(meet)} rows "
        f"below on which it meets other models: {_names(shared)}. All other models measured there "
        f"are clearly worse on {_listed(rivals)}." + _sizes({name: columns[name] for name in clear})
    ]
    if theirs:
        who = [f"{name} ({leaders[name].cell.row})" for name in theirs]
        found.append(
            f"Another model has the best mean on {_listed(who)}. All recipes of Gradformer are "
            f"clearly worse on {_listed(beaten)}."
        )
    return found + _beside_the_paper(columns)


def _sizes(columns: dict[str, list[Measured]]) -> str:
    """How large the best model is, one of ours, and the largest of the others."""
    said = []
    for name, some in columns.items():
        ours = parameters(_leader(some).known)
        others = max(parameters(one.known) for one in _camp(some, False))
        said += [f"{ours:,} on {name} (the others at most {others:,})"] if others else []
    return f" Gradformer's parameters: {', '.join(said)}." if said else ""


def _decayed(measured: Sequence[Measured]) -> list[str]:
    """What decay is worth by itself: the cells of Figure 6."""
    rows = beside_none(measured)[1]
    said = [f"{row[1]} of {sum(map(int, row[1:]))} variants on {row[0]}" for row in rows]
    if not said:
        return []
    return [
        "The decay by itself (Figure 6: the recipe `paper` with other rates and shapes) is clearly "
        f"better than none (λ = 1) in {', '.join(said)}."
    ]


def _deepened(measured: Sequence[Measured]) -> list[str]:
    """Gradformer beside GraphGPS at every depth: the cells of Table 2."""
    found: dict[str, dict[str, int]] = {}
    for column, some in by_column(measured).items():
        for other in some:
            for ours in _camp(some, True) if other.cell.model == "graphgps" else ():
                found.setdefault(ours.cell.row, {})[column] = verdict(other, ours)
    said = []
    for row, signs in found.items():
        better, worse = (
            " / ".join(name for name, each in signs.items() if each == sign) or "none"
            for sign in (1, -1)
        )
        text = f"{row} is clearly better on {better}, clearly worse on {worse}"
        said.append(f"{text} ({len(signs)} measured)")
    return [f"Beside GraphGPS of equal depth (Table 2), {'; '.join(said)}."] if said else []


def _beside_the_paper(columns: dict[str, list[Measured]]) -> list[str]:
    """The numbers that the paper prints for Gradformer beside ours by the recipe ``paper``."""
    gaps, elsewhere = dict[str, float](), list[str]()
    for name, some in columns.items():
        number = next((found for s in RANKED if (found := printed(s, OURS, name))), None)
        if number is None:
            continue
        if "not graph by graph" in find_card(name).exactness:
            elsewhere.append(name)
            continue
        for one in some:
            if one.cell.preset == "paper":
                factor, test = shown(one.known)[0], one.known["test"]
                gap = float(number.split()[0]) - factor * test["mean"]
                gaps[name] = _sign(one) * gap / (factor * (test["std"] or 1.0))
    above = [name for name, gap in gaps.items() if gap > 0]
    far = [name for name in above if gaps[name] > 1]
    if not gaps:
        return []
    but = f" other than {_names(elsewhere)}, whose graphs are not the paper's" if elsewhere else ""
    return [
        f"The paper prints a better mean for Gradformer than we measure by the recipe `paper` on "
        f"{len(above)} of {counted(len(gaps), 'dataset')}{but}; it is better by more than the "
        f"standard deviation over our seeds on {_listed(far)}."
    ]


def best(columns: dict[str, list[Measured]]) -> Rows:
    """A row for each dataset: the best mean, and the models that are and are not clear of it.

    ``seeds`` are those of the best; a model that has another number bears it behind its name.
    """
    head = ["data", "best mean", "not clearly worse", "clearly worse", "seeds", "what it is"]
    rows = []
    for name, some in columns.items():
        first = _leader(some)
        outcome, seeds = first.known, len(_values(first))
        worse: dict[bool, list[str]] = {}
        for one in some:
            if one is not first:
                count = len(_values(one))
                said = one.cell.row if count == seeds else f"{one.cell.row} ({count} seeds)"
                worse.setdefault(verdict(first, one) < 0, []).append(said)
        rows.append(
            [
                f"{name}, {metric_label(outcome['metric'])}",
                f"{first.cell.row} {value(outcome)}",
                _names(worse.get(False, [])),
                _names(worse.get(True, [])),
                str(seeds),
                find_card(dataset(first)).about,
            ]
        )
    return head, rows


def beside(columns: dict[str, list[Measured]]) -> Rows:
    """Where each variant of ours is better than another model and where worse, a row for models of
    which the same is true."""
    head = ["model", "beside", "clearly better on", "no clear difference on", "clearly worse on"]
    found: dict[tuple[str, str], dict[int, list[str]]] = {}
    for name, some in columns.items():
        for ours in some:
            for other in some:
                if ours.cell.preset in SHOWN and other.cell.model not in (OURS, *RIVALS):
                    key = (ours.cell.row, other.cell.row)
                    signs = found.setdefault(key, {})
                    signs.setdefault(-verdict(ours, other), []).append(name)
    order = {row: place for place, row in enumerate(dict.fromkeys(other for _, other in found))}
    ranked = sorted(found.items(), key=lambda item: order[item[0][1]])
    told = grouped(
        ((ours, *(_names(signs.get(s, [])) for s in (1, 0, -1))), other)
        for (ours, other), signs in ranked
    )
    return head, [[ours, _names(others), *data] for (ours, *data), others in told.items()]


def _without_parts(columns: dict[str, list[Measured]]) -> dict[str, list[Measured]]:
    """Columns but those all of whose runs another one has, and more: they would count twice."""
    runs = _runs(columns)
    return {
        name: some
        for name, some in columns.items()
        if not any(runs[name] < others for others in runs.values())
    }


def _runs(columns: dict[str, list[Measured]]) -> dict[str, set[tuple[object, ...]]]:
    """What tells the runs of each column from others."""
    return {
        name: {(dataset(one), one.cell.row, *_values(one)) for one in some}
        for name, some in columns.items()
    }


def _leader(some: Sequence[Measured]) -> Measured:
    """The best mean."""
    return max(some, key=lambda one: _sign(one) * one.known["test"]["mean"])


def _is_shared(some: Sequence[Measured]) -> bool:
    """Whether one of ours and one of the others have the best mean."""
    most = _leader(some).known["test"]["mean"]
    return len({one.cell.model == OURS for one in some if one.known["test"]["mean"] == most}) > 1


def _camp(some: Sequence[Measured], ours: bool) -> list[Measured]:
    return [one for one in some if (one.cell.model == OURS) == ours]


def _values(one: Measured) -> list[float]:
    """The test value of each seed."""
    values: list[float] = one.known["test"]["values"]
    return values


def _sign(one: Measured) -> int:
    return -1 if one.known["lower_is_better"] else 1


def _names(rows: Sequence[str]) -> str:
    return ", ".join(rows) or "–"


def _listed(names: Sequence[str]) -> str:
    return f"{len(names)}: {_names(names)}" if names else "none"
