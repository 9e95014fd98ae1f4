"""What is looked for in a candidate's sources. One row, one thing; a new row needs nothing else.

A row is met where any of its columns is. A pattern that names cannot tell is a function of ``patterns.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from kerneleval.judge.static_analysis import patterns
from kerneleval.languages.common.python_source import Source


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One thing to look for, and what to say of it."""

    name: str
    """Slug, for programs."""
    says: str
    """For people, after the place and what stands there."""
    level: Literal["info", "warn"] = "warn"
    """``warn``, or ``info`` for what honest kernels do too."""
    uses: tuple[str, ...] = ()
    """Python: names as they would be imported, ``os.environ``; ``socket.*`` is everything below."""
    attributes: tuple[str, ...] = ()
    """Python: attributes of whatever object."""
    texts: tuple[str, ...] = ()
    """What a string holds, in any language; docstrings and comments are not strings."""
    but: tuple[str, ...] = ()
    """Strings that hold one of these are not meant."""
    names: tuple[str, ...] = ()
    """C++ and CUDA: identifiers; ``name(``: only where it is called."""
    found: Callable[[Source], Iterable[tuple[int, str]]] | None = None
    """Python: lines, and what stands there, of a pattern."""


@dataclass(frozen=True)
class Hit:
    """A rule that was met."""

    rule: Rule
    line: int
    what: str


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


RULES: tuple[Rule, ...] = (
    Rule(
        name="frames",
        says="looks into the frames of its callers",
        uses=_words(
            "inspect.currentframe inspect.getinnerframes inspect.getouterframes inspect.stack inspect.trace "
            "sys._current_frames sys._getframe traceback.walk_stack"
        ),
        attributes=("cr_frame", "f_back", "f_globals", "f_locals", "gi_frame", "tb_frame"),
    ),
    Rule(
        name="objects",
        says="looks through the objects of the process",
        uses=("gc.get_objects", "gc.get_referents", "gc.get_referrers"),
    ),
    Rule(
        name="code",
        says="looks into or replaces the code of functions",
        uses=("types.CodeType",),
        attributes=("__closure__", "__code__", "__globals__"),
    ),
    Rule(
        name="tracing",
        says="hooks into whatever runs in the process",
        uses=_words(
            "sys.addaudithook sys.monitoring.* sys.setprofile sys.settrace threading.setprofile threading.settrace"
        ),
    ),
    Rule(
        name="observer",
        says="asks whether it is being watched",
        uses=_words(
            "sys.getprofile sys.gettrace torch._C._get_dispatch_mode torch._C._len_torch_dispatch_stack "
            "torch.utils._python_dispatch._get_current_dispatch_mode "
            "torch.utils._python_dispatch._get_current_dispatch_mode_stack"
        ),
    ),
    Rule(
        name="harness",
        says="names the program that judges it",
        uses=("kerneleval.*",),
        texts=("kerneleval",),
        found=patterns.imports_harness,
    ),
    Rule(
        name="proc",
        says="looks into processes",
        texts=("/proc/",),
        but=("/proc/cpuinfo", "/proc/driver/", "/proc/meminfo", "/proc/sys/", "/proc/version"),
    ),
    Rule(
        name="environment",
        says="reads the environment",
        uses=("os.getenv", "os.environb"),
        names=("getenv(", "secure_getenv("),
        found=patterns.reads_environment,
    ),
    Rule(
        name="sets_environment",
        says="sets variables of the environment",
        level="info",
        uses=("os.putenv", "os.unsetenv"),
        names=("putenv(", "setenv(", "unsetenv("),
        found=patterns.sets_environment,
    ),
    Rule(
        name="memory",
        says="reads or writes memory by its address, or that of other processes",
        uses=("ctypes.pythonapi.*", "ctypes.string_at", "ctypes.wstring_at"),
        attributes=("from_address",),
        texts=("process_vm_readv", "process_vm_writev", "ptrace"),
        names=_words(
            "cuIpcOpenMemHandle( cudaIpcOpenMemHandle( hipIpcOpenMemHandle( pidfd_getfd( process_vm_readv( "
            "process_vm_writev( ptrace("
        ),
    ),
    Rule(
        name="loader",
        says="looks names up in the loader, past the list of what it was linked with",
        names=("dl_iterate_phdr(", "dladdr(", "dlinfo(", "dlmopen(", "dlopen(", "dlsym(", "dlvsym("),
    ),
    Rule(
        name="library",
        says="loads a native library",
        level="info",
        uses=("ctypes.CDLL", "ctypes.PyDLL", "ctypes.cdll.*", "ctypes.util.find_library", "torch.ops.load_library"),
    ),
    Rule(
        name="syscalls",
        says="asks the kernel directly, or changes what memory may be executed",
        names=("mprotect(", "prctl(", "syscall("),
    ),
    Rule(
        name="processes",
        says="starts processes",
        uses=_words(
            "multiprocessing.* os.execv os.execve os.execvp os.fork os.forkpty os.popen os.posix_spawn os.spawnv "
            "os.spawnvp os.system pty.* subprocess.* torch.multiprocessing.*"
        ),
        names=("execl(", "execv(", "execve(", "execvp(", "fork(", "popen(", "posix_spawn(", "system(", "vfork("),
    ),
    Rule(
        name="threads",
        says="starts threads",
        level="info",
        uses=_words(
            "_thread.start_new_thread concurrent.futures.ProcessPoolExecutor concurrent.futures.ThreadPoolExecutor "
            "threading.Thread threading.Timer"
        ),
        names=("pthread_create(", "std::async(", "std::jthread", "std::thread", "thrd_create("),
        found=patterns.subclasses_thread,
    ),
    Rule(
        name="sockets",
        says="opens sockets or takes over descriptors",
        uses=("os.dup", "os.dup2", "os.pread", "os.preadv", "socket.*"),
        names=("connect(", "dup(", "dup2(", "recvmsg(", "sendmsg(", "socket("),
    ),
    Rule(
        name="signals",
        says="handles or sends signals",
        uses=_words(
            "os.kill os.killpg signal.alarm signal.pthread_kill signal.raise_signal signal.setitimer signal.signal"
        ),
        names=("kill(", "raise(", "setitimer(", "sigaction(", "signal("),
    ),
    Rule(
        name="exits",
        says="ends the process, or runs when it ends",
        uses=("atexit.register", "os._exit"),
        names=("_Exit(", "_exit(", "at_quick_exit(", "atexit(", "on_exit(", "quick_exit("),
    ),
    Rule(name="rebinding", says="rebinds a name of a module that is not its own", found=patterns.rebinds),
    Rule(
        name="operators",
        says="puts an implementation of its own in the place of PyTorch's for everybody",
        found=patterns.overrides_operators,
    ),
    Rule(
        name="flags",
        says="changes settings of the whole process",
        uses=_words(
            "torch.set_default_device torch.set_default_dtype torch.set_float32_matmul_precision "
            "torch.set_flush_denormal torch.use_deterministic_algorithms"
        ),
        names=("setAllowTF32CuBLAS", "setAllowTF32CuDNN", "setFloat32MatmulPrecision"),
        found=patterns.sets_flags,
    ),
    Rule(
        name="fallback",
        says="where its own code raises, the library computes",
        found=patterns.falls_back,
    ),
    Rule(name="suppress", says="goes on where its own code raised", found=patterns.suppresses),
    Rule(
        name="pointer_cache",
        says="keeps something by the address of a tensor, which says nothing of its content",
        found=patterns.caches_by_pointer,
    ),
    Rule(
        name="call_count",
        says="decides by how often it was called",
        found=patterns.counts_calls,
    ),
    Rule(name="reference", says="takes over the reference", found=patterns.takes_reference),
    Rule(
        name="packed_code",
        says="unpacks what cannot be read here",
        uses=("base64.b64decode", "codecs.decode", "marshal.loads", "pickle.loads", "zlib.decompress"),
    ),
    Rule(
        name="made_code",
        says="runs code that it makes itself, which is not read here",
        level="info",
        uses=("builtins.eval", "builtins.exec"),
    ),
)
