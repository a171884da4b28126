r"""The attention of one graph and head after the other, as loops for a CPU's vector units.

Nothing of the size of a matrix of pairs is kept: a row of scores is made, used, and overwritten by
the next; the backward pass makes it again from its largest entry and its sum (of both in one
number, log-sum-exp, a large entry would leave no digits for the sum). Keys and values lie channel
by channel, so that every inner loop runs along the nodes, padded to a multiple of :data:`LANES`. A
task is a pair (graph, head), numbered ``graph · heads + head``; tasks write to places of their own,
so any number of threads gives the same bits. Indices of rows are passed beside arrays, as a view of
a row would cost more than the work on one of a small graph.

Shapes: qkv [nodes, 3 · heads, d]; mul, add [heads, 256], or [0, 256] where absent; bias
[pairs, heads] or [0, heads]; keys of dropout [nodes, heads] int32 or [0, heads]; out
[nodes, heads, d]; softmax [nodes, heads, 2], a row's largest score m and 1 / Σ_j exp(score_j − m),
or 0 if all are −∞.
"""

# The kernels' arguments are untyped.
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import math

import numpy as np

from gradformer.attention.draws import FIRST, SECOND, STRIDE
from gradformer.structure.parallel import inlined, vectorised

LANES = 16
ROWS = 16  # queries whose gradients are added to those of the keys at once

_FIRST, _SECOND, _STRIDE = (np.uint32(x % (1 << 32)) for x in (FIRST, SECOND, STRIDE))
_LOG2E, _LN2_HIGH, _LN2_LOW = (
    np.float32(1.44269504),
    np.float32(0.693359375),
    np.float32(-2.12194440e-4),
)
_LEAST = np.float32(-87.0)  # exp of less is zero
_E2, _E3, _E4, _E5, _E6, _E7 = (np.float32(1.0 / math.factorial(n)) for n in range(2, 8))
_HALF, _ONE, _ZERO = np.float32(0.5), np.float32(1.0), np.float32(0.0)


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


@vectorised
def _combine(out, o, factors, f, rows):
    """out[o, j] += Σ_c factors[f, c] · rows[c, j]; four rows at a time."""
    count, width = rows.shape
    whole = count - count % 4
    for c in range(0, whole, 4):
        f0, f1, f2, f3 = factors[f, c], factors[f, c + 1], factors[f, c + 2], factors[f, c + 3]
        for j in range(width):
            near = f0 * rows[c, j] + f1 * rows[c + 1, j]
            out[o, j] += near + (f2 * rows[c + 2, j] + f3 * rows[c + 3, j])
    for c in range(whole, count):
        for j in range(width):
            out[o, j] += factors[f, c] * rows[c, j]


@vectorised
def _dots(out, o, row, r, rows):
    """out[o, c] = Σ_j row[r, j] · rows[c, j]; four sums at a time."""
    count, width = rows.shape
    whole = count - count % 4
    for c in range(0, whole, 4):
        s0 = s1 = s2 = s3 = _ZERO
        for j in range(width):
            s0 += row[r, j] * rows[c, j]
            s1 += row[r, j] * rows[c + 1, j]
            s2 += row[r, j] * rows[c + 2, j]
            s3 += row[r, j] * rows[c + 3, j]
        out[o, c], out[o, c + 1], out[o, c + 2], out[o, c + 3] = s0, s1, s2, s3
    for c in range(whole, count):
        s0 = _ZERO
        for j in range(width):
            s0 += row[r, j] * rows[c, j]
        out[o, c] = s0


@vectorised
def _by_channel(x, first, last, head):
    """x[first:last, head] as [d, nodes], zeros up to a multiple of the lanes."""
    n, d = last - first, x.shape[2]
    out = np.zeros((d, -(-n // LANES) * LANES), np.float32)
    for i in range(n):
        for c in range(d):
            out[c, i] = x[first + i, head, c]
    return out


@vectorised
def _begin(task, qkv, node_ptr):
    """Graph, head, first node and number of nodes of a task, with its keys and values."""
    heads = qkv.shape[1] // 3
    graph, head = task // heads, task % heads
    first, last = node_ptr[graph], node_ptr[graph + 1]
    key = _by_channel(qkv, first, last, heads + head)
    value = _by_channel(qkv, first, last, 2 * heads + head)
    return graph, head, first, last - first, key, value


@vectorised
def _scores(row, r, queries, q, key):
    """row[r] = the products of a query with all keys."""
    for j in range(key.shape[1]):
        row[r, j] = _ZERO
    _combine(row, r, queries, q, key)


@vectorised
def _decay(row, r, score, distance, pair, mul, add, bias, packed, head, n):
    """row[r] = score[0] · mul[byte] + add[byte] + bias; −∞ behind the last node."""
    if len(mul):
        for j in range(n):
            row[r, j] = score[0, j] * mul[head, distance[pair + j]]
    else:
        for j in range(n):
            row[r, j] = score[0, j]
    if len(add):
        for j in range(n):
            row[r, j] += add[head, distance[pair + j]]
    if len(bias):
        for j in range(n):
            row[r, j] += bias[packed + j, head]
    for j in range(n, row.shape[1]):
        row[r, j] = -np.inf


@vectorised
def _top(row, tops):
    """The largest entry of row[0], 0 if all are −∞; ``tops`` [1, lanes] is scratch."""
    for lane in range(LANES):
        tops[0, lane] = row[0, lane]
    for start in range(LANES, row.shape[1], LANES):
        for lane in range(LANES):
            x = row[0, start + lane]
            tops[0, lane] = x if x > tops[0, lane] else tops[0, lane]
    top = np.float32(-np.inf)
    for lane in range(LANES):
        top = max(top, tops[0, lane])
    return _ZERO if top == -np.inf else top


@vectorised
def _drop(row, r, key, least, scale):
    """Dropout of a row of weights: :func:`gradformer.attention.draws.keep`."""
    for j in range(row.shape[1]):
        x = np.uint32(np.uint32(key) + np.uint32(j) * _STRIDE)
        x = np.uint32((x ^ (x >> np.uint32(16))) * _FIRST)
        x = np.uint32((x ^ (x >> np.uint32(15))) * _SECOND)
        row[r, j] = row[r, j] * scale if np.int32(x) >= least else _ZERO


@vectorised
def forward_kernel(
    first_task, last_task, qkv, node_ptr, pair_ptr, packed_ptr, distance, mul, add, bias, keys,
    scale, least, keep_scale, out, softmax,
):  # fmt: skip
    d = out.shape[2]
    query, mean = np.empty((1, d), np.float32), np.empty((1, d), np.float32)
    tops = np.empty((1, LANES), np.float32)
    for task in range(first_task, last_task):
        graph, head, first, n, key, value = _begin(task, qkv, node_ptr)
        row = np.empty((1, key.shape[1]), np.float32)
        for i in range(n):
            for c in range(d):
                query[0, c] = qkv[first + i, head, c] * scale
            _scores(row, 0, query, 0, key)
            pair, packed = pair_ptr[graph] + i * n, packed_ptr[graph] + i * n
            _decay(row, 0, row, distance, pair, mul, add, bias, packed, head, n)
            top, total = _top(row, tops), _ZERO
            for j in range(row.shape[1]):
                row[0, j] = exp(row[0, j] - top)
                total += row[0, j]
            if len(keys):
                _drop(row, 0, keys[first + i, head], least, keep_scale)
            _dots(mean, 0, row, 0, value)
            share = _ONE / total if total != _ZERO else _ZERO
            softmax[first + i, head, 0], softmax[first + i, head, 1] = top, share
            for c in range(d):
                out[first + i, head, c] = mean[0, c] * share


@vectorised
def backward_kernel(
    first_task, last_task, qkv, node_ptr, pair_ptr, packed_ptr, distance, mul, add, bias, keys,
    scale, least, keep_scale, out, softmax, grad, dqkv, dmul, dadd, dbias,
):  # fmt: skip
    """dqkv as qkv; dmul, dadd [graphs, heads, 256] and dbias as bias, or without rows."""
    heads, d = out.shape[1], out.shape[2]
    queries, grads = np.zeros((d, ROWS), np.float32), np.zeros((d, ROWS), np.float32)
    query, slope = np.empty((1, d), np.float32), np.empty((1, d), np.float32)
    dquery = np.empty((1, d), np.float32)
    for task in range(first_task, last_task):
        graph, head, first, n, key, value = _begin(task, qkv, node_ptr)
        dkey, dvalue = np.zeros_like(key), np.zeros_like(value)
        width = key.shape[1]
        score, dweight = np.empty((1, width), np.float32), np.empty((1, width), np.float32)
        weight, dlogit = np.zeros((ROWS, width), np.float32), np.zeros((ROWS, width), np.float32)
        for i in range(n):
            r = i % ROWS
            mean = _ZERO
            for c in range(d):
                query[0, c] = queries[c, r] = qkv[first + i, head, c] * scale
                slope[0, c] = grads[c, r] = grad[first + i, head, c]
                mean += slope[0, c] * out[first + i, head, c]
            _scores(score, 0, query, 0, key)
            _scores(dweight, 0, slope, 0, value)
            pair, packed = pair_ptr[graph] + i * n, packed_ptr[graph] + i * n
            _decay(weight, r, score, distance, pair, mul, add, bias, packed, head, n)
            top, share = softmax[first + i, head, 0], softmax[first + i, head, 1]
            for j in range(width):
                weight[r, j] = exp(weight[r, j] - top) * share
                dlogit[r, j] = weight[r, j] * mean
            if len(keys):
                _drop(weight, r, keys[first + i, head], least, keep_scale)
            for j in range(width):
                dlogit[r, j] = weight[r, j] * dweight[0, j] - dlogit[r, j]
            if len(dbias):
                for j in range(n):
                    dbias[packed + j, head] = dlogit[r, j]
            if len(dadd):
                for j in range(n):
                    dadd[graph, head, distance[pair + j]] += dlogit[r, j]
            if len(dmul):
                for j in range(n):
                    dmul[graph, head, distance[pair + j]] += dlogit[r, j] * score[0, j]
            if len(mul):
                for j in range(n):
                    dlogit[r, j] *= mul[head, distance[pair + j]]
            _dots(dquery, 0, dlogit, r, key)
            for c in range(d):
                dqkv[first + i, head, c] = dquery[0, c] * scale
            if r == ROWS - 1 or i == n - 1:
                for late in range(r + 1, ROWS):  # of the rows before
                    for c in range(d):
                        queries[c, late] = grads[c, late] = _ZERO
                for c in range(d):
                    _combine(dkey, c, queries, c, dlogit)
                    _combine(dvalue, c, grads, c, weight)
        for i in range(n):
            for c in range(d):
                dqkv[first + i, heads + head, c] = dkey[c, i]
                dqkv[first + i, 2 * heads + head, c] = dvalue[c, i]
