from __future__ import annotations

import dataclasses

import pytest

from kerneleval import devices
from kerneleval.devices.common.datasheet import PRODUCTS, product_of

MACHINE = dataclasses.replace(devices.find("cpu").machine(), device="cuda")


@pytest.mark.parametrize(
    ("name", "product"),
    [
        ("NVIDIA H200", "NVIDIA H200 SXM"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 SXM"),
        ("NVIDIA H100 PCIe", "NVIDIA H100 PCIe"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB SXM"),
        ("NVIDIA A100-PCIE-40GB", "NVIDIA A100 40GB"),
        ("NVIDIA L40S", "NVIDIA L40S"),
        ("NVIDIA L4", "NVIDIA L4"),
        ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", ""),
        ("NVIDIA H200 NVL", ""),
        ("AMD Instinct MI300X", "AMD Instinct MI300X"),
        ("AMD Instinct MI250X", "AMD Instinct MI250X, one of its two dies"),
        ("NVIDIA A10", ""),
    ],
)
def test_products_are_known_by_the_name_that_pytorch_tells(name: str, product: str) -> None:
    found = product_of(dataclasses.replace(MACHINE, name=name))
    assert (found.name if found else "") == product


def test_a_processor_is_no_accelerator() -> None:
    assert product_of(dataclasses.replace(MACHINE, device="cpu", name="NVIDIA H200")) is None


def test_figures_are_dense_and_in_order() -> None:
    for product in PRODUCTS:
        assert product.source
        assert product.figure("copy") == product.figure("read") == product.bandwidth_bytes_per_s
        assert 1e11 < product.bandwidth_bytes_per_s < 1e13
        half = product.figure("matrix/bfloat16")
        assert half == product.figure("matrix/float16") > product.figure("vector/float32") > 0, product.name
        eight = product.figure("matrix/float8_e4m3fn")
        assert eight == 0 or eight == pytest.approx(2 * half, rel=0.03), product.name
        assert product.figure("vector/int8") == 0
