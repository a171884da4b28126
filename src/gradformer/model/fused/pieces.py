"""Gradients of parameters in pieces: what the kernels of a backward pass leave for one last sum.

A kernel whose programs sum over some rows each has several pieces of a parameter's gradient. To add
them is a launch for every parameter, which costs more than the work in it. So all kernels of a step
leave their pieces in one buffer, and a single launch adds them, in order, into the vector of all
gradients. Autograd is told that these parameters have no gradient.

A parameter that is used twice, or that is not in the vector, or has no pieces because nobody
collects them, gets its gradient from autograd as usual.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor

UNIT = 32  # numbers: what belongs to one parameter begins at a multiple of it
UNITS = 16  # that a program sums up
DEPTH = 16  # pieces that it reads at a time


@dataclass
class Room:
    """Where the pieces of one parameter lie: row i of ``count`` begins at ``start`` + i·``row``."""

    place: int
    size: int
    count: int
    start: int
    written: bool = False

    @property
    def row(self) -> int:
        return -(-self.size // UNIT) * UNIT


class Pieces:
    """The pieces of one step.

    Args:
        places: id of a parameter → its place in the vector of gradients, a multiple of ``UNIT``.
        tables: what was made for earlier steps; a captured step finds its table here.
    """

    def __init__(
        self, places: Mapping[int, int], tables: dict[tuple[tuple[int, ...], ...], Tensor]
    ) -> None:
        self._places, self._tables = places, tables
        self._rooms: dict[int, Room] = {}
        self._size = 0
        self._buffer: Tensor | None = None

    @property
    def written(self) -> list[Room]:
        return [room for room in self._rooms.values() if room.written]

    @contextmanager
    def collecting(self) -> Iterator[Pieces]:
        """Operations called inside leave their pieces here, whenever they run backward."""
        token = _collecting.set(self)
        try:
            yield self
        finally:
            _collecting.reset(token)

    def claim(self, count: int, parameters: Sequence[Tensor]) -> Claim | None:
        """Room for ``count`` pieces of each, or None if one of them cannot have it."""
        if len({id(p) for p in parameters}) < len(parameters):
            return None
        for p in parameters:
            known = id(p) in self._places and id(p) not in self._rooms
            if not known or p.dtype != torch.float32 or self._buffer is not None:
                return None
        rooms = []
        for p in parameters:
            room = Room(self._places[id(p)], p.numel(), count, self._size)
            self._size += count * room.row
            self._rooms[id(p)] = room
            rooms.append(room)
        return Claim(self, rooms)

    def open(self, room: Room, device: torch.device) -> Tensor:
        """The numbers of a room, [count, row]; all of them are written by who opens it."""
        if self._buffer is None:
            self._buffer = torch.empty(self._size, dtype=torch.float32, device=device)
        room.written = True
        return self._buffer[room.start : room.start + room.count * room.row].view(-1, room.row)

    def add_up(self, grad: Tensor, kept: Sequence[tuple[int, int]]) -> None:
        """Into ``grad``, and onto the numbers (place, size) that are ``kept``; others become 0."""
        from gradformer.model.kernels.pieces import sum_pieces_kernel

        assert self._buffer is not None
        units = len(grad) // UNIT
        table = self._table(units, kept, grad.device)
        # Told how many registers there are, the compiler lets all loads wait together.
        sum_pieces_kernel[(-(-units // UNITS),)](
            self._buffer, table, grad, units, UNIT=UNIT, UNITS=UNITS, DEPTH=DEPTH, maxnreg=96
        )

    def _table(self, units: int, kept: Sequence[tuple[int, int]], device: torch.device) -> Tensor:
        """For each unit: where its first piece is, row, count, numbers in use, kept or not.

        [5, units] int32; place and row count units. It follows from the shapes, so steps of the
        same shape share one.
        """
        rooms = [(r.place, r.size, r.count, r.start) for r in self.written]
        key = (*rooms, *kept)
        if key not in self._tables:
            table = torch.zeros(5, units, dtype=torch.int32)
            for place, size, count, start in rooms:
                unit = torch.arange(-(-size // UNIT))
                mine = slice(place // UNIT, place // UNIT + len(unit))
                table[0, mine] = start // UNIT + unit
                table[1, mine], table[2, mine] = len(unit), count
                table[3, mine] = (size - unit * UNIT).clamp(max=UNIT)
            for place, size in kept:
                table[4, place // UNIT : -(-(place + size) // UNIT)] = 1
            self._tables[key] = table.to(device)
        return self._tables[key]


@dataclass
class Claim:
    """Rooms that an operation has been given in its forward pass, one for each parameter."""

    pieces: Pieces
    rooms: list[Room]

    def open(self, device: torch.device) -> list[Tensor]:
        """The numbers to write, [count, at least as many as the parameter has] each."""
        return [self.pieces.open(room, device) for room in self.rooms]


_collecting: ContextVar[Pieces | None] = ContextVar("collecting", default=None)


def claim(count: int, *parameters: Tensor | None) -> Claim | None:
    """Room for ``count`` pieces of the gradient of each parameter that is not None.

    None if nobody collects pieces, or not of all of these: then autograd is given the gradients.
    """
    pieces = _collecting.get()
    if pieces is None or not torch.is_grad_enabled():
        return None
    return pieces.claim(count, [p for p in parameters if p is not None])


def open_map(
    room: Claim | None, count: int, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Where ``count`` pieces of a linear map's dW and db go, of a weight [out, in].

    Without a claim they lie side by side, [count, out · (in + 1)].
    """
    if room is None:
        size = weight.numel()
        dw = torch.empty(count, size + len(weight), dtype=torch.float32, device=weight.device)
        return dw, None if bias is None else dw[:, size:]
    dw, *db = room.open(weight.device)
    return dw, db[0] if db else None


def sum_map(
    room: Claim | None, dw: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of weight and bias of what lies side by side; None if left in a claim's rooms."""
    if room is not None:
        return None, None
    weights, biases = dw.sum(0).to(weight.dtype).split([weight.numel(), len(weight)])
    return weights.view_as(weight), None if bias is None else biases
