"""Structure of a model's own: from the store where it holds it, else computed for the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from gradformer.attention.compiling import never_compiled
from gradformer.errors import InputError
from gradformer.graphs.arrays import GraphArrays
from gradformer.graphs.batch import Batch, graph_arrays
from gradformer.graphs.structures import Kind, register_structure
from gradformer.progress import bar

Array = NDArray[Any]


class Precomputed:
    """One array of a store, under ``name``, and the function that makes it.

    Args:
        name: of the structure and of its array.
        function: ``(node_ptr, edge_ptr, edge_index, progress=…, **options)`` → array; ``progress``
            is called with the number of graphs that became ready.
        kind: what the rows belong to.
        with_edge_features: only needed where edges have features; other stores do not hold it.
        version: raised when the values change.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Array],
        kind: Kind,
        *,
        with_edge_features: bool = False,
        version: int = 1,
    ) -> None:
        self.name, self.function, self.with_edge_features = name, function, with_edge_features
        register_structure(name, self._for_store, kind, version)

    def _for_store(self, arrays: GraphArrays, **options: Any) -> dict[str, Array]:
        if self.with_edge_features and not arrays.schema.edge:
            return {}
        graphs = arrays.node_ptr, arrays.edge_ptr, arrays.edge_index
        with bar(self.name.replace("_", " "), arrays.num_graphs) as advance:
            return {self.name: self.function(*graphs, progress=advance, **options)}

    def request(self, **options: Any) -> str:
        """How a model asks the store for it."""
        listed = ",".join(f"{name}={value}" for name, value in options.items())
        return f"{self.name}:{listed}" if listed else self.name

    @never_compiled
    def compute(self, batch: Batch, **options: Any) -> Tensor:
        """The array of a batch, on its device; computed on the host."""
        made = self.function(*graph_arrays(batch.edges, batch.layout), **options)
        return torch.from_numpy(made).to(batch.layout.device)

    def of(self, batch: Batch, *shape: int, **options: Any) -> Tensor:
        """The array of a batch, [nodes, *shape]: what came with it, else computed."""
        found = batch.extras.get(self.name, batch.encodings.get(self.name))
        if found is None:
            found = self.compute(batch, **options)
            padding = found.new_zeros(batch.num_nodes - len(found), *found.shape[1:])
            found = torch.cat([found, padding])
        if found.shape[1:] != shape:
            expected = f"[nodes, {', '.join(map(str, shape))}]"
            raise InputError(
                f"{self.name}: expected {expected} with the batch, got {list(found.shape)}"
            )
        return found
