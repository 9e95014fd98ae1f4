"""Prompts: every task in every language, what they tell and never tell, templates of one's own."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import io
import os
import re
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path
from unittest import mock

import pytest
import torch
from tests.devices.fakes import Namespace
from tests.generators import metal_on_host

from kerneleval import languages, tasks
from kerneleval.generators.common.prompts import TEMPLATES, extract, render
from kerneleval.generators.common.prompts.facts import costed_shapes, task_facts
from kerneleval.generators.common.prompts.source import reference_source
from kerneleval.judge import Judge
from kerneleval.languages.common import base, launches, opencl_runtime
from kerneleval.records import (
    Answer,
    Candidate,
    EarlierRound,
    Limits,
    Machine,
    Origin,
    Passed,
    Protocol,
    Request,
    Scalar,
    UsageError,
    digest,
)
from kerneleval.tasks import sampling, shapes

LANGUAGES = sorted({template.language for template in TEMPLATES.values()} - {""})
PYTHON = ("numba", "torch", "triton")
HOSTED = ("cpp", "cuda", "hip")
KERNELS = ("metal", "opencl")
"""Whose candidates are kernels without host code."""
NATIVE = (*HOSTED, *KERNELS)
MOST_CHARACTERS = 16_000
"""Of a built-in task's prompt without examples, as docs/prompts.md says."""

MACHINE = Machine(
    device="cuda",
    name="NVIDIA H200",
    arch="sm_90",
    memory_bytes=141 << 30,
    cache_bytes=60 << 20,
    units=132,
    driver="580.65",
    torch="2.13.0",
    triton="3.7.1",
    host="a-secret-host",
)
LIMITS = Limits(bandwidth_bytes_per_s=4.1e12, flop_per_s=(("float32", 5.1e13), ("float16", 7.2e14)))
EXAMPLES = resources.files("kerneleval.generators.common.prompts") / "examples"


HEADS = {language: 'extern "C" int' if language in HOSTED else "kernel void" for language in NATIVE}
"""What a declaration begins with."""


def asked(task, **more):
    task = tasks.find(task) if isinstance(task, str) else task
    return Request(**{"task": task, "device": "cuda", "machine": MACHINE, "limits": LIMITS, **more})


def facts_of(task, language):
    return task_facts(task, language, costed_shapes(task, "cuda"))


def text_of(request, language="triton", **more):
    return "\n".join(text for _, text in render(request, language=language, **more).messages)


# -- every task ------------------------------------------------------------------------------------------------------


@pytest.mark.slow(every=3)
@pytest.mark.parametrize("part", range(len(LANGUAGES)))
def test_every_task(part):
    """Each task in one language; the next task in the next one."""
    hashes = set()
    for number, (name, task) in enumerate(tasks.all_tasks().items()):
        if number % len(LANGUAGES) != part:
            continue
        language = LANGUAGES[(number + number // len(LANGUAGES)) % len(LANGUAGES)]
        prompt = render(asked(task), language=language)
        assert [role for role, _ in prompt.messages] == ["system", "user"]
        assert prompt.template == f"{language}/v1"
        text = "\n".join(text for _, text in prompt.messages)
        assert len(text) <= MOST_CHARACTERS, name
        for told in (task.summary, reference_source(task).strip(), MACHINE.name, "4.1 TB/s", *task.dtypes):
            assert told in text, (name, told)
        assert "reference" in text, name
        entry = f"`{name}(" if language in PYTHON else f"{HEADS[language]} {name}_"
        assert entry in text, name
        if language in NATIVE:
            assert declared(text, language) == facts_of(task, language)["signatures"], name
        assert ("Backward is judged" in text) == ("backward" in task.directions), name
        assert not re.search(r" at 0x[0-9a-f]{6}|\bNone\b.*judged|Undefined|\{\{|\{%|[\x00-\x08]", text), name
        assert "\n\n\n" not in re.sub(r"```.*?```", "CODE", text, flags=re.S), name
        hashes.add(prompt.hash)
    assert len(hashes) == len(range(part, len(tasks.all_tasks()), len(LANGUAGES)))


def test_the_text_of_a_reference_imports_what_it_uses_alone():
    """But for torch, which every one imports."""
    for name, task in tasks.all_tasks().items():
        source = reference_source(task)
        imported = re.findall(r"^(?:from \S+ )?import (?:\S+ as )?([\w.]+)$", source, re.M)
        behind = re.sub(r"^(?:from|import) .*$", "", source, flags=re.M)
        unused = {one for one in imported if not re.search(rf"\b{one}\b", behind)}
        assert unused <= {"torch"}, name


def test_the_hash_is_of_the_texts_and_the_template():
    prompt = render(asked("gelu"), language="triton", examples=1)
    assert prompt == render(asked("gelu"), language="triton", examples=1)
    parts = [part for message in prompt.messages for part in message]
    assert prompt.hash == digest("triton/v1", *parts)
    assert prompt.hash != render(asked("gelu"), language="triton").hash
    assert prompt.hash == render(asked("gelu", sample=3), language="triton", examples=1).hash


@pytest.mark.slow
def test_processes_agree():
    """Hashes do not depend on the order of sets: neither here nor there is it the same."""
    code = (
        "from kerneleval import tasks\n"
        "from kerneleval.generators.common.prompts import render\n"
        "from kerneleval.records import Request\n"
        "for name in ('softmax', 'bmm_gelu', 'linear_w4a16', 'bernoulli', 'conv2d', 'topk_softmax'):\n"
        "    for language in ('triton', 'cuda', 'cpp', 'opencl', 'metal'):\n"
        "        request = Request(task=tasks.find(name), device='cuda')\n"
        "        print(render(request, language=language, examples=2).hash)\n"
    )
    environment = os.environ | {"PYTHONHASHSEED": str(1 + (os.environ.get("PYTHONHASHSEED") == "1"))}
    run = [sys.executable, "-c", code]
    there = subprocess.run(run, env=environment, capture_output=True, text=True, timeout=120, check=True).stdout
    here = io.StringIO()
    with contextlib.redirect_stdout(here):
        exec(code, {})
    assert here.getvalue() == there
    assert len(set(there.split())) == 30


# -- the reference ---------------------------------------------------------------------------------------------------


def given(spec):
    """Arguments of a kind, the same at every call."""
    if isinstance(spec, Scalar):
        return spec.value
    generator = torch.Generator().manual_seed(1)
    if spec.values == "integers":
        tensor = torch.randint(spec.low, max(spec.high, spec.low + 1), spec.shape, generator=generator)
    elif spec.values in ("bits", "bool"):
        tensor = torch.randint(0, 2, spec.shape, generator=generator)
    else:
        tensor = torch.randn(spec.shape, generator=generator) * spec.scale
        tensor = tensor.abs() + 0.1 if spec.values in ("positive", "variance", "uniform", "above_one") else tensor
    return tensor.to(getattr(torch, spec.dtype))


def results(function, arguments):
    torch.default_generator.manual_seed(0)
    found = function(*(given(spec) for spec in arguments))
    return [x.double() if not x.is_complex() else x for x in (found if isinstance(found, (tuple, list)) else (found,))]


def same_as_its_text(name):
    """Whether the text, executed, is the reference; None: this simple input is none that it takes."""
    task = tasks.find(name)
    category = "tiny" if sampling.exists(task, "tiny") else "small"
    dims = sampling.draw(task, category, 0, 1, 7, lambda dims: task.flops(dims) < 1e8)
    if dims is None:
        return None
    arguments = task.arguments(dims, task.dtypes[0])
    try:
        want = results(task.reference, arguments)
    except (RuntimeError, ValueError, IndexError, torch.linalg.LinAlgError):
        return None
    namespace = {}
    exec(reference_source(task), namespace)
    got = results(namespace["reference"], arguments)
    return len(got) == len(want) and all(  # where memory lies decides the last bits of a factorisation (lstsq)
        a.shape == b.shape and torch.allclose(a.nan_to_num(), b.nan_to_num(), rtol=1e-3, atol=1e-6)
        for a, b in zip(got, want, strict=True)
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [
        *("softmax", "conv2d", "silu_backward", "kl_div_none", "gelu_backward", "linear_w4a16", "alibi_attention"),
        *("bmm_gelu", "rows_gelu_mul", "log_sigmoid", "airy_ai", "chebyshev_polynomial_t", "attention_w8a8"),
    ],
)
def test_the_text_of_a_reference_computes_the_same(name):
    assert same_as_its_text(name)


@pytest.mark.filterwarnings("ignore")
def test_the_text_of_every_reference_computes_the_same():
    found = {name: same_as_its_text(name) for name in tasks.all_tasks()}
    assert [name for name, same in found.items() if same is False] == []
    assert sum(same is None for same in found.values()) < 10


def test_the_text_of_a_reference_is_python():
    for name, task in tasks.all_tasks().items():
        tree = ast.parse(reference_source(task))
        last = tree.body[-1]
        named = last.name if isinstance(last, ast.FunctionDef) else last.targets[0].id
        assert named == "reference", name


OWN = '''
import torch
from kerneleval.tasks.define import ROWS, data, operator

FACTOR = 3.5


def helper(x):
    return x * FACTOR


def triple(x):
    """Not three times."""
    return helper(x) + {x}


TASKS = (operator("triple", "elementwise", "out = {summary}", dims=ROWS, args=(data("x", "M N"),), out=("M N",),
                  reference=triple, flops="M * N"),)
'''


def own_task(tmp_path, summary="3.5 x + x", name="own.py"):
    path = tmp_path / name
    path.write_text(OWN.replace("{summary}", summary).replace("{x}", "x"))
    return tasks.open_task(str(path))


def test_a_users_task(tmp_path):
    text = text_of(asked(own_task(tmp_path)))
    assert "FACTOR = 3.5" in text and "def helper(x):" in text and "return helper(x) + x" in text
    assert str(tmp_path) not in text


def test_a_users_text_is_data(tmp_path):
    hostile = "{{ 7 * 7 }} {% include 'x' %} ```python ``` {# #} \\x00\\x1b[31m ]]>"
    text = text_of(asked(own_task(tmp_path, hostile)))
    assert "{{ 7 * 7 }} {% include 'x' %} ```python ``` {# #} [31m ]]>" in text
    assert "49" not in text.split("\n\n")[1]


# -- problem files ---------------------------------------------------------------------------------------------------

PROBLEM = '''
import torch


class Model(torch.nn.Module):
    """Scaled rows. ````"""

    def __init__(self, features):
        super().__init__()
        self.linear = torch.nn.Linear(features, features)

    def forward(self, x):
        return torch.relu(self.linear(x))


features = 48


def get_inputs():
    return [torch.rand(16, features)]


def get_init_inputs():
    return [features]
'''


@pytest.fixture
def problem(tmp_path):
    folder = tmp_path / "level3"
    folder.mkdir()
    (folder / "1_Rows.py").write_text(PROBLEM)
    return tasks.open_task(str(folder / "1_Rows.py"))


@pytest.mark.parametrize("language", PYTHON)
def test_a_module_problem(problem, language):
    text = text_of(asked(problem), language)
    assert f"`````python\n{PROBLEM.strip()}\n`````" in text  # a fence that is longer than any in the file
    assert "class ModelNew(torch.nn.Module)" in text
    assert "# Fusion" in text and "whole model" in text
    assert "the judge copies weights into them" in text


@pytest.mark.parametrize("language", NATIVE)
def test_a_module_problem_has_no_native_candidates(problem, language):
    with pytest.raises(UsageError, match=rf"is a module.*ask for triton, torch, numba, not for {language}"):
        render(asked(problem), language=language)


# -- what is told ----------------------------------------------------------------------------------------------------


def test_level():
    assert "# Fusion" not in text_of(asked("gelu"))
    two = text_of(asked("bmm_gelu"))
    assert "# Fusion" in two and "one kernel" in two
    assert "block of one" in text_of(asked(next(t for t in tasks.all_tasks().values() if t.level == 3)))


def test_random_quantised_and_exact():
    every = tasks.all_tasks().values()
    random = next(task for task in every if task.tolerance.kind == "random")
    assert "draws random numbers" in text_of(asked(random)) and "The same seed" in text_of(asked(random))
    assert "really compute with the quantised numbers" in text_of(asked("linear_w4a16"))
    exact = next(task for task in every if task.tolerance.kind == "exact")
    assert "equal the reference's exactly" in text_of(asked(exact))
    assert "selects" in text_of(asked("argmax"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("eigh", "is nearly diagonal"),
        ("trsv", "next to the diagonal"),
        ("inv", "is a regular matrix"),
        ("matrix_exp", "skew-symmetric"),
        ("logdet", "a matrix near I"),
    ],
)
def test_what_is_said_of_whole_matrices_has_no_factor(name, words):
    """I + a is regular, not I + a times a number."""
    lines = [line for line in text_of(asked(name)).splitlines() if words in line]
    assert lines and not any("** -0.5" in line for line in lines)


def test_sizes_are_ranges():
    text = text_of(asked("softmax"))
    for category in sampling.RANGES:
        low, high = sampling.RANGES[category]
        assert re.search(rf"- {category}: .*, {low} to {high}\n", text)
    assert "- always: N >= 2" in text
    assert "some in secret" in text


@pytest.mark.parametrize("name", ["softmax", "bmm_gelu", "conv2d", "attention", "exp"])
def test_no_planned_cell_is_told(name):
    task = tasks.find(name)
    text = " ".join(
        text_of(asked(task, device=device), language) for device in ("cpu", "cuda") for language in LANGUAGES
    )
    for seed in range(3):
        for budget in (
            shapes.Budget(memory_bytes=1 << 30, flops=1 << 42),
            shapes.Budget(memory_bytes=1 << 26, flops=1 << 36),
        ):
            for case in shapes.plan(task, Protocol(suite_seed=seed), budget):
                told = " ".join(f"{dim}={value}" for dim, value in case.dims)
                assert told not in text, (seed, case)


def test_fixed_cells_of_a_users_task_are_not_told(tmp_path):
    task = dataclasses.replace(own_task(tmp_path), case_dims=(("given", {"M": 1234, "N": 777}),))
    for language in LANGUAGES:
        text = text_of(asked(task), language)
        assert "1234" not in text and "777" not in text


def test_device():
    text = text_of(asked("gelu"))
    for told in ("NVIDIA H200 (sm_90), 132 multiprocessors", "141 GiB memory", "60 MiB", "Triton 3.7.1", "580.65"):
        assert told in text
    assert "51 TFLOP/s in float32, 720 TFLOP/s in float16" in text
    assert re.search(r"no less than [0-9.]+ µs, bound by memory", text)
    assert "a-secret-host" not in text
    assert "bound by arithmetic" in text_of(asked("matmul"))
    bare = text_of(asked("gelu", machine=None, limits=None))
    assert "a cuda device; nothing more is known of it" in bare and "no less than" not in bare


def test_what_depends_on_the_device():
    assert "interpreter" in text_of(asked("gelu", device="cpu", machine=None))
    assert "wavefront" in text_of(asked("gelu", device="rocm", machine=None))
    assert "interpreter" not in text_of(asked("gelu"))
    assert "`sm_90` with its architecture-specific features" in text_of(asked("gelu"), "cuda")
    old = dataclasses.replace(MACHINE, arch="sm_80")
    assert "`sm_80`." in text_of(asked("gelu", machine=old), "cuda")


def test_the_track_is_said():
    assert "Refused: computing by a library" in text_of(asked("gelu"))
    assert "Plain PyTorch is allowed" in text_of(asked("gelu"), "torch")


# -- native signatures -----------------------------------------------------------------------------------------------


def declared(text, language):
    return re.findall(rf"^{re.escape(HEADS[language])} .*;$", text, re.M)


def declarations(task, language):
    return declared(text_of(asked(task), language), language)


def all_declarations(language):
    """(task, those that its prompt shows), of every built-in task: there is none whose arguments a native language
    cannot take.
    """
    for name, task in tasks.all_tasks().items():
        found = facts_of(task, language)["signatures"]
        assert found, name
        assert len({line.partition("(")[0] for line in found}) == len(found), name
        yield name, found


@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
def test_signatures_are_cpp(tmp_path):
    lines, count = ["#include <cstdint>"], 0
    for name, found in all_declarations("cpp"):
        count += len(found)
        lines += [f"namespace n_{name} {{", *(line.removeprefix('extern "C" ') for line in found), "}"]
    check_cpp(tmp_path, lines)
    assert count > 3000


def check_cpp(folder, lines):
    source = folder / "all.cpp"
    source.write_text("\n".join(lines))
    done = subprocess.run(["g++", "-std=c++20", "-fsyntax-only", source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]


@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
def test_signatures_of_metal_are_cpp_but_for_its_words(tmp_path):
    """Not what Metal's own compiler says: g++ reads them with Metal's keywords defined away."""
    lines, count = [metal_on_host.METAL, "#define thread 0", "#define vertex 0", "#define fragment 0"], 0
    for name, found in all_declarations("metal"):
        count += len(found)
        lines += [f"namespace n_{name} {{", *found, "}"]
        assert not re.search(r"[*& ](?:kernel|device|constant|threadgroup)[,)]|\bdouble\b", "\n".join(found)), name
    check_cpp(tmp_path, lines)
    assert count > 3000


def test_signatures_are_opencl():
    """Each as the head of a kernel, numbered, for two tasks may have one name: ``relu_backward`` is one itself."""
    if reason := opencl_runtime.unusable():
        pytest.skip(f"not run: {reason}")
    found = [line for _, lines in all_declarations("opencl") for line in lines]
    assert len(found) > 3000
    heads = [line.removesuffix(";").replace("kernel void ", f"kernel void k{n}_") for n, line in enumerate(found)]
    text = "\n".join(f"{head} {{}}" for head in heads)
    kernels = opencl_runtime.compiled(text, "all.cl", Path(), ["-cl-std=CL1.2", "-cl-opt-disable"])
    assert len(opencl_runtime.kernel_names(kernels)) == len(found)


def test_signatures_name_types():
    f16 = next(line for line in declarations("linear", "cuda") if "linear_float16" in line)
    assert f16.startswith('extern "C" int linear_float16(const __half *x, const __half *w')
    assert "__hip_bfloat16" in " ".join(declarations("linear", "hip"))
    (norm,) = (line for line in declarations("layer_norm", "cpp") if "norm_float32" in line)
    assert "double eps" in norm and norm.endswith("int64_t M, int64_t N, void *stream);")
    assert "const float *new_, const int64_t *length" in declarations("cache_append", "cpp")[0]  # new is a keyword
    backward = [line for line in declarations("add_rms_norm", "cpp") if "backward_float32" in line]
    assert "(const float *grad_out0, const float *grad_out1, const float *x, const float *residual" in backward[0]
    assert "float *grad_x, float *grad_residual, float *grad_weight, int64_t M" in backward[0]


def test_signatures_of_kernels_name_types_and_places():
    own = {language: "\n".join(declarations("layer_norm", language)) for language in KERNELS}
    assert "norm_float32(global const float *x, " in own["opencl"] and "double eps, global float *out" in own["opencl"]
    assert "norm_float16(global const half *x, " in own["opencl"]
    assert "norm_bfloat16(global const ushort *x, " in own["opencl"]
    assert own["opencl"].count("long M, long N);") == own["opencl"].count("\n") + 1
    assert "norm_float32(device const float *x, " in own["metal"]
    assert "constant float &eps, device float *out" in own["metal"]
    assert "norm_bfloat16(device const bfloat *x, " in own["metal"]
    assert own["metal"].count("constant long &M, constant long &N);") == own["metal"].count("\n") + 1
    assert "float64" in tasks.find("airy_ai").dtypes
    assert "airy_ai_float64(global const double *" in "\n".join(declarations("airy_ai", "opencl"))
    assert "float64" not in "\n".join(declarations("airy_ai", "metal"))
    assert "cases in float64 and complex128 are left out" in text_of(asked("airy_ai"), "metal")
    assert "are left out" not in text_of(asked("gelu"), "metal")


TAKEN = {
    "a number": ("2.5", {"opencl": "double given,", "metal": "constant float &given,"}),
    "a flag": ("True", {"opencl": "long given,", "metal": "constant long &given,"}),
    "a list": ("[1, 2]", {"opencl": "global const long *given,", "metal": ""}),
    "None": ("None", {"opencl": "global const void *given,", "metal": ""}),
    "a string": ("'up'", {"opencl": "", "metal": ""}),
}


@pytest.mark.parametrize("language", KERNELS)
@pytest.mark.parametrize(("value", "by_language"), TAKEN.values(), ids=TAKEN)
def test_what_kernels_cannot_take_is_said(tmp_path, language, value, by_language):
    path = tmp_path / "own.py"
    text = OWN.replace("{summary}", "x").replace("def triple(x)", "def triple(x, given)").replace("{x}", "x")
    path.write_text(
        text.replace('args=(data("x", "M N"),)', f'args=(data("x", "M N"), plain("given", {value}))').replace(
            "ROWS, data", "ROWS, data, plain"
        )
    )
    task = tasks.open_task(str(path))
    if by_language[language]:
        assert by_language[language] in "\n".join(declarations(task, language))
    else:
        kind = {"[1, 2]": "list", "None": "None", "'up'": "string"}[value]
        called = {"opencl": "OpenCL C", "metal": "Metal"}[language]
        said = rf"task triple has an argument that no {called} kernel can take, given \({kind}\): .* than {language}"
        with pytest.raises(UsageError, match=said):
            text_of(asked(task), language)
    assert "given" in text_of(asked(task), "cpp")


def test_a_task_in_dtypes_that_a_language_lacks(tmp_path):
    task = dataclasses.replace(own_task(tmp_path), dtypes=("float64",), backward_dtypes=())
    assert "triple_float64(global const double *" in text_of(asked(task), "opencl")
    with pytest.raises(UsageError, match=r"task triple has no case without a dtype that Metal lacks: .* than metal"):
        text_of(asked(task), "metal")


# -- what is told of kernels without host code -----------------------------------------------------------------------


@pytest.mark.parametrize("language", KERNELS)
def test_launches_are_over_the_tasks_own_sizes(language):
    text = text_of(asked("muon"), language)
    assert "integer expression over `M`, `N`, `steps`: " in text and "steps_" in text  # a parameter has that name too
    assert [dim.name for dim in tasks.find("muon").dims] == ["M", "N", "steps"]


def test_launch_lines_are_of_the_forms_that_are_told():
    def told(language):
        return re.findall(r"^// kerneleval-.*$", text_of(asked("gelu"), language), re.M)

    sizes = {"(X,Y,Z)": "(cdiv(M*N,256)*256,1,1)", "KERNEL": "a", "ENTRY": "b", "BYTES": "4*min(M,N)+M%3"}
    text = "\n".join(functools.reduce(lambda line, pair: line.replace(*pair), sizes.items(), x) for x in told("opencl"))
    plans = launches.read_plans(text)
    assert [(name, len(plan.steps), plan.scratch) for name, plan in plans.items()] == [
        ("a", 1, ()),
        ("b", 1, ("4*min(M,N)+M%3",)),
    ]
    (line,) = told("metal")
    assert list(launches.read_launches(line.replace("KERNEL", "a").replace("(X,Y,Z)", "(cdiv(M*N,256),1,1)"))) == ["a"]


def test_what_is_told_of_opencl_is_so():
    if reason := opencl_runtime.unusable():
        pytest.skip(f"not run: {reason}")
    device = opencl_runtime.opened().device
    if "PoCL" not in opencl_runtime.described().driver:
        pytest.skip("not run: the text is of PoCL's device")
    text = text_of(asked("gelu", device="opencl"), "opencl")
    assert f"A group has at most {device.max_work_group_size} work-items" in text
    assert "cl_khr_fp16" not in device.extensions.split() and "Half types have no arithmetic" in text
    assert "cl_khr_fp64" in device.extensions.split() and "`double` is there" in text


@pytest.mark.parametrize("language", KERNELS)
def test_the_rules_are_those_of_kernels(language):
    text = text_of(asked("gelu"), language)
    assert "What you do not support, say by leaving out its entry point." in text
    for not_so in ("return 1", "PyTorch's", "NotImplementedError", "current stream", "Workspace", 'extern "C"'):
        assert not_so not in text.replace("in PyTorch", ""), not_so


def test_metal_has_one_launch_a_call():
    for name in ("bmm_gelu", next(task.name for task in tasks.all_tasks().values() if task.level == 3)):
        assert "one launch for each call" in text_of(asked(name), "metal")
        fusion = text_of(asked(name), "metal").partition("# Fusion")[2].partition("\n# ")[0]
        assert fusion and "second kernel" not in fusion and "next kernel" not in fusion
    assert "second kernel" in text_of(asked("bmm_gelu"), "opencl").partition("# Fusion")[2].partition("\n# ")[0]


def test_units_of_a_device_have_their_name():
    for device, units in (("opencl", "132 compute units"), ("metal", "132 cores"), ("cpu", "132 cores")):
        machine = dataclasses.replace(MACHINE, device=device)
        assert units in text_of(asked("gelu", device=device, machine=machine), "opencl")
    small = text_of(asked("gelu", device="opencl", limits=None), "opencl")
    assert (
        small.partition("What a call costs")[2].partition("# ")[0]
        == (text_of(asked("gelu", device="cpu"), "opencl").partition("What a call costs")[2].partition("# ")[0])
    )
    assert (
        small.partition("What a call costs")[2].partition("# ")[0]
        != (text_of(asked("gelu"), "opencl").partition("What a call costs")[2].partition("# ")[0])
    )


# -- examples --------------------------------------------------------------------------------------------------------


def example(language):
    (entry,) = (e for e in EXAMPLES.iterdir() if f"_in_{language}." in e.name)
    return entry


@pytest.mark.parametrize("language", LANGUAGES)
def test_examples_are_shown(language):
    entry = example(language)
    task = entry.name.partition("_in_")[0]
    source = entry.read_text().partition("\n\n")[2].strip()
    text = text_of(asked("gelu"), language, examples=5)
    assert source in text and f"`{task}` ({tasks.find(task).summary})" in text
    assert "not shown" not in text and "ruff" not in text
    assert source not in text_of(asked("gelu"), language)
    assert source not in text_of(asked(task), language, examples=5)  # that would be the answer
    got, problem, _ = extract(f"```\n{source}\n```", language=language, finished=True)
    assert (got.strip(), problem) == (source, "")


@pytest.mark.parametrize("language", [*HOSTED, "metal"])
def test_examples_export_what_is_asked_for(language):
    entry = example(language)
    text = re.sub(r"\s+", "", entry.read_text()).replace("Bfloat16", "uint16_t")
    task = tasks.find(entry.name.partition("_in_")[0])
    kinds = [line for line in declarations(task, language) if language != "cpp" or "_float16" not in line]
    for line in kinds:
        asked_for = re.sub(r"\s+", "", line).removesuffix(");").removesuffix("void*stream")
        assert asked_for in text, line


@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
def test_steps_of_the_opencl_example_take_what_is_asked_for():
    source = Path(str(example("opencl"))).read_text()
    plans = launches.read_plans(source)
    flat = subprocess.run(
        ["g++", "-E", "-P", "-x", "c", "-"], input=source, capture_output=True, text=True, check=True
    ).stdout
    given = dict(re.findall(r"kernel void (\w+)\(([^)]*)\)", flat))
    asked_for = dict(re.findall(r"kernel void (\w+)\((.*)\);", "\n".join(declarations("softmax", "opencl"))))
    assert plans.keys() == asked_for.keys()
    for entry, plan in plans.items():
        for step in plan.steps:
            parameters = given[step.kernel].split(", ")
            scratch = [one for one in parameters if "figures" in one]
            assert len(scratch) == len(plan.scratch)
            assert ", ".join(one for one in parameters if one not in scratch) == asked_for[entry]
    assert given.keys() == {step.kernel for plan in plans.values() for step in plan.steps}


FEW = Protocol(tier="quick", timed=False, categories=("small", "edge"), allow=("custom", "mixed", "library"))


@pytest.mark.slow(every=4)
@pytest.mark.parametrize("language", ["torch", "numba", "cpp", "triton"])
def test_examples_are_right(language, judge):
    if missing := languages.find(language).missing("cpu"):
        pytest.skip(f"needs {missing}")
    entry = example(language)
    candidate = languages.read_candidate(Path(str(entry)))
    assert candidate.language == language
    slow = language == "triton"  # its interpreter
    protocol = dataclasses.replace(FEW, categories=("tiny",)) if slow else FEW
    verdict = judge.check(candidate, tasks.find(entry.name.partition("_in_")[0]), protocol)
    assert verdict.verdict == "passed", verdict.message
    assert verdict.track == ("library" if language == "torch" else "custom")


@pytest.mark.slow
def test_the_opencl_example_is_right(new_cache):
    if reason := opencl_runtime.unusable():
        pytest.skip(f"not run: {reason}")
    task = tasks.find("softmax")
    protocol = dataclasses.replace(FEW, distributions=("standard",))
    with Judge("opencl", new_cache()) as judge:
        verdict = judge.check(languages.read_candidate(Path(str(example("opencl")))), task, protocol)
    assert (verdict.verdict, verdict.track) == ("passed", "custom"), verdict.message
    assert verdict.machine.device == "opencl"
    assert {type(cell.outcome) for cell in verdict.cells} == {Passed}
    assert {(cell.case.dtype, cell.case.direction) for cell in verdict.cells} == {
        (dtype, direction) for dtype in task.dtypes for direction in ("forward", "backward")
    }
    assert len(task.dtypes) == 3


# -- Metal's example: as C++ on the host, which is no Metal compiler and no hardware of Apple's ----------------------

KINDS = ("ordinary", "large", "far below zero", "small")
METAL_DIMS = {"ordinary": [(3, 2), (1, 31), (2, 33), (2, 255), (1, 256), (1, 257), (1, 1001)]}
"""Other kinds than ordinary: a row within a group's threads, and one that they pass over more than once."""


@pytest.fixture(scope="module")
def on_host(tmp_path_factory):
    """The Metal example, loaded by its language over a stand-in for ``torch.mps.compile_shader``."""
    if not shutil.which("g++"):
        pytest.skip("needs g++")
    fake = Namespace(
        "torch.mps", torch.mps, {"compile_shader": metal_on_host.compiler(tmp_path_factory.mktemp("metal"))}
    )
    candidate = languages.read_candidate(Path(str(example("metal"))))
    with mock.patch.object(torch, "mps", fake), mock.patch.dict(base._TORCH_DEVICE, {"metal": "cpu"}):
        return languages.find("metal").load(candidate, Path(), "metal", names=("softmax",))


def rows(shape, dtype, kind="ordinary"):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(shape[-1]))
    if kind == "large":
        x = x * 60 + 1000
    elif kind == "far below zero":
        x = x * 60 - 1000
    elif kind == "small":
        x = x * 1e-3
    return x.to(dtype)


def softmax_on_host(loaded, x):
    name = str(x.dtype).removeprefix("torch.")
    spec = [languages.OutputSpec(shape=tuple(x.shape), dtype=name)]
    return loaded.forward([x], spec, {"M": x.shape[0], "N": x.shape[1]})


ROUNDING = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
"""Of results below 1: fp32's arithmetic, and one rounding of a half type."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
def test_the_metal_example_computes_a_softmax_on_the_host(on_host, dtype, kind):
    for shape in METAL_DIMS.get(kind, [(2, 33), (1, 1001)]):
        x = rows(shape, dtype, kind)
        want = torch.softmax(x.double(), -1)
        got = softmax_on_host(on_host, x)
        assert got.dtype == dtype
        torch.testing.assert_close(got.double(), want, rtol=ROUNDING[dtype], atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
def test_the_metal_example_computes_gradients_on_the_host(on_host, dtype, kind):
    for shape in METAL_DIMS.get(kind, [(2, 33), (1, 1001)]):
        x, grad = rows(shape, dtype, kind), torch.randn(shape).to(dtype)
        leaf = x.double().requires_grad_()
        (want,) = torch.autograd.grad(torch.softmax(leaf, -1), leaf, grad.double())
        spec = [languages.OutputSpec(shape=shape, dtype=str(dtype).removeprefix("torch."))]
        (got,) = on_host.backward([grad], [x], spec, {"M": shape[0], "N": shape[1]})
        assert got.dtype == dtype
        torch.testing.assert_close(got.double(), want, rtol=ROUNDING[dtype], atol=2e-6)


@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
def test_the_metal_example_keeps_nan_and_infinities_on_the_host(on_host, dtype):
    x = rows((7, 301), dtype)
    x[0, 0], x[1, 300], x[2, 150], x[3, 7] = float("nan"), float("nan"), float("inf"), float("-inf")
    x[4], x[5] = float("nan"), float("-inf")
    want, got = torch.softmax(x.double(), -1), softmax_on_host(on_host, x).double()
    assert want.isnan().any(-1).tolist() == [True, True, True, False, True, True, False]
    torch.testing.assert_close(got, want, rtol=ROUNDING[dtype], atol=1e-7, equal_nan=True)


def test_the_metal_example_of_nothing_on_the_host(on_host):
    assert softmax_on_host(on_host, torch.empty(0, 5)).shape == (0, 5)


@pytest.mark.slow
def test_the_cuda_example_compiles(tmp_path):
    language = languages.find("cuda")
    if missing := language.missing("cuda"):
        pytest.skip(f"needs {missing}")
    language.build(languages.read_candidate(Path(str(example("cuda")))), tmp_path, "cuda", "sm_90")
    assert [file.suffix for file in tmp_path.iterdir()] == [".so"]


def test_the_hip_example_compiles(tmp_path):
    language = languages.find("hip")
    if missing := language.missing("rocm"):
        pytest.skip(f"needs {missing}")
    try:
        language.build(languages.read_candidate(Path(str(example("hip")))), tmp_path, "rocm", "gfx90a")
    except languages.BuildError as error:
        if "'hip/hip_bf16.h' file not found" in error.log:
            pytest.skip("needs hipcc of ROCm 5.6 or newer: this one has no bfloat16")
        raise
    assert [file.suffix for file in tmp_path.iterdir()] == [".so"]


# -- refinement ------------------------------------------------------------------------------------------------------


def turn(text="", feedback="wrong at N = 7", source="", problem="", message=""):
    candidate = Candidate(files=(("a.py", source),), language="triton") if source else None
    answer = Answer(candidate=candidate, origin=Origin(), text=text, problem=problem, message=message)
    return EarlierRound(answer=answer, feedback=feedback)


def test_history():
    history = (turn("<think>\nlong thoughts\n</think>\nFirst: ```x```"), turn(source="x = '```'\n", feedback="slow"))
    prompt = render(asked("gelu", history=history), language="triton")
    assert [role for role, _ in prompt.messages] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert prompt.messages[:2] == render(asked("gelu"), language="triton").messages
    assert prompt.messages[2][1] == "First: ```x```"
    assert prompt.messages[4][1] == "````python\nx = '```'\n````"
    assert "wrong at N = 7" in prompt.messages[3][1] and "tagged `python`" in prompt.messages[3][1]
    assert "slow" in prompt.messages[5][1]
    assert prompt.hash != render(asked("gelu", history=history[:1]), language="triton").hash


@pytest.mark.parametrize(
    ("problem", "said"), [("no_code", "held no candidate"), ("refused", "declined"), ("truncated", "cut off")]
)
def test_history_without_a_candidate(problem, said):
    told = render(
        asked("gelu", history=(turn(problem=problem, message="Why.", feedback=""),)), language="cuda"
    ).messages
    assert told[2] == ("assistant", "(no answer)")
    assert said in told[3][1] and "Why." in told[3][1]


@pytest.mark.parametrize("language", KERNELS)
def test_history_of_kernels(language):
    history = (turn(source="kernel void f() {}\n"), turn("Second.", feedback="slow"))
    told = render(asked("gelu", history=history), language=language).messages
    assert [role for role, _ in told[2:]] == ["assistant", "user"] * 2
    assert told[2][1] == f"```{language}\nkernel void f() {{}}\n```"
    assert "wrong at N = 7" in told[3][1] and f"tagged `{language}`" in told[3][1]
    assert told[:2] == render(asked("gelu"), language=language).messages


def test_feedback_is_data():
    told = render(asked("gelu", history=(turn("a", feedback="{{ task }}\x1b[2J\ud800"),)), language="cpp").messages
    assert "{{ task }}[2J?" in told[3][1]


# -- templates -------------------------------------------------------------------------------------------------------


def test_templates():
    folder = resources.files("kerneleval.generators.common.prompts") / "templates"
    assert {"triton", "cuda", "hip", "cpp", "torch", "numba", "opencl", "metal"} == set(LANGUAGES)
    assert set(LANGUAGES) == languages.all_languages().keys()
    assert {*PYTHON, *NATIVE} == set(LANGUAGES)
    for name, template in TEMPLATES.items():
        assert name == template.name == f"{template.file.split('.')[0]}/v{template.version}"
        assert (folder / template.file).read_text().startswith(f"{{# kerneleval-template: {name} #}}\n")
        if template.language:
            by_name = render(asked("gelu"), language=template.language, template=name)
            assert by_name.template == name
    assert TEMPLATES["feedback/v1"].language == ""


def test_a_template_of_ones_own(tmp_path):
    own = tmp_path / "mine.md.j2"
    own.write_text('Solve {{ task.name }} in {{ language }}:\n{% include "part_device.v1.md.j2" %}\n')
    prompt = render(asked("gelu"), language="triton", template=str(own))
    assert prompt.template == "mine"
    assert [role for role, _ in prompt.messages] == ["user"]
    assert prompt.messages[0][1].startswith("Solve gelu in triton:\n\n# Device\n\n- NVIDIA H200")

    (tmp_path / "part_device.v1.md.j2").write_text("my device")  # beside it, for the built-in one
    own.write_text(
        '{# kerneleval-template: terse/v7 #}\n{% call message("system") %} S {% endcall %}\n'
        '{% call message("user") %}{% include "part_device.v1.md.j2" %}{% endcall %}\n'
    )
    prompt = render(asked("gelu"), language="triton", template=str(own))
    assert prompt.template == "terse/v7"
    assert prompt.messages == (("system", "S"), ("user", "my device"))
    after = render(asked("gelu", history=(turn("a"),)), language="triton", template=str(own))
    assert after.messages[3][0] == "user" and "wrong at N = 7" in after.messages[3][1]


def test_what_is_documented(tmp_path):
    page = (Path(__file__).resolve().parents[2] / "docs" / "prompts.md").read_text()
    own = tmp_path / "own.j2"
    own.write_text(page.split("```jinja\n")[1].split("```")[0])
    prompt = render(asked("gelu"), language="triton", template=str(own))
    assert prompt.template == "terse/v1"
    assert [role for role, _ in prompt.messages] == ["system", "user"]
    assert "`gelu_backward(grad_out, x)`" in prompt.messages[1][1]
    (row,) = (line for line in page.splitlines() if line.startswith("| `task` |"))
    documented = set(re.findall(r"`(\w+)`", row)) - {"task"}
    assert documented == set(facts_of(tasks.find("gelu"), "triton"))
    assert all(f"`{name}`" in page for name in TEMPLATES)


WRONG = {
    "syntax": ("a\n{% if %}\n", r"mine\.j2:2: .*[Ee]xpected"),
    "unknown name": ("a\n\n{{ tusk.name }}\n", r"mine\.j2:3: .*'tusk' is undefined"),
    "unknown field": ("{{ task.nmae }}", r"mine\.j2:1: .*no attribute 'nmae'"),
    "unknown part": ('a\n{% include "part_x.md.j2" %}', r"mine\.j2:2: there is no template 'part_x\.md\.j2'"),
    "no way out": ('{% include "../secret" %}', r"mine\.j2:1: there is no template"),
    "internals": ("{{ ''.__class__.__mro__ }}", r"mine\.j2:1: .*SecurityError"),
    "role": ('{% call message("boss") %}x{% endcall %}', r"mine\.j2:1: .*no message has the role 'boss'"),
    "beside messages": ('x{% call message("user") %}x{% endcall %}', r"mine\.j2: .*text outside of its messages: 'x'"),
    "no question": ('{% call message("system") %}x{% endcall %}', r"mine\.j2: the last message .* must be the user's"),
    "empty": ("{# nothing #}", r"mine\.j2: the last message"),
    "own error": ("\n{{ 1 // 0 }}", r"mine\.j2:2: .*ZeroDivisionError"),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_template(tmp_path, text, message):
    own = tmp_path / "mine.j2"
    own.write_text(text)
    (tmp_path.parent / "secret").write_text("secret")
    with pytest.raises(UsageError, match=message):
        render(asked("gelu"), language="triton", template=str(own))


@pytest.mark.parametrize(
    ("language", "template", "message"),
    [
        ("tritn", "", r"no prompt for language 'tritn'; did you mean triton\?"),
        ("fortran", "", r"no prompt for language 'fortran'; known are cpp, cuda, .*triton \(for device 'cuda'\)"),
        ("openCL", "", r"no prompt for language 'openCL'; did you mean opencl\?"),
        ("opencl", "metal/v1", r"'metal/v1' is not for opencl"),
        ("triton", "triton/v9", r"no prompt template is called 'triton/v9'.*did you mean triton/v1"),
        ("triton", "cuda/v1", r"'cuda/v1' is not for triton"),
        ("triton", "feedback/v1", r"'feedback/v1' is not for triton"),
        ("triton", "/no/such/file.j2", r"/no/such/file\.j2: the prompt template cannot be read"),
    ],
)
def test_wrong_names(language, template, message):
    with pytest.raises(UsageError, match=message):
        render(asked("gelu"), language=language, template=template)


def test_a_template_that_is_no_text(tmp_path):
    (tmp_path / "x.j2").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match=r"x\.j2: the prompt template cannot be read"):
        render(asked("gelu"), language="triton", template=str(tmp_path / "x.j2"))
    with pytest.raises(UsageError, match="examples must be 0 or more, not -1"):
        render(asked("gelu"), language="triton", examples=-1)


def test_jinja_is_asked_for(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    (tmp_path / "x.j2").write_text("x")
    with pytest.raises(UsageError, match=r"pip install 'kerneleval\[llm\]'"):
        render(asked("gelu"), language="triton", template=str(tmp_path / "x.j2"))
