"""Stated tasks that the columns cannot serve."""

from __future__ import annotations

import pytest

from gradformer.errors import InputError
from gradformer.graphs.labels import find_labels


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


def test_a_rare_label_without_positives_is_kept() -> None:
    labels = find_labels({"a": ["0", "0", None], "b": ["yes", "no", "no"]}, None, "file")
    assert labels.task == "multilabel"
    assert labels.classes == (("0", "1"), ("no", "yes"))
