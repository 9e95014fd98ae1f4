"""Running compilers on untrusted source: found on the machine, flags from an allowlist, time and log bounded.

Compiling is not running, but a compiler reads files, starts programs and writes where its flags say. So candidates may
only add flags that match a whole pattern here; whatever names a file, a program or a plugin is refused. The sandbox
around the build is the real wall; this keeps builds reproducible and the message clear.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

from kerneleval.languages.common.base import LOG_LIMIT_BYTES, BuildError
from kerneleval.languages.common.source import read_header
from kerneleval.records import Candidate, InfrastructureError, UsageError

_GCC_F = (
    r"(no-)?(fast-math|math-errno|associative-math|reciprocal-math|finite-math-only|signed-zeros|trapping-math|"
    r"rounding-math|unsafe-math-optimizations|cx-limited-range|strict-aliasing|strict-overflow|wrapv|omit-frame-pointer|"
    r"exceptions|rtti|openmp|openmp-simd|lto|gcse|gcse-sm|gcse-las|permissive|stack-protector|plt|semantic-interposition|"
    r"unroll-(all-)?loops|peel-loops|split-loops|unswitch-loops|prefetch-loop-arrays|modulo-sched|"
    r"tree-[a-z-]*vectorize|tree-vectorize|tree-loop-[a-z-]+|loop-[a-z-]+|inline(-[a-z-]+)?|ipa-[a-z-]+|"
    r"schedule-insns2?|rename-registers|branch-count-reg|align-(functions|loops|jumps|labels)|char8_t|"
    r"delete-null-pointer-checks|merge-all-constants|gnu-unique|graphite-identity)"
)
_GCC_VALUE = (
    r"(fp-contract=(fast|on|off)|excess-precision=(fast|standard)|vect-cost-model=(unlimited|dynamic|cheap|very-cheap)|"
    r"simd-cost-model=(unlimited|dynamic|cheap|very-cheap)|inline-limit=\d+|align-(functions|loops|jumps|labels)=\d+|"
    r"constexpr-(depth|loop-limit|ops-limit)=\d+|template-depth=\d+|tree-parallelize-loops=\d+)"
)

_DEFINE = r"-D[A-Za-z_][A-Za-z0-9_]*(=[A-Za-z0-9_.+-]*)?"
_NVRTC = (
    _DEFINE,
    r"-std=c\+\+[0-9a-z]{2}",
    r"--?use_fast_math",
    r"--?(fmad|ftz|prec-div|prec-sqrt)=(true|false)",
    r"--?maxrregcount=\d{1,3}",
    r"--?extra-device-vectorization",
)

_ERROR = re.compile(r"^([^\s:]+):\d+:\d+: (?:fatal )?(error: .*)$", re.MULTILINE)
_MESSAGE = re.compile(r"^\S+:\d+:\d+: (?:warning|note|error): ", re.MULTILINE)
"""Where a message of a compiler begins. Lines that end in "required from here" stand before their message."""
_OWN_LINE = re.compile(r"^([^/\s:][^\s:]*:\d+):\d+:(?:\s+required from here| note: in instantiation of)", re.MULTILINE)
"""The line of the candidate for which a compiler read a template of others."""

ALLOWED_FLAGS: dict[str, tuple[str, ...]] = {
    "g++": (
        r"-O([0-3sgz]|fast)?",
        r"-f" + _GCC_F,
        r"-f" + _GCC_VALUE,
        # -mllvm would hand its argument to a plugin loader where the compiler is clang.
        r"-m(?!llvm)[a-z0-9][a-z0-9._-]*(=[A-Za-z0-9_.+-]+)?",
        _DEFINE,
        r"-std=(c|gnu)\+\+[0-9a-z]{2}",
        r"-l(m|gomp|pthread)",
    ),
    "nvrtc": _NVRTC,
    "nvcc": (*_NVRTC, r"-O[0-3]", r"--?(expt-relaxed-constexpr|expt-extended-lambda|extended-lambda)"),
    "hipcc": (
        r"-O([0-3]|fast)",
        _DEFINE,
        r"-std=(c|gnu)\+\+[0-9a-z]{2}",
        r"-f(no-)?(fast-math|unroll-loops|math-errno|associative-math|reciprocal-math|finite-math-only|signed-zeros)",
        r"-ffp-contract=(fast|on|off|fast-honor-pragmas)",
        r"-m(no-)?(unsafe-fp-atomics|wavefrontsize64|cumode)",
    ),
    "opencl": (
        _DEFINE,
        r"-cl-std=CL[0-9]\.[0-9]",
        r"-cl-(single-precision-constant|denorms-are-zero|fp32-correctly-rounded-divide-sqrt|opt-disable|mad-enable|"
        r"no-signed-zeros|unsafe-math-optimizations|finite-math-only|fast-relaxed-math)",
    ),
}
"""Per compiler, the patterns of which one must match a flag as a whole."""

_NVRTC_KINDS = (
    "-D*, -std=*, -use_fast_math, -fmad=, -ftz=, -prec-div=, -prec-sqrt=, -maxrregcount=, -extra-device-vectorization"
)
_FLAG_KINDS = {
    "g++": "-O*, -f* (optimisation, arithmetic and language), -m*, -D*, -std=*, -lm, -lgomp, -lpthread",
    "nvcc": f"-O*, {_NVRTC_KINDS}, -expt-relaxed-constexpr, -expt-extended-lambda",
    "hipcc": "-O*, -D*, -std=*, -ffast-math and its parts, -funroll-loops, -ffp-contract=, -munsafe-fp-atomics, "
    "-mwavefrontsize64, -mcumode",
    "nvrtc": _NVRTC_KINDS,
    "opencl": "-D*, -cl-std=*, -cl-* (arithmetic and optimisation, as OpenCL 1.2 has them)",
}


def candidate_flags(candidate: Candidate, compiler: str) -> list[str]:
    """The flags that the main file's ``kerneleval-flags`` headers add, each checked against :data:`ALLOWED_FLAGS`.
    Raises BuildError: a flag is not allowed, or a header is misspelt.
    """
    try:
        lines = read_header(candidate.main, "flags")
    except UsageError as error:
        raise BuildError(f"{candidate.files[0][0]}: {error}") from error
    flags = []
    for line in lines:
        for flag in line.value.split():
            if not any(re.fullmatch(pattern, flag) for pattern in ALLOWED_FLAGS[compiler]):
                raise BuildError(
                    f"{candidate.files[0][0]}:{line.line}: flag {flag!r} is not allowed for {compiler}; "
                    f"allowed are {_FLAG_KINDS[compiler]}"
                )
            flags.append(flag)
    return flags


def find_tool(names: Sequence[str], folders: Iterable[str | os.PathLike[str]] = ()) -> str | None:
    """Absolute path of the first of ``names`` on PATH, else in one of ``folders``; None: there is none."""
    for name in names:
        found = shutil.which(name)
        if found:
            return str(Path(found).absolute())
    for folder in folders:
        for name in names:
            found = shutil.which(name, path=os.fspath(folder))
            if found:
                return str(Path(found).absolute())
    return None


@functools.cache
def tool_version(path: str) -> str:
    """The version line of a compiler, for :meth:`Language.toolchain`. Raises InfrastructureError: it cannot be run."""
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=30, check=True, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise InfrastructureError(f"{path} --version failed: {error}") from error
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    return next((line for line in lines if re.search(r"\d+\.\d+", line)), path)


def run_compiler(
    command: Sequence[str],
    cwd: Path,
    timeout_s: float,
    further: Mapping[str, str] | None = None,
    cpu_s: int | None = None,
) -> str:
    """Runs one compiler to its end, without a shell, in a session of its own that is killed as a whole when time is up.
    Returns the first 8 KiB of its output (warnings).

    The environment holds only PATH, LANG and TMPDIR (``cwd``), so that nothing of the caller's leaks in, and
    ``further`` variables that this compiler needs. Each of its programs may compute for ``cpu_s`` seconds. Raises
    BuildError: exit status other than 0, or out of time, with the first 8 KiB of its output; InfrastructureError: the
    program cannot be started.
    """
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", "TMPDIR": str(cwd)} | dict(
        further or {}
    )
    started = time.monotonic()
    try:
        process = subprocess.Popen(
            list(command),
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise InfrastructureError(f"{command[0]} cannot be started: {error}") from error
    if cpu_s is not None and hasattr(resource, "prlimit"):
        with contextlib.suppress(OSError):  # it has ended
            resource.prlimit(process.pid, resource.RLIMIT_CPU, (cpu_s, cpu_s + 5))
    assert process.stdout is not None
    head = bytearray()
    reader = threading.Thread(target=_read_head, args=(process.stdout, head), daemon=True)
    reader.start()
    try:
        status = process.wait(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _kill_group(process)
        reader.join(timeout=5)
        name = Path(command[0]).name
        said = head.decode(errors="replace")
        raise BuildError(f"{name} did not end within {timeout_s:g} s and was killed", said) from None
    except BaseException:  # interrupted from outside: leave no compiler behind
        _kill_group(process)
        raise
    reader.join(timeout=5)
    log = head.decode(errors="replace")
    if status != 0:
        seconds = time.monotonic() - started
        failed = f"{Path(command[0]).name} failed ({_how(status)}, after {seconds:.1f} s)"
        raise BuildError(failed + _beyond(status, log, seconds, cpu_s), _own_line_first(log))
    return log


def _how(status: int) -> str:
    return f"exit status {status}" if status > 0 else f"signal {signal.Signals(-status).name}"


def _beyond(status: int, log: str, seconds: float, cpu_s: int | None) -> str:
    """Beyond which limit a compiler that ran for so long went, to be told; empty: none. Programs that it starts end by
    the signal, too.
    """
    if status == -signal.SIGXFSZ or str(signal.strsignal(signal.SIGXFSZ)) in log:
        limit_bytes = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        return f": it writes a file of more than {limit_bytes >> 20} MiB, which is the limit"
    if cpu_s and seconds >= cpu_s and (status == -signal.SIGXCPU or str(signal.strsignal(signal.SIGXCPU)) in log):
        return f": it computed for more than {cpu_s} s, which is the limit"
    return ""


def _own_line_first(log: str) -> str:
    """What a compiler said, with the candidate's line before an error that is in a header of others."""
    error = _ERROR.search(log)
    before = [*_MESSAGE.finditer(log, 0, error.start())] if error else []
    own = _OWN_LINE.search(log, before[-1].end() if before else 0)
    return f"{own[1]}: {error[2]}\n{log}" if error and own and error[1].startswith("/") else log


def compile_into(
    out: Path,
    command: Sequence[str],
    inputs: Sequence[str],
    cwd: Path,
    timeout_s: float,
    further: Mapping[str, str] | None = None,
    cpu_s: int | None = None,
) -> None:
    """Runs a compiler that makes one file, ``out``, which is there as a whole or not at all: a killed build leaves no
    half. ``command`` has program and flags, before ``-I.`` and ``-o``; ``inputs`` follow these: sources, relative to
    ``cwd``, so that messages name the candidate's files alone. The rest as of :func:`run_compiler`, as is what is
    raised.
    """
    made = out.with_name(f"{out.name}.{os.getpid()}")
    try:
        run_compiler([*command, "-I.", "-o", str(made.absolute()), *inputs], cwd, timeout_s, further, cpu_s)
        made.replace(out)
    finally:
        made.unlink(missing_ok=True)


def _read_head(stream: IO[bytes], head: bytearray) -> None:
    # Reads to the end, so that a flood cannot block the compiler, but keeps only the head.
    with stream:
        while chunk := stream.read1(65536) if hasattr(stream, "read1") else stream.read(65536):
            room = LOG_LIMIT_BYTES - len(head)
            if room > 0:
                head += chunk[:room]


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):  # it ended in the meantime
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
