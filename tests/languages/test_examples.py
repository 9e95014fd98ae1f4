"""The examples of docs/candidates.md build, run and are right, forward and backward."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from kerneleval import languages
from kerneleval.languages import OutputSpec
from kerneleval.languages.common import opencl_runtime

SHAPES = [(5, 7), (1, 1), (64, 33), (0, 4)]


def check(loaded, shape, tolerance=2e-6):
    x = torch.randn(shape, dtype=torch.float64)
    grad = torch.randn(shape, dtype=torch.float64)
    leaf = x.clone().requires_grad_()
    want = torch.nn.functional.gelu(leaf)
    (want_grad,) = torch.autograd.grad(want, leaf, grad)
    spec = OutputSpec(shape=shape, dtype="float32")
    dims = {"M": shape[0], "N": shape[1]}
    got = loaded.forward([x.float()], [spec], dims)
    assert got.shape == shape
    torch.testing.assert_close(got.double(), want.detach(), rtol=tolerance, atol=tolerance)
    (got_grad,) = loaded.backward([grad.float()], [x.float()], [spec], dims)
    torch.testing.assert_close(got_grad.double(), want_grad, rtol=2 * tolerance, atol=2 * tolerance)


@pytest.mark.parametrize("language", ["torch", "numba", "cpp", "opencl"])
def test_example_is_right(language, load, example):
    if language == "opencl" and (reason := opencl_runtime.unusable()):
        pytest.skip(f"not run: {reason}")
    loaded = load(example(language), language)
    for shape in SHAPES:
        check(loaded, shape)


@pytest.mark.slow
def test_triton_example_is_right_in_the_interpreter(interpreted, example, tmp_path):
    (tmp_path / "example.py").write_text(example("triton"))
    out = interpreted(
        f"""
import json, torch
from pathlib import Path
from kerneleval import languages
candidate = languages.read_candidate("example.py", "gelu")
assert candidate.language == "triton"
loaded = languages.find("triton").load(candidate, Path("build"), "cpu", names=("gelu",))
for shape in {SHAPES}:
    x, grad = torch.randn(shape), torch.randn(shape)
    leaf = x.double().requires_grad_()
    want = torch.nn.functional.gelu(leaf)
    want_grad, = torch.autograd.grad(want, leaf, grad.double())
    dims = dict(M=shape[0], N=shape[1])
    torch.testing.assert_close(loaded.forward([x], (), dims).double(), want.detach(), rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(loaded.backward([grad], [x], (), dims)[0].double(), want_grad, rtol=4e-6, atol=4e-6)
print(json.dumps(loaded.launches()))
""",
    )
    assert json.loads(out) == {"gelu_kernel": 3, "gelu_backward_kernel": 3}  # the empty shape launches nothing


@pytest.mark.parametrize("name", ["cuda", "cuda-device"])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_cuda_example_compiles(name, arch, make, example, tmp_path):
    language = languages.find("cuda")
    if language.missing("cuda"):
        pytest.skip(f"needs {language.missing('cuda')}")
    language.build(make(example(name), "cuda"), tmp_path, "cuda", arch)
    (built,) = tmp_path.iterdir()
    assert built.suffix == (".so" if name == "cuda" else ".cubin")


def test_every_documented_field_of_origin_exists():
    import dataclasses

    from kerneleval.records import Origin

    text = (Path(__file__).resolve().parents[2] / "docs" / "candidates.md").read_text()
    section = text.split("\n## Origin\n")[1].split("\n## ")[0]
    for field in dataclasses.fields(Origin):
        assert f"`{field.name}`" in section, field.name
