"""Python candidates: which entry point is taken, what an error says, modules, counting and muting."""

from __future__ import annotations

import json
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest
import torch

from kerneleval import languages
from kerneleval.languages import LoadError
from kerneleval.languages.common.watch import LaunchWatch, Patch
from kerneleval.records import InfrastructureError, UsageError

X = torch.arange(6.0).reshape(2, 3)


def call(loaded, *args):
    return loaded.forward(list(args), (), {})


@pytest.mark.parametrize(
    ("source", "fields", "factor"),
    [
        ("def gelu(x): return x * 2\ndef run(x): return x * 3", {}, 2),
        ("def run(x): return x * 3\ndef kernel_function(x): return x * 4", {}, 3),
        ("def kernel_function(x): return x * 4\ndef other(x): return x", {}, 4),
        ("def gelu(x): return x * 2\ndef other(x): return x * 5", {"entry": "other"}, 5),
        ("gelu = lambda x: x * 6", {}, 6),
        ("import functools\ndef f(k, x): return x * k\ngelu = functools.partial(f, 7)", {}, 7),
        ("if True:\n    def gelu(x): return x * 8", {}, 8),
        ("try:\n    import missing_module\nexcept ImportError:\n    gelu = lambda x: x * 9", {}, 9),
        ("exec('def gelu(x): return x * 10')", {}, 10),
        ("import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x): return x * 11", {}, 11),
        ("import torch\nclass F(torch.nn.Module):\n    def forward(self, x): return x * 12", {"entry": "F"}, 12),
        (
            "import torch\nclass F(torch.autograd.Function):\n    @staticmethod\n"
            "    def forward(ctx, x): return x * 13\ngelu = F.apply",
            {},
            13,
        ),
    ],
)
def test_entry_points_in_order(load, source, fields, factor):
    assert torch.equal(call(load(source, "torch", **fields), X), X * factor)


def test_an_imported_function_is_no_entry_point(load):
    loaded = load("from torch import exp\ndef run(x): return exp(x) + 1", "torch", names=("exp",))
    assert torch.equal(call(loaded, X), X.exp() + 1)


def test_an_assigned_library_function_is_one(load):
    loaded = load("import torch\nexp = torch.exp", "torch", names=("exp",))
    assert torch.equal(call(loaded, X), X.exp())


GONE = """
import weakref
class Thing: pass
class Odd:
    @property
    def __class__(self): raise RuntimeError("says nothing")
    def __getattribute__(self, name): raise KeyError(name)
gone, odd = weakref.proxy(Thing()), Odd()
"""


def test_values_that_do_not_answer_are_no_entry_points(load):
    """A dead weak reference raises whatever it is asked, and candidates keep such for caches."""
    assert torch.equal(call(load(GONE + "def gelu(x): return x * 2", "torch"), X), X * 2)
    with pytest.raises(LoadError, match="callables there are Thing, Odd, other"):
        load(GONE + "def other(x): return x * 2", "torch")


def test_two_task_names_are_tried_in_order(load):
    loaded = load("def b(x): return x + 2\ndef a(x): return x + 1", "torch", names=("a", "b"))
    assert torch.equal(call(loaded, X), X + 1)


@pytest.mark.parametrize(
    ("source", "fields"),
    [
        ("def gelu(x): return x\ndef gelu_backward(g, x): return g * 2", {}),
        ("def run(x): return x\ndef run_backward(g, x): return g * 2", {}),
        ("def run(x): return x\ndef gelu_backward(g, x): return (g * 2,)", {}),
        ("def run(x): return x\ndef backward(g, x): return [g * 2]", {}),
        ("def f(x): return x\ndef f_backward(g, x): return g * 2", {"entry": "f"}),
        ("def f(x): return x\ndef h(g, x): return g * 2", {"entry": "f", "backward_entry": "h"}),
    ],
)
def test_backward_entry_points(load, source, fields):
    loaded = load(source, "torch", **fields)
    made = loaded.backward([X], [X], (), {})
    assert isinstance(made, tuple)
    assert torch.equal(made[0], X * 2)


@pytest.mark.parametrize("name", ["backward", "gelu_backward"])
def test_what_autograd_calls_is_no_backward_entry_point(load, name):
    """PyTorch's tutorials define it at the top of the file, for ``register_autograd``."""
    text = f"def gelu(x): return x\ndef {name}(ctx, grad): return grad * ctx.saved_tensors[0]"
    assert load(text, "torch").backward is None
    assert load(text, "torch", backward_entry=name).backward is not None


def test_without_backward_autograd_goes_through_forward(load):
    loaded = load("def gelu(x): return x * x", "torch")
    assert loaded.backward is None
    assert loaded.autograd
    leaf = X.clone().requires_grad_()
    (grad,) = torch.autograd.grad(call(loaded, leaf), leaf, torch.ones_like(X))
    assert torch.equal(grad, 2 * X)


@pytest.mark.parametrize(
    ("source", "fields", "parts"),
    [
        (
            "def other(x): return x\nK = 3",
            {},
            ["no entry point", "gelu, run, kernel_function, class ModelNew", "other"],
        ),
        ("def gelu(x): return x", {"entry": "nope"}, ["looked for nope", "gelu"]),
        ("def gelu(x): return x", {"backward_entry": "nope"}, ["no backward entry point", "nope"]),
        ("x = 1\ndef gelu(x:\n  return x", {}, ["candidate.py:2:", "SyntaxError"]),
        ("import os\nimport not_there_at_all", {}, ["candidate.py:2:", "ModuleNotFoundError", "not_there_at_all"]),
        ("\n\nraise ValueError('own words')", {}, ["candidate.py:3:", "ValueError: own words"]),
        ("def f():\n    return 1 / 0\nf()", {}, ["candidate.py:2:", "ZeroDivisionError", "return 1 / 0"]),
        ("import sys\nsys.exit(0)", {}, ["candidate.py:2:", "SystemExit"]),
        ("import json\njson.loads('{')", {}, ["candidate.py:2:", "JSONDecodeError"]),
        ("x = '\0'", {}, ["null byte"]),
        ("raise ValueError('x' * 100000)", {}, ["ValueError: xxx"]),
    ],
)
def test_load_errors_say_where_and_what(load, source, fields, parts):
    with pytest.raises(LoadError) as caught:
        load(source, "torch", **fields)
    for part in parts:
        assert part in str(caught.value)
    assert len(str(caught.value)) <= 8192


def test_sibling_files_are_importable_and_fresh(load):
    for factor in (2, 3):
        helper = ("helper.py", f"FACTOR = {factor}\ndef gelu(x): return x * FACTOR")
        assert torch.equal(call(load("from helper import gelu", "torch", helper), X), X * factor)
        assert torch.equal(call(load("from helper import *", "torch", helper), X), X * factor)
        late = "def gelu(x):\n    import helper\n    return x * helper.FACTOR"
        assert torch.equal(call(load(late, "torch", helper), X), X * factor)


def test_an_error_in_a_sibling_names_it(load):
    with pytest.raises(LoadError, match=r"helper\.py:2: KeyError"):
        load("from helper import gelu", "torch", ("helper.py", "\n{}['a']"))


def test_a_sibling_may_not_hide_a_module_in_use(load):
    with pytest.raises(LoadError, match="would hide the module 'json'"):
        load("import json\ndef gelu(x): return x", "torch", ("json.py", ""))


@pytest.mark.parametrize("path", ["/etc/x.py", "../x.py", "a/../../x.py", "", "-o.py", "@args", "a b.py"])
def test_file_paths_stay_in_the_build_directory(load, path):
    with pytest.raises(UsageError, match="candidate file"):
        load("def gelu(x): return x", "torch", (path, ""))


def test_each_load_gives_a_fresh_module(load):
    source = "calls = 0\ndef gelu(x):\n    global calls\n    calls += 1\n    return x + calls"
    first, second = load(source, "torch"), load(source, "torch")
    assert torch.equal(call(first, X), X + 1)
    assert torch.equal(call(first, X), X + 2)
    assert torch.equal(call(second, X), X + 1)


def test_the_module_name_says_nothing(load):
    loaded = load("def gelu(x): return __name__, __file__", "torch")
    name, file = call(loaded, X)
    assert name == "candidate"
    assert "gelu" not in file.rsplit("/", 2)[-1]
    assert sys.modules["candidate"].__file__ == file


MODULE = textwrap.dedent(
    """
    import torch
    class Model(torch.nn.Module):
        def forward(self, x): return x
    class ModelNew(torch.nn.Module):
        def __init__(self, width, scale):
            super().__init__()
            self.linear = torch.nn.Linear(width, width)
            self.scale = scale
        def forward(self, x):
            return self.linear(x) * self.scale
    def run(x): return x
    """
)


def test_modules_are_built_from_their_arguments(load):
    loaded = load(MODULE, "torch", names=())
    module = loaded.make_module([3, 0.5], seed=4)
    assert loaded.module is module
    assert module.training
    assert sorted(module.state_dict()) == ["linear.bias", "linear.weight"]
    with torch.no_grad():
        module.state_dict()["linear.weight"].copy_(torch.eye(3))
        module.state_dict()["linear.bias"].zero_()
    assert torch.equal(call(loaded, X), X * 0.5)  # the module, though there is a function run


def test_module_weights_follow_the_seed(load):
    a, b = load(MODULE, "torch"), load(MODULE, "torch")
    weight = a.make_module([3, 1.0], seed=4).state_dict()["linear.weight"]
    assert torch.equal(weight, b.make_module([3, 1.0], seed=4).state_dict()["linear.weight"])
    assert not torch.equal(weight, b.make_module([3, 1.0], seed=5).state_dict()["linear.weight"])


@pytest.mark.parametrize(
    ("source", "args", "message"),
    [
        (MODULE, [3], "ModelNew.*TypeError"),
        (
            "import torch\nclass ModelNew(torch.nn.Module):\n    def __init__(self): raise KeyError('k')",
            [],
            "py:3.*KeyError",
        ),
        ("class ModelNew: pass", [], "not a torch.nn.Module"),
        ("def run(x): return x", [], "no module class"),
    ],
)
def test_module_errors(load, source, args, message):
    with pytest.raises(LoadError, match=message):
        load(source, "torch").make_module(args)


def test_not_implemented_reaches_the_caller(load):
    with pytest.raises(NotImplementedError, match="no fp16"):
        call(load("def gelu(x): raise NotImplementedError('no fp16')", "torch"), X)


def test_wrong_device_is_a_usage_error(make, tmp_path):
    with pytest.raises(UsageError, match="numba candidates do not run on device 'cuda': they run on cpu"):
        languages.find("numba").load(make("import numba", "numba"), tmp_path, "cuda")


def test_missing_package_says_what_to_install(make, tmp_path, monkeypatch):
    language = languages.find("numba")
    monkeypatch.setattr(type(language), "imported", "numba_that_is_absent")
    assert "pip install numba" in language.missing("cpu")
    with pytest.raises(InfrastructureError, match="pip install numba"):
        language.load(make("import numba", "numba"), tmp_path, "cpu")


# -- Numba ------------------------------------------------------------------------------------------------------------

NUMBA = textwrap.dedent(
    """
    import numba, numpy as np, torch
    @numba.njit
    def inner(v): return v * 2.0
    @numba.njit
    def kernel(x, out):
        for i in range(x.size): out[i] = inner(x[i])
    @numba.vectorize
    def bump(a): return a + 1
    def gelu(x):
        out = torch.zeros_like(x)
        kernel(x.reshape(-1).numpy(), out.view(-1).numpy())
        return torch.from_numpy(bump(out.numpy()))
    """
)


def test_numba_launches_are_counted_and_muted(load):
    loaded = load(NUMBA, "numba")
    assert torch.equal(call(loaded, X), X * 2 + 1)
    assert loaded.launches() == {"kernel": 1, "bump": 1}  # calls between jitted functions are not seen
    loaded.watch(False)
    call(loaded, X)
    assert loaded.launches() == {"kernel": 1, "bump": 1}
    other = load("import numba\n@numba.njit\ndef k(x): return x\ndef gelu(x): k(1); return x", "numba")
    other.mute(True)
    call(other, X)
    assert other.launches() == {"k": 1}
    other.watch(False)
    from numba.core.registry import CPUDispatcher

    assert "__call__" not in vars(CPUDispatcher)  # put back as it was


def test_numba_muting_shows_what_a_kernel_does(load):
    source = (
        "import numba, torch\n@numba.njit\ndef k(x, o):\n    for i in range(x.size): o[i] = x[i] + 1\n"
        "def gelu(x):\n    o = torch.zeros_like(x)\n    k(x.view(-1).numpy(), o.view(-1).numpy())\n    return o"
    )
    loaded = load(source, "numba")
    assert torch.equal(call(loaded, X), X + 1)
    loaded.mute(True)
    assert torch.equal(call(loaded, X), torch.zeros_like(X))
    loaded.mute(False)
    assert torch.equal(call(loaded, X), X + 1)


def test_a_launch_that_raises_is_none(load):
    source = (
        "import numba, torch\n@numba.njit\ndef k(x):\n    raise ValueError\n"
        "def gelu(x):\n    try:\n        k(x.numpy())\n    except ValueError:\n        return x * 2"
    )
    loaded = load(source, "numba")
    assert torch.equal(call(loaded, X), X * 2)
    assert loaded.launches() == {}


def test_numba_generalised_ufuncs_are_counted(load):
    source = (
        "import numba, torch\n@numba.guvectorize(['void(float32[:], float32[:])'], '(n)->(n)')\ndef k(x, o):\n"
        "    for i in range(x.size): o[i] = x[i] + 1\ndef gelu(x): return torch.from_numpy(k(x.numpy()))"
    )
    loaded = load(source, "numba")
    assert torch.equal(call(loaded, X), X + 1)
    assert loaded.launches() == {"k": 1}


def test_what_was_kept_from_a_watch_is_seen_by_the_next(tmp_path):
    class Kernel:
        def __call__(self):
            return "ran"

        def __getitem__(self, grid):
            return lambda: "ran"

    def describe(kernel):
        return "k", str(tmp_path / "candidate.py")

    patches = (Patch(Kernel, "__call__", describe), Patch(Kernel, "__getitem__", describe, returns_launcher=True))
    first, second = LaunchWatch(patches, tmp_path), LaunchWatch(patches, tmp_path)
    kernel = Kernel()
    first.switch(True)
    bound, launcher = kernel.__call__, kernel[1]
    first.switch(False)
    later = kernel[1]  # not watched, but launchers are kept
    assert [bound(), launcher(), later(), kernel()] == ["ran"] * 4
    assert not first.counts
    second.switch(True)
    second.muted = True
    assert [bound(), launcher(), later(), kernel(), kernel[1]()] == [None] * 5
    assert second.counts == {"k": 5}
    assert not first.counts
    second.switch(False)
    assert [bound(), launcher(), later(), kernel()] == ["ran"] * 4
    assert Kernel.__call__.__name__ == "__call__"


def test_arguments_of_own_kernels_are_shown_before_and_after_each_launch(tmp_path):
    class Kernel:
        file = tmp_path / "candidate.py"

        def __call__(self, out, *, value):
            out[0] = value
            return "ran"

    watch = LaunchWatch((Patch(Kernel, "__call__", lambda kernel: ("k", str(kernel.file))),), tmp_path)
    seen = []
    watch.look = lambda values, after: seen.append((after, str(values)))
    watch.switch(True)
    kernel, other = Kernel(), Kernel()
    other.file = sysconfig.get_paths()["stdlib"] + "/library.py"
    kernel([0], value=2)
    other([0], value=3)
    assert seen == [(False, "(([0],), {'value': 2})"), (True, "(([2],), {'value': 2}, 'ran')")]
    watch.look = None
    kernel([0], value=2)
    assert len(seen) == 2
    watch.switch(False)


def test_binaries_are_those_that_were_launched(tmp_path):
    """Triton's functions have a hash too, of their source: a muted launch, which gives no binary, told it as one."""

    class Binary:
        hash = "of the binary"

        def __getitem__(self, grid):
            return lambda: None

    class Function:
        hash = "of the source"

        def run(self):
            return Binary()

    def describe(kernel):
        return "k", str(tmp_path / "candidate.py")

    patches = (Patch(Function, "run", describe), Patch(Binary, "__getitem__", describe, returns_launcher=True))
    watch = LaunchWatch(patches, tmp_path)
    watch.switch(True)
    watch.muted = True
    Function().run()
    assert (watch.counts, watch.binaries) == ({"k": 1}, set())
    watch.muted = False
    Function().run()
    assert watch.binaries == {"of the binary"}
    watch.binaries.clear()
    Binary()[1]()
    assert (watch.counts, watch.binaries) == ({"k": 3}, {"of the binary"})
    watch.switch(False)


def test_jitted_entry_points_get_arrays(load):
    loaded = load("import numba\n@numba.njit\ndef gelu(x, k): return x * k, x + k", "numba")
    product, total = call(loaded, X, 3.0)
    assert torch.equal(product, X * 3)
    assert torch.equal(total, X + 3)
    assert not loaded.autograd
    assert torch.equal(call(loaded, X.t(), 3.0)[0], X.t() * 3)
    with pytest.raises(NotImplementedError, match="bfloat16"):
        call(loaded, X.bfloat16(), 3.0)


def test_functions_of_libraries_that_a_jitted_function_names_are_linked(load):
    """Numba's own name for BLAS is ``numba_xxgemm``; an external function has any."""
    text = """
import ctypes, numba
from llvmlite import binding
from numba import types
binding.add_symbol("sgemm_", ctypes.cast(ctypes.CDLL(None).abs, ctypes.c_void_p).value)
sgemm = types.ExternalFunction("sgemm_", types.int32(types.int32))
@numba.njit
def inner(n): return sgemm(n)
@numba.njit
def gelu(n): return inner(n)
"""
    loaded = load(text, "numba")
    assert call(loaded, -3) == 3
    assert loaded.linked() == {"numba.sgemm_": 1}


@pytest.mark.parametrize(
    ("library", "linked"), [("None", set()), ("torch._C.__file__", {f"numba.{Path(torch._C.__file__).name}"})]
)
def test_libraries_of_which_a_jitted_function_has_addresses_are_linked(load, library, linked):
    """Those of the system compute single numbers."""
    text = f"""
import ctypes, numba, torch
own = ctypes.CDLL({library})
function = own.abs if {library} is None else type(own.PyInit__C)(ctypes.cast(own.PyInit__C, ctypes.c_void_p).value)
function.argtypes, function.restype = [ctypes.c_int], ctypes.c_int
@numba.njit
def gelu(n): return function(n) if n > 0 else -n
"""
    loaded = load(text, "numba")
    assert call(loaded, -3) == 3
    assert set(loaded.linked()) == linked


# -- Triton -----------------------------------------------------------------------------------------------------------

PRELUDE = """
import json, torch
from pathlib import Path
from kerneleval import languages
from kerneleval.records import Candidate
def load(text, name="a", **fields):
    candidate = Candidate(files=(("candidate.py", text),), language="triton", **fields)
    return languages.find("triton").load(candidate, Path(name), "cpu", names=("gelu",))
x = torch.randn(100)
"""

KERNEL = """
import torch, triton, triton.language as tl
@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)
"""


BEFORE_3_6 = """
import inspect
from triton.runtime import autotuner, interpreter
New, make = interpreter.InterpretedFunction, autotuner.Autotuner.__init__
class InterpretedFunction:
    rewritten_fn = {}
    def __init__(self, fn, **kwargs):
        self.fn, self.rewriter = fn, interpreter.FunctionRewriter(fn, **kwargs)
        self.run = lambda *args, grid, **kwargs: self[grid](*args, **kwargs)
        self.arg_names = list(inspect.signature(fn).parameters)
    rewrite, __name__, __call__ = New.rewrite, New.__name__, New.__call__
    __getitem__ = lambda self, grid: interpreter.GridExecutor(self.rewrite(), self.arg_names, grid)
def init(self, *args, do_bench=None, **options):
    if do_bench is None: raise RuntimeError("0 active drivers ([]). There should only be one.")
    make(self, *args, do_bench=do_bench, **options)
interpreter.InterpretedFunction, autotuner.Autotuner.__init__ = InterpretedFunction, init
del autotuner.Autotuner.do_bench
"""
"""Each kernel has a ``run`` of its own, as in Triton 3.2 to 3.5, and autotuned ones ask for a benchmark function at
once, as in 3.2 and 3.3."""


def test_triton_needs_its_interpreter_on_the_cpu(load, monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(LoadError, match="set TRITON_INTERPRET=1 in the environment before Triton is imported"):
        load(KERNEL, "triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(LoadError, match="Triton was imported before TRITON_INTERPRET=1 was set"):
        load(KERNEL, "triton")


@pytest.mark.parametrize("before", ["", BEFORE_3_6], ids=["now", "before 3.6"])
def test_triton_kernels_are_counted_muted_and_no_entry_points(interpreted, before):
    source = KERNEL + (
        "gelu = double\ndef run(x):\n    out = torch.zeros_like(x)\n"
        "    double[(triton.cdiv(x.numel(), 32),)](x, out, x.numel(), BLOCK=32)\n    return out\n"
    )
    out = interpreted(
        PRELUDE
        + before
        + f"""
loaded = load({source!r})
assert torch.equal(loaded.forward([x], (), {{}}), 2 * x)
counts = [loaded.launches()]
loaded.mute(True)
assert torch.equal(loaded.forward([x], (), {{}}), torch.zeros_like(x))
loaded.mute(False)
loaded.watch(False)
loaded.forward([x], (), {{}})
counts.append(loaded.launches())
from triton.runtime.interpreter import InterpretedFunction
assert InterpretedFunction.run.__name__ == "run"
print(json.dumps(counts))
""",
    )
    assert json.loads(out) == [{"double": 1}, {"double": 2}]


@pytest.mark.parametrize(
    ("imported", "language"),
    [
        ("import triton.language as language", "language."),
        ("from __future__ import annotations\nimport triton.language as language", "language."),
        ("import triton", "triton.language."),
        ("import triton\nfrom triton.language import core", "core."),
        ("import triton\nfrom triton.language import arange, constexpr, load, program_id, store", ""),
    ],
)
@pytest.mark.parametrize("inside", [False, True], ids=["of the module", "of a function"])
def test_triton_kernels_name_the_language_as_compiled_ones_may(interpreted, imported, language, inside):
    """Also in the function that makes a kernel, whose variables it then uses; a dead weak reference is no matter."""
    future, imported = imported.split("\n", 1) if "__future__" in imported else ("", imported)
    text = f"""
import torch, triton
{imported}
@triton.jit
def twice(v):
    return v * 2
@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, twice(tl.load(x + at, mask=at < n)), mask=at < n)
""".replace("tl.", language)
    if inside:
        text = textwrap.indent(text, "    ").replace("\n    ", "\ndef made():\n    ", 1) + "    return double\n"
        text += "import torch, triton\ndouble = made()\n"
    text = future + "\n" + text + "class Gone: pass\nimport weakref\ngone = weakref.proxy(Gone())\n"
    text += (
        "def gelu(x):\n    out = torch.zeros_like(x)\n    double[(4,)](x, out, x.numel(), BLOCK=32)\n    return out\n"
    )
    interpreted(
        PRELUDE
        + f"""
loaded = load({text!r})
assert torch.equal(loaded.forward([x], (), {{}}), 2 * x)
assert torch.equal(loaded.forward([x], (), {{}}), 2 * x)
"""
    )


@pytest.mark.parametrize("before", ["", BEFORE_3_6], ids=["now", "before 3.6"])
def test_autotuned_triton_kernels_run_in_the_interpreter(interpreted, before):
    source = (
        KERNEL.replace(
            "@triton.jit",
            "@triton.autotune([triton.Config({'BLOCK': 16}), triton.Config({'BLOCK': 64})], key=['n'])\n@triton.jit",
        )
        + "def gelu(x):\n    out = torch.zeros_like(x)\n"
        "    double[lambda m: (triton.cdiv(x.numel(), m['BLOCK']),)](x, out, x.numel())\n    return out\n"
    )
    out = interpreted(
        PRELUDE
        + before
        + f"""
loaded = load({source!r})
assert torch.equal(loaded.forward([x], (), {{}}), 2 * x)
print(loaded.launches())
""",
    )
    assert out.strip() == "{'double': 1}"


def test_float_arguments_are_scalars_in_the_interpreter_as_they_are_when_compiled(interpreted):
    source = (
        KERNEL.replace("n, BLOCK", "n, factor, BLOCK")
        .replace("mask=at < n) * 2", "mask=at < n) * factor.to(tl.float32)")
        .replace("def double", "def times")
    )
    source += (
        "def gelu(x):\n    out = torch.zeros_like(x)\n"
        "    times[(triton.cdiv(x.numel(), 32),)](x, out, x.numel(), 0.1, BLOCK=32)\n    return out\n"
    )
    out = interpreted(
        PRELUDE
        + f"""
load({source!r})
loaded = load({source!r})  # twice: what is wrapped once is not wrapped again
assert torch.equal(loaded.forward([x], (), {{}}), 0.1 * x)
half = loaded.forward([x.half()], (), {{}})
assert half.dtype == torch.float16 and torch.allclose(half, 0.1 * x.half(), rtol=2e-3)
print("ok")
""",
    )
    assert out.strip() == "ok"


def test_the_language_is_looked_through_once_and_its_functions_are_afterwards_as_they_were(interpreted):
    source = KERNEL.replace("mask=at < n) * 2", "mask=at < n) * 2 * tl.max(tl.exp(at * 0.0), 0)")
    source += (
        "def gelu(x):\n    out = torch.zeros_like(x)\n"
        "    double[(triton.cdiv(x.numel(), 32),)](x, out, x.numel(), BLOCK=32)\n    return out\n"
    )
    out = interpreted(
        PRELUDE
        + f"""
import inspect
import triton.language as tl
before = {{n: m for n, m in vars(tl).items() if tl.core.is_builtin(m)}}
looked, getmembers = [], inspect.getmembers
inspect.getmembers = lambda *given: looked.append(given) or getmembers(*given)
loaded = load({source!r})
for turn in range(3):
    assert torch.equal(loaded.forward([x], (), {{}}), 2 * x)
    looked.append(None)
assert looked.index(None) and looked[-2:] == [None, None], looked
assert before and before == {{n: vars(tl)[n] for n in before}}
print("ok")
""",
    )
    assert out.strip() == "ok"


def test_bfloat16_is_still_wrong_in_the_interpreter(interpreted):
    """When this fails, Triton has mended it: then bfloat16 may be judged there (docs/candidates.md)."""
    source = KERNEL.replace(
        "tl.load(x + at, mask=at < n) * 2", "tl.load(x + at, mask=at < n) + tl.load(x + at, mask=at < n)"
    )
    source += (
        "def gelu(x):\n    out = torch.zeros_like(x)\n"
        "    double[(triton.cdiv(x.numel(), 32),)](x, out, x.numel(), BLOCK=32)\n    return out\n"
    )
    out = interpreted(
        PRELUDE
        + f"""
b = x.bfloat16()
print(torch.allclose(load({source!r}).forward([b], (), {{}}).float(), 2 * b.float(), rtol=1e-2))
""",
    )
    assert out.strip() == "False"
    triton = languages.find("triton")
    assert triton.unsupported_dtypes("cpu") == ("bfloat16",)
    assert triton.unsupported_dtypes("cuda:0") == ()


# -- load_inline ------------------------------------------------------------------------------------------------------


def test_load_inline_builds_in_the_candidates_own_folder(load, tmp_path):
    source = '''
from torch.utils.cpp_extension import load_inline
SOURCE = """
#include <Python.h>
#define INIT_(name) PyInit_##name
#define INIT(name) INIT_(name)
static PyObject *two(PyObject *, PyObject *) { return PyLong_FromLong(2); }
static PyMethodDef methods[] = {{"two", two, METH_NOARGS, nullptr}, {}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "inline", nullptr, -1, methods};
PyMODINIT_FUNC INIT(TORCH_EXTENSION_NAME)() { return PyModule_Create(&module); }
"""
extension = load_inline("inline_gelu_test", SOURCE, no_implicit_headers=True)  # which take half a minute


def gelu(x):
    return x * extension.two()
'''
    loaded = load(source, "torch")
    assert torch.equal(call(loaded, X), X * 2)
    assert list(tmp_path.glob("build0/extensions/**/*.so"))
