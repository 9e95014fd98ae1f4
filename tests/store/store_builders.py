"""Records as a judge would make them, and a program that stores them until it is killed.

``python store_builders.py URL NAME ATTEMPTS CELLS``: begins or resumes a run, stores a verdict for every unfinished
attempt, and prints the task after each commit.
"""

from __future__ import annotations

import sys

from kerneleval import records
from kerneleval.records import (
    Candidate,
    Case,
    Cell,
    CellResult,
    Failed,
    Finding,
    Machine,
    Origin,
    Passed,
    Protocol,
    Samples,
    SpeedupSummary,
    Timing,
    Trust,
    Verdict,
)
from kerneleval.store import NewRun, Planned, open_store

PROTOCOL = Protocol()


def machine(device: str = "cpu") -> Machine:
    return Machine(
        device=device,
        name=f"a {device}",
        arch="x86_64",
        memory_bytes=2**34,
        cache_bytes=2**25,
        units=8,
        driver="6.1",
        torch="2.13.0",
    )


def case(task: str, i: int = 0, direction: records.Direction = "forward") -> Case:
    category = records.SHAPE_CATEGORIES[i % 8]
    return Case(task=task, direction=direction, dims=(("M", 4 + i), ("N", 7)), dtype="float32", shape_category=category)


def candidate(name: str, generator: str = "g", sample: int = 0) -> Candidate:
    return Candidate(
        files=(("kernel.py", f"# {name}\ndef run(x):\n    return x\n"), ("helper.py", "é\x00\n")),
        language="torch",
        entry="run",
        origin=Origin(generator=generator, sample=sample, tokens_in=12, money_usd=0.25),
    )


def timing(speedup: float, pairs: int = 8) -> Timing:
    times = tuple(1000.0 + i / 3 for i in range(pairs))
    samples = Samples(
        candidate_ns=times,
        baseline_ns=tuple(t * speedup for t in times),
        calls=50,
        sessions=(0,) * pairs,
        empty_ns=12.5,
    )
    claim = "faster" if speedup > 1.02 else "slower" if speedup < 0.98 else "equal"
    return Timing(samples=samples, speedup=speedup, low=speedup * 0.99, high=speedup * 1.01, noise=0.01, claim=claim)


def verdict(
    task: str,
    made: Candidate | None,
    cells: tuple[CellResult, ...],
    *,
    on: Machine | None = None,
    stage: str = "timing",
    reason: str = "ok",
    message: str = "",
    track: str = "custom",
    protocol: Protocol = PROTOCOL,
) -> Verdict:
    return Verdict(
        verdict="passed" if reason == "ok" else "failed",
        stage=stage,
        reason=reason,
        message=message,
        task=task,
        candidate="" if made is None else made.hash,
        track=track,
        trust=Trust(level="standard", layers=("process", "rlimits"), missing=("netns: not permitted",)),
        machine=on or machine(),
        protocol=protocol,
        speedup=SpeedupSummary(value=1.5, low=1.4, high=float("inf"), claim="faster", cells=len(cells)),
        cells=cells,
        findings=(Finding(check="decoy", level="warn", message="late"),),
        replay="kerneleval check kernel.py --task " + task,
        seconds=0.5,
    )


def passed(of: Case, speedup: float | None = 1.5, pairs: int = 8) -> CellResult:
    evidence = {"error": 1e-7, "bound": float("inf"), "worst": [0, 3]}
    # infinities in evidence come back as text: evidence is for reading, not for computing
    plain = {**evidence, "bound": "inf"}
    outcome = Passed(timing=None if speedup is None else timing(speedup, pairs), evidence=plain)
    return CellResult(case=of, outcome=outcome)


def failed(of: Case, stage: str = "correctness", reason: str = "wrong_output") -> CellResult:
    return CellResult(case=of, outcome=Failed(stage=stage, reason=reason, message="off by \x00 \ud800 2", replay="x"))


def cell(of: Case, made: Candidate, on: Machine | None = None, protocol: Protocol = PROTOCOL) -> Cell:
    return Cell(candidate=made.hash, case=of, machine=(on or machine()).fingerprint, protocol=protocol.key)


def plan(attempts: int, cells: int, generator: str = "g") -> list[Planned]:
    return [
        Planned(
            generator=generator,
            task=f"task{i:03d}",
            category=records.CATEGORIES[i % 7],
            level=1,
            cases=tuple(case(f"task{i:03d}", j) for j in range(cells)),
            candidate=candidate(f"task{i:03d}", generator),
        )
        for i in range(attempts)
    ]


def write_until_done(url: str, name: str, attempts: int, cells: int) -> None:
    with open_store(url) as store:
        run = store.begin_run(
            NewRun(
                name=name,
                generators=("g",),
                machines=(machine(),),
                protocol=PROTOCOL,
                plan=tuple(plan(attempts, cells)),
            ),
            resume=True,
        )
        print("run", run, flush=True)
        for attempt in store.unfinished(run):
            made = candidate(attempt.task)
            judged = tuple(passed(c, 1.5, pairs=40) for c in attempt.cases)
            if store.put_verdict(run, "g", attempt.sample, made, verdict(attempt.task, made, judged)):
                print("stored", attempt.task, flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    write_until_done(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
