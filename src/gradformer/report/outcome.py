"""What came out: headline, result tables, and differences of runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, compress

from gradformer.grouping import grouped
from gradformer.report.history import History
from gradformer.report.markup import Content, Markup, figure, fold, grid, join, note, table, tag
from gradformer.report.pairs import (
    Difference,
    comparable,
    difference,
    equal_splits,
    splits_by_seed,
    yardstick,
)
from gradformer.report.plots import strip_plot
from gradformer.report.scales import decimals, duration, number, signed, spread
from gradformer.report.settings import protocols
from gradformer.training.metrics import SCALED, metric_label, metric_name


def headline(history: History) -> Markup:
    """The few numbers that a reader looks for first."""
    outcome = history.outcome
    done = len(outcome["test"]["values"])
    cards: list[tuple[str, str]] = []
    if done:
        metric = metric_name(history.metric)
        better = "lower" if outcome["lower_is_better"] else "higher"
        cards.append((spread(outcome["test"]["values"]), f"test {metric}, {better} is better"))
        cards.append((spread(outcome["val"]["values"]), f"validation {metric}"))
    cards.append((f"{done} of {history.run.recipe.trials}", "trials that ended well"))
    if history.results:
        cards.append((f"{history.results[0]['parameters']:,}", "parameters"))
    cards.append((duration(history.seconds), "training time, all trials"))
    items = (
        tag("div", tag("b", value), tag("span", name), class_="card first" if not k else "card")
        for k, (value, name) in enumerate(cards)
    )
    return tag("div", *items, class_="cards")


def result_section(histories: Sequence[History]) -> Markup:
    """Tables of results; one run shows all its metrics, several are set beside each other."""
    parts: list[Content] = []
    for history in histories:
        if not history.finished:
            parts.append(
                note(
                    f"{history.label} is not finished: {len(history.results)} of "
                    f"{history.run.recipe.trials} trials have ended. What follows is what there is."
                )
            )
        for trial in history.outcome["diverged"]:
            parts.append(note(f"{history.label}: trial {trial} diverged and counts in no mean."))
    parts += [note(text) for text in closed(histories)]
    if len(histories) == 1:
        parts.append(_metrics_table(histories[0]))
    else:
        parts += [_comparison_table(histories), _strips(histories), *_difference_tables(histories)]
    for history in histories:
        title = "Every trial" if len(histories) == 1 else f"Every trial of {history.label}"
        parts.append(fold(title, _trials_table(history)) if history.results else None)
    return join([*parts, protocols(histories)])


def closed(histories: Sequence[History]) -> list[str]:
    """What to say of attempts of a search, to which the test part is closed."""
    return [
        f"{history.label} is an attempt of a search, to which the test part is closed: what is "
        "called test is its validation part again."
        for history in histories
        if history.run.origin.get("closed")
    ]


def _metrics_table(history: History) -> Markup:
    good = [r for r in history.results if r["test"] is not None]
    if not good:
        ended = "has ended well" if history.results else "has ended yet"
        return note(f"No trial {ended}, so there is no result.")
    rows = []
    for name in good[0]["test"]:
        cells: list[Content] = [metric_label(name) + (" ★" if name == history.metric else "")]
        for part in ("val", "test"):
            cells.append(spread([r[part].get(name) for r in good]))
        rows.append(cells)
    over = f"Mean ± standard deviation over {len(good)} trials." if len(good) > 1 else "One trial."
    targets = len(history.run.labels.targets)
    together = f" Scores are over {targets} targets together." if targets > 1 else ""
    if SCALED in good[0]["test"]:
        together += " std is that of each target in the training part."
    caption = f"{over} ★: the metric by which runs on these data are compared.{together}"
    return table(caption, ["metric", "validation", "test"], rows)


def comparison(histories: Sequence[History]) -> tuple[list[str], list[list[str]]]:
    """Head and rows: every run with its scores and what it cost."""
    head = ["run", "data", "metric", "test", "validation", "trials", "parameters", "time"]
    rows = [
        [
            history.label,
            history.data,
            metric_label(history.metric),
            spread(history.outcome["test"]["values"]),
            spread(history.outcome["val"]["values"]),
            str(len(history.outcome["test"]["values"])),
            f"{history.results[0]['parameters']:,}" if history.results else "–",
            duration(history.seconds),
        ]
        for history in histories
    ]
    return head, rows


def _comparison_table(histories: Sequence[History]) -> Markup:
    head, rows = comparison(histories)
    test = head.index("test")
    best = [_is_best(history, histories) for history in histories]
    marked: list[list[Content]] = []
    for bold, row in zip(best, rows):
        mean = tag("span", row[test], class_="best" if bold else None)
        marked.append([*row[:test], mean, *row[test + 1 :]])
    caption = ["Mean ± standard deviation over trials."]
    if any(best):
        caption.append("The best mean on each dataset is bold.")
    return table(" ".join([*caption, unequal(histories)]), head, marked, names=3)


def unequal(histories: Sequence[History]) -> str:
    """What to say where runs on data of one name have other test sets; empty where none has."""
    pairs = [*combinations([h for h in histories if h.outcome["test"]["values"]], 2)]
    called_alike = [(a, b) for a, b in pairs if (a.data, a.metric) == (b.data, b.metric)]
    apart = dict.fromkeys(a.data for a, b in called_alike if not comparable(a, b))
    other = [a for a, b in pairs if comparable(a, b) and not equal_splits(a, b)]
    said = []
    if apart:
        where = " and ".join(apart)
        said.append(f"Runs on {where} differ in targets, rows or split, so not all means compare.")
    if other:
        where = " and ".join(dict.fromkeys(history.data for history in other))
        alone = len({history.data for history in histories}) == 1
        differ = "Seeds differ" if alone else f"On {where} seeds differ"
        said.append(f"{differ}, so the means do not compare; differences over equal seeds do.")
    return " ".join(said)


def _strips(histories: Sequence[History]) -> Markup:
    """The test values of all trials, runs that compare above each other."""
    scored = [history for history in histories if history.outcome["test"]["values"]]
    figures = []
    for members in grouped((yardstick(history), history) for history in scored).values():
        label = f"test {metric_label(members[0].metric)} on {members[0].data}"
        rows = [(h.label, h.outcome["test"]["values"]) for h in members]
        figures.append(figure(strip_plot(f"Every trial: {label}", label, rows)))
    return grid(*figures)


def _is_best(history: History, histories: Sequence[History]) -> bool:
    mean = history.outcome["test"]["mean"]
    rivals = [h for h in histories if comparable(history, h) and h.outcome["test"]["values"]]
    if not all(equal_splits(history, rival) for rival in rivals):
        return False
    known = [rival.outcome["test"]["mean"] for rival in rivals]
    return len(known) > 1 and mean == (min if history.outcome["lower_is_better"] else max)(known)


APART = "No two runs share data, split and, where each seed has its own split, a finished seed."
_WHICH = {
    True: "Where each seed has its own split they are paired over equal seeds: what the split adds "
    "to both cancels. The interval is Student's t; as splits overlap, it is too narrow.",
    False: "Where all have one split, equal seeds have nothing in common: they are those of the "
    "means over all seeds, with Welch's interval.",
}


def differences(histories: Sequence[History]) -> tuple[list[str], list[list[str]], list[list[str]]]:
    """Head, then differences of the test value to the first run on the same data, then others.

    A column that no pair has is left out: seeds that are not paired have no spread.
    """
    head = ["difference", "mean", "std", "95 % interval", "seeds", "better / worse"]
    to_first: list[list[str]] = []
    to_others: list[list[str]] = []
    for (place, first), (_, other) in combinations(enumerate(histories), 2):
        if not comparable(first, other):
            continue
        found = difference(first.outcome, other.outcome, splits_by_seed(first.run))
        if found is not None:
            leads = not any(comparable(before, first) for before in histories[:place])
            (to_first if leads else to_others).append(_difference_row(first, other, found))
    rows = [head, *to_first, *to_others]
    known = [any(text != "–" for text in column[1:]) for column in zip(*rows)]
    head, *rows = [[*compress(row, known)] for row in rows]
    return head, rows[: len(to_first)], rows[len(to_first) :]


def _difference_tables(histories: Sequence[History]) -> list[Markup]:
    """Differences to the first run on the same data; all other pairs in a fold."""
    head, to_first, to_others = differences(histories)
    if not to_first:
        return [note(APART)]
    ways = dict.fromkeys(splits_by_seed(history.run) for history in histories)
    caption = " ".join(["Differences of the test value.", *(_WHICH[way] for way in ways)])
    tables = [table(caption, head, to_first)]
    if to_others:
        tables.append(fold("Differences of all others", table(caption, head, to_others)))
    return tables


def _difference_row(first: History, other: History, found: Difference) -> list[str]:
    pairs = found.pairs
    std = None if pairs is None else pairs.std
    places = decimals(std or found.reach, found.mean)
    if abs(first.outcome["test"]["mean"]) >= 1e-3:  # else of a target in a small unit
        places = min(places, 6)
    interval = "–"
    if found.reach is not None:
        ends = (found.mean - found.reach, found.mean + found.reach)
        interval = " … ".join(signed(end, places) for end in ends)
    counts = [str(len(history.outcome["test"]["values"])) for history in (other, first)]
    return [
        f"{other.label} − {first.label}",
        signed(found.mean, places),
        "–" if std is None else signed(std, places).removeprefix("+"),
        interval,
        " and ".join(counts) if pairs is None else str(pairs.count),
        "–" if pairs is None else f"{pairs.better} / {pairs.worse}",
    ]


def _trials_table(history: History) -> Markup:
    metric = history.metric
    rows = [
        [
            str(r["trial"]),
            r["seed"],
            r["status"] if r["bad_step"] is None else f"{r['status']} at step {r['bad_step']}",
            r["best_epoch"] or "–",
            r["epochs"],
            number(r["val"].get(metric), 5),
            number(r["test"][metric] if r["test"] else None, 5),
        ]
        for r in history.results
    ]
    head = ["trial", "seed", "status", "best epoch", "epochs", "validation", "test"]
    return table(f"{metric_name(metric)} of every trial", head, rows)
