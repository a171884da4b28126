"""Target columns of a user's data: which task they ask for, and words to numbers and back.

Every value comes as text, or ``None`` where it is missing, so that tables, JSON and Python objects
share one set of rules.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from gradformer.errors import InputError, choice, counted, warn
from gradformer.graphs.arrays import Task
from gradformer.grouping import grouped

NO_VALUE = frozenset({"", "NaN", "nan", "<NA>"})
"""What says that there is no value also beside words, where None, NA and null may be one."""
_MISSING = NO_VALUE | {"NA", "N/A", "n/a", "#N/A", "NULL", "null", "None"}
MISSING_CLASS = -1
_MOST_GUESSED_CLASSES = 20
ROUNDED = 1e-3
"""Largest error of rounding, in standard deviations of a target, that does not matter."""
_LARGEST = float(np.finfo(np.float32).max)
_ALMOST_NUMBER = re.compile(r"[-+]?[\d.,]*(\d,\d[\d.,]*|\d ?%)")

Values = Sequence[str | None]


@dataclass(frozen=True)
class Labels:
    """How ``targets`` (column names) are read: ``classes[t]`` are the words of target t in order.

    A binary or multilabel target has two words, the second is the positive one; a multiclass
    target has one word for each class; a regression has no words.
    """

    task: Task
    targets: tuple[str, ...]
    classes: tuple[tuple[str, ...], ...]

    @property
    def outputs(self) -> int:
        """Numbers that a model gives for each graph or node."""
        return len(self.classes[0]) if self.task == "multiclass" else len(self.targets)

    def number(self, target: int, text: str | None) -> float:
        """The number of one cell: a value, a class index, NaN where it is missing.

        Raises an :class:`InputError` that names the column and what was expected.
        """
        if text is None or (text in _MISSING and text not in self._words(target)):
            return math.nan
        if self.task == "regression":
            value = parse_number(text)
            if value is None:
                raise InputError(
                    f"column {self.targets[target]!r}: {text!r} is not a number that fits 32 bits"
                )
            return value
        words = self._words(target)
        try:
            return words.index(class_word(text))
        except ValueError:
            raise InputError(
                f"column {self.targets[target]!r}: {text!r} is not one of the classes "
                f"{_listed(words)}"
            ) from None

    def _words(self, target: int) -> tuple[str, ...]:
        return self.classes[target] if self.classes else ()

    def array(self, numbers: Sequence[float]) -> NDArray[np.int64] | NDArray[np.float32]:
        """What :meth:`number` gave, row by row, as y: int64 [rows] for multiclass (−1 = missing),
        else float32 [rows, targets] (NaN = missing)."""
        y = np.array(numbers, dtype=np.float64).reshape(-1, len(self.targets))
        if self.task == "multiclass":
            return np.where(np.isnan(y[:, 0]), MISSING_CLASS, y[:, 0]).astype(np.int64)
        return y.astype(np.float32)

    def tell_rounded(self, numbers: Sequence[float], where: str) -> None:
        """Warn of a regression whose values, as :meth:`number` gave them, differ by so little that
        the rounding to 32 bits is felt."""
        if self.task != "regression":
            return
        for name, column in zip(self.targets, np.reshape(numbers, (-1, len(self.targets))).T):
            values = column[~np.isnan(column)]
            if not len(values) or values.min() == values.max():
                continue
            lost, std = np.abs(values - values.astype(np.float32)).max(), values.std()
            if lost > ROUNDED * std:
                warn(
                    f"{where}: 32 bits round column {name!r} by up to {lost:.2g}, and its values "
                    f"have a standard deviation of {std:.2g}: they are learned and scored so; "
                    "subtract a constant, or give them in another unit"
                )


def find_labels(columns: Mapping[str, Values], task: str | None, where: str) -> Labels:
    """The labels of target ``columns`` (name → values), for a stated task or the one they suggest.

    A column of words, of 0 and 1, or of at most 20 whole numbers that repeat, holds classes; any
    other numbers are a regression. Two classes are binary, several such columns multilabel.
    ``task`` may also be "classification": classes, however many.
    """
    if task is not None:
        choice("task", task, (*get_args(Task), "classification"))
    present = {name: _present(values) for name, values in columns.items()}
    for name, values in present.items():
        if not values:
            raise InputError(f"{where}: column {name!r} has no values, so nothing can be learned")
    if task is None:
        task = _suggested_task(present, where)
    names = tuple(columns)
    if task == "regression":
        return Labels("regression", names, ())
    classes = tuple(_classes(values) for values in present.values())
    if task == "classification":
        alone = "binary" if len(classes[0]) == 2 else "multiclass"
        task = alone if len(names) == 1 else "multilabel"
    if task in ("binary", "multiclass") and len(names) > 1:
        raise InputError(
            f"{where}: a {task} task has one target column, {len(names)} were given: "
            f"{', '.join(names)}; name one, or use multilabel for columns of two classes each"
        )
    for name, words in zip(names, classes):
        spelled = grouped((_meant(word), word) for word in words)
        for alike in spelled.values():
            if len(alike) > 1:
                warn(
                    f"{where}: column {name!r} has the classes {_listed(alike)}, which differ in "
                    "spelling only; write them alike if they are the same"
                )
        if len(names) == 1 and len({class_word(value) for value in present[name]}) == 1:
            raise InputError(
                f"{where}: column {name!r} has one class only, {present[name][0]!r}; "
                "give rows of another class too, or choose another column"
            )
        if task != "multiclass" and len(words) != 2:
            raise InputError(
                f"{where}: column {name!r} has {counted(len(words), 'class')} {_listed(words)}, "
                f"a {task} target has two; state another task or another column"
            )
    return Labels(task, names, classes)  # type: ignore[arg-type]


def _present(values: Values) -> list[str]:
    """The values that are there. Among numbers None, NA and null are missing, among words they are
    values.

    >>> _present(["1.5", "NA", None]), _present(["mild", "None", None])
    (['1.5'], ['mild', 'None'])
    """
    sure = [v for v in values if v is not None and v not in _MISSING]
    if all(parse_number(v) is not None for v in sure):
        return sure
    return [v for v in values if v is not None]


def present(text: str, missing: Set[str] = _MISSING) -> str | None:
    """``text`` without blanks around it; None if it says that there is no value, as a table does.

    >>> present(" 1.5 "), present("None"), present("None", NO_VALUE)
    ('1.5', None, 'None')
    """
    text = text.strip()
    return None if text in missing else text


def parse_number(text: str) -> float | None:
    """A finite number that a 32-bit float can hold, else None."""
    if "_" in text:  # Python reads 1_000; no spreadsheet does
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) <= _LARGEST else None


def class_word(text: str) -> str:
    """The name of a class: the text, less an empty fraction, so that 1.0 and 1 are the same class.

    >>> class_word("1.0"), class_word("1.5"), class_word("active")
    ('1', '1.5', 'active')
    """
    return re.sub(r"^([+-]?\d+)\.0*$", r"\1", text)


def _meant(word: str) -> float | str:
    """What a class is, however it is spelled: 01 is 1, and TRUE is true."""
    number = parse_number(word)
    return word.casefold() if number is None else number


def _suggested_task(columns: Mapping[str, list[str]], where: str) -> str:
    for name, values in columns.items():
        almost = [value for value in values if _ALMOST_NUMBER.fullmatch(value)]
        plain = sum(parse_number(value) is not None for value in values)
        if almost and len(almost) + plain > len(values) / 2:
            raise InputError(
                f"{where}: column {name!r}: {almost[0]!r} is no number; write numbers as 1234.5, "
                "without a comma or %, or state the task 'classification' if these are classes"
            )
    kinds = {name: _kind(values) for name, values in columns.items()}
    if all(kind == "binary" for kind in kinds.values()):
        return "classification"
    if len(kinds) > 1:
        if all(kind == "number" or _is_zero_one(columns[name]) for name, kind in kinds.items()):
            return "regression"
        found = ", ".join(f"{name} ({kind})" for name, kind in kinds.items())
        raise InputError(
            f"{where}: the target columns ask for different tasks: {found}; several targets must "
            "be all numbers or all of two classes: choose columns, or state the task"
        )
    (name,) = kinds
    if kinds[name] == "names":
        raise InputError(
            f"{where}: column {name!r} has {len(set(columns[name]))} different words in "
            f"{len(columns[name])} rows, as {columns[name][0]!r}, which looks like names, not like "
            "classes or numbers; choose another column, or state the task 'multiclass'"
        )
    return "regression" if kinds[name] == "number" else "classification"


def _kind(values: list[str]) -> str:
    """What a column seems to hold: "binary", "classes", "number" or "names"."""
    numbers = [parse_number(value) for value in values]
    # Mostly numbers: the rest are then malformed rows, and not words.
    is_number = sum(number is not None for number in numbers) > len(values) / 2
    words = len(_classes(values))
    few = words <= _MOST_GUESSED_CLASSES
    repeated = len(values) >= 2 * words
    if is_number:
        whole = all(number is not None and number.is_integer() for number in numbers)
        if not _is_zero_one(values) and not (whole and few and repeated):
            return "number"
    elif not few and not repeated:
        return "names"
    return "binary" if words == 2 else "classes"


def _is_zero_one(values: list[str]) -> bool:
    return {class_word(value) for value in values} <= {"0", "1"}


def _classes(values: list[str]) -> tuple[str, ...]:
    """The different words of a column, numbers by size and before other words."""
    if _is_zero_one(values):  # a rare label may have no positive here
        return ("0", "1")

    def order(word: str) -> tuple[float, str]:
        number = parse_number(word)
        return (math.inf if number is None else number, word)

    return tuple(sorted({class_word(value) for value in values}, key=order))


def _listed(words: Sequence[str]) -> str:
    shown = ", ".join(words[:10])
    return f"({shown}, ...)" if len(words) > 10 else f"({shown})"
