"""What workers may take, and what is built before it is judged."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from kerneleval import languages
from kerneleval.judge import Judge
from kerneleval.judge.windows import worker_pool
from kerneleval.languages import cpp, cuda
from kerneleval.pipeline import check
from kerneleval.records import Candidate
from kerneleval.sandbox import processes

SILU = """
#include <cmath>
#include <cstdint>
extern "C" int silu(const float *x, float *out, int64_t M, int64_t N, void *) {
    for (int64_t i = 0; i < M * N; i++) out[i] = x[i] / (1.0f + std::exp(-x[i]));
    return 0;
}
"""
SLOW = """
template <int N> constexpr long sum() { long s = N; for (long i = 0; i < 200000; ++i) s += i % 7; return s; }
template <int N> constexpr long sums() { return sum<N>() + sum<N + 1000>() + sum<N + 2000>() + sum<N + 3000>(); }
template <int N> struct Slow { static constexpr long value = sums<N>() + Slow<N - 1>::value; };
template <> struct Slow<0> { static constexpr long value = 0; };
"""
"""Its compiler takes more than 100 s."""


def _candidate(text: str) -> Candidate:
    return Candidate(files=(("silu.cpp", text),), language="cpp")


@pytest.mark.parametrize("device,host_gib,limit_gib", [("cpu", 12, 6), ("cuda", 12, 6), ("cuda", 128, 16)])
def test_a_worker_may_take_no_more_than_half_of_the_host(
    monkeypatch: pytest.MonkeyPatch, device: str, host_gib: int, limit_gib: int
) -> None:
    """A candidate on a GPU was stopped at 32 GiB, whatever the host had: the host ended first."""
    figures = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": (host_gib << 30) // 4096}
    monkeypatch.setattr(os, "sysconf", figures.__getitem__)
    asked = SimpleNamespace(name=device, torch_device=device)
    assert worker_pool._worker_memory_bytes(asked) == limit_gib << 30  # type: ignore[arg-type]


def test_candidates_are_built_ahead_and_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The archetypes' 29 candidates were built one after the other, each when its turn had come: 1 to 2.4 s each."""
    path = tmp_path / "silu.cpp"
    path.write_text(SILU)
    good, bad = languages.read_candidate(path), _candidate(SILU + "no C++")
    told = []
    with Judge("cpu", tmp_path / "cache") as judge:
        judge.build_ahead([good, bad, good], lambda event: told.append((event.kind, event.done, event.total)))
        assert told == [("build", 0, 2), ("build", 1, 2)], "the same content is built once"
        assert judge.pool.built(good).is_dir()
        assert not judge.pool.built(bad).exists(), "its verdict will say why"
        monkeypatch.setattr(worker_pool, "_keep", None)  # who built it once more would have to keep it
        small = {"dtypes": ["float32"], "directions": ["forward"], "categories": ["small"]}
        assert check(path, "silu", judge=judge, timed=False, tier="quick", **small).verdict == "passed"
        judge.build_ahead([good], lambda event: told.append(event))
        assert len(told) == 2, "nothing is left to build"


def test_once_a_numba_candidate_came_workers_find_it_loaded(judge: Judge) -> None:
    """Each worker loaded Numba for itself, and for its first function the compiler: half a second."""
    loaded = "import sys\nassert 'numba.np.arraymath' in sys.modules\nimport numba\ndef gelu(x):\n    return x\n"
    candidate = Candidate(files=(("gelu.py", loaded),), language="numba")
    judge.pool.require(candidate)
    judge.pool.take_spare().close()  # may be older
    worker_pool.Loaded(judge.pool, candidate, ["gelu"]).close()


@pytest.mark.parametrize("language, compiler_s", [("cpp", cpp.TIMEOUT_S), ("cuda", cuda.TIMEOUT_S)])
def test_a_build_is_waited_for_until_its_compiler_is_ended(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, language: str, compiler_s: float
) -> None:
    """nvcc may take 300 s: the judge ended every build after 120 s, and no message named the compiler."""
    monkeypatch.setattr(worker_pool, "_keep", lambda *_: None)
    monkeypatch.setattr(judge.pool, "built", lambda _candidate: tmp_path / "none")
    asked: list[float] = []
    worker = SimpleNamespace(request=lambda *_, timeout_s: asked.append(timeout_s))
    candidate = Candidate(files=((f"one.{language}", ""),), language=language)
    judge.pool.build(worker, candidate, tmp_path / "build")  # type: ignore[arg-type]
    assert asked == [compiler_s + 5]


def test_nobody_waits_for_compilers_when_a_run_is_stopped(tmp_path: Path) -> None:
    def stop(_event: object) -> None:
        time.sleep(1.0)
        raise KeyboardInterrupt

    with Judge("cpu", tmp_path / "cache") as judge:
        slow = [_candidate(f"{SLOW}\nstatic_assert(Slow<{n}>::value > 0);\n{SILU}") for n in (600, 601, 602)]
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            judge.build_ahead(slow, stop)
        assert time.monotonic() - began < 60  # on a busy machine; else some 2 s
        assert not [pid for pid in processes.descendants(os.getpid()) if processes.name_of(pid) == "cc1plus"]
