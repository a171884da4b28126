"""All numbers of a model in one vector, so that whatever is done to them is done at once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from gradformer.errors import InputError
from gradformer.model.fused.pieces import UNIT, Pieces


class Weights:
    """Parameters and float buffers of ``model`` as views of one vector.

    The vector holds the parameters that are weight-decayed, the other parameters, then the buffers
    (running statistics of norms); each begins at a multiple of 128 bytes, and the gaps stay zero.
    Move the model to its device first. With ``decay_all`` every parameter is weight-decayed.

    Attributes:
        vector: [size] all of them.
        grad: [parameters] the gradient of the first part.
        decayed: how many leading numbers are weight-decayed.
    """

    def __init__(self, model: nn.Module, decay_all: bool = False) -> None:
        exempt = set() if decay_all else {id(p) for p in without_weight_decay(model)}
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        first = [(name, p) for name, p in named if id(p) not in exempt]
        second = [(name, p) for name, p in named if id(p) in exempt]
        stored = model.state_dict(keep_vars=True)
        buffers = [
            (name, b)
            for name, b in model.named_buffers()
            if name in stored and b.is_floating_point()
        ]
        self._places: dict[str, tuple[int, torch.Size]] = {}
        place = 0
        ends = []
        for group in (first, second, buffers):
            for name, tensor in group:
                self._places[name] = (place, tensor.shape)
                place += -(-tensor.numel() // UNIT) * UNIT
            ends.append(place)
        self.decayed, self.num_parameters = ends[0], ends[1]
        kinds = {(t.dtype, t.device) for _, t in (*named, *buffers)}
        if len(kinds) != 1:
            raise InputError(f"model: expected one dtype and device, got {sorted(map(str, kinds))}")
        dtype, device = kinds.pop()
        self.vector = torch.zeros(place, dtype=dtype, device=device)
        self.grad = torch.zeros(self.num_parameters, dtype=dtype, device=device)
        self.parameters = [p for _, p in (*first, *second)]
        for (_, tensor), view in zip((*first, *second, *buffers), self.views(self.vector).values()):
            view.copy_(tensor.detach())
            tensor.data = view
        self._grads = list(self.views(self.grad).values())
        places = [place for place, _ in self._places.values()]
        self._piece_places = {id(p): place for p, place in zip(self.parameters, places)}
        self._piece_tables: dict[tuple[tuple[int, ...], ...], Tensor] = {}

    def views(self, vector: Tensor) -> dict[str, Tensor]:
        """The tensors inside ``vector`` [size], or inside its parameter part, by name."""
        return {
            name: vector[place : place + shape.numel()].view(shape)
            for name, (place, shape) in self._places.items()
            if place < len(vector)
        }

    def collecting(self) -> AbstractContextManager[Pieces]:
        """For a forward pass: its kernels may leave gradients in pieces, for :meth:`set_grad`."""
        return Pieces(self._piece_places, self._piece_tables).collecting()

    def set_grad(self, grads: Sequence[Tensor | None], pieces: Pieces | None = None) -> None:
        """Gather the gradients of :attr:`parameters`: ``grads`` of autograd, and ``pieces``.

        None, and no piece, is the gradient of one that took no part.
        """
        given = [(p, view, grad) for p, view, grad in
                 zip(self.parameters, self._grads, grads) if grad is not None]  # fmt: skip
        if given:
            torch._foreach_copy_([view for _, view, _ in given], [grad for _, _, grad in given])
        if pieces is not None and pieces.written:
            spans = [(self._piece_places[id(p)], p.numel()) for p, _, _ in given]
            pieces.add_up(self.grad, spans)
            return
        for view in [view for view, grad in zip(self._grads, grads) if grad is None]:
            view.zero_()


def without_weight_decay(model: nn.Module) -> list[nn.Parameter]:
    """What has no reason to shrink: biases and norms (all vectors), and what a module names."""
    found = [p for p in model.parameters() if p.dim() < 2]
    for module in model.modules():
        own = getattr(module, "no_weight_decay", None)
        if own is not None:
            found.extend(own())
    return found


def counters(model: nn.Module) -> dict[str, Tensor]:
    """What a model keeps beside that vector: no floats, as how many batches a norm of torch has
    seen."""
    return {name: t for name, t in model.state_dict().items() if not t.is_floating_point()}
