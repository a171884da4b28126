"""What a program has switched in torch changes no bit of a run, nor of its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch

from gradformer.training.ambient import own_draws
from gradformer.training.export import export
from gradformer.training.fit import fit
from gradformer.training.run import Run
from tests.training import toy


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    torch.set_default_dtype(dtype)
    try:
        yield
        assert torch.get_default_dtype() == dtype
    finally:
        torch.set_default_dtype(torch.float32)


SWITCHED: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "float64": lambda: default_dtype(torch.float64),
    "bfloat16": lambda: default_dtype(torch.bfloat16),
    "device": lambda: torch.device("meta"),
}


@pytest.mark.parametrize("switched", SWITCHED.values(), ids=SWITCHED)
def test_what_is_switched_outside_changes_no_bit(
    switched: Callable[[], AbstractContextManager[Any]], tmp_path: Path
) -> None:
    data = toy.data()
    recipe = toy.RECIPE.change("train.epochs=2", "trials=2")
    plain = fit(data, recipe=recipe, out=tmp_path / "plain", **toy.QUIET)
    with switched():
        other = fit(data, recipe=recipe, out=tmp_path / "other", **toy.QUIET)
        answers = answer(plain, data.store)
        page = plain.report(tmp_path / "page.html").read_text()
    assert page == plain.report(tmp_path / "page.html").read_text()
    assert [trial["test"] for trial in other.results["trials"]] == [
        trial["test"] for trial in plain.results["trials"]
    ]
    for given, expected in zip(answers, answer(plain, data.store)):
        np.testing.assert_array_equal(given, expected)
    np.testing.assert_array_equal(answer(other, data.store)[0], answers[0])


def test_a_program_has_no_autocast_of_the_caller(tmp_path: Path) -> None:
    run = fit(
        toy.data(), recipe=toy.RECIPE.change("train.epochs=1"), out=tmp_path / "run", **toy.QUIET
    )
    with torch.autocast("cpu", torch.bfloat16):
        export(run, tmp_path / "model", program=True)
    program = torch.export.load(tmp_path / "model" / "program.pt2")
    assert "autocast" not in str(program.graph_module)


def test_torch_has_one_generator_for_all_threads(tmp_path: Path) -> None:
    """Runs in threads began with weights that were drawn between each other's."""
    data, recipe = toy.data(), toy.RECIPE.change("train.epochs=1", "trials=1")
    before = torch.get_rng_state()

    def train(name: str) -> bytes:
        run = fit(data, recipe=recipe, out=tmp_path / name, **toy.QUIET)
        run.predict(data.store)
        return (run.place(0) / "model.safetensors").read_bytes()

    with ThreadPoolExecutor(4) as threads:
        found = set(threads.map(train, "abcdefgh"))
    assert found == {train("alone")}
    assert torch.equal(torch.get_rng_state(), before)


def test_threads_draw_in_turn() -> None:
    """A user's model, which draws in its steps, had draws of another thread's between its own."""

    def draw() -> None:
        with own_draws():
            torch.rand(1)

    with own_draws():
        other = Thread(target=draw)
        other.start()
        other.join(0.1)
        assert other.is_alive()
    other.join()


def answer(run: Run, graphs: Any) -> tuple[Any, ...]:
    embedded = run.embed(graphs)
    return run.predict(graphs).trials, embedded.graphs, embedded.nodes
