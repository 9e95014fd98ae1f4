"""GPU architectures for which candidates are compiled, with what a kernel may take there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kerneleval.records import UsageError, near


@dataclass(frozen=True, kw_only=True)
class Target:
    """One architecture."""

    name: str
    """``sm_90`` or ``gfx942``."""
    product: str
    """A GPU of it, whose figures a candidate gets from PyTorch while it is compiled."""
    warp: int
    """Threads of a warp (wavefront)."""
    shared_bytes: int
    """Most shared memory that a block may have."""
    units: int
    """Multiprocessors (compute units, as PyTorch counts them) of the product."""
    memory_bytes: int
    """Of the product."""

    @property
    def vendor(self) -> str:
        """``nvidia`` or ``amd``."""
        return "nvidia" if self.name.startswith("sm_") else "amd"

    @property
    def capability(self) -> tuple[int, int]:
        """What PyTorch gives as compute capability: of NVIDIA's (9, 0) for sm_90, of AMD's (9, 4) for gfx942."""
        number = self.name.removeprefix("sm_") if self.vendor == "nvidia" else self.name.removeprefix("gfx")[:-1]
        return int(number[:-1]), int(number[-1])


# Shared memory: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" (maximum amount of shared
# memory per thread block); AMD's CDNA 3 and CDNA 4 ISA guides and whitepapers (LDS of a compute unit). The rest: data
# sheets of the products.
TARGETS: dict[str, Target] = {
    name: Target(
        name=name,
        product=product,
        warp=warp,
        shared_bytes=shared_kib << 10,
        units=units,
        memory_bytes=memory_gib << 30,
    )
    for name, product, warp, shared_kib, units, memory_gib in (
        ("sm_75", "NVIDIA T4", 32, 64, 40, 16),
        ("sm_80", "NVIDIA A100", 32, 163, 108, 80),
        ("sm_86", "NVIDIA A40", 32, 99, 84, 48),
        ("sm_89", "NVIDIA L40S", 32, 99, 142, 48),
        ("sm_90", "NVIDIA H100", 32, 227, 132, 80),
        ("sm_100", "NVIDIA B200", 32, 227, 148, 180),
        ("sm_120", "NVIDIA GeForce RTX 5090", 32, 99, 170, 32),
        ("gfx90a", "AMD Instinct MI210", 64, 64, 104, 64),
        ("gfx942", "AMD Instinct MI300X", 64, 64, 304, 192),
        ("gfx950", "AMD Instinct MI355X", 64, 160, 256, 288),
        ("gfx1100", "AMD Radeon RX 7900 XTX", 32, 64, 48, 24),
        ("gfx1201", "AMD Radeon RX 9070 XT", 32, 64, 32, 16),
    )
}
"""By name."""


def find_targets(names: Sequence[str]) -> tuple[Target, ...]:
    """The targets of that name; all of them where none is named. Raises UsageError: an unknown name."""
    for name in names:
        if name not in TARGETS:
            raise UsageError(f"target {name!r:.80} is unknown; {near(name, TARGETS)}")
    return tuple(TARGETS[name] for name in dict.fromkeys(names)) if names else tuple(TARGETS.values())
