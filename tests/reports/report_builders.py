"""Documents for the tests of reports: a run with everything in it, a hostile one, and one of any size."""

from __future__ import annotations

import math

from kerneleval.records import (
    CATEGORIES,
    GROUPS,
    SHAPE_CATEGORIES,
    Candidate,
    Case,
    Conditions,
    Failed,
    Finding,
    Machine,
    Origin,
    Passed,
    Protocol,
    Result,
    Samples,
    Timing,
    Trust,
    Verdict,
)
from kerneleval.reports import html
from kerneleval.scores import Setting, score_all
from kerneleval.store import Attempt, RunInfo

GENERATORS = ("careful", "fragile", "hasty")
TASKS = ("gelu", "softmax", "matmul", "layer_norm", "conv2d", "attention", "amax", "linear_gelu")
FAILURES = (
    ("generate", "missing"),
    ("build", "build_error"),
    ("load", "load_error"),
    ("call", "exception"),
    ("call", "unsupported"),
    ("correctness", "wrong_output"),
    ("honesty", "decoy_kernel"),
    ("timing", "wrong_output"),
)
HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    "\x00\x1b[31m\u202eevil\u2028\u2029\ud800\x07 {{ 7*7 }} <!-- %{x} <a href='http://evil.example'>"
)

EVIDENCE = {
    "worst_index": [3, 5],
    "expected": 1.25,
    "got": math.inf,
    "relative_rms_error": 0.5,
    "relative_rms_bound": 1e-6,
    "beyond": 12,
    "of": 64,
    "nan": 3,
    "inf": 1,
    "traceback": "Traceback\n  line 1\nValueError: no",
}


def machine(device: str) -> Machine:
    return Machine(
        device=device,
        name=f"Example {device.upper()} 9000",
        arch="sm_90" if device == "cuda" else "x86_64",
        memory_bytes=2**36,
        cache_bytes=2**25,
        units=64,
        driver="570.1",
        torch="2.13.0",
        triton="3.7.1",
        host="Example host",
    )


CUDA, CPU = machine("cuda"), machine("cpu")


def speed(generator: str, task: int, shape: int) -> float:
    """``fragile`` is fast at powers of two alone; ``careful`` is even."""
    wobble = 1 + 0.07 * math.sin(3 * task + shape)
    if generator == "careful":
        return (1.25 + 0.1 * (task % 5)) * wobble
    if generator == "fragile":
        return (2.6 if SHAPE_CATEGORIES[shape % 8] == "power_of_two" else 0.55) * wobble
    return 0.9 * wobble


def timing(value: float) -> Timing:
    samples = Samples(candidate_ns=(1000.0,) * 4, baseline_ns=(1000.0 * value,) * 4, calls=10)
    claim = "faster" if value > 1.03 else "slower" if value < 0.97 else "equal"
    return Timing(samples=samples, speedup=value, low=value * 0.97, high=value * 1.03, noise=0.01, claim=claim)


def source(generator: str, task: str, sample: int = 0, text: str = "") -> Candidate:
    body = (
        text.replace("\ud800", "")
        or f"# {generator}: {task}, sample {sample}\nimport torch\n\n\ndef run(x):\n    return x <= 1 and x\n"
    )
    return Candidate(files=(("kernel.py", body),), language="torch", entry="run")


def case(task: str, i: int, direction: str) -> Case:
    return Case(
        task=task,
        direction=direction,
        dims=(("M", 16 + i), ("N", 8 * i + 1)),
        dtype="float32",
        shape_category=SHAPE_CATEGORIES[i % 8],
    )


class Made:
    """A run of records, without a store."""

    def __init__(self, *, tasks=TASKS, generators=GENERATORS, devices=(CUDA, CPU), samples=2, shapes=8, text=""):
        self.results: list[Result] = []
        self.verdicts: list[tuple[Attempt, Verdict]] = []
        self.sources: dict[str, Candidate] = {}
        for on in devices:
            for generator in generators:
                for t, task in enumerate(tasks):
                    for sample in range(samples):
                        self._attempt(on, generator, t, task, sample, shapes, text)
        planned = len(self.verdicts)
        self.run = RunInfo(
            id="20260102-030405-abc123",
            name=text or "careful+fragile+hasty",
            created_unix_s=1_767_323_045.0,
            generators=tuple(generators),
            machines=tuple(devices),
            protocol=Protocol(),
            planned=planned,
            finished=planned,
            not_evaluated={"rocm": text or "no AMD GPU here"},
        )
        self.setting = Setting(not_evaluated=self.run.not_evaluated)

    def _attempt(self, on, generator, t, task, sample, shapes, text):
        made = source(generator, task, sample, text)
        failure = FAILURES[t % len(FAILURES)] if generator == GENERATORS[-1] or generator not in GENERATORS else None
        if generator == "fragile" and t % 4 == 3:
            failure = ("correctness", "wrong_output")
        hash_ = "" if failure and failure[0] == "generate" else made.hash
        if hash_:
            self.sources[hash_] = made
        origin = Origin(
            generator=generator, model="m-1", sample=sample, tokens_in=900, tokens_out=2400, money_usd=0.03, seconds=12
        )
        shared = {"generator": generator, "sample": sample, "task": task, "category": CATEGORIES[t % 7], "level": 1}
        shared |= {"run": "r", "device": on.device, "machine": on.fingerprint, "candidate": hash_}
        replay = text or f"kerneleval check kernel.py --task {task} --device {on.device}"
        for direction in ("forward", "backward"):
            for i in range(shapes):
                outcome = self._outcome(failure, generator, t, i, on, replay, text)
                self.results.append(
                    Result(
                        **shared,
                        case=case(task, i, direction),
                        outcome=outcome,
                        group=GROUPS[t % 15],
                        origin=origin if hash_ else Origin(),
                        judged_s=1.5,
                    )
                )
        self.verdicts.append(self._verdict(shared, on, failure, replay, text, origin))

    def _outcome(self, failure, generator, t, i, on, replay, text):
        if failure:
            evidence = EVIDENCE | ({text: text, "list": [text] * 3} if text else {})
            message = text or f"{failure[1]} at shape {i}"
            return Failed(stage=failure[0], reason=failure[1], message=message, evidence=evidence, replay=replay)
        value = speed(generator, t, i) * (0.7 if on.device == "cpu" else 1)
        return Passed(timing=timing(value) if i % 8 != 7 or generator != "careful" else None)

    def _verdict(self, shared, on, failure, replay, text, origin):
        findings = [Finding(check="static", level="warn", message=text or "candidate.py:3: a look-up by data_ptr()")]
        findings.append(Finding(check="conditions", level="warn", message=f"the load average is {len(replay)}.1"))
        findings.append(Finding(check="track", level="info", message="not shown"))
        stage, reason = failure or ("timing", "ok")
        attempt = Attempt(**shared, origin=origin, finished=True, cases=())
        verdict = Verdict(
            verdict="failed" if failure else "passed",
            stage=stage,
            reason=reason,
            message=text or f"{reason} it was",
            task=shared["task"],
            candidate=shared["candidate"],
            track="" if failure else "custom",
            trust=Trust(level="standard", missing=(text or "netns: not permitted",)),
            machine=on,
            protocol=Protocol(),
            speedup=None,
            cells=(),
            findings=tuple(findings) if shared["sample"] == 0 else (),
            replay=replay,
            seconds=1.5,
            conditions=Conditions(
                first={"clock_sm_mhz": 1755, "temperature_c": 41, "throttled": []},
                last={"clock_sm_mhz": 1980, "temperature_c": 63, "throttled": [text or "power_cap"]},
            ),
        )
        return attempt, verdict

    def document(self, **extras):
        scores = score_all(self.results, self.setting)
        return html.build(self.run, scores, iter(self.results), iter(self.verdicts), self.sources, extras)


def extras():
    """Roofline, limits and rubric."""
    points = [
        {
            "generator": generator,
            "task": task,
            "case": f"{task}/forward/M={16 << i}",
            "intensity": 0.2 * 4**t,
            "achieved_flop_s": min(3e12 * 0.2 * 4**t, 6e13) * (0.15 + 0.25 * g + 0.04 * i),
            "fraction": 0.15 + 0.25 * g + 0.04 * i,
        }
        for g, generator in enumerate(GENERATORS)
        for t, task in enumerate(TASKS)
        for i in range(4)
    ]
    points.append({**points[0], "intensity": 0.0})
    limits = {CUDA.fingerprint: {"bandwidth_byte_s": 3.3e12, "flop_s": {"float32": 6e13, "bfloat16": 9e14}}}
    levels = {"1": 2, "2": 5, "3": 1, "none": 1}
    rubric = {
        generator: {axis: dict(levels) for axis in "KRHP"} | {"A": {"none": 9, "why": "no origin says who edited"}}
        for generator in GENERATORS
    }
    return {"roofline": points, "limits": limits, "rubric": rubric}


def full():
    return Made().document(**extras())


def hostile():
    return Made(tasks=(*TASKS[:6], HOSTILE), generators=("careful", HOSTILE), text=HOSTILE * 3).document()


def many(cells: int):
    """At least so many cells, a third of them wrong."""
    per_task = len(GENERATORS) * 2 * 16
    tasks = tuple(f"operator_{i:04d}" for i in range(-(-cells // per_task)))
    return Made(tasks=tasks, devices=(CUDA,), samples=2)
