"""The tiles of kernels, which follow from shapes and types alone, and how they multiply float32."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gradformer.attention.compiling import constant_when_compiled

CORES = 32  # up to so many channels, the tiled kernels put float32 on tensor cores


@constant_when_compiled  # a compiled graph is made anew when the switch is set
def precision() -> str:
    """How float32 products are made: torch's own switch, ``ieee`` unless tf32 is allowed."""
    switch = getattr(torch.backends.cuda.matmul, "fp32_precision", None)  # torch 2.9 and later
    if switch is None:
        return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"
    return "tf32" if switch == "tf32" else "ieee"


@dataclass(frozen=True)
class Tiles:
    """Queries and keys of a tile, warps, stages of the pipeline, registers a thread may have."""

    m: int
    n: int
    warps: int = 4
    stages: int = 2
    registers: int | None = None

    @property
    def options(self) -> dict[str, int | None]:
        return {
            "BLOCK_M": self.m,
            "BLOCK_N": self.n,
            "num_warps": self.warps,
            "num_stages": self.stages,
            "maxnreg": self.registers,
        }


# Narrow tiles where the wide way of ``pairs`` is not taken: the smallest devices have 99 KiB of
# shared memory for a program. So do float32 tiles, whose halves take many registers; their two
# warps keep to the tensor cores' older way, in which a warp has 16 rows and waits for no other.


def float32_tiles(d: int, registers: int | None = None) -> Tiles:
    return Tiles(32, 32, warps=2, registers=registers) if d <= CORES else Tiles(32, 32)


def forward_tiles(dtype: torch.dtype, d: int, wide: int) -> Tiles:
    if dtype == torch.float32:
        return float32_tiles(d)
    if not wide:
        return Tiles(64, 32)
    return Tiles(64, 128, registers=168) if d <= 32 else Tiles(64, 64)


def query_tiles(dtype: torch.dtype, d: int, wide: int) -> Tiles:
    if dtype == torch.float32:
        return float32_tiles(d, registers=168 if d <= 16 else None)
    if not wide:
        return Tiles(64, 32)
    # 3 stages: with 2, a tile of 64 channels leaves no room for tables, see pairs.RESERVE
    return Tiles(64, 64, stages=3 if 32 < d <= 64 else 2, registers=168 if d <= 64 else None)


def key_tiles(dtype: torch.dtype, d: int, wide: int) -> Tiles:
    if dtype == torch.float32:
        return float32_tiles(d, registers=168 if d <= 16 else None)
    if not wide:
        return Tiles(32, 64)
    return Tiles(64, 64, registers=168 if d <= 32 else None)


def block_of(size: int, least: int = 16) -> int:
    """The side of a tile that holds ``size``: a power of two, no less than ``least``."""
    return max(least, 1 << (size - 1).bit_length())
