"""From raw features to vectors: categories, floats, degrees, positional encodings."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gradformer.attention.availability import runs_kernels
from gradformer.attention.draws import Site, keep, row_keys
from gradformer.attention.layout import Rows
from gradformer.errors import InputError, choice
from gradformer.graphs.batch import Batch
from gradformer.model.parts import BatchNorm
from gradformer.model.segments import in_degree

# OGB's vocabularies of atoms and bonds, column by column.
ATOM_SIZES = (119, 5, 12, 12, 10, 6, 6, 2, 2)
BOND_SIZES = (5, 6, 2)

DEGREES = ("onehot", "normalised")


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

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != 2 or x.shape[1] != len(self.tables) or x.is_floating_point():
            raise InputError(
                f"{self.name}: expected integers [rows, {len(self.tables)}], got {x.dtype} "
                f"{list(x.shape)}"
            )
        if runs_kernels(x):  # the gradient of a lookup sorts its rows; that of a product does not
            return self._one_hot(x) @ torch.cat([*self.parameters()])
        try:
            parts = [table(x[:, column].long()) for column, table in enumerate(self.tables)]
        except IndexError:
            bad = (x < 0) | (x >= x.new_tensor(self.sizes))
            row, column = bad.nonzero()[0].tolist()
            raise InputError(
                f"{self.name}: category {int(x[row, column])} in row {row}, column {column}, "
                f"expected 0 to {self.sizes[column] - 1}"
            ) from None
        return torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]

    def _one_hot(self, x: Tensor) -> Tensor:
        """[rows, Σ sizes] with a 1 for each column's category."""
        weights = [*self.parameters()]
        parts = [
            x[:, column, None] == torch.arange(len(weight), device=x.device)
            for column, weight in enumerate(weights)
        ]
        return torch.cat(parts, dim=1).to(weights[0].dtype)


class FloatEncoder(nn.Linear):
    """Linear map of float features [rows, channels] → [rows, width]; errors call them ``name``."""

    def __init__(self, channels: int, width: int, name: str, bias: bool = True) -> None:
        super().__init__(channels, width, bias)
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != 2 or x.shape[1] != self.in_features:
            raise InputError(
                f"{self.name}: expected [rows, {self.in_features}], got {list(x.shape)}"
            )
        return super().forward(x.to(self.weight.dtype))


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
            y: Tensor = self.table(in_degree(batch.edges, torch.int64).clamp(max=self.largest))
            return y
        z: Tensor = self.table(in_degree(batch.edges, self.table.weight.dtype).log1p()[:, None])
        return z


class FeatureEncoder(nn.Module):
    """Node features of any schema: categories, floats, or none (degrees)."""

    def __init__(
        self, node: tuple[int, ...] | int, width: int, degree: str = "onehot", bias: bool = True
    ) -> None:
        super().__init__()
        self.encoder: nn.Module
        if isinstance(node, int):
            self.encoder = FloatEncoder(node, width, "x", bias)
        elif node:
            self.encoder = CategoryEncoder(node, width, "x")
        else:
            self.encoder = DegreeEncoder(width, degree)

    def forward(self, batch: Batch) -> Tensor:
        if isinstance(self.encoder, DegreeEncoder):
            y: Tensor = self.encoder(batch)
            return y
        if batch.x is None:
            raise InputError("x: this model was built for graphs with node features")
        z: Tensor = self.encoder(batch.x)
        return z


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
        if self.constant:
            (row,) = self.encoder.parameters()  # [1, width]
            return row.expand(batch.edges.num_edges, -1)
        if batch.edge_attr is None:
            raise InputError("edge_attr: this model was built for graphs with edge features")
        y: Tensor = self.encoder(batch.edge_attr)
        return y


class SignFlip(Site):
    """In training, each column of an eigenvector matrix gets a random sign, the same in one graph.

    The sign of an eigenvector is arbitrary; a model should not learn to rely on it.
    """

    def forward(self, vectors: Tensor, rows: Rows, seeds: Tensor | None) -> Tensor:
        if not self.training:
            return vectors
        assert seeds is not None
        keys = row_keys(seeds[self.site], rows.graph_id, 0, torch.zeros_like(rows.index))
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
            raise InputError(
                f"{self.name}: the graphs carry no such encoding; add it with a transform"
            )
        value = batch.encodings[self.name].to(self.linear.weight.dtype)
        if value.shape[1] != self.linear.in_features:
            raise InputError(
                f"{self.name}: expected {self.linear.in_features} columns, got {value.shape[1]}"
            )
        if self.flip is not None:
            value = self.flip(value, batch.nodes, batch.seeds)
        return value if self.norm is None else self.norm(value, batch.nodes)

    def forward(self, raw: Tensor) -> Tensor:
        y: Tensor = self.linear(raw)
        return y
