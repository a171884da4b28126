r"""Random draws without a generator: a 32-bit hash of what is drawn for.

All randomness inside a training step (attention dropout, other dropout, stochastic depth, sign
flips) is a pure function of (trial seed, step, site, graph, head, row, column). So a draw depends
neither on the engine that makes it, nor on the batch a graph is in, nor on the number of processes.

.. math::
    k &= m(m(m(\text{trial}) + \text{step}) + \text{site}), \qquad
    r = m(m(k + \text{graph}) + 2^{24}\,\text{head} + \text{row}), \\
    u &= m'(r + \text{0x9E3779B9}\cdot\text{column}), \qquad
    \text{keep} \iff u \ge p\,2^{32} - 2^{31},

in 32-bit arithmetic that wraps, u read as a signed integer. m is the "lowbias32" mixer (two
multiplications, three xor-shifts), m' the same without its last shift, which leaves the leading
bits as they are.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gradformer.attention.layout import Rows
from gradformer.errors import ConfigError

FIRST = 0x7FEB352D
SECOND = 0x846CA68B - (1 << 32)
STRIDE = 0x9E3779B9 - (1 << 32)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of int32."""
    return (x >> bits).bitwise_and_((1 << (32 - bits)) - 1)


def _leading(x: Tensor) -> Tensor:
    """m': a mixer whose leading bits are good."""
    x = _shift(x, 16).bitwise_xor_(x).mul_(FIRST)
    return _shift(x, 15).bitwise_xor_(x).mul_(SECOND)


def mix(x: Tensor) -> Tensor:
    """m: a bijection of 32-bit integers; an input bit flips each output bit half the time."""
    x = _leading(x)
    return _shift(x, 16).bitwise_xor_(x)


def site_key(seed: Tensor) -> Tensor:
    """k, 0-d int32, of a seed (trial seed, step, site) [3]."""
    trial, step, site = seed.to(torch.int32).unbind()
    return mix(mix(mix(trial) + step) + site)


def row_keys(seed: Tensor, graph_id: Tensor, head: Tensor | int, row: Tensor) -> Tensor:
    """r for graphs, heads and rows that broadcast together, int32."""
    return mix(mix(site_key(seed) + graph_id.int()) + (head << 24) + row.int())


def share(p: float) -> float:
    """``p`` if it can be the share that dropout zeroes."""
    if not 0.0 <= p < 1.0:
        raise ConfigError(f"dropout: got {p}, expected a share in [0, 1)")
    return p


def threshold(p: float) -> int:
    """The least u (signed) that is kept when a share ``p`` is dropped."""
    return min(round(share(p) * (1 << 32)), (1 << 32) - 1) - (1 << 31)


def keep(row_key: Tensor, column: Tensor, p: float) -> Tensor:
    """True with probability 1 − p for every (row key, column); the two broadcast."""
    return _leading(row_key + column.int() * STRIDE) >= threshold(p)


def drop(x: Tensor, p: float, rows: Rows, seed: Tensor) -> Tensor:
    """``x`` [rows, channels] with entries zeroed with probability p, others times 1/(1 − p)."""
    keys = row_keys(seed, rows.graph_id, 0, rows.index)
    columns = torch.arange(x.shape[1], device=x.device, dtype=torch.int32)
    return x * keep(keys[:, None], columns, p) / (1.0 - p)


def drop_rows(x: Tensor, p: float, rows: Rows, seed: Tensor) -> Tensor:
    """Stochastic depth: all rows of a graph are zeroed together with probability p."""
    keys = row_keys(seed, rows.graph_id, 0, torch.zeros_like(rows.index))
    return x * keep(keys, torch.zeros_like(keys), p)[:, None] / (1.0 - p)


class Site(nn.Module):
    """A place in a model where something is drawn; :func:`number_sites` gives it its number."""

    site: int = 0

    def seed(self, seeds: Tensor | None) -> Tensor:
        """Its own seed (trial seed, step, site) [3] among those of the model, [sites, 3]."""
        if seeds is None:
            raise ConfigError(
                f"{type(self).__name__}: is in training, and the model around it is not, which "
                "draws for it; put all into training, and what shall not be, as norms, into eval "
                "again"
            )
        return seeds[self.site]


class DrawsAlone(nn.Module):
    """A part of a model that seeds its own sites, whoever holds it."""


def number_sites(model: nn.Module) -> int:
    """Number all sites that ``model`` seeds, in reading order; returns how many there are."""
    alone = [part for part in model.modules() if isinstance(part, DrawsAlone) and part is not model]
    theirs = {module for part in alone for module in part.modules()}
    mine = (module for module in model.modules() if module not in theirs)
    sites = [module for module in mine if isinstance(module, Site)]
    for number, module in enumerate(sites):
        module.site = number
    return len(sites)


def site_seeds(seed: Tensor, sites: int) -> Tensor:
    """Seeds (trial seed, step, site) of all sites, [sites, 3], from (trial seed, step) [2]."""
    numbers = torch.arange(sites, device=seed.device, dtype=seed.dtype)
    return torch.cat([seed.expand(sites, 2), numbers[:, None]], dim=1)
