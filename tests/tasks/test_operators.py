"""Every operator passes its own task's demands: it runs, it counts right, it depends on what it is given."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from kerneleval.records import CATEGORIES, DISTRIBUTIONS, DTYPES, LAYOUTS, Scalar
from kerneleval.tasks import all_tasks, find, shapes

from .conftest import BUDGET, NAMES, dims_of, drawn, nbytes, outputs, tensors

EVERY = pytest.mark.parametrize("name", NAMES)


@EVERY
def test_the_declaration_uses_the_vocabulary(name: str) -> None:
    task = find(name)
    assert task.category in CATEGORIES
    assert task.summary
    assert "\n" not in task.summary
    assert "=" in task.summary
    assert set(task.dtypes) <= set(DTYPES)
    assert set(task.distributions) <= set(DISTRIBUTIONS)
    assert set(task.layouts) <= set(LAYOUTS)
    assert "standard" in task.distributions
    assert len({r.name for r in task.relations}) == len(task.relations) > 0


@EVERY
def test_plain_arguments_fit_a_native_launcher(name: str) -> None:
    task = find(name)
    (dims,) = dims_of(task, "small")
    for arg in task.arguments(dims, "float32"):
        if isinstance(arg, Scalar):
            assert type(arg.value) in (bool, int, float), arg


@EVERY
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_the_reference_runs_in_every_dtype_close_to_float64(name: str, dtype: str) -> None:
    task = find(name)
    for dims in dims_of(task, "tiny", "small", "edge"):
        args = drawn(task, dims, dtype)
        result = outputs(task, args)
        exact = outputs(task, [a.double() if _floating(a) else a for a in args])
        assert all(e.dtype in (torch.float64, torch.int64) for e in exact)
        for got, want in zip(result, exact, strict=True):
            assert got.dtype == (torch.int64 if task.tolerance.kind == "index" else getattr(torch, dtype))
            assert torch.isfinite(want).all()
            if got.is_floating_point():
                eps = torch.finfo(got.dtype).eps
                # Looser than any judge: this says that it is the same operator, not how well it is computed.
                torch.testing.assert_close(got.double(), want, rtol=64 * eps, atol=64 * eps * want.abs().max().item())


@EVERY
def test_bytes_are_those_of_the_real_tensors(name: str) -> None:
    task = find(name)
    for dims in dims_of(task, "tiny", "small", "rectangular"):
        for dtype in ("float32", "bfloat16"):
            args = drawn(task, dims, dtype)
            result = outputs(task, args)
            assert task.bytes(dims, dtype) == nbytes(args) + nbytes(result)
            assert shapes.case_bytes(task, "forward", dims, dtype) == nbytes(args) + nbytes(result)
    differentiable = [args[i] for i, spec in tensors(task, dims) if spec.differentiable]
    assert shapes.case_bytes(task, "backward", dims, dtype) == nbytes(args) + 2 * nbytes(result) + nbytes(
        differentiable
    )


@pytest.mark.parametrize("name", [n for n in NAMES if find(n).category in ("gemm", "convolution", "attention")])
def test_flops_agree_with_torchs_counter(name: str) -> None:
    task = find(name)
    for dims in dims_of(task, "small", "medium"):
        args = drawn(task, dims, "float32")
        with (
            FlopCounterMode(display=False) as counter,
            torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
        ):
            result = outputs(task, args)
        counted = counter.get_total_flops()
        if task.category == "attention":
            exact = counted + 5 * counted // (4 * dims["D"])
            if name == "causal_attention":  # torch counts the hidden half too
                exact = exact * (dims["L"] + 1) // (2 * dims["L"])
            assert task.flops(dims) == pytest.approx(exact, rel=1e-6)
        elif name == "matvec":  # not in torch's table
            assert task.flops(dims) == 2 * args[0].numel()
        else:
            with_bias = any(spec.name == "bias" for _, spec in tensors(task, dims))
            assert task.flops(dims) == counted + with_bias * result[0].numel()


@EVERY
def test_flops_and_reduction_grow_with_the_dims(name: str) -> None:
    task = find(name)
    (small,), (large,) = dims_of(task, "small"), dims_of(task, "large")
    assert 0 < task.flops(small) <= BUDGET.flops
    assert task.flops(large) > 0
    if task.tolerance.reduction is not None:
        assert isinstance(task.tolerance.reduction(small), int)
        assert task.tolerance.reduction(small) >= 1


@EVERY
def test_every_differentiable_argument_has_a_gradient(name: str) -> None:
    task = find(name)
    if task.no_backward:
        assert not any(isinstance(o, torch.Tensor) and o.is_floating_point() for o in _small(name)[2])
        return
    for dims in dims_of(task, "tiny", "small"):
        for dtype in (*task.dtypes, "float64"):
            args = drawn(task, dims, dtype)
            wanted = [args[i].requires_grad_() for i, spec in tensors(task, dims) if spec.differentiable]
            assert wanted
            result = [o for o in outputs(task, args) if o.is_floating_point()]
            grads = torch.autograd.grad(result, wanted, [torch.randn_like(o) for o in result])
            for grad, arg in zip(grads, wanted, strict=True):
                assert grad.shape == arg.shape
                assert grad.dtype == arg.dtype
                assert torch.isfinite(grad).all()


@EVERY
def test_the_output_depends_on_every_input(name: str) -> None:
    task, args, result = _small(name)
    other = drawn(task, dims_of(task, "small")[0], "float32", seed=1)
    for i, spec in tensors(task, dims_of(task, "small")[0]):
        changed = outputs(task, [other[i] if j == i else a for j, a in enumerate(args)])
        assert any(not torch.equal(a, b) for a, b in zip(changed, result, strict=True)), spec.name


@EVERY
def test_the_output_is_neither_a_constant_nor_a_copy(name: str) -> None:
    _, args, result = _small(name)
    for out in result:
        assert out.numel() == 1 or out.double().std() > 1e-3 * out.double().abs().mean()
        for arg in args:
            if isinstance(arg, torch.Tensor) and arg.shape == out.shape:
                assert not torch.allclose(arg.double(), out.double())


@EVERY
def test_outputs_stay_near_unit_scale(name: str) -> None:
    task = find(name)
    if name in ("sum", "argmax"):  # a sum grows with the root of its length, an index with the length
        return
    for dims in dims_of(task, "medium", "non_power_of_two"):
        for out in outputs(task, drawn(task, dims, "float32")):
            assert 1e-3 < out.abs().mean() < 20


@EVERY
def test_arguments_are_left_as_they_were_and_outputs_are_fresh(name: str) -> None:
    task = find(name)
    dims = dims_of(task, "small")[0]
    args, again = drawn(task, dims, "float32"), drawn(task, dims, "float32")
    result = outputs(task, args)
    given = {a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor)}
    assert not given & {o.untyped_storage().data_ptr() for o in result}
    for a, b in zip(args, again, strict=True):
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


@pytest.mark.parametrize("name", [n for n in NAMES if find(n).empty])
def test_empty_cases_run_forward_in_every_dtype(name: str) -> None:
    task = find(name)
    plan = [c for c in shapes.plan(task, _FORWARD_EDGES, BUDGET) if 0 in c.dims_map.values()]
    assert plan
    for case in plan:
        args = drawn(task, case.dims_map, case.dtype)
        result = outputs(task, args)
        assert nbytes(args) + nbytes(result) == task.bytes(case.dims_map, case.dtype)
        assert all(torch.isfinite(o).all() for o in result)


@pytest.mark.slow
def test_outputs_of_empty_inputs_have_the_type_of_others() -> None:
    """PyTorch's bincount forgets the type of the weights where there are none: float32 was called wrong there."""
    for task in (task for task in map(find, all_tasks()) if task.empty and task.table.outputs):
        edges = shapes.plan(task, dataclasses.replace(_FORWARD_EDGES, dtypes=task.dtypes[:1]), BUDGET)
        results = [outputs(task, drawn(task, case.dims_map, case.dtype)) for case in edges]
        found = {tuple(out.dtype for out in result) for result in results}
        assert len(found) == 1, task.name


@pytest.mark.parametrize("name", [n for n in NAMES if "nonfinite" in find(n).distributions])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_nonfinite_inputs_give_what_float64_gives(name: str, dtype: str) -> None:
    task = find(name)
    dims = dims_of(task, "small")[0]
    args = drawn(task, dims, dtype)
    for i, spec in tensors(task, dims):
        if spec.role == "data":
            flat = args[i].view(-1)
            flat[2::1009] = float("nan")
            if spec.nonfinite == "ieee":
                flat[::61], flat[1::67] = float("inf"), float("-inf")
    wide = [a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
    for got, want in zip(outputs(task, args), outputs(task, wide), strict=True):
        if name == "argmax":
            assert torch.equal(got, want)
            continue
        assert want.isnan().any()
        if "matmul" in name and dtype == "bfloat16":  # oneDNN adds neighbours times zero where K is odd
            got = torch.where(want.isfinite() & got.isnan(), 0.0, got)
        assert torch.equal(got.isnan(), want.isnan())
        assert torch.equal(got.isposinf(), want.to(got.dtype).isposinf())
        assert torch.equal(got.isneginf(), want.to(got.dtype).isneginf())


@pytest.mark.parametrize("name", NAMES)
def test_zeros_give_finite_outputs_and_gradients(name: str) -> None:
    task = find(name)
    dims = dims_of(task, "small")[0]
    args = drawn(task, dims, "float32")
    for i, spec in tensors(task, dims):
        if spec.role == "data":
            args[i] = torch.zeros_like(args[i])
    assert all(torch.isfinite(o).all() for o in outputs(task, args))
    if task.no_backward:
        return
    wanted = [args[i].requires_grad_() for i, spec in tensors(task, dims) if spec.differentiable]
    result = [o for o in outputs(task, args) if o.is_floating_point()]
    assert all(
        torch.isfinite(g).all() for g in torch.autograd.grad(result, wanted, [torch.randn_like(o) for o in result])
    )


def test_the_gradient_of_amax_is_shared_between_equal_maxima() -> None:
    x = torch.tensor([[1.0, 3.0, 3.0, 2.0]], requires_grad=True)
    (grad,) = torch.autograd.grad(find("amax").reference(x), x, torch.ones(1))
    assert grad.tolist() == [[0.0, 0.5, 0.5, 0.0]]


def test_masked_attention_sees_only_the_allowed_keys() -> None:
    task = find("masked_attention")
    q, k, v, mask, scale = drawn(task, {"B": 2, "H": 3, "L": 5, "S": 8, "D": 16}, "float64")
    mask[0, :, 4:], mask[0, :, :4] = False, True
    mask[1] = True
    out = task.reference(q, k, v, mask, scale)
    k[0, :, 4:], v[0, :, 4:] = 100, -100
    torch.testing.assert_close(task.reference(q, k, v, mask, scale), out)
    v[1, :, 7:] = -100
    assert not torch.allclose(task.reference(q, k, v, mask, scale)[1], out[1])


def test_grouped_query_attention_shares_each_key_head_among_neighbours() -> None:
    task = find("grouped_query_attention")
    q, k, v, scale = drawn(task, {"B": 2, "G": 3, "R": 2, "L": 5, "S": 7, "D": 16}, "float64")
    wide = find("attention").reference(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), scale)
    torch.testing.assert_close(task.reference(q, k, v, scale), wide)


def _floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _small(name: str) -> tuple[Any, list[Any], list[torch.Tensor]]:
    task = find(name)
    args = drawn(task, dims_of(task, "small")[0], "float32")
    return task, args, outputs(task, args)


_FORWARD_EDGES = shapes.Protocol(directions=("forward",), categories=("edge",))
