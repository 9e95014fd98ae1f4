"""What every language gives: a build that never runs candidate code, and a load that does.

A language is one module of ``languages/`` with a subclass of :class:`Language` under ``@register``. Loading happens in
the worker, the untrusted side: nothing that :class:`Loaded` says about itself (launch counts, for one) is more than
evidence.
"""

from __future__ import annotations

import contextlib
import functools
import re
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any

from kerneleval.records import DTYPES, Candidate, Form, KernelEvalError, UsageError
from kerneleval.records.registry import Registry

if TYPE_CHECKING:
    import torch


LOG_LIMIT_BYTES = 8192
"""Longest compiler log or load message that is kept; the first errors are the useful ones."""


class BuildError(KernelEvalError):
    """The candidate does not compile; :attr:`log` holds the first 8 KiB of what the compiler said."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(f"{message}\n{log}".rstrip() if log else message)
        self.message = message
        self.log = log


class LoadError(KernelEvalError):
    """The candidate does not load; :attr:`file` and :attr:`line` point into its own source where that is known."""

    def __init__(self, message: str, *, file: str = "", line: int = 0) -> None:
        where = f"{file}:{line}: " if file and line else (f"{file}: " if file else "")
        super().__init__((where + message)[:LOG_LIMIT_BYTES])
        self.file = file
        self.line = line


# -- Records -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class OutputSpec:
    """One output that a native candidate is to fill: allocated by the loader, uninitialised."""

    shape: tuple[int, ...]
    """Sizes, outermost first."""
    dtype: str
    """A key of :data:`kerneleval.records.DTYPES`."""

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise UsageError(f"output dtype {self.dtype!r} is unknown; known are {', '.join(DTYPES)}")


Backward = Callable[[Sequence[Any], Sequence[Any], Sequence[OutputSpec], Mapping[str, int]], "tuple[Any, ...]"]
"""(upstream gradients, arguments, specs of the gradients, dims) -> gradients of the differentiable arguments."""


class Loaded(ABC):
    """A candidate that is ready to be called, on one device, in this process."""

    autograd: bool = False
    """Whether autograd gives gradients through :meth:`forward` when :attr:`backward` is None."""
    backward: Backward | None = None
    """The explicit backward entry point, if the candidate has one."""
    module: torch.nn.Module | None = None
    """What :meth:`make_module` built."""
    form: Form | None = None
    """How the module takes the values of a call, which come one by one (``records/nested.py``); None: as they come."""

    @abstractmethod
    def forward(self, args: Sequence[Any], outputs: Sequence[OutputSpec], dims: Mapping[str, int]) -> Any:
        """Calls the candidate once with the task's arguments in their order: tensors on the device, or plain values.
        Gives one tensor, or a tuple of tensors; of Python candidates whatever the entry point returned, unchecked.

        ``outputs``: shape and dtype of each output, in order, for native candidates alone; ``dims``: the task's dims,
        in its order. Raises NotImplementedError: the candidate declares that it does not support this call;
        RuntimeError: native code returned an error code; and whatever else candidate code raises.
        """

    def make_module(
        self, init_args: Sequence[Any], seed: int | None = None, keywords: Mapping[str, Any] | None = None
    ) -> torch.nn.Module:
        """Builds the candidate's module class from ``init_args`` and ``keywords`` on the device, under
        ``torch.manual_seed(seed)``.

        Without a seed, torch's generator is used as it stands. The module stays in the mode in which its constructor
        left it (train, as KernelBench does). Afterwards :meth:`forward` calls it and :attr:`module` gives it, so that
        weights can be copied into its ``state_dict()``. Raises LoadError: there is no such class, or its constructor
        failed.
        """
        raise LoadError("this candidate has no module class: module problems need a Python file with class ModelNew")

    def call_module(self, module: torch.nn.Module) -> None:
        """Makes :meth:`forward` call, and :attr:`module` give, another module that :meth:`make_module` built."""
        raise LoadError("this candidate has no module class, so there is no module to call")

    def launches(self) -> dict[str, int]:
        """How often each of the candidate's own kernels was launched since loading; empty: not known."""
        return {}

    def sizes(self) -> dict[str, int]:
        """Bytes of the tensors and arrays that each was given since loading, and its launches; empty: not known."""
        return {}

    def linked(self) -> dict[str, int]:
        """Functions of other libraries that its kernels call, ``library.name`` -> 1; empty: none, or not known."""
        return {}

    def binaries(self) -> list[str]:
        """Hashes, as the compiler has them, of the binaries that were launched while watched; empty: not known."""
        return []

    def watch(self, on: bool) -> None:  # noqa: B027 - languages that cannot count have nothing to switch
        """Switches the counting of :meth:`launches`, on after loading; off, a launch costs nothing extra."""

    def mute(self, on: bool) -> None:  # noqa: B027 - languages that cannot count cannot mute either
        """Makes own kernels no-ops while :meth:`watch` is on: a candidate whose outputs stay right uses a decoy."""

    def look(self, at: Callable[[Sequence[Any], bool], None] | None) -> None:  # noqa: B027 - as above
        """Has this called with the arguments of each launch before it and after it (True); None: no more."""


class Language(ABC):
    """How source in one language becomes a callable. Instances hold no state."""

    name: str
    """Name under which candidates refer to it; equals the module's name."""
    suffixes: tuple[str, ...]
    """File suffixes, with the dot."""
    devices: tuple[str, ...]
    """Device kinds on which it can run."""
    baseline_devices: tuple[str, ...] = ()
    """Further device kinds, where it is what users run on the host instead: baselines in it do, candidates do not."""
    needs_build: bool = False
    """Whether :meth:`build` does anything."""
    longest_build_s: float = 120.0
    """Seconds after which its compiler is ended. Templates for GPUs (CUTLASS's) take minutes."""
    compiles_by_length: bool = False
    """Whether kernels on a GPU are usually compiled anew for longer rows: as one block that holds a whole row."""

    @property
    def can_mute(self) -> bool:
        """Whether launches of the candidate's own kernels can be left out (:meth:`Loaded.mute`), so that what comes out
        all the same is seen. Compiled code that launches by itself is one launch: without it there is nothing.
        """
        return not self.needs_build

    def claim(self, text: str) -> int:
        """How sure it is that a file with one of its suffixes is its own; the highest wins, 0 is not at all."""
        return 10

    def build(self, candidate: Candidate, out_dir: Path, device: str, arch: str) -> None:  # noqa: B027
        """Compiles into ``out_dir`` (made if missing); runs compilers only, never candidate code.

        ``out_dir`` is private to this candidate, device and :meth:`toolchain`; the caller caches it by content. Only
        regular files, the build outputs, are left there. ``device`` is a device kind, or a torch device such as
        ``cuda:0``; ``arch`` is its architecture (``sm_90``), unused by languages that compile for the host. Raises
        BuildError: the source does not compile, or a flag is not allowed; UsageError: the language does not run on the
        device; InfrastructureError: there is no compiler.
        """

    def foreign(self, candidate: Candidate, build_dir: Path) -> tuple[str, ...]:
        """Names in what :meth:`build` left by which it could have others compute: functions of libraries that happen to
        be loaded, and of the loader. Empty: none, or not known. Runs nothing of the candidate.
        """
        return ()

    @abstractmethod
    def load(self, candidate: Candidate, build_dir: Path, device: str, names: Sequence[str] = ()) -> Loaded:
        """Loads the candidate, **running its code**, and finds its entry points.

        ``build_dir`` is where :meth:`build` wrote; it must be writable for Python languages, which put their sources
        there. ``names``: what the forward entry point may be called besides the conventions (the task's name). Raises
        LoadError: importing or linking failed, or no entry point was found; UsageError: the language does not run on
        the device; InfrastructureError: something that the language needs is not installed.
        """

    def preload(self, device: str, arch: str) -> None:  # noqa: B027 - most have nothing to do ahead
        """Does once, in the process from which workers are forked, what every worker would do for itself.

        Makes no device context, starts no thread, runs nothing of a candidate. Raises Exception: it cannot be done
        here; a candidate will meet the reason and report it.
        """

    preload_when_met = False
    """Whether :meth:`preload` waits for the first candidate in the language, because most runs have none."""

    def unsupported_dtypes(self, device: str) -> tuple[str, ...]:
        """Dtypes whose results would not be the candidate's fault on that device; they are not to be judged there."""
        return ()

    def missing(self, device: str) -> str:
        """What must be installed before candidates can be built and run on that device; empty: nothing."""
        return ""

    def missing_for(self, candidate: Candidate, device: str) -> str:
        """What must be installed before this candidate can be built and run on that device; empty: nothing."""
        return self.missing(device)

    @property
    def known(self) -> tuple[str, ...]:
        """File names of the known kernels (:func:`known_kernel`), one for each set of tools that candidates need.

        Empty: there is none, and the tools of the language are not self-checked.
        """
        names = (f"softmax{self.suffixes[0]}", f"softmax_device{self.suffixes[0]}")
        return tuple(name for name in names if (_KNOWN / name).is_file())

    def known_for(self, candidate: Candidate) -> str:
        """The one of :attr:`known` that is built and run by the tools that this candidate needs; empty: none is."""
        return next(iter(self.known), "")

    def toolchain(self, device: str, arch: str) -> str:
        """Text that names the language, then compiler, version, flags and target, a line each; belongs into the name
        of the build directory, and of a self-check's result.
        """
        return self.name

    def check_device(self, device: str) -> None:
        """Raises UsageError when neither candidates nor baselines in the language run on the device."""
        kind = device.partition(":")[0]
        if kind not in (*self.devices, *self.baseline_devices):
            raise UsageError(
                f"{self.name} candidates do not run on device {device!r}: they run on {', '.join(self.devices)}"
            )


# -- Shared helpers ----------------------------------------------------------------------------------------------------

_KNOWN = Path(__file__).with_name("known")
"""Folder of the known kernels of self-checks."""

_TORCH_DEVICE = {"rocm": "cuda", "metal": "mps", "opencl": "cpu"}


def torch_device(device: str) -> str:
    """The torch device of a device kind: ``rocm`` is ``cuda``, ``metal`` is ``mps``, ``opencl`` (for which PyTorch has
    no backend) is ``cpu``; an index is kept.
    """
    kind, colon, index = device.partition(":")
    return _TORCH_DEVICE.get(kind, kind) + colon + index


def known_kernel(name: str) -> str:
    """Source of a known kernel: ``softmax`` over the rows of a matrix in fp32, without subtracting the largest."""
    return (_KNOWN / name).read_text()


_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@contextlib.contextmanager
def source_folder(candidate: Candidate, out_dir: Path) -> Iterator[Path]:
    """A folder in ``out_dir`` with the candidate's files, for as long as they are compiled.

    Only build outputs stay in ``out_dir``.
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="source-", dir=out_dir))
    try:
        write_files(candidate, folder)
        yield folder
    finally:
        shutil.rmtree(folder)


def write_files(candidate: Candidate, directory: Path) -> Path:
    """Writes the candidate's files under ``directory`` and gives the path of the main one. Raises UsageError: a path is
    absolute, climbs out of the directory, stands twice, or has a part that a compiler could take for an option or a
    response file.
    """
    seen: set[str] = set()
    for path, text in candidate.files:
        pure = PurePosixPath(path)
        if not pure.parts or not all(_PART.fullmatch(part) for part in pure.parts):
            raise UsageError(
                f"candidate file {path!r:.200}: the path must be relative, stay below its directory, and each part "
                "must begin with a letter, digit or underscore and hold only those, dots and hyphens"
            )
        if str(pure) in seen:
            raise UsageError(f"candidate file {path!r} is given twice")
        seen.add(str(pure))
        target = directory / pure
        data = text.encode()
        if target.is_file() and target.read_bytes() == data:
            continue  # a build directory that is reused may be read-only by now
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return directory / PurePosixPath(candidate.files[0][0])


@functools.cache
def cpu_identity() -> str:
    """Processor model and instruction sets of this host: what ``-march=native`` means here."""
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        import platform

        return f"{platform.machine()} {platform.processor()}"
    keys = ("model name", "flags", "Features", "CPU part")
    lines = [line for line in text.split("\n\n", 1)[0].splitlines() if line.partition(":")[0].strip() in keys]
    return "\n".join(lines)


LANGUAGES: Registry[Language] = Registry(
    "language",
    "kerneleval.languages",
    problem=lambda plugin: "" if isinstance(plugin, Language) else "it must be a subclass of Language",
    module_is_name=True,
)
register, find, all_languages = LANGUAGES.register, LANGUAGES.find, LANGUAGES.all


def detect(path: str, text: str) -> str:
    """The name of the language of a file, from its suffix and, where several share one, from its text. Raises
    UsageError: no language has that suffix.
    """
    suffix = PurePath(path).suffix.lower()
    claims = {name: lang.claim(text) for name, lang in all_languages().items() if suffix in lang.suffixes}
    if not claims:
        known = sorted({s for lang in all_languages().values() for s in lang.suffixes})
        shown = f"suffix {suffix!r}" if suffix else "no suffix"
        raise UsageError(f"{path}: {shown} belongs to no language; known suffixes are {', '.join(known)}")
    return max(claims, key=lambda name: claims[name])
