"""Tiers of the tests: what cannot run here is skipped with the reason, and counted at the end for everybody to see."""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import importlib
import importlib.util
import math
import os
import random
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kerneleval.judge import Judge

os.environ.setdefault("GOMP_SPINCOUNT", "30000")  # as the command line does, before anything loads PyTorch
if "PYTEST_XDIST_WORKER" in os.environ:  # as many judges as processors: helper threads would wait for one another
    os.environ.setdefault("OMP_NUM_THREADS", "1")

TIERS = ("gpu", "network", "slow")
ASKED = {"network": "KERNELEVAL_TEST_NETWORK", "slow": "KERNELEVAL_TEST_SLOW"}
"""Tiers that run only if the variable is set, to anything but 0."""


@functools.cache
def _why_not(tier: str) -> str:
    """Why a tier cannot run here; empty: it can."""
    if name := ASKED.get(tier):
        return "" if os.environ.get(name, "") not in ("", "0") else f"set {name}=1 to run it"
    from kerneleval import devices

    return devices.find("cuda").available()


@pytest.fixture(autouse=True)
def _same_draws(request: pytest.FixtureRequest) -> None:
    """What a test draws is the same in every run; what the judge draws never is: its secrets come from elsewhere."""
    seed = zlib.crc32(request.node.nodeid.encode())
    random.seed(seed)
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        torch.default_generator.manual_seed(seed)  # in microseconds: `torch.manual_seed` writes the stack down first
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(seed)


def pytest_configure(config: pytest.Config) -> None:
    """One cache directory for all processes that are given none: what a machine can do is measured once."""
    if "KERNELEVAL_CACHE_DIR" not in os.environ:
        kept = getattr(config, "cache", None)  # none with -p no:cacheprovider
        made = kept.mkdir("kerneleval") if kept is not None else tempfile.mkdtemp(prefix="kerneleval-tests-")
        os.environ["KERNELEVAL_CACHE_DIR"] = os.environ["KERNELEVAL_TEST_CACHE"] = str(made)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Processes that all collect every test compile another part each first: the others find it compiled."""
    root, given = Path(__file__).parent, getattr(session.config, "workerinput", None)
    if given is None or [Path(one).resolve() for one in session.config.args] != [root]:
        return
    files = sorted(root.rglob("test_*.py"))
    first = len(files) * int(given["workerid"].removeprefix("gw")) // given["workercount"]
    for path in files[first:] + files[:first]:
        with contextlib.suppress(Exception, pytest.skip.Exception):  # what is wrong is told when it is collected
            importlib.import_module(".".join(path.relative_to(root.parent).with_suffix("").parts))


@pytest.fixture(scope="session")
def new_cache(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Makes a cache directory for a judge: empty, but for the noise figures, peaks and self-checks of the machine, made
    once for all tests that do not ask how good they are.
    """
    shared = [Path(os.environ["KERNELEVAL_CACHE_DIR"]) / name for name in ("noise", "peaks", "self-checks")]

    def made() -> Path:
        folder = tmp_path_factory.mktemp("cache")
        for of_machine in shared:
            of_machine.mkdir(parents=True, exist_ok=True)
            (folder / of_machine.name).symlink_to(of_machine, target_is_directory=True)
        return folder

    return made


@pytest.fixture(scope="session", autouse=True)
def _forked_zygotes() -> Iterator[None]:
    """Judges of this process do not load PyTorch into a zygote each, for two seconds of processor time."""
    from kerneleval.judge.windows import worker_pool

    from .zygotes import Forked

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_pool, "zygote_of", Forked)
        yield


@pytest.fixture(scope="session", autouse=True)
def _noise_of_one_session() -> Iterator[None]:
    """A third of the sessions tells what noise the machine has about as well; other tests wait meanwhile. Large figures
    are kept: measured again in the middle of a test, they were among the measurements that it watches.
    """
    from kerneleval.judge.timing import timer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timer, "_SESSIONS", 1)
        patch.setattr(timer, "_LARGE_KEPT_S", math.inf)
        yield


@pytest.fixture(scope="session", autouse=True)
def _peaks_that_nothing_reaches() -> None:
    """In the cache directory that is ours: measuring takes ten seconds, and a test that asks for peaks has its own."""
    from kerneleval import devices
    from kerneleval.judge.machine import peaks
    from kerneleval.records import DTYPES, Peak

    if folder := os.environ.get("KERNELEVAL_TEST_CACHE"):
        found = {name: Peak(name=name, unit="/s", best=1e15) for name in peaks.needed(DTYPES)}
        peaks._keep(devices.find("cpu").machine(), Path(folder), found)


@pytest.fixture(scope="session")
def judge(new_cache: Callable[[], Path]) -> Iterator[Judge]:
    """A judge of the CPU for every test that does not ask how one begins and ends, which takes seconds."""
    from kerneleval.judge import Judge

    with Judge("cpu", new_cache()) as judge:
        yield judge


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first: at the end no process waits for one."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
    always = _always(items)
    for item in items:
        for tier in TIERS:
            if item.get_closest_marker(tier) and item.nodeid not in always and (reason := _why_not(tier)):
                item.add_marker(pytest.mark.skip(reason=reason))


def _always(items: list[pytest.Item]) -> set[str]:
    """Cases of slow tests that are always run: one in N of each test. They are chosen by a hash of the name, so that no
    parameter has the same value in all of them.
    """
    families: dict[tuple[str, int], list[str]] = collections.defaultdict(list)
    for item in items:
        if (marker := item.get_closest_marker("slow")) and (every := marker.kwargs.get("every")):
            families[item.nodeid.partition("[")[0], every].append(item.nodeid)
    kept = (sorted(cases, key=lambda one: zlib.crc32(one.encode()))[:: of[1]] for of, cases in families.items())
    return {one for cases in kept for one in cases}


def pytest_collection_finish() -> None:
    """The collector walks no more through all tests, a third of a second each time, and seldom through what they
    import.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


_INTERPRETER_FAILS = "triton on device 'cpu'"
"""How the message of a failed self-check of Triton's interpreter begins."""


@contextlib.contextmanager
def _absent_packages_are_skipped() -> Iterator[None]:
    """Skip a test that needs a package of an extra that is not installed, or Triton's interpreter where its self-check
    fails, as that of Triton 3.6 beside NumPy 2.5. Every other refused tool fails the test.

    ``tests/judge/test_tools.py`` fails for an interpreter that is installed and refused.
    """
    from kerneleval.records import ToolError, UsageError

    try:
        yield
    except ToolError as error:
        if not str(error).startswith(_INTERPRETER_FAILS):
            raise
        pytest.skip(f"not run: {error}")
    except UsageError as error:
        absent = error.__cause__.name if isinstance(error.__cause__, ModuleNotFoundError) else None
        if absent is None or importlib.util.find_spec(absent.partition(".")[0]):
            raise
        pytest.skip(f"not run: {error}")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    if pyfuncitem.path.name == "test_tools.py":
        return (yield)
    with _absent_packages_are_skipped():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup() -> Iterator[None]:
    with _absent_packages_are_skipped():
        return (yield)


@pytest.fixture
def triton_works(judge: Judge) -> None:
    """Skips a test that runs Triton's interpreter in a process of its own, where its self-check fails."""
    from kerneleval.records import Candidate

    judge.pool.require(Candidate(files=(("x.py", ""),), language="triton"))


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line a tier that did not run, whatever the report options are. Slow tests are not listed one by one."""
    stats = terminalreporter.stats
    for tier in TIERS:
        skipped = [r for r in stats.get("skipped", []) if tier in getattr(r, "keywords", ())]
        if name := ASKED.get(tier):
            skipped = [r for r in skipped if f"{name}=1" in r.longrepr[2]]
        if skipped:
            why = str(skipped[0].longrepr[2]).removeprefix("Skipped: ")
            terminalreporter.write_line(f"NOT RUN: {len(skipped)} tests of the {tier} tier ({why})", yellow=True)
        if skipped and tier == "slow":
            stats["skipped"] = [r for r in stats["skipped"] if r not in skipped]
            stats["slow, not run"] = skipped
