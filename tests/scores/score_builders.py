"""Results with given outcomes, for hand-worked scores."""

from __future__ import annotations

from kerneleval.records import Case, Failed, Passed, Result, Samples, Timing

SHAPES = ("tiny", "small", "medium", "large", "power_of_two", "non_power_of_two", "rectangular", "square")


def timing(speedup: float, claim: str | None = None, half: float = 0.01) -> Timing:
    claim = claim or ("faster" if speedup > 1.02 else "slower" if speedup < 0.98 else "equal")
    return Timing(
        samples=Samples(candidate_ns=(100.0,) * 4, baseline_ns=(100.0 * speedup,) * 4, calls=1),
        speedup=speedup,
        low=speedup * (1 - half),
        high=speedup * (1 + half),
        noise=0.01,
        claim=claim,
    )


def outcome(what, half=0.01):
    """A number is a speedup; None passed, untimed; text is the reason of a failure, ``STAGE/REASON`` or a reason."""
    if isinstance(what, str):
        stage, _, reason = what.rpartition("/")
        return Failed(stage=stage or "correctness", reason=reason)
    if isinstance(what, Timing):
        return Passed(timing=what)
    return Passed(timing=None if what is None else timing(what, half=half))


def rows(
    task,
    outcomes,
    *,
    direction="forward",
    category="gemm",
    device="cpu",
    sample=0,
    dtype="float32",
    generator="g",
    run="r",
    half=0.01,
):
    """One result for each outcome, over the eight shape categories in turn."""
    return [
        Result(
            run=run,
            generator=generator,
            sample=sample,
            candidate="c",
            task=task,
            category=category,
            level=1,
            device=device,
            machine=f"machine of {device}",
            case=Case(task=task, direction=direction, dims=(("M", 3 + i),), dtype=dtype, shape_category=SHAPES[i % 8]),
            outcome=outcome(what, half),
        )
        for i, what in enumerate(outcomes)
    ]
