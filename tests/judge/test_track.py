"""Which cases are watched, and what follows from what was seen there. Whole candidates: ``tests/attacks/track``."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch

from kerneleval.judge.checks import CHECKS, run_all, track
from kerneleval.judge.checks.track import Seen, alike
from kerneleval.judge.windows.worker_pool import LoadFailed
from kerneleval.languages.binaries.elf import loader_names
from kerneleval.languages.common.python_source import Source
from kerneleval.records import Case, Failed, Passed, from_plain
from kerneleval.tasks import find
from kerneleval.worker.host import WorkerError

SHAPES = ("tiny", "small", "large")


def case(direction: str, dtype: str, shape: str, layout: str = "contiguous", distribution: str = "standard") -> Case:
    plain = {
        "task": "gelu",
        "direction": direction,
        "dims": [("M", 4), ("N", 4 + len(shape))],
        "dtype": dtype,
        "layout": layout,
        "distribution": distribution,
        "shape_category": shape,
    }
    return from_plain(Case, plain)


PLAN = [
    *(case(d, t, s) for d in ("forward", "backward") for t in ("float32", "float16") for s in SHAPES),
    case("forward", "float32", "small", "sliced"),
    case("forward", "float32", "small", "contiguous", "zeros"),
    case("forward", "float32", "edge"),
]


def places(cases: list[Case]) -> set[tuple[str, str, str]]:
    return {(c.direction, c.dtype, c.shape_category) for c in cases}


def test_every_timed_case_is_watched_and_one_of_each_further_dtype() -> None:
    found = track.chosen(PLAN, dict.fromkeys(PLAN, Passed()))
    assert {p for p in places(found) if p[1] == "float32"} == {
        (d, "float32", s) for d in ("forward", "backward") for s in SHAPES
    }
    assert sorted(c.direction for c in found if c.dtype == "float16") == ["backward", "forward"]
    assert all((c.layout, c.distribution) == ("contiguous", "standard") for c in found)
    both = track.chosen(PLAN, dict.fromkeys(PLAN, Passed()), ("float32", "float16"))
    assert len(both) == 12


def test_order_and_further_cases_are_not_the_same_each_time() -> None:
    runs = [tuple(track.chosen(PLAN, dict.fromkeys(PLAN, Passed()))) for _ in range(40)]
    assert len(set(runs)) > 20
    assert len({c.shape_category for run in runs for c in run if c.dtype == "float16"}) == len(SHAPES)


def test_only_cases_that_passed_are_watched() -> None:
    outcomes = {c: Passed() if c.dtype == "float16" else Failed(stage="call", reason="unsupported") for c in PLAN}
    assert {p[1] for p in places(track.chosen(PLAN, outcomes))} == {"float16"}
    assert track.chosen(PLAN, {}) == []


def test_where_nothing_is_ordinary_any_case_will_do() -> None:
    odd = [c for c in PLAN if c.layout == "sliced" or c.shape_category == "edge"]
    assert track.chosen(odd, dict.fromkeys(odd, Passed())) == odd[:1]


@pytest.mark.parametrize(
    ("aten", "launches", "mute", "rank"),
    [
        ({"aten.empty.memory_format": 1}, {"k": 1}, "needed", 0),
        ({"aten.empty.memory_format": 1}, {"k": 1}, "", 0),
        ({"aten.mm.default": 1}, {"k": 1}, "needed", 1),
        ({"aten.mm.default": 1}, {}, "", 2),
        ({}, {}, "", 2),
        ({}, {"k": 1}, "little", 2),
        ({}, {"k": 1}, "decoy", 2),
    ],
)
def test_what_is_seen_gives_the_track(aten: dict[str, int], launches: dict[str, int], mute: str, rank: int) -> None:
    seen = Seen(outputs=(), aten=aten, launches=launches)
    assert track._Case(PLAN[0], seen, mute).rank == rank


def test_no_kernel_is_missed_where_what_comes_out_was_given() -> None:
    """The gradients of add are the upstream one: two honest candidates were on the library track, one was a decoy."""
    nothing = Seen(outputs=(), aten={"aten.expand.default": 1}, launches={})
    assert track._Case(PLAN[0], nothing, given=True).rank == 0
    computes = Seen(outputs=(), aten={"aten.mul.Tensor": 1}, launches={})
    assert track._Case(PLAN[0], computes, given=True).rank == 1


def test_an_imported_package_beside_an_extension_that_is_needed_makes_it_no_library() -> None:
    seen = Seen(outputs=(), aten={}, launches={}, extensions=("own.so",), packages=("torchvision",))
    assert track._Case(PLAN[0], seen, "needed").rank == 1
    seen = Seen(outputs=(), aten={}, launches={"kernel": 1}, packages=("cupy",))
    assert track._Case(PLAN[0], seen, "needed").rank == 1
    assert track._Case(PLAN[0], Seen(outputs=(), aten={}, launches={}, packages=("cupy",))).rank == 2


def found(direction: str, mute: str, *kernels: str) -> track._Case:
    seen = Seen(outputs=(), aten={}, launches=dict.fromkeys(kernels, 1))
    return track._Case(case(direction, "float32", "small"), seen, mute)


def test_launches_that_change_nothing_fail_unless_the_other_direction_needs_them() -> None:
    (finding,) = track._decoys([found("forward", "decoy", "k"), found("forward", "needed", "k")])
    assert (finding.level, finding.reason) == ("fail", "decoy_kernel")
    (finding,) = track._decoys([found("forward", "decoy", "k"), found("backward", "needed", "k", "g")])
    assert finding.level == "warn"
    (finding,) = track._decoys([found("forward", "decoy", "k", "other"), found("backward", "needed", "k")])
    assert finding.level == "fail"
    assert list(track._decoys([found("forward", "needed", "k")])) == []
    backward, forward = [found("backward", "decoy", "k")], [found("forward", "needed", "k")]
    assert [one.level for one in track._decoys(backward, forward)] == ["warn"], "no forward is judged"


def test_alike_is_a_first_look() -> None:
    want = torch.randn(64, 64)
    assert alike([want * 1.001], [want])
    assert not alike([torch.zeros_like(want)], [want])
    assert not alike([want.roll(1)], [want])
    assert not alike([torch.full_like(want, float("nan"))], [want])
    assert not alike([want.double()], [want])
    assert not alike([], [want])
    assert not alike([want[:1]], [want])
    assert alike([want.half()], [want.half()])
    indices = torch.arange(100)
    assert alike([indices], [indices])
    assert not alike([indices.roll(1)], [indices])


def test_stream_order_is_seen_at_the_largest_case_and_at_a_secret_one_of_each_direction() -> None:
    task = find("gelu")
    cases = [
        from_plain(Case, {"task": "gelu", "direction": d, "dims": [("M", m), ("N", 4)], "dtype": "float32"})
        for d in ("forward", "backward")
        for m in (8, 64, 512, 3)
    ]
    found = [track.ordered(task, cases) for _ in range(60)]
    for chosen in found:
        assert {c.direction for c in chosen if c.dims_map["M"] == 512} == {"forward", "backward"}
        assert 2 <= len(chosen) <= 4
    assert {c.dims_map["M"] for chosen in found for c in chosen} == {8, 64, 512, 3}
    assert track.ordered(task, cases[:4]) and not track.ordered(task, [])


def test_recorded_windows_that_raise_are_called_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of NumPy's that a candidate catches is lost in the first one."""
    error = WorkerError("SystemError", "", unsupported=False, evidence={})
    answers: list[Any] = [error, "seen", error]

    def window(_self: Any, _how: Any, _times: int) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, WorkerError):
            raise answer
        return answer

    monkeypatch.setattr(track.Subject, "_window", window)
    subject = track.Subject.__new__(track.Subject)
    assert subject.window(record=True) == "seen"
    with pytest.raises(WorkerError):
        subject.window()
    assert not answers


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("import importlib\nimportlib.import_module('sci' + 'py')", {"importlib.import_module(?)"}),
        ("__import__(name)", {"__import__(?)"}),
        ("import ctypes\nf = getattr(ctypes, ''.join(name))", {"an attribute of ctypes whose name is made as it runs"}),
        ("import numba\nvars(numba)['objmode']", {"an attribute of numba whose name is made as it runs"}),
        ("import numpy as np\nview = getattr(np.ndarray, name)\nnp.ndarray((2, 2), np.float32, memory)", set()),
        ("import ctypes\nget = getattr\nget(ctypes, 'CFUNC' + 'TYPE')", {"getattr without calling it"}),
        ("import builtins\nget = builtins.getattr", {"getattr without calling it"}),
        ("import importlib as i\nload = i.import_module", {"importlib.import_module without calling it"}),
        ("import importlib\nimportlib.import_module(name='sci' + 'py')", {"importlib.import_module(?)"}),
        ("from ctypes import *", {"all of ctypes"}),
        ("from math import *\nfrom importlib.util import find_spec\nfind_spec('triton')", set()),
        ("import torch\ngive = getattr(torch.Tensor, name)", set()),
        ("import importlib\nimportlib.import_module('math')", set()),
        ("import numpy as np\nkind = getattr(np, str(x.dtype)[6:])\nisinstance(x, np.ndarray)", set()),
        ("import torch\ngetattr(torch, name)\nvars(self)", set()),
    ],
)
def test_names_that_are_made_as_it_runs(text: str, hidden: set[str]) -> None:
    """What they stand for cannot be read; names of types are often made so, and compute nothing."""
    assert set(track._in_parts(Source(text))) == hidden


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("frame = error.__traceback__.tb_frame", [".tb_frame"]),
        ("cells = getattr(f, '__closure__')", [".__closure__", "__closure__"]),
        ("import operator\nback = operator.attrgetter('f_back')", ["f_back"]),
        ("import operator\nframe = operator.attrgetter('x.tb_frame')", ["tb_frame"]),
        ("import operator\nframe = operator.attrgetter('shape', name)", ["operator.attrgetter(?)"]),
        ("import operator\nget = operator.methodcaller", ["operator.methodcaller without calling it"]),
        ("import operator\noperator.attrgetter('shape')(x), operator.methodcaller('clone')(x)", []),
        ("import gc\ngc.get_referents(f)", [".get_referents"]),
        ("import sys\nblas = sys.modules['scipy.linalg.blas']", ["sys.modules"]),
        ("from sys import modules\nblas = modules.get('scipy.linalg.blas')", ["sys.modules"]),
        ("import sys\nkernel = getattr(sys.modules[__name__], name)", []),
        ("import pkgutil\nblas = pkgutil.resolve_name('sci' + 'py')", ["pkgutil.resolve_name"]),
        ("import inspect\nview = inspect.getattr_static(array, 'vi' + 'ew')", ["inspect.getattr_static"]),
        ("import scipy.linalg.blas", ["scipy.linalg.blas"]),
        ("from scipy.linalg.blas import sgemm\nfrom math import sin as sgemm", ["scipy.linalg.blas.sgemm"]),
        ("import numba\ndef f():\n    with numba.objmode(): pass", ["numba.objmode"]),
        ("from numba import objmode as plain", ["numba.objmode"]),
        ("import _ctypes\n_ctypes.call_function(at, ())", ["_ctypes.call_function"]),
        ("import ctypes\nctypes.CDLL(None)._FuncPtr(at)", ["._FuncPtr"]),
        ("import cffi\nffi = cffi.FFI()", ["cffi.FFI"]),
        ("import _xxsubinterpreters as one\none.run_string(i, t)", ["_xxsubinterpreters.run_string"]),
        ("import numpy as np\nnp.ndarray.__new__(np.ndarray, 4)", []),
        ("import torch\nkinds = type(x).__mro__\nplain = f.__wrapped__\narray = torch.Tensor.numpy(x)", []),
        ("import ctypes\nlibrary = ctypes.CDLL(path)\nlibrary.f.restype = ctypes.c_int", []),
        ("import inspect\nline = inspect.currentframe().f_lineno", []),
    ],
)
def test_who_may_reach_what_counts(text: str, named: list[str]) -> None:
    """By frames and closures it could change what the worker counted; its own line is its own affair."""
    calls = MagicMock()
    calls.loaded.candidate.files = [("candidate.py", text)]
    assert track._named(calls) == named


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="not run: no nvcc")
def test_what_the_run_time_of_cuda_refers_to_is_not_the_candidates(tmp_path: Path) -> None:
    """It is linked into each built candidate, and reads /proc/self/maps: all of them would be on the library track."""
    (tmp_path / "own.cu").write_text('__global__ void f() {}\nextern "C" void g() { f<<<1, 1>>>(); }')
    command = ["nvcc", "-cudart", "static", "-shared", "-Xcompiler", "-fPIC", "-o", "own.so", "own.cu"]
    subprocess.run(command, cwd=tmp_path, check=True)
    names = loader_names(tmp_path / "own.so")
    assert "dlsym" in names and any("maps" in name for name in names)
    assert all(map(track._finds_code, names))


def test_who_can_find_libraries_is_told_what_to_leave_out() -> None:
    assert track._why(["sgemm_"]) == "the built code refers to sgemm_: what computes need not be its own"
    assert "sgemm_, dlsym: what" in track._why(["sgemm_", "dlsym"])
    assert track._why(["backtrace", "getauxval"]).endswith(
        "(leave them out for the custom track; __builtin_cpu_supports says what the processor has)"
    )
    assert track._why(["/proc/self/maps"]).endswith("(leave it out for the custom track)")


def test_a_worker_that_the_candidate_does_not_load_into_again_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check may need a new worker, in which the candidate's own import has another go at waiting."""

    def check(*_arguments: Any) -> list[Any]:
        raise LoadFailed("timeout", "no answer", {})

    monkeypatch.setattr(CHECKS, "names", lambda: ["one"])
    monkeypatch.setattr(CHECKS, "option", lambda _name, _option: True)
    monkeypatch.setattr(CHECKS, "find", lambda _name: check)
    (finding,) = run_all(MagicMock(), (), {})
    assert (finding.check, finding.level, finding.reason) == ("one", "fail", "timeout")
