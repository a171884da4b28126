r"""The attention of one graph and head after the other, as loops for a CPU's vector units.

Nothing of the size of a matrix of pairs is kept: a tile of scores, eight queries by all keys, is
made, used, and overwritten by the next; the backward pass makes it again from each row's largest
entry and its sum (of both in one number, log-sum-exp, a large entry would leave no digits for the
sum). Products are those of :mod:`.products`. A task is a pair (graph, head), numbered
``graph · heads + head``; tasks write to places of their own, so any number of threads gives the
same bits. Arrays of channels and tiles are flat, and places in them are passed beside them, as a
view of a row would cost more than the work on one of a small graph. Indices are unsigned: a signed
one may count from the end, and of loops that ask for it at every entry compilers make no vectors.

Shapes: qkv [nodes · 3 · heads · d], d a multiple of :data:`LANES`; mul, add [heads, 256], or
[0, 256] where absent; bias [pairs, heads] or [0, heads]; seed of dropout [3] or [0], graph_id and
row, which key it, [nodes]; out [nodes · heads · d]; softmax [nodes, heads, 2], a row's largest
score m and 1 / Σ_j exp(score_j − m), or 0 if all are −∞.
"""

# The kernels' arguments are untyped.
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import math

import numpy as np

from gradformer.attention.draws import FIRST, SECOND, STRIDE
from gradformer.attention.loops.lanes import LANES
from gradformer.attention.loops.products import ROWS, add_weighted, weighted_sums, with_columns
from gradformer.structure.parallel import inlined, vectorised

_FIRST, _SECOND, _STRIDE = (np.uint32(x % (1 << 32)) for x in (FIRST, SECOND, STRIDE))
_LOG2E, _LN2_HIGH, _LN2_LOW = (
    np.float32(1.44269504),
    np.float32(0.693359375),
    np.float32(-2.12194440e-4),
)
_LEAST = np.float32(-87.0)  # exp of less is zero
_E2, _E3, _E4, _E5, _E6, _E7 = (np.float32(1.0 / math.factorial(n)) for n in range(2, 8))
# Of a number that is written in a loop an index would become signed.
_0, _1, _2, _3 = (np.uintp(n) for n in range(4))
_HALF, _ONE, _ZERO, _NEVER = (np.float32(x) for x in (0.5, 1.0, 0.0, -np.inf))


@inlined
def exp(x):
    """e^x of a float32 x ≤ 0: 2^n by its bits, times the series of what is left of x."""
    n = np.floor(x * _LOG2E + _HALF)
    r = x - n * _LN2_HIGH - n * _LN2_LOW
    series = _E7
    for c in (_E6, _E5, _E4, _E3, _E2, _ONE, _ONE):
        series = series * r + c
    power = np.int32((np.int32(max(n, np.float32(-126.0))) + np.int32(127)) << np.int32(23)).view(
        np.float32
    )
    return _ZERO if x < _LEAST else series * power


@inlined
def index(x):
    """A number as an index that counts from the beginning."""
    return np.uintp(x)


@inlined
def leading(x):
    """:func:`gradformer.attention.draws._leading` of the lower 32 bits."""
    x = np.uint32(x)  # a sum of two uint32 has 64
    x = np.uint32((x ^ (x >> np.uint32(16))) * _FIRST)
    return np.uint32((x ^ (x >> np.uint32(15))) * _SECOND)


@inlined
def mix(x):
    """:func:`gradformer.attention.draws.mix` of the lower 32 bits."""
    x = leading(x)
    return np.uint32(x ^ (x >> np.uint32(16)))


@inlined
def _padded(size):
    return (size + LANES - _1) // LANES * LANES


@inlined
def _widest(first_task, last_task, node_ptr, heads):
    """Columns of the largest tile of some tasks."""
    most = _0
    for graph in range(first_task // heads, (last_task + heads - _1) // heads):
        most = max(most, index(node_ptr[graph + _1]) - index(node_ptr[graph]))
    return _padded(most)


@inlined
def _by_channel(out, x, first, step, n, d, width, scale):
    """out[c, i] = scale · x_{i, c}, zeros up to the width."""
    for i in range(n):
        for c in range(d):
            out[c * width + i] = x[first + i * step + c] * scale
    for c in range(d):
        for i in range(n, width):
            out[c * width + i] = _ZERO


@inlined
def _end(logit, n, width):
    """No weight for what is behind the last key of each row of a tile."""
    for r in range(ROWS):
        for j in range(n, width):
            logit[r * width + j] = _NEVER


@inlined
def _decay(logit, factor, score, at, distance, pair, mul, add, bias, packed, head, n):
    """logit = score · factor + add[byte] + bias, with factor = mul[byte], for a row of tiles."""
    if len(mul):
        for j in range(n):
            factor[at + j] = mul[head, distance[pair + j]]
    for j in range(n):
        logit[at + j] = score[at + j] * factor[at + j]
    if len(add):
        for j in range(n):
            logit[at + j] += add[head, distance[pair + j]]
    if len(bias):
        for j in range(n):
            logit[at + j] += bias[packed + j, head]


@inlined
def _ordered(bits):
    """The bits of a float as an integer that is as large among such as it is among floats."""
    return np.int32(bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF)))


@inlined
def _top(tile, at, width):
    """The largest entry of a row, 0 if all are −∞."""
    top = np.int32(-(1 << 31))
    for j in range(width):
        top = max(top, _ordered(np.float32(tile[at + j]).view(np.int32)))
    found = np.int32(_ordered(top)).view(np.float32)
    return _ZERO if found == _NEVER else found


@inlined
def _site(seed):
    """:func:`gradformer.attention.draws.site_key`, or any number without a seed."""
    if len(seed) == 0:
        return np.uint32(0)
    return mix(mix(mix(np.uint32(seed[_0])) + np.uint32(seed[_1])) + np.uint32(seed[_2]))


@inlined
def _drop(tile, at, width, site, graph_id, head, row, least, scale):
    """Dropout of a row of weights: :func:`gradformer.attention.draws.keep`."""
    key = mix(mix(site + np.uint32(graph_id)) + (np.uint32(head) << np.uint32(24)) + np.uint32(row))
    for j in range(width):
        u = np.int32(leading(key + np.uint32(j) * _STRIDE))
        tile[at + j] = tile[at + j] * scale if u >= least else _ZERO


@inlined
def _hand_over(out, graph, head, sums, s):
    """out[graph, head] = the four tables sums[s], added, which are zero then."""
    for b in range(index(sums.shape[2])):
        near, far = sums[s, _0, b] + sums[s, _1, b], sums[s, _2, b] + sums[s, _3, b]
        out[graph, head, b] = near + far
    for r in range(_0, index(sums.shape[1])):
        for b in range(index(sums.shape[2])):
            sums[s, r, b] = _ZERO


@vectorised
def forward_kernel(
    first_task, last_task, qkv, d, node_ptr, pair_ptr, packed_ptr, distance, mul, add, bias, seed,
    graph_id, row, scale, least, keep_scale, softmax, out,
):  # fmt: skip
    d, heads, site = index(d), index(softmax.shape[1]), _site(seed)
    widest = _widest(index(first_task), index(last_task), node_ptr, heads)
    key, shares = np.empty(d * widest, np.float32), np.zeros(ROWS, np.float32)
    score, logit = np.empty(ROWS * widest, np.float32), np.empty(ROWS * widest, np.float32)
    factor, weight = np.ones(ROWS * widest, np.float32), np.zeros(ROWS * widest, np.float32)
    step, out_step = _3 * heads * d, heads * d
    for task in range(index(first_task), index(last_task)):
        graph, head = task // heads, task % heads
        first = index(node_ptr[graph])
        n = index(node_ptr[graph + _1]) - first
        width, last = _padded(n), n - _1
        queries, results = first * step + head * d, first * out_step + head * d
        values = queries + _2 * heads * d
        _by_channel(key, qkv, queries + heads * d, step, n, d, width, scale)
        _end(logit, n, width)
        pair, packed = index(pair_ptr[graph]), index(packed_ptr[graph])
        for i in range(_0, n, ROWS):
            count = min(n - i, ROWS)
            with_columns(score, qkv, queries, step, i, last, key, d, width)
            for r in range(count):
                at = r * width
                _decay(logit, factor, score, at, distance, pair, mul, add, bias, packed, head, n)
                top = _top(logit, at, width)
                softmax[first + i + r, head, _0] = top
                for j in range(at, at + width):
                    weight[j] = logit[j] - top
                pair += n
                packed += n
            for j in range(count * width):
                weight[j] = exp(weight[j])
            for r in range(count):
                at, node, total = r * width, first + i + r, _ZERO
                for j in range(at, at + width):
                    total += weight[j]
                shares[r] = _ONE / total if total != _ZERO else _ZERO
                softmax[node, head, _1] = shares[r]
                if len(seed):
                    whose = graph_id[node], head, row[node]
                    _drop(weight, at, width, site, *whose, least, keep_scale)
            where = results, out_step, i, last
            weighted_sums(out, *where, shares, weight, qkv, values, step, d, width)


@vectorised
def backward_kernel(
    first_task, last_task, qkv, d, node_ptr, pair_ptr, packed_ptr, distance, mul, add, bias, seed,
    graph_id, row, scale, least, keep_scale, softmax, grad, dqkv, dmul, dadd, dbias,
):  # fmt: skip
    """dqkv as qkv, zero before; dmul, dadd [graphs, heads, 256] and dbias as bias, or no rows."""
    d, heads, site = index(d), index(softmax.shape[1]), _site(seed)
    widest = _widest(index(first_task), index(last_task), node_ptr, heads)
    key, value = np.empty(d * widest, np.float32), np.empty(d * widest, np.float32)
    score, logit = np.empty(ROWS * widest, np.float32), np.empty(ROWS * widest, np.float32)
    factor, weight = np.ones(ROWS * widest, np.float32), np.empty(ROWS * widest, np.float32)
    dweight, dlogit = np.empty(ROWS * widest, np.float32), np.empty(ROWS * widest, np.float32)
    sums = np.zeros((2, 4, 256), np.float32)  # four of each: no addition waits for the last
    ones = np.ones(ROWS, np.float32)
    step, grad_step = _3 * heads * d, heads * d
    for task in range(index(first_task), index(last_task)):
        graph, head = task // heads, task % heads
        first = index(node_ptr[graph])
        n = index(node_ptr[graph + _1]) - first
        width, last = _padded(n), n - _1
        queries, grads = first * step + head * d, first * grad_step + head * d
        keys, values = queries + heads * d, queries + _2 * heads * d
        _by_channel(key, qkv, keys, step, n, d, width, scale)
        _by_channel(value, qkv, values, step, n, d, width, _ONE)
        _end(logit, n, width)
        pair, packed = index(pair_ptr[graph]), index(packed_ptr[graph])
        for i in range(_0, n, ROWS):
            count = min(n - i, ROWS)
            with_columns(score, qkv, queries, step, i, last, key, d, width)
            with_columns(dweight, grad, grads, grad_step, i, last, value, d, width)
            for r in range(count):
                at, on, beside = r * width, pair + r * n, packed + r * n
                _decay(logit, factor, score, at, distance, on, mul, add, bias, beside, head, n)
                top = softmax[first + i + r, head, _0]
                for j in range(at, at + width):
                    weight[j] = logit[j] - top
            for j in range(count * width):
                weight[j] = exp(weight[j])
            for r in range(count):
                at, node, mean = r * width, first + i + r, _ZERO
                share = softmax[node, head, _1]
                for j in range(at, at + width):
                    weight[j] *= share
                    dlogit[j] = weight[j]
                if len(seed):
                    whose = graph_id[node], head, row[node]
                    _drop(weight, at, width, site, *whose, least, keep_scale)
                for j in range(at, at + width):
                    mean += weight[j] * dweight[j]
                for j in range(at, at + width):
                    dlogit[j] = weight[j] * dweight[j] - dlogit[j] * mean
                if len(dbias):
                    for j in range(n):
                        dbias[packed + j, head] = dlogit[at + j]
                if len(dadd):
                    for j in range(n):
                        sums[_1, j & _3, distance[pair + j]] += dlogit[at + j]
                if len(dmul):
                    for j in range(n):
                        sums[_0, j & _3, distance[pair + j]] += dlogit[at + j] * score[at + j]
                pair += n
                packed += n
            for j in range(count * width):
                dlogit[j] *= factor[j] * scale
            for j in range(count * width, ROWS * width):  # of the rows before
                dlogit[j] = weight[j] = _ZERO
            where = queries, step, i, last
            weighted_sums(dqkv, *where, ones, dlogit, qkv, keys, step, d, width)
            add_weighted(dqkv, keys, step, dlogit, qkv, *where, d, width)
            where = grads, grad_step, i, last
            add_weighted(dqkv, values, step, weight, grad, *where, d, width)
        if len(dmul):
            _hand_over(dmul, graph, head, sums, _0)
        if len(dadd):
            _hand_over(dadd, graph, head, sums, _1)
