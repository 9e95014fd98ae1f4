"""Every OpenCL kernel of the archetypes against PyTorch in fp64, beside PyTorch's own fp32 error."""

from __future__ import annotations

import pytest
import torch
from tests.generators.test_archetypes_cpu import (
    ARCHETYPES,
    assert_as_good,
    draw,
    gradients,
    in_fp64,
    listed,
    sizes,
)

from kerneleval import generators, languages, tasks
from kerneleval.generators.archetypes import SUITE
from kerneleval.languages import OutputSpec
from kerneleval.languages.common import opencl_runtime

if reason := opencl_runtime.unusable():
    pytest.skip(f"not run: {reason}", allow_module_level=True)

MADE = {
    (name, task): made[0]
    for name in ARCHETYPES
    for task in SUITE
    if (made := list(generators.find(name).candidates(tasks.find(task), "opencl")))
}
LEAST = {
    "baseline": {"gelu", "silu", "amax", "logsumexp", "softmax_cross_entropy", "rms_norm"},
    "fragile": {"amax", "logsumexp", "rms_norm"},
    "robust": {"gelu", "silu", "swiglu", "amax", "logsumexp", "softmax_cross_entropy", "rms_norm"},
}


def test_each_covers_its_operators() -> None:
    for name in ARCHETYPES:
        assert {task for n, task in MADE if n == name} == LEAST[name]


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    """(archetype, task) -> the candidate, loaded once, which compiles it as building does."""
    loaded = {}

    def get(name, task):
        if (name, task) not in loaded:
            language, candidate = languages.find("opencl"), MADE[name, task]
            folder = tmp_path_factory.mktemp(name)
            if not loaded:
                language.build(candidate, folder, "opencl", "")
            loaded[name, task] = language.load(candidate, folder, "opencl", names=(task,))
        return loaded[name, task]

    return get


def specs(wanted):
    return [OutputSpec(shape=tuple(w.shape), dtype=str(w.dtype)[6:]) for w in wanted]


def forward(loaded, args, wanted, dims):
    return listed(loaded.forward(args, specs(wanted), dims))


@pytest.mark.slow(every=8)
@pytest.mark.parametrize(("name", "task_name"), MADE)
def test_forward_as_good_as_torch(load, name, task_name):
    task = tasks.find(task_name)
    for dims in sizes(task):
        for scale in (1.0, 1e3, 1e-3):
            args = draw(task, dims, scale)
            native = listed(task.reference(*args))
            got = forward(load(name, task_name), args, native, dims)
            oracle = listed(task.reference(*in_fp64(args)))
            assert_as_good(got, native, oracle, f"{name} {task_name} {dims} x{scale}")


@pytest.mark.slow(every=5)
@pytest.mark.parametrize(("name", "task_name"), [key for key in MADE if "_backward" in MADE[key].main])
def test_backward_as_good_as_torch(load, name, task_name):
    task = tasks.find(task_name)
    for dims in sizes(task):
        args = draw(task, dims)
        generator = torch.Generator().manual_seed(3)
        upstream = [torch.randn(o.shape, generator=generator) for o in listed(task.reference(*args))]
        native = gradients(task, args, upstream, dims)
        oracle = gradients(task, in_fp64(args), in_fp64(upstream), dims)
        got = load(name, task_name).backward(upstream, args, specs(native), dims)
        assert_as_good(got, native, oracle, f"{name} {task_name} backward {dims}")


@pytest.mark.parametrize(("name", "task_name"), MADE)
def test_empty_sizes(load, name, task_name):
    task = tasks.find(task_name)
    if not task.empty:
        pytest.skip("not run: the task has no empty sizes")
    loaded = load(name, task_name)
    for dims in ({"M": 0, "N": 64}, {"M": 0, "N": 7}, {"M": 5, "N": 0}):
        if task.constraint is not None and not task.constraint(dims):
            continue
        args = draw(task, dims)
        want = listed(task.reference(*args))
        for g, w in zip(forward(loaded, args, want, dims), want, strict=True):
            assert torch.equal(g, w), dims
        if loaded.backward is not None:
            upstream = [torch.randn(o.shape) for o in want]
            want = gradients(task, args, upstream, dims)
            for g, w in zip(loaded.backward(upstream, args, specs(want), dims), want, strict=True):
                assert torch.equal(g, w), dims


@pytest.mark.parametrize("name", ARCHETYPES)
@pytest.mark.parametrize("dims", [{"M": 6, "N": 70}, {"M": 64, "N": 64}])
def test_infinities_and_nan(load, name, dims):
    for task_name in ("silu", "amax", "logsumexp"):
        if (name, task_name) not in MADE:
            continue
        task = tasks.find(task_name)
        (x,) = draw(task, dims)
        x[0, 3], x[1, 5], x[2, 69 % dims["N"]] = float("nan"), float("inf"), float("-inf")
        x[3] = float("-inf")
        x[4, 0], x[4, 1] = float("inf"), float("nan")
        want = task.reference(x)
        (got,) = forward(load(name, task_name), [x], [want], dims)
        torch.testing.assert_close(got, want, equal_nan=True, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ARCHETYPES)
def test_gradient_of_ties_is_shared(load, name):
    x = torch.tensor([[1.0, 3.0] * 35, [2.0] * 70, [-5.0] * 69 + [0.0]])
    for data in (x, torch.cat([x, x], 1)[:, :64].contiguous()):
        dims = {"M": 3, "N": data.shape[1]}
        g = torch.tensor([1.0, -2.0, 3.0])
        want = gradients(tasks.find("amax"), [data], [g], dims)
        got = load(name, "amax").backward([g], [data], specs(want), dims)
        torch.testing.assert_close(got[0], want[0], rtol=1e-6, atol=0)


def test_exponentials_over_the_whole_range(load):
    x = torch.linspace(-110, 0, 100_001)[None]
    x[0, -1] = 0
    for name in ("baseline", "robust"):
        (got,) = load(name, "logsumexp").backward([torch.ones(1)], [x], specs([x]), {"M": 1, "N": x.shape[1]})
        want = torch.softmax(x.double(), -1)
        normal = want > 1.2e-38
        assert ((got.double() - want).abs() / want)[normal].max() < 5e-7
        assert (got.double() - want).abs()[~normal].max() < 3e-45
