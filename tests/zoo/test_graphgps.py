"""GraphGPS: its promises for each local module, encoding and readout."""

from __future__ import annotations

import pytest
import torch

from gradformer.errors import ConfigError
from gradformer.graphs.collate import Collator
from gradformer.graphs.store import pack
from gradformer.graphs.structures import Structure
from gradformer.model.base import create_model
from gradformer.zoo.eigenpairs import eigenpairs
from tests.zoo import toys

SMALL = {"layers": 2, "width": 32, "heads": 2, "pe_steps": toys.STEPS, "pe_width": 8}
CASES = [
    ("graph", {"local": "gine"}),
    ("graph", {"local": "gatedgcn", "pe": "lap"}),
    ("node", {"local": "gatedgcn", "pe": "none"}),
    ("node", {"local": "none", "pe": "lap"}),
    ("graph", {"local": "gin", "pe_norm": False}),
]


def make(level, options):
    return create_model("graphgps", toys.toy_schema(level), **SMALL, **options)


@pytest.mark.parametrize(("level", "options"), CASES)
def test_promises(level, options):
    model = make(level, options)
    toys.check_batch_mates(model)
    if options.get("pe") != "lap":  # eigenvectors turn with the order of the nodes
        toys.check_relabelling(model)
    toys.check_padding(lambda: make(level, {**options, "dropout": 0.2}))


@pytest.mark.parametrize(("level", "options"), CASES)
def test_trains(level, options):
    torch.manual_seed(0)
    model = make(level, {**options, "attention_dropout": 0.0, "flip_signs": False})
    toys.check_training(model, 40, 1e-2)


def test_eigenpairs_come_from_the_store():
    """What the store computes is what the model would compute itself."""
    model = make("graph", {"pe": "lap"}).eval()
    arrays = toys.toy_graphs(model.schema)
    needs = model.config.needs()
    store = pack(arrays, Structure(extras=needs.extras))
    batch = Collator(store)(toys.IDS)
    bare = toys.toy_batch(model.schema)
    assert torch.equal(
        batch.extras["eigenpairs_none"], model.prepare(bare).extras["eigenpairs_none"]
    )
    torch.testing.assert_close(model(batch), model(bare))


def test_progress_of_eigenpairs_is_told():
    arrays = toys.toy_graphs(toys.toy_schema())
    seen = []
    eigenpairs(arrays.node_ptr, arrays.edge_ptr, arrays.edge_index, 3, "none", seen.append)
    assert sum(seen) == arrays.num_graphs


def test_positions_must_leave_room_for_features():
    with pytest.raises(ConfigError, match="pe_width"):
        create_model("graphgps", toys.toy_schema(), width=16, pe_width=16)
