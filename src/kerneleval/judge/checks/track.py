"""Which track a candidate is on: what it dispatched and launched at every timed case, and what comes out without that.

ATen operators that only allocate, view, copy or convert are no arithmetic. A candidate that dispatches arithmetic, or
has NumPy, SciPy or a BLAS compute, and launches kernels of its own is mixed; one that launches none is library,
whatever else computes for it, but where what comes out was given to it. Kernels in an extension that it built itself
are not seen: where no arithmetic of a library is beside it, and the outputs are wrong without it, it is mixed; so is
one with an operator registered by itself whose Python cannot be looked into. Code that ``torch.compile`` made is not
seen: library. The worst case decides.
Then the same case is called in an ordinary window with own kernels made no-ops: outputs that are right all the
same were computed elsewhere, and the launches are decoys. Native code is asked by its symbols instead: it is one
launch, and without it there is nothing.
"""

from __future__ import annotations

import ast
import contextlib
import fnmatch
import functools
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from kerneleval import languages
from kerneleval.judge.checks.common.copies import Copies
from kerneleval.judge.checks.common.registry import register
from kerneleval.judge.oracle.comparison import Match, Mismatch, compare
from kerneleval.judge.oracle.expectation import Expectation, is_eight_bit, opened
from kerneleval.judge.oracle.reference_call import ReferenceCall, precision
from kerneleval.judge.probes.calls import Calls
from kerneleval.judge.static_analysis import patterns
from kerneleval.judge.windows.buffers import WindowBuffer, WindowLayout
from kerneleval.judge.windows.protocol import output_views
from kerneleval.languages.binaries.elf import LOADER
from kerneleval.languages.common.python_source import Source, Unreadable
from kerneleval.records import TRACKS, Case, Finding, Ghost, Outcome, Passed, Task, TrackEvidence, new_secret
from kerneleval.tasks.shapes import EDGE
from kerneleval.worker.host import WorkerError, WorkerFailure

_ALIKE = 0.02
"""Relative rms distance, or share of unequal integers, up to which outputs are taken for the same at first sight."""

_TIMEOUT_S = 30.0

_CALLS_FOR_COPIES = 8
"""Most calls for numbers to look for, where few come out."""

_SHOWN = 4
"""A kernel that is given so many times more while operators are recorded is there for the record."""

_TIMES = 8
"""Calls in a row that are watched once a case was timed."""

_SLOW_S = 0.1
"""A call that takes longer, with what a window costs, is alone in a timed one: these last 20 ms at most."""

_TIMED = 3
"""So many secret ones of the timed cases are watched once more."""

_MOST = 1 << 53
"""What is more is no count."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one watched window gave."""

    outputs: tuple[torch.Tensor, ...]
    """Outputs of the call, private; empty where the worker said that they have another form."""
    aten: dict[str, int]
    """ATen operators dispatched, by ``aten.name.overload``; empty where they were not recorded."""
    launches: dict[str, int]
    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes of the tensors that each kernel was given, and its launches; empty: not known."""
    libraries: dict[str, int] = field(default_factory=dict)
    """Functions of other libraries than PyTorch that computed, or that it looked up: ``numpy.matmul``."""
    extensions: tuple[str, ...] = ()
    """Native code that the candidate built itself; what it launches is not seen."""
    packages: tuple[str, ...] = ()
    """Installed packages with native code that it imported; what they compute is not seen."""
    registered: tuple[str, ...] = ()
    """What it has registered in PyTorch's own namespace: a name there says nothing of what computes."""
    contents: Any = None
    """What lay in the arguments of its kernels, as the worker says (``worker/contents.py``)."""
    lost_error: bool = False
    """Whether the candidate got another error than NumPy raised."""
    compiled: bool = False
    """Whether ``torch.compile`` has made code in its process; what that computes with is not seen."""


class Subject:
    """One case, bound to fresh weights, with fresh secret arguments and the native outputs."""

    def __init__(self, calls: Calls, case: Case) -> None:
        self.case = case
        self._calls, self._bound = calls, calls.bind(case)
        bound = self._bound
        seed = new_secret()
        self._args = bound.arguments(seed)
        self._grads = bound.upstream(self._args, seed)
        call = ReferenceCall(
            task=calls.task,
            case=case,
            args=self._args,
            grads=self._grads or None,
            problem=bound.problem,
            weights=bound.weights or {},
        )
        with precision(tf32=calls.protocol.tf32):
            self.native = call.run(case.dtype)
        known = calls.calibration.get(case)
        call_layout = known.call_layout if known else bound.call_layout(bound.draw(seed))
        self._call = call_layout.given(self._args, self.native)
        self._layout = WindowLayout([self._call], case.direction)

    @property
    def nbytes(self) -> int:
        """Memory that the inputs and outputs of the call take."""
        return self._layout.input_bytes + self._layout.output_bytes

    def again(self) -> Subject:
        """The same case with other weights and arguments."""
        return Subject(self._calls, self.case)

    @property
    def inputs(self) -> list[torch.Tensor]:
        """Everything that the call is given: arguments, upstream gradients and weights."""
        given = (*self._args, *self._grads, *(self._bound.weights or {}).values())
        return [one for one in given if isinstance(one, torch.Tensor)]

    @property
    def is_given(self) -> bool:
        """Whether all that comes out are upstream gradients, or such repeated along a dim: nothing is to compute."""
        return all(any(_repeats(out, grad) for grad in self._grads) for out in self.native)

    def expectation(self) -> Expectation:
        """What must come out, by the oracle."""
        return self._bound.expect(self._args, self._grads).expectation

    def window(
        self,
        *,
        record: bool = False,
        mute: bool = False,
        in_order: bool = False,
        look: bool = False,
        times: int = 1,
    ) -> Seen:
        """Call the candidate, watched.

        Args:
            record: count ATen operators; the candidate can tell such a window by its dispatch mode.
            mute: make own kernels no-ops.
            in_order: inputs become ready, and outputs are read, in the order of the current stream alone.
            look: have the worker say what lies in the arguments of its kernels.
            times: how many calls come in the window.

        Raises:
            WorkerError: the candidate raised; where operators are recorded, twice.
            WorkerFailure: its process is gone.
        """
        how = {"record": record, "mute": mute, "in_order": in_order, "look": look}
        try:
            seen = self._window(how, times)
        except WorkerError:
            if not record:
                raise
        else:
            if not seen.lost_error:
                return seen
        return self._window(how, times)  # an error of NumPy's that it catches is lost the first time

    def _window(self, how: Mapping[str, bool], times: int) -> Seen:
        runner = self._calls.loaded.runner
        language = languages.find(self._calls.loaded.candidate.language)
        tensors = [*(a for a in self._args if isinstance(a, torch.Tensor)), *self._grads]
        layout = self._layout if times == 1 else WindowLayout([self._call] * times, self.case.direction)
        buffer = WindowBuffer(layout, self._calls.device, [tensors] * times)
        runner.prepare(layout)
        runner.worker.request("observe", how, "observing", timeout_s=_TIMEOUT_S)
        try:
            # where it is not recorded, as in most windows: no thread looks what is compiled
            limit = self._calls.limit_of(first=how["record"])
            window = runner.window(buffer, limit=limit, check_mutation=False)
        except WorkerError:
            self._calls.loaded.note(runner.worker.request("observed", {}, "observed", timeout_s=_TIMEOUT_S))
            raise
        answer = runner.worker.request("observed", {}, "observed", timeout_s=_TIMEOUT_S)
        self._calls.loaded.note(answer)
        libraries = _claimed_counts(answer.get("libraries"))
        if language.needs_build:  # `foreign` knows better: CUDA's run-time, linked in, finds functions too
            libraries = {name: n for name, n in libraries.items() if not _finds_code(name.rpartition(": ")[2])}
        return Seen(
            outputs=() if window.wrong is not None else output_views(window, layout, 0),
            aten=_claimed_counts(answer.get("aten")),
            launches=_claimed_counts(answer.get("launches")),
            sizes=_claimed_counts(answer.get("sizes")),
            libraries=libraries,
            # of a language that is built, the library that the judge itself opened; `foreign` says what is in it
            extensions=() if language.needs_build else _claimed_names(answer.get("extensions")),
            packages=_claimed_names(answer.get("packages")),
            registered=_claimed_names(answer.get("registered")),
            contents=answer.get("contents"),
            lost_error=bool(answer.get("lost_error")),
            compiled=bool(answer.get("compiled")),
        )


def _larger(sizes: Mapping[str, int], others: Mapping[str, int]) -> list[str]:
    """Kernels that are given far more in one window than in another, if all together are: one own kernel may stand in
    for another.
    """
    if sum(sizes.values()) <= _SHOWN * sum(others.values()):
        return []
    return sorted(name for name, size in sizes.items() if size > _SHOWN * others.get(name, 0))


def _repeats(out: torch.Tensor, grad: torch.Tensor) -> bool:
    """Whether a tensor is another one as it is, or expanded along a dim that this one lacks or has once."""
    if out.dtype != grad.dtype or out.ndim - grad.ndim not in (0, 1):
        return False
    forms = [grad] if out.ndim == grad.ndim else [grad.unsqueeze(dim) for dim in range(out.ndim)]
    fits = [f for f in forms if all(a in (1, b) for a, b in zip(f.shape, out.shape, strict=True))]
    return any(torch.equal(call_layout.expand(out.shape), out) for call_layout in fits)


def alike(outputs: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> bool:
    """Whether outputs are roughly those wanted: a first look that needs no oracle."""
    return len(outputs) == len(wanted) and all(_alike(got, want) for got, want in zip(outputs, wanted, strict=True))


def right(outputs: Sequence[torch.Tensor], expectation: Expectation) -> bool:
    """Whether outputs are what must come out."""
    return isinstance(compare(outputs, expectation), Match)


def alike_everywhere(outputs: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> bool:
    """Whether no single element is far off: a part that was never written shows, however small it is."""
    return alike(outputs, wanted) and all(_no_outlier(got, want) for got, want in zip(outputs, wanted, strict=True))


def _no_outlier(got: torch.Tensor, want: torch.Tensor) -> bool:
    if not want.is_floating_point():
        return torch.equal(got, want)
    got, want = opened(got), opened(want)
    size = want.abs().float()
    far = 0.25 * torch.linalg.vector_norm(size) / max(want.numel(), 1) ** 0.5
    return bool(((got.float() - want.float()).abs() <= far + 0.05 * size).all())


def _alike(got: torch.Tensor, want: torch.Tensor) -> bool:
    if got.shape != want.shape or got.dtype != want.dtype:
        return False
    if not want.numel():
        return True
    if not (want.is_floating_point() or want.is_complex()) or is_eight_bit(want):
        return float((got != want).double().mean()) <= _ALIKE
    wide = torch.complex128 if want.is_complex() else torch.float32 if want.itemsize <= 4 else torch.float64
    far, size = torch.linalg.vector_norm(got.to(wide) - want), torch.linalg.vector_norm(want.to(wide))
    return bool(far <= _ALIKE * size)  # not where anything is NaN


def _claimed_counts(value: Any) -> dict[str, int]:
    if not isinstance(value, dict):
        return {}
    kept = [(str(k)[:200], v) for k, v in list(value.items())[:1000] if type(v) is int and 0 <= v < _MOST]
    return dict(kept)


def _claimed_names(value: Any) -> tuple[str, ...]:
    return tuple(str(name)[:100] for name in value[:8]) if isinstance(value, list) else ()


_PLUMBING = frozenset(
    re.findall(
        r"\w+",
        """
        _cast_Byte _cast_Char _cast_Double _cast_Float _cast_Half _cast_Int _cast_Long _cast_Short
        _foreach_copy_ _local_scalar_dense _record_function_enter _record_function_enter_new
        _record_function_exit _reshape_alias _reshape_from_tensor _shape_as_tensor _to_copy _to_cpu
        _unsafe_view _version adjoint alias arange as_strided as_strided_ atleast_1d atleast_2d atleast_3d
        bernoulli_ broadcast_tensors broadcast_to can_cast cat chunk clone column_stack concat concatenate
        constant_pad_nd contiguous copy copy_ data detach detach_ diag diagonal dim dsplit dstack empty
        empty_like empty_strided expand expand_as fill fill_ flatten flip fliplr flipud full full_like
        get_device hsplit hstack imag is_complex is_conj is_contiguous is_floating_point is_inference is_leaf
        is_neg is_nonzero is_pinned is_same_size is_signed item lift lift_fresh lift_fresh_copy mH mT matrix_H
        meshgrid moveaxis movedim narrow new_empty new_empty_strided new_full new_ones new_zeros normal_ numel
        numpy_T ones ones_like output_nr pad permute pin_memory promote_types rand randint randn random_ ravel
        real record_stream repeat repeat_interleave requires_grad_ reshape reshape_as resize_ resize_as_
        resolve_conj resolve_neg result_type retain_grad retains_grad roll row_stack scalar_tensor select set_
        size slice split split_with_sizes squeeze squeeze_ stack storage_offset stride swapaxes swapaxes_
        swapdims swapdims_ sym_numel sym_size sym_stride t t_ tensor_split tile to transpose transpose_
        type_as unbind unflatten unfold uniform_ unsafe_chunk unsqueeze unsqueeze_ view view_as
        view_as_complex view_as_real vsplit vstack zero zero_ zeros zeros_like
        """,
    )
)
"""Base names of operators that compute nothing: allocation, views, copies, conversion, seeds, names for profilers. Some
are made of others: in inference mode these are seen too."""


@functools.cache
def _brought() -> frozenset[str]:
    """``namespace.name.overload`` of the operators that PyTorch itself brings: here no other code can register one."""
    names = (name.replace("::", ".") for name in torch._C._dispatch_get_all_op_names())
    return frozenset(name if name.count(".") > 1 else f"{name}.default" for name in names)


def arithmetic(dispatched: Mapping[str, int]) -> dict[str, int]:
    """The operators among ``aten.name.overload`` counts that compute something."""
    return {
        name: count for name, count in dispatched.items() if name in _brought() and name.split(".")[1] not in _PLUMBING
    }


def chosen(cases: Sequence[Case], outcomes: Mapping[Case, Outcome], timed_dtypes: Sequence[str] = ()) -> list[Case]:
    """The cases that are watched, in a secret order: for each direction the ordinary case of every shape category in
    the first dtype judged and in those that are timed, and one chosen in secret in each further dtype. Where nothing
    ordinary was judged, one case of any kind for each direction.
    """
    passed = [c for c in cases if isinstance(outcomes.get(c), Passed)]
    plain = [c for c in passed if (c.distribution, c.layout) == ("standard", "contiguous") and c.shape_category != EDGE]
    found: list[Case] = []
    for direction in ("forward", "backward"):
        there = [c for c in plain if c.direction == direction]
        by_dtype = {dtype: [c for c in there if c.dtype == dtype] for dtype in dict.fromkeys(c.dtype for c in there)}
        for number, same in enumerate(by_dtype.values()):
            by_shape = list({c.shape_category: c for c in reversed(same)}.values())
            found += by_shape if number == 0 or same[0].dtype in timed_dtypes else [secrets.choice(by_shape)]
        if not there:
            found += [c for c in passed if c.direction == direction][:1]
    secrets.SystemRandom().shuffle(found)
    return found


def ordered(task: Task, watched: Sequence[Case]) -> frozenset[Case]:
    """The watched cases that are also called in stream order: of each direction the largest, where work that comes too
    late shows best, and one chosen in secret.
    """
    found: set[Case] = set()
    for direction in ("forward", "backward"):
        there = [c for c in watched if c.direction == direction]
        if there:
            found |= {max(there, key=lambda c: task.bytes(c.dims_map, c.dtype)), secrets.choice(there)}
    return frozenset(found)


@dataclass
class _Case:
    case: Case
    seen: Seen
    mute: Ghost = ""
    """What came of making own kernels no-ops."""
    copies: bool = False
    """Whether its kernels only copy what was computed elsewhere."""
    ordinary: Seen | None = None
    """What an ordinary window gave: nothing is recorded there, and its kernels run."""
    given: bool = False
    """Whether what comes out was given (the gradient of a sum is the upstream one): no kernel is missed there."""

    @property
    def computing(self) -> dict[str, int]:
        """The ATen operators dispatched that compute something, and functions of other libraries."""
        return arithmetic(self.seen.aten) | self.seen.libraries

    @property
    def opaque(self) -> list[str]:
        """Operators that PyTorch does not bring: what they dispatch is not seen."""
        return sorted(name for name in self.seen.aten if name not in _brought())

    @property
    def rank(self) -> int:
        """Place of the track in :data:`TRACKS`."""
        if self.mute in ("little", "decoy") or self.copies or self.seen.compiled or self.seen.registered:
            return 2
        if not self.seen.launches and not self.given:
            return 1 if self.seen.extensions and not self.computing else 2
        return 1 if self.computing or self.opaque or self.seen.extensions or self.seen.packages else 0

    def __str__(self) -> str:
        started = sorted(name[8:] for name in self.computing if name.startswith("process."))
        names = ", ".join(sorted(name for name in self.computing if not name.startswith("process."))[:6])
        kernels = ", ".join(sorted(self.seen.launches)[:6])
        text = f"{self.case.key}: " + (f"launches {kernels}" if kernels else "launches no kernel of its own")
        text += f"; computes with {names}" if names else "" if started else "; no arithmetic of a library"
        if started:
            text += f"; starts processes ({', '.join(started[:6])}), which may compute with anything"
        if self.opaque:
            text += f"; what its operators {', '.join(self.opaque[:6])} dispatch is not seen"
        if self.seen.extensions:
            text += f"; what its extensions ({', '.join(self.seen.extensions)}) launch is not seen"
        if self.seen.packages:
            text += f"; what the packages that it imports ({', '.join(self.seen.packages)}) compute is not seen"
        if self.seen.registered:
            text += f"; it has registered {', '.join(self.seen.registered)} among PyTorch's own operators"
        if self.seen.compiled:
            text += "; what torch.compile made of its functions computes unseen"
        if self.mute in ("little", "decoy"):
            text += "; its outputs are there without its kernels"
        if self.copies:
            text += "; its kernels only copy: what comes out lay in their arguments before any of them had run"
        return text


_GHOSTS: tuple[Ghost, ...] = ("decoy", "little", "needed")
"""The worst first."""


@register
def track(calls: Calls, cases: Sequence[Case], outcomes: Mapping[Case, Outcome]) -> Iterable[Finding]:
    """The track, and launches that change nothing."""
    language = languages.find(calls.loaded.candidate.language)
    watched = chosen(cases, outcomes, calls.protocol.timed_dtypes)
    in_order = ordered(calls.task, watched) if calls.device.streams else frozenset()
    examination = _Examination(calls, can_mute=language.can_mute, in_order=in_order)
    for case in watched:
        yield from examination.watch(case)
    found = sorted(examination.found, key=lambda one: cases.index(one.case))
    if not found:
        return
    yield from _decoys(found, examination.forward)
    worst = max(found, key=lambda one: one.rank)
    track, message = TRACKS[worst.rank], str(worst)
    foreign = _foreign(calls, language)
    if foreign:
        track = "library"
        message = f"{_why(foreign)}; {message}"
    elif track == "custom" and (named := _named(calls)):
        track = "mixed"
        message = f"its source names {', '.join(named[:6])}: what these compute or change is not seen; {message}"
    evidence = TrackEvidence(
        track=track,
        aten={name: n for one in found for name, n in one.computing.items()},
        launches={name: n for one in found for name, n in one.seen.launches.items()},
        cases=len(found),
        ghost=next((ghost for ghost in _GHOSTS if any(o.mute == ghost for o in found)), ""),
    )
    yield Finding(level="info", message=message, evidence=evidence)


def again(calls: Calls, cases: Sequence[Case], before: str) -> Iterator[Finding]:
    """Whether secret ones of the cases that were timed are still on the track of ``before``, and whether several calls
    in a row launch what a recorded one does: who counts calls, or knows timed windows by their many, could compute
    otherwise there.
    """
    for case in secrets.SystemRandom().sample(cases, min(len(cases), _TIMED)) if before != "library" else ():
        subject = Subject(calls, case)
        if not any(t.numel() for t in subject.native):
            continue
        subject.window()  # what it makes once for new weights is made
        began_s = time.monotonic()
        subject.window()
        took_s = time.monotonic() - began_s
        times = max(1, min(_TIMES, calls.device.memory_budget_bytes() // 2 // max(subject.nbytes, 1)))
        in_a_row = times > _SHOWN and took_s <= _SLOW_S
        if in_a_row:
            subject.window(times=times)  # and what it chooses, or records, in its first calls
        one = _Case(case, subject.window(record=True), given=subject.is_given)
        if one.rank > TRACKS.index(before):
            evidence = TrackEvidence(track=TRACKS[one.rank], aten=one.computing, launches=one.seen.launches, cases=1)
            yield Finding(level="info", message=f"once it was timed, {one}", evidence=evidence)
            return
        if one.seen.compiled or not in_a_row:
            continue
        if _less_in_a_row(one.seen, subject, times) and (
            shown := _less_in_a_row(subject.window(record=True), subject, times)  # calls have begun to replay, perhaps
        ):
            yield _only_recorded(one, shown)
            return


def _less_in_a_row(recorded: Seen, subject: Subject, times: int) -> list[str]:
    """Kernels that several calls in a row launch far less than as many calls as the recorded one."""
    wanted = {name: times * size for name, size in recorded.sizes.items()}
    return _larger(wanted, subject.window(times=times).sizes)


def _foreign(calls: Calls, language: languages.Language) -> tuple[str, ...]:
    """Names in the built code by which others could compute; read where the candidate cannot reach."""
    candidate, pool = calls.loaded.candidate, calls.loaded.pool
    return language.foreign(candidate, pool.built(candidate)) if language.needs_build else ()


def _finds_code(name: str) -> bool:
    """Whether a name of :func:`loader_names`: a function that finds others, or a file that tells where code is."""
    return name in LOADER or name.startswith("/proc/")


def _why(foreign: Sequence[str]) -> str:
    """Why built code is on the library track, and what would put it on another."""
    finders = list(filter(_finds_code, foreign))
    if len(finders) < len(foreign):
        return f"the built code refers to {', '.join(foreign[:6])}: what computes need not be its own"
    names = ", ".join(finders[:6])
    text = (
        f"the built code refers to {names}, by which code of libraries can be found: what computes need not be its own"
    )
    instead = "; __builtin_cpu_supports says what the processor has" if "getauxval" in finders else ""
    return f"{text} (leave {'it' if len(finders) == 1 else 'them'} out for the custom track{instead})"


_UNSEEN = (
    *("scipy.*", "llvmlite.*", "numba.extending.get_cython_function_address", "ctypes.pythonapi.*"),
    *("numpy._core.*", "numpy.core.*", "numba._helperlib.*", "numba.np.linalg.*"),
    *("ctypes.CFUNCTYPE", "ctypes.PYFUNCTYPE", "ctypes._CFuncPtr", "_ctypes.*", "cffi.*", "_cffi_backend.*"),
    *("numba.objmode", "numba.core.withcontexts.*", "numba.core.typing.cffi_utils.*"),
    *("_interpreters.*", "_testcapi.*", "_testinternalcapi.*", "_xxsubinterpreters.*", "concurrent.interpreters.*"),
    *("concurrent.futures.InterpreterPoolExecutor", "concurrent.futures.interpreter.*"),
    *("numba.types.ExternalFunctionPointer", "numba.types.WrapperAddressProtocol", "torch._C._aoti.*"),
    *("torch._C._te.*", "importlib.__import__", "importlib.machinery.*", "importlib.util.module_from_spec"),
    "inspect.getattr_static",
    *("kerneleval.*", "sys.addaudithook", "sys.gettrace", "sys.monitoring.*", "sys.setprofile", "sys.settrace"),
    *("torch._C._get_dispatch_mode", "torch._C._len_torch_dispatch_stack", "torch.autograd._profiler_enabled"),
    *("torch._C._autograd._profiler_enabled", "torch.utils._python_dispatch.*", "threading.setprofile"),
    *("pkgutil.resolve_name", "pydoc.locate", "runpy.*"),
)
"""Names by which Python code has others compute, and which are not followed: wrappers of compiled code, ways to get
at the functions that are linked into Numba's or to call by an address, NumPy's own modules, the compiler of
TorchScript, Python called by compiled kernels, other interpreters in the process, this package, what asks whether it is
watched or runs between others' lines, and what finds modules and attributes by texts."""

_IN_PARTS = ("ctypes", "llvmlite", "numba", "numpy._core", "numpy.core", "scipy", "sys")
"""Whose attributes are not followed where the names are made as it runs."""

_IMPORTING = ("builtins.__import__", "importlib.import_module")
_ASKING = ("operator.attrgetter", "operator.methodcaller")
_FINDERS = (*_IMPORTING, *_ASKING, "builtins.getattr")
"""Functions whose arguments are read. Under another name they would not be."""

_ROOTS = frozenset(("builtins", "importlib", "operator", *(name.partition(".")[0] for name in _UNSEEN)))
"""Modules of which not all names may be imported at once."""

_INSIDE = frozenset(
    re.findall(
        r"\w+",
        "__closure__ __globals__ ag_frame cell_contents cr_frame f_back f_globals f_locals get_referents getclosurevars"
        " gi_frame tb_frame _FuncPtr _wrapper_address __getattribute__",
    )
)
"""Attributes that lead to what the worker holds: there what was counted, and who counts, can be changed unseen."""


def _named(calls: Calls) -> list[str]:
    """Those that stand in the sources of a Python candidate."""
    found: list[str] = []
    for path, text in calls.loaded.candidate.files:
        if path.endswith(".py"):
            with contextlib.suppress(Unreadable):
                source = Source(text)
                found += (what for _, what in source.uses(_UNSEEN))
                found += (what for _, what in patterns.rebinds(source))
                found += filter(re.compile("|".join(map(fnmatch.translate, _UNSEEN))).match, _imported(source))
                found += _in_parts(source)
                found += (what for _, what in source.attributes(tuple(_INSIDE)))
                found += _INSIDE.intersection(part for text in source.short_texts() for part in text.split("."))
    return sorted({repr(name)[1:-1][:80] for name in found})


def _imported(source: Source) -> Iterator[str]:
    """The full names of what is imported: a name of the file may stand for several things."""
    for one in source.each(ast.Import):
        yield from (alias.name for alias in one.names)
    for module in source.each(ast.ImportFrom):
        yield from (f"{module.module}.{alias.name}" for alias in module.names)


def _in_parts(source: Source) -> Iterator[str]:
    """Modules and attributes whose names cannot be read."""
    for call in source.each(ast.Call):
        given = call.args or [keyword.value for keyword in call.keywords if keyword.arg == "name"]
        name, plain = source.dotted(call.func), [type(argument) is ast.Constant for argument in given]
        of = source.dotted(call.args[0]) if call.args else ""
        if (name in _IMPORTING and not all(plain[:1])) or (name in _ASKING and not all(plain)):
            yield f"{name.removeprefix('builtins.')}(?)"
        elif name == "builtins.vars" or (name == "builtins.getattr" and not all(plain[1:2])):
            unread = f"{of}.".startswith(tuple(f"{one}." for one in _IN_PARTS))
            yield from [f"an attribute of {of} whose name is made as it runs"] if unread else []
    called = {id(call.func) for call in source.each(ast.Call)}
    harmless = {id(one.value) for one in source.each(ast.Subscript) if getattr(one.slice, "id", "") == "__name__"}
    for one in source.each(ast.Name, ast.Attribute):
        if source.dotted(one) == "sys.modules" and id(one) not in harmless:
            yield "sys.modules"
        name = source.dotted(one) or (f"builtins.{one.id}" if isinstance(one, ast.Name) else "")
        if name in _FINDERS and id(one) not in called:
            yield f"{name.removeprefix('builtins.')} without calling it"
    stars = (one.module for one in source.each(ast.ImportFrom) if one.module and one.names[0].name == "*")
    yield from (f"all of {module}" for module in stars if module.partition(".")[0] in _ROOTS)


def _decoys(found: Sequence[_Case], forward: Sequence[_Case] = ()) -> Iterator[Finding]:
    """A finding on launches that change nothing. A forward call may launch what only its backward needs (saved
    statistics): kernels without which the gradients of another case are wrong are no decoys. Nor are those of the
    forward call before a backward that computes without them; ``forward``: what was seen where no forward is judged.
    """
    for one in found:
        if one.mute != "decoy" or not one.seen.launches:
            continue
        others = [o for o in (*found, *forward) if o.mute == "needed" and o.case.direction != one.case.direction]
        needed = {kernel for other in others for kernel in other.seen.launches}
        kernels = ", ".join(sorted(one.seen.launches)[:6])
        if set(one.seen.launches) <= needed:
            yield Finding(level="warn", message=f"{one.case.key}: the outputs do not need its launches of {kernels}")
            continue
        computing = ", ".join(sorted(one.computing)[:6]) or "code that is not seen"
        message = (
            f"{one.case.key}: it launches {kernels}, and its outputs are right with these kernels made no-ops: "
            f"{computing} computes them"
        )
        launches = {"launches": dict(one.seen.launches)}
        yield Finding(level="fail", reason="decoy_kernel", message=message, evidence=launches)
        return


def _only_recorded(one: _Case, kernels: Sequence[str]) -> Finding:
    message = (
        f"{one.case.key}: it launches {', '.join(kernels[:6])} while its operators are recorded and, in ordinary "
        "windows, not, or on far less: something else computes there (launch the same kernels in every call)"
    )
    evidence = {"launches": dict(one.seen.launches)}
    return Finding(level="fail", reason="decoy_kernel", message=message, evidence=evidence)


@dataclass
class _Examination:
    calls: Calls
    can_mute: bool
    in_order: frozenset[Case] = frozenset()
    found: list[_Case] = field(default_factory=list)
    forward: list[_Case] = field(default_factory=list)
    """Forward cases that are not judged, watched where kernels are not needed backward."""

    def watch(self, case: Case) -> Iterator[Finding]:
        """Call the candidate at the case, watched, and again without its own kernels."""
        subject = Subject(self.calls, case)
        if not any(t.numel() for t in subject.native):
            return  # nothing comes out, so nothing need be computed
        seen = subject.window(record=True, mute=False)
        if not alike(seen.outputs, subject.native):
            again = subject.window(record=True, mute=False)
            if not right(again.outputs, subject.expectation()):
                yield self._wrong(subject)
        one = _Case(case, seen, given=subject.is_given)
        self.found.append(one)
        if case in self.in_order:
            yield from self._in_order(subject)
        # kernels in compiled code cannot be made no-ops, and those of a forward call need not serve a given gradient
        if (seen.launches or seen.extensions) and self.can_mute and not seen.compiled and not one.given:
            one.mute = self._muted(subject)
            if one.mute == "decoy" and case.direction == "backward" and not self.forward:
                self._look_at_forward(replace(case, direction="forward"))
        # the arguments of kernels are seen where launches are, and are read in host memory
        if one.rank < 2 and seen.launches and self.can_mute and self.calls.device.name == "cpu":
            one.copies = self._copies(one, subject, Copies(whole=one.rank == 1))
        if seen.sizes and not seen.compiled and (shown := self._shown(one, subject)):
            yield _only_recorded(one, shown)

    @staticmethod
    def _shown(one: _Case, subject: Subject) -> list[str]:
        """Kernels that it launches while its operators are recorded and not, or on little, in ordinary windows: twice,
        where it was so once.
        """
        recorded, ordinary = one.seen.sizes, (one.ordinary or subject.again().window()).sizes
        if not _larger(recorded, ordinary):
            return []
        subject = subject.again()
        subject.window()  # what it makes once for new weights is made
        ordinary, recorded = (subject.window(record=on).sizes for on in (False, True))  # on the same inputs
        return _larger(recorded, ordinary)

    def _look_at_forward(self, case: Case) -> None:
        """See whether a forward call needs its kernels."""
        if case in self.calls.calibration:
            return  # it is watched itself
        with contextlib.suppress(WorkerError):
            subject = Subject(self.calls, case)
            self.forward.append(_Case(case, subject.window()))
            self.forward[-1].mute = self._muted(subject)

    def _copies(self, one: _Case, subject: Subject, copies: Copies) -> bool:
        """Whether what comes out lay in arguments of its kernels before, on inputs that were never seen."""
        for _ in range(_CALLS_FOR_COPIES):
            subject = subject.again()
            if not copies.fit(subject.native):
                return False
            seen = one.ordinary = subject.window(look=True)
            if seen.outputs:
                copies.add(seen.outputs, subject.inputs, seen.contents)
            if copies.is_clear:
                break
        return copies.are_all

    def _in_order(self, subject: Subject) -> Iterator[Finding]:
        """Whether work on other streams is joined with the current one."""
        if subject.nbytes > self.calls.device.memory_budget_bytes() // 2:
            message = f"{subject.case.key}: too large to see whether work on other streams is joined"
            yield Finding(level="info", message=message)
            return
        for attempt in range(2):
            subject = subject.again() if attempt else subject
            outputs = subject.window(in_order=True).outputs
            if alike_everywhere(outputs, subject.native) or right(outputs, subject.expectation()):
                return
        yield Finding(
            level="fail",
            reason="unjoined_work",
            message=f"{subject.case.key}: right once the whole device was waited for, wrong when its inputs become "
            "ready and its outputs are read in the order of the current stream: work on another stream is not joined",
        )

    def _wrong(self, subject: Subject) -> Finding:
        """What to say of a wrong watched window: who is wrong on the same inputs unwatched too has not looked."""
        result = compare(subject.window().outputs, subject.expectation())
        if isinstance(result, Mismatch):
            message = f"{subject.case.key}: {result.message}"
            return Finding(level="fail", stage="correctness", reason="wrong_output", message=message)
        message = f"{subject.case.key}: right in ordinary windows, wrong while its operators are recorded"
        return Finding(level="fail", reason="wrong_when_watched", message=message)

    def _muted(self, subject: Subject) -> Ghost:
        """What comes out without own kernels, on inputs that were never seen before: twice, if it is right at first."""
        outputs: tuple[torch.Tensor, ...] = ()
        for _ in range(2):
            before = subject.native
            subject = subject.again()
            try:
                outputs = subject.window(record=False, mute=True).outputs
            except WorkerError:  # what it reads instead of its kernels' outputs may be anything
                return "needed"
            except WorkerFailure:
                self.can_mute = False  # once is enough: the next would cost a worker again
                self.calls.loaded.revive()
                return "needed"
            if not alike(outputs, subject.native):
                return "needed"
            zeros = [torch.zeros_like(t) for t in subject.native]
            if alike(zeros, subject.native) or alike(before, subject.native):
                return ""  # memory that was never written could pass: zeros, or the outputs of an earlier call
        return "decoy" if right(outputs, subject.expectation()) else "little"
