"""Runs archetypes' Triton candidates over small shapes and compares with PyTorch: started by the tests.

TRITON_INTERPRET=1 python interpret_archetype.py baseline,robust [task]      # on the CPU
python interpret_archetype.py robust                                         # on a GPU
"""

import importlib.util
import itertools
import os
import sys
import tempfile
from pathlib import Path

import torch

from kerneleval import generators, tasks
from kerneleval.generators.archetypes import SUITE
from kerneleval.records import TensorSpec

ROWS = [(1, 4), (3, 7), (2, 129), (2, 64), (1, 1024), (0, 5)]
"""Few rows: the interpreter takes a millisecond or more for each program, and a row is one."""
CHANNELS = {
    "group_norm": [(1, 1, 1, 4), (2, 3, 2, 5), (1, 2, 3, 33), (1, 2, 2, 64)],
    "batch_norm": [(1, 1, 4), (2, 3, 5), (3, 2, 33), (2, 2, 64)],
}
DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
BOUND = {torch.float32: 3e-6, torch.float16: 3e-3, torch.bfloat16: 2e-2}
DTYPES = [torch.float32, torch.float16] + ([torch.bfloat16] if DEVICE == "cuda" else [])


def draw(task, dims, dtype):
    generator = torch.Generator().manual_seed(5)
    args = []
    for spec in task.arguments(dims, str(dtype)[6:]):
        if not isinstance(spec, TensorSpec):
            args.append(spec.value)
            continue
        if spec.values == "integers":
            tensor = torch.randint(spec.low, max(spec.high, 1), spec.shape, generator=generator)
        else:
            tensor = torch.randn(spec.shape, generator=generator)
            tensor = ((1 + 0.1 * tensor) if spec.values == "ones_normal" else tensor).to(dtype)
        args.append(tensor.to(DEVICE))
    return args


def in_fp64(values):
    return [v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in values]


def listed(value):
    return list(value) if isinstance(value, (tuple, list)) else [value]


def strided(args):
    """The same values, not contiguous."""
    return [
        a.repeat_interleave(2, -1)[..., ::2] if isinstance(a, torch.Tensor) and a.ndim > 1 and a.numel() else a
        for a in args
    ]


def gradients(task, args, upstream, dims, dtype):
    args = list(args)
    wanted = [
        i for i, s in enumerate(task.arguments(dims, str(dtype)[6:])) if isinstance(s, TensorSpec) and s.differentiable
    ]
    for i in wanted:
        args[i] = args[i].detach().clone().requires_grad_()
    return list(torch.autograd.grad(listed(task.reference(*args)), [args[i] for i in wanted], upstream))


def check(got, oracle, dtype, what):
    got = listed(got)
    assert len(got) == len(oracle), what
    for g, o in zip(got, oracle, strict=True):
        assert g.shape == o.shape, f"{what}: shape {tuple(g.shape)}, wanted {tuple(o.shape)}"
        if not o.is_floating_point():
            assert torch.equal(g, o), what
            continue
        assert g.dtype == dtype, f"{what}: {g.dtype}"
        if o.numel():
            error = ((g.double() - o).abs().max() / o.abs().max().clamp_min(1e-30)).item()
            assert error <= BOUND[dtype], f"{what}: error {error:.2e}"


def check_task(module, task, directions):
    shapes = CHANNELS.get(task.name, ROWS)
    for dtype in DTYPES:
        for shape in shapes if dtype == torch.float32 else shapes[2:3]:
            dims = dict(zip([dim.name for dim in task.dims], shape, strict=True))
            args = draw(task, dims, dtype)
            what = f"{task.name} {dims} {dtype}"
            oracle = listed(task.reference(*in_fp64(args)))
            if "forward" in directions:
                check(getattr(module, task.name)(*args), oracle, dtype, what)
                if dtype == torch.float32 and shape in shapes[1:3]:
                    check(getattr(module, task.name)(*strided(args)), oracle, dtype, what + " strided")
            backward = getattr(module, f"{task.name}_backward", None)
            if backward is not None and "backward" in directions:
                generator = torch.Generator().manual_seed(9)
                upstream = [torch.randn(o.shape, generator=generator).to(DEVICE, dtype) for o in oracle]
                oracle = gradients(task, in_fp64(args), in_fp64(upstream), dims, dtype)
                check(backward(*upstream, *args), oracle, dtype, what + " backward")


def check_nan(module):
    """The first NaN is the largest element, also behind an infinity: the textbook kernel took one for the other."""
    x = torch.randn(4, 70, device=DEVICE)
    x[0, 9], x[0, 41], x[1, 3], x[2, 50], x[2, 60] = (float(v) for v in ("inf", "nan", "inf", "nan", "nan"))
    assert module.argmax(x).tolist()[:3] == [41, 3, 50]


def main():
    names, wanted = sys.argv[1].split(","), sys.argv[2:] or SUITE
    for name, task in itertools.product(names, map(tasks.find, wanted)):
        for candidate in generators.find(name).candidates(task, "cuda"):
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / candidate.files[0][0]
                file.write_text(candidate.main)
                spec = importlib.util.spec_from_file_location(f"{name}_{task.name}", file)
                module = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(module)
                check_task(module, task, ("forward", "backward"))
                if task.name == "argmax":
                    check_nan(module)
                directions = "forward backward" if hasattr(module, f"{task.name}_backward") else "forward"
                print(name, task.name, directions, flush=True)


if __name__ == "__main__":
    main()
