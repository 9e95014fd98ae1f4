"""What vendors say of their products: shown beside measured peaks, and never used as a limit.

Peak rates are dense ones (no 2:4 sparsity), matrix products accumulate in float32 where they can. A figure stands here
only as far as its maker's statement of it was found quoted; each product names the document and who quotes it. What no
source gave (float64 of AMD's MI300X, MI325X and MI355X, vector rates in half precision of the H100 PCIe) is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kerneleval.records import Machine


@dataclass(frozen=True, kw_only=True)
class Product:
    """One product's figures."""

    name: str
    pattern: str
    """Regular expression that its device name, as PyTorch gives it, matches somewhere; case does not count."""
    source: str
    """The maker's document, and where it was read."""
    bandwidth_bytes_per_s: float
    """Of the device's memory."""
    rates: tuple[tuple[str, float], ...]
    """(name of a peak such as ``matrix/bfloat16``, operations a second)."""

    def figure(self, peak: str) -> float:
        """The figure beside a peak of that name; 0: none is stated."""
        if peak in ("copy", "read", "write", "triad"):
            return self.bandwidth_bytes_per_s
        return dict(self.rates).get(peak, 0.0)


def _product(
    name: str, pattern: str, source: str, tb_per_s: float, matrix: Mapping[str, float], vector: Mapping[str, float]
) -> Product:
    """Figures in 10^12 a second."""
    rates = [*((f"matrix/{k}", v) for k, v in matrix.items()), *((f"vector/{k}", v) for k, v in vector.items())]
    return Product(
        name=name,
        pattern=pattern,
        source=source,
        bandwidth_bytes_per_s=tb_per_s * 1e12,
        rates=tuple((key, round(value * 1e12, -8)) for key, value in rates),
    )


_HALF, _BYTE = ("float16", "bfloat16"), ("float8_e4m3fn", "int8")
_HOPPER_MATRIX = {"float64": 66.9, "tf32": 494.7, **dict.fromkeys(_HALF, 989.4), **dict.fromkeys(_BYTE, 1978.9)}
_HOPPER_VECTOR = {"float64": 33.5, "float32": 66.9, **dict.fromkeys(_HALF, 133.8)}
_CDNA3_MATRIX = {"float32": 163.4, "tf32": 653.7, **dict.fromkeys(_HALF, 1307.4), **dict.fromkeys(_BYTE, 2614.9)}
_CDNA3_VECTOR = {"float32": 163.4}
_HOPPER = "NVIDIA H100 architecture white paper, as quoted at glennklockwood.com/garden/processors/h100"
_CDNA3 = "AMD's figures of MI325X, whose rates are MI300X's, as quoted at awesomeagents.ai/hardware/amd-mi325x"

PRODUCTS: tuple[Product, ...] = (
    _product(
        "NVIDIA H200 SXM", r"\bH200\b(?!.*NVL)", f"{_HOPPER}, rates as of H100 SXM", 4.8, _HOPPER_MATRIX, _HOPPER_VECTOR
    ),
    _product(
        "NVIDIA H100 PCIe",
        r"\bH100 PCIe",
        "NVIDIA H100 data sheet, halved where with sparsity, as quoted at archive-lib.hpctech.co.jp",
        2.0,
        {"float64": 51.0, "tf32": 378.0, "float16": 756.5, "bfloat16": 756.5, "float8_e4m3fn": 1513.0, "int8": 1513.0},
        {"float64": 26.0, "float32": 51.0},
    ),
    _product("NVIDIA H100 SXM", r"\bH100\b.*\b80GB HBM3\b", _HOPPER, 3.35, _HOPPER_MATRIX, _HOPPER_VECTOR),
    *(
        _product(
            f"NVIDIA A100 {name}",
            rf"\bA100-{pattern}",
            "NVIDIA A100 data sheet, as quoted at glennklockwood.com/garden/processors/A100; half: hmc-tech.com",
            bandwidth,
            {"float64": 19.5, "tf32": 156.0, "float16": 312.0, "bfloat16": 312.0, "int8": 624.0},
            {"float64": 9.7, "float32": 19.5, "float16": 78.0, "bfloat16": 39.0},
        )
        for name, pattern, bandwidth in (
            ("40GB", r"(SXM4|PCIE)-40GB", 1.555),
            ("80GB SXM", "SXM4-80GB", 2.039),
            ("80GB PCIe", "PCIE-80GB", 1.935),
        )
    ),
    _product(
        "NVIDIA L40S",
        r"\bL40S\b",
        "NVIDIA L40S data sheet, as quoted at mullet.se; int8: store.sourcecode.com",
        0.864,
        {"tf32": 183.0, "float16": 362.05, "bfloat16": 362.05, "float8_e4m3fn": 733.0, "int8": 733.0},
        {"float32": 91.6},
    ),
    _product(
        "NVIDIA L4",
        r"\bL4\b",
        "NVIDIA L4 data sheet, halved where with sparsity, as quoted at store.sourcecode.com and grokipedia.com",
        0.3,
        {"tf32": 60.0, "float16": 121.0, "bfloat16": 121.0, "float8_e4m3fn": 242.5, "int8": 242.5},
        {"float32": 30.3},
    ),
    _product(
        "NVIDIA GeForce RTX 4090",
        r"\bRTX 4090\b(?!.*(D|Laptop))",
        "NVIDIA's figures as quoted at waredb.com/processor/nvidia-geforce-rtx-4090",
        1.008,
        {"tf32": 82.6, "float16": 165.2, "bfloat16": 165.2, "float8_e4m3fn": 330.3, "int8": 660.6},
        {"float32": 82.6, "float16": 82.6, "bfloat16": 82.6},
    ),
    _product(
        "AMD Instinct MI210",
        r"\bMI210\b",
        "AMD's figures as quoted at anandtech.com (17326, release of MI210)",
        1.6,
        {"float64": 45.3, "float32": 45.3, "float16": 181.0, "bfloat16": 181.0, "int8": 181.0},
        {"float64": 22.6, "float32": 22.6},
    ),
    _product(
        "AMD Instinct MI250X, one of its two dies",
        r"\bMI250X\b",
        "AMD's figures as quoted at zexron.com, halved: PyTorch sees each die as a device",
        1.6,
        {"float64": 47.85, "float32": 47.85, "float16": 191.5, "bfloat16": 191.5, "int8": 191.5},
        {"float64": 23.95, "float32": 23.95},
    ),
    _product("AMD Instinct MI300X", r"\bMI300X\b", _CDNA3, 5.3, _CDNA3_MATRIX, _CDNA3_VECTOR),
    _product("AMD Instinct MI325X", r"\bMI325X\b", _CDNA3, 6.0, _CDNA3_MATRIX, _CDNA3_VECTOR),
    _product(
        "AMD Instinct MI355X",
        r"\bMI355X\b",
        "AMD's figures as quoted at svethardware.cz (61870); half: its 2.5 PFLOP/s by units and clock",
        8.0,
        {"float16": 2516.6, "bfloat16": 2516.6, "float8_e4m3fn": 5033.2, "int8": 5033.2},
        {"float32": 157.3},
    ),
)
"""Every product, the more particular patterns first."""


def product_of(machine: Machine) -> Product | None:
    """The product whose pattern a machine's device name matches; None: it is not in the table."""
    if machine.device == "cpu":
        return None
    return next((p for p in PRODUCTS if re.search(p.pattern, machine.name, re.IGNORECASE)), None)
