"""Counting and muting of a candidate's own kernels where Python launches them: Triton and Numba.

The launching method of a kernel class is replaced while a watch is on and put back when the last one is off: then a
launch costs exactly what it costs without KernelEval, which the timed windows need. A method that gives launchers stays
replaced, because a candidate may keep what it gives for calls that are watched later. What is counted is evidence
and no more, since it is gathered in the candidate's own process.
"""

from __future__ import annotations

import collections
import functools
import os
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ABSENT = object()
_MOST_BINARIES = 1024


@dataclass(frozen=True)
class Patch:
    """One method through which kernels of a class are launched."""

    owner: type
    method: str
    """Name of the method; inherited ones are put back by removing the replacement."""
    describe: Callable[[Any], tuple[str, str]]
    """kernel object -> (name, source file)."""
    returns_launcher: bool = False
    """Whether the method gives the launcher, like ``__getitem__``, instead of launching."""
    is_launch: Callable[[Mapping[str, Any]], bool] = lambda keywords: True
    """Whether a call with these keywords launches at all."""


class LaunchWatch:
    """Counts launches of kernels whose source belongs to one candidate."""

    def __init__(self, patches: Sequence[Patch], source_dir: Path) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.sizes: collections.Counter[str] = collections.Counter()
        """Bytes of the tensors and arrays that each kernel was given, and its launches."""
        self.binaries: set[str] = set()
        """Hashes of the binaries that Triton launched."""
        self.muted = False
        self.look: Callable[[Sequence[Any], bool], None] | None = None
        """Called with the arguments of each launch before it, and with what it gave after it (True)."""
        self._patches = tuple(patches)
        self._source_dir = source_dir
        library_folders()  # cached before the candidate could change the answer
        # By id, with the object kept alive so that no id is used again; launches must stay cheap.
        self._names: dict[int, tuple[Any, str | None]] = {}

    @property
    def own(self) -> list[Any]:
        """The candidate's own kernels that were launched."""
        return [kernel for kernel, name in self._names.values() if name is not None]

    def switch(self, on: bool) -> None:
        """Starts or stops counting; doing either twice changes nothing."""
        for patch in self._patches:
            if on:
                _watch(patch, self)
            else:
                _unwatch(patch, self)

    def show(self, kernel: Any, describe: Callable[[Any], tuple[str, str]], values: Sequence[Any], after: bool) -> None:
        """Show the arguments of an own kernel to who wants to look at them."""
        if self.look is not None and self._own_name(kernel, describe) is not None:
            self.look(values, after)

    def note(
        self, kernel: Any, describe: Callable[[Any], tuple[str, str]], values: Sequence[Any], binary: Any = None
    ) -> None:
        """Counts a launch of the kernel with these arguments if it is the candidate's own; ``binary`` is what was
        launched, where that is an object of its own.
        """
        name = self._own_name(kernel, describe)
        if name is not None:
            self.counts[name] += 1
            self.sizes[name] += 1 + sum(map(_nbytes, values))
            found = getattr(binary, "hash", None)
            if type(found) is str and len(self.binaries) < _MOST_BINARIES:
                self.binaries.add(found)

    def skips(self, kernel: Any, describe: Callable[[Any], tuple[str, str]]) -> bool:
        """Whether a launch of the kernel is to be skipped."""
        return self.muted and self._own_name(kernel, describe) is not None

    def _own_name(self, kernel: Any, describe: Callable[[Any], tuple[str, str]]) -> str | None:
        known = self._names.get(id(kernel))
        if known is None:
            name, file = describe(kernel)
            known = (kernel, name if is_own_source(file, self._source_dir) else None)
            self._names[id(kernel)] = known
        return known[1]


def _nbytes(value: Any) -> int:
    try:
        size = value.nbytes
    except Exception:  # noqa: BLE001 - no tensor and no array, or one that cannot tell
        return 0
    return size if type(size) is int else 0


_active: dict[tuple[type, str], Any] = {}
"""What stood in the class before, by what is replaced now."""

_watches: dict[tuple[type, str], list[LaunchWatch]] = {}
"""Watches that are on. The lists stay: methods and launchers that a candidate kept from an earlier watch hold them."""


def _watch(patch: Patch, watch: LaunchWatch) -> None:
    key = (patch.owner, patch.method)
    watches = _watches.setdefault(key, [])
    if key not in _active:
        _active[key] = patch.owner.__dict__.get(patch.method, _ABSENT)
        setattr(patch.owner, patch.method, _replacement(patch, getattr(patch.owner, patch.method), watches))
    if watch not in watches:
        watches.append(watch)


def _unwatch(patch: Patch, watch: LaunchWatch) -> None:
    key = (patch.owner, patch.method)
    watches = _watches.get(key, [])
    if watch not in watches:
        return
    watches.remove(watch)
    if watches or patch.returns_launcher:
        return
    own = _active.pop(key)
    if own is _ABSENT:
        delattr(patch.owner, patch.method)
    else:
        setattr(patch.owner, patch.method, own)


def _replacement(patch: Patch, original: Callable[..., Any], watches: list[LaunchWatch]) -> Callable[..., Any]:
    describe, is_launch = patch.describe, patch.is_launch

    def watched(kernel: Any, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for watch in watches:
            watch.show(kernel, describe, (args, kwargs), False)
        # counted afterwards: a launch that raises computes nothing, and what the candidate does then is another's work
        skipped = any(watch.skips(kernel, describe) for watch in watches)
        made = None if skipped else run(*args, **kwargs)
        # Triton's run gives the compiled kernel; where a launcher is watched, the kernel is the compiled one
        binary = kernel if patch.returns_launcher and not skipped else made
        for watch in watches:
            watch.note(kernel, describe, (*args, *kwargs.values()), binary)
            watch.show(kernel, describe, (args, kwargs, made), True)
        return made

    def launch(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_launch(kwargs):
            return original(self, *args, **kwargs)
        return watched(self, functools.partial(original, self), args, kwargs)

    def give_launcher(self: Any, *args: Any, **kwargs: Any) -> Callable[..., Any]:
        launcher = original(self, *args, **kwargs)
        return lambda *a, **k: watched(self, launcher, a, k)

    return give_launcher if patch.returns_launcher else launch


@functools.cache
def library_folders() -> tuple[str, ...]:
    """Folders of the standard library and of installed packages, resolved, with a separator at the end."""
    import torch

    paths = sysconfig.get_paths()
    folders = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders.add(str(Path(torch.__file__).parent.parent))
    # Absolute in a worker, whose host made them so.
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    folders |= {p for p in named if p.startswith(os.sep)}
    return tuple(os.path.realpath(f) + os.sep for f in folders)


def is_own_source(file: str, source_dir: Path) -> bool:
    """Whether a kernel from that source file is the candidate's own: its files, or code that it made at run time.

    Kernels that come with packages, installed ones or ones that ``PYTHONPATH`` names, are not.
    """
    real = os.path.realpath(file)
    if real.startswith(os.path.realpath(source_dir) + os.sep):
        return True
    return not real.startswith(library_folders())
