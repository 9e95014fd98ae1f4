"""Specimens of ``tests/attacks`` as KernelBench would be given them: a problem's source and a candidate's.

The problem calls the task's reference as KernelBench's problems do, by name, at one size. The candidate is the
specimen's text without header and docstring (KernelBench's static checker reads prose as code), and a ``ModelNew`` that
calls its entry point. A ``.cu`` specimen is built by ``load_inline`` with a small binding.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tests.attacks.specimens import Specimen

from kerneleval import tasks
from kerneleval.records import Protocol, Scalar, Task, TensorSpec
from kerneleval.tasks import shapes

__all__ = ["NotTranslated", "Pair", "translate"]

DANGEROUS = {
    "fork_bomb": "forks without end",
    "memory_bomb": "takes all memory",
    "file_flood": "fills the disk",
    "output_flood": "prints without end",
}
"""Specimens that would take down the machine: KernelBench runs candidates without limits."""


class NotTranslated(Exception):  # noqa: N818 - it is an answer, not an error
    """Why a specimen has no pair."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """What KernelBench is given."""

    problem: str
    candidate: str
    backend: str
    """``triton`` or ``cuda``; the latter also stands for plain PyTorch."""
    needs: tuple[str, ...] = ()
    """Programs without which it cannot be built."""


def translate(specimen: Specimen, category: str = "power_of_two") -> Pair:
    """The pair for a specimen.

    Args:
        specimen: one for CUDA or any device.
        category: shape category of the size. Of the 294 sizes of 16 or more in KernelBench's level 1, 256 are powers
            of two.

    Raises:
        NotTranslated: with the reason.
    """
    name = specimen.path.stem
    if name in DANGEROUS and specimen.path.parent.name == "exhaustion":
        raise NotTranslated(f"{DANGEROUS[name]}: KernelBench has no limits, so it is not run")
    if specimen.verdict == "failed" and "backward" in specimen.directions:
        raise NotTranslated("its fault is in the gradients: not judged by KernelBench, which has no backward")
    text = specimen.path.read_text(encoding="utf-8")
    if specimen.task.endswith(".py"):
        problem = Path(specimen.task).read_text(encoding="utf-8")
        if _takes_integers(problem):
            raise NotTranslated("the problem takes integers, and KernelBench makes every tensor floating point")
        if _gives_numbers(problem):
            raise NotTranslated("the problem gives numbers, and KernelBench compares tensors")
        return Pair(problem=problem, candidate=_code(text), backend=_backend(text))
    task = tasks.find(specimen.task)
    dims = _dims(task, category)
    arguments = task.arguments(dims, "float32")
    problem = _problem(task, arguments)
    if specimen.path.suffix == ".cu":
        candidate = _native(text, task, arguments, dims)
        return Pair(problem=problem, candidate=candidate, backend="cuda", needs=("nvcc", "ninja"))
    code = _code(text)
    return Pair(problem=problem, candidate=code + _model_new(code, task, arguments), backend=_backend(code))


def _takes_integers(problem: str) -> bool:
    there: dict[str, Any] = {}
    exec(compile(problem, "problem", "exec"), there)
    tensors = [one for one in there["get_inputs"]() if isinstance(one, torch.Tensor)]
    return any(not one.is_floating_point() for one in tensors)


def _gives_numbers(problem: str) -> bool:
    there: dict[str, Any] = {}
    exec(compile(problem, "problem", "exec"), there)
    outputs = there["Model"](*there["get_init_inputs"]())(*there["get_inputs"]())
    return isinstance(outputs, tuple) and any(isinstance(one, (bool, int, float)) for one in outputs)


def _backend(code: str) -> str:
    return "triton" if re.search(r"^\s*(import|from) triton", code, re.MULTILINE) else "cuda"


def _dims(task: Task, category: str) -> dict[str, int]:
    """The size at which the judge times that category."""
    protocol = Protocol(dtypes=("float32",), directions=("forward",), categories=(category,), tier="quick")
    planned = shapes.plan(task, protocol, shapes.Budget(memory_bytes=1 << 30, flops=1 << 36))
    usual = next(c for c in planned if (c.distribution, c.layout) == ("standard", "contiguous"))
    return dict(usual.dims)


# --------------------------------------------------------------------------------------------------------------------
# The problem
# --------------------------------------------------------------------------------------------------------------------


def _problem(task: Task, arguments: tuple[Any, ...]) -> str:
    names = ", ".join(a.name for a in arguments)
    given = ",\n        ".join(_input(a) for a in arguments)
    called = ", ".join(_as_meant(a) for a in arguments)
    return f"""import torch
import torch.nn.functional as F


class Model(torch.nn.Module):
{textwrap.indent(_reference(task), "    ")}

    def forward(self, {names}):
        return {_reference_name(task)}({called})


def get_inputs():
    return [
        {given},
    ]


def get_init_inputs():
    return []
"""


def _public_name(function: Any) -> str:
    """``torch.matmul`` for what PyTorch itself defines; empty for the project's own references."""
    for prefix, namespace in (("torch", torch), ("torch.nn.functional", torch.nn.functional)):
        name = getattr(function, "__name__", "")
        if getattr(namespace, name, None) is function:
            return f"{prefix}.{name}"
    return ""


def _reference_name(task: Task) -> str:
    return _public_name(task.reference) or "self.reference"


def _reference(task: Task) -> str:
    """The reference as a static method, so that no global name of a candidate can stand for it."""
    if _public_name(task.reference):
        return f'"""{task.name}."""'
    if isinstance(task.reference, functools.partial) and (name := _public_name(task.reference.func)):
        options = "".join(f", {key}={value!r}" for key, value in task.reference.keywords.items())
        return f"@staticmethod\ndef reference(*args):\n    return {name}(*args{options})"
    code = task.reference.__code__
    others = {name for name in code.co_names if name in task.reference.__globals__} - {"torch", "F", "math", "Tensor"}
    if code.co_freevars or others:
        raise NotTranslated("KernelBench's problem would need more than the reference: it is made of other functions")
    source = textwrap.dedent(inspect.getsource(task.reference))
    return "@staticmethod\n" + re.sub(r"^def \w+\(", "def reference(", source, count=1).rstrip()


def _input(argument: Any) -> str:
    """An expression for standard data of the argument, as KernelBench's problems draw it: on the CPU."""
    if isinstance(argument, Scalar):
        return repr(argument.value)
    shape = ", ".join(str(n) for n in argument.shape)
    if argument.values == "integers":
        return f"torch.randint({argument.low}, {argument.high}, ({shape},))"
    if argument.values == "bool":
        return f"(torch.rand({shape}) < 0.5).index_fill(-1, torch.tensor([0]), True)"
    drawn = {
        "normal": f"torch.randn({shape})",
        "ones_normal": f"1 + 0.1 * torch.randn({shape})",
        "positive": f"torch.rand({shape}) + 0.1",
        "variance": f"torch.rand({shape}) + 0.1",
        "uniform": f"torch.rand({shape})",
    }[argument.values]
    return drawn if argument.scale == 1 else f"{argument.scale!r} * {drawn.replace('1 + ', '')}"


def _as_meant(argument: Any) -> str:
    """KernelBench converts every input tensor to the precision of the run; indices and flags are taken back."""
    if isinstance(argument, TensorSpec) and argument.dtype in ("int64", "bool"):
        return f"{argument.name}.to(torch.{argument.dtype})"
    return str(argument.name)


# --------------------------------------------------------------------------------------------------------------------
# The candidate
# --------------------------------------------------------------------------------------------------------------------


def _code(text: str) -> str:
    """The specimen without its header and its docstring."""
    lines = text.splitlines()
    doc = next(iter(ast.parse(text).body), None)
    if isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant) and isinstance(doc.value.value, str):
        lines[doc.lineno - 1 : doc.end_lineno] = []
    return "\n".join(lines[1:]).strip() + "\n"


def _model_new(code: str, task: Task, arguments: tuple[Any, ...]) -> str:
    bound = {n.id for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    bound |= {n.name for n in ast.walk(ast.parse(code)) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    entry = next((n for n in (task.name, "run", "kernel_function") if n in bound), task.name)
    names = ", ".join(a.name for a in arguments)
    called = ", ".join(_as_meant(a) for a in arguments)
    # Names of its own: KernelBench executes problem and candidate in one namespace.
    return f"""

import torch as kb_torch

kb_entry = {entry}


class ModelNew(kb_torch.nn.Module):
    def forward(self, {names}):
        return kb_entry({called.replace("torch.", "kb_torch.")})
"""


def _native(text: str, task: Task, arguments: tuple[Any, ...], dims: dict[str, int]) -> str:
    if any(isinstance(a, Scalar) or a.dtype != "float32" for a in arguments):
        raise NotTranslated("the binding passes float32 tensors alone")
    found = re.search(r'extern "C" int (\w+)\(', text)
    if found is None or "'''" in text:
        raise NotTranslated("no host launcher")
    names = [a.name for a in arguments]
    tensors = ", ".join(f"torch::Tensor {n}" for n in (*names, "kb_out"))
    sizes = ", ".join(f"int64_t {n}" for n in dims)
    pointers = ", ".join(f"{n}.data_ptr<float>()" for n in (*names, "kb_out"))
    launcher = ", ".join([*("const float *" for _ in names), "float *", *("int64_t" for _ in dims), "void *"])
    with torch.device("meta"):
        outputs = task.reference(*(torch.empty(a.shape) for a in arguments))
    if not isinstance(outputs, torch.Tensor):
        raise NotTranslated("the binding gives one output")
    contiguous = "".join(f"        {n} = {n}.contiguous()\n" for n in names)
    body = text.split("\n", 1)[1].strip()
    return f"""import torch
from torch.utils.cpp_extension import load_inline

kernels = r'''
{body}
'''
binding = '''
#include <torch/extension.h>
extern "C" int {found[1]}({launcher});
int64_t kb_call({tensors}, {sizes}, int64_t kb_stream) {{
    return {found[1]}({pointers}, {", ".join(dims)}, (void *)kb_stream);
}}
'''
# PyTorch's headers in the binding alone: in the kernels' file they cost nvcc minutes.
module = load_inline(
    "kb_candidate", cpp_sources=binding, cuda_sources=kernels, functions=["kb_call"], no_implicit_headers=True
)


class ModelNew(torch.nn.Module):
    def forward(self, {", ".join(names)}):
{contiguous}        kb_out = torch.empty({tuple(outputs.shape)}, device={names[0]}.device)
        stream = torch.cuda.current_stream().cuda_stream
        code = module.kb_call({", ".join(names)}, kb_out, {", ".join(str(v) for v in dims.values())}, stream)
        if code:
            raise RuntimeError(f"the launcher returned {{code}}")
        return kb_out
"""
