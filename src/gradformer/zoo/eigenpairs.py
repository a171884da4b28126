"""Eigenpairs of the graph Laplacian as a node sees them: its entry of v_k and λ_k, k = 1…count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from gradformer.attention.layout import Layout
from gradformer.errors import InputError
from gradformer.graphs.arrays import GraphArrays
from gradformer.graphs.batch import Batch
from gradformer.graphs.structures import register_structure
from gradformer.progress import bar
from gradformer.structure.encodings import Normalization, laplacian
from gradformer.structure.parallel import Progress
from gradformer.zoo.path_bias import graph_arrays

Array = NDArray[Any]


def eigenpairs(
    node_ptr: Array,
    edge_ptr: Array,
    edge_index: Array,
    count: int,
    normalization: Normalization,
    progress: Progress | None = None,
) -> NDArray[np.float32]:
    """The ``count`` smallest eigenpairs, the trivial one included: [nodes, count, 2].

    Last axis: entry of the unit eigenvector at the node, eigenvalue. Zero beyond the graph's size.
    ``progress`` is called with the number of graphs that became ready.
    """
    vectors, values = laplacian(
        node_ptr,
        edge_ptr,
        edge_index,
        count,
        normalization=normalization,
        skip_first=False,
        with_values=True,
        progress=progress,
    )
    return np.stack([vectors, np.abs(values).repeat(np.diff(node_ptr), axis=0)], axis=2)


def _structure(arrays: GraphArrays, count: int, normalization: Normalization) -> dict[str, Array]:
    graphs = arrays.node_ptr, arrays.edge_ptr, arrays.edge_index
    with bar("eigenpairs", arrays.num_graphs) as advance:
        return {array_name(normalization): eigenpairs(*graphs, count, normalization, advance)}


register_structure("eigenpairs", _structure, "node")


def array_name(normalization: Normalization) -> str:
    """What the eigenpairs are called among a batch's arrays."""
    return f"eigenpairs_{normalization}"


def structure_name(count: int, normalization: Normalization) -> str:
    """How a model asks the store for them."""
    return f"eigenpairs:count={count},normalization={normalization}"


def stored_eigenpairs(batch: Batch, count: int, normalization: Normalization) -> Tensor:
    """The eigenpairs of a batch, [nodes, count, 2]."""
    name = array_name(normalization)
    found = batch.extras.get(name, batch.encodings.get(name))
    if found is None or found.shape[1:] != (count, 2):
        shape = None if found is None else list(found.shape)
        raise InputError(f"{name}: expected [nodes, {count}, 2] with the batch, got {shape}")
    return found


def with_eigenpairs(batch: Batch, count: int, normalization: Normalization) -> Batch:
    """The same batch with its eigenpairs; computed here (on the host) unless it has them."""
    name = array_name(normalization)
    if name in batch.extras or name in batch.encodings:
        return batch
    found = torch.from_numpy(eigenpairs(*graph_arrays(batch), count, normalization))
    found = pad(found, (0, 0, 0, 0, 0, batch.num_nodes - len(found)))
    return replace(batch, extras={**batch.extras, name: found.to(batch.layout.device)})


def real_slots(layout: Layout, count: int) -> Tensor:
    """True where a node has a k-th eigenpair: k < size of its graph, [nodes, count] bool.

    Padded rows keep one slot, so that no softmax runs over nothing.
    """
    size = layout.node_ptr.diff()[layout.graph.clamp(max=layout.num_graphs - 1)].clamp(min=1)
    return torch.arange(count, device=layout.device) < size[:, None]
