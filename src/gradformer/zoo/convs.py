"""Convolutions that several baselines share, beside those of :mod:`gradformer.model.local`.

All have the face ``forward(x, e, batch) -> (x', e)`` and look at nothing of the batch but its
edges.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gradformer.attention.availability import runs_kernels
from gradformer.errors import ConfigError
from gradformer.graphs.batch import Batch, Edges
from gradformer.model.fused.messages import sum_and_max
from gradformer.model.local import Local
from gradformer.model.maps import linear
from gradformer.model.segments import (
    from_source,
    from_target,
    in_degree,
    out_degree,
    sum_of_sources,
    sum_to_target,
)


class EdgeGCN(nn.Module):
    r"""Graph convolution with edge terms, after the Open Graph Benchmark.

    .. math::
        y = W x + b, \qquad
        x'_t = \sum_{s \to t} \frac{\operatorname{ReLU}(y_s + e_{st})}{\sqrt{d_s d_t}}
               + \frac{\operatorname{ReLU}(y_t + r)}{d_t}

    with d = 1 + out-degree and a learned row r; without edge terms e = 0.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.root = nn.Parameter(torch.randn(1, width))

    def forward(self, x: Tensor, e: Tensor | None, batch: Batch) -> Local:
        y = self.linear(x)
        degree = out_degree(batch.edges, x.dtype)[:, None] + 1.0
        scale = degree.rsqrt()
        message = from_source(y, batch.edges)
        message = (message if e is None else message + e).relu()
        total = sum_to_target(message * from_source(scale, batch.edges), batch.edges)
        return total * scale + (y + self.root).relu() / degree, e


class GraphConv(nn.Module):
    r"""x'_t = U x_t + W Σ_{s→t} x_s + b; ``mean`` takes the mean of the neighbours (GraphSAGE)."""

    def __init__(self, width: int, mean: bool = False) -> None:
        super().__init__()
        self.mean = mean
        self.own = nn.Linear(width, width, bias=False)
        self.neighbours = nn.Linear(width, width)

    def forward(self, x: Tensor, e: Tensor | None, batch: Batch) -> Local:
        total = sum_of_sources(x, batch.edges)
        if self.mean:
            total = total / in_degree(batch.edges, x.dtype).clamp(min=1.0)[:, None]
        return self.own(x) + self.neighbours(total), e


class PNA(nn.Module):
    r"""Principal neighbourhood aggregation in towers, each over its own block of channels.

    .. math::
        m_{st} = W [x_t, x_s, e_{st}] + b, \qquad
        a_t = \big\Vert_{c, g}\; c(d_t)\; g_{s \to t}(m_{st}), \qquad
        x' = L \big\Vert_{\text{towers}} (U [x_t, a_t] + u)

    over scalers c and aggregators g; a node without neighbours has a = 0. The scalers are 1
    (``identity``), log(d + 1)/δ (``amplification``) and its inverse (``attenuation``, d ≥ 1), where
    δ is the mean of log(d + 1) over the training nodes. Edge terms are one tower wide and go to
    all towers.
    """

    def __init__(
        self,
        width: int,
        aggregators: tuple[str, ...],
        scalers: tuple[str, ...] = ("identity",),
        towers: int = 4,
        edges: bool = False,
        mean_log_degree: float = 1.0,
    ) -> None:
        super().__init__()
        if width % towers:
            raise ConfigError(f"width: {width} does not divide into {towers} towers")
        block = width // towers
        self.aggregators, self.scalers = aggregators, scalers
        parts = 1 + len(aggregators) * len(scalers)
        self.before = nn.ModuleList(
            nn.Linear((3 if edges else 2) * block, block) for _ in range(towers)
        )
        self.after = nn.ModuleList(nn.Linear(parts * block, block) for _ in range(towers))
        self.out = nn.Linear(width, width)
        self.register_buffer("mean_log_degree", torch.tensor([mean_log_degree]))
        self.mean_log_degree: Tensor

    def forward(self, x: Tensor, e: Tensor | None, batch: Batch) -> Local:
        towers = len(self.before)
        blocks = x.view(len(x), towers, -1)  # [nodes, towers, block]
        found = [part.view_as(blocks) for part in self._aggregates(blocks, e, batch.edges)]
        parts = [blocks]
        for name in self.scalers:
            parts += found if name == "identity" else self._scaled(found, name, batch.edges)
        weight, bias = _stacked(self.after)
        y = torch.einsum("nti,toi->nto", torch.cat(parts, dim=2), weight) + bias
        return linear(y.flatten(1), self.out), e

    def _aggregates(self, blocks: Tensor, e: Tensor | None, edges: Edges) -> list[Tensor]:
        """Aggregates of the messages, [nodes, width] each. The map of the messages is split so that
        its node parts run once for each node."""
        weight, bias = _stacked(self.before)
        here, there, *along = weight.split(blocks.shape[2], dim=2)
        at_target = (torch.einsum("nti,toi->nto", blocks, here) + bias).flatten(1)
        at_source = torch.einsum("nti,toi->nto", blocks, there).flatten(1)
        term = None if e is None else torch.einsum("ei,toi->eto", e, along[0]).flatten(1)
        if {"sum", "mean", "max"} >= set(self.aggregators) and runs_kernels(at_target):
            total, top = sum_and_max(at_target, at_source, term, edges)
            count = in_degree(edges, total.dtype).clamp(min=1.0)[:, None]
            known = {"sum": total, "mean": total / count, "max": top}
            return [known[name] for name in self.aggregators]
        message = from_target(at_target, edges) + from_source(at_source, edges)
        return aggregate(message if term is None else message + term, edges, self.aggregators)

    def _scaled(self, parts: list[Tensor], name: str, edges: Edges) -> list[Tensor]:
        degree = in_degree(edges, parts[0].dtype)[:, None, None]
        if name == "amplification":
            scale = degree.log1p() / self.mean_log_degree
        else:
            scale = self.mean_log_degree / degree.clamp(min=1.0).log1p()
        return [part * scale for part in parts]


def _stacked(maps: nn.ModuleList) -> tuple[Tensor, Tensor]:
    """Weights [towers, out, in] and biases [towers, out] of linear maps."""
    weight = torch.stack([one.get_parameter("weight") for one in maps])
    return weight, torch.stack([one.get_parameter("bias") for one in maps])


def aggregate(message: Tensor, edges: Edges, names: tuple[str, ...]) -> list[Tensor]:
    """``sum``, ``mean``, ``max``, ``min``, ``std`` of the messages [edges, c] into each node.

    A node without messages has 0. The standard deviation is 0, without gradient, where the
    variance is below 1e-5.
    """
    count = in_degree(edges, message.dtype).clamp(min=1.0)[:, None]
    total = sum_to_target(message, edges)
    found = {"sum": total, "mean": total / count}
    if "max" in names:
        found["max"] = max_to_target(message, edges)
    if "min" in names:
        found["min"] = -max_to_target(-message, edges)
    if "std" in names:
        variance = sum_to_target(message.square(), edges) / count - found["mean"].square()
        found["std"] = torch.where(variance > 1e-5, variance.clamp(min=1e-5).sqrt(), 0.0)
    return [found[name] for name in names]


def max_to_target(values: Tensor, edges: Edges) -> Tensor:
    """Largest of ``values`` [edges, c] over the edges into each node, 0 for a node without edges.

    Written as a weighted sum, so that the gradient is shared evenly between equal values and is
    summed in a fixed order.
    """
    seen = values.detach()
    if edges.rows.mask is not None:
        seen = seen.masked_fill(~edges.rows.mask[:, None], -torch.inf)
    index = edges.target.long()[:, None].expand_as(seen)
    top = seen.new_full((edges.target_ptr.numel() - 1, seen.shape[1]), -torch.inf)
    top = top.scatter_reduce(0, index, seen, "amax")
    hit = edges.rows.zero_padding((seen == top.index_select(0, edges.target)).to(values.dtype))
    share = hit / from_target(sum_to_target(hit, edges), edges).clamp(min=1.0)
    return sum_to_target(values * share, edges)
