"""What this machine can do: devices, compilers, languages, sandbox, clock, memory, store; what to install; its peaks.

:func:`examine` tries things instead of looking them up: it starts a worker on every device that is there, builds
and runs a known kernel in every language, and takes some seconds a device the first time, two the next. Its answer is
plain data with the units in the names; ``machine_view`` shows it to people.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import importlib.util
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerneleval.pipeline.checking import borrowed
from kerneleval.records import Candidate, KernelEvalError, OnEvent, ToolError, tell, to_plain

if TYPE_CHECKING:
    from kerneleval.judge.judge import Judge
    from kerneleval.judge.windows.worker_pool import WorkerPool
    from kerneleval.languages import Language


_PACKAGES = ("torch", "triton", "numba", "pyopencl", "numpy", "scipy", "sqlalchemy", "psycopg")
_SPIN_NS = 1_000_000
_SPINS = 300
_CALM = 0.02
_STALL = 0.10


def examine(store: str | None, cache_dir: Path) -> dict[str, Any]:
    """Everything that is known of this machine, as plain data: ``usable`` (some device can judge candidates in some
    language), ``versions``, ``devices``, ``compilers``, ``clock``, ``memory``, ``store`` and ``advice``: sentences that
    say what is missing and how to get it.
    """
    from kerneleval import devices

    found: dict[str, Any] = {
        "usable": False,
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in _PACKAGES},
        "clock": clock(),
        "memory": _memory(cache_dir),
        "compilers": _compilers(),
        "devices": [_device(name, cache_dir) for name in devices.names()],
        "store": _store(store),
    }
    found["usable"] = any(
        d["available"] and not d["sandbox"].get("error") and any(not x["missing"] for x in d["languages"])
        for d in found["devices"]
    )
    found["advice"] = _advice(found)
    return found


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _device(name: str, cache_dir: Path) -> dict[str, Any]:
    if importlib.util.find_spec("torch") is None:
        reason = "PyTorch is not installed: pip install torch"
        return {"name": name, "available": False, "reason": reason}
    from kerneleval import devices
    from kerneleval.judge.windows.worker_pool import WorkerPool

    device = devices.find(name)
    reason = device.available()
    if reason:
        return {"name": name, "available": False, "reason": reason, "on_hardware": device.on_hardware}
    case_bytes, case_flops = device.case_budget()
    machine = device.machine()
    with WorkerPool(device, machine, cache_dir) as pool:
        sandbox = _sandbox(pool)
        found = _languages(pool) if not sandbox["error"] else []
    return {
        "name": name,
        "available": True,
        "reason": "",
        "on_hardware": device.on_hardware,
        "capabilities": dataclasses.asdict(device.capabilities()),
        "machine": to_plain(machine) | {"fingerprint": machine.fingerprint},
        "memory_budget_bytes": device.memory_budget_bytes(),
        "case_budget_bytes": case_bytes,
        "case_budget_flops": case_flops,
        "conditions": device.conditions(),
        "languages": found,
        "sandbox": sandbox,
    }


def _languages(pool: WorkerPool) -> list[dict[str, Any]]:
    """The languages of a device; ``missing`` says what to install, or why the self-check of one fails."""
    from kerneleval import languages

    device = pool.device.name
    return [
        {
            "name": language.name,
            "suffixes": list(language.suffixes),
            "missing": language.missing(device) or _refused(pool, language),
            "not_judged": list(language.unsupported_dtypes(device)),
        }
        for language in languages.all_languages().values()
        if device in language.devices
    ]


def _refused(pool: WorkerPool, language: Language) -> str:
    """Why candidates in a language cannot be judged on a device, though its tools are there; empty: they can."""
    from kerneleval.languages.common.base import known_kernel

    for known in language.known:
        candidate = Candidate(files=((known, known_kernel(known)),), language=language.name)
        try:
            pool.require(candidate)
        except ToolError as error:
            return error.reason
    return ""


def _sandbox(pool: WorkerPool) -> dict[str, Any]:
    """Start a zygote and two workers, as a judge does: how well the second was contained, and what it cost."""
    from kerneleval.sandbox.slot import ResourceLimits

    try:
        pool.zygote.fork(ResourceLimits()).close()
        worker = pool.zygote.fork(ResourceLimits())
        try:
            trust: dict[str, Any] = to_plain(worker.trust)
            return trust | {"zygote_start_s": pool.zygote.start_s, "fork_s": worker.fork_s, "error": ""}
        finally:
            worker.close()
    except (KernelEvalError, OSError) as error:
        return {"level": "", "layers": [], "missing": [], "error": f"{type(error).__name__}: {error}"}


def _compilers() -> list[dict[str, Any]]:
    from kerneleval.languages.binaries.nvidia import Nvrtc, cuda_folders, find_nvrtc
    from kerneleval.languages.common.compiler import find_tool, tool_version

    rows = []
    chosen = os.environ.get("CXX", "").strip()
    cuda = [root / "bin" for root in cuda_folders()]
    for name, names, folders in (
        ("c++", [chosen] if chosen else ["g++", "c++"], ()),
        ("nvcc", ["nvcc"], cuda),
        ("hipcc", ["hipcc"], [Path("/opt/rocm/bin")]),
    ):
        path = find_tool(names, folders)
        tried = _tried(functools.partial(tool_version, path) if path else None)
        rows.append({"name": name, "path": path or ""} | tried)
    library = find_nvrtc()
    tried = _tried((lambda: Nvrtc(library).version) if library else None)
    rows.append({"name": "nvrtc", "path": str(library or "")} | tried)
    packages = ("triton", "numba", "pyopencl")
    return rows + [{"name": name, "path": "", "version": _version(name), "error": ""} for name in packages]


def _tried(version: Callable[[], str] | None) -> dict[str, str]:
    if version is None:
        return {"version": "", "error": ""}
    try:
        return {"version": version(), "error": ""}
    except KernelEvalError as error:
        return {"version": "", "error": str(error)}


def clock(spins: int = _SPINS) -> dict[str, Any]:
    """How steady time is here: the timer's own resolution, and how far equal pieces of work differ in time.

    The work is a loop of about 1 ms, ``spins`` times over. What scatters it is what scatters measurements too: clock
    changes, interrupts, neighbours on the same cores.

    Returns:
        ``resolution_ns`` (least step seen), ``spin_ns`` (median), ``spread`` (interquartile range over median),
        ``p99_over_median``, ``stalls`` (share of loops more than 10 % over the median) and ``calm``: whether the
        spread is at most 2 % and at most 5 % of the loops stalled.
    """
    steps = []
    for _ in range(2000):
        first = time.perf_counter_ns()
        while (now := time.perf_counter_ns()) == first:
            pass
        steps.append(now - first)
    rounds = 1000
    while (once := min(_spin_ns(rounds) for _ in range(3))) < _SPIN_NS // 4:  # one may have been interrupted
        rounds *= 2
    rounds = max(1, rounds * _SPIN_NS // once)
    collecting = gc.isenabled()
    gc.disable()
    try:
        times = [_spin_ns(rounds) for _ in range(spins)]
    finally:
        if collecting:
            gc.enable()
    median = statistics.median(times)
    low, _, high = statistics.quantiles(times, n=4)
    spread = (high - low) / median
    stalls = sum(t > median * (1 + _STALL) for t in times) / len(times)
    return {
        "resolution_ns": min(steps),
        "spin_ns": median,
        "spread": spread,
        "p99_over_median": statistics.quantiles(times, n=100)[98] / median,
        "stalls": stalls,
        "calm": spread <= _CALM and stalls <= 0.05,
    }


def _spin_ns(rounds: int) -> int:
    started = time.perf_counter_ns()
    for _ in range(rounds):
        pass
    return time.perf_counter_ns() - started


def _memory(cache_dir: Path) -> dict[str, Any]:
    cache_dir = cache_dir.absolute()
    there = next(p for p in (cache_dir, *cache_dir.parents) if p.exists())
    return {
        "host_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "limit_bytes": _memory_limit(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "load_1min": os.getloadavg()[0],
        "temporary_dir": tempfile.gettempdir(),
        "temporary_free_bytes": shutil.disk_usage(tempfile.gettempdir()).free,
        "cache_dir": str(cache_dir),
        "cache_free_bytes": shutil.disk_usage(there).free,
    }


def _memory_limit() -> int:
    """The control group's memory limit in bytes; 0: none that can be seen."""
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        # Version 1 writes "no limit" as the largest multiple of the page size.
        return int(text) if text.isdigit() and int(text) < 1 << 60 else 0
    return 0


def _store(url: str | None) -> dict[str, Any]:
    from kerneleval.store import open_store

    place = url or "kerneleval.db"
    path = Path(place.removeprefix("sqlite:///"))
    local = "://" not in place or place.startswith("sqlite:///")
    if local and not path.exists():
        writable = path.parent.is_dir() and os.access(path.parent, os.W_OK)
        wrong = f"{path.parent} is no directory one can write"
        message = "not there yet; the first run makes it" if writable else wrong
        return {"place": place, "reachable": writable, "runs": 0, "message": message}
    try:
        with open_store(url, create=False, write=False) as store:
            return {"place": store.place, "reachable": True, "runs": len(store.runs()), "message": ""}
    except KernelEvalError as error:
        place = place if local else place.rpartition("@")[2]
        return {"place": place, "reachable": False, "runs": 0, "message": str(error)}


def _advice(found: dict[str, Any]) -> list[str]:
    advice = []
    for device in found["devices"]:
        name = device["name"]
        if not device["available"]:
            advice.append(f"{name}: {device['reason']}")
            continue
        if not device["on_hardware"]:
            advice.append(f"{name}: this device was not run on hardware by its authors; see docs/hardware.md")
        advice += [f"{name}: {x['name']} candidates: {x['missing']}" for x in device["languages"] if x["missing"]]
        sandbox = device["sandbox"]
        if sandbox["error"]:
            advice.append(f"{name}: no worker could be started: {sandbox['error']}")
        elif sandbox["level"] != "strong":
            missing = "; ".join(sandbox["missing"])
            advice.append(f"{name}: the sandbox is {sandbox['level']} (missing: {missing}); see docs/threat-model.md")
    advice += [f"{x['name']}: {x['error']}" for x in found["compilers"] if x["error"]]
    if not found["clock"]["calm"]:
        advice.append(
            "clock: equal work takes unequal time here; stop other load or fix the clock rate, "
            "or expect wide intervals and more 'inconclusive'"
        )
    for what in ("temporary", "cache"):
        if found["memory"][f"{what}_free_bytes"] < 1 << 30:
            advice.append(f"disk: less than 1 GiB is free in {found['memory'][f'{what}_dir']}")
    if not found["store"]["reachable"]:
        advice.append(f"store: {found['store']['message']}")
    return advice


def peaks(
    device: str | None = None, *, again: bool = False, judge: Judge | None = None, on_event: OnEvent | None = None
) -> dict[str, Any]:
    """The peaks of a machine: from the cache, and measured now as far as they are not known (``again``: all of them).

    Returns plain data: ``machine``, ``fingerprint``, ``product`` and ``source`` (empty: no vendor's figures are known),
    ``unsteady`` (why what was measured now is in doubt), and ``peaks``: the fields of :class:`Peak`, with
    ``datasheet`` and ``share`` of it (None: not stated). Raises UsageError where there is no such device, or it is not
    usable here, InfrastructureError where it has no memory left to measure with.
    """
    from kerneleval.devices.common.datasheet import product_of
    from kerneleval.judge.machine import peaks as stage

    measured = 0

    def on_measure(name: str, done: int, total: int) -> None:
        nonlocal measured
        measured += 1
        tell(on_event, "peaks", done, total, f"measuring {name}")

    with borrowed(judge, device) as owner:
        owner.pool.quiet()
        before = owner.device.conditions()
        found = stage.known(owner.device, owner.machine, owner.pool.cache_dir, again=again, on_measure=on_measure)
        why = owner.device.unsteady(before, owner.device.conditions()) if measured else ""
        machine = owner.machine
    product = product_of(machine)
    rows = []
    for peak in found.peaks:
        stated = product.figure(peak.name) if product else 0.0
        share = peak.best / stated if stated and peak.best else None
        rows.append(to_plain(peak) | {"datasheet": stated or None, "share": share})
    return {
        "machine": to_plain(machine),
        "fingerprint": machine.fingerprint,
        "product": product.name if product else "",
        "source": product.source if product else "",
        "unsteady": why,
        "peaks": rows,
    }
