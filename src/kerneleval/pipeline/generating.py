"""Asking generators without judging: prompts, candidates as files, and what asking and judging would cost."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerneleval.pipeline.asking import Caps, Kept, answers_of, ask_all
from kerneleval.pipeline.checking import borrowed
from kerneleval.pipeline.running import UNANSWERED, in_float32, known_limits, suite_of
from kerneleval.records import (
    Answer,
    InfrastructureError,
    OnEvent,
    Protocol,
    Request,
    RunSpec,
    Task,
    UsageError,
    to_plain,
)
from kerneleval.scores.common.cells import by_key
from kerneleval.scores.common.intervals import Z

if TYPE_CHECKING:
    from kerneleval.generators import Asked, Generator
    from kerneleval.generators.llm import Model
    from kerneleval.store.store import Store


def prompts(spec: RunSpec, protocol: Protocol) -> list[dict[str, Any]]:
    """What a model would be asked in the first round of each task: ``task``, ``template``, ``hash`` and ``messages``
    (role and content). The store may know the machine's limits, which are measured now where it does not. Raises
    UsageError for an unknown task or device, or a generator that is no model.
    """
    from kerneleval.generators.llm import Model

    maker, suite = _opened(spec, protocol, None)
    if not isinstance(maker, Model):
        raise UsageError(f'{spec.generators[0]} has no prompts: only models (kind = "llm") are asked in words')
    with borrowed(None, spec.device) as judge:
        limits = known_limits(there(spec.store_url), judge, in_float32(protocol))
        found = []
        for task in suite:
            request = Request(task=task, device=judge.machine.device, machine=judge.machine, limits=limits)
            prompt = maker.prompt(request)
            messages = [{"role": role, "content": text} for role, text in prompt.messages]
            found.append({"task": task.name, "template": prompt.template, "hash": prompt.hash, "messages": messages})
    return found


def generate(
    spec: RunSpec, protocol: Protocol, folder: str | Path, *, on_event: OnEvent | None = None
) -> dict[str, Any]:
    """Write what a generator has for each task into a folder, which is a generator itself (``-g FOLDER``). Nothing is
    judged, so that there is one round.

    The files are ``TASK/sample_N.SUFFIX``, each with its origin (``.origin.json``) and what was written
    (``.written.txt``), from which later edits are counted; of an answer without a candidate ``.answer.txt``.

    Returns plain data: ``folder``, ``candidates``, ``without`` (problem -> number of answers) and what they cost
    together: ``tokens_in``, ``tokens_out``, ``usd``, ``seconds``. Raises UsageError for an unknown generator, task or
    device, a cap that cannot be kept, a folder that cannot be written; InfrastructureError where an endpoint did not
    answer: the answers received are written and kept.
    """
    from kerneleval.generators import Asked

    caps, kept = Caps(spec.max_usd, spec.max_tokens, spec.max_hours), Kept(spec.store_url)
    maker, suite = _opened(spec, protocol, kept)
    place = Path(folder)
    with borrowed(None, spec.device) as judge:
        machine = judge.machine
        if isinstance(maker, Asked):
            limits = known_limits(there(spec.store_url), judge, in_float32(protocol), kept)
            requests = [
                Request(task=task, device=machine.device, machine=machine, limits=limits, sample=sample)
                for task in suite
                for sample in range(maker.samples)
            ]
            came = ask_all(maker, requests, on_event, caps=caps)
            answers = [(request.task.name, answer) for request, answer in zip(requests, came, strict=True)]
        else:
            given = answers_of(maker, suite, machine.device)
            answers = [(task, answer) for task, of in given.items() for answer in of]
    for task_name, answer in answers:
        _write(place / task_name, answer)
    return _summary(str(place), [answer for _, answer in answers])


def _write(folder: Path, answer: Answer) -> None:
    from kerneleval.reports.files import write_text

    stem = f"sample_{answer.origin.sample}"
    try:
        if answer.candidate is None and not answer.text:
            return
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} can't be made: {error.strerror}; give another folder") from error
    if answer.candidate is None:
        write_text(folder / f"{stem}.answer.txt", answer.text.encode("utf-8", "replace").decode())
        return
    name, text = answer.candidate.files[0]
    write_text(folder / f"{stem}{Path(name).suffix}", text)
    write_text(folder / f"{stem}.written.txt", text)  # what humans change afterwards is counted against it
    write_text(folder / f"{stem}.origin.json", json.dumps(to_plain(answer.origin), indent=1) + "\n")


def _summary(folder: str, answers: Sequence[Answer]) -> dict[str, Any]:
    without = Counter(answer.problem or "missing" for answer in answers if answer.candidate is None)
    broken = [answer for answer in answers if answer.problem == "endpoint"]
    if broken:
        raise InfrastructureError(
            f"{len(broken)} of {len(answers)} samples got no answer, the first of them: {broken[0].message}; the "
            f"others are in {folder}, and the same command requests the rest"
        )
    origins = [answer.origin for answer in answers]
    return {
        "folder": folder,
        "candidates": sum(answer.candidate is not None for answer in answers),
        "without": dict(without),
        "unasked": next((a.message for a in answers if a.problem in UNANSWERED), ""),
        "tokens_in": sum(o.tokens_in for o in origins),
        "tokens_out": sum(o.tokens_out for o in origins),
        "usd": math.fsum(o.money_usd for o in origins),
        "seconds": math.fsum(o.seconds for o in origins),
    }


def _opened(spec: RunSpec, protocol: Protocol, cache: Kept | None) -> tuple[Generator | Asked, list[Task]]:
    from kerneleval import generators as makers

    (generator,) = spec.generators
    maker = makers.find(generator, cache)
    return maker, list(suite_of(spec, protocol).values())


def there(store_url: str | None) -> Store | None:
    """The store, if there is one."""
    from kerneleval.store import open_store

    try:
        return open_store(store_url, create=False, write=False)
    except UsageError:
        return None


CHARACTERS = 3.5
"""Characters of a prompt for each token where nothing is known of the model: what tokenizers of today make of English
and code is between 3 and 4.5."""

TOKENS_OUT = 3000
"""Tokens of an answer where nothing is known of the model: a file of 200 lines and some reasoning."""

FEEDBACK = 3000
"""Characters of feedback for each round."""

_WIDE = 2.0
"""An assumption may be off by this factor either way."""


@dataclass(frozen=True, kw_only=True)
class _Known:
    """What a store knows of a model."""

    ratio: float
    tokens_out: list[float]
    cached: float
    """Share of the prompt's tokens out of the endpoint's cache."""
    seconds: list[float]
    characters_out: float


def estimate(spec: RunSpec, protocol: Protocol, *, against: str = "") -> dict[str, Any]:
    """What asking and judging generators over a suite will cost, before anything is asked.

    Prompts are rendered and counted. Tokens for each character, answers and seconds are those of the same model's
    earlier answers in the store, seconds of judging those of earlier verdicts in the same tier on this machine, of the
    same task where there is one; intervals hold 95 % of the totals, if answers are independent. What the store knows
    nothing of is assumed, with a factor of 2 either way, and marked so; judging time is not assumed.

    Returns plain data: ``generators``: name -> ``requests``, and ``tokens_in``, ``tokens_out``, ``usd``, ``asking_s``,
    ``judging_s``, each with ``value``, ``low``, ``high`` and ``basis`` and, with the run ``against``, ``actual``.
    Raises UsageError for an unknown generator, task, device or run.
    """
    from kerneleval import generators as makers

    found = [makers.find(name) for name in spec.generators]
    suite = list(suite_of(spec, protocol).values())
    store = there(spec.store_url)
    if against and store is None:
        raise UsageError(f"there is no store yet, so no run {against!r} to compare with; leave --against out")
    with borrowed(None, spec.device) as judge:
        machine = judge.machine
        limits = known_limits(store, judge, in_float32(protocol))
        requests = [Request(task=t, device=machine.device, machine=machine, limits=limits) for t in suite]
        table = {maker.name: _row(maker, requests, store, protocol.tier) for maker in found}
    if against and store is not None:
        for name, actual in _actual(store, against).items():
            for key, value in actual.items():
                if key in table.get(name, {}):
                    table[name][key]["actual"] = value
    return {"device": machine.device, "tasks": len(suite), "generators": table, "against": against}


def _row(maker: Generator | Asked, requests: Sequence[Request], store: Store | None, tier: str) -> dict[str, Any]:
    """What one generator will cost; ``requests`` holds one for each task."""
    from kerneleval.generators import Asked

    first = requests[0]
    assert first.machine is not None
    if isinstance(maker, Asked):
        row = _asking(maker, requests, store)
        samples = {request.task.name: maker.samples * maker.rounds for request in requests}
    else:
        row = {"requests": 0}
        answers = answers_of(maker, [request.task for request in requests], first.device)
        samples = {name: len(of) for name, of in answers.items()}
    return {**row, "judging_s": _judging(store, first.machine.fingerprint, tier, samples)}


def _asking(maker: Asked, requests: Sequence[Request], store: Store | None) -> dict[str, Any]:
    from kerneleval.generators.llm import Model

    count = len(requests) * maker.samples * maker.rounds
    if not isinstance(maker, Model):
        return {"requests": count}
    known = _history(store, maker)
    ratio = known.ratio if known else CHARACTERS
    length = known.characters_out if known else TOKENS_OUT * CHARACTERS
    inputs = 0.0
    for request in requests:
        characters = sum(len(text) for _, text in maker.prompt(request).messages)
        for number in range(maker.rounds):
            inputs += maker.samples * (characters + number * (length + FEEDBACK)) / ratio
    outs = known.tokens_out if known else [float(TOKENS_OUT)]
    basis = f"{len(outs)} earlier answers" if known else "assumed: the store has no answer of this model"
    tokens_in = _figure(inputs, 0.05 * inputs, basis) if known else _assumed(inputs, basis)
    tokens_out = _total(outs, count, basis) if known else _assumed(outs[0] * count, basis)
    row = {"requests": count, "tokens_in": tokens_in, "tokens_out": tokens_out}
    price = _pricing(maker, known)
    if price is not None:
        row["usd"] = {k: price(tokens_in[k], tokens_out[k]) for k in ("value", "low", "high")} | {"basis": basis}
    if known:
        row["asking_s"] = _total([s / maker.concurrency for s in known.seconds], count, basis)
    return row


def _pricing(model: Model, known: _Known | None) -> Callable[[float, float], float] | None:
    """(tokens in, tokens out) -> US dollars; None: no list has the model."""
    from kerneleval.generators.llm.settings import Usage

    share = known.cached if known else 0.0

    def price(tokens_in: float, tokens_out: float) -> float:
        million = Usage(tokens_in=10**6, tokens_out=0, tokens_cached=round(share * 10**6))
        made = Usage(tokens_in=0, tokens_out=10**6)
        return model.price(million)[0] * tokens_in / 1e6 + model.price(made)[0] * tokens_out / 1e6

    return price if model.price(Usage(tokens_in=1, tokens_out=1))[1] else None


def _history(store: Store | None, model: Model) -> _Known | None:
    """What is known of the model at its endpoint; None: nothing."""
    bodies = [
        body
        for body in (store.responses() if store is not None else ())
        if body.get("usage") and (body.get("asked") or {}).get("model") == model.settings.model
        if (body.get("asked") or {}).get("url") == model.settings.url
    ]
    if not bodies:
        return None
    characters = sum(len(text) for body in bodies for _, text in body["prompt"])
    tokens = sum(body["usage"]["tokens_in"] for body in bodies)
    return _Known(
        ratio=characters / max(1, tokens),
        tokens_out=[float(body["usage"]["tokens_out"]) for body in bodies],
        cached=sum(body["usage"]["tokens_cached"] for body in bodies) / max(1, tokens),
        seconds=[float(body["seconds"]) for body in bodies],
        characters_out=statistics.fmean(len(body["text"]) for body in bodies),
    )


def _judging(store: Store | None, machine: str, tier: str, samples: Mapping[str, int]) -> dict[str, Any] | None:
    """Seconds of judging so many samples of each task; None: nothing was judged here in this tier yet."""
    if store is None:
        return None
    runs = [i.id for i in store.runs() if i.protocol.tier == tier and machine in (m.fingerprint for m in i.machines)]
    verdicts = (both for run in runs for both in store.verdicts(run, cells=False))
    times = by_key((a.task, verdict.seconds) for a, verdict in verdicts if verdict.seconds > 0 and a.machine == machine)
    every = [seconds for of in times.values() for seconds in of]
    if not every:
        return None
    value = variance = 0.0
    for task, count in samples.items():
        of = times.get(task, every)
        value += count * statistics.fmean(of)
        spread = statistics.stdev(of) if len(of) > 1 else statistics.fmean(of)
        variance += count * spread**2 + (count * spread) ** 2 / len(of)
    own = sum(task in times for task in samples)
    return _figure(value, math.sqrt(variance), f"{len(every)} earlier verdicts, of {own} of the {len(samples)} tasks")


def _total(values: Sequence[float], count: int, basis: str) -> dict[str, Any]:
    """A sum of so many independent draws from what was seen: its own scatter and that of the seen mean."""
    spread = statistics.stdev(values) if len(values) > 1 else statistics.fmean(values)
    error = spread * math.sqrt(count + count**2 / len(values))
    return _figure(statistics.fmean(values) * count, error, basis)


def _figure(value: float, error: float, basis: str) -> dict[str, Any]:
    low, high = max(0.0, value - Z * error), value + Z * error
    return {"value": value, "low": low, "high": high, "basis": basis}


def _assumed(value: float, basis: str) -> dict[str, Any]:
    return {"value": value, "low": value / _WIDE, "high": value * _WIDE, "basis": basis}


def _actual(store: Store, run: str) -> dict[str, dict[str, float]]:
    """What a run cost, by generator; final answers hold what all their rounds cost."""
    info = store.run(run)
    found: dict[str, dict[str, float]] = {}
    for attempt in store.attempts(info.id):
        row = found.setdefault(attempt.generator, dict.fromkeys(("tokens_in", "tokens_out", "usd", "judging_s"), 0.0))
        if attempt.origin is not None:
            row["tokens_in"] += attempt.origin.tokens_in
            row["tokens_out"] += attempt.origin.tokens_out
            row["usd"] += attempt.origin.money_usd
    for one in [info, *(other for other in store.runs() if other.rounds_of == info.id)]:
        for attempt, verdict in store.verdicts(one.id, cells=False):
            found[attempt.generator]["judging_s"] += verdict.seconds
    return found
