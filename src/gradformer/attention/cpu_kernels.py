r"""The attention of one graph and head after the other, as loops for a CPU's vector units.

Nothing of the size of a matrix of pairs is kept: a row of scores is made, used, and overwritten by
the next; the backward pass makes it again from its largest entry and its sum (of both in one
number, log-sum-exp, a large entry would leave no digits for the sum). Keys and values lie channel
by channel, so that every inner loop runs along the nodes, padded to a multiple of :data:`LANES`. A
task is a pair (graph, head), numbered ``graph · heads + head``; tasks write to places of their own,
so any number of threads gives the same bits. Indices of rows are passed beside arrays, as a view of
a row would cost more than the work on one of a small graph. Indices are unsigned: a signed one may
count from the end, and of loops that ask for it at every entry compilers make no vectors.

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

LANES = np.uintp(16)
ROWS = np.uintp(16)  # queries whose gradients are added to those of the keys at once

_FIRST, _SECOND, _STRIDE = (np.uint32(x % (1 << 32)) for x in (FIRST, SECOND, STRIDE))
_LOG2E, _LN2_HIGH, _LN2_LOW = (
    np.float32(1.44269504),
    np.float32(0.693359375),
    np.float32(-2.12194440e-4),
)
_LEAST = np.float32(-87.0)  # exp of less is zero
_E2, _E3, _E4, _E5, _E6, _E7 = (np.float32(1.0 / math.factorial(n)) for n in range(2, 8))
# Of a number that is written in a loop an index would become signed.
_0, _1, _2, _3, _4, _5, _6, _7, _8 = (np.uintp(n) for n in range(9))
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
def _padded(size, unit):
    return (size + unit - _1) // unit * unit


@inlined
def _combine(out, o, factors, f, rows):
    """out[o, j] += Σ_c factors[f, c] · rows[c, j]; eight rows at a time."""
    count, width = index(rows.shape[0]), index(rows.shape[1])
    for c in range(_0, count, _8):
        c1, c2, c3, c4, c5, c6, c7 = c + _1, c + _2, c + _3, c + _4, c + _5, c + _6, c + _7
        f0, f1, f2, f3 = factors[f, c], factors[f, c1], factors[f, c2], factors[f, c3]
        f4, f5, f6, f7 = factors[f, c4], factors[f, c5], factors[f, c6], factors[f, c7]
        for j in range(width):
            a = (f0 * rows[c, j] + f1 * rows[c1, j]) + (f2 * rows[c2, j] + f3 * rows[c3, j])
            b = (f4 * rows[c4, j] + f5 * rows[c5, j]) + (f6 * rows[c6, j] + f7 * rows[c7, j])
            out[o, j] += a + b


@inlined
def _dots(out, o, row, r, rows):
    """out[o, c] = Σ_j row[r, j] · rows[c, j]; four sums at a time."""
    count, width = index(rows.shape[0]), index(rows.shape[1])
    for c in range(_0, count, _4):
        c1, c2, c3 = c + _1, c + _2, c + _3
        s0 = s1 = s2 = s3 = _ZERO
        for j in range(width):
            s0 += row[r, j] * rows[c, j]
            s1 += row[r, j] * rows[c1, j]
            s2 += row[r, j] * rows[c2, j]
            s3 += row[r, j] * rows[c3, j]
        out[o, c], out[o, c1], out[o, c2], out[o, c3] = s0, s1, s2, s3


@inlined
def _by_channel(x, first, n, head):
    """x[first : first + n, head] as [channels, nodes], zeros up to multiples of what loops take."""
    d = index(x.shape[2])
    out = np.zeros((_padded(d, _8), _padded(n, LANES)), np.float32)
    for i in range(n):
        for c in range(d):
            out[c, i] = x[first + i, head, c]
    return out


@inlined
def _begin(task, qkv, node_ptr):
    """Graph, head, first node and number of nodes of a task, with its keys and values."""
    heads = index(qkv.shape[1]) // _3
    graph, head = task // heads, task % heads
    first = index(node_ptr[graph])
    n = index(node_ptr[graph + _1]) - first
    key = _by_channel(qkv, first, n, heads + head)
    value = _by_channel(qkv, first, n, _2 * heads + head)
    return graph, head, first, n, key, value


@inlined
def _scores(row, r, queries, q, key):
    """row[r] = the products of a query with all keys."""
    for j in range(index(key.shape[1])):
        row[r, j] = _ZERO
    _combine(row, r, queries, q, key)


@inlined
def _decay(logit, factor, score, distance, pair, mul, add, bias, packed, head, n):
    """logit[0] = score[0] · factor[0] + add[byte] + bias, with factor[0] = mul[byte]."""
    if len(mul):
        for j in range(n):
            factor[_0, j] = mul[head, distance[pair + j]]
    for j in range(n):
        logit[_0, j] = score[_0, j] * factor[_0, j]
    if len(add):
        for j in range(n):
            logit[_0, j] += add[head, distance[pair + j]]
    if len(bias):
        for j in range(n):
            logit[_0, j] += bias[packed + j, head]


@inlined
def _ordered(bits):
    """The bits of a float as an integer that is as large among such as it is among floats."""
    return np.int32(bits ^ ((bits >> np.int32(31)) & np.int32(0x7FFFFFFF)))


@inlined
def _top(row):
    """The largest entry of row[0], 0 if all are −∞."""
    top = np.int32(-(1 << 31))
    for j in range(index(row.shape[1])):
        top = max(top, _ordered(np.float32(row[_0, j]).view(np.int32)))
    found = np.int32(_ordered(top)).view(np.float32)
    return _ZERO if found == _NEVER else found


@inlined
def _drop(row, r, key, least, scale):
    """Dropout of a row of weights: :func:`gradformer.attention.draws.keep`."""
    for j in range(index(row.shape[1])):
        u = np.int32(leading(np.uint32(key) + np.uint32(j) * _STRIDE))
        row[r, j] = row[r, j] * scale if u >= least else _ZERO


@inlined
def _add_up(out, graph, head, sums, s):
    """out[graph, head] = the four tables sums[s], added."""
    for b in range(index(sums.shape[2])):
        near, far = sums[s, _0, b] + sums[s, _1, b], sums[s, _2, b] + sums[s, _3, b]
        out[graph, head, b] = near + far


@vectorised
def forward_kernel(
    first_task, last_task, qkv, node_ptr, pair_ptr, packed_ptr, distance, mul, add, bias, keys,
    scale, least, keep_scale, softmax, out,
):  # fmt: skip
    d = index(out.shape[2])
    channels = _padded(d, _8)
    query, mean = np.zeros((1, channels), np.float32), np.empty((1, channels), np.float32)
    for task in range(index(first_task), index(last_task)):
        graph, head, first, n, key, value = _begin(task, qkv, node_ptr)
        shape = 1, key.shape[1]
        score, weight = np.empty(shape, np.float32), np.empty(shape, np.float32)
        factor, logit = np.ones(shape, np.float32), np.full(shape, _NEVER)
        pair, packed = index(pair_ptr[graph]), index(packed_ptr[graph])
        for i in range(first, first + n):
            for c in range(d):
                query[_0, c] = qkv[i, head, c] * scale
            _scores(score, _0, query, _0, key)
            _decay(logit, factor, score, distance, pair, mul, add, bias, packed, head, n)
            top, total = _top(logit), _ZERO
            for j in range(index(key.shape[1])):
                weight[_0, j] = exp(logit[_0, j] - top)
            for j in range(index(key.shape[1])):
                total += weight[_0, j]
            if len(keys):
                _drop(weight, _0, keys[i, head], least, keep_scale)
            _dots(mean, _0, weight, _0, value)
            share = _ONE / total if total != _ZERO else _ZERO
            softmax[i, head, _0], softmax[i, head, _1] = top, share
            for c in range(d):
                out[i, head, c] = mean[_0, c] * share
            pair += n
            packed += n


@vectorised
def backward_kernel(
    first_task, last_task, qkv, node_ptr, pair_ptr, packed_ptr, distance, mul, add, bias, keys,
    scale, least, keep_scale, softmax, grad, dqkv, dmul, dadd, dbias,
):  # fmt: skip
    """dqkv as qkv; dmul, dadd [graphs, heads, 256] and dbias as bias, or without rows."""
    heads, d = index(grad.shape[1]), index(grad.shape[2])
    channels = _padded(d, _8)
    queries, grads = np.zeros((d, ROWS), np.float32), np.zeros((d, ROWS), np.float32)
    query, slope = np.zeros((1, channels), np.float32), np.zeros((1, channels), np.float32)
    dquery = np.empty((1, channels), np.float32)
    for task in range(index(first_task), index(last_task)):
        graph, head, first, n, key, value = _begin(task, qkv, node_ptr)
        dkey, dvalue = np.zeros_like(key), np.zeros_like(value)
        width = index(key.shape[1])
        score, dweight = np.empty((1, width), np.float32), np.empty((1, width), np.float32)
        weight, dlogit = np.zeros((ROWS, width), np.float32), np.zeros((ROWS, width), np.float32)
        factor, logit = np.ones((1, width), np.float32), np.full((1, width), _NEVER)
        sums = np.zeros((2, 4, 256), np.float32)  # four of each: no addition waits for the last
        pair, packed = index(pair_ptr[graph]), index(packed_ptr[graph])
        r = _0
        for i in range(first, first + n):
            for c in range(d):
                query[_0, c] = queries[c, r] = qkv[i, head, c] * scale
                slope[_0, c] = grads[c, r] = grad[i, head, c]
            _scores(score, _0, query, _0, key)
            _scores(dweight, _0, slope, _0, value)
            _decay(logit, factor, score, distance, pair, mul, add, bias, packed, head, n)
            top, share = softmax[i, head, _0], softmax[i, head, _1]
            for j in range(width):
                weight[r, j] = exp(logit[_0, j] - top) * share
                dlogit[r, j] = weight[r, j]
            if len(keys):
                _drop(weight, r, keys[i, head], least, keep_scale)
            mean = _ZERO
            for j in range(width):
                mean += weight[r, j] * dweight[_0, j]
            for j in range(width):
                dlogit[r, j] = weight[r, j] * dweight[_0, j] - dlogit[r, j] * mean
            if len(dbias):
                for j in range(n):
                    dbias[packed + j, head] = dlogit[r, j]
            if len(dadd):
                for j in range(n):
                    sums[_1, j & _3, distance[pair + j]] += dlogit[r, j]
            if len(dmul):
                for j in range(n):
                    sums[_0, j & _3, distance[pair + j]] += dlogit[r, j] * score[_0, j]
            for j in range(width):
                dlogit[r, j] *= factor[_0, j]
            _dots(dquery, _0, dlogit, r, key)
            for c in range(d):
                dqkv[i, head, c] = dquery[_0, c] * scale
            r += _1
            pair += n
            packed += n
            if r == ROWS or i + _1 == first + n:
                for late in range(r, ROWS):  # of the rows before
                    for c in range(d):
                        queries[c, late] = grads[c, late] = _ZERO
                for c in range(d):
                    _combine(dkey, c, queries, c, dlogit)
                    _combine(dvalue, c, grads, c, weight)
                r = _0
        if len(dmul):
            _add_up(dmul, graph, head, sums, _0)
        if len(dadd):
            _add_up(dadd, graph, head, sums, _1)
        for i in range(n):
            for c in range(d):
                dqkv[first + i, heads + head, c] = dkey[c, i]
                dqkv[first + i, _2 * heads + head, c] = dvalue[c, i]
