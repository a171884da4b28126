"""A layer for other people's models: PyG's ``GPSConv`` with decayed attention."""

from __future__ import annotations

import inspect
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn

from gradformer.attention import Decay, Tables, decay_attention
from gradformer.attention.availability import exporting
from gradformer.attention.compiling import never_compiled
from gradformer.attention.draws import DrawsAlone, number_sites
from gradformer.errors import ConfigError, InputError, counted, suggest
from gradformer.graphs.batch import Batch, check_distance, packed
from gradformer.model.layer import Attention, FeedForward
from gradformer.model.parts import BatchNorm, Branch, Dropout, norm_pair


@never_compiled  # it reads sizes back, and distances are computed by numba
def _batch_of(edge_index: Tensor, vector: Tensor, distance: Tensor | None) -> Batch:
    """Layout, edges and distances of a PyG batch."""
    if exporting() or torch.jit.is_tracing():  # type: ignore[attr-defined]
        raise ConfigError(
            "GradformerConv: cannot be exported or traced, its program would know the graphs of "
            "the example alone; a whole model can be: gradformer export RUN --program"
        )
    found = packed(edge_index, vector)
    layout = found.layout
    if torch.is_inference_mode_enabled() and not layout.node_ptr.is_inference():
        layout = copy(layout)  # what it makes at need here could not serve in training
    _ = layout.rows  # made here: a compiler cannot follow the lock of a cached property
    if distance is None:
        distance = found.distance
    else:
        check_distance(distance, layout)
    return Batch(layout, found.edges, distance=distance)


def _make_decay(decay: Decay | dict[str, Any] | None, heads: int) -> Decay:
    """A given decay, if it fits one layer of that many heads, or a new one from its options."""
    if isinstance(decay, Decay):
        if (decay.heads, decay.sets) != (heads, 1):
            has = f"{counted(decay.heads, 'head')} and {counted(decay.sets, 'set')}"
            raise ConfigError(f"decay: has {has}, expected {heads} and 1")
        return decay
    options = {} if decay is None else decay
    if not isinstance(options, dict):
        raise ConfigError(
            f"decay: got {decay!r}, expected options as {{'decay': 0.6}}, a Decay, or None"
        )
    known = set(inspect.signature(Decay).parameters) - {"heads", "sets"}
    for name in options:
        if name not in known:
            raise ConfigError(f"decay: unknown option {name!r}; {suggest(name, known)}")
    return Decay(heads, **options)


def _check(
    channels: int, x: Tensor, edge_index: Tensor, batch: Tensor | None, distance: Tensor | None
) -> None:
    """Raise an :class:`InputError` unless these are tensors that belong together."""
    given = {"x": x, "edge_index": edge_index, "batch": batch, "distance": distance}
    for name, value in given.items():
        optional = name in ("batch", "distance") and value is None
        if not optional and (not isinstance(value, Tensor) or value.layout != torch.strided):
            came = value.layout if isinstance(value, Tensor) else type(value).__name__
            raise InputError(
                f"{name}: expected a dense tensor, got {came}; a layer takes graphs of one kind of "
                "nodes, as x [nodes, channels] and edge_index [2, edges]"
            )
    if x.dim() != 2 or x.shape[1] != channels or not x.is_floating_point():
        raise InputError(f"x: expected floats [nodes, {channels}], got {x.dtype} {list(x.shape)}")
    if batch is not None and batch.dim() and len(batch) != len(x):
        entries, rows = counted(len(batch), "entry"), counted(len(x), "row")
        raise InputError(f"batch: has {entries}, but x has {rows}")


class GradformerConv(DrawsAlone):
    r"""Local convolution beside decayed attention; a drop-in for PyG's ``GPSConv``.

    .. math::
        s = \operatorname{BN}(\text{conv}(x) + x) + \operatorname{BN}(\text{attention}(x) + x),
        \qquad x' = \operatorname{BN}(s + \text{MLP}(s))

    Args:
        channels: width of a node.
        conv: any PyG convolution of that width, or None.
        heads: attention heads.
        dropout: after the convolution, the attention and in the MLP.
        attention_dropout: on the attention weights.
        decay: a :class:`~gradformer.attention.Decay` (to share start points between layers), or
            options for one as a dict, or None for its defaults.

    Shapes: x [nodes, channels]; edge_index [2, edges]; batch [nodes] sorted, one graph if None;
    distance flat uint8 [Σ n²], computed from ``edge_index`` when absent and kept for other layers.

    >>> conv = GradformerConv(16, None, heads=4)
    >>> x, edge_index = torch.randn(3, 16), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> conv(x, edge_index).shape
    torch.Size([3, 16])
    """

    def __init__(
        self,
        channels: int,
        conv: nn.Module | None,
        heads: int = 1,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        decay: Decay | dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if not (conv is None or isinstance(conv, nn.Module)):
            raise ConfigError(f"conv: got {conv!r}, expected a convolution or None")
        self.channels, self.heads = channels, heads
        self.conv = conv
        self.attention = Attention(channels, heads, attention_dropout)
        self.decay = _make_decay(decay, heads)
        self.mlp = FeedForward(channels, dropout)
        self.norm1 = BatchNorm(channels) if conv is not None else None
        self.norm2, self.norm3 = BatchNorm(channels), BatchNorm(channels)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        self.sites = number_sites(self)

    def reset_parameters(self) -> None:
        """Draw all parameters anew (start points keep their values)."""
        for module in self.modules():
            if module is not self and not isinstance(module, Decay):
                reset = getattr(module, "reset_parameters", None)
                if callable(reset):
                    reset()

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        distance: Tensor | None = None,
        return_attention_weights: bool = False,
        **kwargs: Any,
    ) -> Tensor | tuple[Tensor, tuple[Tensor, Tensor]]:
        """New node states [nodes, channels]; ``kwargs`` go to the convolution.

        With ``return_attention_weights`` also (pairs [2, Σ n²], weights [Σ n², heads]), as PyG has
        them: node ``pairs[1]`` looks at node ``pairs[0]``, of the same graph, with a weight before
        dropout; those of a node add up to 1.
        """
        _check(self.channels, x, edge_index, batch, distance)
        if kwargs and self.conv is None:
            raise InputError(f"{next(iter(kwargs))}: there is no convolution that would take it")
        for name in ("norm1", "norm2", "norm3"):
            if not isinstance(norm := getattr(self, name), BatchNorm | None):
                raise ConfigError(
                    f"{name}: was replaced by {type(norm).__name__}; keep the layer as it is, and "
                    "share statistics inside gradformer.model.parallel.shared_batch()"
                )
        batch = edge_index.new_zeros(len(x), dtype=torch.long) if batch is None else batch
        graphs = _batch_of(edge_index, batch, distance)
        if self.training:
            seed = torch.randint(2**31 - 1, (2,), device=x.device)
            graphs = graphs.with_seed(seed, self.sites)
        nodes, seeds = graphs.nodes, graphs.seeds
        tables = self.decay()[0]
        seen = self._weights(x, tables, graphs) if return_attention_weights else None
        y, x = self.attention.pass_on(x, tables, graphs)
        if self.conv is not None and self.norm1 is not None:
            z = self.conv(x, edge_index, **kwargs)
            if not isinstance(z, Tensor) or z.shape != x.shape:
                came = list(z.shape) if isinstance(z, Tensor) else type(z).__name__
                raise InputError(f"conv: expected to return {list(x.shape)}, got {came}")
            local = Branch(self.norm1, z, self.dropout1)
            s = norm_pair(local, Branch(self.norm2, y, self.dropout2), x, nodes, seeds)
        else:
            s = self.norm2(y, nodes, seeds, before=self.dropout2, add=x)
        change, dropout, s = self.mlp.pass_on(s, graphs)
        x = self.norm3(change, nodes, seeds, before=dropout, add=s)
        return x if seen is None else (x, seen)

    def _weights(self, x: Tensor, tables: Tables, graphs: Batch) -> tuple[Tensor, Tensor]:
        """Pairs (key, query) and the weight of each head for them."""
        layout, distance = graphs.layout, graphs.pair_bytes()
        q, k, v = self.attention.project(x)
        _, weights = decay_attention(
            q, k, v, layout, distance, tables.mul, tables.add, return_weights=True
        )
        return layout.pairs(), weights

    def __repr__(self) -> str:
        return f"GradformerConv({self.channels}, conv={self.conv}, heads={self.heads})"
