"""Kernels of one captured training step, counted without a GPU and named by who launches them.

    python benchmarks/launches.py zinc [--model gat] [--layers 2] [--detail]

The step runs on meta tensors: shapes are those of a real padded batch, but nothing is computed.
Counted are Triton launches and calls of torch that do work on a device (not views, not empty
tensors). A kernel belongs to the innermost function of the package that asked for it; one that
autograd launches, to the function whose derivative it is.

Not seen: times; that some calls of torch launch several kernels (a product over split rows, a
prefix sum, a sort) and some none (a copy may be a memcpy node); what is done differently on CUDA
alone, such as the ReLU inside a product. A list of tensors is taken for a launch per 64 of them.
So compare counts with each other; kernels in a CUDA graph are counted by ``training.py``.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

os.environ.pop("TRITON_INTERPRET", None)  # read when Triton is imported

import torch
from common import graphs, training_data
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime.jit import JITFunction

import gradformer
from gradformer.attention import availability, fused, operation
from gradformer.model.base import all_models
from gradformer.training.capture import CapturedTrial
from gradformer.training.data import TrainingData
from gradformer.training.recipe import Recipe, load_recipe
from gradformer.training.trial import Trial
from training import CASES, Case, prepared

PACKAGE = Path(gradformer.__file__).parent
TENSORS_AT_ONCE = 64
OWN_OPERATORS = {"decay_attention": fused._forward, "decay_attention_backward": fused._backward}
FREE = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "lift_fresh",
        "_unsafe_view", "detach", "alias", "promote_types"}  # fmt: skip
Place = tuple[str, str]  # file and function


class Launches(TorchDispatchMode):
    """Counts (file, function, "forward" or "backward", kernel)."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[tuple[str, str, str, str]] = Counter()
        self._makers: dict[int, Place] = {}  # of autograd's nodes

    def add(self, kernel: str, times: int = 1) -> None:
        node = torch._C._current_autograd_node()
        place = _caller()
        if node is None:
            self._made(place)
            phase = "forward"
        else:
            place = self._makers.get(node._sequence_nr(), place)
            phase = "backward"
        self.count[(*place, phase, kernel)] += times

    def _made(self, place: Place) -> None:
        """The latest node is of the first call after it was made."""
        self._makers.setdefault(torch.autograd._get_sequence_nr() - 1, place)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if func.namespace == "gradformer":
            with self:
                return OWN_OPERATORS[name]._init_fn(*args, **(kwargs or {}))
        out = func(*args, **(kwargs or {}))
        if name in FREE or func.is_view:
            self._made(_caller())
        elif name.startswith("_foreach"):
            self.add(name, -(-len(args[0]) // TENSORS_AT_ONCE))
        else:
            self.add(name)
        return out


def _caller() -> Place:
    """The innermost function of the package on the stack."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            return str(path.relative_to(PACKAGE)), frame.f_code.co_qualname
        frame = frame.f_back
    return "torch", "autograd"


def set_up(case: Case, model: str, layers: int | None) -> tuple[TrainingData, Recipe]:
    """Gradformer as the case has it, or a baseline as ``models.py`` has it; ``layers`` if given."""
    if model == "gradformer":
        return prepared(replace(case, layers=layers or case.layers))
    settings = [f"train.batch_size={load_recipe(case.recipe).train.batch_size}"]
    settings += [] if layers is None else [f"model.layers={layers}"]
    recipe = load_recipe(case.recipe, model=model, settings=settings)
    return training_data(graphs(case.name, case.graphs), recipe), recipe


def launches(data: TrainingData, recipe: Recipe) -> Launches:
    """Count one step."""
    counter = Launches()
    torch.is_autocast_enabled = lambda *device: False  # it does not know meta tensors
    availability.why_no_triton = operation.why_no_triton = lambda device: None
    JITFunction.run = lambda self, *args, **options: counter.add(self.fn.__name__)
    trial = Trial(0, recipe, data, data.collator("meta"))
    captured = CapturedTrial(trial)
    body = captured.step(captured.capacity(0))
    body()  # what is made once for all steps
    counter.count.clear()
    with counter:
        body()
    return counter


def show(count: Counter[tuple[str, ...]], columns: int) -> None:
    """A table of the leading columns."""
    table: Counter[tuple[str, ...]] = Counter()
    for key, times in count.items():
        table[key[:columns]] += times
    for key, times in sorted(table.items(), key=lambda item: (item[0][:1], -item[1])):
        print(f"{times:6}  " + "  ".join(f"{part:30}" for part in key).rstrip())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", choices=list(CASES))
    parser.add_argument("--model", default="gradformer", choices=sorted(all_models()))
    parser.add_argument("--layers", type=int, help="instead of the model's own number")
    parser.add_argument("--detail", action="store_true", help="name the kernels too")
    options = parser.parse_args()
    case = replace(CASES[options.case], graphs=128)
    data, recipe = set_up(case, options.model, options.layers)
    counter = launches(data, recipe)
    show(counter.count, 4 if options.detail else 3)
    print("\nby file:")
    show(counter.count, 1)
    model = f"{recipe.model.name} with {recipe.model.config.layers} layers"
    print(f"\n{counter.count.total()} launches in a step of {model} on {case.name}")


if __name__ == "__main__":
    main()
