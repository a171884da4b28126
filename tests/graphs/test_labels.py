"""Stated tasks that the columns cannot serve."""

from __future__ import annotations

import math
import warnings

import networkx as nx
import pytest

from gradformer.errors import ConfigError, GradformerWarning, InputError
from gradformer.graphs.labels import Labels, find_labels
from gradformer.graphs.objects import from_networkx


@pytest.mark.parametrize(
    ("columns", "task", "message"),
    [
        ({"y": ["a", "b", "c"]}, "binary", "has 3 classes (a, b, c), a binary target has two"),
        ({"y": ["a", "b"], "z": ["a", "b"]}, "multiclass", "has one target column, 2 were given"),
        ({"y": ["a", "b", "c"], "z": ["0", "1"]}, "classification", "column 'y' has 3 classes"),
        ({"y": ["a", "b", "c"], "z": ["0", "1"]}, None, "different tasks: y (classes), z (binary)"),
    ],
)
def test_impossible_tasks(
    columns: dict[str, list[str | None]], task: str | None, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        find_labels(columns, task, "file")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("values", "task"),
    [
        ([str(k % 20) for k in range(40)], "multiclass"),
        ([str(k % 20) for k in range(39)], "regression"),  # hardly repeat
        ([str(k % 21) for k in range(63)], "regression"),  # too many
        (["1", "2", "2.5"] * 9, "regression"),
        (["0", "1"], "binary"),
        (["1_000", "2_000", "a"], "multiclass"),  # no numbers in any spreadsheet
        (["1", "2", "a", "b"], "multiclass"),  # as many words as numbers
        (["1", "2", "2", "a"] * 2, "regression"),  # mostly numbers
        ([f"w{k % 21}" for k in range(42)], "multiclass"),
    ],
)
def test_the_task_that_values_suggest(values: list[str | None], task: str) -> None:
    assert find_labels({"y": values}, None, "file").task == task


def test_classes_however_many() -> None:
    assert find_labels({"y": ["a", "b"]}, "classification", "file").task == "binary"
    assert find_labels({"y": ["1", "2", "9"]}, "classification", "file").task == "multiclass"
    with pytest.raises(ConfigError, match="task: unknown value 'clasification'"):
        find_labels({"y": ["a", "b"]}, "clasification", "file")


@pytest.mark.parametrize(
    ("one", "two"), [("TRUE", "True"), ("01", "1"), ("1.5", "1.50"), ("0", "00")]
)
def test_classes_that_differ_in_spelling_only_are_told(one: str, two: str) -> None:
    """Tables that several programs wrote have True and TRUE, which were two classes."""
    with pytest.warns(GradformerWarning, match=rf"'y' has the classes \({one}, {two}\), which"):
        labels = find_labels({"y": [one, "no", two, "no"]}, "multiclass", "file")
    assert sorted(labels.classes[0]) == sorted([one, two, "no"])


@pytest.mark.parametrize(
    "values",
    [["2,5", "3,5"], ["1,200.5", "-0,5", "7"], ["7%", "12.5 %"], ["1,200", "999", "850", "2,100"]],
)
def test_numbers_that_no_program_reads_are_no_classes(values: list[str | None]) -> None:
    """A few that repeat were learned as words, without one."""
    with pytest.raises(InputError, match=rf"column 'y': '{values[0]}' is no number; write numb"):
        find_labels({"y": values * 9}, None, "file")
    assert len(find_labels({"y": values}, "multiclass", "file").classes[0]) == len(values)


def test_a_rare_label_without_positives_is_kept() -> None:
    labels = find_labels({"a": ["0", "0", None], "b": ["yes", "no", "no"]}, None, "file")
    assert labels.task == "multilabel"
    assert labels.classes == (("0", "1"), ("no", "yes"))


def test_values_that_32_bits_do_not_tell_apart_are_named() -> None:
    """As total energies, whose differences are what is to be learned."""
    graphs, energies = [nx.path_graph(n) for n in (2, 3, 4)], [-5e6 - 1.1, -5e6 - 1.5, -5e6 - 2.2]
    said = r"32 bits round column 'y' by up to 0\.2.* a standard deviation of 0\.45: .*a constant"
    with pytest.warns(GradformerWarning, match=said):
        data = from_networkx(graphs, y=energies)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_networkx(graphs, y=energies, like=data.reading)
        from_networkx(graphs, y=[energy + 5e6 for energy in energies])
        Labels("regression", ("y", "z"), ()).tell_rounded([0.1, math.nan, 0.1, 0.3], "file")
        Labels("binary", ("y",), (("a", "b"),)).tell_rounded([0.0, 1.0], "file")
