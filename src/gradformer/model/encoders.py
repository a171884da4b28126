"""From raw features to vectors: categories, floats, degrees, positional encodings."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gradformer.attention.availability import runs_kernels
from gradformer.attention.draws import Site, keep, row_keys
from gradformer.attention.layout import Rows
from gradformer.errors import ConfigError, InputError, choice, counted
from gradformer.graphs.batch import Batch
from gradformer.model.maps import linear
from gradformer.model.parts import BatchNorm, Draw, Dropout
from gradformer.model.segments import in_degree, rows_of

DEGREES = ("onehot", "normalised")
ENCODINGS = ("rwse", "lap", "none")
MOST_FUSED_WIDTH = 512
MOST_FUSED_NUMBERS = 1 << 17
"""Numbers in tables up to which kernels embed: their gradient is made in up to 64 such pieces."""


def check_categories(name: str, x: Tensor, sizes: tuple[int, ...]) -> None:
    """Raise an :class:`InputError` that names the first category outside its vocabulary."""
    x = x.long()  # a short integer may not reach to the end of its vocabulary
    bad = (x < 0) | (x >= x.new_tensor(sizes))
    if bool(bad.any()):
        row, column = bad.nonzero()[0].tolist()
        raise InputError(
            f"{name}: category {int(x[row, column])} in row {row}, column {column}, "
            f"expected 0 to {sizes[column] - 1}"
        )


def check_floats(name: str, x: Tensor, channels: int) -> None:
    """Raise an :class:`InputError` unless ``x`` is [rows, channels]."""
    if x.dim() != 2 or x.shape[1] != channels:
        raise InputError(f"{name}: expected [rows, {channels}], got {list(x.shape)}")


def fits_kernel(tables: Sequence[Tensor]) -> bool:
    """Whether :mod:`.fused.encoding` takes ``tables`` [size, width] each."""
    exact = all(table.dtype == torch.float32 for table in tables)
    small = sum(table.numel() for table in tables) <= MOST_FUSED_NUMBERS
    return exact and small and tables[0].shape[1] <= MOST_FUSED_WIDTH


def embedded(
    x: Tensor, tables: Sequence[Tensor], mask: Tensor | None = None, exact: bool = False
) -> Tensor:
    """Σ_c T_c[x_c]: the rows of ``tables`` [size, width] each that x [rows, columns] int names.

    ``mask`` [rows] bool: rows that are padding take no part and may come out as anything. Kernels
    give autocast's precision, unless ``exact`` asks for that of the tables.
    """
    if fits_kernel(tables) and runs_kernels(x):
        from gradformer.model.fused.encoding import embed

        return embed(x, tables, mask, exact=exact)
    parts = [rows_of(table, x[:, column].long()) for column, table in enumerate(tables)]
    return torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]


class CategoryEncoder(nn.Module):
    """Sum of one embedding for each categorical column: [rows, columns] int → [rows, width].

    ``name`` is what errors call the input.
    """

    def __init__(self, sizes: tuple[int, ...], width: int, name: str) -> None:
        super().__init__()
        self.sizes, self.name = sizes, name
        self.tables = nn.ModuleList(nn.Embedding(size, width) for size in sizes)
        for weight in self.parameters():
            nn.init.xavier_uniform_(weight)

    def check(self, x: Tensor) -> None:
        """Raise an :class:`InputError` unless ``x`` has a number for each column."""
        if x.dim() != 2 or x.shape[1] != len(self.tables) or x.is_floating_point():
            raise InputError(
                f"{self.name}: expected integers [rows, {len(self.tables)}], got {x.dtype} "
                f"{list(x.shape)}"
            )

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """See :func:`embedded`."""
        self.check(x)
        try:
            return embedded(x, [*self.parameters()], mask)
        except IndexError:
            check_categories(self.name, x, self.sizes)
            raise


class FloatEncoder(nn.Linear):
    """Linear map of float features [rows, channels] → [rows, width]; errors call them ``name``."""

    def __init__(self, channels: int, width: int, name: str, bias: bool = True) -> None:
        super().__init__(channels, width, bias)
        self.name = name

    def forward(self, x: Tensor, draw: Draw | None = None) -> Tensor:
        """``draw`` is a dropout on the features."""
        check_floats(self.name, x, self.in_features)
        x = x.to(self.weight.dtype)
        return super().forward(x if draw is None else draw(x))


class DegreeEncoder(nn.Module):
    """For graphs without features: an embedding of the degree (one-hot), or the degree scaled.

    ``onehot`` clamps the degree at ``largest``; ``normalised`` is a linear map of log(1 + degree).
    """

    def __init__(self, width: int, kind: str = "onehot", largest: int = 511) -> None:
        super().__init__()
        self.kind = choice("degree", kind, DEGREES)
        self.largest = largest
        self.table = nn.Embedding(largest + 1, width) if kind == "onehot" else nn.Linear(1, width)

    def forward(self, batch: Batch) -> Tensor:
        if self.kind == "onehot":
            degree = in_degree(batch.edges, torch.int64).clamp(max=self.largest)
            return embedded(degree[:, None], [self.table.weight], batch.nodes.mask)
        return self.table(in_degree(batch.edges, self.table.weight.dtype).log1p()[:, None])


class FeatureEncoder(nn.Module):
    """Node features of any schema: categories, floats, or none (degrees).

    They fill ``width`` but for ``beside`` channels, which an encoding takes. ``dropout`` zeroes
    single floats, as words of a bag of words.
    """

    def __init__(
        self,
        node: tuple[int, ...] | int,
        width: int,
        degree: str = "onehot",
        bias: bool = True,
        dropout: float = 0.0,
        beside: int = 0,
    ) -> None:
        super().__init__()
        if beside >= width:
            raise ConfigError(
                f"pe_width: {beside} leaves no room for features in width {width}; lower it, or "
                "raise width"
            )
        width -= beside
        if dropout and not isinstance(node, int):
            raise ConfigError(
                f"input_dropout: got {dropout}, but the nodes have no float features; leave it at 0"
            )
        # Without it there is no site: the draws of the others stay as they were.
        self.dropout = Dropout(dropout) if dropout else None
        self.encoder: nn.Module
        if isinstance(node, int):
            self.encoder = FloatEncoder(node, width, "x", bias)
        elif node:
            self.encoder = CategoryEncoder(node, width, "x")
        else:
            self.encoder = DegreeEncoder(width, degree)

    def forward(self, batch: Batch) -> Tensor:
        if isinstance(self.encoder, DegreeEncoder):
            return self.encoder(batch)
        if batch.x is None:
            raise InputError("x: this model was built for graphs with node features")
        if isinstance(self.encoder, CategoryEncoder):
            return self.encoder(batch.x, batch.nodes.mask)
        draw = None if self.dropout is None else self.dropout.draw(batch.nodes, batch.seeds)
        return self.encoder(batch.x, draw)


class EdgeEncoder(nn.Module):
    """Edge features of any schema; one learned vector for all edges where there are none."""

    def __init__(self, edge: tuple[int, ...] | int, width: int, bias: bool = True) -> None:
        super().__init__()
        self.encoder: nn.Module
        if isinstance(edge, int):
            self.encoder = FloatEncoder(edge, width, "edge_attr", bias)
        else:
            self.encoder = CategoryEncoder(edge or (1,), width, "edge_attr")
        self.constant = edge == ()

    def forward(self, batch: Batch) -> Tensor:
        rows = self.rows(batch)
        return rows.expand(batch.edges.num_edges, -1) if self.constant else rows

    def rows(self, batch: Batch) -> Tensor:
        """[edges, width], or [1, width] where one vector is that of all edges."""
        if self.constant:
            (row,) = self.encoder.parameters()
            return row
        if batch.edge_attr is None:
            raise InputError("edge_attr: this model was built for graphs with edge features")
        if isinstance(self.encoder, CategoryEncoder):
            return self.encoder(batch.edge_attr, batch.edges.rows.mask)
        return self.encoder(batch.edge_attr)


class SignFlip(Site):
    """In training, each column of an eigenvector matrix gets a random sign, the same in one graph.

    The sign of an eigenvector is arbitrary; a model should not learn to rely on it.
    """

    def forward(self, vectors: Tensor, rows: Rows, seeds: Tensor | None) -> Tensor:
        if not self.training:
            return vectors
        seed = self.seed(seeds)
        if runs_kernels(vectors) and not vectors.requires_grad:
            from gradformer.model.fused.encoding import fused_flip

            return fused_flip(vectors, rows, seed)
        keys = row_keys(seed, rows.graph_id, 0, torch.zeros_like(rows.index))
        columns = torch.arange(vectors.shape[1], device=vectors.device, dtype=torch.int32)
        return torch.where(keep(keys[:, None], columns, 0.5), vectors, -vectors)


class PositionEncoder(nn.Module):
    """A positional encoding [nodes, steps] through an optional batch norm and a linear map.

    ``flip`` draws the signs of eigenvectors anew in every training step.
    """

    def __init__(
        self, name: str, steps: int, width: int, norm: bool = True, flip: bool = False
    ) -> None:
        super().__init__()
        self.name = name
        self.flip = SignFlip() if flip else None
        self.norm = BatchNorm(steps) if norm else None
        self.linear = nn.Linear(steps, width)

    def raw(self, batch: Batch) -> Tensor:
        """The encoding as it enters the linear map (normalised if asked for)."""
        if self.name not in batch.encodings:
            steps = self.linear.in_features
            transform = {"rwse": "AddRandomWalk", "lap": "AddLaplacian"}.get(self.name)
            remedy = f"give floats [nodes, {steps}] as data.{self.name}"
            if transform is not None:
                remedy = f"add it with the transform {transform}({steps}) of gradformer.structure"
            raise InputError(f"{self.name}: the graphs carry no such encoding; {remedy}")
        value = batch.encodings[self.name].to(self.linear.weight.dtype)
        if value.shape[1] != self.linear.in_features:
            expected = counted(self.linear.in_features, "column")
            raise InputError(f"{self.name}: expected {expected}, got {value.shape[1]}")
        if self.flip is not None:
            value = self.flip(value, batch.nodes, batch.seeds)
        return value if self.norm is None else self.norm(value, batch.nodes)

    def forward(self, raw: Tensor) -> Tensor:
        return linear(raw, self.linear)


def make_position(
    name: str, steps: int, width: int, *, norm: bool = True, flip: bool = True
) -> PositionEncoder | None:
    """The encoder of one of :data:`ENCODINGS`; None for ``none`` or without steps.

    ``flip`` is for eigenvectors: what is not ``lap`` has no signs.
    """
    if choice("pe", name, ENCODINGS) == "none" or not steps:
        return None
    return PositionEncoder(name, steps, width, norm, flip and name == "lap")


def encode_nodes(
    node: FeatureEncoder, position: PositionEncoder | None, batch: Batch, concat: bool = True
) -> tuple[Tensor, Tensor | None]:
    """States that enter the first layer, and the encoding before its linear map.

    Features and encoding stand side by side (``concat``) or are added; padded rows are zero.
    """
    raw = None if position is None else position.raw(batch)
    encoder, x = node.encoder, batch.x
    if isinstance(encoder, CategoryEncoder) and x is not None:
        encoder.check(x)
        tables = [*encoder.parameters()]
        if fits_kernel(tables) and runs_kernels(x):
            from gradformer.model.fused.encoding import embed

            linear_map = None if position is None else position.linear
            return embed(x, tables, batch.nodes.mask, raw, linear_map, concat), raw
    y = node(batch)
    if position is not None and raw is not None:
        encoded = position(raw)
        y = torch.cat([y, encoded], dim=1) if concat else y + encoded
    return batch.nodes.zero_padding(y), raw
