"""A sheet of drawings: a file that stands alone, in colours that everyone can tell apart."""

from __future__ import annotations

import re
from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytest

from gradformer.report.plots import COLOURS, Axes, Line, line_plot
from gradformer.report.sheet import Panel, sheet, style_of


def test_a_sheet_is_a_file_that_stands_alone():
    plot = line_plot("one < two", [Line("a", [0, 1], [0.5, 0.5])], Axes("x", "y"))
    text = sheet("whole", [[Panel("left", [plot]), Panel("right", [plot], ["below"])]])
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert float(root.get("width")) > 2 * plot.width
    assert float(root.get("height")) > plot.height
    assert {"left", "right", "below"} <= {node.text for node in root.iter() if node.text}
    used = set(" ".join(node.get("class", "") for node in root.iter()).split())
    style = next(node.text for node in root.iter() if node.tag.endswith("style"))
    assert all(f".{name}" in style for name in used - {"key"})


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
