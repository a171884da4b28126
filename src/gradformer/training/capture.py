"""Training steps and predictions as CUDA graphs: recorded once, replayed without the host.

A step of a small model is hundreds of kernels of a few microseconds each; launched one by one they
cost the host far more than the device. Here the graph numbers of a whole epoch lie on the device,
a recorded step takes the next row of them, and an epoch is nothing but replays: no value is read
back before its end. Every trial has a stream and a memory pool of its own, so that trials run side
by side and none can change another's bits. Where the device has no memory for all of them, the last
ones record nothing and wait until others have ended.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gradformer.errors import spent
from gradformer.graphs.collate import Capacity
from gradformer.model.parallel import is_shared
from gradformer.structure.pointers import pointer
from gradformer.training.precompile import compile_kernels
from gradformer.training.step import autocast

if TYPE_CHECKING:
    from gradformer.training.trial import Trial

NODES, EDGES, PAIRS = 64, 256, 1024  # capacities are multiples of these
AHEAD = 50
"""Epochs that one capacity looks ahead: padding costs less than recording the step again."""
PREDICT_NODES = 1 << 15  # node rows of a batch when predicting


def recorded(
    stream: torch.cuda.Stream, body: Callable[[], None], state: list[Tensor], *, first: bool = False
) -> torch.cuda.CUDAGraph:
    """``body`` on one stream as a CUDA graph.

    ``state``: what ``body`` changes; runs before it is recorded are undone. The ``first`` of its
    kind has kernels to compile.
    """
    with _on(stream):
        if first:
            with _undone(state):
                compile_kernels(body, stream)
        with _undone(state):
            body()  # makes what is made once
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with (
        torch.cuda.stream(torch.cuda.current_stream(stream.device)),  # also where capturing fails
        torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"),
    ):
        body()
    return graph


@contextmanager
def _undone(state: list[Tensor]) -> Iterator[None]:
    """What is done to ``state`` inside is undone."""
    kept = [tensor.clone() for tensor in state]
    try:
        yield
    finally:
        for tensor, value in zip(state, kept):
            tensor.copy_(value)


@contextmanager
def _on(stream: torch.cuda.Stream) -> Iterator[None]:
    """Work inside goes to ``stream``, after what was given to the present stream."""
    stream.wait_stream(torch.cuda.current_stream(stream.device))
    with torch.cuda.stream(stream):
        yield


def capture(trials: list[Trial]) -> str | None:
    """Capture all trials, or none and give the reason; too little memory is none: some wait."""
    if not trials:
        return None
    if trials[0].collator.device.type != "cuda":
        return "captured steps need a CUDA device"
    if is_shared():
        return "a batch that processes share is not captured"
    made, has_room = list[CapturedTrial](), True
    for trial in trials:
        captured = CapturedTrial(trial, first=not made)
        try:
            has_room = has_room and captured.prepare()
        except Exception as error:
            return forbidden(trial, error)
        made.append(captured)
    for trial, captured in zip(trials, made):
        trial.captured = captured
    return None


def forbidden(trial: Trial, error: Exception) -> str:
    """Why a trial is not captured: whatever its model does that a capture forbids."""
    torch.cuda.synchronize(trial.collator.device)
    return f"{trial.recipe.model.name}: {type(error).__name__}: {error}".splitlines()[0]


class CapturedTrial:
    """The steps of a trial's epochs, and its predictions for fixed lists of graphs.

    The capacity of an epoch is the largest batch of the trial's epochs up to the next multiple of
    :data:`AHEAD`, rounded up: a function of recipe and seed alone, so that a resumed trial pads as
    the uninterrupted one did. The trial alone holds this object: when it lets go, the memory of
    all that was recorded is free.
    """

    def __init__(self, trial: Trial, *, first: bool = True) -> None:
        """The ``first`` of several that are alike compiles for all."""
        self.trial: Trial = weakref.proxy(trial)  # which holds this
        self.first = first
        device = trial.collator.device
        steps = trial.steps_per_epoch
        size = min(trial.recipe.train.batch_size, len(trial.graphs))
        self.ids = torch.full((steps, size), -1, dtype=torch.int64, device=device)
        self.losses = torch.zeros(steps, device=device)
        self.cursor = torch.zeros(1, dtype=torch.int64, device=device)
        arrays = trial.data.store.arrays
        self._nodes, self._edges = np.diff(arrays["node_ptr"]), np.diff(arrays["edge_ptr"])
        self._capacities: list[Capacity] = []
        self._recorded: tuple[Capacity, torch.cuda.CUDAGraph] | None = None
        self._predictions: dict[bytes, _Prediction] = {}

    @cached_property
    def stream(self) -> torch.cuda.Stream:
        """Where all work of the trial is given to the device."""
        return torch.cuda.Stream(self.trial.collator.device)

    def capacity(self, epoch: int) -> Capacity:
        """Of the batches of ``epoch``, of those before it, and of the next ones."""
        while len(self._capacities) <= epoch // AHEAD:
            first = AHEAD * len(self._capacities)
            epochs = range(first, min(first + AHEAD, self.trial.recipe.train.epochs))
            needed = (self.room_for(self.trial.order(number)) for number in epochs)
            sizes = map(astuple, [*self._capacities[-1:], *needed])
            self._capacities.append(Capacity(*map(max, zip(*sizes))))
        return self._capacities[epoch // AHEAD]

    def room_for(self, batches: list[NDArray[np.int64]]) -> Capacity:
        """What holds each of the ``batches`` of graph numbers, rounded up."""
        counts, graphs = [len(batch) for batch in batches], np.concatenate(batches)
        nodes, edges = self._nodes[graphs], self._edges[graphs]

        def most(sizes: NDArray[np.int64], unit: int) -> int:
            sums = np.diff(pointer(sizes)[pointer(counts)])
            return max(-(-int(sums.max()) // unit), 1) * unit

        rows = most(nodes, NODES), most(edges, EDGES)
        return Capacity(max(counts), *rows, int(nodes.max()), most(nodes**2, PAIRS))

    def prepare(self) -> bool:
        """Record what comes next: an epoch, or the test of a trial that ended without it. False
        where the device has no memory for it."""
        if self.trial.progress.status == "training":
            return self.begin()
        return self.predict(self.trial.data.graphs(self.trial.parts.test)) is not None

    @property
    def holds(self) -> bool:
        """Whether something is recorded, which takes memory."""
        return self._recorded is not None or bool(self._predictions)

    def begin(self) -> bool:
        """Put the graph numbers of the present epoch on the device, and record its step and its
        validation if need be. False where the device has no memory for them: none is kept then."""
        vector = self.trial.weights.vector
        try:
            self._begin()
            self._prediction(self.trial.data.graphs(self.trial.parts.val))
            vector.new_empty(3 * len(vector))  # what the end of an epoch copies finds room
        except RuntimeError as error:
            if spent(error) is None:
                raise
            self.release()
            return False
        return True

    def release(self) -> None:
        """Let go of all that is recorded."""
        self._recorded = None
        self._predictions.clear()

    def _begin(self) -> None:
        trial = self.trial
        graphs, done = trial.permuted(trial.progress.epoch), len(trial.losses)
        with _on(self.stream):
            self.ids.view(-1)[: len(graphs)] = torch.from_numpy(graphs).to(self.ids.device)
            self.cursor.zero_()  # to warm up with: a resumed epoch may have no other batch
        capacity = self.capacity(trial.progress.epoch)
        if self._recorded is None or self._recorded[0] != capacity:
            self._recorded = None  # frees its memory first
            state = [*trial.step.state, self.losses, self.cursor]
            body = self.step(capacity)
            self._recorded = capacity, recorded(self.stream, body, state, first=self.first)
        with _on(self.stream):
            if done:
                self.losses[:done] = torch.stack(trial.losses)
            self.cursor.fill_(done)

    def step(self, capacity: Capacity) -> Callable[[], None]:
        """The next step of the epoch, as it is recorded."""
        step = self.trial.step

        def body() -> None:
            ids = self.ids.index_select(0, self.cursor)[0]
            loss = step(ids, capacity)
            self.losses.index_copy_(0, self.cursor, loss.view(1).float())
            self.cursor.add_(1)

        return body

    def advance(self) -> None:
        """One more step, without waiting for it."""
        assert self._recorded is not None
        with torch.cuda.stream(self.stream):
            self._recorded[1].replay()

    def finish(self, steps: int) -> None:
        """Wait, and hand the losses of the first ``steps`` steps of the epoch to the trial."""
        self.stream.synchronize()
        self.trial.losses = list(self.losses[:steps].cpu().unbind())

    def predict(self, graphs: NDArray[np.int64]) -> NDArray[np.float32] | None:
        """As :func:`gradformer.training.outputs.model_outputs`, replayed; None where the device has
        no memory for that."""
        if self.trial.progress.status != "training":  # it has no other epoch
            key = graphs.tobytes()
            self._recorded = None
            self._predictions = {k: made for k, made in self._predictions.items() if k == key}
        try:
            return self._prediction(graphs)()
        except RuntimeError as error:
            if spent(error) is None:
                raise
            return None

    def _prediction(self, graphs: NDArray[np.int64]) -> _Prediction:
        key = graphs.tobytes()
        if key not in self._predictions:
            self._predictions[key] = _Prediction(self, graphs)
        return self._predictions[key]


class _Prediction:
    """Predictions for a fixed list of graphs, batch after batch of one capacity."""

    def __init__(self, captured: CapturedTrial, graphs: NDArray[np.int64]) -> None:
        trial, device, nodes = captured.trial, captured.ids.device, captured._nodes
        mean = max(nodes[graphs].mean(), 1.0)
        batches = math.ceil(len(graphs) * mean / PREDICT_NODES)
        parts = np.array_split(graphs, batches)
        self.capacity = captured.room_for(parts)
        self.ids = torch.full((len(parts), self.capacity.graphs), -1, device=device)
        for row, ids in zip(self.ids, parts):
            row[: len(ids)] = torch.from_numpy(ids)
        self.by_node = trial.data.schema.level == "node"
        self.rows = [int(nodes[ids].sum()) if self.by_node else len(ids) for ids in parts]
        width = self.capacity.nodes if self.by_node else self.capacity.graphs
        self.out = torch.zeros(len(parts), width, trial.data.schema.outputs, device=device)
        self.cursor = torch.zeros(1, dtype=torch.int64, device=device)
        self.stream = captured.stream
        precision = trial.recipe.train.precision

        @torch.no_grad()
        def body() -> None:
            trial.model.eval()
            batch = trial.collator(self.ids.index_select(0, self.cursor)[0], self.capacity)
            with autocast(precision, device):
                prediction = trial.model(batch)
            self.out.index_copy_(0, self.cursor, prediction.float()[None])
            self.cursor.add_(1).remainder_(len(self.ids))

        self.graph = recorded(self.stream, body, [self.out, self.cursor], first=captured.first)

    def __call__(self) -> NDArray[np.float32]:
        with _on(self.stream):
            for _ in self.rows:
                self.graph.replay()
        self.stream.synchronize()
        out = self.out.cpu().numpy()
        return np.concatenate([part[:count] for part, count in zip(out, self.rows)])
