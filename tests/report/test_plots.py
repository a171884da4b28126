"""The drawings say what the numbers say."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from gradformer.report.matrices import confusion_plot, matrix_cells
from gradformer.report.plots import (
    BOTTOM,
    HEIGHT,
    LEFT,
    LEGEND_LINE,
    LETTER,
    RIGHT,
    TOP,
    WIDTH,
    Axes,
    Line,
    dot_plot,
    line_plot,
    parity_plot,
    strip_plot,
)

AXES = Axes("x", "y", x_range=(0.0, 2.0), y_range=(0.0, 1.0))


def paths(picture: str, style: str) -> list[str]:
    return re.findall(rf'<path d="([^"]*)" class="{style}', picture)


def points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path)]


def words(picture: str) -> list[tuple[str, float, float, str]]:
    """Every text with its place and anchor."""
    found = re.findall(
        r'<text x="(.*?)" y="(.*?)" text-anchor="(\w+)"(?: class="[^"]*")?>(.*?)</text>', picture
    )
    return [(text, float(x), float(y), anchor) for x, y, anchor, text in found]


def test_all_is_inside_of_the_picture():
    long, short = Line("n" * 80, [0, 1], [0, 1]), Line("b", [0, 1], [1, 9])
    for picture in (
        line_plot("t", [long, short], Axes("x", "y")),
        dot_plot("t", [("left", 0.0, 0.5), ("right", 2.0, 0.5), ("up", 1.0, 1.0)], AXES),
        parity_plot("t", np.array([0.0, 1.0]), np.array([0.5, 2.0])),
        strip_plot("t", "score", [("a", [1.0, 3.0]), ("b", [2.0])]),
        *(confusion_plot("t", np.eye(k), list("abcdefghijklm")[:k]) for k in (2, 8, 13)),
    ):
        drawn = re.findall(r'<path d="(.*?)"', picture)
        places = [place for path in drawn for place in points(path)]
        places += [(x, y) for _, x, y, _ in words(picture)]
        widths = [float(x) for path in drawn for x in re.findall(r"H([-\d.]+)", path)]
        heights = [float(y) for path in drawn for y in re.findall(r"V([-\d.]+)", path)]
        assert len(places) > 10
        assert all(0 <= x <= picture.width for x in [*widths, *(x for x, _ in places)])
        assert all(0 <= y <= picture.height for y in [*heights, *(y for _, y in places)])


def test_the_frame_has_a_word_for_each_line_and_axis():
    axes = Axes("epoch", "loss", x_range=(0, 2), y_range=(0, 1))
    picture = line_plot("t", [Line("a", [0, 1, 2], [0, 0.5, 1])], axes)
    assert not paths(picture, "key"), "a single line needs no name"
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    ticks = {text: (x, y, anchor) for text, x, y, anchor in words(picture)}
    assert ticks["epoch"][::2] == ((LEFT + right) / 2, "middle")
    assert ticks["epoch"][1] > ticks["0.5"][1]
    assert ticks["loss"][1] < TOP
    for text, height in (("0", bottom), ("1", TOP)):
        assert f"M{LEFT:.0f} {height:.0f}H{right:.0f}" in paths(picture, "gridline"), text
    beside = sorted(y for _, x, y, anchor in words(picture) if anchor == "end" and x < LEFT)
    lines = sorted(y for path in paths(picture, "gridline") for _, y in points(path))
    assert np.subtract(beside, lines) == pytest.approx(4.0, abs=0.1), "the middle of a digit"
    below = [x for text, x, y, _ in words(picture) if bottom + 4 < y and text != "epoch"]
    assert [x for path in paths(picture, "axis") for x, _ in points(path)[:1]] == [*below, LEFT]


def test_line_goes_through_its_points():
    (path,) = paths(line_plot("t", [Line("a", [0, 1, 2], [0, 0.5, 1])], AXES), "line")
    assert path.count("L") == 2
    (x0, y0), (x1, y1), (x2, y2) = points(path)
    assert x0 == LEFT
    assert x2 == WIDTH - RIGHT
    assert x1 == pytest.approx((x0 + x2) / 2, abs=0.1)
    assert y1 == pytest.approx((y0 + y2) / 2, abs=0.1)
    assert y0 > y2, "larger values are higher"


def test_line_has_a_gap_where_a_value_is_missing():
    (path,) = paths(line_plot("t", [Line("a", [0, 1, 2], [0, math.nan, 1])], AXES), "line")
    assert path.count("M") == 2
    assert "nan" not in path


def test_dots_marks_and_other_curves_are_drawn_where_asked():
    plain = Line("a", [0, 1, 2], [0, 0.5, 1])
    others = [([0, 1], [0.2, 0.3])]
    given = replace(plain, dots=True, faint=others, marks=[(1, 0.5), (2, math.nan)])
    full, bare = (line_plot("t", [line], AXES) for line in (given, plain))
    assert "nan" not in full
    for style, count in (("dots", 3), ("faint", 2), ("marks", 1)):
        assert [len(points(path)) for path in paths(full, style)] == [count]
        assert not paths(bare, style)


def test_an_axis_is_logarithmic_where_it_may_be_and_values_are_far_apart():
    far, near = Line("a", range(4), [1, 10, 100, 1000]), Line("a", range(4), [1, 2, 3, 4])
    for line, log, even in ((far, True, True), (far, False, False), (near, True, True)):
        (path,) = paths(line_plot("t", [line], Axes("x", "y", log_y=log)), "line")
        assert (np.ptp(np.diff([y for _, y in points(path)])) < 0.5) == even


def test_a_single_point_is_a_dot():
    picture = line_plot("t", [Line("a", [1], [0.5])], AXES)
    (dot,) = paths(picture, "dots")
    assert len(points(dot)) == 1
    assert not paths(line_plot("t", [Line("a", [1, 2], [0.5, 0.6])], AXES), "dots")
    alone = Line("a", [1], [82.0], low=[81.0], high=[83.0])
    (reach,) = paths(line_plot("t", [alone], Axes("x", "y")), "range")
    assert reach == "M221 200.2V37.8", "a stroke over nearly the whole height"


def test_band_and_legend():
    lines = [
        Line("first", [0, 1], [0.5, 0.5], low=[0.4, 0.4], high=[0.6, 0.6]),
        Line("second", [0, 1], [0.2, 0.2], colour=5),
    ]
    picture = line_plot("t", lines, AXES)
    (band,) = paths(picture, "band")
    assert len(points(band)) == 4
    assert "first</text>" in picture
    assert "second</text>" in picture
    assert 'c1 dash1"' in picture, "the palette begins again, dashed"
    assert 'c0 dash2"' in line_plot("t", [replace(lines[0], colour=12)], AXES), "of two kinds"


def test_dashed_curves_are_drawn_over_whole_ones():
    lines = [Line(str(k), [0, 1], [0.5, 0.5], k, dash=k % 3) for k in range(4)]
    drawn = re.findall(r'class="(line c\d)', line_plot("t", lines, AXES))
    assert drawn == ["line c0", "line c3", "line c1", "line c2"]


def test_legend_takes_the_lines_it_needs():
    def heights(count: int) -> tuple[float, set[float]]:
        lines = [Line(f"a name of {k}", [0, 1], [0.5, 0.5], k) for k in range(count)]
        picture = line_plot("t", lines, AXES)
        keys = [points(path)[0] for path in paths(picture, "key line")]
        assert max(x for x, _ in keys) < WIDTH
        assert 0 < picture.height - max(y for _, y in keys) < LEGEND_LINE
        return picture.height, {y for _, y in keys}

    assert heights(2)[0] < heights(8)[0]
    assert len(heights(2)[1]) == 1
    assert len(heights(8)[1]) == 3
    lines = [Line(name, [0, 1], [0.5, 0.5]) for name in ("n" * 80, "b")]
    (name, x, y, _), (_, below, lower, _) = words(line_plot("t", lines, AXES))[-2:]
    assert "n…n" in name
    assert WIDTH - 30 < x + LETTER * len(name) < WIDTH
    assert (below, lower) == (x, y + LEGEND_LINE)
    assert HEIGHT < y < HEIGHT + LEGEND_LINE, "the first line is not left empty"


def test_matrix_colours_by_share():
    cells = matrix_cells(np.array([[0.0, 1.0], [0.5, 0.5]]), 0, 0, 10)
    assert paths(cells, "level l10") == ["M10 0H20V10H10z"]
    assert paths(cells, "level l5") == ["M0 10H20V20H0z"], "equal neighbours are one piece"
    assert len(re.findall("<path", cells)) == 2, "zero is blank"
    ends = matrix_cells(np.array([[0.1, 0.0], [0.0, 0.1]]), 0, 0, 10)
    assert paths(ends, "level l1") == ["M0 0H10V10H0zM10 10H20V20H10z"]


def test_confusion_shows_counts_and_shares():
    picture = confusion_plot("t", np.array([[30.0, 10.0], [0.0, 5.0]]), ["no", "<yes>"])
    size = (WIDTH - 78 - RIGHT) / 3
    found = words(picture)
    for k, (share, count) in enumerate((("75 %", 30), ("25 %", 10), ("0 %", 0), ("100 %", 5))):
        middle = 78 + (k % 2 + 0.5) * size, 14 + (k // 2 + 0.5) * size
        for text in (share, str(count)):
            (place,) = [(x, y) for word, x, y, _ in found if word == text]
            assert place == pytest.approx(middle, abs=16)
            assert place[0] == pytest.approx(middle[0], abs=0.1)
        style = "on-dark" if k in (0, 3) else "value"
        assert re.search(f'class="{style}">{share}<', picture)
    beside = [(word, y) for word, x, y, anchor in found if anchor == "end" and x < 78]
    below = [(word, x) for word, x, y, _ in found if 14 + 2 * size < y < 14 + 2 * size + 20]
    assert [word for word, _ in beside] == [word for word, _ in below] == ["no", "&lt;yes&gt;"]
    assert [y for _, y in beside] == pytest.approx([18 + 0.5 * size, 18 + 1.5 * size], abs=0.1)
    assert [x for _, x in below] == pytest.approx([78 + 0.5 * size, 78 + 1.5 * size], abs=0.1)
    assert ">predicted</text>" in picture
    assert ">true</text>" in picture


def test_of_many_classes_there_is_room_for_less():
    for classes, shares, names in ((7, 49, 2), (8, 64, 2), (9, 0, 2), (12, 0, 2), (13, 0, 1)):
        picture = confusion_plot("t", np.eye(classes), [f"c{k}" for k in range(classes)])
        assert picture.count("%") == shares
        assert picture.count(">c0<") == names
        assert (">1<" in picture) == (classes == 7), "a count below its share"


def test_parity_has_a_dot_for_each_answer_on_one_scale():
    picture = parity_plot("t", np.array([0.0, 1.0]), np.array([0.0, 1.0]))
    (cloud,) = paths(picture, "cloud")
    (a, b), (c, d) = points(cloud)
    assert (c - a) == pytest.approx(b - d, abs=0.2)


def test_strip_shows_every_trial_and_the_mean():
    name = "gradformer (authors)"
    picture = strip_plot("t", "score", [(name, [1.0, 3.0]), ("b", [2.0])])
    assert f">{name}</text>" in picture, "names of studies are shown whole"
    first, second = paths(picture, "trial")
    (low, _), (high, _) = points(first)
    ((middle, _),) = points(second)
    assert middle == pytest.approx((low + high) / 2, abs=0.1)
    means = [points(path)[0][0] for path in paths(picture, "mean")]
    assert means == pytest.approx([middle, middle], abs=0.1)
    assert "score" in [text for text, *_ in words(picture)]


def test_a_strip_is_as_long_as_the_spread_and_names_stand_beside_it():
    rows = [("a", [1.0, 2.0, 3.0]), ("cluster-16-gradformer-paper", [2.0]), ("c", [0.0, 4.0])]
    picture = strip_plot("t", "score", rows)
    dots = [points(path) for path in paths(picture, "trial")]
    reach = [re.match(r"M(\S+) (\S+)H(\S+)", path).groups() for path in paths(picture, "range")]
    (low, y, high), (one, _, other), (left, _, right) = [map(float, each) for each in reach]
    assert ((low, y), (high, y)) == (dots[0][0], dots[0][2])
    assert y == TOP + 17
    assert one == other == dots[1][0][0]
    assert left < dots[2][0][0] < dots[2][1][0] < right < WIDTH
    heights = {text: height for text, _, height, anchor in words(picture) if anchor == "end"}
    assert heights == {"a": y + 4, "cluster-16…mer-paper": y + 38, "c": y + 72}, "both ends"
    ticks = [x for text, x, _, anchor in words(picture) if anchor == "middle"]
    assert ticks == [points(path)[0][0] for path in paths(picture, "gridline")]


def test_names_beside_dots_stay_inside_and_off_each_other():
    dots = [("a long name", 0.0, 0.5), ("another", 0.05, 0.5), ("right", 2.0, 0.5)]
    dots.append(("more", 1.95, 0.5))
    picture = dot_plot("t", dots, AXES)
    (marks,) = paths(picture, "marks")
    (first, _), _, (last, _), _ = points(marks)
    found = {text: (x, y, anchor) for text, x, y, anchor in words(picture)}
    height = found["a long name"][1]
    assert found["a long name"] == (first + 9, height, "start")
    assert found["right"] == (last - 9, height, "end"), "which is not in its way"
    assert min(found["another"][1], found["more"][1]) >= height + 12


def test_names_of_dots_near_the_axis_stand_above_it():
    dots = [("first", 1.9, 0.05), ("second", 1.9, 0.03), ("third", 1.9, 0.02), ("alone", 0.1, 0.0)]
    words = ElementTree.fromstring(f"<svg>{dot_plot('t', dots, AXES).inner}</svg>").iter("text")
    found = {word.text: float(word.get("y")) for word in words}
    heights = [found[name] for name, *_ in dots[:3]]
    assert heights[0] + 12 <= heights[1] <= heights[2] - 12
    assert max(heights[2], found["alone"]) < HEIGHT - BOTTOM
