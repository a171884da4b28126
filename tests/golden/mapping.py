"""What the adapters share: names of equal modules, stored batches, hidden states, losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gradformer.attention.layout import Layout
from gradformer.graphs.batch import Batch, Edges, batch_distances, sort_edges
from tests.golden.case import Case, Ref


def match(model: nn.Module, pairs: dict[str, str]) -> dict[str, Ref]:
    """Names for modules that have the same entries in both: our prefix → reference prefix."""
    names = {}
    for ours, theirs in pairs.items():
        module = model.get_submodule(ours)
        entries = [*dict(module.named_parameters()), *dict(module.named_buffers())]
        for entry in entries:
            if not entry.endswith("num_batches_tracked"):
                names[f"{ours}.{entry}"] = Ref(f"{theirs}.{entry}")
    return names


def stored_batch(
    case: Case,
    *,
    x: Tensor | None = None,
    edge_attr: Tensor | None = None,
    encodings: dict[str, Tensor] | None = None,
    edge_index: Tensor | None = None,
) -> tuple[Batch, Tensor]:
    """The graphs of a case as our batch, and the place [edges] of each stored edge in it."""
    layout = Layout.from_batch(case["batch"])
    index = case["edge_index"] if edge_index is None else edge_index
    edges, order = sort_edges(index, layout)
    batch = Batch(
        layout,
        edges,
        x,
        None if edge_attr is None else edge_attr[order],
        batch_distances(case["edge_index"], layout),
        encodings or {},
        y=case["y"] if "y" in case else None,
    )
    return batch, order.argsort()


def places(edge_index: Tensor, edges: Edges) -> Tensor:
    """Where each of the stored edges [2, edges] lies among ours."""
    nodes = edges.target_ptr.numel() - 1
    ours = edges.target.long() * nodes + edges.source
    wanted = edge_index[1] * nodes + edge_index[0]
    order = ours.argsort()
    return order[torch.searchsorted(ours[order], wanted)]


def watch(model: nn.Module, keys: dict[str, str], run: Callable[[], Any]) -> dict[str, Any]:
    """Outputs of the modules named by ``keys`` (module → key) while ``run`` runs."""
    seen: dict[str, Any] = {}
    hooks = [
        model.get_submodule(name).register_forward_hook(
            lambda module, inputs, output, key=key: seen.__setitem__(key, output)
        )
        for name, key in keys.items()
    ]
    seen["out"] = run()
    for hook in hooks:
        hook.remove()
    return seen


def weighted_cross_entropy(out: Tensor, y: Tensor) -> Tensor:
    """Class c weighs (V − n_c) / V over the V rows of the batch, 0 where it is absent."""
    counts = torch.bincount(y, minlength=out.shape[1])
    weight = (len(y) - counts) / len(y) * (counts > 0)
    return cross_entropy(out, y, weight=weight.to(out.dtype))
