r"""Message passing: the local half of a layer.

Every module has ``forward(x, e, batch) -> (x', e')`` over node states x [nodes, width], edge
states e [edges, width] (None where the module has no use for them) and a :class:`Batch`.
``residual`` says whether x' already contains x. Some also have ``pass_on(x, e, batch)``, which
gives x back as a third value: what is done with that x sends its gradient through the module's own
kernels, which add it up (see :func:`gradformer.model.maps.linear_and_input`).
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from gradformer.attention.arguments import check_heads
from gradformer.attention.availability import runs_kernels
from gradformer.errors import ConfigError, suggest
from gradformer.graphs.batch import Batch
from gradformer.model.edge_attention import softmax_with_own, weighted_sum
from gradformer.model.fused import messages
from gradformer.model.gated import GatedGCN
from gradformer.model.maps import MLP, NormMLP, hooked
from gradformer.model.segments import (
    from_source,
    from_target,
    normalised_sum,
    sum_to_target,
    with_sources,
)

Local = tuple[Tensor, Tensor | None]
PassedOn = tuple[Tensor, Tensor | None, Tensor]


def passed_on(
    module: nn.Module, x: Tensor, e: Tensor | None, batch: Batch, *more: Tensor | None
) -> PassedOn:
    """x' and e' of a module, and x for later use; a hook sees the module called."""
    pass_on = getattr(module, "pass_on", None)
    if pass_on is None or hooked(module):
        return *module(x, e, batch, *more), x
    return pass_on(x, e, batch, *more)


class GIN(nn.Module):
    r"""x'_t = MLP((1 + ε) x_t + Σ_{s→t} x_s); ε 0 or learned.

    The MLP is Linear – ReLU – Linear; with ``norm`` there is a batch norm before the ReLU.
    """

    uses_edges = False
    residual = False

    def __init__(
        self,
        width: int,
        inner: int | None = None,
        learn_eps: bool = False,
        norm: bool = False,
        out: int | None = None,
    ) -> None:
        super().__init__()
        inner, out = inner or width, out or width
        self.mlp = NormMLP(width, inner, out) if norm else MLP(width, inner, out)
        self.eps = nn.Parameter(torch.zeros(1)) if learn_eps else None

    def forward(self, x: Tensor, e: Tensor | None, batch: Batch) -> Local:
        y, e, _ = self.pass_on(x, e, batch)
        return y, e

    def pass_on(self, x: Tensor, e: Tensor | None, batch: Batch) -> PassedOn:
        y, x = with_sources(x, self.eps, batch.edges)
        return self.map(y, batch), e, x

    def map(self, y: Tensor, batch: Batch) -> Tensor:
        """What follows the sum."""
        return self.mlp(y, batch.nodes) if isinstance(self.mlp, NormMLP) else self.mlp(y)


class GINE(GIN):
    r"""x'_t = MLP((1 + ε) x_t + Σ_{s→t} ReLU(x_s + e_st)), e = 0 if not given."""

    uses_edges = True

    def pass_on(self, x: Tensor, e: Tensor | None, batch: Batch) -> PassedOn:
        if e is None:
            e = x.new_zeros(1, x.shape[1]).expand(batch.edges.num_edges, -1)
        if runs_kernels(x):
            y, x, e = messages.gine(x, e, self.eps, batch.edges)
        else:
            message = (from_source(x, batch.edges) + e).relu()
            own = x if self.eps is None else (1.0 + self.eps) * x
            y = own + sum_to_target(message, batch.edges)
        return self.map(y, batch), e, x


class GCN(nn.Module):
    r"""x' = D^{-1/2} (A + I) D^{-1/2} (W x) + b, D the degrees of A + I."""

    uses_edges = False
    residual = False

    def __init__(self, width: int, out: int | None = None) -> None:
        super().__init__()
        self.linear = nn.Linear(width, out or width, bias=False)
        self.bias = nn.Parameter(torch.zeros(out or width))

    def forward(self, x: Tensor, e: Tensor | None, batch: Batch) -> Local:
        return normalised_sum(self.linear(x), batch.edges) + self.bias, e


class GAT(nn.Module):
    r"""Additive attention over neighbours and the node itself, heads side by side.

    .. math::
        x'_t = \big\Vert_h \sum_{s \in N(t) \cup t} \operatorname{softmax}_s\bigl(
            \operatorname{LeakyReLU}_{0.2}(a_h \cdot W_h x_s + c_h \cdot W_h x_t)\bigr) W_h x_s + b
    """

    uses_edges = False
    residual = False

    def __init__(self, width: int, heads: int = 4, out: int | None = None) -> None:
        super().__init__()
        out = out or width
        check_heads(out, heads)
        self.heads = heads
        self.linear = nn.Linear(width, out, bias=False)
        self.source, self.target = (
            nn.Parameter(torch.empty(heads, out // heads)) for _ in range(2)
        )
        self.bias = nn.Parameter(torch.zeros(out))
        nn.init.xavier_uniform_(self.source)
        nn.init.xavier_uniform_(self.target)

    def forward(self, x: Tensor, e: Tensor | None, batch: Batch) -> Local:
        edges = batch.edges
        y = self.linear(x).view(x.shape[0], self.heads, -1)  # [nodes, heads, d]
        here, there = (y * self.target).sum(-1), (y * self.source).sum(-1)  # [nodes, heads]
        score = nn.functional.leaky_relu(from_source(there, edges) + from_target(here, edges), 0.2)
        own = nn.functional.leaky_relu(there + here, 0.2)
        weight, own_weight = softmax_with_own(score, own, edges)
        total = weighted_sum(weight, y.flatten(1), edges).view_as(y) + own_weight[..., None] * y
        return total.flatten(1) + self.bias, e


class PyGConv(nn.Module):
    """Any convolution class of PyG on ``edge_index``; it promises no fixed bits on a GPU."""

    residual = False

    def __init__(self, conv: type[nn.Module], width: int) -> None:
        super().__init__()
        takes = inspect.signature(conv).parameters
        if not {"in_channels", "out_channels"} <= takes.keys():
            raise TypeError(f"it takes {', '.join(takes)}")
        self.uses_edges = "edge_dim" in takes
        self.conv = conv(width, width, **({"edge_dim": width} if self.uses_edges else {}))

    def forward(self, x: Tensor, e: Tensor | None, batch: Batch) -> Local:
        options: dict[str, Any] = {"edge_attr": e} if self.uses_edges else {}
        if batch.edges.rows.mask is not None:
            raise ConfigError("local: a PyG convolution cannot run on a padded batch")
        return self.conv(x, batch.edges.edge_index, **options), e


LOCALS: dict[str, type[nn.Module]] = {
    "gin": GIN,
    "gine": GINE,
    "gatedgcn": GatedGCN,
    "gcn": GCN,
    "gat": GAT,
}


def make_local(name: str, width: int, **gated: Any) -> nn.Module | None:
    """A local module by name: one of ours, ``none``, or a convolution of PyG (``SAGEConv``).

    ``gated`` are options of the gated convolution; the others have none.
    """
    if name == "none":
        return None
    if name in LOCALS:
        return LOCALS[name](width, **(gated if name == "gatedgcn" else {}))
    import torch_geometric.nn

    conv = getattr(torch_geometric.nn, name, None) if name.endswith("Conv") else None
    if conv is None:
        known = [*LOCALS, "none", "SAGEConv", "GraphConv", "TransformerConv"]
        raise ConfigError(f"local: unknown module {name!r}; {suggest(name, known)}")
    try:
        return PyGConv(conv, width)
    except TypeError as error:
        raise ConfigError(
            f"local: PyG's {name} cannot be made from a width alone ({error}); "
            "pass an instance to GradformerConv"
        ) from None
