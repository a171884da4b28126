"""The drawings say what the numbers say."""

from __future__ import annotations

import math
import re
from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytest

from gradformer.report.plots import (
    COLOURS,
    LEFT,
    RIGHT,
    WIDTH,
    Axes,
    Line,
    confusion_plot,
    dot_plot,
    line_plot,
    matrix_cells,
    parity_plot,
    strip_plot,
)
from gradformer.report.sheet import Panel, sheet, style_of

AXES = Axes("x", "y", x_range=(0.0, 2.0), y_range=(0.0, 1.0))


def paths(picture: str, style: str) -> list[str]:
    return re.findall(rf'<path d="([^"]*)" class="{style}', picture)


def points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path)]


def test_line_goes_through_its_points():
    (path,) = paths(line_plot("t", [Line("a", [0, 1, 2], [0, 0.5, 1])], AXES), "line")
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
    assert "c1 dash1" in picture, "the palette begins again, dashed"


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
        assert max(y for _, y in keys) < picture.height
        return picture.height, {y for _, y in keys}

    assert heights(2)[0] < heights(8)[0]
    assert len(heights(2)[1]) == 1
    assert len(heights(8)[1]) == 3


def test_a_sheet_is_a_file_that_stands_alone():
    plot = line_plot("one < two", [Line("a", [0, 1], [0.5, 0.5])], AXES)
    text = sheet("whole", [[Panel("left", [plot]), Panel("right", [plot], ["below"])]])
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert float(root.get("width")) > 2 * plot.width
    assert float(root.get("height")) > plot.height
    assert {"left", "right", "below"} <= {node.text for node in root.iter() if node.text}
    used = set(" ".join(node.get("class", "") for node in root.iter()).split())
    style = next(node.text for node in root.iter() if node.tag.endswith("style"))
    assert all(f".{name}" in style for name in used - {"key"})


def test_matrix_colours_by_share():
    cells = matrix_cells(np.array([[0.0, 1.0], [0.5, 0.5]]), 0, 0, 10)
    assert paths(cells, "level l10") == ["M10 0H20V10H10z"]
    assert paths(cells, "level l5") == ["M0 10H20V20H0z"], "equal neighbours are one piece"
    assert len(re.findall("<path", cells)) == 2, "zero is blank"


def test_confusion_shows_counts_and_shares():
    picture = confusion_plot("t", np.array([[30.0, 10.0], [0.0, 5.0]]), ["no", "<yes>"])
    for text in ("75 %", "25 %", "100 %", ">30<", ">10<", ">5<", "&lt;yes&gt;"):
        assert text in picture


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


def test_names_beside_dots_stay_inside_and_off_each_other():
    dots = [("a long name", 0.0, 0.5), ("another", 0.05, 0.5), ("right", 2.0, 0.5)]
    picture = dot_plot("t", dots, AXES)
    (marks,) = paths(picture, "marks")
    assert len(points(marks)) == 3
    words = ElementTree.fromstring(f"<svg>{picture.inner}</svg>").iter("text")
    found = {word.text: (float(word.get("y")), word.get("text-anchor")) for word in words}
    assert found["another"][0] >= found["a long name"][0] + 12
    assert found["right"][1] == "end"


MACHADO = {
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
    "none": np.eye(3).tolist(),
}
"""How linear RGB is seen (Machado, Oliveira and Fernandes 2009)."""


@pytest.mark.parametrize("eyes", MACHADO)
@pytest.mark.parametrize("file", ["plots.css", "style.css"])
def test_curves_differ_for_colour_blind_readers(file, eyes):
    """Distances in CIELAB, where 2 is about the least that is seen."""
    colours = dict(re.findall(r"--(c\d+): (#\w{6})", str(style_of(file)).split("@media print")[0]))
    assert len(colours) == COLOURS
    values = np.array([[int(c[k : k + 2], 16) / 255 for k in (1, 3, 5)] for c in colours.values()])
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    seen = np.clip(linear @ np.array(MACHADO[eyes]).T, 0.0, 1.0)
    white = [[0.4339, 0.2126, 0.0177], [0.3762, 0.7152, 0.1095], [0.1899, 0.0722, 0.8728]]
    xyz = seen @ np.array(white)  # each of X, Y, Z as a share of white's
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116).T
    lab = np.stack([116 * y, 500 * (x - y), 200 * (y - z)], axis=1)
    assert min(np.linalg.norm(a - b) for a, b in combinations(lab, 2)) > 20
