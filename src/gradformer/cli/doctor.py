"""``gradformer doctor``: what works on this machine, and why something does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from gradformer.cli.tables import fact_table, show

if TYPE_CHECKING:
    import torch

LIBRARIES = {
    "torch": "the models",
    "torch_geometric": "datasets, convolutions (their sums on a GPU promise no fixed bits)",
    "numba": "attention on a CPU (else torch), shortest paths (else scipy)",
    "triton": "the fused engine; pip install 'gradformer[gpu]'",
    "rdkit": "SMILES; pip install 'gradformer[chem]'",
    "pyarrow": "parquet tables; pip install 'gradformer[parquet]'",
    "tensorboard": "curves for TensorBoard",
}
ENGINES = {
    "reference": "",
    "fused": "",
    "auto": "what is used unless you choose: fused on a GPU, loops of numba on a CPU",
}


def doctor() -> None:
    """Say what is installed, which device is used, and which engines work; if not, why.

    An engine works if it gives what the reference gives, gradients too, on a small batch for each
    of its kernels, tried here and now.

    Example: [bold]gradformer doctor[/bold]
    """
    import os
    import platform

    import torch

    from gradformer.attention.selfcheck import why_not
    from gradformer.graphs.mirror import cache_folder
    from gradformer.training.distributed import find_device
    from gradformer.training.records import installed

    device = find_device()
    table = fact_table(3)
    table.add_row("python", platform.python_version())
    for library, purpose in {"gradformer": "", **LIBRARIES}.items():
        table.add_row(library, installed(library) or "not installed", purpose)
    table.add_row("device", _describe(device))
    table.add_row("threads", f"{torch.get_num_threads()} of {os.cpu_count()} cores")
    for engine, purpose in ENGINES.items():
        reason = why_not(engine, device)
        works = Text("works", "green") if reason is None else "no"
        table.add_row(f"engine {engine}", works, reason or purpose)
    table.add_row("raw data", os.environ.get("GRADFORMER_DATA", "fetched"), "GRADFORMER_DATA")
    table.add_row("cache", str(cache_folder()), "GRADFORMER_CACHE")
    show(table)


def _describe(device: torch.device) -> str:
    import torch

    if device.type != "cuda":
        return "cpu (no CUDA device is visible to torch)"
    properties = torch.cuda.get_device_properties(device)
    return f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
