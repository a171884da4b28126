"""Graph transformers with exponential distance decay.

Train, and use what was trained. Data are a benchmark by name, a file, or a list of NetworkX graphs,
PyG ``Data`` or SMILES:

>>> import gradformer, networkx as nx
>>> graphs = [nx.cycle_graph(n) for n in range(4, 14)] + [nx.path_graph(n) for n in range(4, 14)]
>>> shape = ["ring"] * 10 + ["chain"] * 10
>>> import tempfile; folder = tempfile.mkdtemp()
>>> run = gradformer.fit(graphs, y=shape, settings=["train.epochs=1"], out=folder, quiet=True)
>>> run.predict([nx.cycle_graph(6)]).value.shape
(1, 1)
>>> run = gradformer.Run.load(folder)       # later, elsewhere
>>> run.report().name
'report.html'

The operation alone, for other people's models; a distance is one byte a pair:

>>> import torch
>>> layout = gradformer.Layout.from_sizes([2, 3])              # two graphs, five nodes
>>> q = k = v = torch.randn(5, 4, 8)                           # [nodes, heads, width]
>>> distance = torch.randint(0, 3, (2 * 2 + 3 * 3,)).byte()    # [Σ n²]
>>> (tables,) = gradformer.Decay(heads=4, decay=0.6, start=2.0)()
>>> gradformer.decay_attention(q, k, v, layout, distance, tables.mul, tables.add).shape
torch.Size([5, 4, 8])

Or as a layer of PyG, in the place of ``GPSConv``:

>>> from torch_geometric.nn import GCNConv
>>> layer = gradformer.GradformerConv(16, GCNConv(16, 16), heads=4)
>>> layer(torch.randn(3, 16), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])).shape
torch.Size([3, 16])
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradformer.attention import Decay, Layout, Table, Tables, decay_attention, use_engine
    from gradformer.errors import ConfigError, GradformerError, GradformerWarning, InputError
    from gradformer.graphs.arrays import Schema
    from gradformer.graphs.batch import Batch
    from gradformer.graphs.datasets import load_dataset
    from gradformer.graphs.own import read
    from gradformer.graphs.store import Store, pack
    from gradformer.model.base import create_model
    from gradformer.model.conv import GradformerConv
    from gradformer.model.gradformer import Gradformer
    from gradformer.report import write_report
    from gradformer.training.fit import fit, resume
    from gradformer.training.recipe import Recipe, load_recipe
    from gradformer.training.run import Run

# Where each name lives: imported at its first use, so that `import gradformer` costs nothing.
_HOMES = {
    "attention": ("Decay", "Layout", "Table", "Tables", "decay_attention", "use_engine"),
    "errors": ("ConfigError", "GradformerError", "GradformerWarning", "InputError"),
    "graphs.arrays": ("Schema",),
    "graphs.batch": ("Batch",),
    "graphs.datasets": ("load_dataset",),
    "graphs.own": ("read",),
    "graphs.store": ("Store", "pack"),
    "model.base": ("create_model",),
    "model.conv": ("GradformerConv",),
    "model.gradformer": ("Gradformer",),
    "report": ("write_report",),
    "training.fit": ("fit", "resume"),
    "training.recipe": ("Recipe", "load_recipe"),
    "training.run": ("Run",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'gradformer' has no attribute {name!r}")
    return getattr(import_module(f"gradformer.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
