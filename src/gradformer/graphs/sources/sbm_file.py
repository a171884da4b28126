"""PATTERN and CLUSTER as published: PyG's NAME_v2.pt, three lists of dicts of tensors."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import torch

from gradformer.errors import InputError
from gradformer.graphs.arrays import GraphArrays, Schema
from gradformer.structure.pointers import pointer


def read_sbm_file(content: bytes, where: str, vocabulary: int, classes: int) -> GraphArrays:
    """The graphs of the training, validation and test list, in this order.

    A graph has ``x`` [n, vocabulary] (one-hot), ``edge_index`` [2, edges] and ``y`` [n]. torch's
    own allow-list reads the file: tensors and plain containers, nothing else.
    """
    try:
        splits = torch.load(io.BytesIO(content), weights_only=True)
        graphs: list[dict[str, Any]] = [graph for part in splits for graph in part]
        nodes = [len(graph["x"]) for graph in graphs]
        edges = [graph["edge_index"].shape[1] for graph in graphs]
        x = torch.cat([graph["x"] for graph in graphs])
        y = torch.cat([graph["y"].reshape(-1) for graph in graphs])
        edge_index = torch.cat([graph["edge_index"].int() for graph in graphs], dim=1)
        split = np.repeat(np.arange(3, dtype=np.int8), [len(part) for part in splits])
    except Exception as error:
        raise InputError(f"{where} is not a published SBM file: {error}") from None
    if x.dim() == 2 and x.shape[1] == vocabulary:
        x = x.argmax(dim=1)
    return GraphArrays(
        pointer(nodes),
        pointer(edges),
        edge_index.numpy(),
        Schema((vocabulary,), (), "node", "multiclass", classes),
        x.reshape(-1, 1).long().numpy(),
        y=y.long().numpy(),
        split=split[:, None],
    ).check(where)
