"""The hash behind all random draws: fair, independent, the same in torch and in Triton.

Seeds are fixed, so the statistics are too; the margins are wide enough that a good hash passes with
any seed (five standard deviations), and narrow enough that a weak mixer fails.
"""

from __future__ import annotations

import math

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from gradformer.attention import Layout, decay_attention
from gradformer.attention.draws import (
    drop,
    drop_rows,
    keep,
    mix,
    number_sites,
    row_keys,
    site_seeds,
    threshold,
)
from gradformer.attention.kernels.draws import is_kept, keys_of_rows
from gradformer.attention.layout import Rows
from gradformer.errors import ConfigError
from gradformer.model.parts import Dropout

SEED = torch.tensor([11, 4, 2])


def draws(
    seed: Tensor = SEED, graph: int = 5, head: int = 0, rows: int = 256, columns: int = 256,
    p: float = 0.5,
) -> Tensor:  # fmt: skip
    """What is kept of one graph and head, [rows, columns] float."""
    row = torch.arange(rows, dtype=torch.int32)
    column = torch.arange(columns, dtype=torch.int32)
    keys = row_keys(seed, torch.tensor(graph), head, row)
    return keep(keys[:, None], column, p).double()


def assert_independent(a: Tensor, b: Tensor) -> None:
    """Correlation of two fair 0/1 samples within five standard deviations of 0."""
    n = a.numel()
    agreement = (a == b).double().mean()
    assert abs(agreement - 0.5) < 5 * 0.5 / math.sqrt(n), f"agreement {agreement:.4f} of {n}"


@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.9])
def test_the_share_that_is_kept(p: float) -> None:
    kept = draws(rows=512, columns=512, p=p)
    deviation = math.sqrt(p * (1 - p) / kept.numel())
    assert abs(kept.mean() - (1 - p)) < 5 * deviation
    # The spread of the sums over rows and over columns is binomial as well.
    for axis in (0, 1):
        variance = kept.sum(axis).var()
        expected = 512 * p * (1 - p)
        assert abs(variance / expected - 1) < 5 * math.sqrt(2 / 511) + 0.2 * (p == 0.001)


def test_every_seed_part_changes_the_draw_independently() -> None:
    base = draws()
    for other in (
        draws(seed=SEED + torch.tensor([1, 0, 0])),
        draws(seed=SEED + torch.tensor([0, 1, 0])),
        draws(seed=SEED + torch.tensor([0, 0, 1])),
        draws(seed=SEED + torch.tensor([1, -1, 0])),
        draws(graph=6),
        draws(head=1),
        draws(head=1, graph=4),
    ):
        assert_independent(base, other)


@pytest.mark.parametrize("apart", [1, 2, 3, 8, 64])
def test_neighbouring_rows_and_columns_are_independent(apart: int) -> None:
    kept = draws(rows=512, columns=512)
    assert_independent(kept[apart:], kept[:-apart])
    assert_independent(kept[:, apart:], kept[:, :-apart])
    assert_independent(kept[apart:, apart:], kept[:-apart, :-apart])
    assert_independent(kept[apart:, :-apart], kept[:-apart, apart:])


def test_a_pair_and_its_mirror_are_independent() -> None:
    kept = draws(rows=512, columns=512)
    upper = torch.triu_indices(512, 512, 1)
    assert_independent(kept[upper[0], upper[1]], kept[upper[1], upper[0]])


def test_steps_of_one_pair_are_independent() -> None:
    """The draws of one (row, column) over 4096 steps of three sites."""
    step = torch.arange(4096, dtype=torch.int32)
    for site in range(3):
        seeds = torch.stack([torch.full_like(step, 7), step, torch.full_like(step, site)])
        keys = row_keys(seeds, torch.tensor(9), 1, torch.tensor(3))
        kept = keep(keys, torch.tensor(8), 0.5)
        assert abs(kept.double().mean() - 0.5) < 5 * 0.5 / 64
        assert_independent(kept[1:], kept[:-1])


def test_triples_of_columns_are_uniform() -> None:
    """Chi-square over the eight patterns of three neighbouring columns (7 degrees of freedom)."""
    kept = draws(rows=512, columns=510).long()
    pattern = kept[:, 0::3] * 4 + kept[:, 1::3] * 2 + kept[:, 2::3]
    counts = torch.bincount(pattern.flatten(), minlength=8).double()
    expected = pattern.numel() / 8
    assert ((counts - expected).square() / expected).sum() < 35.0


def test_the_bytes_of_the_mixer_are_uniform() -> None:
    """Chi-square of each byte of m over consecutive inputs (255 degrees of freedom)."""
    mixed = mix(torch.arange(1 << 18, dtype=torch.int32))
    for shift in (0, 8, 16, 24):
        counts = torch.bincount(((mixed >> shift) & 255).long(), minlength=256).double()
        expected = len(mixed) / 256
        assert ((counts - expected).square() / expected).sum() < 255 + 5 * math.sqrt(2 * 255)


def test_every_input_bit_flips_every_output_bit_half_the_time() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-(2**31), 2**31, (20000,), generator=generator).int()
    bits = torch.arange(32, dtype=torch.int32)
    for bit in bits:
        changed = mix(x) ^ mix(x ^ (torch.tensor(1, dtype=torch.int32) << bit))
        share = ((changed[:, None] >> bits) & 1).double().mean(0)
        assert (share - 0.5).abs().max() < 0.03


def test_the_mixer_is_a_bijection_where_we_look() -> None:
    x = torch.arange(-(1 << 18), 1 << 18, dtype=torch.int32)
    assert mix(x).unique().numel() == x.numel()


@triton.jit
def _draw_kernel(out, seed, graph, head, limit, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Which of [ROWS, COLUMNS] is kept."""
    rows = tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    keys = keys_of_rows(seed, tl.load(graph), tl.load(head), rows)
    kept = is_kept(keys[:, None], columns[None, :], limit)
    tl.store(out + rows[:, None] * COLUMNS + columns[None, :], kept.to(tl.int8))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_triton_draws_the_same_pairs(device: str, dtype: torch.dtype) -> None:
    for case in range(4):
        seed = torch.tensor([2**31 - 1 - case, 17 * case, case], dtype=dtype)
        graph, head = torch.tensor([10**6 * case - 1]).int(), torch.tensor([3 * case]).int()
        p = (0.0, 0.25, 0.5, 0.999)[case]
        out = torch.empty(64, 128, dtype=torch.int8, device=device)
        _draw_kernel[(1,)](
            out, seed.to(device), graph.to(device), head.to(device), threshold(p), 64, 128
        )
        keys = row_keys(seed, graph, head, torch.arange(64))
        expected = keep(keys[:, None], torch.arange(128), p)
        assert torch.equal(out.cpu().bool(), expected)


def test_a_draw_does_not_depend_on_the_batch() -> None:
    """One graph alone, and the same graph among others at another place: the same bits."""
    ids = torch.tensor([40, 7, 12])
    sizes = [3, 5, 4]
    together = Layout.from_sizes(sizes, graph_id=ids)
    alone = Layout.from_sizes(sizes[1:2], graph_id=ids[1:2])
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 12, 2, 4)
    distance = torch.zeros(9 + 25 + 16, dtype=torch.uint8)
    options = {"dropout": 0.5, "seed": SEED}
    whole = decay_attention(q, k, v, together, distance, None, None, **options)
    part = decay_attention(q[3:8], k[3:8], v[3:8], alone, distance[9:34], None, None, **options)
    assert torch.equal(whole[3:8], part)
    x = torch.randn(12, 6)
    assert torch.equal(drop(x, 0.5, together.rows, SEED)[3:8], drop(x[3:8], 0.5, alone.rows, SEED))


def test_dropout_scales_what_it_keeps() -> None:
    rows = Layout.from_sizes([50, 70]).rows
    x = torch.ones(120, 32)
    y = drop(x, 0.5, rows, SEED)
    assert set(y.unique().tolist()) == {0.0, 2.0}


def test_stochastic_depth_takes_whole_graphs() -> None:
    sizes = [3, 1, 4] * 200
    layout = Layout.from_sizes(sizes)
    y = drop_rows(torch.ones(layout.capacity, 2), 0.5, layout.rows, SEED)
    graphs = [part.unique().tolist() for part in y.split(sizes)]
    assert all(len(graph) == 1 for graph in graphs)
    kept = sum(graph == [2.0] for graph in graphs)
    assert abs(kept - 300) < 5 * math.sqrt(600 / 4)


def test_sites_are_numbered_in_reading_order() -> None:
    model = torch.nn.Sequential(Dropout(0.1), torch.nn.Linear(2, 2), Dropout(0.2))
    assert number_sites(model) == 2
    assert [m.site for m in model if isinstance(m, Dropout)] == [0, 1]
    seeds = site_seeds(torch.tensor([8, 3]), 2)
    assert seeds.tolist() == [[8, 3, 0], [8, 3, 1]]
    rows = Rows(torch.zeros(64).int(), torch.arange(64).int())
    first = model[0](torch.ones(64, 8), rows, seeds)
    assert torch.equal(first, drop(torch.ones(64, 8), 0.1, rows, seeds[0]))
    assert torch.equal(model[0].eval()(first, rows, None), first)


@pytest.mark.parametrize("p", [-0.1, 1.0, math.nan])
def test_impossible_shares_are_named(p: float) -> None:
    with pytest.raises(ConfigError, match=r"^dropout: "):
        threshold(p)
    with pytest.raises(ConfigError, match=r"^dropout: "):
        Dropout(p)
