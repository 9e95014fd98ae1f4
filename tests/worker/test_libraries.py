"""What other libraries than PyTorch compute for a candidate."""

from __future__ import annotations

import _thread
import array
import ctypes
import functools
import gc
import linecache
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kerneleval.worker import below
from kerneleval.worker import libraries as module
from kerneleval.worker.below import Extensions, calls_by_ctypes
from kerneleval.worker.libraries import _SETTINGS, COMPUTES, Libraries, _is_past_the_dispatcher


@pytest.fixture(scope="module")
def libraries() -> Iterator[Libraries]:
    pytest.importorskip("numba")
    gc.collect()
    gc.freeze()  # as the zygote does: what was there before is no candidate's
    yield Libraries()
    gc.unfreeze()


def _bare(x: torch.Tensor) -> ctypes.Array[ctypes.c_float]:
    return (ctypes.c_float * x.numel()).from_address(x.data_ptr())


class _Interface:
    def __init__(self, x: torch.Tensor) -> None:
        data = (x.data_ptr(), False)
        self.__array_interface__ = {"shape": tuple(x.shape), "typestr": "<f4", "data": data, "version": 3}


def _given_back(x: np.ndarray) -> np.ndarray:
    """A plain array, as one that a kernel of Numba's makes."""
    return sys.modules["numba"].njit(lambda x: x.copy())(x)


def _seen(libraries: Libraries, compute: Callable[[torch.Tensor], object]) -> set[str]:
    seen: dict[str, int] = {}
    with libraries.heard(seen):
        compute(torch.arange(81.0).view(9, 9))
    return set(seen)


@pytest.mark.parametrize(
    ("compute", "name"),
    [
        (lambda x: x.numpy() @ x.numpy(), "numpy.matmul"),
        (lambda x: super(torch.Tensor, x).numpy() @ torch._C.TensorBase.numpy(x), "numpy.matmul"),
        (lambda x: np.fromiter(x.view(-1).tolist(), np.float32).sum(), "numpy.reduce"),
        (lambda x: pickle.loads(pickle.dumps(x.numpy())) @ np.ones((9, 9)), "numpy.matmul"),
        (lambda x: np.ascontiguousarray(x.numpy().T).dot(np.ones((9, 9))), "numpy.dot"),
        (lambda x: np.einsum("ij,jk->ik", np.array(x), x.numpy()), "numpy.c_einsum"),
        (lambda x: np.linalg._umath_linalg.det(x.numpy()), "numpy.det"),  # type: ignore[attr-defined]
        (lambda x: np.linalg.solve(x.numpy() + np.eye(9), x.numpy()), "numpy.solve"),
        (lambda x: np.sort(x.numpy().astype(np.float64).reshape(-1)[::-1]), "numpy.sort"),
        (lambda x: np.where(x.numpy() > 3, x.numpy(), 0), "numpy.where"),
        (lambda x: np.take(x.numpy(), [3, 2, 1]), "numpy.take"),
        (lambda x: np.random.default_rng(3).lognormal(x.numpy(), 0), "numpy.lognormal"),
        (lambda x: np.random.lognormal(x, 0), "numpy.lognormal"),
        (lambda x: np.from_dlpack(x) * 2, "numpy.multiply"),
        (lambda x: np.matmul(x, x), "numpy.matmul"),
        (lambda x: np.inner(x, x), "numpy.inner"),
        (lambda x: np.add.reduce(x), "numpy.reduce"),
        (lambda x: np.asarray(_Interface(x)) * 2, "numpy.multiply"),
        (lambda x: np.ctypeslib.as_array(_bare(x)) * 2, "numpy.multiply"),
        (lambda x: np.frombuffer(x.numpy().tobytes(), np.float32) * 2, "numpy.multiply"),
        (lambda x: _given_back(x.numpy()) @ x.numpy().tolist(), "numpy.matmul"),
    ],
)
def test_what_numpy_computes_is_counted(
    libraries: Libraries, compute: Callable[[torch.Tensor], object], name: str
) -> None:
    assert name in _seen(libraries, compute)


class _Own(np.ndarray):
    pass


_KEPT = np.ones((9, 9))
_KEPT_CALL = vars(np.ufunc)["__call__"]


def _next(arrays: Iterator[object], **_: object) -> object:
    return next(arrays)


class _Converted:
    """NumPy makes an array of it, by a function that may compute."""

    def __init__(self, make: Callable[..., object] = lambda **_: _KEPT) -> None:
        self.__array__ = make


def _tests_of_numpy() -> Any:
    return pytest.importorskip("numpy._core._umath_tests")


@pytest.mark.parametrize(
    ("compute", "name"),
    [
        (lambda: _KEPT @ _KEPT, "numpy.matmul"),
        (lambda: _KEPT.view(_Own) @ _KEPT, "numpy.matmul"),
        (lambda: np.asarray(memoryview(_KEPT)) @ _KEPT, "numpy.matmul"),
        (lambda: linecache.cache["kept"] @ _KEPT, "numpy.matmul"),
        (functools.partial(_KEPT.__matmul__, _KEPT), "numpy.matmul"),
        (functools.partial(_KEPT_CALL, np.matmul, _KEPT, _KEPT), "numpy.matmul"),
        (functools.partial(_KEPT_CALL.__get__(np.matmul), _KEPT, _KEPT, out=np.empty((9, 9))), "numpy.matmul"),
        (functools.partial(_KEPT.dot, _KEPT), "numpy.dot"),
        (functools.partial(np.dot, _KEPT, _KEPT), "numpy.dot"),
        (functools.partial(np.ndarray.dot, _KEPT, _KEPT), "numpy.dot"),
        (functools.partial(np.add.reduce, _KEPT), "numpy.reduce"),
        (functools.partial(np.add.reduce, array=_KEPT), "numpy.reduce"),
        (functools.partial(_KEPT.dot, b=_KEPT, out=np.empty((9, 9))), "numpy.dot"),
        (functools.partial(np.correlate, a=_KEPT[0].repeat(9), v=_KEPT[0]), "numpy.correlate2"),
        (functools.partial(np.matmul, _KEPT.tolist(), _KEPT.tolist()), "numpy.matmul"),
        (lambda: np.recarray.sum(_KEPT.view(np.recarray)), "numpy.reduce"),
        (lambda: np.ma.masked_array(_KEPT) * 2, "numpy.multiply"),
        (lambda: np.asmatrix(_KEPT) * np.asmatrix(_KEPT), "numpy.dot"),
        (lambda: super(_Own, _KEPT.view(_Own)).cumsum(), "numpy.cumsum"),
        (lambda: [row * 2 for row in _KEPT], "numpy.multiply"),
        (lambda: np.exp(memoryview(_KEPT)), "numpy.exp"),  # type: ignore[call-overload]
        (lambda: np.exp((ctypes.c_float * 99)()), "numpy.exp"),
        (lambda: np.exp(array.array("f", bytes(400))), "numpy.exp"),
        (lambda: np.exp(_Converted()), "numpy.exp"),
        (lambda: np.exp(_Converted(functools.partial(_next, iter([np.zeros(()), _KEPT])))), "numpy.exp"),
        (lambda: np.interp(_KEPT, [0, 1], [0, 1j]), "numpy.interp_complex"),
        (lambda: np.linalg.lapack_lite.dgeqrf(9, 9, _KEPT.copy(), 9, *np.zeros((2, 9)), 9, 0), "numpy.dgeqrf"),
        (lambda: _tests_of_numpy().matrix_multiply(_KEPT, _KEPT), "numpy.matrix_multiply"),
        (lambda: np.asarray(_Converted(functools.partial(np.exp, _KEPT))), "numpy.exp"),
        (lambda: [np.exp(np.ones(63, np.int32)) for _ in range(66)], "numpy.exp"),
        (lambda: np.linalg.norm(_KEPT), "numpy.dot"),
        (lambda: np.linalg.inv(_KEPT + np.eye(9)), "numpy.inv"),
        (lambda: np.fft.fft(_KEPT), "numpy.fft"),
        (lambda: np.ones(1 << 12, np.int32) & 1, "numpy.bitwise_and"),
    ],
)
def test_what_numpy_computes_on_kept_arrays_is_counted(
    libraries: Libraries, monkeypatch: pytest.MonkeyPatch, compute: Callable[[], object], name: str
) -> None:
    """Whoever holds them, and however it is called; they are arrays as any other."""
    monkeypatch.setitem(linecache.cache, "kept", _KEPT)
    assert name in _seen(libraries, lambda x: compute())
    assert _seen(libraries, lambda x: type(_KEPT) is np.ndarray or compute()) == set()


def test_orders_that_are_drawn_are_no_work_and_threads_without_a_frame_are_heard(libraries: Libraries) -> None:
    def drawn(x: torch.Tensor) -> None:
        np.random.default_rng(3).permutation(9999)
        np.random.permutation(9999)

    def in_a_thread(x: torch.Tensor) -> None:
        numbers, ones = np.arange(9999.0)[::-1].copy(), np.ones(9999)
        _thread.start_new_thread(numbers.sort, ())
        _thread.start_new_thread(np.negative, (ones, ones))
        for _ in range(6000):
            if numbers[-1] == 9998 and ones[-1] == -1:
                break
            time.sleep(0.01)

    assert _seen(libraries, drawn) == set()
    assert _seen(libraries, in_a_thread) >= {"numpy.negative", "numpy.sort"}


def test_errors_of_numpy_are_errors(libraries: Libraries, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RAISED", set())

    def wrong(x: torch.Tensor) -> None:
        with pytest.raises(ValueError, match="broadcast"):
            np.add(_KEPT, np.ones(8))
        with pytest.raises(TypeError, match="operand"):
            _KEPT + object()  # type: ignore[operator]
        with pytest.raises(SystemError):
            _KEPT.dot(np.ones(8))

    assert _seen(libraries, wrong) == {"numpy.add", "numpy.dot"}
    assert libraries.lost_error

    def again(x: torch.Tensor) -> None:
        with pytest.raises(ValueError, match="align"):
            _KEPT.dot(np.ones(8))
        with pytest.raises(ValueError, match="minlength"):
            np.bincount(np.ones(99, np.int64), _KEPT.ravel(), -1)

    assert _seen(libraries, again) == {"numpy.dot"} and not libraries.lost_error, (
        "it counts, and all errors are NumPy's own from then on"
    )


def test_a_table_that_a_kernel_reads_is_no_work(libraries: Libraries) -> None:
    table = [np.ones(99)]
    kernel = sys.modules["numba"].njit(lambda x: x[3])
    assert _seen(libraries, lambda x: kernel(table[0])) == set()


def test_sizes_and_single_numbers_are_no_work(libraries: Libraries) -> None:
    def sizes(x: torch.Tensor) -> None:
        for _ in range(99):
            assert np.prod(x.shape) == 81 and np.prod(range(1, 4)) == 6
            assert np.sqrt(2.0) * np.exp(np.float32(0)) + np.ceil(torch.tensor(1.5)) > 3
            np.add.reduce([3, 4], axis=0, dtype=np.int64)

    assert _seen(libraries, sizes) == set()


def test_views_and_copies_are_no_work(libraries: Libraries) -> None:
    def plumbing(x: torch.Tensor) -> None:
        y = np.empty_like(np.ascontiguousarray(x.numpy().T))
        y[...] = x.numpy().reshape(9, 9)
        np.copyto(y, np.concatenate([x.numpy()[:1], np.zeros_like(y)[1:]]))
        torch.from_numpy(y)
        np.cumsum(np.full(100, 3))  # a table of where rows begin
        assert len(np.random.default_rng(3).random(99)) == len(np.random.normal(0, 1, 99)) == 99
        assert np.array([3, 3]).prod() == 9 and isinstance(y, np.ndarray) and not isinstance(x, np.ndarray)

    assert _seen(libraries, plumbing) == set()


def test_arrays_that_a_library_makes_are_its_own(libraries: Libraries) -> None:
    """As those of Triton's interpreter, which computes everything with NumPy."""
    interpreter = pytest.importorskip("triton.runtime.interpreter")
    code = compile("(numpy.zeros(99) + numpy.full((9, 9), 1.0).sum()).max()", interpreter.__file__, "eval")
    assert _seen(libraries, lambda _: eval(code, {"numpy": np})) == set()
    assert _seen(libraries, lambda _: sys.modules["triton"].cdiv(_KEPT, 3)) == {
        "numpy.add",
        "numpy.floor_divide",
        "numpy.subtract",
    }


def test_own_ufuncs_are_no_library(libraries: Libraries) -> None:
    own = np.frompyfunc(lambda v: v * 2, 1, 1)
    assert _seen(libraries, lambda x: own(x.numpy())) == set()


@pytest.mark.parametrize(
    "name",
    [
        "sgemm_",
        "cblas_dgemm",
        "scipy_cblas_sgemm64_",
        "scipy_sgemm_64_",
        "xnn_run_operator",
        "cublasSgemm_v2",
        "cudnnConvolutionForward",
        "vsExp",
        "dgetrf_",
    ],
)
def test_functions_of_libraries_are_known_by_their_names(name: str) -> None:
    assert COMPUTES.fullmatch(name)


@pytest.mark.parametrize(
    "name", ["strlen", "strtod", "system", "malloc", "cuLaunchKernel", "nvrtcCompileProgram", "sin"]
)
def test_others_are_not(name: str) -> None:
    assert not COMPUTES.fullmatch(name)


def test_settings_are_no_work() -> None:
    assert (
        _SETTINGS.search("openblas_get_num_threads")
        and _SETTINGS.search("mkl_set_num_threads")
        and _SETTINGS.search("MKL_Set_Num_Threads")
    )


@pytest.mark.parametrize(
    ("name", "past"),
    [
        ("_ZN2at6native4siluERKNS_6TensorE", True),
        ("_ZN2at3cpu2mmERKNS_6TensorES3_", True),
        ("_ZN2at4cuda9addmm_outERNS_6TensorERKS1_S4_S4_RKN3c106ScalarES8_", True),
        ("_ZN2at4cuda4blas4gemmIfEEvccllldPKflS4_ldPfl", True),
        ("_ZN2at5_ops2mm10redispatchEN3c1014DispatchKeySetERKNS_6TensorES6_", True),
        ("_ZN2at20enableRecordFunctionEb", True),
        ("_ZN2at14clearCallbacksEv", True),
        ("_ZN3c1010Dispatcher17findSchemaOrThrowEPKcS2_", True),
        ("_ZN3c1010Dispatcher6findOpERKNS_12OperatorNameE", True),
        ("_ZN3c1010Dispatcher13realSingletonEv", False),
        ("_ZN2at23isRecordFunctionEnabledEv", False),
        ("_ZN2at5_ops2mm4callERKNS_6TensorES4_", False),
        ("_ZN2at5_ops10empty_like4callERKNS_6TensorE", False),
        ("_ZN2at3cpu10empty_likeERKNS_6TensorE", False),
        ("_ZN2at4cuda26getCurrentDevicePropertiesEv", False),
        ("_ZN2at14get_thread_numEv", False),
        ("_ZNK2at10TensorBase8data_ptrIfEEPT_v", False),
    ],
)
def test_functions_that_no_dispatcher_sees(name: str, past: bool) -> None:
    assert _is_past_the_dispatcher(name) == past


def test_native_code_that_is_opened_is_known_with_what_it_is_linked_with(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("llvmlite")
    source, library, other = tmp_path / "own.c", tmp_path / "own.so", tmp_path / "other.so"
    code = "__attribute__((weak)) void sgemm_(void); void *dlsym(void *, const char *);"
    source.write_text(f"{code} void *f(void) {{ sgemm_(); return dlsym(0, 0); }}")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    shutil.copyfile(library, other)
    shutil.copyfile(library, launcher := tmp_path / "__triton_launcher.cpython-311-x86_64-linux-gnu.so")
    code = (
        "import ctypes\n"
        "from kerneleval.worker.libraries import Libraries\n"
        "seen = Libraries()\n"
        "import pyarrow, pydantic_core, unicodedata, numpy.fft\n"
        "for name in ('libc.so.6', ctypes.util.find_library('m')): ctypes.CDLL(name)\n"
        f"ctypes.CDLL({str(library)!r})\n"
        "print(seen.looked_up)\n"
        "print(seen.native, seen.looked_up, seen.packages)\n"
        "import os, llvmlite.binding\n"
        f"llvmlite.binding.load_library_permanently({str(other)!r})\n"  # native code opens it
        f"llvmlite.binding.load_library_permanently({str(launcher)!r})\n"  # another judge puts its own there
        f"os.rename({str(other)!r}, {str(other)[:-3]!r}); os.remove({str(other)[:-3]!r})\n"
        f"os.remove({str(launcher)!r})\n"
        "seen.look_at_memory()\n"
        "print(seen.native)"
    ).replace("import ctypes\n", "import ctypes.util\n", 1)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after, mapped = ended.stdout.strip().split("\n")
    linked = "'own.so: dlsym': 1, 'own.so: sgemm_': 1"
    assert before == f"{{{linked}}}"
    assert after == f"['own.so'] {{{linked}}} ['pyarrow']"
    assert mapped == "['other', 'own.so']"


@pytest.mark.slow
def test_processes_that_the_candidate_starts_are_known(tmp_path: Path) -> None:
    """They may compute with anything, and no mode and no profiler sees it; those of compilers are the compilers'."""
    own = tmp_path / "own.py"
    own.write_text(
        "import os, subprocess, sys\n"
        "from multiprocessing.pool import Pool\n"
        "def program(): subprocess.run(['true'], check=True)\n"
        "def fork(): os.fork() or os._exit(0)\n"
        "def pool(): Pool(1).terminate()\n"
        "def system(): os.system('true')\n"
        "def library(): import ctypes.util; ctypes.util.find_library('gomp')\n"
        "def tracker(): from multiprocessing import resource_tracker; resource_tracker.ensure_running()\n"
        "def spawn(): from multiprocessing import util; util.spawnv_passfds(b'/bin/true', [b'true'], [])\n"
        "def below():\n"
        "    try: subprocess._fork_exec()\n"
        "    except TypeError: pass\n"  # too few arguments
        "def hashed():\n"
        "    class Name(str):\n"
        "        __hash__ = lambda self: 1\n"
        "    sys.audit('ctypes.dlsym', None, Name('dlsym'))\n"
        "def thread():\n"
        "    import threading\n"
        "    one = threading.Thread(target=subprocess.run, args=(['true'],))\n"
        "    one.start()\n"
        "    one.join()\n"
        "def asked():\n"  # PyTorch starts what it takes for a compiler
        "    import torch.utils.cpp_extension as extension\n"
        "    extension.check_compiler_is_gcc(os.environ['COMPILER'])\n"
        "def shell(): import torch.utils.collect_env as asking; asking.run('true')\n"
        "def python(): import torch.utils.collect_env as asking; asking.run([sys.executable, '-c', ''])\n"
        "def other(): import torch.utils.collect_env as asking; asking.run(['true'])\n"
        "def compiler(): os.environ['COMPILER'] = 'gcc'; asked()\n"
        "def linked():\n"
        "    os.environ['COMPILER'] = os.path.join(os.path.dirname(__file__), 'gcc')\n"
        "    os.symlink('/usr/bin/true', os.environ['COMPILER'])\n"
        "    asked()\n"
        "def path():\n"
        "    import ctypes.util\n"
        "    folder = os.path.join(os.path.dirname(__file__), 'path')\n"
        "    os.mkdir(folder)\n"
        "    os.symlink('/usr/bin/true', folder + '/gcc')\n"
        "    os.environ['PATH'] = folder\n"
        "    ctypes.util.find_library('nothing')\n"
        "def renamed(): exec('import os; os.system(\"true\")', {'__name__': 'subprocess'})\n"
        "def loader(): import ctypes; return ctypes.CDLL(None).dlsym, ctypes.CDLL(None).fork\n"
    )
    told = {
        "program": ["process.fork_exec", "process.subprocess.Popen"],
        "below": ["process.fork_exec"],
        "hashed": ["ctypes.dlsym"],
        "fork": ["process.os.fork"],
        "pool": ["process.os.fork"],
        "system": ["process.os.system"],
        "library": [],
        "tracker": [],
        "spawn": ["process.fork_exec"],
        "thread": ["process.fork_exec", "process.subprocess.Popen"],
        "shell": ["process.fork_exec", "process.subprocess.Popen"],
        "python": ["process.fork_exec", "process.subprocess.Popen"],
        "other": [],
        "compiler": [],
        "linked": ["process.fork_exec", "process.subprocess.Popen"],
        "path": ["process.fork_exec", "process.subprocess.Popen"],
        "renamed": ["process.os.system"],
        "loader": ["ctypes.dlsym", "ctypes.fork"],
    }
    code = (
        "import os, sys, torch\n"
        "from kerneleval.worker.libraries import Libraries\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "for name in sys.argv[1:]:\n"  # one process loads what takes long, and forks itself for each
        "    if not (child := os.fork()):\n"
        "        seen = Libraries()\n"
        "        import own\n"
        "        seen.loaded()\n"
        "        getattr(own, name)()\n"
        "        print(name, sorted(seen.looked_up), flush=True)\n"
        "        os._exit(0)\n"
        "    os.waitpid(child, 0)"
    )
    ended = subprocess.run([sys.executable, "-c", code, *told], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == [f"{name} {looked_up}" for name, looked_up in told.items()]


def test_programs_that_ended_before_the_candidate_was_there_compute_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a compiler does that builds a library of its own; what lives on may be told of every call."""
    living = {1}
    monkeypatch.setattr(module, "_living", lambda: set(living))
    one = Libraries()
    one._started("fork_exec")
    assert one.looked_up == {}
    living.add(2)
    assert one.looked_up == {"process.fork_exec": 1}
    living.remove(2)
    one.loaded()
    one._started("os.fork")
    assert one.looked_up == {"process.os.fork": 1}


def test_who_waits_to_be_reaped_has_ended() -> None:
    one = subprocess.Popen(["sleep", "600"])
    try:
        assert {one.pid, os.getpid()} <= module._living()
        one.kill()
        os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)
        assert one.pid not in module._living()
    finally:
        one.kill()
        one.wait()


def test_processes_of_other_programs_are_none_that_it_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a PID namespace those of the same user are seen too."""
    monkeypatch.setattr(os, "getppid", os.getpid)
    other = int(subprocess.check_output(["sh", "-c", "sleep 600 >/dev/null & echo $!"]))
    try:
        assert other not in module._living()
    finally:
        os.kill(other, signal.SIGKILL)


def test_calls_are_known_by_where_the_function_is() -> None:
    """Called by an address, no name is looked up."""
    named = ctypes.CDLL(None).toupper
    heard: list[tuple[str, str]] = []
    found = type(named)(ctypes.cast(named, ctypes.c_void_p).value)
    with calls_by_ctypes(lambda file, name: heard.append((os.path.basename(file).split(".")[0], name))):
        assert found(ord("a")) == ord("A")
    assert heard == [("libc", "toupper")]
    assert found(ord("a")) == ord("A") and len(heard) == 1


def test_kinds_that_call_by_a_function_of_their_own_are_heard_of_too() -> None:
    """Set to what it was, the call of a kind was not replaced."""
    named = ctypes.CDLL(None).toupper
    kind: Any = type(named)
    address = ctypes.cast(named, ctypes.c_void_p).value
    own, inner = kind.__call__, type("_Inner", (kind,), {"__call__": kind.__call__, "_flags_": 1})
    kind.__call__ = own
    heard: list[str] = []
    try:
        with calls_by_ctypes(lambda _file, name: heard.append(name)):
            assert named(ord("a")) == inner(address)(ord("a")) == ord("A")
        assert heard == ["toupper", "toupper"]
        assert vars(kind)["__call__"] is own and vars(inner)["__call__"] is own
    finally:
        del kind.__call__


def test_kinds_that_are_made_later_and_what_super_gives_are_heard_of_too() -> None:
    """A library that is opened has a kind of its own."""
    heard: list[str] = []
    with calls_by_ctypes(lambda _file, name: heard.append(name)):
        later = ctypes.CDLL(None).toupper
        kind: Any = type(later)
        found = kind(ctypes.cast(later, ctypes.c_void_p).value)
        heard.clear()
        assert found(ord("a")) == super(kind, later).__call__(ord("a")) == ord("A")
    assert heard == ["toupper", "toupper"]


def test_calls_by_what_was_kept_are_heard_of_too() -> None:
    named = ctypes.CDLL(None).toupper
    kept = vars(type(named).__mro__[1])["__call__"]
    heard: list[str] = []
    with calls_by_ctypes(lambda _file, name: heard.append(name)):
        assert kept(named, ord("a")) == kept.__get__(named)(ord("a")) == ord("A")
    assert heard == ["toupper", "toupper"]
    assert kept(named, ord("a")) == ord("A") and vars(type(named).__mro__[1])["__call__"] is kept and len(heard) == 2


def test_functions_in_the_files_of_numpy_are_known_by_their_addresses(libraries: Libraries) -> None:
    libraries._hear_of_call(np._core._multiarray_umath.__file__, "")
    assert libraries._looked_up.pop(f"ctypes.a function of {os.path.basename(np._core._multiarray_umath.__file__)}")


def test_in_the_interpreter_triton_builds_no_launchers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    one = Libraries()
    (tmp_path / "cuda_utils.so").write_bytes(b"")
    one._opened(str(tmp_path / "cuda_utils.so"))
    assert one.native == ["cuda_utils.so"]


@pytest.fixture
def built(tmp_path: Path) -> Callable[[str], ctypes.CDLL]:
    """A library in C by its name."""

    def build(name: str) -> ctypes.CDLL:
        text = "int f(int *x) { return *x + 7; } int size(int n, double factor) { return n * factor; }"
        text += " int named(const char *name) { return *name; }"
        (tmp_path / f"{name}.c").write_text(text)
        command = ["gcc", "-shared", "-fPIC", "-o", str(tmp_path / f"{name}.so"), str(tmp_path / f"{name}.c")]
        subprocess.run(command, check=True)
        return ctypes.CDLL(str(tmp_path / f"{name}.so"))

    return build


def test_functions_that_ctypes_found_in_own_files_are_made_no_ops(built: Callable[[str], ctypes.CDLL]) -> None:
    """Not where they are given numbers alone: the size of a workspace was 0, and a loop in steps of it had no end."""
    own, other = built("own"), built("other")
    kept, one = own.f, ctypes.c_int(1)
    at = ctypes.c_void_p(ctypes.addressof(one))
    kept.restype = own.size.restype = ctypes.c_long
    extensions = Extensions()
    extensions.mute(True, frozenset((own._name,)))
    assert (own.size(ctypes.c_int(6), ctypes.c_double(2)), own["size"](3, ctypes.c_double(1))) == (12, 3)
    assert own.named(b"a") == ord("a")
    assert (kept(at), own["f"](ctypes.byref(one)), own.f(ctypes.c_size_t(at.value)), other.f(at)) == (0, 0, 0, 8)
    extensions.mute(False)
    assert (kept(at), other.f(at), "__call__" in vars(type(kept))) == (8, 8, False)


def test_after_a_call_that_was_left_out_numbers_alone_call_nothing_either(built: Callable[[str], ctypes.CDLL]) -> None:
    """Told of no addresses, a kernel wrote where it was told before."""
    own, other = built("own"), built("other")
    one = ctypes.c_int(1)
    extensions = Extensions()
    extensions.mute(True, frozenset((own._name, other._name)))
    assert (own.f(ctypes.byref(one)), own.size(3, ctypes.c_double(1)), own.named(b"a")) == (0, 0, 0)
    assert other.size(3, ctypes.c_double(1)) == 3
    extensions.mute(True, frozenset((own._name, other._name)))
    assert own.size(3, ctypes.c_double(1)) == 3
    extensions.mute(False)


@pytest.mark.parametrize(
    ("mapped", "least"),
    [
        ([(range(0x55550000_0000, 0x55550000_1000), "python")], 1 << 32),
        ([(range(0x40_0000, 0x50_0000), "python"), (range(0x7F00_0000_0000, 0x7F00_0000_1000), "")], 0x40_0000),
        ([(range(0x1000), "")], 1 << 16),
        ([], 1 << 32),
    ],
)
def test_the_least_address_is_where_memory_begins(mapped: list[tuple[range, str]], least: int) -> None:
    """Without a position of its own the interpreter has tensors below 2**32."""
    assert below._least_address(mapped) == least
    numbers = (least - 1, -3, 2.5, True, b"name", "name", ctypes.c_long(7), ctypes.c_bool(True))
    assert all(below._is_number(value, least) for value in numbers)
    places = (
        least,
        ctypes.c_size_t(least),
        None,
        ctypes.c_void_p(1),
        ctypes.c_char_p(b"x"),
        ctypes.byref(ctypes.c_int()),
    )
    assert not any(below._is_number(value, least) for value in places)
