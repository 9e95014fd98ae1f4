"""Every C++ kernel of the archetypes against PyTorch in fp64, beside PyTorch's own fp32 error."""

import ctypes
import subprocess
from importlib import resources
from pathlib import Path

import pytest
import torch

from kerneleval import generators, languages, tasks
from kerneleval.generators.archetypes import SUITE
from kerneleval.languages.cpp import DEFAULT_FLAGS
from kerneleval.records import TensorSpec

ARCHETYPES = ("baseline", "fragile", "robust")
ROWS = [(1, 4), (3, 7), (5, 16), (33, 129), (2, 1000), (64, 64), (128, 256), (512, 512), (4, 8192), (1100, 12)]
ROWS += [(6, 9001)]
CHANNELS = {
    "group_norm": [(1, 1, 1, 4), (2, 3, 2, 5), (3, 4, 5, 33), (2, 8, 64, 128), (8, 2, 1, 700)],
    "batch_norm": [(1, 1, 4), (2, 3, 5), (31, 5, 33), (16, 64, 128), (1, 200, 257)],
}


@pytest.fixture(scope="module", autouse=True)
def _needs_compiler():
    if missing := languages.find("cpp").missing("cpu"):
        pytest.skip(missing)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """All kernels of one archetype, built at once: a candidate's text is a part of this one."""
    built = {}

    def build(name):
        if name not in built:
            folder = tmp_path_factory.mktemp(name)
            files = resources.files("kerneleval.generators.archetypes")
            source = folder / "all.cpp"
            source.write_text("".join(files.joinpath(f).read_text() for f in ("common.cpp", f"{name}.cpp")))
            target = folder / "all.so"
            flags = [f for f in DEFAULT_FLAGS if f != "-O3"]
            subprocess.run(["g++", *flags, "-O2", "-shared", "-fPIC", "-o", target, source], check=True)
            built[name] = ctypes.CDLL(str(target))
        return built[name]

    return build


def covered(direction):
    found = []
    for name in ARCHETYPES:
        for task in SUITE:
            made = list(generators.find(name).candidates(tasks.find(task), "cpu"))
            symbol = f"{task}_backward_float32(" if direction == "backward" else f"{task}_float32("
            if made and symbol in made[0].main:
                found.append((name, task))
    return found


def sizes(task):
    shapes = CHANNELS.get(task.name, ROWS)
    return [dict(zip([dim.name for dim in task.dims], shape, strict=True)) for shape in shapes]


def draw(task, dims, scale=1.0, dtype="float32"):
    generator = torch.Generator().manual_seed(7)
    args = []
    for spec in task.arguments(dims, dtype):
        if not isinstance(spec, TensorSpec):
            args.append(spec.value)
        elif spec.values == "integers":
            args.append(torch.randint(spec.low, max(spec.high, 1), spec.shape, generator=generator))
        elif spec.values == "ones_normal":
            args.append(1 + 0.1 * torch.randn(spec.shape, generator=generator))
        else:
            args.append(torch.randn(spec.shape, generator=generator) * (scale if spec.role == "data" else 1.0))
    return args


def in_fp64(values):
    return [v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in values]


def listed(value):
    return list(value) if isinstance(value, tuple) else [value]


def call(function, values, outputs, dims):
    kept = [v.contiguous() if isinstance(v, torch.Tensor) else v for v in values]
    made = [torch.full(o.shape, float("nan")).to(o.dtype) if o.is_floating_point() else torch.full_like(o, -1)
            for o in outputs]  # fmt: skip
    given = [
        ctypes.c_void_p(v.data_ptr()) if isinstance(v, torch.Tensor) else (ctypes.c_double if isinstance(v, float)
        else ctypes.c_int64)(v) for v in [*kept, *made]
    ]  # fmt: skip
    assert function(*given, *(ctypes.c_int64(v) for v in dims.values()), None) == 0
    return made


def gradients(task, args, upstream, dims):
    args = list(args)
    wanted = [
        i for i, s in enumerate(task.arguments(dims, "float32")) if isinstance(s, TensorSpec) and s.differentiable
    ]
    for i in wanted:
        args[i] = args[i].detach().clone().requires_grad_()
    return list(torch.autograd.grad(listed(task.reference(*args)), [args[i] for i in wanted], upstream))


def assert_as_good(got, native, oracle, what):
    """The largest error is at most four times PyTorch's own, or a few roundings of the largest magnitude."""
    for g, n, o in zip(got, native, oracle, strict=True):
        if g.numel() == 0:
            continue
        scale = o.abs().max().clamp_min(1e-30)
        error, own = ((t.double() - o).abs().max() / scale for t in (g, n))
        assert error <= max(4 * own, 3e-7), f"{what}: error {error:.2e}, PyTorch's own {own:.2e}"


@pytest.mark.slow(every=10)
@pytest.mark.parametrize(("name", "task_name"), covered("forward"))
def test_forward_as_good_as_torch(library, name, task_name):
    task = tasks.find(task_name)
    function = library(name)[f"{task_name}_float32"]
    for dims in sizes(task):
        for scale in (1.0, 1e3, 1e-3):
            args = draw(task, dims, scale)
            native = listed(task.reference(*args))
            got = call(function, args, native, dims)
            if task.tolerance.kind == "index":
                assert torch.equal(args[0].gather(1, got[0][:, None])[:, 0], args[0].amax(-1))
            else:
                oracle = listed(task.reference(*in_fp64(args)))
                assert_as_good(got, native, oracle, f"{name} {task_name} {dims} x{scale}")


@pytest.mark.parametrize(("name", "task_name"), covered("backward"))
def test_backward_as_good_as_torch(library, name, task_name):
    task = tasks.find(task_name)
    function = library(name)[f"{task_name}_backward_float32"]
    for dims in sizes(task):
        args = draw(task, dims)
        generator = torch.Generator().manual_seed(3)
        upstream = [torch.randn(o.shape, generator=generator) for o in listed(task.reference(*args))]
        native = gradients(task, args, upstream, dims)
        oracle = gradients(task, in_fp64(args), in_fp64(upstream), dims)
        got = call(function, [*upstream, *args], native, dims)
        assert_as_good(got, native, oracle, f"{name} {task_name} backward {dims}")


@pytest.mark.parametrize("name", ARCHETYPES)
def test_empty_sizes(library, name):
    for direction in ("forward", "backward"):
        for task_name in [t for n, t in covered(direction) if n == name]:
            task = tasks.find(task_name)
            if not task.empty:
                continue
            for dims in ({"M": 0, "N": 64}, {"M": 0, "N": 7}, {"M": 5, "N": 0}):
                if task.constraint is not None and not task.constraint(dims):
                    continue
                args = draw(task, dims)
                want = listed(task.reference(*args))
                if direction == "forward":
                    got = call(library(name)[f"{task_name}_float32"], args, want, dims)
                else:
                    upstream = [torch.randn(o.shape) for o in want]
                    want = gradients(task, args, upstream, dims)
                    got = call(library(name)[f"{task_name}_backward_float32"], [*upstream, *args], want, dims)
                for g, w in zip(got, want, strict=True):
                    assert torch.equal(g, w), (name, task_name, direction, dims)


@pytest.mark.parametrize("name", ARCHETYPES)
@pytest.mark.parametrize("dims", [{"M": 6, "N": 70}, {"M": 64, "N": 64}])
def test_infinities_and_nan(library, name, dims):
    for task_name in ("silu", "amax"):
        if (name, task_name) not in covered("forward"):
            continue
        task = tasks.find(task_name)
        assert "nonfinite" in task.distributions
        (x,) = draw(task, dims)
        x[0, 3], x[1, 5], x[2, 69 % dims["N"]] = float("nan"), float("inf"), float("-inf")
        x[3] = float("-inf")
        x[4, 0], x[4, 1] = float("inf"), float("nan")
        want = task.reference(x)
        (got,) = call(library(name)[f"{task_name}_float32"], [x], [want], dims)
        torch.testing.assert_close(got, want, equal_nan=True, rtol=1e-6, atol=1e-7)
    for row in (torch.full((1, 100), float("-inf")), torch.tensor([[float("inf"), 1.0]])):
        shape = {"M": 1, "N": row.shape[1]}
        want = torch.logsumexp(row, -1)
        (got,) = call(library(name)["logsumexp_float32"], [row], [want], shape)
        assert torch.equal(got, want)
    nan = torch.randn(3, 200)
    nan[1, 50] = nan[2, 0] = float("nan")
    nan[1, 20] = float("inf")
    (got,) = call(library(name)["argmax_float32"], [nan], [nan.argmax(-1)], {"M": 3, "N": 200})
    assert torch.equal(got, nan.argmax(-1))


@pytest.mark.parametrize("name", ARCHETYPES)
def test_gradient_of_ties_is_shared(library, name):
    x = torch.tensor([[1.0, 3.0] * 35, [2.0] * 70, [-5.0] * 69 + [0.0]])
    for data in (x, torch.cat([x, x], 1)[:, :64].contiguous()):
        dims = {"M": 3, "N": data.shape[1]}
        g = torch.tensor([1.0, -2.0, 3.0])
        want = gradients(tasks.find("amax"), [data], [g], dims)
        got = call(library(name)["amax_backward_float32"], [g, data], want, dims)
        torch.testing.assert_close(got[0], want[0], rtol=1e-6, atol=0)


def test_exponentials_over_the_whole_range(library):
    # The gradient of silu passes through exp of -|x|, softmax's through exp of (x - max), down to subnormal
    # results.
    x = torch.linspace(-110, 0, 100_001)[None]
    x[0, -1] = 0
    dims = {"M": 1, "N": x.shape[1]}
    for name in ("baseline", "robust"):
        (got,) = call(library(name)["logsumexp_backward_float32"], [torch.ones(1), x], [x], dims)
        want = torch.softmax(x.double(), -1)
        normal = want > 1.2e-38
        assert ((got.double() - want).abs() / want)[normal].max() < 5e-7
        assert (got.double() - want).abs()[~normal].max() < 3e-45


@pytest.mark.slow
@pytest.mark.parametrize(("name", "task_name"), [("robust", "rms_norm"), ("fragile", "amax"), ("baseline", "amax")])
def test_candidate_builds_and_runs_as_one_file(tmp_path: Path, name, task_name):
    task = tasks.find(task_name)
    (candidate,) = generators.find(name).candidates(task, "cpu")
    assert candidate.origin.generator == name
    assert len(candidate.files) == 1
    language = languages.find(candidate.language)
    language.build(candidate, tmp_path, "cpu", "")
    loaded = language.load(candidate, tmp_path, "cpu", names=(task_name,))
    dims = {"M": 40, "N": 96}
    args = draw(task, dims)
    want = task.reference(*args)
    spec = languages.OutputSpec(shape=tuple(want.shape), dtype="float32")
    torch.testing.assert_close(loaded.forward(args, [spec], dims), want, rtol=1e-5, atol=1e-6)
