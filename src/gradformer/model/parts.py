"""Norms, dropout and stochastic depth that know which rows are real and how draws are keyed."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn

from gradformer.attention.draws import Site, drop, drop_rows
from gradformer.attention.layout import Rows
from gradformer.errors import ConfigError


class BatchNorm(nn.BatchNorm1d):
    """Batch norm over the real rows of a packed tensor [rows, c]; padded rows come out as zero.

    A training batch of a single row has no variance: it is normalised by the running statistics.
    """

    def forward(self, x: Tensor, rows: Rows) -> Tensor:  # type: ignore[override]
        if rows.mask is not None and self.training:
            return self._masked(x, rows.mask[:, None])
        batch_statistics = self.training and x.shape[0] > 1
        y = torch.batch_norm(
            x,
            self.weight,
            self.bias,
            self.running_mean,
            self.running_var,
            batch_statistics,
            self.momentum or 0.0,
            self.eps,
            torch.backends.cudnn.enabled,
        )
        return rows.zero_padding(y)

    def _masked(self, x: Tensor, mask: Tensor) -> Tensor:
        count = mask.sum().clamp(min=1).to(x.dtype)
        mean = torch.where(mask, x, 0.0).sum(0) / count
        centred = torch.where(mask, x - mean, 0.0)
        variance = centred.square().sum(0) / count
        assert self.running_mean is not None
        assert self.running_var is not None
        with torch.no_grad():
            unbiased = variance * count / (count - 1).clamp(min=1)
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum or 0.0)
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum or 0.0)
        y = centred * (variance + self.eps).rsqrt() * self.weight + self.bias
        return torch.where(mask, y, 0.0)


class Dropout(Site):
    """Dropout on [rows, c], drawn by the hash of :mod:`gradformer.attention.draws`."""

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        if not 0.0 <= p < 1.0:
            raise ConfigError(f"dropout: got {p}, expected a share in [0, 1)")
        self.p = p

    def forward(self, x: Tensor, rows: Rows, seeds: Tensor | None) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        assert seeds is not None
        return drop(x, self.p, rows, seeds[self.site])

    def extra_repr(self) -> str:
        return f"p={self.p}"


class DropPath(Dropout):
    """Stochastic depth: the branch is left out for whole graphs at a time."""

    def forward(self, x: Tensor, rows: Rows, seeds: Tensor | None) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        assert seeds is not None
        return drop_rows(x, self.p, rows, seeds[self.site])


class MLP(nn.Module):
    """Linear layers of the given widths with ReLU between them: widths [d0, d1, …, dn]."""

    def __init__(self, *widths: int, bias: bool = True) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Linear(a, b, bias=bias) for a, b in zip(widths[:-1], widths[1:])
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = layer(x).relu()
        y: Tensor = self.layers[-1](x)
        return y


def make_config(kind: type[Any], config: Any | None, options: dict[str, Any]) -> Any:
    """A config of class ``kind`` from a ready one or from keyword options; unknown names are errors."""
    from gradformer.errors import suggest

    names = {field.name for field in fields(kind)}
    for name in options:
        if name not in names:
            raise ConfigError(f"{name}: unknown model option; {suggest(name, names)}")
    if config is None:
        return kind(**options)
    from dataclasses import replace

    return replace(config, **options)
