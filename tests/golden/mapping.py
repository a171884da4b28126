"""What the adapters share: names of equal modules, stored batches, hidden states, losses.

Batches are float64, and models beside them should be: a unit of a reference that lies within
float32 rounding of its ReLU's kink would otherwise change gradients by far more than rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from gradformer.attention import decay_attention
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


def rows_of(ours: str, parts: Sequence[str]) -> dict[str, Ref]:
    """Names for one linear map of ours that holds the rows of several of the reference."""
    return {
        f"{ours}.{entry}": Ref(
            f"{parts[0]}.{entry}", more=tuple(f"{part}.{entry}" for part in parts[1:])
        )
        for entry in ("weight", "bias")
    }


def stored_batch(
    case: Case,
    *,
    x: Tensor | None = None,
    edge_attr: Tensor | None = None,
    encodings: dict[str, Tensor] | None = None,
) -> tuple[Batch, Tensor]:
    """The graphs of a case as our batch, and the place [edges] of each stored edge in it."""
    layout = Layout.from_batch(case["batch"])
    edges, order = sort_edges(case["edge_index"], layout)
    batch = Batch(
        layout,
        edges,
        widened(x),
        None if edge_attr is None else widened(edge_attr[order]),
        batch_distances(edges, layout),
        {name: value.double() for name, value in (encodings or {}).items()},
        y=widened(case["y"]) if "y" in case else None,
    )
    return batch, order.argsort()


def widened(x: Tensor | None) -> Tensor | None:
    """Floats as float64; integers as they are."""
    return x.double() if x is not None and x.is_floating_point() else x


def places(edge_index: Tensor, edges: Edges) -> Tensor:
    """Where each of the stored edges [2, edges] lies among ours."""
    nodes = edges.target_ptr.numel() - 1
    ours = edges.target.long() * nodes + edges.source
    wanted = edge_index[1] * nodes + edge_index[0]
    order = ours.argsort()
    return order[torch.searchsorted(ours[order], wanted)]


def calls(
    model: nn.Module, batch: Batch, names: Iterable[str]
) -> dict[str, tuple[tuple[Any, ...], Any]]:
    """Arguments and output of the modules named, in ``model(batch)``; "" is the model itself."""
    seen = {}

    def note(module: nn.Module, given: tuple[Any, ...], made: Any, name: str) -> None:
        seen[name] = given, made

    hooks = [
        model.get_submodule(name).register_forward_hook(partial(note, name=name)) for name in names
    ]
    seen[""] = (batch,), model(batch)
    for hook in hooks:
        hook.remove()
    return seen


def watch(
    model: nn.Module, batch: Batch, keys: dict[str, str], inputs: dict[str, str] | None = None
) -> dict[str, Any]:
    """The output, and outputs and first arguments of the modules named (module → key)."""
    inputs = inputs or {}
    seen = calls(model, batch, {**keys, **inputs})
    found = {key: seen[name][1] for name, key in keys.items()}
    found |= {key: seen[name][0][0] for name, key in inputs.items()}
    return found | {"out": seen[""][1]}


def weighted_cross_entropy(out: Tensor, y: Tensor) -> Tensor:
    """Class c weighs (V − n_c) / V over the V rows of the batch, 0 where it is absent."""
    counts = torch.bincount(y, minlength=out.shape[1])
    weight = (len(y) - counts) / len(y) * (counts > 0)
    return cross_entropy(out, y, weight=weight.to(out.dtype))


def watch_weights(model: nn.Module, batch: Batch, names: dict[str, str]) -> dict[str, Tensor]:
    """Weights [pairs, heads] of attention (module → key) in ``model(batch)``."""
    found = {}
    for name, (given, _) in calls(model, batch, names).items():
        if name in names:
            x, tables, wide, bias = (*given, None)[:4]
            where = wide.layout, wide.distance, tables.mul, tables.add
            qkv = model.get_submodule(name).project(x)
            weights = decay_attention(*qkv, *where, bias=bias, return_weights=True)[1]
            found[names[name]] = weights
    return found


def packed_place(layout: Layout, query: Tensor, key: Tensor) -> Tensor:
    """Where the pairs (query row, key row) of a layout lie in a packed pair tensor."""
    graph = layout.graph[query].long()
    first = layout.node_ptr[graph].long()
    size = layout.node_ptr[graph + 1] - first
    return layout.packed_ptr[graph] + (query - first) * size + key - first


def dense_pairs(pairs: Tensor, sizes: list[int], tokens: int = 0) -> Tensor:
    """[pairs, heads] → [graphs, heads, rows, rows], zero where padded; tokens come last of all."""
    width = max(sizes) + tokens
    out = pairs.new_zeros(len(sizes), pairs.shape[1], width, width)
    blocks = pairs.split([(n + tokens) ** 2 for n in sizes])
    for graph, (n, block) in enumerate(zip(sizes, blocks)):
        at = torch.tensor([*range(n), *range(width - tokens, width)])
        square = block.view(n + tokens, n + tokens, -1).permute(2, 0, 1)
        out[graph][:, at[:, None], at] = square
    return out


def real_pairs(stored: Tensor, sizes: list[int], tokens: int = 0) -> Tensor:
    """Stored attention [graphs, heads, rows, rows] with zeros where the query or key is padded."""
    ones = torch.ones(sum((n + tokens) ** 2 for n in sizes), stored.shape[1])
    return stored * dense_pairs(ones, sizes, tokens)


def plain_loss(name: str, out: Tensor, y: Tensor) -> Tensor:
    """Mean cross entropy; or that of ``l1``, ``mse`` or ``bce`` over the labels that are there."""
    if name in ("ce", "cross_entropy"):
        return cross_entropy(out, y)
    if name == "weighted_cross_entropy":
        return weighted_cross_entropy(out, y)
    y = y.view_as(out).to(out.dtype)
    out, y = out[~y.isnan()], y[~y.isnan()]
    if name == "bce":
        return binary_cross_entropy_with_logits(out, y)
    return (out - y).abs().mean() if name == "l1" else (out - y).square().mean()


def training(
    case: Case, model: nn.Module, batch: Batch, loss: str, inputs: dict[str, Tensor] | None = None
) -> Callable[[], dict[str, Tensor]]:
    """What a subject gives in train mode: the model's output, and the :func:`plain_loss` of it.

    To ``inputs``, if given, is added what enters the first layer.
    """

    def train() -> dict[str, Tensor]:
        seen = watch(model, batch, {}, {} if inputs is None else {"layers.0": "h0"})
        if inputs is not None:
            inputs["grad_h0"] = seen["h0"]
            seen["h0"].retain_grad()
        return {"out_train": seen["out"], "loss": plain_loss(loss, seen["out"], case["y"])}

    return train


def leaf(x: Tensor) -> Tensor:
    """A stored input; floats as float64 with a gradient of their own."""
    return x.double().requires_grad_() if x.is_floating_point() else x


def gradients(case: Case, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The inputs (by stored name) whose gradients are stored, by the names of those."""
    found = {f"grad_{name}": value for name, value in inputs.items()}
    return {name: value for name, value in found.items() if name in case}


def columns(x: Tensor, table: Tensor) -> tuple[int, ...] | int:
    """The schema of stored features: float channels, or the vocabulary that ``table`` has."""
    if x.is_floating_point():
        return x.shape[1] if x.dim() == 2 else 1
    return (len(table),)
