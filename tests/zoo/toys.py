"""Small random graphs, and the promises that every baseline keeps on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gradformer.graphs.arrays import GraphArrays, Level, Schema
from gradformer.graphs.batch import Batch
from gradformer.graphs.collate import Capacity, Collator
from gradformer.graphs.store import pack
from gradformer.graphs.structures import Structure
from gradformer.model.base import GraphModel, create_model
from tests.structure.random_graphs import pack as end_to_end

STEPS = 5
DEEP = {"layers": 3, "width": 32}
NARROW = {"layers": 2, "width": 16, "heads": 2}
BIASED = NARROW | {"inner": 24, "hops": 3}
SPECTRUM = {"eigenpairs": 4, "lpe_width": 6, "lpe_heads": 2, "lpe_layers": 1, "lpe_inner": 12}
SMALL = {
    "gcn": DEEP,
    "gat": DEEP | {"heads": 2},
    "gin": DEEP,
    "gatedgcn": DEEP | {"lap": 0},
    "graphgps": NARROW | {"width": 32, "pe_steps": STEPS, "pe_width": 8},
    "gt": NARROW | {"lap": 0},
    "san": NARROW | SPECTRUM,
    "kdlgt": NARROW | {"width": 32, "features": 16, "rwse": STEPS, "anchors": 3},
    "sat": NARROW | {"inner": 24, "hops": 2, "pe_steps": STEPS},
    "graphtrans": NARROW | {"inner": 24, "gnn_layers": 2, "gnn_width": 12},
    "lgi_gt": NARROW | {"head_inner": 1, "pe_steps": STEPS, "pe_width": 6},
    "egt": NARROW | {"pair_width": 8, "hops": 3, "svd": 0},
    "graphormer": BIASED | {"reach": 0},
    "deepgraph": BIASED | {"members": 9},
}
"""Options of each baseline that make it small."""
SIZES = (6, 1, 9, 4, 7, 3)
CAPACITIES = (
    Capacity(graphs=8, nodes=40, edges=160, largest=11),
    Capacity(  # no row of a node or a pair is padding
        graphs=8, nodes=sum(SIZES), edges=160, largest=9, pairs=sum(n * n for n in SIZES)
    ),
)
IDS = torch.arange(len(SIZES))
PADDED_IDS = torch.tensor([0, 1, 2, -1, 3, 4, 5, -1])


def toy_schema(level: Level = "graph", edges: bool = True) -> Schema:
    return Schema((7,), (4,) if edges else (), level, "regression", 2)


def make(name: str, level: Level = "graph", edges: bool = True, **options: Any) -> Any:
    """A small baseline, always with the same weights."""
    torch.manual_seed(0)
    return create_model(name, toy_schema(level, edges), **SMALL[name] | options)


def toy_graphs(schema: Schema) -> GraphArrays:
    """Undirected random graphs, one of a single node, some with isolated nodes."""
    rng = np.random.default_rng(0)
    indices, attributes = [], []
    for n in SIZES:
        upper = np.argwhere(np.triu(rng.random((n, n)) < 0.4, 1))
        kinds = rng.integers(0, 4, len(upper))
        indices.append(np.concatenate([upper, upper[:, ::-1]]).T)
        attributes.append(np.concatenate([kinds, kinds]))
    node_ptr, edge_ptr, edge_index = end_to_end(zip(SIZES, indices))
    rows = len(SIZES) if schema.level == "graph" else int(node_ptr[-1])
    return GraphArrays(
        node_ptr,
        edge_ptr,
        edge_index,
        schema,
        x=rng.integers(0, 7, (int(node_ptr[-1]), 1)),
        edge_attr=np.concatenate(attributes)[:, None] if schema.edge else None,
        y=rng.normal(size=(rows, 2)).astype(np.float32),
    )


def relabelled(arrays: GraphArrays) -> tuple[GraphArrays, Tensor]:
    """The same graphs with their nodes in another order, and that order [nodes]."""
    rng = np.random.default_rng(1)
    orders = [rng.permutation(n) for n in arrays.sizes]
    index = arrays.edge_index.copy()
    for graph, order in enumerate(orders):
        part = slice(arrays.edge_ptr[graph], arrays.edge_ptr[graph + 1])
        index[:, part] = np.argsort(order)[arrays.edge_index[:, part]]
    rows = np.concatenate([o + first for o, first in zip(orders, arrays.node_ptr)])
    assert arrays.x is not None
    return replace(arrays, edge_index=index, x=arrays.x[rows]), torch.from_numpy(rows)


def collator(arrays: GraphArrays) -> Collator:
    return Collator(pack(arrays, Structure(rwse=STEPS, lap=STEPS)))


def own_collator(model: GraphModel, device: str = "cpu") -> Collator:
    """The toy graphs in a store that holds what the model asks for, as training has them."""
    store = pack(toy_graphs(model.schema), model.config.needs())
    return Collator(store, device)


def toy_batch(schema: Schema) -> Batch:
    return collator(toy_graphs(schema))(IDS)


def lively(model: GraphModel) -> GraphModel:
    """The model with weights large enough that a wrong row would show in the output."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for value in model.parameters():
            value.normal_(std=0.3, generator=generator)
        for name, value in model.named_buffers():  # of norms
            if name.endswith("running_mean"):
                value.normal_(generator=generator)
            elif name.endswith("running_var"):
                value.uniform_(0.5, 2.0, generator=generator)
    return model


def real_rows(out: Tensor, batch: Batch) -> Tensor:
    """Rows of nodes, or of graphs, without padding."""
    rows = batch.nodes if len(out) == batch.num_nodes else batch.layout.graph_rows
    return out if rows.mask is None else out[rows.mask]


def loss_of(out: Tensor, batch: Batch) -> Tensor:
    """Squared error over the real rows."""
    assert batch.y is not None
    return real_rows((out - batch.y).square(), batch).mean()


def check_batch_mates(model: GraphModel) -> None:
    """A graph's predictions do not depend on the graphs beside it."""
    model.eval()
    make = collator(toy_graphs(model.schema))
    together = model(make(IDS))
    alone = torch.cat([model(make(IDS[i : i + 1])) for i in range(len(IDS))])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)


def check_relabelling(model: GraphModel) -> None:
    """The order of the nodes does not matter."""
    model.eval()
    arrays = toy_graphs(model.schema)
    moved, rows = relabelled(arrays)
    before, after = model(collator(arrays)(IDS)), model(collator(moved)(IDS))
    if model.schema.level == "node":
        before = before[rows]
    torch.testing.assert_close(after, before, atol=1e-5, rtol=1e-4)


def check_padding(
    make_model: Callable[[], GraphModel],
    collate: Callable[[GraphModel], Collator] = lambda model: collator(toy_graphs(model.schema)),
) -> None:
    """A padded training step gives the same loss, gradients and statistics, dropout included.

    In float64 number by number, where rounding neither hides a wrong row nor stands for one; in
    float32, which has loops of its own, gradients parameter by parameter: some are steep.
    """
    for dtype, atol, rtol in ((torch.float64, 1e-7, 1e-6), (torch.float32, 1e-5, 1e-4)):
        loss, plain = _step(make_model, collate, None, dtype)
        for capacity in CAPACITIES:
            padded_loss, other = _step(make_model, collate, capacity, dtype)
            torch.testing.assert_close(padded_loss, loss, atol=atol, rtol=rtol)
            for (name, a), b in zip(plain.named_buffers(), other.buffers()):
                if not name.endswith("num_batches_tracked"):
                    torch.testing.assert_close(b, a, atol=atol, rtol=rtol, msg=_of(name))
            for (name, a), b in zip(plain.named_parameters(), other.parameters()):
                assert (a.grad is None) == (b.grad is None), name
                if a.grad is None or b.grad is None:
                    continue
                if dtype == torch.float64:
                    torch.testing.assert_close(b.grad, a.grad, atol=atol, rtol=rtol, msg=_of(name))
                assert (b.grad - a.grad).norm() <= 2e-5 + 1e-3 * a.grad.norm(), name


def _of(name: str) -> Callable[[str], str]:
    return lambda text: f"{name}: {text}"


def _step(
    make_model: Callable[[], GraphModel],
    collate: Callable[[GraphModel], Collator],
    capacity: Capacity | None,
    dtype: torch.dtype,
) -> tuple[Tensor, GraphModel]:
    """Loss and model after the backward pass of one training step."""
    torch.manual_seed(0)
    model = make_model().to(dtype).train()
    make = collate(model)
    batch = make(IDS) if capacity is None else make(PADDED_IDS, capacity)
    batch = batch.with_seed(torch.tensor([3, 1]), model.sites)
    loss = loss_of(model(batch), batch)
    loss.backward()
    return loss, model


def check_parameters(model: GraphModel) -> None:
    """Every parameter takes part in a training step."""
    batch = toy_batch(model.schema)
    loss_of(model.train()(batch), batch).backward()
    idle = [name for name, p in model.named_parameters() if _no_gradient(p)]
    assert not idle, f"parameters without gradient: {idle}"


def _no_gradient(parameter: nn.Parameter) -> bool:
    return parameter.grad is None or not bool(parameter.grad.abs().sum() > 0)
