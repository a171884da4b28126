"""Which engine takes a call, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from gradformer.attention import Layout, Table, decay_attention, joint_attention, use_engine
from gradformer.attention.availability import (
    _device_error,
    _triton_error,
    current_engine,
    why_no_triton,
)
from gradformer.attention.operation import why_not_fused
from gradformer.errors import ConfigError, InputError
from tests.attention.problems import padded, random_problem


def test_an_engine_is_used_inside_its_block_only() -> None:
    assert current_engine() == "auto"
    with use_engine("reference"):
        assert current_engine() == "reference"
    with pytest.raises(ZeroDivisionError), use_engine("reference"):
        _ = 1 / 0
    assert current_engine() == "auto"


def test_an_unknown_engine_is_named() -> None:
    named = r"engine: unknown value 'fuse'; did you mean 'fused'\?"
    with pytest.raises(ConfigError, match=named), use_engine("fuse"):
        pass
    assert current_engine() == "auto"


@pytest.mark.parametrize(
    ("reason", "q", "weights"),
    [
        ("weights", torch.zeros(1, 1, 4), True),
        ("float32", torch.zeros(1, 1, 4, dtype=torch.float64), False),
        ("4 to 128, not 3", torch.zeros(1, 1, 3), False),
        ("4 to 128, not 129", torch.zeros(1, 1, 129), False),
        ("CUDA", torch.zeros(1, 1, 4), False),
    ],
)
def test_why_the_fused_engine_cannot(reason: str, q: torch.Tensor, weights: bool) -> None:
    found = why_not_fused(q, weights)
    assert found is not None
    assert reason in found


def test_gpus_without_kernels_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    device = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Old")
    for cuda, capability, reason in (
        (None, (9, 4), "GPUs of NVIDIA"),
        ("12.8", (7, 5), "8.0 or more, Old has 7.5"),
        ("12.8", (8, 0), None),
    ):
        _device_error.cache_clear()
        monkeypatch.setattr(torch.version, "cuda", cuda)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, found=capability: found)
        found = why_no_triton(device)
        assert found is reason is None or reason in str(found)
    _device_error.cache_clear()


@pytest.mark.parametrize(("version", "old"), [("3.3.1", True), ("3.10.0+git", False)])
def test_a_triton_that_is_too_old_is_named(
    version: str, old: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pytest.importorskip("triton"), "__version__", version)
    _triton_error.cache_clear()
    found = why_no_triton(torch.device("cpu"))
    _triton_error.cache_clear()
    assert ("Triton 3.4 or more" in str(found)) == old
    assert (version in str(found)) == old


def test_the_fused_engine_refuses_what_it_cannot() -> None:
    p = random_problem((3, 2), width=3)
    q, k, v = p.q.float(), p.k.float(), p.v.float()
    with use_engine("fused"), pytest.raises(ConfigError, match=r"^engine: .* not 3"):
        decay_attention(q, k, v, p.layout, p.distance, None, None)


def test_auto_takes_no_triton_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter is never chosen by itself."""
    monkeypatch.delattr("gradformer.attention.fused.fused_attention")
    p = random_problem((3, 2), width=4)
    q, k, v = p.q.float(), p.k.float(), p.v.float()
    auto = decay_attention(q, k, v, p.layout, p.distance, None, None)
    with use_engine("reference"):
        expected = decay_attention(q, k, v, p.layout, p.distance, None, None)
    torch.testing.assert_close(auto, expected)


def arguments() -> dict[str, Any]:
    p = random_problem((3, 2), width=4, biased=True)
    given = {"q": p.q, "k": p.k, "v": p.v, "layout": p.layout, "distance": p.distance}
    tables = {"mul": torch.ones(2, 256), "add": torch.zeros(2, 256)}
    return given | tables | {"bias": p.bias, "seed": torch.tensor([1, 2, 3])}


@pytest.mark.parametrize("name", ["q", "k", "v", "distance", "mul", "add", "bias", "seed"])
@pytest.mark.parametrize("kind", ["ndarray", "list"])
def test_what_is_not_a_tensor_is_named(name: str, kind: str) -> None:
    given = arguments()
    decay_attention(**given)
    given[name] = given[name].numpy() if kind == "ndarray" else given[name].tolist()
    with pytest.raises(InputError, match=rf"^{name}: expected a torch tensor.* got {kind}"):
        decay_attention(**given)


def test_what_is_not_a_layout_is_named() -> None:
    with pytest.raises(InputError, match=r"^layout: expected a Layout, got list; use Layout"):
        decay_attention(**arguments() | {"layout": [3, 2]})


def test_a_joint_tensor_of_the_wrong_shape_is_named() -> None:
    given = arguments()
    with pytest.raises(
        InputError, match=r"^qkv: expected \[nodes, 3 · heads, d\], got \[5, 4, 4\]"
    ):
        joint_attention(torch.zeros(5, 4, 4), given["layout"], given["distance"], None, None)


def test_a_table_with_a_wrong_jacobian_is_named() -> None:
    given, one = arguments(), torch.zeros(2, 1)
    for parameters, jacobian in ((one, torch.zeros(1, 1, 256)), (one[:1], torch.zeros(1, 2, 256))):
        given["mul"] = Table(torch.ones(2, 256), parameters, jacobian)
        with pytest.raises(InputError, match=r"^mul: expected parameters \[2 heads, p\]"):
            decay_attention(**given)


def test_promises_of_a_layout_that_are_not_kept_are_named() -> None:
    given = arguments()
    layout = given["layout"]
    with pytest.raises(InputError, match=r"^layout: largest is 2, but a graph has 3 nodes"):
        decay_attention(**given | {"layout": replace(layout, largest=2)})
    longer = {name: torch.cat([given[name], given[name][:2]]) for name in ("q", "k", "v")}
    with pytest.raises(InputError, match=r"^layout: has 7 rows and 5 nodes; .*padded=True"):
        decay_attention(**given | longer | {"layout": replace(layout, capacity=7)})


def test_an_empty_graph_behind_the_last_row() -> None:
    """As one dense group, which is how the reference takes a padded batch on a device."""
    p = padded(random_problem((3, 2), width=4), largest=4, rows=0)
    expected = decay_attention(p.q, p.k, p.v, p.layout, p.distance, None, None)
    layout = replace(p.layout)
    layout.__dict__["groups"] = [layout.whole]
    found = decay_attention(p.q, p.k, p.v, layout, p.distance, None, None)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("chunk", [4, 1 << 22])
def test_symmetry_is_found_out(chunk: int) -> None:
    """In every graph, whatever lies between their blocks, and over the border of a chunk."""
    sizes = [3, 0, 4, 1]
    blocks = [torch.arange(n * n, dtype=torch.uint8).view(n, n) for n in sizes]
    same = [torch.maximum(block, block.T).flatten() for block in blocks]
    gap = torch.tensor([7], dtype=torch.uint8)
    layout = Layout.from_sizes(sizes)
    layout = replace(layout, pair_ptr=layout.pair_ptr + torch.arange(1, 5))
    distance = torch.cat([part for block in same for part in (gap, block)])
    assert layout.is_symmetric(distance, chunk)
    for place in (2, 14):  # an entry beside the diagonal of the first and the third graph
        other = distance.clone()
        other[place] += 1
        assert not layout.is_symmetric(other, chunk)
    assert Layout.from_sizes([]).is_symmetric(distance, chunk)
