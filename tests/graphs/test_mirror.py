"""Raw files: from a mirror or downloaded, and what is said where they are not as they should be."""

from __future__ import annotations

import gzip
import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from gradformer.errors import GradformerWarning, InputError
from gradformer.graphs import mirror
from gradformer.graphs.cards import Card, find_card
from gradformer.graphs.datasets import load_dataset, open_card
from gradformer.graphs.mirror import RawFiles, fetch, raw_files

pytestmark = pytest.mark.usefixtures("cache")


def test_a_mirror_without_the_file_says_what_to_do(tmp_path: Path) -> None:
    for place in (tmp_path, "~nobody-of-this-name/data"):  # which no shell would expand
        with pytest.raises(InputError, match=r"zinc: ZINC/molecules\.zip is missing from the mir"):
            load_dataset("zinc", place)


def test_a_damaged_archive_is_one_line(data_mirror: Path, tmp_path: Path) -> None:
    (tmp_path / "TU").mkdir()
    whole = (data_mirror / "TU" / "MUTAG.zip").read_bytes()
    (tmp_path / "TU" / "MUTAG.zip").write_bytes(whole[:9000])
    with pytest.warns(GradformerWarning), pytest.raises(InputError, match=r"MUTAG\.zip cannot be"):
        load_dataset("mutag", tmp_path)


def test_a_packed_file_is_read_or_named(tmp_path: Path) -> None:
    files = RawFiles(tmp_path, {})
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"1,2"))
    assert files.read("a.gz") == b"1,2"
    (tmp_path / "a.gz").write_bytes(b"1,2")
    with pytest.raises(InputError, match=r"a\.gz cannot be read: Not a gzipped file"):
        files.read("a.gz")


def card_with(download: dict[str, str], files: dict[str, str]) -> Card:
    return replace(find_card("mutag"), download=download, files=files)


def test_download_fills_the_cache_in_the_layout_of_a_mirror(
    data_mirror: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = data_mirror / "TU" / "MUTAG.zip"
    card = card_with({"TU/MUTAG.zip": source.as_uri()}, dict(find_card("mutag").files))
    assert open_card(card).num_graphs == 188
    assert f"fetching {source.as_uri()}" in capsys.readouterr().err
    assert (cache / "raw" / "TU" / "MUTAG.zip").read_bytes() == source.read_bytes()
    open_card(card)
    assert capsys.readouterr().err == ""


def test_an_archive_is_unpacked_without_its_top_folder_if_a_file_of_it_is_missing(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with zipfile.ZipFile(tmp_path / "hiv.zip", "w") as archive:
        for name in ("hiv/raw/edge.csv", "hiv/raw/node.csv", "hiv/../../outside", "beside"):
            archive.writestr(name, "1,2\n")
    (tmp_path / "one.txt").write_text("1,2\n")
    digest = hashlib.sha256(b"1,2\n").hexdigest()
    card = card_with(
        {"ogbg/": (tmp_path / "hiv.zip").as_uri(), "one.txt": (tmp_path / "one.txt").as_uri()},
        dict.fromkeys(("one.txt", "ogbg/raw/edge.csv", "ogbg/raw/node.csv"), digest),
    )
    for missing, fetched in ((None, 2), (None, 0), ("one.txt", 1), ("ogbg/raw/edge.csv", 1)):
        if missing is not None:
            (cache / "raw" / missing).unlink()
        assert raw_files(card).sums == card.files
        assert capsys.readouterr().err.count("fetching") == fetched
    names = sorted(path.name for path in (cache / "raw").rglob("*"))
    assert names == ["edge.csv", "node.csv", "ogbg", "one.txt", "raw"]


def test_offline_is_one_line_with_the_remedy(cache: Path) -> None:
    card = card_with({"TU/MUTAG.zip": "http://127.0.0.1:9/MUTAG.zip"}, {"TU/MUTAG.zip": "0" * 64})
    with pytest.raises(InputError) as caught:
        fetch(card, cache / "raw")
    message = str(caught.value)
    assert "could not be fetched" in message
    assert "put TU/MUTAG.zip under a folder and name it with --data or GRADFORMER_DATA" in message
    assert "\n" not in message
    assert not list((cache / "raw").iterdir())


def test_a_cache_that_cannot_be_made_is_not_blamed_on_the_network(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    card = card_with({"TU/MUTAG.zip": "http://127.0.0.1:9/MUTAG.zip"}, {"TU/MUTAG.zip": "0" * 64})
    with pytest.raises(InputError, match=r"file/raw cannot be made .* GRADFORMER_CACHE"):
        fetch(card, tmp_path / "file" / "raw")


def test_published_block_models_take_the_place_of_generated_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "SBM").mkdir()
    (tmp_path / "SBM" / "PATTERN_v2.pt").write_bytes(b"published")
    with pytest.warns(GradformerWarning, match=r"no checksum of SBM/PATTERN_v2\.pt is known"):
        found = raw_files(find_card("pattern"), tmp_path).sums
    assert found == {"SBM/PATTERN_v2.pt": hashlib.sha256(b"published").hexdigest()}
    assert raw_files(find_card("pattern"), tmp_path / "SBM").sums == {}
    with (
        pytest.warns(GradformerWarning, match="no checksum"),
        pytest.raises(InputError, match=r"SBM/PATTERN_v2\.pt is not a published SBM file"),
    ):
        open_card(find_card("pattern"), tmp_path)


def test_mirror_may_be_named_by_the_environment(
    data_mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADFORMER_DATA", str(data_mirror))
    assert load_dataset("mutag").store.num_graphs == 188
    assert mirror.cache_folder().name == "cache"


def test_without_a_home_the_cache_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a user that a container does not know; it was called a bug."""

    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("GRADFORMER_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert mirror.cache_folder() == tmp_path / ".cache" / "gradformer"
    monkeypatch.setattr(Path, "home", unknown)
    with pytest.raises(InputError, match=r"home folder is not known, .* name one with GRADFORMER_"):
        mirror.cache_folder()
