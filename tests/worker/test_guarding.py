"""What a guard tells of candidates: every kind of tampering, and honest code that looks like it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = Path(__file__).parent / "guarding_driver.py"

OF_THE_WORKER = "vars(types.FunctionType)['__globals__'].fget"
"""A function that candidates can get at: who asks for what functions hold comes through it."""

# source: (level, when, part of what is told)
TAMPERING = {
    "import torch\ntorch.allclose = lambda *a: True": ("fail", "load", "replaced torch.allclose"),
    "import time\nsetattr(time, 'perf_counter', time.process_time)": ("fail", "load", "time.perf_counter"),
    "import torch\ntorch.Tensor.equal = lambda a, b: True": ("fail", "load", "replaced torch.Tensor.equal"),
    "import torch\ntorch.cuda.synchronize = int": ("fail", "load", "torch.cuda.synchronize"),
    "import torch\ntorch.cuda.Event.elapsed_time = lambda a, b: 0.0": ("fail", "load", "Event.elapsed_time"),
    "import torch\ndef f(seed): pass\ntorch.random.manual_seed.__code__ = f.__code__": ("fail", "load", "manual_seed"),
    "import os\nos._exit = print": ("fail", "load", "replaced os._exit"),
    "import builtins\nbuiltins.all = lambda *a: True": ("fail", "load", "builtins.all"),
    "import functools, time\ntime.time = functools.partial(int, 0)": ("fail", "load", "replaced time.time"),
    "import time\nold = time.sleep\ntime.sleep = lambda s: old(0)": ("fail", "load", "replaced time.sleep"),
    "exec('import torch; torch.equal = print')": ("fail", "load", "replaced torch.equal"),
    "import torch\ntorch.nn.Parameter = torch.Tensor": ("fail", "load", "replaced torch.nn.Parameter"),
    "import os\ntry:\n    os.kill(1, 0)\nexcept OSError: pass": ("fail", "load", "signal to another process, in"),
    "import time\ndef run():\n    time.monotonic = int": ("fail", "call", "replaced time.monotonic"),
    "import sys\ndef run():\n    sys._getframe(1)": (
        "fail",
        "call",
        "frame of the worker (sys._getframe), in candidate.py:3",
    ),
    "import sys\ndef run():\n    exec('sys._getframe(2)')": ("fail", "call", "frame of the worker"),
    "import inspect\ndef run():\n    inspect.currentframe().f_back.f_code": ("fail", "call", "frames of the worker"),
    "import inspect\ndef run():\n    inspect.stack()": ("warn", "call", "frames of the worker"),
    "import gc\ngc.get_objects()": ("fail", "load", "gc.get_objects"),
    "import gc\nfrom gc import get_referrers as g\ng(gc)": ("fail", "load", "gc.get_referrers"),
    "import sys\nsys._current_frames()": ("fail", "load", "_current_frames"),
    "import kerneleval.worker.wire as w\nw.Channel.send.__code__": ("fail", "load", "code of Channel.send"),
    f"import types\n{OF_THE_WORKER}.__globals__": ("fail", "load", "reads the __globals__ of"),
    f"import types\ndef run():\n    getattr({OF_THE_WORKER}, '__clo' + 'sure__')": (
        "fail",
        "call",
        "the __closure__ of",
    ),
    f"import inspect, types\ninspect.getclosurevars({OF_THE_WORKER})": ("warn", "load", "reads the __"),
    f"import types\nexec(\"assert {OF_THE_WORKER}.__globals__ == {{}}\", dict(types=types, __name__='kerneleval.x'))": (
        "fail",
        "load",
        "reads the __globals__ of",
    ),
    f"import operator, types\nfrom concurrent.futures import ThreadPoolExecutor as P\n"
    f"assert P(1).submit(operator.attrgetter('__closure__'), {OF_THE_WORKER}).result() is None": (
        "warn",
        "load",
        "reads the __closure__ of",
    ),
    "import json\nf = lambda: 0\njson.loads.__code__ = f.__code__": ("fail", "load", "json.loads"),
    "import json\nold = json.JSONEncoder.iterencode\ndef f(self, *a, **k): return old(self, *a, **k)\n"
    "def put(kind): kind.iterencode = f\nput(json.JSONEncoder)": ("fail", "load", "JSONEncoder.iterencode"),
    "import json\ndef run():\n    for one in [json.encoder]: one._make_iterencode = 1": (
        "fail",
        "call",
        "_make_iterencode",
    ),
    "import contextlib\nwith contextlib.suppress(OSError):\n    open('/proc/1/environ')": (
        "fail",
        "load",
        "/proc/1/environ",
    ),
    "import pathlib as p\ntry:\n    p.Path('/proc/self/../1/mem').read_text()\nexcept OSError: pass": (
        "fail",
        "load",
        "of another process",
    ),
    "import contextlib\nwith contextlib.suppress(OSError):\n    open('/proc/self/mem', 'r+b')": (
        "fail",
        "load",
        "writing",
    ),
    "import contextlib\nwith contextlib.suppress(OSError):\n    open('/proc/self/maps')": (
        "warn",
        "load",
        "/proc/self/maps",
    ),
    "import contextlib\nwith contextlib.suppress(OSError):\n    open('/proc/1/cmdline')": (
        "warn",
        "load",
        "/proc/1/cmdline",
    ),
    "import os\nos.kill(os.getppid(), 0)": ("fail", "load", "signal"),
    "import ctypes\nctypes.CDLL(None).ptrace": ("fail", "load", "ptrace"),
    "import signal\nsignal.signal(15, lambda *a: None)": ("warn", "load", "handles signal 15"),
    "import torch\nfor i in range(100):\n    try:\n        open(f'/proc/self/fd/x{i}')\n    except OSError: pass\n"
    "torch.equal = print": ("fail", "load", "replaced torch.equal"),
    "import torch\ntorch.autograd._enable_record_function(True)": (
        "fail",
        "load",
        "recording of operators off (torch.autograd._enable_record_function), in candidate.py:2",
    ),
    "import torch\nof = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])\nof.start()\n"
    "of.toggle_collection_dynamic(False, [torch.profiler.ProfilerActivity.CPU])\nof.stop()": (
        "fail",
        "load",
        "toggle_collection_dynamic",
    ),
    "import torch\nfrom concurrent.futures import ThreadPoolExecutor as P\na, k = torch.ones(1), "
    "torch._C.DispatchKey.CPU\n"
    "P(1).submit(torch.ops.aten.abs.default.redispatch, torch._C.DispatchKeySet(k), a).result()": (
        "fail",
        "load",
        "below their recording",
    ),
    "import sys\nsys.settrace(None)": ("warn", "load", "trace"),
}

HONEST = [
    "import sys\ndef run():\n    def inner():\n        return sys._getframe(0), sys._getframe(1).f_code\n    inner()",
    "import inspect\ndef run():\n    inspect.signature(run), inspect.getsource(run), inspect.currentframe().f_lineno",
    "def run():\n    run.__code__, run.__defaults__, run.__globals__\n    run.__defaults__ = None",
    "import logging, warnings\ndef run():\n    logging.warning('x')\n    warnings.warn('x')",
    "import contextlib\nfor p in ('cpuinfo', 'meminfo', 'self/status', '1/cgroup', 'sys/vm/overcommit_memory'):\n"
    "    with contextlib.suppress(OSError):\n        open('/proc/' + p).read()",
    "import os\nchild = os.fork()\nif not child:\n    os._exit(0)\nos.waitpid(child, 0)\nos.kill(os.getpid(), 0)",
    "import ctypes\nctypes.CDLL(None).getpid()\nctypes.string_at(b'abc')",
    "import triton, triton.language as tl\n@triton.jit\ndef k(x, n: tl.constexpr):\n    pass\ndef run():\n    k.src",
    "import numba\n@numba.njit\ndef f(x):\n    return x + 1\ndef run():\n    f(1)",
    "import torch, torch._dynamo, torch._inductor.compile_fx, torch.utils.cpp_extension, torch.export\n"
    "import torch.testing, torch.fx.experimental.proxy_tensor, torch._functorch.aot_autograd\n",
    "import torch\nclass G(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x) + 1\n"
    "def run():\n    torch.fx.symbolic_trace(G())(torch.ones(2))\n    torch.jit.trace(G(), torch.ones(2))\n"
    "    torch.compile(G(), backend='eager')(torch.ones(2))",
    "import torch\n@torch.library.custom_op('mine::op', mutates_args=())\n"
    "def op(x: torch.Tensor) -> torch.Tensor:\n    return x + 1\ndef run():\n    op(torch.ones(2))",
    "import torch, torch._dynamo\ntorch.manual_seed = torch._dynamo.disable(torch.manual_seed)",
    "import torch.nn.functional as F\nF.my_gelu = lambda x: x\n",
    "import json\nclass E(json.JSONEncoder):\n    def default(self, o): return str(o)\n"
    "    def iterencode(self, o, _one_shot=False): return super().iterencode(o, _one_shot)\n"
    "def run():\n    json.dumps({1: {2}, 3: run}, cls=E, indent=1)",
    "import gc\ngc.collect()\ngc.disable()\ngc.get_stats()",
    "import functools, inspect, types\ndef outer(x):\n    def inner(): return x\n    return inner\ndef run():\n"
    "    f = outer(3)\n    assert f.__globals__ is globals() and f.__closure__[0].cell_contents == 3\n"
    "    assert inspect.getclosurevars(f).nonlocals == {'x': 3} and run.__closure__ is None\n"
    "    assert types.FunctionType(f.__code__, f.__globals__, 'g', None, f.__closure__)() == 3\n"
    "    assert functools.wraps(f)(lambda: 0).__wrapped__ is f",
]


@pytest.fixture(scope="module")
def told() -> dict[str, list[dict[str, str]]]:
    sources = {source: source for source in (*TAMPERING, *HONEST)}
    done = subprocess.run(
        [sys.executable, str(DRIVER)],
        input=json.dumps(sources),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, done.stderr[-2000:]
    found = {line["name"]: line["told"] for line in lines}
    assert not set(sources) - set(found), (set(sources) - set(found), done.stderr[-3000:])
    return found


@pytest.mark.slow(every=3)
@pytest.mark.parametrize("source", TAMPERING)
def test_tampering_is_told(told: dict[str, list[dict[str, str]]], source: str) -> None:
    level, when, what = TAMPERING[source]
    assert {(c["level"], c["when"]) for c in told[source] if what in c["what"]} == {(level, when)}, told[source]


@pytest.mark.parametrize("source", HONEST)
def test_honest_code_is_told_nothing_of(told: dict[str, list[dict[str, str]]], source: str) -> None:
    assert told[source] == []
