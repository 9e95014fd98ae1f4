"""Looks from a thread of its own, while the judge waits, whether code is being compiled, tuned or imported, or an
interpreted kernel goes on, and says so.

It is a claim as all that a worker says: it buys time, and of that the judge gives so much and no more. The thread needs
the interpreter's lock. Compilers in native code let it go; kernels that keep it look like what they do: they run.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from types import CodeType, FrameType
from typing import Any

from kerneleval.languages.common.watch import library_folders
from kerneleval.worker.wire import WireError

__all__ = ["CompileWatch"]

_EVERY_S = 0.5
"""Seconds between two looks, and before the first half as many. A window that takes less is not looked at."""

_DEEPEST = 1000
"""Frames of a thread that are looked at."""

_COMPILERS = (
    "llvmlite.",
    "numba.",
    "torch._dynamo.backends.common.",
    "torch._dynamo.convert_frame.",
    "torch._inductor.async_compile.",
    "torch.cuda._utils._nvrtc_compile",
    "torch.mps.compile_shader",
    "torch.utils.cpp_extension.",
    "triton.compiler.compiler.compile",
    "triton.runtime.build.",
)
"""Beginnings of the names, after their module's, of functions that are called where code is compiled and nowhere else.
"""

_TRACED = ("torch._dynamo.", "torch._functorch.", "torch._inductor.", "torch.fx.")
"""Parts of PyTorch that compile, beside other things."""

_RUNNING = ("numpy.", "torch.", "triton.backends.", "triton.compiler.", "triton.language.", "triton.runtime.")
"""Modules of which a function that is called says nothing: who called it decides."""

_INTERPRETER = "triton.runtime.interpreter."
"""Where Triton's kernels are launched on the CPU."""

_TIMING = ("triton.testing.",)
"""Modules that time kernels in order to choose one: they may wait for one that never ends."""


_AGAIN = 10
"""Looks at which a library counts that was called anew by the same line of a call: a loop calls it again and again."""

_ENDED = (sys.maxsize,)
"""As far as a launch comes that has begun anew."""


class _Doing(IntEnum):
    """What a thread does, by the functions that it is in."""

    RUNNING = 0
    """The candidate's own code, the worker's, or what these call of PyTorch."""
    TIMING = 1
    LIBRARY = 2
    """Code of another library, which may compile, or be imported."""
    COMPILING = 3


class CompileWatch:
    """One worker's. ``tell`` is called in the watching thread at every look at which something of the kind goes on."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell
        self._frames: Callable[[], Mapping[int, FrameType]] = sys._current_frames
        self._folders = library_folders()
        self._places: dict[int, int] = {}
        self._called: dict[int, FrameType] = {}
        self._callers: set[tuple[CodeType, int]] = set()
        self._again = 0
        self._furthest: dict[tuple[Any, ...], tuple[int, ...]] = {}
        self._first: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    @contextlib.contextmanager
    def over(self, wanted: bool) -> Iterator[None]:
        """Look as long as the block lasts, if wanted."""
        self._furthest, self._first, self._callers, self._again = {}, {}, set(), 0
        done = threading.Event()
        thread = threading.Thread(target=self._run, args=(done, threading.get_ident()), daemon=True)
        try:
            if wanted:
                with contextlib.suppress(RuntimeError):  # the candidate has all the threads that it may have
                    thread.start()
            yield
        finally:
            done.set()
            if thread.ident is not None:
                thread.join()
            self._called = {}

    def _run(self, done: threading.Event, caller: int) -> None:
        with contextlib.suppress(WireError):  # the judge is gone
            pause_s = _EVERY_S / 2
            while not done.wait(pause_s):
                pause_s = _EVERY_S
                frames = {thread: frame for thread, frame in self._frames().items() if thread != threading.get_ident()}
                if self.sees(frames, caller):
                    self._tell()

    def sees(self, frames: Mapping[int, FrameType], caller: int) -> bool:
        """Whether one of these threads compiles, or ``caller`` is in a library, or another has gone on in one since the
        last look; or an interpreted kernel has gone on.
        """
        found, places = self._interprets(frames, caller), dict[int, int]()
        for thread, frame in frames.items():
            doing, place = self._look(frame)
            if doing == _Doing.LIBRARY and self._loops(thread, frame):
                continue
            found |= doing == _Doing.COMPILING or (doing == _Doing.LIBRARY and thread == caller)
            found |= doing > _Doing.RUNNING and self._places.get(thread) != place
            places[thread] = place
        self._places = places
        return found

    def _look(self, innermost: FrameType) -> tuple[_Doing, int]:
        """What a thread does, and where it is, as a number."""
        place, doing, frame = 0, None, innermost  # type: int, _Doing | None, FrameType | None
        for _ in range(_DEEPEST):
            if frame is None:
                break
            name = f"{dict.get(frame.f_globals, '__name__')}.{frame.f_code.co_name}"
            if name.startswith(_COMPILERS):
                return _Doing.COMPILING, 0
            if name.startswith(_INTERPRETER) and doing == _Doing.LIBRARY:
                doing = _Doing.RUNNING  # what it calls of its library
            if doing is None and (name.startswith(_TRACED) or not _says_nothing(name)):
                doing = self._of(name, frame.f_code.co_filename)
            place = hash((place, frame.f_code, frame.f_lasti))
            frame = frame.f_back
        return doing or _Doing.RUNNING, place

    def _loops(self, thread: int, innermost: FrameType) -> bool:
        """Whether the library that a thread is in was called again and again by the same line."""
        outermost, frame = None, innermost  # type: FrameType | None, FrameType | None
        for _ in range(_DEEPEST):
            if frame is None:
                break
            name = f"{dict.get(frame.f_globals, '__name__')}.{frame.f_code.co_name}"
            if name.startswith("kerneleval."):
                break  # what called the worker
            if not _says_nothing(name) and self._of(name, frame.f_code.co_filename) == _Doing.LIBRARY:
                outermost = frame
            frame = frame.f_back
        if outermost is None or outermost.f_back is None or self._called.get(thread) is outermost:
            return False
        self._called[thread] = outermost  # held, so that no other frame has its place
        by = outermost.f_back.f_code, outermost.f_back.f_lasti
        self._again += by in self._callers
        self._callers.add(by)
        return self._again > _AGAIN

    def _of(self, name: str, file: str) -> _Doing:
        if name.startswith("kerneleval.") or not file.startswith(self._folders):
            return _Doing.RUNNING
        return _Doing.TIMING if name.startswith(_TIMING) else _Doing.LIBRARY

    def _interprets(self, frames: Mapping[int, FrameType], caller: int) -> bool:
        """Whether Triton's interpreter has come further in the grid of a kernel. Further launches of the same code in
        the same call do not count, whatever their arguments: launching it again and again is no progress.
        """
        module = sys.modules.get(_INTERPRETER[:-1])
        program = getattr(getattr(module, "interpreter_builder", None), "grid_idx", None)
        if not isinstance(program, tuple):
            return False
        call = _local(frames.get(caller), "kerneleval.worker.calls._outputs", "call")
        for frame in frames.values():
            launch = _frame(frame, f"{_INTERPRETER}__call__")
            if launch is not None:
                known = launch.f_locals
                given = (*known.get("args_dev", ()), *known.get("kwargs", {}).values())
                function = getattr(known.get("self"), "fn", None)
                kernel = (id(call), getattr(function, "__code__", function))
                key = (*kernel, *map(_told, given))
                furthest = self._furthest.setdefault(key, (-1,))
                self._furthest[key] = program if program >= furthest else _ENDED
                if program > furthest:
                    return self._first.setdefault(kernel, key) == key
        return False


def _frame(frame: FrameType | None, name: str) -> FrameType | None:
    """The innermost frame of this name, after its module's, among those that led to one."""
    for _ in range(_DEEPEST):
        if frame is None or f"{dict.get(frame.f_globals, '__name__')}.{frame.f_code.co_name}" == name:
            return frame
        frame = frame.f_back
    return None


def _local(frame: FrameType | None, name: str, variable: str) -> Any:
    found = _frame(frame, name)
    return None if found is None else found.f_locals.get(variable)


def _told(value: Any) -> object:
    """What tells an argument of a kernel from another one."""
    if isinstance(value, (bool, int, float, str)):
        return value
    with contextlib.suppress(Exception):  # whatever a candidate gives in its place
        return int(value.data_ptr())
    return type(value)


def _says_nothing(name: str) -> bool:
    return name.startswith(_RUNNING) or name.partition(".")[0] in sys.stdlib_module_names
