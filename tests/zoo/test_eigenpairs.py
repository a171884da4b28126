"""The eigenpairs that GraphGPS reads."""

from __future__ import annotations

import torch

from gradformer.graphs.collate import Collator
from gradformer.graphs.store import pack
from gradformer.graphs.structures import Structure
from gradformer.zoo.eigenpairs import PLAIN, eigenpairs
from tests.zoo import toys


def test_eigenpairs_come_from_the_store():
    """What the store computes is what the model would compute itself."""
    model = toys.make("graphgps", pe="lap").eval()
    arrays = toys.toy_graphs(model.schema)
    needs = model.config.needs()
    store = pack(arrays, Structure(extras=needs.extras))
    batch = Collator(store)(toys.IDS)
    bare = toys.toy_batch(model.schema)
    count = model.config.pe_steps
    assert torch.equal(batch.extras["eigenpairs_none"], PLAIN.of(bare, count, 2, count=count))
    torch.testing.assert_close(model(batch), model(bare))


def test_progress_of_eigenpairs_is_told():
    arrays = toys.toy_graphs(toys.toy_schema())
    seen = []
    eigenpairs(arrays.node_ptr, arrays.edge_ptr, arrays.edge_index, 3, "none", seen.append)
    assert sum(seen) == arrays.num_graphs
