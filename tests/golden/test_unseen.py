"""The adapters on files that nobody stored, made from stored ones so that the values are known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradformer.errors import ConfigError
from tests.conftest import SHARED
from tests.golden.check import Verdict, check_file

GOLDEN = SHARED / "golden"
pytestmark = pytest.mark.skipif(
    not GOLDEN.exists(), reason="no golden files: set GRADFORMER_SHARED"
)

Arrays = dict[str, Any]
Change = Callable[[Arrays, dict[str, Any]], None]


def check_changed(name: str, folder: Path, change: Change) -> Verdict:
    """Hold our model against the golden file ``name`` after ``change`` (arrays, config)."""
    with np.load(GOLDEN / f"{name}.npz", allow_pickle=False) as file:
        arrays = {key: file[key] for key in file.files}
    config = json.loads(str(arrays["config_json"]))
    change(arrays, config)
    arrays["config_json"] = np.array(json.dumps(config))
    path = folder / f"{name}.npz"
    path.parent.mkdir(parents=True)
    np.savez(path, **arrays)
    return check_file(path)


def other_order(arrays: Arrays, config: dict[str, Any]) -> None:
    """Graphs in reverse, edges in any order."""
    batch = arrays["batch"]
    graphs = np.arange(batch.max() + 1)[::-1]
    nodes = np.concatenate([np.flatnonzero(batch == graph) for graph in graphs])
    edges = np.random.default_rng(0).permutation(arrays["edge_index"].shape[1])
    orders = {len(order): order for order in (graphs, nodes, edges)}
    renamed = nodes.argsort()
    for name, value in arrays.items():
        if name == "batch":
            arrays[name] = graphs[value[nodes]]
        elif name == "edge_index":
            arrays[name] = renamed[value[:, edges]]
        elif name in ("full_edge_index", "pre/complete_edge_index"):
            arrays[name] = renamed[value]
        elif name == "sub_graph":
            arrays[name] = graphs[value]
        elif name.startswith(("hidden/padded", "hidden/transformer", "hidden/lpe")):
            arrays[name] = value[:, orders[value.shape[1]]]
        elif value.ndim and "/param/" not in f"/{name}" and "/grad/" not in f"/{name}":
            arrays[name] = value[orders.get(len(value), slice(None))]


@pytest.mark.parametrize(
    "name",
    [
        "deepgraph/case_a",
        "egt/case_b",
        "gatedgcn/case_a",
        "gradformer/case_d",
        "graphgps/case_b",
        "graphormer/case_a",
        "graphtrans/case_b",
        "gt/case_a",
        "gt_node/case_a",
        "lgi_gt/case_d",
        "mpnn/case_a",
        "san/case_b",
        "sat/case_d",
    ],
)
def test_order_of_graphs_and_edges_is_free(name: str, tmp_path: Path) -> None:
    verdict = check_changed(name, tmp_path, other_order)
    assert not verdict.problems, verdict.problems[:5]
    assert verdict.compared > 20


@pytest.mark.parametrize("name", ["gatedgcn/case_a", "gt/case_a", "san/case_a"])
def test_flat_targets_and_no_hidden_states(name: str, tmp_path: Path) -> None:
    def change(arrays: Arrays, config: dict[str, Any]) -> None:
        arrays["y"] = arrays["y"].flatten()
        for key in [key for key in arrays if key.startswith("hidden")]:
            del arrays[key]

    verdict = check_changed(name, tmp_path, change)
    assert not verdict.problems, verdict.problems[:5]


def test_graphormer_tables_may_end_before_the_unreachable_row(tmp_path: Path) -> None:
    # All nodes attend in both, for none are 99 hops apart: the file is missed alike.
    some, all_ = (
        check_changed(
            "graphormer/case_a",
            tmp_path / str(reach),
            lambda _, config, reach=reach: config["hparams"].update(spatial_pos_max=reach),
        )
        for reach in (99, 1024)
    )
    assert _errors(some)
    assert some.problems == all_.problems


def test_gatedgcn_without_positions(tmp_path: Path) -> None:
    def change(arrays: Arrays, config: dict[str, Any]) -> None:
        arrays["param/embedding_pos_enc.weight"][:] = 0.0
        arrays["param/embedding_pos_enc.bias"][:] = 0.0

    def without(arrays: Arrays, config: dict[str, Any]) -> None:
        for key in [key for key in arrays if "pos_enc" in key or key in ("pe", "grad_pe")]:
            del arrays[key]
        del config["net_params"]["pos_enc"], config["net_params"]["pos_enc_dim"]

    zero = check_changed("gatedgcn/case_a", tmp_path / "zero", change)
    absent = check_changed("gatedgcn/case_a", tmp_path / "absent", without)
    assert _errors(absent)
    assert _errors(absent) == _errors(zero)


def test_gt_without_bond_types_on_the_complete_graph(tmp_path: Path) -> None:
    # All pairs have type 0 there, so that W·1 + b can take the place of the table's row 0.
    def change(arrays: Arrays, config: dict[str, Any]) -> None:
        config["net_params"]["edge_feat"] = False
        row, grad = (arrays[f"{start}/embedding_e.weight"][0] for start in ("param", "grad"))
        arrays["param/embedding_e.weight"] = 0.25 * row[:, None]
        arrays["param/embedding_e.bias"] = 0.75 * row
        arrays["grad/embedding_e.weight"], arrays["grad/embedding_e.bias"] = grad[:, None], grad

    verdict = check_changed("gt/case_b", tmp_path, change)
    assert not verdict.problems, verdict.problems[:5]


def test_deepgraph_codes_may_reach_into_the_next_column(tmp_path: Path) -> None:
    def change(arrays: Arrays, config: dict[str, Any]) -> None:
        arrays["x"] = arrays["x"].copy()
        used = np.unique(arrays["x"][:, 0]) + 2
        arrays["x"][:, 0] += 40
        table = "encoder.graph_encoder.graph_node_feature.atom_encoder.weight"
        for name in (f"param/{table}", f"grad/{table}"):
            arrays[name] = arrays[name].copy()
            arrays[name][used + 40] = arrays[name][used]
        arrays[f"grad/{table}"][used] = 0.0

    verdict = check_changed("deepgraph/case_b", tmp_path, change)
    assert not verdict.problems, verdict.problems[:5]


def test_egt_with_singular_vectors_that_nothing_maps(tmp_path: Path) -> None:
    def change(arrays: Arrays, config: dict[str, Any]) -> None:
        config["hparams"]["svd_encodings"] = 3
        width = config["hparams"]["node_width"]
        arrays["param/svd_embed.weight"] = np.zeros((width, 6), np.float32)
        arrays["param/svd_embed.bias"] = np.zeros(width, np.float32)

    verdict = check_changed("egt/case_a", tmp_path, change)
    assert not verdict.problems, verdict.problems[:5]


def test_sat_with_a_token_and_no_list_of_pairs(tmp_path: Path) -> None:
    def change(arrays: Arrays, config: dict[str, Any]) -> None:
        for key in [key for key in arrays if key.startswith(("attn/", "pre/"))]:
            del arrays[key]

    verdict = check_changed("sat/case_b", tmp_path, change)
    assert not verdict.problems, verdict.problems[:5]


@pytest.mark.parametrize(
    ("name", "section", "option", "value"),
    [
        ("graphtrans/case_a", "args", "transformer_prenorm", True),
        ("deepgraph/case_a", "args", "reattention", True),
        ("gt/case_a", "net_params", "residual", False),
        ("egt/case_a", "hparams", "activation", "gelu"),
    ],
)
def test_refuses_what_is_not_built(
    name: str, section: str, option: str, value: object, tmp_path: Path
) -> None:
    def change(arrays: Arrays, config: dict[str, Any]) -> None:
        config[section][option] = value

    with pytest.raises(ConfigError, match=f"{option}: {value!r} is not built, only"):
        check_changed(name, tmp_path, change)


def test_names_the_options_that_it_did_not_read(tmp_path: Path) -> None:
    def change(arrays: Arrays, config: dict[str, Any]) -> None:
        config["hparams"]["new_idea"] = 3
        arrays["out"] = arrays["out"] + 1.0

    verdict = check_changed("lgi_gt/case_a", tmp_path, change)
    assert _errors(verdict)
    assert "new_idea=3" in verdict.hints[0]


def _errors(verdict: Verdict) -> list[str]:
    return [problem for problem in verdict.problems if problem.startswith("out:")]
