"""Slices of work, and compiled code where nothing can be cached."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest

import gradformer.cores
from gradformer.structure import parallel
from gradformer.structure.parallel import compiled, over_slices


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("items", [0, 1, 7, 1000])
def test_every_item_is_done_once(threads, items, monkeypatch):
    monkeypatch.setattr(parallel, "cores", lambda: threads)
    times, told = np.zeros(items, int), []

    def work(first, last):
        times[first:last] += 1

    cost = np.random.default_rng(0).integers(0, 50, items)
    over_slices(work, cost, progress=told.append, smallest=100)
    assert (times == 1).all()
    assert sum(told) == items


def test_one_dear_item_does_not_take_the_cheap_ones_along(monkeypatch):
    monkeypatch.setattr(parallel, "cores", lambda: 2)
    spans = []
    over_slices(
        lambda *span: spans.append(span), np.array([1] * 50 + [10_000] + [1] * 50), smallest=1
    )
    dear = [span for span in spans if span[0] <= 50 < span[1]]
    assert len(spans) > 1
    assert dear[0][1] - dear[0][0] <= 51


def test_an_error_in_a_slice_is_raised(monkeypatch):
    monkeypatch.setattr(parallel, "cores", lambda: 2)

    def work(first, last):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        over_slices(work, np.ones(100, int), smallest=1)


def test_after_an_error_no_slice_is_begun(monkeypatch):
    monkeypatch.setattr(parallel, "cores", lambda: 2)
    begun = []

    def work(first, last):
        begun.append(first)
        raise IndexError(first)

    with pytest.raises(IndexError):
        over_slices(work, np.ones(100, int), smallest=1)
    assert len(begun) <= 2


def test_the_caller_does_a_share():
    both, threads = threading.Barrier(2, timeout=60), set()

    def work(first, last):
        both.wait()
        threads.add(threading.current_thread())

    over_slices(work, np.ones(2, int), smallest=1, threads=2)
    assert len(threads) == 2
    assert threading.current_thread() in threads


def test_compiles_where_no_cache_can_be_written():
    space: dict = {}
    exec("def double(x):\n    return 2 * x", space)  # no file, so no place beside it
    assert compiled(space["double"])(21) == 42


def test_without_numba_the_function_itself(monkeypatch):
    monkeypatch.setattr(parallel, "HAVE_NUMBA", False)

    def double(x):
        return 2 * x

    assert compiled(double) is double


def test_a_disk_without_room_for_compiled_code_costs_nothing_else(monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    def double(x):
        return 2 * x

    monkeypatch.setattr("numba.core.caching.IndexDataCacheFile.save", full)
    assert compiled(double)(3) == 6


def test_kept_machine_code_is_that_of_all_its_sources(tmp_path):
    """numba itself looks at the file of the function alone."""
    package = tmp_path / "gradformer"
    (package / "structure").mkdir(parents=True)
    shutil.copy(parallel.__file__, package / "structure")
    shutil.copy(gradformer.cores.__file__, package)
    (package / "__init__.py").touch()
    (package / "numbers.py").write_text("ONE = 1")
    (package / "parts.py").write_text(
        "from gradformer.structure.parallel import inlined\n"
        "@inlined\ndef times(x):\n    return 2 * x\n"
    )
    (package / "whole.py").write_text(
        "from gradformer import numbers\n"
        "from gradformer.parts import times\n"
        "from gradformer.structure.parallel import compiled\n"
        "@compiled\ndef result(x):\n    return times(x) + numbers.ONE\n"
    )

    def result_of_ten():
        code = "from gradformer.whole import result as r; print(r(10), *r.stats.cache_hits)"
        run = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stderr
        return run.stdout.split()

    assert result_of_ten() == ["21"]
    assert result_of_ten() == ["21", "(int64,)"], "kept"
    (package / "parts.py").write_text((package / "parts.py").read_text().replace("2", "30"))
    assert result_of_ten() == ["301"]
    (package / "numbers.py").write_text("ONE = 50")
    assert result_of_ten() == ["350"]
