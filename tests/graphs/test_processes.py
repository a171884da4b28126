"""Many molecules in several processes: the same as in one, in order, and what ends them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gradformer.errors import GradformerError, InputError
from gradformer.graphs import processes
from gradformer.graphs.molecules import canonical, from_smiles
from gradformer.graphs.processes import each

WORDS = ["CCO", "CC(", "c1ccccc1", "C", "N", "no SMILES", "[Na+].[Cl-]"] * 3


def is_loaded(module: str) -> bool:
    return module in sys.modules


def ended_by(word: str) -> str:
    """``word``, unless it is a :func:`deadly` one and this a helper."""
    name, _, here = word.partition(" ")
    if here and int(here) != os.getpid():
        os.kill(os.getpid(), signal.Signals[name])
    return word


def deadly(name: str) -> str:
    """A word that ends, by the signal of this name, any process but this."""
    return f"{name} {os.getpid()}"


SLOWLY: list[str] = []


def slowly(word: str) -> str:
    SLOWLY.append(word)
    time.sleep(0.1)
    return word


def unforeseen(word: str) -> str:
    if word == "c":
        raise ArithmeticError(f"of {word}")
    return word


def printed(word: str) -> str:
    os.write(1, word.encode())
    return word


def texts(function: Callable[[str], Any], words: list[str]) -> list[str]:
    """Results and errors, of arrays every byte."""

    def text(found: Any) -> str:
        if isinstance(found, tuple):
            return " ".join(f"{part.dtype} {part.shape} {part.tolist()}" for part in found)
        return repr(found)

    return [text(found) for found in each(function, words)]


@pytest.mark.parametrize("function", [from_smiles, canonical])
def test_results_and_errors_are_those_of_one_process_in_order(
    function: Callable[[str], Any], request: pytest.FixtureRequest
) -> None:
    pytest.importorskip("rdkit")
    alone = texts(function, WORDS)
    assert sum("InputError" in text for text in alone) == 6
    started = request.getfixturevalue("helpers")
    assert texts(function, WORDS) == alone
    assert [helper.returncode is not None for helper in started] == [True, True]


def test_few_molecules_start_no_process(
    helpers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "WORTHWHILE", 2)
    assert list(each(ended_by, ["a", "b", "c"])) == ["a", "b", "c"]
    assert not helpers
    list(each(ended_by, ["a", "b", "c", "d"]))
    assert len(helpers) == 2


def test_a_machine_that_allows_no_more_processes_is_no_reason_to_stop(
    helpers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    started = processes.Popen

    def refuse(*words: Any, **options: Any) -> Any:
        if helpers:
            raise BlockingIOError("no more processes")
        return started(*words, **options)

    monkeypatch.setattr(processes, "Popen", refuse)
    assert list(each(ended_by, list("abcd"))) == list("abcd")
    assert [helper.returncode is not None for helper in helpers] == [True]


@pytest.mark.parametrize("executable", ["false", "echo", None])
def test_where_helpers_cannot_be_started_one_process_reads(
    executable: str | None, helpers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", executable and shutil.which(executable))
    assert list(each(ended_by, list("abcd"))) == list("abcd")
    assert [helper.returncode is not None for helper in helpers] == [True] * len(helpers)


def test_a_program_with_python_in_it_is_not_started_again(
    helpers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert list(each(ended_by, list("abcd"))) == list("abcd")
    assert not helpers


def test_what_is_printed_in_a_helper_is_no_answer(
    helpers: list[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert list(each(printed, list("abcd"))) == list("abcd")
    out, err = capfd.readouterr()
    assert (out, sorted(err)) == ("", list("abcd"))
    (tmp_path / "sitecustomize.py").write_text("print('welcome')")
    monkeypatch.syspath_prepend(tmp_path)
    assert list(each(ended_by, list("abcd"))) == list("abcd")
    assert len(helpers) == 4


@pytest.mark.usefixtures("helpers")
def test_helpers_load_nothing_that_is_not_needed() -> None:
    assert list(each(is_loaded, ["gradformer.errors", "torch", "numba", "rdkit"])) == [
        *(True, False, False, False)
    ]


@pytest.mark.parametrize("killed", [1, 40])
def test_the_part_of_a_helper_that_is_killed_is_read_here(killed: int, helpers: list[Any]) -> None:
    words = [*"abc", *[deadly("SIGKILL")] * killed, *"defghijk"]
    assert list(each(ended_by, words)) == words
    assert len(helpers) == 2


@pytest.mark.usefixtures("helpers")
def test_a_helper_that_crashes_is_said_in_one_line() -> None:
    """A molecule that does it would end this process too."""
    found = each(ended_by, [*"abc", deadly("SIGSEGV"), *"defghijk"])
    assert (next(found), next(found)) == ("a", "b")
    with pytest.raises(GradformerError) as caught:
        next(found)
    assert not isinstance(caught.value, InputError)  # which a row could be left out for
    assert str(caught.value).startswith(
        "a process that read 2 molecules, the first 'c', crashed (SIGSEGV); find the one that is"
    )


@pytest.mark.usefixtures("helpers")
def test_what_is_no_fault_of_a_row_is_raised_as_in_one_process(
    capfd: pytest.CaptureFixture[str],
) -> None:
    found = each(unforeseen, list("abcd"))
    assert (next(found), next(found)) == ("a", "b")
    with pytest.raises(ArithmeticError, match="of c"):
        next(found)
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("helpers")
def test_it_ends_also_if_all_helpers_crash() -> None:
    with pytest.raises(GradformerError, match="crashed"):
        list(each(ended_by, [deadly("SIGABRT")] * 40))


def test_who_leaves_early_leaves_no_process_behind(helpers: list[Any]) -> None:
    with closing(each(ended_by, [str(k) for k in range(10_000)])) as found:
        assert next(found) == "0"
        assert [helper.poll() for helper in helpers] == [None, None]
    assert [helper.returncode for helper in helpers] == [-signal.SIGKILL] * 2


@pytest.mark.usefixtures("helpers")
def test_who_leaves_early_does_not_do_the_work_of_helpers() -> None:
    with closing(each(slowly, [str(k) for k in range(100)])) as found:
        assert next(found) == "0"
    assert SLOWLY == []


def test_no_more_is_read_ahead_than_is_soon_taken(
    helpers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    ask = processes._ask
    monkeypatch.setattr(processes, "_ask", lambda *given: [asked.append(given[2]), ask(*given)][1])
    with closing(each(ended_by, [str(k) for k in range(10_000)])) as found:
        for _ in range(20):
            next(found)
    assert len(asked) <= 10 + 2 * 2 + 1


def test_a_script_that_is_not_written_for_processes_is_run_once(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from gradformer.graphs import processes\n"
        "from os.path import basename\n"
        "print('begins')\n"
        "processes.WORTHWHILE, processes.cores = 1, lambda: 2\n"
        "print(*processes.each(basename, ['a/b', 'c/d', 'e']))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, check=False
    )
    assert (ended.stdout, ended.stderr) == ("begins\nb d e\n", "")
