"""Gradformer: the authors' model, and their attention alone."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gradformer.attention import Decay, Layout, decay_attention
from gradformer.model.official import official_model, official_names
from gradformer.structure.codebook import HOPS
from tests.golden.case import Case, Ref, Subject
from tests.golden.mapping import dense_pairs, gradients, leaf, stored_batch, training


def subjects(case: Case) -> list[Subject]:
    return [_attention(case)] if "q" in case else [_model(case)]


def _model(case: Case) -> Subject:
    config = case.config
    model = official_model(config).double()
    names = {
        ours: Ref("hop", lambda x: x.view(1, -1)) if first == "hop" else Ref(first, more=(*more,))
        for ours, (first, *more) in official_names(model, config).items()
    }
    x, edge_attr = leaf(case["x"].view(len(case["x"]), -1)), None
    if "edge_attr" in case:
        edge_attr = case["edge_attr"].view(len(case["edge_attr"]), -1)
    pe = {"rwse": leaf(case["pe"])} if "pe" in case else {}
    batch, _ = stored_batch(case, x=x, edge_attr=edge_attr, encodings=pe)
    sizes = batch.layout.node_ptr.diff().tolist()

    def observe() -> dict[str, Tensor]:
        walked = model.walk(batch)
        attention = model.attention(batch)
        seen = {"out": model(batch), "h0": walked[0][0]}
        # a padded pair counts as distance 510, a real one as its own
        real = dense_pairs(torch.ones_like(attention[0].decay), sizes) > 0
        far = model.decay()[0].mul.value[:, 255, None, None]
        seen["decay"] = torch.where(real, dense_pairs(attention[0].decay, sizes), far)
        hops = torch.from_numpy(HOPS.values.copy())[batch.distance.long()]
        hops = torch.where(real[:, :1], dense_pairs(hops[:, None], sizes), 510.0)
        seen["spd"] = hops.squeeze(1).long()
        for number, layer in enumerate(attention):
            seen[f"hidden/{number}"] = walked[number + 1][0]
            seen[f"attn/{number}"] = dense_pairs(layer.weight, sizes)
        return {name: value for name, value in seen.items() if name in case}

    name = config["loss"]
    kind = "l1" if name in ("mae", "l1") else "bce" if name.startswith("bce") else "ce"
    inputs = gradients(case, {"x": x, **({"pe": pe["rwse"]} if pe else {})})
    train = training(case, model, batch, kind, inputs)
    return Subject(case, model, names, observe, train, inputs=inputs)


class _Attention(nn.Module):
    def __init__(self, heads: int, config: dict) -> None:
        super().__init__()
        self.decay = Decay(heads, decay=config["lambda"], slope=config["slope"])


def _attention(case: Case) -> Subject:
    config = case.config
    sizes = config["sizes"]
    model = _Attention(case["q"].shape[1], config).double()
    case.arrays["param/sp"] = case.arrays["sp"]
    case.arrays["grad/sp"] = case.arrays["dsp"]
    layout = Layout.from_sizes(sizes)
    leaves = {f"d{name}": case[name].requires_grad_() for name in "qkv"}
    distance = torch.cat([case["dist"][g, :n, :n].flatten() for g, n in enumerate(sizes)])
    distance = distance.clamp(max=255).to(torch.uint8)
    width = case["q"].shape[2]

    def packed(name: str) -> Tensor:
        value = leaves.get(f"d{name}")
        value = case[name] if value is None else value
        return torch.cat([value[g, :, :n].transpose(0, 1) for g, n in enumerate(sizes)])

    def run() -> tuple[Tensor, Tensor]:
        tables = model.decay()[0]
        q, k, v = (packed(name) for name in "qkv")
        return decay_attention(
            q, k, v, layout, distance, tables.mul, tables.add, return_weights=True
        )

    def padded(rows: Tensor) -> Tensor:
        out = rows.new_zeros(len(sizes), rows.shape[1], width, rows.shape[2])
        for graph, part in enumerate(rows.split(sizes)):
            out[graph, :, : len(part)] = part.transpose(0, 1)
        return out

    def observe() -> dict[str, Tensor]:
        out, weights = run()
        return {"out": padded(out), "attn": dense_pairs(weights, sizes)}

    def train() -> dict[str, Tensor]:
        out, _ = run()
        return {"loss": (out * packed("proj")).sum()}

    names = {"decay.start": Ref("sp", lambda x: x.view(1, -1))}
    return Subject(case, model, names, observe, train, inputs=leaves)
