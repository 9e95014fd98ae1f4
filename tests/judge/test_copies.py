"""Numbers that lay in the arguments of kernels before one wrote them. Whole candidates: ``tests/attacks/track``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from kerneleval.judge.checks.common.copies import Copies
from kerneleval.worker.contents import Contents

X = torch.randn(8, 16)
OUT = X.sigmoid()


def copies(
    *shown: tuple[Any, bool],
    out: torch.Tensor = OUT,
    given: torch.Tensor = X,
    memory: torch.Tensor | None = None,
    whole: bool = False,
) -> Copies:
    contents, found = Contents(memory), Copies(whole=whole)
    for values, after in shown:
        contents.keep(values, after)
    found.add([out], [given], contents.rows)
    return found


@pytest.mark.parametrize(
    "held",
    [
        OUT,
        OUT.numpy(),
        OUT.t(),
        OUT.t().contiguous(),
        OUT.double(),
        OUT.view(torch.int32),
        OUT.numpy().view(np.uint8),
        torch.cat([torch.randn(1000), OUT.flatten()]),
        [(OUT[:4],), {"rest": OUT[4:].numpy()}],
        X.double().sigmoid(),
        OUT.clone().requires_grad_(),
    ],
    ids=[
        "tensor",
        "array",
        "view",
        "transposed",
        "wide",
        "bits",
        "bytes",
        "amid others",
        "in parts",
        "computed wide",
        "parameter",
    ],
)
def test_what_comes_out_lay_there_before(held: Any) -> None:
    assert copies(((held, torch.empty(3)), False), ((held, OUT), True)).are_all


def test_what_kernels_wrote_or_were_given_is_their_own() -> None:
    assert not copies(((X, torch.zeros(8, 16)), False), ((X, OUT), True), ((OUT,), False)).are_all
    assert not copies(((X.clone(),), False), out=X[:, :8].t().contiguous()).are_all, "of its inputs"
    assert not copies(((X.clone(),), False), out=X[2:5]).is_clear, "of its inputs, as they are"
    assert not copies(((X.t(),), False), out=X.t(), memory=X.view(-1)).are_all, "a view of its inputs"
    assert not copies(((torch.arange(128).flip(0),), False), out=torch.arange(128.0)).are_all, "whole numbers"
    assert not copies(((OUT[:3],), False)).are_all, "a part"
    odd = (3, "text", None, torch.empty(0), torch.ones(3, dtype=torch.float8_e4m3fn), np.array([None]))
    assert not copies(((torch.full((4,), float("nan")), *odd), False)).are_all


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_outputs_lay_there_as_they_are(dtype: torch.dtype) -> None:
    """Where what comes out are numbers of the inputs: sorted, padded, gathered."""
    given = X.to(dtype)
    out = given.sort(-1)[0]
    for held in (out, out.view(torch.uint8), torch.cat([given, out]), *([out.double()] * (dtype != torch.bfloat16))):
        assert copies(((held, torch.empty(3)), False), ((out,), True), out=out, given=given).are_all
    assert not copies(((given.clone(),), False), ((out,), True), ((out,), False), out=out, given=given).are_all
    places = given.argsort(-1)
    assert copies(((places,), False), out=places, given=given).are_all


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_factor_and_an_offset_are_no_work(dtype: torch.dtype) -> None:
    given, out = X.to(dtype), OUT.to(dtype)
    for held in (out.float() * 1.001, OUT.double() * -3 + 1, OUT.half() + OUT.half() * 0.01):
        assert copies(((held, torch.empty(3)), False), ((held, out), True), out=out, given=given).are_all
    assert not copies(((out.float() + torch.randn(8, 16) / 20,), False), out=out, given=given).are_all
    written = ((given.clone(),), False), ((out.float(),), True), ((out.float() * 2,), False)
    assert not copies(*written, out=out, given=given).are_all
    for held in (given.t().float().contiguous(), given.t().half(), given.t().double()):
        assert not copies(((held,), False), out=given.t() * 2 + 1, given=given).are_all, "copies of its inputs"


def test_behind_a_library_a_kernel_may_change_few_numbers() -> None:
    product = torch.randn(8, 16)
    assert copies(((product,), False), out=product, whole=True).are_all
    assert not copies(((product,), False), out=product.relu(), whole=True).are_all
    assert not copies(((product,), False), out=product * 2, whole=True).are_all


def test_a_few_numbers_are_not_enough() -> None:
    few = copies(((OUT[0, :4],), False), out=OUT[0, :4])
    assert not few.is_clear
    assert not few.are_all
    for _ in range(2):
        contents = Contents()
        out = torch.randn(4)
        contents.keep((out,), False)
        few.add([out], (), contents.rows)
    assert few.are_all


def test_narrow_and_large_outputs_are_not_looked_for() -> None:
    assert Copies.fit([OUT, OUT])
    assert not copies(((OUT.half(),), False), out=OUT.half().t().contiguous(), given=X.half()).are_all
    assert not Copies.fit([torch.empty(0)])
    assert not Copies.fit([OUT.expand(1 << 10, 8, 16)])
    contents = Contents()
    contents.keep((torch.empty(1, device="meta").expand(1 << 40), np.broadcast_to(np.float32(1), (1 << 40,))), False)
    assert contents.rows == []


def test_a_worker_may_say_anything() -> None:
    found = Copies()
    found.add([OUT], [], [None, {"data": "?"}, {"data": 3}, {"data": "AAAA", "after": "x"}])
    assert found.found == 0
    found.add([OUT], [], {"no": "list"})
    assert found.found == 0


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.complex64, torch.complex128, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn),
        *(torch.float8_e5m2, torch.int64, torch.int8, torch.uint8),
    ],
)
def test_outputs_of_every_type_are_looked_for(dtype: torch.dtype) -> None:
    """A complex one ended in an internal error."""
    values = torch.randn(8, 16).abs() * 10
    out, given = values.to(dtype), torch.complex(X, X) if dtype.is_complex else X.to(dtype)
    bits = out.view(torch.uint8) if dtype.itemsize == 1 else out
    for whole in (False, True):
        assert copies(((bits,), False), out=out, given=given, whole=whole).are_all
        assert not copies(((X.clone(), X.double()), False), out=out, given=given, whole=whole).are_all
    assert not copies(((torch.ones(128, dtype=torch.bool),), False), out=torch.ones(128, dtype=torch.bool)).are_all


@pytest.mark.filterwarnings("error")
def test_integers_that_are_the_bits_of_a_signalling_nan_warn_of_nothing() -> None:
    integers = torch.full((128,), 0x7FA00001, dtype=torch.int32)
    assert not copies((integers, False)).are_all
