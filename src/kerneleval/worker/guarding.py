"""What a candidate must leave alone: functions that everybody in the process relies on, and the worker around it.

Two looks, both from inside and therefore evidence: identities, taken before the candidate's code is loaded and
compared later, and the interpreter's audit events, as far as the candidate's own code caused them. Libraries look into
frames and wrap functions for reasons of their own; what they do is not held against the candidate.
"""

from __future__ import annotations

import builtins
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

from kerneleval.languages.common.watch import library_folders
from kerneleval.worker.below import set_attribute

_LIMIT = 16
"""Most things reported of each level; the first ones matter."""

_WRAPPERS = 3
"""Most wrappers around a function that are looked through."""

_GUARDED = {
    "builtins": "abs all any bool callable dict enumerate float getattr hash id int isinstance iter len list map max"
    " min next range setattr sum tuple type vars zip",
    "json": "dumps loads",
    "json.encoder": "_make_iterencode c_make_encoder",
    "json.encoder.JSONEncoder": "default encode iterencode",
    "os": "_exit getpid kill read write",
    "sys": "_getframe exit",
    "time": "clock_gettime monotonic monotonic_ns perf_counter perf_counter_ns process_time process_time_ns sleep"
    " thread_time time time_ns",
    "torch": "Tensor allclose bernoulli enable_grad eq equal get_rng_state initial_seed isclose isfinite isnan"
    " manual_seed ne no_grad normal rand rand_like randint randint_like randn randn_like randperm seed"
    " set_rng_state strided _foreach_copy_",
    "torch.Tensor": "__eq__ __ne__ allclose clone copy_ cpu cuda data_ptr detach detach_ device dtype element_size"
    " eq equal is_contiguous is_floating_point isclose item layout ne numel numpy shape storage_offset stride sub to"
    " tolist untyped_storage",
    "torch.autograd": "backward grad",
    "torch.cuda": "Event Stream current_stream default_stream manual_seed manual_seed_all stream synchronize",
    "torch.cuda.Event": "__new__ elapsed_time query record synchronize wait",
    "torch.cuda.Stream": "query record_event synchronize wait_event wait_stream",
    "torch.nn": "Parameter",
    "torch.random": "get_rng_state initial_seed manual_seed seed set_rng_state",
    "torch.testing": "assert_close",
}
"""Names that mean the same to everybody: comparisons, copies, clocks, random numbers, waiting for the device, and what
writes the worker's answers."""

_SWITCHES = {
    "torch._C": "_DisablePythonDispatcher _DisableTorchDispatch _ExcludeDispatchKeyGuard _ForceDispatchKeyGuard"
    " ExcludeDispatchKeyGuard _SetExcludeDispatchKeyGuard _dispatch_tls_set_dispatch_key_excluded"
    " _dispatch_tls_set_dispatch_key_included _pop_torch_dispatch_stack _unset_dispatch_mode",
    "torch._C._autograd": "_enable_record_function _toggle_collection_dynamic",
    "torch.autograd": "_enable_record_function",
    "torch.autograd.profiler": "_toggle_collection_dynamic",
    "torch.autograd.profiler.profile": "toggle_collection_dynamic",
    "torch.profiler.profile": "toggle_collection_dynamic",
    "torch.utils._python_dispatch": "_disable_current_modes _pop_mode _pop_mode_temporarily",
}
"""What switches off the recording of operators; only PyTorch itself has a use for it."""

_BELOW = {
    "torch._C": "_dispatch_get_computed_kernel_for_dispatch_key _get_operation_overload",
    "torch._C._DispatchOperatorHandle": "redispatch_boxed",
    "torch._ops.OpOverload": "redispatch",
    "torch.library": "get_kernel",
}
"""What calls a kernel of an operator below its recording. Operators of the candidate's own may have a use for it."""

_CALLS_FOR_OTHERS = frozenset(("asyncio", "concurrent", "multiprocessing", "threading"))
"""Packages that call, in a thread, what somebody gave them; PyTorch gives them none of the functions above."""

_LOOKED_THROUGH = frozenset(("_io", "codecs", "ctypes", "inspect", "io", "os", "pathlib"))
"""Modules that act for their caller: what counts is who called them."""

_HARNESS = "kerneleval"
_MODULE_NAME = "candidate"
_INSIDES = frozenset(("environ", "fd", "map_files", "maps", "mem", "root", "smaps"))
"""Files below ``/proc/PID`` that show what a process holds."""

_INNER = ("__closure__", "__globals__")
"""Attributes of functions that lead to what a function's module holds, and that no audit event tells of."""

_globals_of: Callable[[FunctionType], dict[str, Any]] = vars(FunctionType)["__globals__"].__get__

_FOREIGN_MEMORY = frozenset(("pidfd_getfd", "process_vm_readv", "process_vm_writev", "ptrace"))

_Claim = dict[str, str]
_Handler = Callable[[tuple[Any, ...], FrameType], None]


class Guard:
    """Watches from before the candidate is loaded, whose files will be in the folder ``own``, until its worker ends."""

    def __init__(self, own: Path) -> None:
        self.when = "load"
        """``load`` until the candidate is there, then ``call``."""
        self._own = os.path.join(os.path.abspath(own), "")
        self._claims: dict[str, _Claim] = {}
        self._libraries = library_folders()
        self._known = _identities()
        self._handlers = _signal_handlers()
        self._watch_switches()
        self._watch_calls_by_key()
        sys.addaudithook(_hook(self._reach()))
        names = [name for name in sys.modules if name.partition(".")[0] == _HARNESS]
        self._worker = frozenset(id(vars(sys.modules[name])) for name in (*names, "__main__"))
        for name in _INNER:
            set_attribute(FunctionType, name, self._closed(name))

    def claims(self, changed: list[str]) -> list[_Claim]:
        """Everything seen so far: ``what``, ``level`` (``fail``, ``warn``) and ``when``, oldest first. ``changed`` is
        what of the worker's own is no more what it was.
        """
        for name in changed:
            self.note("fail", f"replaced {name} of the worker")
        for name, (value, code) in _identities().items():
            before, before_code = self._known.get(name, (value, code))
            if value is before and code is not before_code:
                self.note("fail", f"replaced the code of {name}")
            elif value is not before and not self._wraps(value, before):
                self.note("fail", f"replaced {name}")
        for number, handler in _signal_handlers().items():
            if handler is not self._handlers.get(number) and self._is_own(getattr(handler, "__globals__", None)):
                self.note("warn", f"handles signal {number}")
        return list(self._claims.values())

    def note(self, level: str, what: str) -> None:
        """Keep what was seen, once."""
        if sum(claim["level"] == level for claim in self._claims.values()) < _LIMIT:  # warnings must not hide the rest
            self._claims.setdefault(what, {"level": level, "what": what[:200], "when": self.when})

    def _wraps(self, value: Any, before: Any) -> bool:
        """Whether a library put a function of its own around the old one, as compilers do."""
        if not isinstance(value, FunctionType) or self._is_own(_globals_of(value)):
            return False
        if not os.path.realpath(value.__code__.co_filename).startswith(self._libraries):
            return False
        old = {id(before), *map(id, _held(before))}  # what was a wrapper itself is often unwrapped first
        held = _held(value)
        for _ in range(_WRAPPERS):
            if any(id(one) in old for one in held):
                return True
            held = [inner for one in held for inner in _held(one)]
        return False

    def _is_own(self, names: Any) -> bool:
        """Whether global names are those of the candidate's modules."""
        if not isinstance(names, dict):
            return False
        file, name = dict.get(names, "__file__"), dict.get(names, "__name__")
        return (isinstance(file, str) and str.startswith(file, self._own)) or name == _MODULE_NAME

    def _watch_switches(self) -> None:
        """See who uses what switches the recording of operators off, or goes below it."""
        for table, what, concerns in (
            (_SWITCHES, "switches the recording of operators off", lambda _first: True),
            (_BELOW, "calls PyTorch's operators below their recording", _is_brought),
        ):
            for home, names in table.items():
                owner = _owner(home)
                for name in names.split():
                    if hasattr(owner, name):
                        setattr(owner, name, self._noting(getattr(owner, name), f"{what} ({home}.{name})", concerns))

    def _noting(
        self, switch: Callable[..., Any], what: str, concerns: Callable[[Any], bool] = lambda _first: True
    ) -> Callable[..., Any]:
        def noting(*args: Any, **keywords: Any) -> Any:
            if self._is_asked_by(frame := sys._getframe(1)) and concerns(args[0] if args else None):
                self._note_use(what, frame)
            return switch(*args, **keywords)

        return noting

    def _note_use(self, what: str, frame: FrameType) -> None:
        self.note("fail", f"{what}, in {_place(frame)}" if self._is_own_frame(frame) else what)

    def _watch_calls_by_key(self) -> None:
        """See who takes the function of an operator that calls the kernel of a dispatch key."""
        name = "_op_dk"

        def taken(operator: Any) -> Any:
            if self._is_asked_by(frame := sys._getframe(1)) and _is_brought(operator):
                self._note_use(f"calls PyTorch's operators below their recording (torch._ops.OpOverload.{name})", frame)
            try:
                return vars(operator)[name]
            except KeyError:
                raise AttributeError(name) from None

        kept = property(taken, lambda operator, value: vars(operator).__setitem__(name, value))
        setattr(_owner("torch._ops.OpOverload"), name, kept)

    def _is_asked_by(self, frame: FrameType) -> bool:
        """Whether the candidate calls, or a thread for it."""
        name = dict.get(frame.f_globals, "__name__")
        return self._is_own_frame(frame) or (isinstance(name, str) and name.split(".")[0] in _CALLS_FOR_OTHERS)

    def _is_own_frame(self, frame: FrameType) -> bool:
        return self._is_own(frame.f_globals) or frame.f_code.co_filename.startswith(self._own)

    def _closed(self, name: str) -> property:
        """An attribute of functions that gives nothing of the worker's to others."""
        of, caller = vars(FunctionType)[name].__get__, sys._getframe

        def read(function: FunctionType) -> Any:
            if _is_harness(_globals_of(function)) and not self._may_read(function, name, caller(1)):
                return {} if name == "__globals__" else None
            return of(function)

        return property(read)

    def _may_read(self, function: FunctionType, name: str, frame: FrameType) -> bool:
        if id(frame.f_globals) in self._worker:
            return True
        asker: FrameType | None = frame
        while asker is not None and dict.get(asker.f_globals, "__name__") in _LOOKED_THROUGH:
            asker = asker.f_back
        # debugging aids and compilers look into everything
        by_itself = asker is frame and not frame.f_code.co_filename.startswith(self._libraries)
        level = "fail" if by_itself else "warn"
        self.note(level, f"reads the {name} of {function.__qualname__} of the worker, in {_place(asker or frame)}")
        return False

    # -- audit events -------------------------------------------------------------------------------------------------

    def _reach(self) -> dict[str, _Handler]:
        """What is checked at which event, with the event's arguments and the frame that caused it."""

        def asked(judge: Callable[[tuple[Any, ...], bool], tuple[str, str] | None]) -> Any:
            def on_event(args: tuple[Any, ...], frame: FrameType) -> None:
                through = False
                asker: FrameType | None = frame
                while asker is not None and dict.get(asker.f_globals, "__name__") in _LOOKED_THROUGH:
                    asker, through = asker.f_back, True
                if asker is None:
                    return
                if self._is_own_frame(asker):
                    found = judge(args, through)
                    if found is not None:
                        level, what = found
                        self.note(level, f"{what}, in {_place(asker)}")

            return on_event

        def always(level: str, what: str) -> Any:
            return asked(lambda args, through: None if through else (level, what))

        return {
            "code.__new__": always("warn", "makes code objects"),
            "ctypes.dlsym": asked(_native_name),
            "gc.get_objects": always("fail", "reads every object of the process (gc.get_objects)"),
            "gc.get_referrers": always("fail", "reads who holds an object (gc.get_referrers)"),
            "object.__getattr__": asked(_read),
            "object.__setattr__": asked(self._written),
            "open": asked(_opened),
            "os.kill": asked(_signalled),
            "os.killpg": asked(_signalled),
            "sys._current_frames": always("fail", "reads the frames of every thread (sys._current_frames)"),
            "sys._getframe": asked(_frame),
            "sys.addaudithook": always("warn", "listens to audit events"),
            "sys.setprofile": always("warn", "sets a profile function"),
            "sys.settrace": always("warn", "sets a trace function"),
        }

    def _written(self, args: tuple[Any, ...], through: bool) -> tuple[str, str] | None:
        """Code or defaults of a function that is not the candidate's."""
        function, name = args[0], args[1]
        if name not in ("__code__", "__defaults__", "__kwdefaults__") or not isinstance(function, FunctionType):
            return None
        home = dict.get(_globals_of(function), "__name__")
        if self._is_own(_globals_of(function)) or not isinstance(home, str) or home not in sys.modules:
            return None
        return "fail", f"replaced {name} of {home}.{function.__qualname__}"


def _hook(handlers: dict[str, _Handler]) -> Callable[[str, tuple[Any, ...]], None]:
    """The audit hook. Events that are not watched cost one look-up; events that the hook itself causes are ignored."""
    busy: set[int] = set()
    here, caller, find = threading.get_ident, sys._getframe, handlers.get

    def hook(event: str, args: tuple[Any, ...]) -> None:
        handler = find(event)
        if handler is None:
            return
        thread = here()
        if thread in busy:
            return
        busy.add(thread)
        try:
            handler(args, caller(1))
        except Exception:  # noqa: BLE001 - it must not change what the candidate's call does
            pass
        finally:
            busy.discard(thread)

    return hook


def _is_brought(operator: Any) -> bool:
    """Whether an operator, its handle or its name is one of PyTorch's own."""
    schema = getattr(operator, "schema", None) or getattr(operator, "_schema", "")
    text = operator if isinstance(operator, str) else str(schema() if callable(schema) else schema)
    return text.startswith(("aten::", "prim::", "prims::"))


def _owner(home: str) -> Any:
    """A module, or a class in one, by its dotted name; None: it is not loaded."""
    if home in sys.modules:
        return sys.modules[home]
    module, _, name = home.rpartition(".")
    return getattr(sys.modules.get(module), name, None)


def _held(function: Any) -> list[Any]:
    """What a wrapper calls: functions in its closure and among its attributes."""
    if not isinstance(function, FunctionType):
        return []
    cells = [cell.cell_contents for cell in function.__closure__ or () if cell != type(cell)()]
    return [one for one in (*cells, *vars(function).values()) if callable(one)]


def _place(frame: FrameType) -> str:
    """Where the candidate is; by what it cannot have replaced."""
    return f"{str.rpartition(frame.f_code.co_filename, '/')[2]}:{frame.f_lineno}"


def _is_harness(names: Any) -> bool:
    name = dict.get(names, "__name__")
    return isinstance(name, str) and name.split(".")[0] == _HARNESS


def _frame(args: tuple[Any, ...], through: bool) -> tuple[str, str] | None:
    """A frame of the worker was read; its own frames are the candidate's affair."""
    if args and isinstance(args[0], FrameType) and _is_harness(args[0].f_globals):
        return "fail", "reads a frame of the worker (sys._getframe)"
    return None


def _read(args: tuple[Any, ...], through: bool) -> tuple[str, str] | None:
    """Code of the worker, by a frame or by a function. A debugging aid that shows every frame only warns."""
    owner, name = args[0], args[1]
    level = "warn" if through else "fail"
    if name == "f_code" and isinstance(owner, FrameType) and _is_harness(owner.f_globals):
        return level, "reads frames of the worker"
    if name == "__code__" and isinstance(owner, FunctionType) and _is_harness(_globals_of(owner)):
        return level, f"reads the code of {owner.__qualname__} of the worker"
    return None


def _opened(args: tuple[Any, ...], through: bool) -> tuple[str, str] | None:
    """Files that show a process from inside: of another one, or its own."""
    path = os.fsdecode(args[0]) if isinstance(args[0], (str, bytes)) else ""
    if "proc" not in path:
        return None
    parts = os.path.normpath(os.path.abspath(path)).split("/")
    if len(parts) < 4 or parts[1] != "proc":
        return None
    inside = bool({*parts[3:]} & _INSIDES)
    if parts[2] in ("self", "thread-self", str(os.getpid())):
        flags = args[2] if len(args) > 2 and isinstance(args[2], int) else 0
        writes = bool(flags & (os.O_WRONLY | os.O_RDWR))
        return ("fail" if writes else "warn", f"opens {path}{' for writing' * writes}") if inside else None
    if not parts[2].isdigit() or not (inside or parts[3] == "cmdline"):
        return None
    return "fail" if inside else "warn", f"opens {path} of another process"


def _signalled(args: tuple[Any, ...], through: bool) -> tuple[str, str] | None:
    """Signals to others: the worker's parent and everybody fail; processes that it may have started itself warn."""
    target = args[0]
    if not isinstance(target, int) or target in (os.getpid(), os.getpgrp(), 0):
        return None
    level = "fail" if target in (-1, 1, os.getppid()) else "warn"
    return level, "sends a signal to another process" if target > 0 else "sends a signal to every process"


def _native_name(args: tuple[Any, ...], through: bool) -> tuple[str, str] | None:
    """System calls into the memory of other processes, by ctypes."""
    name = args[1] if len(args) > 1 else ""
    return ("fail", f"takes {name} from the C library") if name in _FOREIGN_MEMORY else None


def _identities() -> dict[str, tuple[Any, CodeType | None]]:
    """The guarded functions as they are now, with their code; those that are not there are left out."""
    found: dict[str, tuple[Any, CodeType | None]] = {}
    for home, names in _GUARDED.items():
        root, *path = home.split(".")
        owner = builtins if root == "builtins" else sys.modules.get(root)
        for part in path:
            owner = getattr(owner, part, None)
        for name in names.split():
            value = getattr(owner, name, None)
            if value is not None:
                found[f"{home}.{name}"] = (value, value.__code__ if isinstance(value, FunctionType) else None)
    return found


def _signal_handlers() -> dict[int, Any]:
    return {int(number): signal.getsignal(number) for number in signal.valid_signals()}
