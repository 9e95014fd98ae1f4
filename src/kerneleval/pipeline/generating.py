"""Asking a generator without judging: its prompts, and its candidates as files."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
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

if TYPE_CHECKING:
    from kerneleval.generators import Asked, Generator
    from kerneleval.generators.llm import Model
    from kerneleval.store.store import Store


def prompts(spec: RunSpec, protocol: Protocol) -> list[dict[str, Any]]:
    """What a model would be asked in the first round of each task: ``task``, ``template``, ``hash`` and ``messages``
    (role and content). The store may know the machine's limits, which are measured now where it does not.

    Raises:
        UsageError: an unknown task or device, or a generator that is no model.
    """
    maker, suite = _opened(spec, protocol, None)
    model = as_model(maker)
    if model is None:
        raise UsageError(f'{spec.generators[0]} has no prompts: only models (kind = "llm") are asked in words')
    with borrowed(None, spec.device) as judge:
        limits = known_limits(there(spec.store_url), judge, in_float32(protocol))
        found = []
        for task in suite:
            request = Request(task=task, device=judge.machine.device, machine=judge.machine, limits=limits)
            prompt = model.prompt(request)
            messages = [{"role": role, "content": text} for role, text in prompt.messages]
            found.append({"task": task.name, "template": prompt.template, "hash": prompt.hash, "messages": messages})
    return found


def generate(
    spec: RunSpec, protocol: Protocol, folder: str | Path, *, on_event: OnEvent | None = None
) -> dict[str, Any]:
    """Write what a generator has for each task into a folder, which is a generator itself (``-g FOLDER``). Nothing is
    judged, so that there is one round.

    Args:
        spec: one generator, the tasks, where answers are kept, and what may be spent.
        protocol: how the tasks are opened.
        folder: where the files go: ``TASK/sample_N.SUFFIX``, beside it its origin (``.origin.json``) and what was
            written (``.written.txt``), from which later edits are counted; of an answer without a candidate
            ``.answer.txt``.
        on_event: called as answers come.

    Returns:
        plain data: ``folder``, ``candidates``, ``without`` (problem -> number of answers) and what they cost together:
        ``tokens_in``, ``tokens_out``, ``usd``, ``seconds``.

    Raises:
        UsageError: an unknown generator, task or device; a cap that cannot be kept; a folder that cannot be written.
        InfrastructureError: an endpoint did not answer; what came is written and kept.
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
    return _told(str(place), [answer for _, answer in answers])


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


def _told(folder: str, answers: Sequence[Answer]) -> dict[str, Any]:
    without = Counter(answer.problem or "missing" for answer in answers if answer.candidate is None)
    broken = [answer for answer in answers if answer.problem == "endpoint"]
    if broken:
        raise InfrastructureError(
            f"{len(broken)} of {len(answers)} samples got no answer, the first of them: {broken[0].message}; what came "
            f"is in {folder}, and the same command asks for the rest"
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


def as_model(maker: Generator | Asked) -> Model | None:
    """The generator, if it is a model behind an endpoint."""
    from kerneleval.generators.llm import Model

    return maker if isinstance(maker, Model) else None


def there(store_url: str | None) -> Store | None:
    """The store, if there is one."""
    from kerneleval.store import open_store

    try:
        return open_store(store_url, create=False, write=False)
    except UsageError:
        return None
