"""Metal candidates against a fake of PyTorch's shader compiler: what it is given, and what becomes of its errors."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from tests.devices.fakes import Namespace

from kerneleval import languages
from kerneleval.languages import LoadError, OutputSpec
from kerneleval.languages.common import base
from kerneleval.records import Candidate, UsageError

DIMS = {"M": 5, "N": 70}


class Compiler:
    """``torch.mps.compile_shader``: a library whose kernels run over every thread, on the CPU."""

    def __init__(self) -> None:
        self.launched: list[tuple[str, Any, Any]] = []
        self.sources: list[str] = []

    def __call__(self, source: str) -> Any:
        self.sources.append(source)
        if "#error" in source:
            raise RuntimeError("program_source:1:2: error: no")
        names = re.findall(r"kernel void (\w+)", source)
        return SimpleNamespace(**{name: self._kernel(name) for name in names})

    def _kernel(self, name: str) -> Callable[..., None]:
        def call(*args: Any, threads: Any = None, group_size: Any = None, arg_casts: Any = None) -> None:
            assert all(type(a) in (torch.Tensor, int, float) for a in args), args
            self.launched.append((name, threads, group_size))
            tensors, sizes = [a for a in args if isinstance(a, torch.Tensor)], args[-2:]
            assert tuple(sizes) == tuple(DIMS.values()) and all(t.is_contiguous() for t in tensors)
            count = min(math.prod(threads), math.prod(sizes))
            tensors[-1].view(-1)[:count] = 2 * tensors[-2].view(-1)[:count]

        return call


@pytest.fixture
def compiler() -> Iterator[Compiler]:
    fake = Compiler()
    namespace = Namespace("torch.mps", torch.mps, {"compile_shader": fake})
    with mock.patch.object(torch, "mps", namespace), mock.patch.dict(base._TORCH_DEVICE, {"metal": "cpu"}):
        yield fake


def load(text: str, *more: tuple[str, str]) -> languages.Loaded:
    candidate = Candidate(files=(("a.metal", text), *more), language="metal")
    return languages.find("metal").load(candidate, Path(), "metal", names=("silu",))


def spec(*shape: int) -> list[OutputSpec]:
    return [OutputSpec(shape=shape, dtype="float32")]


def test_a_shader_gets_tensors_dims_and_its_threads(compiler: Compiler, example) -> None:
    loaded = load(example("metal"))
    loaded.watch(True)
    x = torch.randn(70, 5).t()
    out = loaded.forward([x], spec(5, 70), DIMS)
    assert torch.equal(out, 2 * x)
    assert loaded.backward is not None
    (gradient,) = loaded.backward([x], [x], spec(5, 70), DIMS)
    assert gradient.shape == (5, 70)
    assert compiler.launched == [
        ("silu_float32", (512, 1, 1), (256, 1, 1)),
        ("silu_backward_float32", (512, 1, 1), (256, 1, 1)),
    ]
    assert loaded.launches() == {"silu_float32": 1, "silu_backward_float32": 1}
    loaded.mute(True)
    loaded.forward([x], spec(5, 70), DIMS)
    assert len(compiler.launched) == 2


def test_nothing_is_launched_over_nothing(compiler: Compiler, example) -> None:
    loaded = load(example("metal"))
    assert loaded.forward([torch.empty(0, 70)], spec(0, 70), {"M": 0, "N": 70}).shape == (0, 70)
    assert compiler.launched == []


def test_what_a_shader_cannot_take_is_declared_unsupported(compiler: Compiler, example) -> None:
    loaded = load(example("metal"))
    for argument in (None, "text", [1, 2]):
        with pytest.raises(NotImplementedError, match="tensors and numbers"):
            loaded.forward([torch.ones(5, 70), argument], spec(5, 70), DIMS)
    with pytest.raises(NotImplementedError, match="no entry point for float16"):
        loaded.forward([torch.ones(5, 70).half()], [OutputSpec(shape=(5, 70), dtype="float16")], DIMS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kernel void silu_float32() {}", "needs kerneleval-launch lines"),
        ("// kerneleval-launch: silu_float32 grid=(1) block\n", "a.metal: line 1: kerneleval-launch"),
        ("// kerneleval-launch: silu_float32 grid=1 block=1\n#error no\n", "a.metal: program_source:1:2: error: no"),
        ("// kerneleval-launch: silu_float32 grid=1 block=1\nkernel void other() {}\n", "silu_float32"),
    ],
)
def test_what_does_not_load_says_why(compiler: Compiler, text: str, message: str) -> None:
    with pytest.raises(LoadError, match=re.escape(message)):
        load(text)


def test_geometry_that_metal_cannot_have(compiler: Compiler) -> None:
    text = "// kerneleval-launch: silu_float32 grid=M block=N shared=4\nkernel void silu_float32() {}\n"
    with pytest.raises(ValueError, match="threadgroup memory is declared in the shader"):
        load(text).forward([torch.ones(5, 70)], spec(5, 70), DIMS)
    with pytest.raises(LoadError, match=r"b\.h: a Metal candidate is one file"):
        load(text, ("b.h", ""))


def test_it_runs_on_metal_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.metal"
    path.write_text("// kerneleval-launch: gelu grid=1 block=1\n")
    candidate = languages.read_candidate(path, task_name="gelu")
    assert candidate.language == "metal"
    with pytest.raises(UsageError, match="metal candidates do not run on device 'cpu': they run on metal"):
        languages.find("metal").load(candidate, tmp_path, "cpu")
    with pytest.raises(LoadError, match="MPS is not available"):
        languages.find("metal").load(candidate, tmp_path, "metal")
