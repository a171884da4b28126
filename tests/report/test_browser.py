"""The page in a real browser: light, dark, on a phone and on paper."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gradformer.report import write_report
from gradformer.report.markup import note
from gradformer.report.page import page as make_page
from gradformer.studies import STUDIES
from gradformer.studies.page import html as study_page
from tests.conftest import ROOT

CHROMIUM = next(
    (p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))),
    None,
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH")
PHONE = 390


@pytest.fixture(scope="module")
def page(classes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([classes], tmp_path_factory.mktemp("browser") / "report.html")


@pytest.fixture(scope="module")
def comparison(variants, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(variants, tmp_path_factory.mktemp("browser") / "comparison.html")


@pytest.fixture(scope="module")
def molecule(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page whose section bears a long SMILES, which has no place to break."""
    path = tmp_path_factory.mktemp("browser") / "molecule.html"
    path.write_text(make_page("A molecule", "", note(""), [("one", "C" * 80, note("word " * 500))]))
    return path


def browse(page: Path, *options: str) -> str:
    profile = page.parent / "profile"
    common = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    common += [f"--user-data-dir={profile}", "--allow-file-access-from-files"]
    command = [str(CHROMIUM), *common, *options, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def screenshot(page: Path, *options: str, width: int = 1200) -> np.ndarray:
    picture = page.with_suffix(".png")
    browse(page, f"--screenshot={picture}", f"--window-size={width},2400", *options)
    return np.asarray(Image.open(picture).convert("RGB")).astype(float)


def in_frame(page: Path, script: str = "") -> Path:
    """A page that shows ``page`` as wide as a phone: a window cannot be made that narrow."""
    frame = page.with_name(f"frame-{page.name}")
    frame.write_text(
        f'<body style="margin:0"><iframe src="{page.name}" onload="{script}" '
        f'style="border:0;width:{PHONE}px;height:2400px"></iframe>'
    )
    return frame


def inked(pixels: np.ndarray) -> float:
    """Share of pixels that differ from the background, the colour of the corner."""
    return float((np.abs(pixels - pixels[0, 0]).max(axis=2) > 40).mean())


def test_light_and_dark(page):
    light = screenshot(page)
    dark = screenshot(page, "--blink-settings=preferredColorScheme=0")
    assert light[0, 0].min() > 240
    assert dark[0, 0].max() < 60
    for pixels in (light, dark):
        assert 0.02 < inked(pixels) < 0.6
    assert (light.max(axis=2) < 20).mean() < 0.01, "lines are not filled"
    colourful = light.max(axis=2) - light.min(axis=2) > 60
    assert colourful.mean() > 0.003, "curves and patterns are drawn in colour"


@pytest.mark.parametrize("kind", ["page", "comparison", "molecule"])
def test_phone_needs_no_sideways_scrolling(kind, request):
    page = request.getfixturevalue(kind)
    script = "document.title = this.contentDocument.scrollingElement.scrollWidth"
    seen = browse(in_frame(page, script), "--dump-dom", "--virtual-time-budget=3000")
    width = re.search(r"<title>(\d+)</title>", seen)
    assert int(width[1]) <= PHONE
    pixels = screenshot(in_frame(page), width=600)
    assert inked(pixels[:, :PHONE]) > 0.02


def test_the_figure_of_a_study_keeps_its_size_on_a_phone(tmp_path):
    """It is slid sideways; shrunk to the width of the phone its words could not be read."""
    page = tmp_path / "study.html"
    figure = ROOT / "results/studies/index/figure.svg"
    page.write_text(study_page(STUDIES["index"], [], [], [], figure))
    script = (
        "const page = this.contentDocument; document.title = page.scrollingElement.scrollWidth + "
        "' ' + page.querySelector('img.sheet').clientWidth"
    )
    seen = browse(in_frame(page, script), "--dump-dom", "--virtual-time-budget=3000")
    width, shown = re.search(r"<title>(\d+) (\d+)</title>", seen).groups()
    assert int(width) <= PHONE
    assert f'width="{shown}"' in figure.read_text()[:300]


def test_paper_shows_what_is_folded(page):
    pdf = page.with_suffix(".pdf")
    browse(page, f"--print-to-pdf={pdf}", "--no-pdf-header-footer")
    content = pdf.read_bytes()
    assert content.startswith(b"%PDF")
    assert len(content) > 20_000
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 12
