"""Exact optimal transport between two small measures of whole numbers."""

from __future__ import annotations

import numpy as np

from gradformer.structure.parallel import compiled


@compiled
def transport(cost, supply, demand):  # type: ignore[no-untyped-def]
    """Least cost of moving ``supply`` [S] onto ``demand`` [D] (whole numbers of equal sum) at
    ``cost`` [S, D]: successive shortest augmenting paths, exact."""
    S, D = cost.shape
    left, open_ = supply.copy(), demand.copy()
    flow = np.zeros((S, D), np.int64)
    far = np.int64(1) << 40
    total = np.int64(0)
    while left.sum() > 0:
        # Bellman–Ford from all remaining supplies; flow can be taken back at its cost.
        to_supply, to_demand = np.where(left > 0, 0, far), np.full(D, far)
        via_supply, via_demand = np.full(D, -1), np.full(S, -1)
        changed = True
        while changed:
            changed = False
            for s in range(S):
                for d in range(D):
                    if to_supply[s] + cost[s, d] < to_demand[d]:
                        to_demand[d] = to_supply[s] + cost[s, d]
                        via_supply[d] = s
                        changed = True
            for s in range(S):
                for d in range(D):
                    if flow[s, d] > 0 and to_demand[d] - cost[s, d] < to_supply[s]:
                        to_supply[s] = to_demand[d] - cost[s, d]
                        via_demand[s] = d
                        changed = True
        goal = int(np.argmin(np.where(open_ > 0, to_demand, far)))
        amount, d = open_[goal], goal
        while d >= 0:
            s = via_supply[d]
            d = via_demand[s]
            amount = min(amount, left[s] if d < 0 else flow[s, d])
        open_[goal] -= amount
        total += amount * to_demand[goal]
        d = goal
        while d >= 0:
            s = via_supply[d]
            flow[s, d] += amount
            d = via_demand[s]
            if d < 0:
                left[s] -= amount
            else:
                flow[s, d] -= amount
    return total
