"""A whole refinement: a model that answers better from round to round; what it is told, costs, and what is stored."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openai", reason="the openai package is not installed (pip install 'kerneleval[llm]')")

from tests.generators.llm.chat_server import USAGE, ChatServer, Say, serving

from kerneleval import pipeline, tasks
from kerneleval.devices.cpu import Cpu
from kerneleval.judge import Judge
from kerneleval.judge.timing.statistics import Noise
from kerneleval.judge.timing.timer import NoiseFigures
from kerneleval.languages.common import opencl_runtime
from kerneleval.pipeline.running import SHARED, feedback_cases
from kerneleval.records import Limits, Protocol
from kerneleval.store import open_store

HEAD = """
#include <cmath>
#include <cstdint>

extern "C" int charbonnier_loss_none_float32(const float *x, const float *target, double eps, float *out, int64_t M,
                                             int64_t N, void *) {
"""
DOES_NOT_BUILD = HEAD + "    out[0] = sqrt(x[0]) return 0;\n}\n"
BLOCKS_OF_64 = (
    HEAD
    + """
    const float e = (float)(eps * eps);
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j + 64 <= N || (N < 64 && j < N); j += N < 64 ? 1 : 64)
            for (int64_t k = 0; k < (N < 64 ? 1 : 64); k++) {
                const float d = x[i * N + j + k] - target[i * N + j + k];
                out[i * N + j + k] = std::sqrt(d * d + e);
            }
    return 0;
}
"""
)
SLOW = (
    HEAD
    + """
    for (int64_t i = 0; i < M * N; i++) {
        volatile double d = (double)x[i] - target[i];
        for (volatile int k = 0; k < 16; k = k + 1) d = d + 0.0;
        out[i] = (float)std::sqrt(d * d + eps * eps);
    }
    return 0;
}
"""
)
FAST = (
    HEAD
    + """
    const float e = (float)(eps * eps);
#pragma omp parallel for simd if (M * N > 65536)
    for (int64_t i = 0; i < M * N; i++) {
        const float d = x[i] - target[i];
        out[i] = std::sqrt(d * d + e);
    }
    return 0;
}
"""
)
ROUNDS = (DOES_NOT_BUILD, BLOCKS_OF_64, SLOW, FAST)
TASK = "charbonnier_loss_none"


def answer(body: dict[str, Any], number: int, sources: tuple[str, ...] = ROUNDS) -> Say:
    """The better, the more rounds there were."""
    rounds = sum(message["role"] == "assistant" for message in body["messages"])
    return Say(text=f"Round {rounds}.\n\n```cpp\n{sources[rounds].strip()}\n```\n")


def settings(folder: Path, server: ChatServer, **more: Any) -> str:
    lines = [f"{key} = {str(value).lower() if isinstance(value, bool) else repr(value)}" for key, value in more.items()]
    path = folder / "model.toml"
    path.write_text(
        f'[generator]\nkind = "llm"\nmodel = "lab/tiny"\nbase_url = "{server.url}"\nlanguage = "cpp"\nrounds = 4\n'
        + "\n".join(lines)
        + "\n[generator.prices]\ninput = 2.0\noutput = 8.0\ncached = 0.5\n"
    )
    return str(path)


def run(path: str, store: Path, **options: Any) -> str:
    return pipeline.run(
        (path,), (TASK,), device="cpu", store_url=str(store), tier="quick", directions=("forward",), **options
    )


@pytest.fixture
def known_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of a machine far beyond this one: measuring real ones takes ten seconds, and half a minute in OpenCL. And
    small cases, which take two thirds of the time.
    """
    fast = Limits(bandwidth_bytes_per_s=1e13, flop_per_s=(("float32", 1e15),))
    monkeypatch.setattr("kerneleval.judge.machine.peaks.measure_limits", lambda *_, **__: fast)
    monkeypatch.setattr(Cpu, "case_budget", lambda _: (1 << 18, 4_000_000))


@pytest.mark.slow
@pytest.mark.serial  # "slower" is claimed only if nothing else disturbs the clock
@pytest.mark.usefixtures("known_limits")
def test_from_a_build_error_to_a_fast_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, steady = tmp_path / "s.db", NoiseFigures(call=(Noise(spread=0.05, between=0.01),) * 4, device=())
    # noise that was measured in a busy minute would leave nothing to be claimed; every verdict finds its own beside it
    monkeypatch.setattr("kerneleval.judge.judge.floor", lambda *_: steady)
    with serving(answer) as server:
        done = run(settings(tmp_path, server), store, categories=("medium", "non_power_of_two", "rectangular"))
        assert len(server.requests) == 4
    told = [request["messages"][-1]["content"] for request in server.requests]

    assert "build_error" in told[1] and "expected" in told[1] and "return 0" in told[1]
    assert "wrong_output" in told[2] and "Failing case" in told[2] and "expected" in told[2]
    assert re.search(r"[0-9]+ of [0-9]+ cases are right", told[2])
    assert "is right in every case" in told[3] and re.search(r"x .* against .*machine's limit", told[3])
    for text in told[1:]:
        assert "seed" not in text.lower() and str(tmp_path) not in text and "/work" not in text
        assert "--case" not in text

    with open_store(store, write=False) as opened:
        info = opened.run("latest")
        assert info.id == done and info.complete
        (rounds,) = [i for i in opened.runs() if i.rounds_of == done]
        drafts = {a.sample: v for a, v in opened.verdicts(rounds.id)}
        ((final, verdict),) = opened.verdicts(done)
    assert [drafts[n].reason for n in range(4)] == ["build_error", "wrong_output", "ok", "ok"]
    assert verdict.verdict == "passed" and verdict.speedup is not None
    assert drafts[2].speedup is not None and verdict.speedup.low > drafts[2].speedup.high
    assert final.origin is not None and final.origin.round == 3
    assert (final.origin.tokens_in, final.origin.tokens_out) == (4 * 1200, 4 * 300)
    each = (200 * 2.0 + 1000 * 0.5 + 300 * 8.0) / 1e6
    assert final.origin.money_usd == pytest.approx(4 * each, abs=1e-12)
    assert USAGE["prompt_tokens"] == 1200

    # what it was told is of other sizes than those it is judged at in the end
    final_sizes = {c.case.dims for c in verdict.cells if c.case.shape_category not in ("tiny", "edge")}
    draft_sizes = {
        c.case.dims for v in drafts.values() for c in v.cells if c.case.shape_category not in ("tiny", "edge")
    }
    assert final_sizes and draft_sizes and not final_sizes & draft_sizes
    for dims in final_sizes:
        line = ", ".join(f"{name}={size}" for name, size in dims)
        assert all(line not in text for text in told)

    found = pipeline.transitions(done, store_url=str(store))
    assert found["runs"] == [rounds.id]
    assert found["transitions"] == 3
    assert found["counts"]["build"]["rescued"] == found["counts"]["correct"]["rescued"] == 1
    assert found["counts"]["speed"]["faster"] == 1

    page = tmp_path / "r.html"
    pipeline.report(done, store_url=str(store), html_to=page)
    text = page.read_text()
    section = text[text.index('<section id="rounds"') :]
    section = section[: section.index("</section>")]
    assert "build_error → wrong_output → ok" in section and "right in every case" in section
    assert "only indices" in section and "4,800" not in section
    assert section.count("<h4>Round") == 4 and "1,200 tokens in" in section
    assert "Not evaluated" not in section and "1 rescued" in section

    with serving(answer) as silent:
        again = run(settings(tmp_path, silent), store, max_tokens=1)
    assert again != done, "another endpoint is another run"


OPENCL_HEAD = f"""
// kerneleval-launch: {TASK}_float32 global=M local=1
kernel void {TASK}_float32(global const float *x, global const float *target, double eps, global float *out, long M,
                           long N) {{
    const long row = get_global_id(0);
    x += row * N, target += row * N, out += row * N;
"""
OPENCL_ROUNDS = (
    OPENCL_HEAD + "    out[0] = squareroot(x[0]);\n}\n",
    OPENCL_HEAD + "    for (long i = 0; i + 1 < N; i++) out[i] = fabs(x[i] - target[i]);\n}\n",
    OPENCL_HEAD
    + """    const float e = (float)(eps * eps);
    for (long i = 0; i < N; i++) {
        const float d = x[i] - target[i];
        out[i] = sqrt(d * d + e);
    }
}
""",
)


@pytest.mark.slow
@pytest.mark.usefixtures("known_limits")
def test_rounds_in_opencl(tmp_path: Path, new_cache: Callable[[], Path]) -> None:
    """The language follows from the device; the compiler's words and failing cases come back as feedback."""
    if reason := opencl_runtime.unusable():
        pytest.skip(f"not run: {reason}")

    def better(body: dict[str, Any], number: int) -> Say:
        rounds = sum(message["role"] == "assistant" for message in body["messages"])
        return Say(text=f"Round {rounds}.\n\n```opencl\n{OPENCL_ROUNDS[rounds].strip()}\n```\n")

    store = tmp_path / "s.db"
    with serving(better) as server, Judge("opencl", new_cache()) as judge:
        path = Path(settings(tmp_path, server))
        path.write_text(path.read_text().replace('language = "cpp"\nrounds = 4', "rounds = 3"))
        wanted = {"tier": "quick", "directions": ("forward",), "categories": ("tiny", "small"), "timed": False}
        done = pipeline.run((str(path),), (TASK,), judge=judge, store_url=str(store), **wanted)
        told = [request["messages"] for request in server.requests]
    assert [len(messages) for messages in told] == [2, 4, 6]
    assert f"kernel void {TASK}_float32(" in told[0][-1]["content"]
    assert "build_error" in told[1][-1]["content"] and "squareroot" in told[1][-1]["content"]
    assert "wrong_output" in told[2][-1]["content"] and "Failing case" in told[2][-1]["content"]
    for messages in told[1:]:
        assert "tagged `opencl`" in messages[-1]["content"]
        assert str(tmp_path) not in messages[-1]["content"] and "/tmp" not in messages[-1]["content"]
    with open_store(store, write=False) as opened:
        ((final, verdict),) = opened.verdicts(done)
    assert (verdict.verdict, verdict.machine.device) == ("passed", "opencl")
    assert final.origin is not None and final.origin.round == 2


@pytest.mark.slow
@pytest.mark.usefixtures("known_limits")
def test_a_target_ends_it_early_and_a_second_call_asks_nothing(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    with serving(functools.partial(answer, sources=(DOES_NOT_BUILD, BLOCKS_OF_64, FAST, FAST))) as server:
        path = settings(tmp_path, server)
        few = {"target": 0.0001, "categories": ("medium", "non_power_of_two")}
        first = run(path, store, **few)
        assert len(server.requests) == 3, "the third is right"
        second = run(path, store, **few)
        assert len(server.requests) == 3
    assert first != second
    with open_store(store, write=False) as opened:
        assert all(info.complete for info in opened.runs())


def test_shapes_of_feedback_are_not_the_final_ones() -> None:
    names = ("gelu", "softmax", "matmul", "layer_norm", "attention", "conv2d", TASK)
    with Judge("cpu") as judge:
        for final in (Protocol(tier="quick"), Protocol(tier="standard", dtypes=("float32",), suite_seed=7)):
            for task in (tasks.find(name) for name in names):
                cases = feedback_cases(judge, task, final)
                assert cases == feedback_cases(judge, task, final), "a run that goes on must find them again"
                one = {c.dims for c in judge.plan(task, final) if c.shape_category not in SHARED}
                other = {c.dims for c in cases if c.shape_category not in SHARED}
                assert one and other and not one & other, task.name
                assert {c.shape_category for c in cases} == {c.shape_category for c in judge.plan(task, final)}
