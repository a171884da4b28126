"""``gradformer doctor``: what works on this machine, and why something does not."""

from __future__ import annotations

from typing import Any

from rich.markup import escape

from gradformer.cli.tables import fact_table, show

LIBRARIES = {
    "torch": "the models",
    "torch_geometric": "datasets, convolutions (their sums on a GPU promise no fixed bits)",
    "numba": "fast shortest paths (else scipy)",
    "triton": "the fused engine; pip install 'gradformer[gpu]'",
    "rdkit": "SMILES; pip install 'gradformer[chem]'",
    "pyarrow": "parquet tables; pip install 'gradformer[parquet]'",
    "tensorboard": "curves for TensorBoard",
}


def doctor() -> None:
    """Say what is installed, which device is used, and which engines work; if not, why.

    An engine works if it gives what the reference gives on a small batch, tried here and now.

    Example: [bold]gradformer doctor[/bold]
    """
    import os
    import platform

    import torch

    from gradformer.graphs.mirror import cache_folder
    from gradformer.training.distributed import find_device

    device = find_device()
    table = fact_table(3)
    table.add_row("python", platform.python_version())
    for library, purpose in {"gradformer": "", **LIBRARIES}.items():
        table.add_row(library, _installed(library), escape(purpose))
    table.add_row("device", _describe(device))
    table.add_row("threads", f"{torch.get_num_threads()} of {os.cpu_count()} cores")
    for engine in ("reference", "fused"):
        reason = why_not(engine, device)
        table.add_row(
            f"engine {engine}", "[green]works[/]" if reason is None else "no", escape(reason or "")
        )
    table.add_row("raw data", os.environ.get("GRADFORMER_DATA", "fetched"), "GRADFORMER_DATA")
    table.add_row("cache", str(cache_folder()), "GRADFORMER_CACHE")
    show(table)


def why_not(engine: str, device: Any) -> str | None:
    """Why ``engine`` cannot be used on ``device``, found by trying; None if it works."""
    import torch

    from gradformer.attention import Layout, decay_attention, use_engine
    from gradformer.errors import GradformerError

    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 12, 2, 8, generator=generator).to(device)
    layout = Layout.from_sizes([5, 7], device=device)
    distance = torch.randint(0, 6, (25 + 49,), generator=generator).byte().to(device)
    mul = (0.6 ** torch.arange(256.0)).expand(2, 256).contiguous().to(device)
    try:
        with use_engine("reference"):
            expected = decay_attention(q, k, v, layout, distance, mul, None)
        with use_engine(engine):
            found = decay_attention(q, k, v, layout, distance, mul, None)
    except GradformerError as error:
        return str(error)
    except Exception as error:  # a compiler that is missing has many faces
        return f"{type(error).__name__}: {error}".split("\n")[0]
    gap = float((found - expected).abs().max())
    return None if gap < 1e-4 else f"gives other results than the reference (by {gap:.1e})"


def _installed(library: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(library)
    except PackageNotFoundError:
        return "not installed"


def _describe(device: Any) -> str:
    import torch

    if device.type != "cuda":
        return "cpu (no CUDA device is visible to torch)"
    properties = torch.cuda.get_device_properties(device)
    return f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
